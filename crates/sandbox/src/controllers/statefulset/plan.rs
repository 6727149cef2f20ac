//! Which pod of a StatefulSet is made, deleted or waited for next. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use koord_api::selector::Labels;

use super::super::pod::{Phase, Pod};
use super::{REVISION, StatefulSet, next_available};

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Ordinals, and whether each gets the new template.
    pub(super) create: Vec<(i64, bool)>,
    /// Ordinals of pods that may still lack their claims.
    pub(super) pending: Vec<i64>,
    /// Keys and UIDs.
    pub(super) delete: Vec<(String, Box<str>)>,
    pub(super) counts: Counts,
    pub(super) next: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) replicas: i64,
    pub(super) ready: i64,
    pub(super) available: i64,
    pub(super) current: i64,
    pub(super) updated: i64,
}

pub(super) fn plan(
    set: &StatefulSet,
    pods: Vec<&Pod>,
    (current, update): (&str, &str),
    now: Timestamp,
) -> Plan {
    let mut plan = Plan {
        counts: count(set, &pods, (current, update), now),
        next: next_available(set, &pods, now),
        ..Plan::default()
    };
    if set.meta.is_deleting() {
        return plan;
    }
    let ordinals = set.start..set.start + set.replicas;
    let (replicas, condemned): (BTreeMap<i64, &Pod>, BTreeMap<i64, &Pod>) = pods
        .into_iter()
        .filter_map(|pod| Some((set.ordinal(pod)?, pod)))
        .partition(|(n, _)| ordinals.contains(n));
    let mut first_unavailable: Option<&str> = None;
    let mut is_waiting = false;
    for ordinal in ordinals {
        let pod = replicas.get(&ordinal).copied();
        if first_unavailable.is_none() {
            match pod {
                Some(pod) if is_unavailable(set, pod, now) => first_unavailable = Some(&pod.name),
                Some(_) => {}
                None => first_unavailable = Some(""),
            }
        }
        if !is_waiting && tend(set, &mut plan, ordinal, pod, (current, update), now) && !set.is_parallel {
            is_waiting = true;
        }
    }
    if is_waiting || (set.is_parallel && !plan.delete.is_empty()) {
        return plan;
    }
    let unavailable = condemned.values().find(|pod| is_unavailable(set, pod, now));
    let first_unavailable = first_unavailable.or(unavailable.map(|pod| &*pod.name));
    if shrink(set, &mut plan, &condemned, first_unavailable, now) {
        return plan;
    }
    roll(set, &mut plan, &replicas, update, now);
    plan
}

/// Cares for one replica; true when the next must wait for it.
fn tend(
    set: &StatefulSet,
    plan: &mut Plan,
    ordinal: i64,
    pod: Option<&Pod>,
    (current, update): (&str, &str),
    now: Timestamp,
) -> bool {
    let Some(pod) = pod else {
        let keeps_old = match set.partition {
            Some(partition) => ordinal < set.start + partition,
            None => ordinal < set.start + set.current_replicas,
        };
        let is_update = !keeps_old || current == update;
        plan.create.push((ordinal, is_update));
        plan.counts.replicas += 1;
        plan.counts.updated += i64::from(is_update);
        plan.counts.current += i64::from(!is_update || current == update);
        return true;
    };
    if pod.is_terminal() {
        if pod.deleting.is_none() {
            plan.delete.push((pod.key(), pod.uid.clone()));
        }
        return true;
    }
    if pod.phase == Phase::Pending && pod.deleting.is_none() {
        plan.pending.push(ordinal);
    }
    is_unavailable(set, pod, now)
}

/// Takes away pods beyond the size, the last first; true when one must be waited for.
fn shrink(
    set: &StatefulSet,
    plan: &mut Plan,
    condemned: &BTreeMap<i64, &Pod>,
    first_unavailable: Option<&str>,
    now: Timestamp,
) -> bool {
    for pod in condemned.values().rev() {
        let is_first = first_unavailable == Some(&*pod.name);
        let must_wait = pod.deleting.is_some() || (is_unavailable(set, pod, now) && !is_first);
        if must_wait && !set.is_parallel {
            return true;
        }
        if pod.deleting.is_none() {
            plan.delete.push((pod.key(), pod.uid.clone()));
            if !set.is_parallel {
                return true;
            }
        }
    }
    !condemned.is_empty()
}

/// Replaces pods of another template, the last first, one at a time.
fn roll(set: &StatefulSet, plan: &mut Plan, replicas: &BTreeMap<i64, &Pod>, update: &str, now: Timestamp) {
    let Some(partition) = set.partition else { return };
    for (_, pod) in replicas.range(set.start + partition..).rev() {
        if pod.labels.label(REVISION) != Some(update) && pod.deleting.is_none() {
            plan.delete.push((pod.key(), pod.uid.clone()));
            plan.counts.current = (plan.counts.current - 1).max(0);
            return;
        }
        if is_unavailable(set, pod, now) {
            return;
        }
    }
}

