//! Which nodes need a pod of a DaemonSet, and which pods must go. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use koord_api::selector::Labels;

use super::super::node::Node;
use super::super::pod::{Phase, Pod};
use super::{DaemonSet, Failures, HASH, may_delete_failed};

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Nodes.
    pub(super) create: Vec<Box<str>>,
    /// Keys and UIDs of pods.
    pub(super) delete: Vec<(String, Box<str>)>,
    /// Pods that ended, where, and whether they failed.
    pub(super) ended: Vec<(Box<str>, Box<str>, bool)>,
    pub(super) counts: Counts,
    /// Of all templates that pods still have.
    pub(super) hashes: BTreeSet<String>,
    pub(super) next: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) desired: i64,
    pub(super) scheduled: i64,
    pub(super) misscheduled: i64,
    pub(super) ready: i64,
    pub(super) available: i64,
    pub(super) updated: i64,
}

/// What is known while deciding.
struct Scene<'a> {
    set: &'a DaemonSet,
    hash: &'a str,
    now: Timestamp,
    max_surge: i64,
    max_unavailable: i64,
}

pub(super) fn plan(
    set: &DaemonSet,
    nodes: &BTreeMap<Arc<str>, Node>,
    mut on_node: BTreeMap<&str, Vec<&Pod>>,
    hash: &str,
    failures: &mut Failures,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    // Placed pods first, older before younger.
    for pods in on_node.values_mut() {
        pods.sort_by(|a, b| {
            (a.node.is_empty(), a.created, &a.name).cmp(&(b.node.is_empty(), b.created, &b.name))
        });
    }
    let suits: Vec<(&Node, bool, bool)> =
        nodes.values().map(|node| (node, set.suits(node))).map(|(n, (run, stay))| (n, run, stay)).collect();
    let desired = i64::try_from(suits.iter().filter(|(_, run, _)| *run).count()).unwrap_or(i64::MAX);
    let (max_surge, max_unavailable) = limits(set, desired);
    let scene = Scene { set, hash, now, max_surge, max_unavailable };
    for (node, run, stay) in &suits {
        let pods = on_node.get(&*node.meta.name).map(Vec::as_slice).unwrap_or_default();
        count(&scene, &mut plan, pods, *run);
        manage(&scene, &mut plan, (node, pods), (*run, *stay), failures);
    }
    // Pods that wait for a node that is not there.
    let gone = on_node.iter().filter(|(node, _)| !nodes.contains_key(**node)).flat_map(|(_, pods)| pods);
    for pod in gone.filter(|pod| pod.node.is_empty() && pod.deleting.is_none()) {
        plan.delete.push((pod.key(), pod.uid.clone()));
    }
    let hashes = on_node.values().flatten().filter_map(|pod| pod.labels.label(HASH));
    plan.hashes = hashes.map(str::to_owned).collect();
    if set.rolling.is_some() && plan.create.is_empty() && plan.delete.is_empty() {
        let empty = Vec::new();
        let groups: Vec<(&Node, bool, &[&Pod])> = suits
            .iter()
            .filter(|(node, run, _)| *run || on_node.contains_key(&*node.meta.name))
            .map(|(node, run, _)| (*node, *run, on_node.get(&*node.meta.name).unwrap_or(&empty).as_slice()))
            .collect();
        match scene.max_surge {
            0 => roll(&scene, &mut plan, &groups),
            _ => surge(&scene, &mut plan, &groups, desired),
        }
    }
    plan
}

/// Pods that may be too many and too few during an update.
fn limits(set: &DaemonSet, desired: i64) -> (i64, i64) {
    let Some(rolling) = &set.rolling else { return (0, 0) };
    let surge = rolling.max_surge.as_ref().and_then(|v| v.of(desired, true)).unwrap_or(0);
    let unavailable = rolling.max_unavailable.as_ref().and_then(|v| v.of(desired, true)).unwrap_or(0);
    match (desired > 0, surge, unavailable) {
        (true, 0, 0) => (0, 1),
        _ => (surge, unavailable),
    }
}

fn count(scene: &Scene<'_>, plan: &mut Plan, pods: &[&Pod], run: bool) {
    let counts = &mut plan.counts;
    match (run, pods.first()) {
        (false, Some(_)) => counts.misscheduled += 1,
        (false, None) => {}
        (true, None) => counts.desired += 1,
        (true, Some(pod)) => {
            counts.desired += 1;
            counts.scheduled += 1;
            counts.updated += i64::from(scene.set.is_updated(pod, scene.hash));
            counts.ready += i64::from(pod.is_ready());
            let is_available = is_available(scene, pod);
            counts.available += i64::from(is_available);
            if pod.is_ready() && !is_available {
                let at = pod.available_at(scene.set.min_ready_seconds);
                plan.next = plan.next.into_iter().chain(at).min();
            }
        }
    }
}

fn is_available(scene: &Scene<'_>, pod: &Pod) -> bool {
    pod.is_available(scene.set.min_ready_seconds, scene.now)
}

