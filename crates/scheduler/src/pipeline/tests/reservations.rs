//! Writes to Reservations and the marks on pods that use them. Spec: scheduler-reservation-loadaware A4.5, A7.8.

use koord_engine::engine::command::{Marked, Subject, Unmark};
use serde_json::Value;

use super::*;

const PATH: &str = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/r";

fn reserve() -> Subject {
    Subject { reserves: Some("r".into()), ..subject("r") }
}

/// A Reservation as the server has it, with a field that we do not know.
fn stored(rest: &Value) -> Reply {
    let mut object = json!({
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation",
        "metadata": {"name": "r", "uid": "uid-r", "resourceVersion": "7", "annotations": {}},
        "spec": {"new": 1, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}},
        "status": {"phase": "Pending", "newer": true},
    });
    merge(&mut object, rest);
    Reply::Answer(200, object.to_string())
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => into.clone_from(from),
    }
}

fn bind_reservation(waits_for_room: bool) -> Command {
    let (node, scheduler) = ("n1".into(), "s".into());
    Command::Bind(Binding { pod: reserve(), node, scheduler, extender: None, waits_for_room })
}

fn write(change: ReservationChange) -> Command {
    Command::WriteReservation(Box::new(ReservationWrite { name: "r".into(), uid: "uid-r".into(), change }))
}

