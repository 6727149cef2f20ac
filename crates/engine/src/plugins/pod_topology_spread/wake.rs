//! Which changes may help a pod that its hard constraints kept waiting. Spec: scheduler-core 6.14.

use std::sync::Arc;

use super::Constraints;
use crate::cluster::Node;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::{Change, HintFn, HintInput, wakes_if};
use crate::pod::{Pod, SpreadConstraint};

pub(super) fn registrations() -> Vec<Registration<HintFn>> {
    let pods = Action::ADD | Action::UPDATE_POD_LABEL | Action::UPDATE_POD_TOLERATION | Action::DELETE;
    let nodes = Action::ADD | Action::DELETE | Action::UPDATE_NODE_LABEL | Action::UPDATE_NODE_TAINT;
    vec![
        Registration::with(Resource::Pod, pods, wakes_if(after_pod)),
        Registration::with(Resource::Node, nodes, wakes_if(after_node)),
    ]
}

fn after_pod(input: &HintInput<'_>) -> bool {
    let Change::Pod { old, new } = input.change else { return true };
    let waiting = input.pod;
    let is_involved = |pod: &Arc<Pod>| {
        pod.uid == waiting.uid || !pod.node.is_empty() && pod.key.namespace == waiting.key.namespace
    };
    if ![old, new].into_iter().flatten().all(is_involved) {
        return false;
    }
    let hard = Constraints::of(input.cluster, &waiting.class).hard();
    let counts = |constraint: &SpreadConstraint, pod: &Pod| {
        input.cluster.matching().contains(&constraint.pods, &pod.class, &input.cluster.names)
    };
    match (old, new) {
        (Some(old), Some(new)) => {
            let tolerates_more = input.is_own() && old.class.tolerations != new.class.tolerations;
            tolerates_more && hard.iter().any(|constraint| constraint.honors_taints)
                || old.class.labels != new.class.labels
                    && hard.iter().any(|constraint| counts(constraint, old) != counts(constraint, new))
        }
        (Some(pod), None) | (None, Some(pod)) => hard.iter().any(|constraint| counts(constraint, pod)),
        (None, None) => true,
    }
}

fn after_node(input: &HintInput<'_>) -> bool {
    let Change::Node { old, new } = input.change else { return true };
    let hard = Constraints::of(input.cluster, &input.pod.class).hard();
    let keys: Vec<&str> =
        hard.iter().map(|constraint| input.cluster.names.text(constraint.topology_key)).collect();
    let has_all = |node: &Arc<Node>| keys.iter().all(|key| node.labels.contains_key(*key));
    match (old, new) {
        (Some(old), Some(new)) => {
            let moved = || keys.iter().any(|key| old.labels.get(*key) != new.labels.get(*key));
            has_all(old) != has_all(new) || has_all(new) && (moved() || old.taints != new.taints)
        }
        (Some(node), None) | (None, Some(node)) => has_all(node),
        (None, None) => true,
    }
}
