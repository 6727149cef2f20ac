//! InterPodAffinity: pods that want each other near or far. Spec: scheduler-core 6.9.
//!
//! Counts come from the cluster's index (`cluster::matching`); a simulation's pods come on top of them.

use std::sync::Arc;

use crate::cluster::domains::{Domain, KeyColumn, at};
use crate::cluster::matching::{Counts, HeldId, Role, SetId};
use crate::cluster::{Cluster, Row};
use crate::framework::parts::{FilterPart, ScorePart};
use crate::framework::{
    Code, Cycle, Facts, Filter, Hooks, NodeView, PreFilter, Preparation, Reason, Scope, Score, Sieve, Status,
};
use crate::intern::Sym;
use crate::number::{nearest, truncated};
use crate::pod::term::keys;
use crate::pod::{Class, Pod, PodTerm};

mod follow;
mod wake;

pub const NAME: &str = "InterPodAffinity";

/// How the plugin is set.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    pub hard_pod_affinity_weight: i64,
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for Args {
    fn default() -> Args {
        Args { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

pub fn build(args: Args) -> Hooks {
    let plugin = Arc::new(InterPodAffinity { args });
    Hooks::new(NAME)
        .pre_filter(plugin.clone())
        .filter(plugin.clone())
        .score(plugin)
        .woken_by(wake::registrations())
}

struct InterPodAffinity {
    args: Args,
}

/// What the filters of one attempt look at.
#[derive(Clone, Default)]
struct Wanted {
    /// Required anti-affinity of others that speaks of this pod.
    existing_anti: Vec<Tracked<HeldId>>,
    /// The same of pods that only a simulation has, where no pod on a node holds such a term.
    supposed_anti: Vec<(PodTerm, Tracked<()>)>,
    /// Required affinity: the pods that all terms mean, by each term's key.
    affinity: Vec<Tracked<SetId>>,
    anti: Vec<Tracked<SetId>>,
    /// The pod itself is one of those it wants near.
    matches_itself: bool,
}

/// A count by domain, and what a simulation adds to it.
#[derive(Clone)]
struct Tracked<T> {
    id: T,
    key: Sym,
    changes: Vec<(Domain, i64)>,
}

impl<T> Tracked<T> {
    fn new(id: T, key: Sym) -> Tracked<T> {
        Tracked { id, key, changes: Vec::new() }
    }

    fn change(&mut self, domain: Domain, by: i64) {
        match self.changes.iter_mut().find(|(known, _)| *known == domain) {
            Some((_, sum)) => *sum += by,
            None => self.changes.push((domain, by)),
        }
    }

    fn count(&self, counts: &Counts, domain: Domain) -> i64 {
        let counted =
            counts.by_domain(self.key).and_then(|counts| counts.get(at(domain))).copied().unwrap_or(0);
        let change = self.changes.iter().find(|(known, _)| *known == domain).map_or(0, |(_, by)| *by);
        counted + change
    }

    /// Pods in any domain, those on nodes without the label left out.
    fn total(&self, counts: &Counts) -> i64 {
        let counted: i64 = counts.by_domain(self.key).map_or(0, |counts| counts.iter().skip(1).sum());
        counted + self.changes.iter().filter(|(domain, _)| *domain != 0).map(|(_, by)| by).sum::<i64>()
    }
}

/// The domain of a row; 0 without the label.
fn domain(cluster: &Cluster, key: Sym, row: Row) -> Domain {
    cluster.domains().key(key).map_or(0, |column| column.of(row))
}

impl Wanted {
    fn of(cycle: &Cycle<'_>) -> Wanted {
        let (class, matching) = (&cycle.pod.class, cycle.cluster.matching());
        let anti_of_others = matching.known_meant_by(class).iter().filter_map(|id| {
            let (term, role) = matching.held_term(*id);
            (role == Role::RequiredAnti && matching.holders(*id).total() > 0)
                .then(|| Tracked::new(*id, term.topology_key))
        });
        let set = |term: &PodTerm| Some(Tracked::new(matching.set(&term.pods)?, term.topology_key));
        let together = class.together.as_ref().and_then(|together| matching.set(together));
        // All terms count the same pods, so one of each key is enough.
        let affinity = keys(&class.affinity).into_iter().filter_map(|key| Some(Tracked::new(together?, key)));
        Wanted {
            existing_anti: anti_of_others.collect(),
            supposed_anti: Vec::new(),
            affinity: affinity.collect(),
            anti: class.anti_affinity.iter().filter_map(set).collect(),
            matches_itself: class
                .together
                .as_ref()
                .is_some_and(|together| matching.contains(together, class, &cycle.cluster.names)),
        }
    }

    /// A pod of a simulation comes to a row or leaves it.
    fn simulate(&mut self, cycle_pod: &Pod, cluster: &Cluster, other: &Pod, row: Row, by: i64) {
        let matching = cluster.matching();
        for term in &other.class.anti_affinity {
            if !matching.contains(&term.pods, &cycle_pod.class, &cluster.names) {
                continue;
            }
            let place = domain(cluster, term.topology_key, row);
            let known =
                self.existing_anti.iter_mut().find(|tracked| matching.held_term(tracked.id).0 == term);
            match known {
                Some(tracked) => tracked.change(place, by),
                None => self.suppose_anti(term, place, by),
            }
        }
        let class = &cycle_pod.class;
        let is_wanted = class
            .together
            .as_ref()
            .is_some_and(|together| matching.contains(together, &other.class, &cluster.names));
        if is_wanted {
            for tracked in &mut self.affinity {
                let place = domain(cluster, tracked.key, row);
                tracked.change(place, by);
            }
        }
        for tracked in &mut self.anti {
            if matching.contains(matching.pods(tracked.id), &other.class, &cluster.names) {
                let place = domain(cluster, tracked.key, row);
                tracked.change(place, by);
            }
        }
    }

    fn suppose_anti(&mut self, term: &PodTerm, place: Domain, by: i64) {
        match self.supposed_anti.iter_mut().find(|(known, _)| known == term) {
            Some((_, tracked)) => tracked.change(place, by),
            None => {
                let mut tracked = Tracked::new((), term.topology_key);
                tracked.change(place, by);
                self.supposed_anti.push((term.clone(), tracked));
            }
        }
    }

    /// How many pods near a row want this one away, and under which key.
    fn unwelcome(&self, cluster: &Cluster, row: Row) -> Option<(Sym, Domain, i64)> {
        let (matching, none) = (cluster.matching(), Counts::default());
        let existing = self.existing_anti.iter().map(|tracked| {
            let place = domain(cluster, tracked.key, row);
            (tracked.key, place, tracked.count(matching.holders(tracked.id), place))
        });
        let supposed = self.supposed_anti.iter().map(|(_, tracked)| {
            let place = domain(cluster, tracked.key, row);
            (tracked.key, place, tracked.count(&none, place))
        });
        existing.chain(supposed).find(|(_, place, count)| *place != 0 && *count > 0)
    }
}

impl PreFilter for InterPodAffinity {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        let class = &cycle.pod.class;
        let has_own = !class.affinity.is_empty() || !class.anti_affinity.is_empty();
        let wanted = Wanted::of(cycle);
        let is_idle = !has_own && wanted.existing_anti.is_empty();
        cycle.set(wanted);
        Ok(if is_idle { Preparation::Skip } else { Preparation::Go })
    }

    fn only_serves(&self, _class: &Class) -> bool {
        true
    }

    fn add_pod(&self, cycle: &mut Cycle<'_>, other: &Arc<Pod>, row: Row) {
        let (pod, cluster) = (cycle.pod, cycle.cluster);
        if let Some(wanted) = cycle.get_mut::<Wanted>() {
            wanted.simulate(pod, cluster, other, row, 1);
        }
    }

    fn remove_pod(&self, cycle: &mut Cycle<'_>, other: &Arc<Pod>, row: Row) {
        let (pod, cluster) = (cycle.pod, cycle.cluster);
        if let Some(wanted) = cycle.get_mut::<Wanted>() {
            wanted.simulate(pod, cluster, other, row, -1);
        }
    }
}

/// How many pods are in the way or wanted, for people.
fn facts(cluster: &Cluster, key: Sym, place: Domain, count: i64, limit: i64) -> Facts {
    let value = cluster.domains().key(key).map_or("", |column| column.name(place));
    Facts::Domain { key: cluster.names.text(key).into(), value: value.into(), count, limit }
}

impl Filter for InterPodAffinity {
    /// A pod without terms can be kept off by those of others, so the class alone never says that nothing matters;
    /// `prepare` skips when nothing does in this cluster.
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Cluster
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        let Some(wanted) = cycle.get::<Wanted>() else { return Ok(()) };
        let (cluster, matching, row) = (cycle.cluster, cycle.cluster.matching(), node.row);
        let mut is_near = true;
        for tracked in &wanted.affinity {
            let place = domain(cluster, tracked.key, row);
            if place == 0 {
                let text = "node(s) didn't match pod affinity rules";
                return Err(Status::unresolvable(NAME, text));
            }
            is_near &= tracked.count(matching.all(tracked.id), place) > 0;
        }
        // The first pod of a group that wants itself has nobody to be near to.
        let is_first =
            || wanted.matches_itself && wanted.affinity.iter().all(|t| t.total(matching.all(t.id)) == 0);
        if !is_near && !is_first() {
            return Err(Status::unresolvable(NAME, "node(s) didn't match pod affinity rules"));
        }
        for tracked in &wanted.anti {
            let place = domain(cluster, tracked.key, row);
            let count = tracked.count(matching.all(tracked.id), place);
            if place != 0 && count > 0 {
                let text = "node(s) didn't match pod anti-affinity rules";
                let reason = Reason::with(text, facts(cluster, tracked.key, place, count, 0));
                return Err(Status::new(Code::Unschedulable, NAME, reason));
            }
        }
        match wanted.unwelcome(cluster, row) {
            None => Ok(()),
            Some((key, place, count)) => {
                let text = "node(s) didn't satisfy existing pods anti-affinity rules";
                let reason = Reason::with(text, facts(cluster, key, place, count, 0));
                Err(Status::new(Code::Unschedulable, NAME, reason))
            }
        }
    }

    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        let Some(wanted) = cycle.get::<Wanted>() else { return };
        let is_idle = wanted.affinity.is_empty() && wanted.anti.is_empty();
        if is_idle && wanted.existing_anti.is_empty() && wanted.supposed_anti.is_empty() {
            return;
        }
        sieve.retain(|row| self.check(cycle, &NodeView::of(cycle.cluster, row)));
    }

    fn part(&self, cluster: &Cluster, class: &Arc<Class>) -> FilterPart {
        InterPodAffinity::filter_part(cluster, class)
    }
}

