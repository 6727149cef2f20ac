//! What each event of a Reservation does to the queue and to nodes. Spec: scheduler-reservation-loadaware A4.1, table TR.

use serde_json::{Value, json};

use super::{lab, must_reserve};
use crate::engine::Outcome;
use crate::engine::tests::Lab;

fn on(node: &str) -> Value {
    json!({ "status": { "phase": "Available", "nodeName": node, "allocatable": { "cpu": "4" } } })
}

fn phase(phase: &str) -> Value {
    json!({ "status": { "phase": phase } })
}

fn others() -> Value {
    json!({ "spec": { "template": { "spec": { "schedulerName": "other" } } } })
}

/// Two nodes of 4 CPUs; on the first there is a pod of 4 that waits for room of 4, told so already.
fn crowd() -> Lab {
    let mut lab = lab();
    lab.node("n1", "4");
    lab.node("n2", "4");
    lab
}

/// What is queued, and what is promised on both nodes.
fn state(lab: &Lab) -> (usize, i64, i64) {
    (lab.queued(), lab.promised("n1"), lab.promised("n2"))
}

#[test]
fn effects_of_events() {
    let invalid = json!({ "spec": { "owners": [] } });
    let waiting = |node: &str| json!({ "status": { "phase": "Waiting", "nodeName": node } });
    let gone = json!("gone");
    for (key, events, want) in [
        ("scheduler-reservation-loadaware#A4.1.TR1 mine", vec![json!({})], (1, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR1 not mine", vec![others()], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR2", vec![on("n1")], (0, 4000, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR3 failed", vec![phase("Failed")], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR3 succeeded", vec![phase("Succeeded")], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR3 invalid", vec![invalid.clone()], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR4", vec![json!({}), on("n1")], (0, 4000, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR5", vec![on("n1"), on("n1")], (0, 4000, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR6", vec![on("n1"), on("n2")], (0, 0, 4000)),
        ("scheduler-reservation-loadaware#A4.1.TR7 failed", vec![on("n1"), phase("Failed")], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR7 succeeded", vec![on("n1"), phase("Succeeded")], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR8", vec![on("n1"), json!({})], (1, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR9", vec![json!({}), phase("Failed")], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR10 given away", vec![json!({}), others()], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR10 taken over", vec![others(), json!({})], (1, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR11 pending", vec![phase("Failed"), json!({})], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR11 available", vec![phase("Failed"), on("n1")], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR12", vec![on("n1"), invalid], (0, 4000, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR13 add", vec![waiting("n1")], (0, 4000, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR13 pending", vec![json!({}), waiting("n1")], (0, 4000, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR13 available", vec![waiting("n1"), on("n1")], (0, 4000, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR13 failed", vec![waiting("n1"), phase("Failed")], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR14", vec![on("n1"), gone.clone()], (0, 0, 0)),
        ("scheduler-reservation-loadaware#A4.1.TR15", vec![json!({}), gone], (0, 0, 0)),
    ] {
        let mut lab = crowd();
        for event in events {
            match event == json!("gone") {
                true => lab.reservation_gone("r"),
                false => lab.reservation("r", event),
            }
        }
        assert_eq!(state(&lab), want, "{key}");
    }
}

#[test]
fn an_end_is_final_and_says_so() {
    let mut lab = crowd();
    lab.reservation("r", phase("Failed"));
    lab.reservation("r", on("n1"));
    assert_eq!(
        lab.said(),
        ["warn reservation r has ended and cannot become Available again"],
        "scheduler-reservation-loadaware#A4.1.TR11"
    );
    // Another object of the same name is another reservation.
    lab.reservation("r", json!({ "metadata": { "uid": "uid-second" }, "status": on("n1")["status"] }));
    assert_eq!(lab.promised("n1"), 4000);
    lab.reservation_gone("r");
    assert_eq!(lab.promised("n1"), 4000, "the late end of the first does not touch the second");
}

#[test]
fn waiting_pods_are_woken() {
    let key = "scheduler-reservation-loadaware#A4.1";
    for (name, then) in [
        ("TR6 moved", on("n3")),
        ("TR7 ended", phase("Failed")),
        ("TR8 unplaced", others()),
        ("TR14 deleted", json!("gone")),
    ] {
        let mut lab = lab();
        lab.node("n1", "4");
        lab.reservation("r", on("n1"));
        lab.add("p", "4", json!({}));
        assert!(lab.step().is_some());
        assert_eq!(lab.queued(), 1, "{key}.{name}: it waits for the room of the reservation");
        lab.tick(20);
        assert_eq!(lab.step(), None, "{key}.{name}");
        match then == json!("gone") {
            true => lab.reservation_gone("r"),
            false => lab.reservation("r", then),
        }
        assert!(lab.step().is_some(), "{key}.{name}");
        assert!(lab.said().iter().any(|line| line == "bind p to n1"), "{key}.{name}");
    }
}

#[test]
fn a_pod_that_needs_a_reservation_is_woken_by_it() {
    let mut lab = crowd();
    lab.web("p", "2", must_reserve());
    lab.step();
    let said = lab.said();
    let want = "FailedScheduling-Reservation p: 0/0 reservations are available: .";
    assert!(said.iter().any(|line| line == want), "{said:?}");
    lab.tick(20);
    assert_eq!(lab.step(), None);
    lab.reservation("r", on("n1"));
    assert!(lab.step().is_some(), "scheduler-reservation-loadaware#A4.1.TR2 wakes those that wait");
    assert!(lab.said().contains(&"prepare p on n1".to_owned()));
}

#[test]
fn what_is_assumed_stays_so_while_the_object_changes() {
    let key = "scheduler-reservation-loadaware#A4.1.TR16";
    let mut lab = crowd();
    lab.reservation("r", json!({}));
    lab.step();
    let node = if lab.promised("n1") > 0 { "n1" } else { "n2" };
    lab.reservation("r", json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!((lab.queued(), lab.promised(node)), (0, 4000), "{key}");
    lab.outcome("r", Outcome::Bound);
    lab.reservation("r", on(node));
    assert_eq!((lab.engine.cluster().assumed_count(), lab.promised(node)), (0, 4000), "{key}");
}

#[test]
fn another_scheduler_was_quicker() {
    let mut lab = crowd();
    lab.reservation("r", json!({}));
    lab.step();
    let ours = if lab.promised("n1") > 0 { "n1" } else { "n2" };
    let theirs = if ours == "n1" { "n2" } else { "n1" };
    lab.reservation("r", on(theirs));
    assert_eq!((lab.promised(ours), lab.promised(theirs)), (0, 4000));
    lab.outcome("r", Outcome::BindFailed { message: "reservation is on node x already".to_owned() });
    assert_eq!((lab.promised(ours), lab.promised(theirs), lab.queued()), (0, 4000, 0));
}