fn is_unavailable(set: &StatefulSet, pod: &Pod, now: Timestamp) -> bool {
    pod.deleting.is_some() || !pod.is_available(set.min_ready_seconds, now)
}

fn count(set: &StatefulSet, pods: &[&Pod], (current, update): (&str, &str), now: Timestamp) -> Counts {
    let mut counts = Counts::default();
    for pod in pods {
        counts.replicas += 1;
        if pod.phase == Phase::Running && pod.is_ready() {
            counts.ready += 1;
            counts.available += i64::from(pod.is_available(set.min_ready_seconds, now));
        }
        if pod.deleting.is_none() {
            let revision = pod.labels.label(REVISION);
            counts.current += i64::from(revision == Some(current));
            counts.updated += i64::from(revision == Some(update));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::view::LabelSet;
    use serde_json::{Value, json};

    fn set(spec: Value) -> StatefulSet {
        StatefulSet::read(&json!({"metadata": {"name": "db", "namespace": "d", "uid": "s"}, "spec": spec}))
            .unwrap()
    }

    fn pod(ordinal: i64, revision: &str, is_ready: bool) -> Pod {
        Pod {
            name: format!("db-{ordinal}").into(),
            namespace: "d".into(),
            phase: Phase::Running,
            labels: LabelSet([(REVISION.into(), revision.into())].into()),
            ready: is_ready.then_some(Timestamp::UNIX_EPOCH),
            ..Pod::default()
        }
    }

    #[test]
    fn pods_come_and_go_in_order() {
        let (up, down) = (true, false);
        for (name, spec, pods, create, delete) in [
            ("the first", json!({"replicas": 3}), vec![], vec![0], vec![]),
            ("the next", json!({"replicas": 3}), vec![pod(0, "new", up)], vec![1], vec![]),
            ("not yet", json!({"replicas": 3}), vec![pod(0, "new", down)], vec![], vec![]),
            (
                "all at once",
                json!({"replicas": 3, "podManagementPolicy": "Parallel"}),
                vec![],
                vec![0, 1, 2],
                vec![],
            ),
            (
                "from five",
                json!({"replicas": 2, "ordinals": {"start": 5}}),
                vec![pod(5, "new", up)],
                vec![6],
                vec![],
            ),
            (
                "the last goes",
                json!({"replicas": 1}),
                vec![pod(0, "new", up), pod(1, "new", up), pod(2, "new", up)],
                vec![],
                vec!["d/db-2"],
            ),
            (
                "a sick one is waited for",
                json!({"replicas": 1}),
                vec![pod(0, "new", down), pod(1, "new", up)],
                vec![],
                vec![],
            ),
            (
                "all go",
                json!({"replicas": 0, "podManagementPolicy": "Parallel"}),
                vec![pod(0, "new", up), pod(1, "new", down)],
                vec![],
                vec!["d/db-1", "d/db-0"],
            ),
            (
                "an update",
                json!({"replicas": 2}),
                vec![pod(0, "old", up), pod(1, "old", up)],
                vec![],
                vec!["d/db-1"],
            ),
            (
                "half way",
                json!({"replicas": 2}),
                vec![pod(0, "old", up), pod(1, "new", up)],
                vec![],
                vec!["d/db-0"],
            ),
            (
                "a partition",
                json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}}),
                vec![pod(0, "old", up), pod(1, "new", up)],
                vec![],
                vec![],
            ),
            (
                "on delete",
                json!({"replicas": 1, "updateStrategy": {"type": "OnDelete"}}),
                vec![pod(0, "old", up)],
                vec![],
                vec![],
            ),
        ] {
            let plan = plan(&set(spec), pods.iter().collect(), ("old", "new"), Timestamp::UNIX_EPOCH);
            let created: Vec<i64> = plan.create.iter().map(|(n, _)| *n).collect();
            let deleted: Vec<&str> = plan.delete.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!((created, deleted), (create, delete), "{name}");
        }
    }

    #[test]
    fn ended_pods_are_replaced() {
        let ended = Pod { phase: Phase::Failed, ..pod(0, "new", false) };
        let plan = plan(&set(json!({"replicas": 2})), vec![&ended], ("new", "new"), Timestamp::UNIX_EPOCH);
        assert_eq!((plan.create.len(), plan.delete.len()), (0, 1));
    }

    #[test]
    fn names_give_ordinals() {
        let set = set(json!({}));
        for (name, want) in
            [("db-3", Some(3)), ("db-03", None), ("db--1", None), ("db2-1", None), ("db", None)]
        {
            let pod = Pod { name: name.into(), ..Pod::default() };
            assert_eq!(set.ordinal(&pod), want, "{name}");
        }
    }
}