/// Scores by key and domain.
#[derive(Clone, Default)]
struct Pull {
    by_key: Vec<(Sym, Vec<i64>)>,
}

impl Pull {
    fn add(&mut self, key: Sym, counts: &Counts, weight: i64) {
        let Some(counts) = counts.by_domain(key).filter(|_| counts.total() != 0 && weight != 0) else {
            return;
        };
        let scores = match self.by_key.iter().position(|(known, _)| *known == key) {
            Some(at) => &mut self.by_key[at].1,
            None => {
                self.by_key.push((key, Vec::new()));
                let last = self.by_key.len() - 1;
                &mut self.by_key[last].1
            }
        };
        if scores.len() < counts.len() {
            scores.resize(counts.len(), 0);
        }
        for (score, count) in scores.iter_mut().zip(counts).skip(1) {
            *score += count * weight;
        }
    }

    fn of(args: Args, cycle: &Cycle<'_>) -> Pull {
        let (class, matching) = (&cycle.pod.class, cycle.cluster.matching());
        let mut pull = Pull::default();
        for weighted in &class.preferred_pods {
            if let Some(id) = matching.set(&weighted.term.pods) {
                pull.add(weighted.term.topology_key, matching.all(id), weighted.weight);
            }
        }
        for id in matching.known_meant_by(class) {
            let (term, role) = matching.held_term(*id);
            let weight = match role {
                Role::RequiredAnti => continue,
                Role::Required => args.hard_pod_affinity_weight,
                Role::Preferred(weight) => weight,
            };
            pull.add(term.topology_key, matching.holders(*id), weight);
        }
        cycle.lifted().iter().for_each(|(row, pod)| pull.take_out(args, cycle, pod, *row));
        pull
    }

