//! What users of the original complain of: leaks and stale states.

use serde_json::json;

use super::{lab, lab_with, must_reserve, owned};
use crate::engine::tests::Lab;
use crate::engine::{Outcome, Verdict};

/// A reservation of 4 CPUs on n1 that is used again and again.
fn held() -> Lab {
    let mut lab = lab();
    lab.node("n1", "8");
    lab.available("r", "n1", json!({ "spec": { "allocateOnce": false } }));
    lab
}

fn is_sound(lab: &Lab) {
    let cluster = lab.engine.cluster();
    assert_eq!(cluster.ledger(), cluster.recount());
    assert_eq!(cluster.reservation_ledger(), cluster.recount_reservations());
}

#[test]
fn a_failed_bind_of_an_owner_leaks_nothing() {
    let mut lab = held();
    lab.web("p", "3", must_reserve());
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
    assert_eq!(lab.promised("n1"), 4000);
    lab.outcome("p", Outcome::Prepared);
    lab.said();
    lab.outcome("p", Outcome::BindFailed { message: "no".to_owned() });
    let said = lab.said();
    assert_eq!(said[0], "unmark p", "the annotation is taken off again: {said:?}");
    assert_eq!(lab.promised("n1"), 4000, "the reservation has all of it again");
    assert_eq!(lab.engine.cluster().reservations().get("uid-r").map(|r| r.owners.len()), Some(0));
    is_sound(&lab);
    lab.tick(30);
    assert!(lab.step().is_some(), "and it can be used again");
    // A bind that was done after all keeps the mark.
    lab.outcome("p", Outcome::Prepared);
    lab.owner("p", "3", "n1", "r");
    lab.said();
    lab.outcome("p", Outcome::BindFailed { message: "timed out".to_owned() });
    assert!(!lab.said().iter().any(|line| line.starts_with("unmark")));
    assert_eq!(lab.promised("n1"), 4000);
    is_sound(&lab);
}

#[test]
fn a_failed_bind_of_a_reservation_gives_the_node_back() {
    let mut lab = lab();
    lab.node("n1", "8");
    lab.reservation("r", json!({}));
    lab.step();
    lab.said();
    lab.outcome("r", Outcome::BindFailed { message: "reservation is not active".to_owned() });
    let text = "running Bind plugin \"Reservation\": reservation is not active";
    assert_eq!(
        lab.said(),
        [format!("FailedScheduling r: {text}"), format!("reservation r: unschedulable, {text}")]
    );
    assert_eq!(lab.promised("n1"), 0);
    is_sound(&lab);
}

#[test]
fn a_reservation_deleted_while_it_is_bound_leaves_nothing() {
    for outcome in [Outcome::Bound, Outcome::BindFailed { message: "gone".to_owned() }] {
        let mut lab = lab();
        lab.node("n1", "8");
        lab.reservation("r", json!({}));
        lab.step();
        lab.reservation_gone("r");
        lab.outcome("r", outcome);
        assert_eq!((lab.promised("n1"), lab.queued(), lab.engine.binding_count()), (0, 0, 0));
        is_sound(&lab);
    }
}

#[test]
fn a_reservation_deleted_while_an_owner_is_bound_frees_what_is_left() {
    let mut lab = held();
    lab.web("p", "3", json!({}));
    assert!(lab.step().is_some());
    lab.reservation_gone("r");
    assert_eq!(lab.promised("n1"), 3000, "the owner keeps what it has");
    lab.outcome("p", Outcome::Prepared);
    lab.outcome("p", Outcome::Bound);
    lab.owner("p", "3", "n1", "r");
    assert_eq!(lab.promised("n1"), 3000);
    lab.gone("p");
    assert_eq!(lab.promised("n1"), 0);
    is_sound(&lab);
}

