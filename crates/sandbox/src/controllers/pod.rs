//! Pods as the cache keeps them: small, for there may be a hundred thousand.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde::Deserialize;

use super::view::{Condition, LabelSet, Meta, Owner};
use crate::store::Stored;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(crate) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(crate) const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// What controllers know of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pod {
    pub(crate) name: Box<str>,
    pub(crate) namespace: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) labels: LabelSet,
    pub(crate) owner: Option<Box<Owner>>,
    pub(crate) created: Option<Timestamp>,
    /// When it is to be gone, once it is being deleted.
    pub(crate) deleting: Option<Timestamp>,
    pub(crate) node: Box<str>,
    /// The node its affinity names, for pods of a DaemonSet that are not placed yet.
    pub(crate) target: Box<str>,
    pub(crate) phase: Phase,
    /// Since when it is ready.
    pub(crate) ready: Option<Timestamp>,
    /// Of the container that restarted most, and of all.
    pub(crate) restarts: i64,
    pub(crate) restarts_total: i64,
    pub(crate) deletion_cost: i64,
    /// Of an Indexed Job.
    pub(crate) index: Option<i64>,
    /// The Job controller has not let go of it.
    pub(crate) is_tracked: bool,
    /// Claims its volumes name.
    pub(crate) claims: Box<[Box<str>]>,
    /// The last of its containers ended.
    pub(crate) finished: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

impl Pod {
    pub(crate) fn read(stored: &Stored) -> Option<Pod> {
        let wire: Wire = super::view::read(stored)?;
        Some(wire.into_pod())
    }

    pub(crate) fn key(&self) -> String {
        crate::store::key(&self.namespace, &self.name)
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Neither ended nor on its way out.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_terminal() && self.deleting.is_none()
    }

    /// On its way out but not ended.
    pub(crate) fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.deleting.is_some()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Ready for `min_ready_seconds`.
    pub(crate) fn is_available(&self, min_ready_seconds: i64, now: Timestamp) -> bool {
        self.available_at(min_ready_seconds).is_some_and(|at| at <= now)
    }

    pub(crate) fn available_at(&self, min_ready_seconds: i64) -> Option<Timestamp> {
        let seconds = jiff::SignedDuration::from_secs(min_ready_seconds.max(0));
        self.ready.map(|since| since.checked_add(seconds).unwrap_or(Timestamp::MAX))
    }
}

/// Orders active pods by how well they can be missed; `rank` is the number of related pods on the
/// same node.
pub(crate) fn by_deletion(a: (&Pod, usize), b: (&Pod, usize), now: Timestamp) -> std::cmp::Ordering {
    let ((a, a_rank), (b, b_rank)) = (a, b);
    let placed = |pod: &Pod| !pod.node.is_empty();
    let first = (placed(a), a.phase, a.is_ready(), a.deletion_cost, Reverse(a_rank)).cmp(&(
        placed(b),
        b.phase,
        b.is_ready(),
        b.deletion_cost,
        Reverse(b_rank),
    ));
    // Differs: upstream asks for the UID as soon as two times of one rank differ at all, which is no order (a before b
    // before c before a); here restarts come first, and the UID decides at the end.
    first
        .then_with(|| age_rank(a.ready, now).cmp(&age_rank(b.ready, now)))
        .then_with(|| b.restarts.cmp(&a.restarts))
        .then_with(|| age_rank(a.created, now).cmp(&age_rank(b.created, now)))
        .then_with(|| a.uid.cmp(&b.uid))
        .then_with(|| a.name.cmp(&b.name))
}

/// Younger is less, as far as ages differ by a power of two; no time at all is least.
fn age_rank(since: Option<Timestamp>, now: Timestamp) -> i64 {
    let Some(since) = since else { return i64::MIN };
    let age = now.duration_since(since).as_nanos();
    if age <= 0 { -1 } else { i64::from(age.ilog2()) }
}