    /// Takes out a pod that the one of the cycle looks through.
    fn take_out(&mut self, args: Args, cycle: &Cycle<'_>, other: &Pod, row: Row) {
        let (class, cluster) = (&cycle.pod.class, cycle.cluster);
        let contains =
            |term: &PodTerm, class: &Class| cluster.matching().contains(&term.pods, class, &cluster.names);
        let own = class.preferred_pods.iter().filter(|weighted| contains(&weighted.term, &other.class));
        let own = own.map(|weighted| (weighted.term.topology_key, weighted.weight));
        let required = other.class.affinity.iter().map(|term| (term, args.hard_pod_affinity_weight));
        let preferred = other.class.preferred_pods.iter().map(|weighted| (&weighted.term, weighted.weight));
        let held = required.chain(preferred).filter(|(term, _)| contains(term, class));
        let held = held.map(|(term, weight)| (term.topology_key, weight));
        for (key, weight) in own.chain(held) {
            let place = at(domain(cluster, key, row));
            let scores = self.by_key.iter_mut().find(|(known, _)| *known == key);
            if let Some(score) = scores.and_then(|(_, scores)| scores.get_mut(place)).filter(|_| place != 0) {
                *score -= weight;
            }
        }
    }
}

impl Score for InterPodAffinity {
    /// As for the filter, unless only the pod's own wishes count and it has none.
    fn scope(&self, class: &Class) -> Scope {
        let is_idle = self.args.ignore_preferred_terms_of_existing_pods && class.preferred_pods.is_empty();
        if is_idle { Scope::Nothing } else { Scope::Cluster }
    }

