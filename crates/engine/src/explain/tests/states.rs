//! Where a pod is, and all that wait.

use super::*;
use crate::explain::{BindStep, PermitWait, State};

#[test]
fn places_in_the_queue() {
    let mut lab = Lab::of(
        &[node("n1", json!({}))],
        &[pod("a", "4", "", json!({})), pod("b", "4", "", json!({"spec": {"priority": 5}}))],
    );
    assert_eq!(lab.engine.explain(lab.now, "default", "nobody"), None);
    let since = lab.now;
    assert_eq!(lab.explain("a").state, State::Active { since, attempts: 0, position: 2 });
    assert_eq!(lab.explain("b").state, State::Active { since, attempts: 0, position: 1 });
    assert_eq!(lab.explain("a").summary, "is about to be tried; 1 node can take it");
    lab.engine.step(lab.now);
    lab.engine.step(lab.now);
    assert_eq!(
        lab.explain("a").state,
        State::Binding { since, node: "n1".to_owned(), step: BindStep::Binding }
    );
    lab.settle();
    // Bound by us, the watch is late; then with a start time.
    assert_eq!(lab.explain("b").state, State::Bound { node: "n1".to_owned(), since: None });
    lab.pod(&pod("b", "4", "n1", json!({"status": {"startTime": "2023-11-14T22:13:20Z"}})));
    lab.wait(90);
    let explanation = lab.explain("b");
    assert_eq!(explanation.to_text(), "Pod default/b is on n1.\nState: on n1, started 1m30s ago.\n");
    assert!(explanation.changes.is_empty() && explanation.message.is_none());
}

#[test]
fn a_failure_is_told_with_its_time_and_may_be_over() {
    let mut lab = Lab::of(&[node("n1", json!({}))], &[pod("x", "9", "", json!({}))]);
    lab.settle();
    let told_at = lab.now;
    lab.wait(30);
    let old = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let told = lab.explain("x").told.unwrap();
    assert_eq!((told.message.as_str(), told.at), (old, Some(told_at)));
    lab.node(&node("n2", json!({"spec": {"unschedulable": true}})));
    let explanation = lab.explain("x");
    let now = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(explanation.message.as_deref(), Some(now));
    assert!(explanation.to_text().contains(&format!("\nTold 30s ago: {old}\n")), "{}", explanation.to_text());
    lab.node(&node("n3", json!({"status": {"allocatable": {"cpu": "16"}}})));
    assert_eq!(lab.explain("x").nodes_that_fit, 1);
    assert_eq!(lab.explain("x").message, None);
}

#[test]
fn the_message_is_that_of_the_event() {
    let mut lab = Lab::of(
        &[node("n1", json!({})), node("n2", json!({"spec": {"unschedulable": true}}))],
        &[pod("a", "6", "n1", json!({"spec": {"priority": 10}})), pod("x", "4", "", json!({}))],
    );
    let before = lab.explain("x").message.unwrap();
    let commands = lab.settle();
    let note = commands.iter().find_map(|command| match command {
        Command::Tell(note) => Some(note.note.clone()),
        _ => None,
    });
    assert_eq!(note.unwrap(), before);
}

#[test]
fn preemption_is_planned_and_not_done() {
    let mut lab = Lab::of(
        &[node("n1", json!({}))],
        &[pod("a", "6", "n1", json!({})), pod("x", "4", "", json!({"spec": {"priority": 10}}))],
    );
    let plan = lab.explain("x").preemption.unwrap();
    assert_eq!((plan.node.as_deref(), plan.victims.as_slice()), (Some("n1"), &["default/a".to_owned()][..]));
    assert!(lab.engine.take_commands().is_empty());
    assert!(lab.explain("x").to_text().contains("\nPreemption: makes room on n1 by deleting default/a.\n"));
    // One that came too late to say so has the room promised.
    lab.settle();
    lab.pod(&pod("y", "3", "", json!({})));
    lab.settle();
    let near = &lab.explain("y").nearest[0];
    assert!(near.holders.iter().any(|holder| holder.pod == "default/x" && holder.is_promised), "{near:?}");
}

