//! Preemption from the refusal to the bind. Spec: scheduler-core 6.13.8.

use super::*;

fn on_node(node: &str, priority: i32) -> Value {
    json!({"spec": {"nodeName": node, "priority": priority}, "status": {"startTime": "2024-01-01T00:00:00Z"}})
}

fn of_priority(priority: i32) -> Value {
    json!({"spec": {"priority": priority}})
}

#[test]
fn victims_go_and_the_pod_takes_their_place() {
    let mut lab = Lab::new();
    lab.node("n1", "2");
    lab.add("v1", "1", on_node("n1", 1));
    lab.add("v2", "1", on_node("n1", 2));
    lab.add("p", "2", of_priority(20));
    let message = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(lab.step(), Some(Verdict::Unschedulable { message: message.to_owned() }));
    let said = lab.said();
    assert!(said.contains(&"preempt v2 v1 on n1 for p".to_owned()), "{said:?}");
    assert!(said.contains(&format!("status of p: Unschedulable: {message} nominated \"n1\"")), "{said:?}");

    lab.gone("v2");
    lab.tick(20);
    assert_eq!(lab.step(), None, "the last victim has not been told yet");
    lab.add(
        "v1",
        "1",
        json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1", "priority": 1}}),
    );
    lab.gone("v1");
    lab.outcome("p", Outcome::Preempted);
    lab.tick(20);
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
}

#[test]
fn a_failed_preemption_is_tried_again() {
    let mut lab = Lab::new();
    lab.node("n1", "1");
    lab.add("v", "1", on_node("n1", 1));
    lab.add("p", "1", of_priority(20));
    lab.step();
    lab.said();
    lab.outcome("p", Outcome::PreemptFailed { message: "no".to_owned() });
    lab.tick(20);
    lab.step();
    let said = lab.said();
    assert!(said.contains(&"preempt v on n1 for p".to_owned()), "{said:?}");
}

#[test]
fn lesser_pods_lose_their_promise() {
    let mut lab = Lab::new();
    lab.node("a", "1");
    lab.add("v", "1", on_node("a", 1));
    let promised = |scheduler: &str| json!({"spec": {"priority": 5, "schedulerName": scheduler}, "status": {"nominatedNodeName": "a"}});
    lab.add("low", "1", promised("s"));
    lab.add("foreign", "1", promised("other"));
    lab.add("p", "1", of_priority(20));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })), "p comes first");
    let said = lab.said();
    assert!(said.contains(&"status of low: nominated \"\"".to_owned()), "scheduler-core#6.13.P18 {said:?}");
    assert!(said.contains(&"preempt v on a for p".to_owned()), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("foreign")), "scheduler-core#6.13.P18 {said:?}");
}