    fn prepare(&self, cycle: &mut Cycle<'_>, _rows: &[Row]) -> Result<bool, Status> {
        if Score::scope(self, &cycle.pod.class) == Scope::Nothing {
            return Ok(false);
        }
        let pull = Pull::of(self.args, cycle);
        let is_active = !pull.by_key.is_empty();
        cycle.set(pull);
        Ok(is_active)
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let Some(pull) = cycle.get::<Pull>() else { return 0 };
        let of = |(key, scores): &(Sym, Vec<i64>)| {
            scores.get(at(domain(cycle.cluster, *key, node.row))).copied().unwrap_or(0)
        };
        pull.by_key.iter().map(of).sum()
    }

    fn rate(&self, cycle: &Cycle<'_>, rows: &[Row], out: &mut [i64]) {
        out.fill(0);
        let Some(pull) = cycle.get::<Pull>() else { return };
        for (key, scores) in &pull.by_key {
            let Some(column): Option<&KeyColumn> = cycle.cluster.domains().key(*key) else { continue };
            for (row, score) in rows.iter().zip(out.iter_mut()) {
                *score += scores.get(at(column.of(*row))).copied().unwrap_or(0);
            }
        }
    }

    fn normalize(&self, _cycle: &Cycle<'_>, _rows: &[Row], scores: &mut [i64]) {
        normalize(scores);
    }

    fn part(&self, cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        self.score_part(cluster, class)
    }
}

/// From the lowest to the highest.
fn normalize(scores: &mut [i64]) {
    let (min, max) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    for score in scores {
        *score = match max - min {
            0 => 0,
            span => truncated(100.0 * (nearest(*score - min) / nearest(span))),
        };
    }
}

#[cfg(test)]
mod tests;
