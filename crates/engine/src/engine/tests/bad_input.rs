//! Objects that no API server should let through, and clocks that jump: one event on the object, one line in the log,
//! and everybody else goes on.

use super::*;
use crate::profile::expand::{Choice, PluginSet, PluginSets};

const MOST: &str = "9223372036854775807";

fn requests(amounts: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}})
}

#[test]
fn an_amount_that_is_none_is_told_once_and_the_pod_is_placed() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    let bad = || requests(json!({"cpu": "abc"}));
    lab.add("p", "1", bad());
    let fault = "spec.containers[0].resources.requests[cpu]: \"abc\" is no quantity and counts as not given";
    assert_eq!(
        lab.said(),
        [format!("warn pod d/p cannot be read in part: {fault}"), format!("Malformed p: {fault}")]
    );
    lab.add("p", "1", bad());
    assert_eq!(lab.said(), [""; 0], "once");
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
    assert_eq!(lab.said(), ["bind p to n1"]);
    lab.gone("p");
    lab.add("p", "1", bad());
    assert_eq!(lab.said().len(), 2, "another pod of that name");
    lab.add("p", "1", requests(json!({"cpu": "-5"})));
    assert_eq!(lab.said().len(), 2, "another fault");
    lab.add("p", "1", requests(json!({"cpu": "1"})));
    lab.add("p", "1", requests(json!({"cpu": "-5"})));
    assert_eq!(lab.said().len(), 2, "it was mended in between");
}

#[test]
fn many_faults_are_one_event() {
    let mut lab = Lab::new();
    let amounts: serde_json::Map<String, Value> =
        (0..1000).map(|number| (format!("example.com/r{number:04}"), json!("x"))).collect();
    lab.add("p", "1", requests(Value::Object(amounts)));
    let said = lab.said();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].ends_with("; and 996 more"), "{}", said[1]);
}

#[test]
fn pods_of_others_are_not_complained_of() {
    let mut lab = Lab::new();
    let mut other = requests(json!({"cpu": "abc"}));
    other["spec"]["schedulerName"] = json!("other");
    lab.add("p", "1", other);
    assert_eq!(lab.said(), [""; 0]);
}

#[test]
fn a_node_that_cannot_be_read_is_told_of_and_used_as_far_as_it_can() {
    let mut lab = Lab::new();
    let node = |amount: &str| {
        json!({"type": "node", "object": {"metadata": {"name": "n1", "uid": "u1",
            "annotations": {koord_api::keys::node::annotation::RESERVATION: "{"}},
            "status": {"allocatable": {"cpu": amount, "memory": "1Gi", "pods": "10"}}}})
    };
    lab.take(node("4"));
    let said = lab.said();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("warn node n1 cannot be read in part: annotation "), "{said:?}");
    assert!(said[1].starts_with("Malformed n1: annotation "), "{said:?}");
    lab.take(node("4"));
    assert_eq!(lab.said(), [""; 0], "once");
    lab.add("p", "1", json!({}));
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
}

#[test]
fn a_node_without_allocatable_holds_nobody() {
    let mut lab = Lab::new();
    lab.take(json!({"type": "node", "object": {"metadata": {"name": "n1"}}}));
    lab.add("p", "1", json!({}));
    let Some(Verdict::Unschedulable { message }) = lab.step() else { panic!() };
    assert!(
        message.starts_with("0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."),
        "{message}"
    );
    lab.node("n1", "4");
    assert_eq!(
        lab.step(),
        Some(Verdict::Scheduled { node: "n1".into() }),
        "it is woken when the node is there"
    );
}

#[test]
fn sums_at_the_end_of_their_range_come_back() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    for name in ["a", "b", "c"] {
        let mut pod = requests(json!({"memory": MOST, "cpu": MOST, "example.com/x": MOST}));
        pod["spec"]["nodeName"] = json!("n1");
        lab.add(name, "1", pod);
    }
    lab.add("small", "1", json!({"spec": {"nodeName": "n1"}}));
    let check = |lab: &Lab| assert_eq!(lab.engine.cluster().recount(), lab.engine.cluster().ledger());
    check(&lab);
    for name in ["b", "a", "c"] {
        lab.gone(name);
        check(&lab);
    }
    lab.add("p", "3", json!({}));
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }), "1 of 4 is taken");
}