/// One pod where one should be, none where none may stay.
fn manage(
    scene: &Scene<'_>,
    plan: &mut Plan,
    (node, pods): (&Node, &[&Pod]),
    (run, stay): (bool, bool),
    failures: &mut Failures,
) {
    let name = &node.meta.name;
    if !stay {
        let leaving = pods.iter().filter(|pod| pod.deleting.is_none());
        plan.delete.extend(leaving.map(|pod| (pod.key(), pod.uid.clone())));
        return;
    }
    if run && pods.is_empty() {
        plan.create.push(name.clone());
        return;
    }
    let mut running: Vec<&Pod> = Vec::new();
    for pod in pods.iter().filter(|pod| pod.deleting.is_none()) {
        match pod.phase {
            Phase::Failed => match may_delete_failed(failures, &scene.set.meta.uid, name, scene.now) {
                Ok(()) => {
                    plan.ended.push((pod.name.clone(), name.clone(), true));
                    plan.delete.push((pod.key(), pod.uid.clone()));
                }
                Err(at) => plan.next = plan.next.into_iter().chain([at]).min(),
            },
            Phase::Succeeded => {
                plan.ended.push((pod.name.clone(), name.clone(), false));
                plan.delete.push((pod.key(), pod.uid.clone()));
            }
            _ => running.push(pod),
        }
    }
    if scene.max_surge == 0 {
        plan.delete.extend(running.iter().skip(1).map(|pod| (pod.key(), pod.uid.clone())));
        return;
    }
    if running.is_empty() && run {
        plan.create.push(name.clone());
    }
    let (new, old): (Vec<&Pod>, Vec<&Pod>) =
        running.into_iter().partition(|pod| pod.labels.label(HASH) == Some(scene.hash));
    let excess = new.iter().skip(1).chain(old.iter().skip(1));
    plan.delete.extend(excess.map(|pod| (pod.key(), pod.uid.clone())));
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!old.is_ready() || is_available(scene, new))
    {
        plan.delete.push((old.key(), old.uid.clone()));
    }
}

/// The pods of both kinds on a node; None when there are too many of one.
fn pair<'a>(scene: &Scene<'_>, pods: &[&'a Pod]) -> Option<(Option<&'a Pod>, Option<&'a Pod>)> {
    let (mut new, mut old) = (None, None);
    for pod in pods.iter().filter(|pod| pod.deleting.is_none()) {
        let place = if scene.set.is_updated(pod, scene.hash) { &mut new } else { &mut old };
        if place.replace(*pod).is_some() {
            return None;
        }
    }
    Some((new, old))
}

/// Old pods go first; `manage` makes the new ones.
fn roll(scene: &Scene<'_>, plan: &mut Plan, groups: &[(&Node, bool, &[&Pod])]) {
    let mut unavailable = 0;
    let mut candidates: Vec<&Pod> = Vec::new();
    for (_, _, pods) in groups {
        match pair(scene, pods) {
            None | Some((None, None) | (Some(_), Some(_))) => unavailable += 1,
            Some((Some(new), None)) => unavailable += i64::from(!is_available(scene, new)),
            Some((None, Some(old))) if !is_available(scene, old) => {
                plan.delete.push((old.key(), old.uid.clone()));
                unavailable += 1;
            }
            Some((None, Some(old))) => candidates.push(old),
        }
    }
    let room = usize::try_from(scene.max_unavailable - unavailable).unwrap_or(0);
    plan.delete.extend(candidates.into_iter().take(room).map(|pod| (pod.key(), pod.uid.clone())));
}

