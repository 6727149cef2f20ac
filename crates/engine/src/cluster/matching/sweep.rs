//! Dropping what is followed and nobody asks about any more: sets go when no pod has a class that speaks of them, terms
//! when nobody on a node holds them. It is looked for after as many attempts as there are pods, so it costs little,
//! and what remains is in proportion to the pods there are.
//!
//! When it is done depends on attempts and pods alone, and numbers always get another meaning then: what is made anew
//! for that may choose another one of equal nodes, and an explanation in between must not change that.

use std::sync::Arc;

use super::{HeldId, Matching, SetId, index};
use crate::intern::Sym;
use crate::pod::Class;
use crate::pod::term::PodSet;

/// Who has a class though no pod does: the compiler, and the memo here.
pub(super) const KEEPERS: usize = 2;

/// Attempts after which there is enough to look through; tests want to see it done.
const ATTEMPTS_MIN: usize = if cfg!(test) { 8 } else { 1 << 14 };

impl Matching {
    /// Whether it is time to look for what nobody needs. To be asked once for each attempt.
    pub(in crate::cluster) fn is_due(&mut self, pods: usize) -> bool {
        self.attempts += 1;
        let is_due = self.attempts >= ATTEMPTS_MIN.max(2 * pods);
        if is_due {
            self.attempts = 0;
        }
        is_due
    }

    /// Drops what nobody asks about. `by_default` tells the sets that a class asks about beside its own.
    pub(in crate::cluster) fn sweep(&mut self, by_default: impl Fn(&Arc<Class>) -> Vec<Arc<PodSet>>) {
        self.classes.retain(|_, memo| !memo.pods.is_empty() || Arc::strong_count(&memo.class) > KEEPERS);
        let mut is_asked = vec![false; self.sets.len()];
        for memo in self.classes.values() {
            let by_default = by_default(&memo.class);
            for set in own_sets(&memo.class).chain(&by_default).filter_map(|set| self.set_ids.get(set)) {
                is_asked[index(set.0)] = true;
            }
        }
        let is_held: Vec<bool> = self.held.iter().map(|held| held.holders.total() != 0).collect();
        self.version += 1;
        self.drop_sets(&Renumbering::keeping(is_asked));
        self.drop_held(&Renumbering::keeping(is_held));
    }

    fn drop_sets(&mut self, numbers: &Renumbering) {
        numbers.retain(&mut self.sets);
        let sets = self.sets.iter().map(|followed| followed.set.clone());
        self.set_ids = sets.zip((0..).map(SetId)).collect();
        for memo in self.classes.values_mut() {
            memo.sets_seen = numbers.kept_before(memo.sets_seen);
            memo.in_sets = memo.in_sets.iter().filter_map(|id| numbers.new(id.0).map(SetId)).collect();
            memo.attended = memo.attended.map(|sets| numbers.kept_before(sets));
        }
    }

    fn drop_held(&mut self, numbers: &Renumbering) {
        numbers.retain(&mut self.held);
        let terms = self.held.iter().map(|held| (held.term.clone(), held.role));
        self.held_ids = terms.zip((0..).map(HeldId)).collect();
        let renumbered = |ids: &[HeldId]| ids.iter().filter_map(|id| numbers.new(id.0).map(HeldId)).collect();
        for memo in self.classes.values_mut() {
            memo.held_seen = numbers.kept_before(memo.held_seen);
            memo.meant_by = renumbered(&memo.meant_by);
            // Of a class without pods on nodes some may be gone; they are made again with its next pod.
            let holds = memo.holds.take().filter(|_| !memo.pods.is_empty());
            memo.holds = holds.map(|holds| renumbered(&holds));
        }
    }

    /// Whether anything is counted by domains of a key.
    pub(in crate::cluster) fn counts_by(&self, key: Sym) -> bool {
        let sets = self.sets.iter().map(|followed| &followed.all);
        sets.chain(self.held.iter().map(|held| &held.holders)).any(|counts| counts.by_domain(key).is_some())
    }
}

/// The sets that a class asks about.
fn own_sets(class: &Class) -> impl Iterator<Item = &Arc<PodSet>> {
    let preferred = class.preferred_pods.iter().map(|weighted| &weighted.term);
    let terms = class.anti_affinity.iter().chain(preferred).map(|term| &term.pods);
    terms.chain(&class.together).chain(class.spread.iter().map(|constraint| &constraint.pods))
}

