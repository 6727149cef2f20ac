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
    let (before, after) = (&old.class.requests.amounts, &new.class.requests.amounts);
    let shrinks = before.iter().any(|(id, units)| after.get(id) < units);
    changed(shrinks, Action::UPDATE_POD_SCALE_DOWN);
    let ungated = !old.class.gates.is_empty() && new.class.gates.is_empty();
    changed(ungated, Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED);
    changed(old.class.tolerations != new.class.tolerations, Action::UPDATE_POD_TOLERATION);
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plugins::testing::World;

    fn actions(events: &[Event]) -> Vec<Action> {
        events.iter().map(|event| event.action).collect()
    }

    #[test]
    fn updates_of_pods() {
        let asks =
            |cpu: &str| json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
        let gated = |gates: &[&str]| {
            let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
            json!({"spec": {"schedulingGates": gates}})
        };
        let plain = json!({});
        for (name, old, new, want) in [
            ("nothing", plain.clone(), plain.clone(), vec![Action::UPDATE]),
            (
                "a label",
                plain.clone(),
                json!({"metadata": {"labels": {"a": "b"}}}),
                vec![Action::UPDATE_POD_LABEL],
            ),
            (
                "less",
                json!({"spec": asks("2")}),
                json!({"spec": asks("1500m")}),
                vec![Action::UPDATE_POD_SCALE_DOWN],
            ),
            ("none any more", json!({"spec": asks("2")}), plain.clone(), vec![Action::UPDATE_POD_SCALE_DOWN]),
            ("more", json!({"spec": asks("1")}), json!({"spec": asks("2")}), vec![Action::UPDATE]),
            ("one gate of two", gated(&["a", "b"]), gated(&["b"]), vec![Action::UPDATE]),
            (
                "the last gate",
                gated(&["b"]),
                gated(&[]),
                vec![Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED],
            ),
            (
                "a toleration and a label",
                plain.clone(),
                json!({"metadata": {"labels": {"a": "b"}}, "spec": {"tolerations": [{"operator": "Exists"}]}}),
                vec![Action::UPDATE_POD_LABEL, Action::UPDATE_POD_TOLERATION],
            ),
            ("an annotation", plain, json!({"metadata": {"annotations": {"a": "b"}}}), vec![Action::UPDATE]),
        ] {
            let mut world = World::new();
            let (old, new) = (world.pod("p", old), world.pod("p", new));
            for (is_assigned, resource) in [(true, Resource::AssignedPod), (false, Resource::UnscheduledPod)]
            {
                let events = pod_events(&old, &new, is_assigned);
                assert_eq!(actions(&events), want, "{name}");
                assert!(events.iter().all(|event| event.resource == resource), "{name}");
            }
        }
    }

    #[test]
    fn updates_of_nodes() {
        let ready = |status: &str, time: &str| {
            json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": time},
                {"type": "DiskPressure", "status": "False"}]}})
        };
        let (early, late) = ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z");
        let plain = json!({});
        for (name, old, new, want) in [
            ("nothing", plain.clone(), plain.clone(), vec![]),
            ("a heartbeat", ready("True", early), ready("True", late), vec![]),
            ("a condition", ready("True", early), ready("False", early), vec![Action::UPDATE_NODE_CONDITION]),
            ("closed", plain.clone(), json!({"spec": {"unschedulable": true}}), vec![]),
            (
                "opened",
                json!({"spec": {"unschedulable": true}}),
                plain.clone(),
                vec![Action::UPDATE_NODE_TAINT],
            ),
            (
                "larger",
                plain.clone(),
                json!({"status": {"allocatable": {"cpu": "200"}}}),
                vec![Action::UPDATE_NODE_ALLOCATABLE],
            ),
            (
                "the same amount, written otherwise",
                plain.clone(),
                json!({"status": {"allocatable": {"cpu": "100000m"}}}),
                vec![],
            ),
            (
                "everything",
                plain,
                json!({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
                    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
                    "status": {"allocatable": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
                vec![
                    Action::UPDATE_NODE_ALLOCATABLE,
                    Action::UPDATE_NODE_LABEL,
                    Action::UPDATE_NODE_TAINT,
                    Action::UPDATE_NODE_CONDITION,
                    Action::UPDATE_NODE_ANNOTATION,
                ],
            ),
        ] {
            let mut world = World::new();
            let mut read = |object| {
                let row = world.node("n", object).rows()[0];
                world.cluster.node(row).without_pods()
            };
            let (old, new) = (read(old), read(new));
            assert_eq!(actions(&node_events(&old, &new)), want, "{name}");
        }
    }
}