#[test]
fn somebody_elses_pods_are_known() {
    let mut lab = Lab::of(&[], &[pod("x", "1", "", json!({"spec": {"schedulerName": "other"}}))]);
    assert_eq!(
        lab.explain("x").to_text(),
        "Pod default/x waits for another scheduler: no profile here is called \"other\"; there is default-scheduler.\n\
         State: another scheduler's; ours are default-scheduler.\n"
    );
    lab.take(Input::PodGone { namespace: "default".to_owned(), name: "x".to_owned(), uid: "x".to_owned() });
    assert_eq!(lab.engine.explain(lab.now, "default", "x"), None);
}

#[test]
fn rarer_states_in_words() {
    let now = Time::from_seconds(1000);
    let since = Time::from_seconds(940);
    let wait = PermitWait { plugin: "Coscheduling".to_owned(), until: Time::from_seconds(1030) };
    let node = || "n1".to_owned();
    for (state, want) in [
        (
            State::WaitingAtPermit { since, node: node(), waits_for: vec![wait] },
            "has a place on n1 and waits for Coscheduling (30s left) for 1m0s",
        ),
        (
            State::Binding { since, node: node(), step: BindStep::Settling },
            "being bound to n1 for 1m0s: what was written has to take effect",
        ),
        (State::InFlight { since }, "being tried for 1m0s"),
        (
            State::Backoff { since, attempts: 3, ends: Some(Time::from_seconds(1005)), after_error: true },
            "rests after an error for 1m0s, for 5s more, tried 3 times",
        ),
        (
            State::Gated { since, plugin: "SchedulingGates".to_owned(), message: "waiting".to_owned() },
            "held back for 1m0s by SchedulingGates: waiting",
        ),
        (State::Bound { node: node(), since: None }, "on n1, not started yet"),
    ] {
        let mut explanation = Lab::of(&[], &[pod("x", "1", "", json!({}))]).explain("x");
        (explanation.state, explanation.at) = (state, now);
        let text = explanation.to_text();
        assert!(text.contains(&format!("\nState: {want}.\n")), "{text}");
    }
}

#[test]
fn pending_pods_are_grouped_by_cause() {
    let mut lab = Lab::of(
        &[
            node("n1", json!({})),
            node("n2", json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}})),
        ],
        &[pod("big", "7", "n1", json!({}))],
    );
    for index in 0..7 {
        lab.pod(&pod(&format!("w{index}"), "2", "", json!({})));
    }
    lab.pod(&pod("s1", "1", "", json!({"spec": {"nodeSelector": {"zone": "a"}}})));
    lab.pod(&pod("s2", "1500m", "", json!({"spec": {"nodeSelector": {"zone": "a"}}})));
    lab.pod(&pod("o", "1", "", json!({"spec": {"schedulerName": "other"}})));
    lab.settle();
    lab.wait(61);
    lab.pod(&pod("new", "1", "", json!({})));
    let report = lab.engine.explain_pending(lab.now);
    let data = serde_json::to_value(&report).unwrap();
    assert_eq!(serde_json::from_value::<super::super::PendingReport>(data).unwrap(), report);
    assert_eq!(
        report.to_text(),
        "11 pods wait, for 4 reasons.\n\
         1. 7 pods: 1 of 2 nodes lacks cpu (wants 2, at most 1 free on n1); 1 of 2 nodes has a taint that it does not tolerate (team=a:NoSchedule).\n   \
         Cheapest change: tolerate the taint team=a:NoSchedule; then it fits on n2.\n   \
         default/w0, default/w1, default/w2, default/w3, default/w4 and 2 more; for up to 1m1s\n\
         2. 2 pods: 1 of 2 nodes does not match its node selector or affinity; 1 of 2 nodes has a taint that it does not tolerate (team=a:NoSchedule).\n   \
         Cheapest change, for default/s1: drop zone=a from its node selector; then it fits on n1.\n   \
         default/s1, default/s2; for up to 1m1s\n\
         3. 1 pod: not tried yet.\n   \
         default/new; for up to 0s\n\
         4. 1 pod: no profile here is called \"other\"; there is default-scheduler.\n   \
         default/o; for up to 0s\n"
    );
}
