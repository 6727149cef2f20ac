//! What manager 12 says of waiting pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfileSpec;
use koord_api::keys::pod::label::{PRIORITY, QOS_CLASS};
use koord_api::rewrite::profile::Chance;
use serde_json::json;

use super::*;

fn profile(spec: Value) -> ClusterColocationProfile {
    let mut profile = ClusterColocationProfile::default();
    profile.metadata.name = Some("p".to_owned());
    profile.spec = Some(serde_json::from_value::<ClusterColocationProfileSpec>(spec).unwrap());
    profile
}

fn patched(spec: Value, pod: &Value) -> Option<Value> {
    patch(&Profile::new(&profile(spec)), pod).unwrap()
}

#[test]
fn profiles_that_are_followed() {
    let labelled = |value: &str| {
        let mut profile = profile(json!({}));
        profile.metadata.labels = Some(BTreeMap::from([(CONTROLLER_MANAGED.to_owned(), value.to_owned())]));
        profile
    };
    let mut deleting = labelled("true");
    deleting.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    for (name, profile, by_default, want) in [
        ("asked for", labelled("true"), false, true),
        ("not asked for", labelled("false"), false, false),
        ("no label", profile(json!({})), false, false),
        ("by default", profile(json!({})), true, true),
        ("going away", deleting, true, false),
    ] {
        assert_eq!(is_followed(&profile, by_default), want, "{name}");
    }
}

#[test]
fn pods_that_are_looked_at() {
    let text =
        |spec: Value| pods_of(&profile(spec)).map(|selector| (selector.is_nothing(), selector.to_string()));
    assert_eq!(text(json!({})), Ok((true, String::new())), "no selector, no pods");
    assert_eq!(text(json!({"selector": {}})), Ok((false, String::new())), "all pods");
    let selector = json!({"selector": {"matchLabels": {"app": "web"}}});
    assert_eq!(text(selector), Ok((false, "app=web".to_owned())));
    let bad = json!({"matchExpressions": [{"key": "a", "operator": "Bad"}]});
    assert!(text(json!({"selector": bad})).is_err());
    assert!(text(json!({"selector": {}, "namespaceSelector": bad})).is_err());
    assert_eq!(LabelSelector::default(), LabelSelector { match_expressions: None, match_labels: None });

    for (node, phase, want) in [("", "Pending", true), ("n1", "Pending", false), ("", "Running", false)] {
        let pod = json!({"spec": {"nodeName": node}, "status": {"phase": phase}});
        assert_eq!(is_waiting(&pod), want, "{node:?} {phase}");
    }
    assert!(!is_waiting(&json!({})));
}

#[test]
fn a_waiting_pod_gets_all_but_scheduler_priority_and_resources() {
    let spec = json!({
        "labels": {"a": "1"},
        "annotations": {"b": "2"},
        "labelKeysMapping": {"a": "c"},
        "annotationKeysMapping": {"b": "d"},
        "qosClass": "BE",
        "koordinatorPriority": 7,
        "schedulerName": "koord-scheduler",
        "priorityClassName": "koord-batch",
        "patch": {"metadata": {"labels": {"old": null}}, "spec": {"terminationGracePeriodSeconds": 5}},
    });
    let pod = json!({
        "metadata": {"name": "x", "labels": {"old": "1", "keep": "1"}},
        "spec": {
            "priority": 0,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}, "unknown": true}],
        },
    });
    let want = json!({
        "metadata": {
            "labels": {"a": "1", "c": "1", "old": null, (QOS_CLASS): "BE", (PRIORITY): "7"},
            "annotations": {"b": "2", "d": "2"},
        },
        "spec": {"terminationGracePeriodSeconds": 5},
    });
    assert_eq!(patched(spec, &pod), Some(want));
    assert!(patch(&Profile::new(&profile(json!({"patch": {"spec": "bad"}}))), &pod).is_err());
}

#[test]
fn a_suffix_is_appended_once() {
    let spec = || json!({"labelSuffixes": {"tier": "-batch", "none": "-x"}});
    let pod = |tier: &str| json!({"metadata": {"labels": {"tier": tier}}, "spec": {"containers": []}});
    let want = json!({"metadata": {"labels": {"tier": "web-batch"}}});
    assert_eq!(patched(spec(), &pod("web")), Some(want), "manager#26.DB-11");
    assert_eq!(patched(spec(), &pod("web-batch")), None, "manager#26.DB-11");
}

#[test]
fn luck_lasts() {
    let (pod, other) = (Uid::of("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), Uid::of("other"));
    let profile = Uid::of("6ba7b811-9dad-11d1-80b4-00c04fd430c8");
    assert_eq!(draw(profile, pod), draw(profile, pod), "manager#26.DB-38");
    assert_ne!(draw(profile, pod), draw(profile, other));
    // Each percentage is met among many pods.
    let pods = (0_u32..20_000).map(|i| Uid::of(&format!("00000000-0000-4000-8000-{i:012x}")));
    let draws: Vec<i64> = pods.map(|pod| draw(profile, pod)).collect();
    assert!(draws.iter().all(|draw| (0..100).contains(draw)));
    for percent in [1, 10, 50, 99] {
        let lucky = draws.iter().filter(|draw| Chance::Percent(percent).decide(&mut || **draw)).count();
        let wanted = usize::try_from(percent).unwrap() * 200;
        assert!(lucky.abs_diff(wanted) < 200, "manager#26.DB-38 {percent} %: {lucky} of 20000");
    }
}

#[test]
fn a_pod_is_left_alone_for_a_while() {
    let at = Duration::from_secs;
    let pace = Pace { force_update_after: at(300), qps: 10.0, burst: 2.0 };
    let mut journal = Journal::new(pace, at(0));
    let (a, b, c) = (Uid::of("a"), Uid::of("b"), Uid::of("c"));
    assert_eq!(journal.turn("1", a, at(0)), Turn::Now);
    journal.note("1", a, at(0));
    assert_eq!(journal.turn("1", b, at(0)), Turn::Now);
    assert_eq!(journal.turn("1", c, at(0)), Turn::Limited, "two at once");
    assert_eq!(journal.turn("1", a, at(0)), Turn::Seen, "costs nothing");
    assert_eq!(journal.turn("1", c, at(1)), Turn::Now);
    assert_eq!(journal.turn("1", a, at(299)), Turn::Seen);
    assert_eq!(journal.turn("2", a, at(299)), Turn::Now, "the profile has changed");
    assert_eq!(journal.turn("1", a, at(300)), Turn::Now, "forced");
    journal.expire(at(299));
    assert_eq!(journal.seen.len(), 1);
    journal.expire(at(300));
    assert!(journal.seen.is_empty());
}