#[tokio::test(start_paused = true)]
async fn the_bind_of_a_reservation_is_a_status() {
    for (waits_for_room, phase, ready) in [(false, "Available", "True"), (true, "Waiting", "False")] {
        let resize = json!({"metadata": {"annotations": {
            "scheduling.koordinator.sh/reservation-resize-allocatable": r#"{"resources":{"cpu":"5"}}"#}}});
        let api = FakeApi::scripted([
            stored(&resize),
            Reply::refused(409, "the object has been modified"),
            stored(&resize),
            Reply::refused(429, "slow down"),
            stored(&resize),
        ]);
        let mut scene = scene(&api);
        scene.front.take(bind_reservation(waits_for_room));
        assert_eq!(scene.outcome().await, ("uid-r".to_owned(), Outcome::Bound));
        assert!(scene.end().await.is_empty());
        let seen = api.seen();
        let (get, put) = (format!("GET {PATH}"), format!("PUT {PATH}/status"));
        let lines: Vec<&str> = seen.iter().map(|seen| seen.line.as_str()).collect();
        assert_eq!(lines, [&get, &put, &get, &put, &get, &put], "read anew for every try");
        let body = &seen[5].body;
        assert_eq!((&body["status"]["phase"], &body["status"]["nodeName"]), (&json!(phase), &json!("n1")));
        assert_eq!(body["status"]["allocatable"], json!({"cpu": "5"}));
        assert_eq!(body["status"]["conditions"][1]["status"], ready);
        assert_eq!((&body["status"]["newer"], &body["spec"]["new"]), (&json!(true), &json!(1)), "kept");
        assert_eq!(body["metadata"]["resourceVersion"], "7");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_cannot_be_bound() {
    let failed = |message: &str| Outcome::BindFailed { message: message.to_owned() };
    let on = |node: &str| json!({"status": {"phase": "Available", "nodeName": node}});
    for (name, reply, want) in [
        ("failed", stored(&json!({"status": {"phase": "Failed"}})), failed("reservation is not active")),
        ("consumed", stored(&json!({"status": {"phase": "Succeeded"}})), failed("reservation is not active")),
        ("elsewhere", stored(&on("n2")), failed("reservation is on node n2 already")),
        ("there already", stored(&on("n1")), Outcome::Bound),
        ("gone", Reply::refused(404, "not found"), failed("not found")),
        (
            "made again",
            stored(&json!({"metadata": {"uid": "other"}})),
            failed("reservations.scheduling.koordinator.sh \"r\" not found"),
        ),
    ] {
        let api = FakeApi::scripted([reply]);
        let mut scene = scene(&api);
        scene.front.take(bind_reservation(false));
        assert_eq!(scene.outcome().await.1, want, "{name}");
        assert!(scene.end().await.is_empty(), "{name}");
        assert_eq!(api.lines(), [format!("GET {PATH}")], "{name}");
    }
    let bad = json!({"metadata": {"annotations": {
        "scheduling.koordinator.sh/reservation-resize-allocatable": "{"}}});
    let api = FakeApi::scripted([stored(&bad)]);
    let mut scene = scene(&api);
    scene.front.take(bind_reservation(false));
    let (_, outcome) = scene.outcome().await;
    assert!(matches!(&outcome, Outcome::BindFailed { message } if message.contains("JSON")), "{outcome:?}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_status() {
    let cpu: koord_api::quantity::ResourceList = [("cpu".to_owned(), "3".parse().unwrap())].into();
    let owners = |is_consumed| ReservationChange::Owners {
        owners: vec![subject("p")],
        allocated: cpu.clone(),
        is_consumed,
    };
    let placed = json!({"status": {"phase": "Available", "nodeName": "n1"}});
    let waiting = json!({"status": {"phase": "Waiting", "nodeName": "n1"}});
    let told = json!({"status": {"phase": "Available", "nodeName": "n1", "conditions": [
        {"type": "Scheduled", "status": "True", "lastProbeTime": "2024-01-01T00:00:00Z"}]}});
    let refused = ReservationChange::Unschedulable { message: "m".to_owned() };
    for (name, change, before, want) in [
        ("expired", ReservationChange::Expired, &placed, Some("Failed")),
        ("owners", owners(false), &placed, Some("Available")),
        ("consumed", owners(true), &placed, Some("Succeeded")),
        ("room", ReservationChange::Available, &waiting, Some("Available")),
        ("room for one that has it", ReservationChange::Available, &placed, None),
        ("refused", refused.clone(), &json!({}), Some("Pending")),
        ("refused, but placed meanwhile", refused.clone(), &placed, None),
        ("refused, but placed meanwhile by us", refused, &told, Some("Available")),
        ("expired, but over", ReservationChange::Expired, &json!({"status": {"phase": "Succeeded"}}), None),
    ] {
        let api = FakeApi::scripted([stored(before)]);
        let mut scene = scene(&api);
        let has_outcome = !matches!(change, ReservationChange::Unschedulable { .. });
        scene.front.take(write(change));
        if has_outcome {
            assert_eq!(scene.outcome().await, ("uid-r".to_owned(), Outcome::Written), "{name}");
        }
        assert!(scene.end().await.is_empty(), "{name}");
        let written = api.seen().into_iter().find(|seen| seen.line == format!("PUT {PATH}/status"));
        let phase = written.as_ref().map(|seen| seen.body["status"]["phase"].as_str().unwrap());
        assert_eq!(phase, want, "{name}");
        if name == "refused, but placed meanwhile by us" {
            let condition = &written.as_ref().unwrap().body["status"]["conditions"][0];
            assert_eq!(condition["status"], "True", "scheduler-reservation-loadaware#A2.C3");
            assert_ne!(
                condition["lastProbeTime"], "2024-01-01T00:00:00Z",
                "scheduler-reservation-loadaware#A2.C3"
            );
        }
        if name == "consumed" {
            let status = &written.unwrap().body["status"];
            assert_eq!(
                (&status["currentOwners"], &status["allocated"]),
                (&json!([{"namespace": "ns", "name": "p", "uid": "uid-p"}]), &json!({"cpu": "3"})),
                "owners and the end in one write"
            );
        }
    }
    let api = FakeApi::scripted([Reply::refused(403, "no")]);
    let mut scene = scene(&api);
    scene.front.take(write(ReservationChange::Expired));
    assert_eq!(scene.outcome().await.1, Outcome::WriteFailed { message: "no".to_owned() });
    scene.front.take(Command::DeleteReservation { name: "r".into(), uid: "uid-r".into() });
    scene.end().await;
    let last = api.seen().pop().unwrap();
    assert_eq!(
        (last.line, &last.body["preconditions"]),
        (format!("DELETE {PATH}"), &json!({"uid": "uid-r"}))
    );
}

#[tokio::test(start_paused = true)]
async fn the_mark_of_a_failed_bind_is_taken_off() {
    const KEY: &str = "scheduling.koordinator.sh/reservation-allocated";
    let pod = |uid: &str, node: &str| {
        let object = json!({"metadata": {"uid": uid, "resourceVersion": "3", "annotations": {KEY: "{}"}},
            "spec": {"nodeName": node}});
        Reply::Answer(200, object.to_string())
    };
    for (key, reply, is_removed) in [
        ("scheduler-reservation-loadaware#A7.8.U1", pod("uid-p", ""), true),
        ("scheduler-reservation-loadaware#A7.8.U2", pod("uid-p", "n1"), false),
        ("scheduler-reservation-loadaware#A7.8.U3", pod("uid-p", "n2"), true),
        ("scheduler-reservation-loadaware#A7.8.U4", pod("uid-q", ""), false),
        ("gone", Reply::refused(404, "not found"), false),
    ] {
        let api = FakeApi::scripted([reply]);
        let mut scene = scene(&api);
        let annotations = vec![KEY.to_owned()];
        scene.front.take(Command::Unmark(Box::new(Unmark {
            pod: subject("p"),
            node: "n1".into(),
            annotations,
        })));
        assert!(scene.end().await.is_empty(), "{key}");
        let patch = api.seen().into_iter().find(|seen| seen.line.starts_with("PATCH"));
        assert_eq!(patch.is_some(), is_removed, "{key}");
        if let Some(patch) = patch {
            let want =
                json!({"metadata": {"uid": "uid-p", "resourceVersion": "3", "annotations": {KEY: null}}});
            assert_eq!(
                (patch.line.as_str(), patch.body),
                ("PATCH /api/v1/namespaces/ns/pods/p", want),
                "{key}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_reservation_takes_in_is_marked_first() {
    let api = FakeApi::scripted([]);
    let mut scene = scene(&api);
    let annotations = [("k".to_owned(), Some("v".to_owned()))];
    scene.front.take(Command::Prepare(Box::new(BindPlan {
        pod: Some(reserve()),
        node: "n1".into(),
        annotations: annotations.clone().into(),
        others: vec![Marked { pod: subject("p"), annotations: annotations.into() }],
        ..BindPlan::default()
    })));
    assert_eq!(scene.outcome().await, ("uid-r".to_owned(), Outcome::Prepared));
    scene.end().await;
    assert_eq!(api.lines(), ["PATCH /api/v1/namespaces/ns/pods/p".to_owned(), format!("PATCH {PATH}")]);
    let body = &api.seen()[1].body;
    assert_eq!(*body, json!({"metadata": {"uid": "uid-r", "annotations": {"k": "v"}}}));
}