/// What becomes of numbers when some of what they stand for goes.
struct Renumbering {
    is_kept: Vec<bool>,
    /// How many are kept before each, and of all.
    before: Vec<usize>,
}

impl Renumbering {
    fn keeping(is_kept: Vec<bool>) -> Renumbering {
        let mut before = vec![0];
        for is_kept in &is_kept {
            before.push(before.last().unwrap_or(&0) + usize::from(*is_kept));
        }
        Renumbering { is_kept, before }
    }

    /// None for what goes.
    fn new(&self, old: u32) -> Option<u32> {
        self.is_kept.get(index(old)).filter(|is_kept| **is_kept)?;
        u32::try_from(self.before[index(old)]).ok()
    }

    /// How many of the first so many are kept.
    fn kept_before(&self, count: usize) -> usize {
        self.before.get(count).copied().unwrap_or(0)
    }

    fn retain<T>(&self, list: &mut Vec<T>) {
        let mut is_kept = self.is_kept.iter();
        list.retain(|_| is_kept.next().copied().unwrap_or(true));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use crate::cluster::Cluster;
    use crate::pod::Pod;

    /// A pod that keeps away from its own kind, and is spread with it.
    fn pod(cluster: &mut Cluster, app: &str, key: &str) -> Arc<Pod> {
        let selector = json!({"matchLabels": {"app": app}});
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let object: Value = json!({"metadata": {"name": app, "namespace": "d", "uid": app, "labels": {"app": app}}, "spec": {
            "nodeName": "n", "containers": [],
            "affinity": {"podAntiAffinity": {(required): [{"topologyKey": key, "labelSelector": selector}]}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app, "part": "of it"}}}]}});
        Arc::new(cluster.compile(&serde_json::from_value(object).unwrap()))
    }

    #[test]
    fn what_nobody_asks_about_is_dropped() {
        let mut cluster = Cluster::default();
        let node = json!({"metadata": {"name": "n", "labels": {"host": "n", "zone": "z"}}});
        cluster.set_node(&serde_json::from_value(node).unwrap());
        let (mut staying, mut highest) = (Vec::new(), 0);
        for round in 0..400 {
            // Some are placed and stay, some are placed and go, some are deleted while they wait.
            let key = if round < 100 { "host" } else { "zone" };
            let pod = pod(&mut cluster, &format!("app-{round}"), key);
            cluster.tidy();
            cluster.attend(&pod.class);
            let term = &pod.class.anti_affinity[0].pods;
            let count = |cluster: &Cluster| {
                let matching = cluster.matching();
                matching.set(term).map(|id| matching.all(id).total())
            };
            assert_eq!(count(&cluster), Some(0), "round {round}");
            if round % 3 > 0 {
                assert_eq!(cluster.confirm(pod.clone()), None);
                assert_eq!(count(&cluster), Some(1), "round {round}");
            }
            match (round % 50, round % 3) {
                (10, 1..) => staying.push(pod),
                _ => drop(cluster.release(&pod.uid)),
            }
            let matching = cluster.matching();
            highest = highest.max(matching.sets.len() + matching.held.len() + matching.classes.len());
        }
        assert!(highest < 100, "{highest} at once");
        for pod in &staying {
            cluster.attend(&pod.class);
            let matching = cluster.matching();
            let id = matching.set(&pod.class.anti_affinity[0].pods);
            assert_eq!(id.map(|id| matching.all(id).total()), Some(1), "{}", pod.uid);
            let meant: Vec<i64> =
                matching.known_meant_by(&pod.class).iter().map(|id| matching.holders(*id).total()).collect();
            assert_eq!(meant, [1], "{}", pod.uid);
        }
        // With the last pod that asked for it, a key of topology goes too.
        let host = cluster.names.find("host").unwrap();
        assert!(cluster.domains().knows(host));
        staying.retain(|pod| {
            let is_by_host = pod.class.anti_affinity[0].topology_key == host;
            !(is_by_host && cluster.release(&pod.uid))
        });
        for at in 0..20 {
            let more = pod(&mut cluster, &format!("more-{at}"), "zone");
            cluster.tidy();
            cluster.attend(&more.class);
        }
        assert!(!cluster.domains().knows(host) && !staying.is_empty());
    }
}