/// The fields read; everything else is skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Box<str>,
    affinity: Option<Affinity>,
    volumes: Vec<Volume>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    persistent_volume_claim: Option<ClaimVolume>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimVolume {
    claim_name: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<Terms>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terms {
    node_selector_terms: Vec<Term>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_fields: Vec<Requirement>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: Box<str>,
    operator: Box<str>,
    values: Vec<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Box<str>,
    conditions: Vec<Condition>,
    container_statuses: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    restart_count: i64,
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    finished_at: Option<Timestamp>,
}

impl Spec {
    /// The node of `metadata.name in (node)`, as the DaemonSet controller writes it.
    fn target(&self) -> Option<Box<str>> {
        let required = self.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms =
            &required.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
        let fields = terms.iter().flat_map(|term| &term.match_fields);
        let mut named = fields.filter(|f| *f.key == *"metadata.name" && *f.operator == *"In");
        named.next()?.values.first().cloned()
    }
}

impl Wire {
    fn into_pod(self) -> Pod {
        let Wire { metadata, spec, status } = self;
        let ready = status.conditions.iter().find(|c| c.r#type == "Ready" && c.status == "True");
        let created = metadata.creation_timestamp;
        let phase = match &*status.phase {
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            "Unknown" => Phase::Unknown,
            _ => Phase::Pending,
        };
        let containers = &status.container_statuses;
        let not_ready = status.conditions.iter().find(|c| c.r#type == "Ready" && c.status == "False");
        let finished = containers.iter().filter_map(|c| c.state.terminated.as_ref()?.finished_at).max();
        let finished = finished.or_else(|| not_ready.and_then(|c| c.last_transition_time));
        let volumes = spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        let claims = volumes.map(|claim| claim.claim_name.clone()).collect();
        Pod {
            ready: ready.map(|c| c.last_transition_time.or(created).unwrap_or(Timestamp::UNIX_EPOCH)),
            restarts: containers.iter().map(|c| c.restart_count).max().unwrap_or(0),
            restarts_total: containers.iter().map(|c| c.restart_count).sum(),
            deletion_cost: metadata.annotation(DELETION_COST).and_then(|c| c.parse().ok()).unwrap_or(0),
            index: metadata.annotation(COMPLETION_INDEX).and_then(|i| i.parse().ok()),
            is_tracked: metadata.has_finalizer(JOB_TRACKING),
            owner: metadata.controller().cloned().map(Box::new),
            target: spec.target().unwrap_or_default(),
            node: spec.node_name,
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            labels: metadata.labels,
            deleting: metadata.deletion_timestamp,
            created,
            phase,
            claims,
            finished,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Draft, Stored};
    use serde_json::{Value, json};

    fn stored(pod: &Value) -> Stored {
        Draft::new(pod, Vec::new()).preview(7)
    }

    #[test]
    fn a_pod_is_read_in_full() {
        let pod = Pod::read(&stored(&json!({
            "metadata": {"name": "a", "namespace": "d", "uid": "u", "labels": {"app": "web"},
                "annotations": {DELETION_COST: "5", COMPLETION_INDEX: "3"}, "finalizers": [JOB_TRACKING],
                "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"nodeName": "n1", "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": ["n7"]}]}]}}}},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:01:00Z"}],
                "containerStatuses": [{"restartCount": 2, "state": {"running": {}}}]},
        })))
        .unwrap();
        assert_eq!((&*pod.node, &*pod.target, pod.phase), ("n1", "n7", Phase::Running));
        assert_eq!((pod.deletion_cost, pod.index, pod.restarts, pod.is_tracked), (5, Some(3), 2, true));
        let now: Timestamp = "2024-01-01T00:01:30Z".parse().unwrap();
        assert!(pod.is_available(30, now) && !pod.is_available(31, now));
    }

    #[test]
    fn those_best_missed_come_first() {
        let at = |s: i64| Timestamp::from_second(s).ok();
        let base = || Pod {
            node: "n".into(),
            phase: Phase::Running,
            ready: at(10),
            created: at(5),
            ..Pod::default()
        };
        let pods = [
            ("unplaced", Pod { node: "".into(), phase: Phase::Pending, ready: None, ..base() }, 0),
            ("pending", Pod { phase: Phase::Pending, ready: None, ..base() }, 0),
            ("unready", Pod { ready: None, ..base() }, 0),
            ("cheap", Pod { deletion_cost: -1, ..base() }, 0),
            ("doubled up", base(), 2),
            ("young", Pod { ready: at(900), ..base() }, 1),
            ("restarted", Pod { restarts: 3, ..base() }, 1),
            ("plain", base(), 1),
        ];
        let now = Timestamp::from_second(1000).unwrap();
        for pair in pods.windows(2) {
            let ((a_name, a, a_rank), (b_name, b, b_rank)) = (&pair[0], &pair[1]);
            let order = by_deletion((a, *a_rank), (b, *b_rank), now);
            assert!(order.is_lt(), "{a_name} before {b_name}");
        }
    }

    /// Sorting by anything less than an order may end the process.
    #[test]
    fn who_goes_first_is_an_order() {
        let mut pods = Vec::new();
        for (i, ready) in [None, Some(10), Some(11), Some(900)].into_iter().enumerate() {
            for (j, created) in [None, Some(5), Some(6)].into_iter().enumerate() {
                for restarts in [0, 3] {
                    let at = |s: Option<i64>| s.and_then(|s| Timestamp::from_second(s).ok());
                    // UIDs that run against the times.
                    let uid = format!("{}", (i * 7 + j * 5 + usize::from(restarts > 0) * 3) % 11).into();
                    let (ready, created) = (at(ready), at(created));
                    pods.push(Pod { ready, created, restarts, uid, phase: Phase::Running, ..Pod::default() });
                }
            }
        }
        let now = Timestamp::from_second(1000).unwrap();
        let order = |a: &Pod, b: &Pod| by_deletion((a, 0), (b, 0), now);
        for a in &pods {
            for b in &pods {
                assert_eq!(order(a, b), order(b, a).reverse(), "{a:?} {b:?}");
                for c in pods.iter().filter(|c| order(a, b).is_lt() && order(b, c).is_lt()) {
                    assert!(order(a, c).is_lt(), "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}