#[test]
fn ports_stay_taken_after_the_reservation_is_consumed() {
    let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
    let with = |ports: &serde_json::Value| {
        json!([{ "name": "c", "ports": ports,
        "resources": { "requests": { "cpu": "1" } } }])
    };
    let mut lab = lab();
    lab.node("n1", "8");
    lab.available("r", "n1", json!({ "spec": { "template": { "spec": { "containers": with(&ports) } } } }));
    let mut owner = owned("n1", "r");
    owner["spec"]["containers"] = with(&ports);
    lab.web("p", "1", owner);
    lab.available(
        "r",
        "n1",
        json!({ "status": { "phase": "Succeeded" },
        "spec": { "template": { "spec": { "containers": with(&ports) } } } }),
    );
    lab.add("other", "1", json!({ "spec": { "containers": with(&ports) } }));
    let Some(Verdict::Unschedulable { message }) = lab.step() else { panic!("the port is free") };
    assert!(message.contains("free ports"), "{message}");
    lab.gone("p");
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
    is_sound(&lab);
}

#[test]
fn removing_the_mark_from_a_pod_is_noticed_at_once() {
    let mut lab = held();
    lab.owner("p", "3", "n1", "r");
    lab.step();
    assert_eq!(lab.said(), ["reservation r: owners [p] use [cpu 3]"]);
    let shown = json!({ "spec": { "allocateOnce": false },
        "status": { "currentOwners": [{ "uid": "uid-p" }], "allocated": { "cpu": "3" } } });
    lab.available("r", "n1", shown);
    lab.web("p", "3", json!({ "spec": { "nodeName": "n1" } }));
    lab.step();
    assert_eq!(lab.said(), ["reservation r: owners [] use []"]);
    assert_eq!(lab.promised("n1"), 7000, "both count in full");
}