#[test]
fn amounts_below_zero_make_no_room() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    let mut pod = requests(json!({"cpu": "-100", "memory": "-9223372036854775808"}));
    pod["spec"]["nodeName"] = json!("n1");
    lab.add("a", "1", pod);
    lab.add("p", "5", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })));
    lab.add("q", "4", json!({}));
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
}

#[test]
fn a_pod_cannot_ask_for_pods() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    let mut pod = requests(json!({"pods": "200"}));
    pod["spec"]["nodeName"] = json!("n1");
    lab.add("a", "1", pod);
    assert_eq!(lab.engine.cluster().recount(), lab.engine.cluster().ledger());
    lab.add("p", "1", json!({}));
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
}

#[test]
fn sizes_of_images_at_the_end_of_their_range_are_scored() {
    let mut lab = Lab::new();
    for (name, size) in [("n1", i64::MAX), ("n2", i64::MIN)] {
        lab.take(json!({"type": "node", "object": {"metadata": {"name": name}, "status": {
            "allocatable": {"cpu": "4", "memory": "1Gi", "pods": "10"},
            "images": [{"names": ["a:1", "b:1"], "sizeBytes": size}]}}}));
    }
    let containers = json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]);
    lab.add("p", "1", json!({"spec": {"containers": containers}}));
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
}

#[test]
fn a_thousand_terms_of_each_kind_are_weighed() {
    let mut lab = Lab::new();
    for name in ["n1", "n2"] {
        lab.node(name, "4");
    }
    let term = |number: usize| {
        json!({"topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": format!("a{number}")}}})
    };
    let all: Vec<Value> = (0..1000).map(term).collect();
    let weighted: Vec<Value> =
        (0..1000).map(|number| json!({"weight": i32::MAX, "podAffinityTerm": term(number)})).collect();
    let spread: Vec<Value> = (0..1000)
        .map(|number| {
            json!({"maxSkew": i32::MAX, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable":
                if number % 2 == 0 { "DoNotSchedule" } else { "ScheduleAnyway" },
                "labelSelector": {"matchLabels": {"app": format!("a{number}")}}})
        })
        .collect();
    lab.add("other", "1", json!({"metadata": {"labels": {"app": "a7"}}, "spec": {"nodeName": "n1"}}));
    lab.add(
        "p",
        "1",
        json!({"spec": {"topologySpreadConstraints": spread, "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": all},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}}),
    );
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n2".into() }), "n1 has one of them");
}

#[test]
fn selectors_that_cannot_be_read_match_nothing() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Bogus"}]});
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": selector});
    lab.add(
        "p",
        "1",
        json!({"spec": {"affinity": {"podAntiAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}}),
    );
    assert_eq!(lab.said().len(), 2, "a line and an event");
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [selector]}}});
    lab.add("q", "1", json!({"spec": {"affinity": affinity}}));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })));
    lab.add("r", "1", json!({}));
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }), "others go on");
}

#[test]
fn an_annotation_that_cannot_be_read_holds_up_nobody_else() {
    let enabled = vec![Choice { name: "SchedulingHint".to_owned(), weight: 1 }];
    let custom =
        PluginSets { multi_point: PluginSet { enabled, disabled: Vec::new() }, ..PluginSets::default() };
    let mut profile = Profile::standard("s");
    profile.points = PluginSets::defaults().merge(&custom).expand("s").unwrap();
    let mut lab = Lab::with(Engine::new(&Options::new(vec![profile])).unwrap());
    lab.node("n1", "4");
    let key = koord_api::keys::pod::annotation::SCHEDULING_HINT;
    lab.add("p", "1", json!({"metadata": {"annotations": {key: "{"}}, "spec": {"priority": 10}}));
    lab.add("q", "1", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Error { .. })));
    let said = lab.said();
    let events = said.iter().filter(|line| line.starts_with("FailedScheduling p: "));
    assert_eq!(events.count(), 1, "{said:?}");
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }), "the next in line");
    lab.said();
    assert_eq!(lab.step(), None);
    lab.add("p", "1", json!({"metadata": {"annotations": {key: "{}"}}, "spec": {"priority": 10}}));
    lab.tick(11);
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }), "it was mended");
}

#[test]
fn priorities_at_the_ends_of_their_range_are_ordered() {
    let mut lab = Lab::new();
    lab.node("n1", "1");
    lab.add("low", "1", json!({"spec": {"nodeName": "n1", "priority": i32::MIN}}));
    lab.add("high", "1", json!({"spec": {"priority": i32::MAX}}));
    lab.step();
    assert!(lab.said().iter().any(|line| line == "preempt low on n1 for high"));
}
