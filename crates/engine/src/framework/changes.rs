//! What an update of a pod or a node changes, as events. Spec: scheduler-core 1.3.

use super::event::{Action, Event, Resource};
use crate::cluster::Node;
use crate::pod::Pod;

/// The specific events of a pod's update; a plain one when nothing specific changed.
pub fn pod_events(old: &Pod, new: &Pod, is_assigned: bool) -> Vec<Event> {
    let resource = if is_assigned { Resource::AssignedPod } else { Resource::UnscheduledPod };
    let mut events = Vec::new();
    let mut changed = |is_so: bool, action: Action| {
        if is_so {
            events.push(Event::new(resource.clone(), action));
        }
    };
    changed(old.class.labels != new.class.labels, Action::UPDATE_POD_LABEL);
    changed(old.class.tolerations != new.class.tolerations, Action::UPDATE_POD_TOLERATION);
    let ungated = !old.class.gates.is_empty() && new.class.gates.is_empty();
    changed(ungated, Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED);
    if events.is_empty() {
        events.push(Event::new(resource, Action::UPDATE));
    }
    events
}

/// The specific events of a node's update; none when nothing of these changed.
pub fn node_events(old: &Node, new: &Node) -> Vec<Event> {
    let mut events = Vec::new();
    let mut changed = |is_so: bool, action: Action| {
        if is_so {
            events.push(Event::new(Resource::Node, action));
        }
    };
    changed(old.is_unschedulable && !new.is_unschedulable, Action::UPDATE_NODE_TAINT);
    changed(old.allocatable != new.allocatable, Action::UPDATE_NODE_ALLOCATABLE);
    changed(old.labels != new.labels, Action::UPDATE_NODE_LABEL);
    changed(old.taints != new.taints, Action::UPDATE_NODE_TAINT);
    changed(old.conditions != new.conditions, Action::UPDATE_NODE_CONDITION);
    changed(old.annotations != new.annotations, Action::UPDATE_NODE_ANNOTATION);
    events
}
