use koord_api::crd::decode_object;
use serde_json::{Value, json};

use super::*;
use crate::pod::PodKey;

const HOUR: u64 = 3600;

/// The instant that tests happen at.
fn now() -> Time {
    Time::from_seconds(1_700_000_000)
}

fn ago(seconds: u64) -> String {
    (now() - Duration::from_secs(seconds)).to_string()
}

/// A Reservation on n1, created a minute ago, with a ttl of a day, unless a case says otherwise.
fn object(phase: &str, rest: Value) -> Reservation {
    let mut object = json!({
        "metadata": { "name": "r", "uid": "u", "resourceVersion": "1", "creationTimestamp": ago(60) },
        "spec": { "ttl": "24h" },
        "status": { "phase": phase, "nodeName": "n1", "allocatable": { "cpu": "8" } },
    });
    merge(&mut object, &rest);
    decode_object(&object).unwrap()
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

fn subject(uid: &str) -> Subject {
    Subject {
        key: PodKey { namespace: "d".into(), name: format!("pod-{uid}").into() },
        uid: uid.into(),
        reserves: None,
    }
}

fn cpu(amount: &str) -> ResourceList {
    [("cpu".to_owned(), amount.parse().unwrap())].into()
}

/// Owners on a node that is there, and what they use together.
fn used(owners: &[&str], amount: &str) -> Seen {
    Seen {
        is_node_there: true,
        has_room: false,
        owners: owners.iter().map(|uid| subject(uid)).collect(),
        allocated: if owners.is_empty() { ResourceList::new() } else { cpu(amount) },
    }
}

fn keeper(object: &Reservation) -> Keeper {
    let mut keeper = Keeper::new(None);
    keeper.note("u", object, None);
    keeper.due(now());
    keeper
}

/// What is written of an object, and in how many seconds it is looked at again.
fn judged(object: &Reservation, seen: Seen) -> (String, Option<u64>) {
    let mut keeper = keeper(object);
    let change = keeper.judge(now(), "u", seen);
    let said = match change {
        None => "nothing".to_owned(),
        Some(ReservationChange::Expired) => "expired".to_owned(),
        Some(ReservationChange::Available) => "available".to_owned(),
        Some(ReservationChange::Unschedulable { message }) => message,
        Some(ReservationChange::Owners { owners, allocated, is_consumed }) => {
            let owners: Vec<&str> = owners.iter().map(|owner| &*owner.uid).collect();
            let cpu = allocated.get("cpu").map(ToString::to_string).unwrap_or_default();
            format!("{} use {cpu}{}", owners.join(","), if is_consumed { ", consumed" } else { "" })
        }
    };
    (said, keeper.timers.first().map(|(at, _)| at.since(now()).as_secs()))
}

#[test]
fn what_is_written() {
    let old = json!({ "metadata": { "creationTimestamp": ago(61 * 60) }, "spec": { "ttl": "1h" } });
    let shared = json!({ "spec": { "allocateOnce": false } });
    let listed = json!({ "status": { "currentOwners": [{ "uid": "a" }], "allocated": { "cpu": "4" } } });
    let both = |a: &Value, b: &Value| {
        let mut sum = a.clone();
        merge(&mut sum, b);
        sum
    };
    let here = || used(&[], "0");
    let lost = || Seen::default();
    for (key, phase, rest, seen, want) in [
        ("scheduler-reservation-loadaware#A9.Z1", "Available", old.clone(), here(), "expired"),
        (
            "scheduler-reservation-loadaware#A9.Z2",
            "Available",
            json!({ "spec": { "ttl": "0s", "expires": ago(60) } }),
            here(),
            "nothing",
        ),
        (
            "scheduler-reservation-loadaware#A9.Z3",
            "Available",
            json!({ "spec": { "expires": ago(60) } }),
            here(),
            "expired",
        ),
        ("scheduler-reservation-loadaware#A9.Z4", "Available", json!({}), lost(), "expired"),
        (
            "scheduler-reservation-loadaware#A9.Z5",
            "Available",
            json!({}),
            used(&["a"], "4"),
            "a use 4, consumed",
        ),
        ("scheduler-reservation-loadaware#A9.Z6", "Available", both(&shared, &listed), here(), " use "),
        (
            "scheduler-reservation-loadaware#A9.Z13",
            "Pending",
            both(&old, &json!({ "status": { "nodeName": "" } })),
            lost(),
            "expired",
        ),
        (
            "scheduler-reservation-loadaware#A9.Z15",
            "Available",
            json!({}),
            used(&["a"], "4"),
            "a use 4, consumed",
        ),
        ("scheduler-reservation-loadaware#A9.Z16", "Available", listed.clone(), here(), " use , consumed"),
        (
            "scheduler-reservation-loadaware#A9.Z17",
            "Available",
            listed.clone(),
            used(&["a"], "4000m"),
            "nothing",
        ),
        (
            "scheduler-reservation-loadaware#A9.Z18",
            "Available",
            shared.clone(),
            used(&["a", "b"], "6"),
            "a,b use 6",
        ),
        (
            "scheduler-reservation-loadaware#A9.Z21",
            "Available",
            shared.clone(),
            used(&["a"], "10"),
            "a use 10",
        ),
        ("scheduler-reservation-loadaware#A9.Z22", "Waiting", json!({}), lost(), "expired"),
        ("waits on", "Waiting", json!({}), here(), "nothing"),
        ("room for it", "Waiting", json!({}), Seen { has_room: true, ..here() }, "available"),
        ("never scheduled, young", "Pending", json!({ "status": { "nodeName": "" } }), lost(), "nothing"),
        ("over", "Succeeded", old.clone(), lost(), "nothing"),
        ("the old phase", "Expired", old, lost(), "nothing"),
    ] {
        assert_eq!(judged(&object(phase, rest), seen).0, want, "{key}");
    }
}

#[test]
fn when_it_is_looked_at_again() {
    let in_seconds = |seconds: u64| (now() + Duration::from_secs(seconds)).to_string();
    for (key, rest, want) in [
        ("scheduler-reservation-loadaware#A9.Z14", json!({ "spec": { "ttl": "0s" } }), None),
        (
            "scheduler-reservation-loadaware#A9.Z14 with expires",
            json!({ "spec": { "ttl": "0s", "expires": ago(60) } }),
            Some(3),
        ),
        ("a day", json!({}), Some(15)),
        ("in 7 s", json!({ "spec": { "expires": in_seconds(7) } }), Some(7)),
        ("in 1 s", json!({ "spec": { "expires": in_seconds(1) } }), Some(3)),
        ("expires later than ttl", json!({ "spec": { "ttl": "70s", "expires": in_seconds(99) } }), Some(15)),
        ("ttl alone, 9 s left", json!({ "spec": { "ttl": "69s" } }), Some(9)),
    ] {
        assert_eq!(judged(&object("Available", rest), used(&[], "0")).1, want, "{key}");
    }
}

#[test]
fn what_is_collected() {
    let ended = |phase: &str, reason: &str, probe: u64, transition: u64, node: &str| {
        let ready = json!({ "type": "Ready", "status": "False", "reason": reason,
            "lastProbeTime": ago(probe), "lastTransitionTime": ago(transition) });
        object(phase, json!({ "status": { "nodeName": node, "conditions": [ready] } }))
    };
    for (key, object, want) in [
        (
            "scheduler-reservation-loadaware#A9.Z7",
            ended("Failed", "Expired", 25 * HOUR, 25 * HOUR, "n1"),
            true,
        ),
        (
            "scheduler-reservation-loadaware#A9.Z8",
            ended("Failed", "Expired", 23 * HOUR, 23 * HOUR, "n1"),
            false,
        ),
        // Upstream keeps it for ever; any that failed is collected.
        ("scheduler-reservation-loadaware#A9.Z9", ended("Failed", "Odd", 25 * HOUR, 25 * HOUR, "n1"), true),
        ("scheduler-reservation-loadaware#A9.Z9 lost", ended("Failed", "Odd", HOUR, HOUR, "gone"), true),
        ("scheduler-reservation-loadaware#A9.Z10", ended("Failed", "Expired", HOUR, HOUR, "gone"), true),
        (
            "scheduler-reservation-loadaware#A9.Z11",
            ended("Succeeded", "Succeeded", HOUR, 48 * HOUR, "n1"),
            false,
        ),
        (
            "scheduler-reservation-loadaware#A9.Z12",
            ended("Succeeded", "Succeeded", 25 * HOUR, 48 * HOUR, "n1"),
            true,
        ),
        ("never placed, expired", ended("Failed", "Expired", HOUR, HOUR, ""), false),
        (
            "no condition",
            object("Failed", json!({ "metadata": { "creationTimestamp": ago(25 * HOUR) } })),
            true,
        ),
        ("in use", object("Available", json!({ "status": { "nodeName": "gone" } })), false),
    ] {
        let mut keeper = keeper(&object);
        let collected = keeper.collect(now(), |node| node == "n1");
        assert_eq!(!collected.is_empty(), want, "{key}");
        assert!(keeper.collect(now(), |_| false).is_empty(), "{key}: not before the next interval");
        let mut kept = Keeper::new(Some(&ReservationArgs {
            disable_garbage_collection: true,
            ..ReservationArgs::default()
        }));
        kept.note("u", &object, None);
        assert!(kept.collect(now(), |_| false).is_empty(), "{key}: switched off");
    }
}

#[test]
fn nothing_is_written_twice() {
    let mut keeper = keeper(&object("Available", json!({})));
    let seen = || used(&["a"], "4");
    assert!(keeper.judge(now(), "u", seen()).is_some());
    assert_eq!(keeper.judge(now(), "u", seen()), None, "on its way");
    // Something else about the object changed meanwhile.
    keeper.note("u", &object("Available", json!({ "metadata": { "resourceVersion": "2" } })), None);
    assert_eq!(keeper.judge(now(), "u", seen()), None, "still on its way");
    let later = now() + AGAIN_MAX;
    assert!(keeper.judge(later, "u", seen()).is_some(), "it was lost");
    keeper.failed(later, "u");
    assert_eq!(keeper.next(), Some(Time::MIN), "the collection is due first");
    keeper.collect(later, |_| true);
    assert_eq!(keeper.next(), Some(later + AGAIN_MIN), "a failure is tried again soon");
    assert!(keeper.judge(later + AGAIN_MIN, "u", seen()).is_some());
    let done = json!({ "metadata": { "resourceVersion": "3" },
        "status": { "phase": "Succeeded", "currentOwners": [{ "uid": "a" }], "allocated": { "cpu": "4" } } });
    assert!(keeper.note("u", &object("Succeeded", done.clone()), None));
    assert!(!keeper.note("u", &object("Succeeded", done), None), "the same version");
    assert_eq!(keeper.judge(later + AGAIN_MAX, "u", used(&[], "0")), None, "over is over");
    assert!(keeper.timers.is_empty());
}

#[test]
fn a_follower_waits_for_nothing() {
    let mut keeper = Keeper::new(None);
    keeper.note("u", &object("Available", json!({})), None);
    assert_eq!(keeper.next(), None);
    assert_eq!(keeper.due(now()), ["u".into()], "all that was heard is due at the beginning");
    keeper.forget("u");
    assert_eq!((keeper.next(), keeper.due(now())), (None, Vec::new()));
    assert_eq!(keeper.uid_of("r"), None);
}