#[test]
fn owners_are_those_on_the_node_with_the_very_uid() {
    let mut lab = held();
    lab.node("n2", "8");
    lab.owner("there", "1", "n2", "r");
    let mut stale = owned("n1", "r");
    stale["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-allocated"] =
        json!(r#"{"name":"r","uid":"uid-before"}"#);
    lab.web("stale", "1", stale);
    lab.step();
    assert!(lab.said().is_empty(), "scheduler-reservation-loadaware#A9.Z19");
    lab.owner("done", "1", "n1", "r");
    let mut over = owned("n1", "r");
    over["status"] = json!({ "phase": "Succeeded" });
    lab.web("done", "1", over);
    lab.step();
    assert!(lab.said().is_empty(), "scheduler-reservation-loadaware#A9.Z20: one that has ended is none");
}

#[test]
fn a_lost_write_is_made_again() {
    let mut lab = held();
    lab.owner("p", "3", "n1", "r");
    lab.step();
    assert_eq!(lab.said().len(), 1);
    lab.outcome("r", Outcome::WriteFailed { message: "no".to_owned() });
    assert_eq!(lab.said().len(), 1, "for the log");
    let again = lab.engine.wake_at(lab.now).unwrap();
    assert_eq!(again.since(lab.now).as_secs(), 3);
    lab.tick(3);
    lab.step();
    assert_eq!(lab.said(), ["reservation r: owners [p] use [cpu 3]"]);
}

#[test]
fn a_reservation_for_one_is_taken_once() {
    let mut lab = lab();
    lab.node("n1", "16");
    lab.available("r", "n1", json!({}));
    lab.web("first", "4", must_reserve());
    assert!(lab.step().is_some());
    lab.web("second", "4", json!({}));
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
    let used = |pod: &str| lab.engine.cluster().reservations().used_by(pod).map(str::to_owned);
    assert_eq!(
        (used("uid-first").as_deref(), used("uid-second").as_deref()),
        (Some("uid-r"), None),
        "scheduler-reservation-loadaware#A5.D7"
    );
    is_sound(&lab);
}

#[test]
fn one_who_must_reserve_is_refused_what_was_just_taken() {
    let mut lab = lab();
    lab.node("n1", "16");
    lab.available("r", "n1", json!({}));
    lab.web("first", "4", must_reserve());
    assert!(lab.step().is_some());
    // Nothing has been heard of the reservation since.
    lab.web("second", "4", must_reserve());
    let Some(Verdict::Unschedulable { message }) = lab.step() else { panic!("it was taken twice") };
    assert!(
        message.contains("node(s) no reservations match reservation affinity"),
        "scheduler-reservation-loadaware#A5.D6: {message}"
    );
    assert_eq!(lab.engine.cluster().reservations().used_by("uid-second"), None);
    is_sound(&lab);
}

#[test]
fn one_that_is_being_deleted_takes_nobody() {
    let mut lab = lab();
    lab.node("n1", "16");
    lab.available("r", "n1", json!({ "metadata": { "deletionTimestamp": "1970-01-12T13:46:40Z" } }));
    let affinity = r#"{"tolerations":[{"operator":"Exists"}]}"#;
    lab.web(
        "p",
        "4",
        json!({ "metadata": { "annotations": {
        "scheduling.koordinator.sh/reservation-affinity": affinity } } }),
    );
    let Some(Verdict::Error { message }) = lab.step() else { panic!("it was taken") };
    assert!(
        message.contains("target reservation is terminating"),
        "scheduler-reservation-loadaware#A5.D11: {message}"
    );
    is_sound(&lab);
}

#[test]
fn a_mark_that_an_earlier_attempt_left_binds_nobody() {
    let mut lab = lab();
    lab.node("n1", "8");
    let mut left = owned("", "gone");
    left["spec"] = json!({});
    // Marked, not bound, and the reservation is no more.
    lab.web("p", "1", left);
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
    let commands = lab.engine.take_commands();
    let [crate::engine::Command::Prepare(plan)] = &commands[..] else { panic!("{commands:?}") };
    let mark = "scheduling.koordinator.sh/reservation-allocated".to_owned();
    assert_eq!(plan.annotations, [(mark, None)].into(), "the mark is taken off before the bind");
    // One that was taken by another meanwhile is not shared because of it.
    lab.available("r", "n1", json!({}));
    lab.owner("other", "2", "n1", "r");
    let mut left = owned("", "r");
    left["spec"] = json!({});
    lab.web("q", "1", left);
    assert!(lab.step().is_some());
    assert_eq!(lab.engine.cluster().reservations().used_by("uid-q"), None);
    is_sound(&lab);
}

#[test]
fn of_several_that_wait_for_room_the_oldest_gets_it() {
    let mut lab = lab();
    lab.node("n1", "4");
    let waiting = |created: &str| {
        json!({ "metadata": { "creationTimestamp": created }, "status": { "phase": "Waiting" },
            "spec": { "preAllocation": true, "allocatePolicy": "Aligned" } })
    };
    lab.available("a", "n1", waiting("1970-01-12T13:46:39Z"));
    lab.available("b", "n1", waiting("1970-01-12T13:46:38Z"));
    lab.step();
    assert_eq!(lab.said(), ["reservation b: available"], "neither keeps the other waiting for ever");
}

#[test]
fn marks_of_a_deleted_reservation_go_where_that_is_wanted() {
    let marks = |cleans: bool| {
        let mut lab = lab_with(|args| args.clean_allocated = cleans);
        lab.node("n1", "8");
        lab.available("r", "n1", json!({ "spec": { "allocateOnce": false } }));
        lab.owner("p", "3", "n1", "r");
        lab.step();
        lab.said();
        lab.reservation_gone("r");
        // Told of only after the reservation has gone.
        lab.owner("late", "1", "n1", "r");
        assert!(lab.said().is_empty(), "a follower writes nothing");
        lab.step();
        let first = lab.said();
        lab.step();
        assert!(lab.said().is_empty(), "once");
        is_sound(&lab);
        first
    };
    assert_eq!(marks(true), ["unmark late", "unmark p"], "scheduler-reservation-loadaware A9");
    assert!(marks(false).is_empty());
}