/// New pods come first, beside the old ones.
fn surge(scene: &Scene<'_>, plan: &mut Plan, groups: &[(&Node, bool, &[&Pod])], desired: i64) {
    let (mut surging, mut available) = (0, 0);
    let (mut candidates, mut unwanted) = (Vec::new(), Vec::new());
    for (node, run, pods) in groups {
        let Some((new, old)) = pair(scene, pods) else {
            surging += 1;
            continue;
        };
        available += i64::from(old.or(new).is_some_and(|pod| is_available(scene, pod)));
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (is_available(scene, old), *run) {
                (false, false) => plan.delete.push((old.key(), old.uid.clone())),
                (false, true) => plan.create.push(node.meta.name.clone()),
                (true, false) => unwanted.push(old),
                (true, true) => candidates.push(node.meta.name.clone()),
            },
            (Some(new), Some(old)) => match is_available(scene, new) {
                true => plan.delete.push((old.key(), old.uid.clone())),
                false => surging += 1,
            },
        }
    }
    let spare = usize::try_from(available - desired).unwrap_or(0);
    plan.delete.extend(unwanted.into_iter().take(spare).map(|pod| (pod.key(), pod.uid.clone())));
    let room = usize::try_from(scene.max_surge - surging).unwrap_or(0);
    plan.create.extend(candidates.into_iter().take(room));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::view::LabelSet;
    use k8s_openapi::api::core::v1::Taint;
    use serde_json::{Value, json};

    fn set(rolling: Value) -> DaemonSet {
        DaemonSet::read(&json!({"metadata": {"name": "agent", "namespace": "d", "uid": "ds"}, "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {"spec": {"containers": [], "nodeSelector": {"zone": "a"}}},
        }}))
        .unwrap()
    }

    fn nodes() -> BTreeMap<Arc<str>, Node> {
        let node = |name: &str, zone: &str, taint: Option<(&str, &str)>| {
            let mut node = Node::default();
            node.meta.name = name.into();
            node.meta.labels = LabelSet([("zone".into(), zone.into())].into());
            let taint = taint.map(|(k, e)| Taint { key: k.into(), effect: e.into(), ..Taint::default() });
            node.taints = taint.into_iter().collect();
            (Arc::from(name), node)
        };
        BTreeMap::from([
            node("n1", "a", None),
            node("n2", "a", Some(("node.kubernetes.io/unschedulable", "NoSchedule"))),
            node("n3", "b", None),
            node("n4", "a", Some(("x.io/mine", "NoSchedule"))),
            node("n5", "a", Some(("x.io/mine", "NoExecute"))),
            node("n6", "a", None),
        ])
    }

    fn pod(node: &str, hash: &str, phase: Phase) -> Pod {
        Pod {
            name: format!("agent-{node}-{hash}").into(),
            namespace: "d".into(),
            node: node.into(),
            labels: LabelSet([(HASH.into(), hash.into())].into()),
            ready: (phase == Phase::Running).then_some(Timestamp::UNIX_EPOCH),
            phase,
            ..Pod::default()
        }
    }

    fn check(rolling: Value, pods: &[Pod]) -> (Vec<String>, Vec<String>, Counts) {
        let mut on_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in pods {
            on_node.entry(&pod.node).or_default().push(pod);
        }
        let now = Timestamp::from_second(100).unwrap();
        let plan = plan(&set(rolling), &nodes(), on_node, "new", &mut Failures::new(), now);
        let create = plan.create.iter().map(ToString::to_string).collect();
        let delete = plan.delete.into_iter().map(|(key, _)| key.trim_start_matches("d/agent-").to_owned());
        (create, delete.collect(), plan.counts)
    }

    #[test]
    fn pods_go_where_they_suit_and_leave_where_they_do_not() {
        let running = |node: &str| pod(node, "new", Phase::Running);
        let (create, delete, counts) =
            check(json!({"maxUnavailable": 1}), &[running("n3"), running("n4"), running("n5")]);
        assert_eq!(create, ["n1", "n2", "n6"]);
        assert_eq!(delete, ["n3-new", "n5-new"], "n4 keeps what it has: its taint does not drive out");
        assert_eq!(counts, Counts { desired: 3, misscheduled: 3, ..Counts::default() });
    }

    #[test]
    fn an_update_keeps_to_its_limits() {
        let old = |node: &str| pod(node, "old", Phase::Running);
        let new = |node: &str| pod(node, "new", Phase::Running);
        let unready = |node: &str| Pod { ready: None, ..old(node) };
        for (name, rolling, pods, create, delete) in [
            (
                "one at a time",
                json!({"maxUnavailable": 1}),
                vec![old("n1"), old("n2"), old("n6")],
                vec![],
                vec!["n1-old"],
            ),
            (
                "half",
                json!({"maxUnavailable": "50%"}),
                vec![old("n1"), old("n2"), old("n6")],
                vec![],
                vec!["n1-old", "n2-old"],
            ),
            (
                "the broken go first",
                json!({"maxUnavailable": 1}),
                vec![old("n1"), unready("n2"), old("n6")],
                vec![],
                vec!["n2-old"],
            ),
            ("done", json!({"maxUnavailable": 1}), vec![new("n1"), new("n2"), new("n6")], vec![], vec![]),
            (
                "surge",
                json!({"maxSurge": 1, "maxUnavailable": 0}),
                vec![old("n1"), old("n2"), old("n6")],
                vec!["n1"],
                vec![],
            ),
            (
                "surged",
                json!({"maxSurge": 1, "maxUnavailable": 0}),
                vec![old("n1"), new("n1"), old("n2"), old("n6")],
                vec![],
                vec!["n1-old"],
            ),
        ] {
            let (got_create, got_delete, _) = check(rolling, &pods);
            assert_eq!(
                (got_create, got_delete),
                (
                    create.iter().map(|s: &&str| (*s).to_owned()).collect(),
                    delete.iter().map(|s: &&str| (*s).to_owned()).collect()
                ),
                "{name}"
            );
        }
    }

    #[test]
    fn failed_pods_are_replaced_with_patience() {
        let mut failures = Failures::new();
        let at = |s| Timestamp::from_second(s).unwrap();
        assert_eq!(may_delete_failed(&mut failures, "ds", "n1", at(0)), Ok(()));
        assert_eq!(may_delete_failed(&mut failures, "ds", "n1", at(0)), Err(at(1)));
        assert_eq!(may_delete_failed(&mut failures, "ds", "n1", at(1)), Ok(()));
        assert_eq!(may_delete_failed(&mut failures, "ds", "n1", at(2)), Err(at(3)));
        let (_, delete, _) = check(json!({"maxUnavailable": 1}), &[pod("n1", "new", Phase::Failed)]);
        assert_eq!(delete, ["n1-new"]);
    }
}
