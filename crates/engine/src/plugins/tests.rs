//! The spec's rows about plugins that look at one node at a time, what wakes the pods they refuse, and bad input.

use std::sync::Arc;

use serde_json::{Value, json};

use super::testing::{World, is_hopeless, merged};
use super::*;
use crate::framework::{Hooks, PreEnqueue, Status};
use crate::pod::Pod;
use crate::profile::args::DefaultConstraints;

fn asking(requests: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}})
}

fn offering(allocatable: Value) -> Value {
    json!({"status": {"allocatable": allocatable}})
}

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": key, "effect": effect})
}

fn tainted(taints: &[Value]) -> Value {
    json!({"spec": {"taints": taints}})
}

fn fit() -> Hooks {
    node_resources_fit::build(node_resources_fit::Args::default())
}

fn taints() -> Hooks {
    taint_toleration::build(taint_toleration::Wording::Plain)
}

fn affinity() -> Hooks {
    node_affinity::build(node_affinity::Added::default())
}

fn balanced() -> Hooks {
    balanced_allocation::build(vec!["cpu".into(), "memory".into()])
}

/// Every plugin that filters or scores.
fn everything() -> Vec<Hooks> {
    vec![
        node_unschedulable::build(),
        node_name::build(),
        taints(),
        affinity(),
        node_ports::build(),
        fit(),
        pod_topology_spread::build(&DefaultConstraints::System),
        inter_pod_affinity::build(inter_pod_affinity::Args::default()),
        balanced(),
        image_locality::build(),
        scheduling_hint::build(Default::default()),
    ]
}

#[test]
fn resources_that_the_pod_does_not_ask_for_are_left_out() {
    let names = ["cpu", "memory", "kubernetes.io/batch-cpu"];
    let args = node_resources_fit::Args {
        resources: names.iter().map(|name| ((*name).into(), 1)).collect(),
        ..node_resources_fit::Args::default()
    };
    let hooks = node_resources_fit::build(args);
    let mut world = World::new();
    world.node("a", offering(json!({"cpu": "10", "memory": "20Gi", "kubernetes.io/batch-cpu": "10000"})));
    world.place("used", "a", asking(json!({"cpu": "3", "memory": "5Gi", "kubernetes.io/batch-cpu": "9000"})));
    for (key, requests, want) in [
        ("scheduler-core#10.S4", json!({"cpu": "1", "memory": "1Gi"}), 65),
        ("scheduler-core#10.S30", json!({"kubernetes.io/batch-cpu": "500"}), 49),
        ("scheduler-core#10.S31", json!({"cpu": "1", "memory": "1Gi", "kubernetes.io/batch-cpu": "500"}), 45),
    ] {
        let pod = world.pod("p", asking(requests));
        assert_eq!(world.rated(&hooks, &pod), [want], "{key}");
    }
    let pod = world.pod("p", json!({}));
    assert_eq!(world.scores(&balanced(), &pod, &["a"]), None, "scheduler-core#10.S38");
    let pod = world.pod("p", asking(json!({"cpu": "1"})));
    assert_eq!(world.rated(&balanced(), &pod), [92], "scheduler-core#10.S37");
}

#[test]
fn soft_taints_lower_a_score() {
    for (key, counts, want) in [
        ("scheduler-core#10.S12", [0, 1, 2], [100, 50, 0]),
        ("scheduler-core#10.S13", [0, 0, 0], [100, 100, 100]),
        ("scheduler-core#10.S41", [3, 1, 2], [0, 67, 34]),
    ] {
        let mut world = World::new();
        for (name, count) in ["a", "b", "c"].iter().zip(counts) {
            let soft: Vec<Value> = (0..count).map(|i| taint(&format!("k{i}"), "PreferNoSchedule")).collect();
            world.node(name, tainted(&soft));
        }
        let pod = world.pod("p", json!({}));
        assert_eq!(world.rated(&taints(), &pod), want, "{key}");
    }
}

#[test]
fn hard_taints_read_as_wanted() {
    let mut world = World::new();
    let gpu = json!({"key": "gpu", "value": "a100", "effect": "NoSchedule"});
    world.node("a", tainted(&[taint("soft", "PreferNoSchedule"), gpu, taint("x", "NoExecute")]));
    let pod = world.pod("p", json!({}));
    assert_eq!(world.filtered(&taints(), &pod), ["node(s) had untolerated taint(s)"]);
    let named = taint_toleration::build(taint_toleration::Wording::Named);
    assert_eq!(world.filtered(&named, &pod), ["node(s) had untolerated taint {gpu: a100}"]);
    let tolerations = json!([{"key": "gpu", "value": "a100"}, {"key": "x", "operator": "Exists"}]);
    let tolerant = world.pod("p", json!({"spec": {"tolerations": tolerations}}));
    assert_eq!(world.filtered(&named, &tolerant), [""]);
}

#[test]
fn preferred_nodes() {
    let prefer = |terms: &[(i32, &str)]| {
        let terms: Vec<Value> = terms
            .iter()
            .map(|(weight, label)| {
                json!({"weight": weight, "preference": {"matchExpressions": [{"key": label, "operator": "Exists"}]}})
            })
            .collect();
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}})
    };
    for (key, terms, want) in [
        ("scheduler-core#10.S14", &[(5, "b"), (20, "c")][..], [0, 25, 100]),
        ("scheduler-core#10.S42", &[(3, "b"), (7, "c")], [0, 42, 100]),
        ("scheduler-core#10.S43", &[(3, "nowhere")], [0, 0, 0]),
    ] {
        let mut world = World::new();
        for name in ["a", "b", "c"] {
            world.labelled(name, json!({ name: "" }));
        }
        let pod = world.pod("p", prefer(terms));
        assert_eq!(world.rated(&affinity(), &pod), want, "{key}");
    }
    let mut world = World::new();
    world.node("a", json!({}));
    let pod = world.pod("p", json!({}));
    assert_eq!(world.scores(&affinity(), &pod, &["a"]), None);
}

#[test]
fn ports_of_the_host() {
    const TAKEN: &str = "node(s) didn't have free ports for the requested pod ports";
    let port = |address: &str| json!({"containerPort": 80, "hostPort": 80, "hostIP": address});
    let ports = |ports: &[Value]| json!({"spec": {"containers": [{"name": "c", "ports": ports}]}});
    let init = |restart: Value| json!({"spec": {"initContainers": [{"name": "i", "restartPolicy": restart, "ports": [port("")]}]}});
    let udp = json!({"containerPort": 80, "hostPort": 80, "protocol": "UDP"});
    for (key, kept, wanted, want) in [
        ("scheduler-core#10.S24", ports(&[port("127.0.0.1")]), ports(&[port("0.0.0.0")]), TAKEN),
        ("scheduler-core#10.S24", ports(&[port("127.0.0.1")]), ports(&[port("10.0.0.1")]), ""),
        ("scheduler-core#10.S61 plain init container", ports(&[port("")]), init(json!(null)), ""),
        ("scheduler-core#10.S61 sidecar", ports(&[port("")]), init(json!("Always")), TAKEN),
        ("another protocol", ports(&[port("")]), ports(&[udp]), ""),
        (
            "one of two",
            ports(&[port("")]),
            ports(&[json!({"containerPort": 1, "hostPort": 81}), port("")]),
            TAKEN,
        ),
        ("no port of the host", ports(&[port("")]), ports(&[json!({"containerPort": 80})]), ""),
    ] {
        let mut world = World::new();
        world.node("a", json!({}));
        world.place("kept", "a", kept);
        let pod = world.pod("p", wanted);
        assert_eq!(world.filtered(&node_ports::build(), &pod), [want], "{key}");
    }
}

#[test]
fn a_request_beyond_the_node_is_hopeless() {
    let mut world = World::new();
    world.node("a", offering(json!({"cpu": "2", "pods": "2"})));
    world.place("x", "a", asking(json!({"cpu": "1"})));
    for (cpu, hopeless) in [("1", false), ("1500m", false), ("3", true)] {
        let pod = world.pod("p", asking(json!({"cpu": cpu})));
        let status = &world.statuses(&fit(), &pod)[0];
        assert_eq!((status.is_some(), is_hopeless(status)), (cpu != "1", hopeless), "{cpu}");
    }
    world.place("y", "a", json!({}));
    let pod = world.pod("p", json!({}));
    assert_eq!(world.filtered(&fit(), &pod), ["Too many pods"]);
    assert!(!is_hopeless(&world.statuses(&fit(), &pod)[0]));
}

#[test]
fn ignored_resources_are_not_checked() {
    let args = node_resources_fit::Args {
        ignored: vec!["example.com/a".into()],
        ignored_groups: vec!["ignored.io".into()],
        ..node_resources_fit::Args::default()
    };
    let mut world = World::new();
    world.node("a", json!({}));
    let pod =
        world.pod("p", asking(json!({"example.com/a": "1", "ignored.io/b": "1", "example.com/c": "1"})));
    assert_eq!(world.filtered(&node_resources_fit::build(args), &pod), ["Insufficient example.com/c"]);
}

#[test]
fn what_a_node_keeps_is_not_given_away() {
    let mut world = World::new();
    let reserved = json!({"metadata": {"annotations": {"node.koordinator.sh/reservation": r#"{"resources":{"cpu":"5"}}"#}}});
    world.node("a", merged(offering(json!({"cpu": "10", "memory": "10Gi"})), &reserved));
    let pod = world.pod("p", asking(json!({"cpu": "6"})));
    assert_eq!(world.filtered(&fit(), &pod), ["Insufficient cpu"], "scheduler-core#9.9.N1");
    let old = world.pod("p", asking(json!({"koordinator.sh/batch-cpu": "500"})));
    world.node("b", offering(json!({"koordinator.sh/batch-cpu": "1000"})));
    assert_eq!(world.filtered(&fit(), &old), ["Insufficient kubernetes.io/batch-cpu", ""]);
    let relabelled =
        world.pod("p", json!({"metadata": {"labels": {"scheduling.koordinator.sh/scheduler-name": "k"}}}));
    assert_eq!(&*relabelled.class.scheduler, "k");
    let empty =
        world.pod("p", json!({"metadata": {"labels": {"scheduling.koordinator.sh/scheduler-name": ""}}}));
    assert_eq!(&*empty.class.scheduler, testing::SCHEDULER);
}

#[test]
fn gates_hold_a_pod_back() {
    let gated = |gates: &[&str]| {
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        json!({"spec": {"schedulingGates": gates}})
    };
    let mut world = World::new();
    let hooks = scheduling_gates::build();
    let gate: &Arc<dyn PreEnqueue> = hooks.pre_enqueue.as_ref().unwrap();
    let two = world.pod("p", gated(&["g1", "g2"]));
    let text = gate.admit(&world.cluster, &two).unwrap_err().to_string();
    assert_eq!(text, "waiting for scheduling gates: [g1 g2]");
    let (one, none) = (world.pod("p", gated(&["g2"])), world.pod("p", gated(&[])));
    assert!(gate.admit(&world.cluster, &none).is_ok());
    assert!(!world.pod_wakes(&hooks, &one, Some(&two), Some(&one)), "scheduler-core#6.14.H15");
    assert!(world.pod_wakes(&hooks, &none, Some(&one), Some(&none)), "scheduler-core#6.14.H15");
    let other = world.pod("other", gated(&[]));
    let was = world.pod("other", gated(&["g"]));
    assert!(!world.pod_wakes(&hooks, &one, Some(&was), Some(&other)), "another pod's gate");
}

#[test]
fn nodes_wake_pods_that_lacked_room() {
    let small = offering(json!({"cpu": "1", "memory": "1Gi", "pods": "10"}));
    let labelled =
        merged(small.clone(), &json!({"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}}));
    let more = |amounts: Value| merged(small.clone(), &offering(amounts));
    for (key, node, over, want) in [
        ("scheduler-core#6.14.H1 label and annotation", "a", labelled, false),
        ("scheduler-core#6.14.H1 too small still", "a", more(json!({"cpu": "1500m"})), false),
        ("scheduler-core#6.14.H1 memory", "a", more(json!({"memory": "8Gi"})), false),
        ("large enough", "a", more(json!({"cpu": "2"})), true),
        ("more pods, too small", "a", more(json!({"pods": "20"})), false),
        ("scheduler-core#6.14.H2", "a", merged(small.clone(), &tainted(&[taint("k", "NoSchedule")])), true),
        ("scheduler-core#6.14.H3 small", "b", small.clone(), false),
        ("scheduler-core#6.14.H3 large", "b", more(json!({"cpu": "2"})), true),
    ] {
        let mut world = World::new();
        world.node("a", small.clone());
        let pod = world.pod("p", asking(json!({"cpu": "2"})));
        assert_eq!(world.node_wakes(&fit(), &pod, node, over), want, "{key}");
    }
    let mut world = World::new();
    let large = offering(json!({"cpu": "4", "memory": "1Gi", "pods": "10"}));
    world.node("a", large.clone());
    let pod = world.pod("p", asking(json!({"cpu": "2"})));
    let grown = merged(large, &offering(json!({"memory": "8Gi"})));
    assert!(!world.node_wakes(&fit(), &pod, "a", grown.clone()), "more of what it does not ask for");
    assert!(world.node_wakes(&fit(), &pod, "a", merged(grown, &offering(json!({"pods": "11"})))));
}

#[test]
fn pods_wake_pods_that_lacked_room() {
    let mut world = World::new();
    let cpu = |cpu: &str| asking(json!({ "cpu": cpu }));
    let on = |object: Value| merged(object, &json!({"spec": {"nodeName": "n"}}));
    let pod = world.pod("p", cpu("2"));
    let foreign = world.pod("x", json!({"spec": {"schedulerName": "other"}}));
    let promised = world.pod("x", json!({"status": {"nominatedNodeName": "n"}}));
    let (large, small) = (world.pod("x", on(cpu("2"))), world.pod("x", on(cpu("1"))));
    let other = world.pod("x", on(asking(json!({"cpu": "2", "memory": "1Gi"}))));
    let (relabelled, less) = (
        world.pod("p", merged(cpu("2"), &json!({"metadata": {"labels": {"a": "b"}}}))),
        world.pod("p", cpu("1500m")),
    );
    for (key, waiting, old, new, want) in [
        ("scheduler-core#6.14.H4 no place", &pod, Some(&foreign), None, false),
        ("scheduler-core#6.14.H4 on a node", &pod, Some(&large), None, true),
        ("a promised one", &pod, Some(&promised), None, true),
        ("scheduler-core#6.14.H5 own label", &relabelled, Some(&pod), Some(&relabelled), false),
        ("scheduler-core#6.14.H5 own request", &less, Some(&pod), Some(&less), true),
        ("another asks for less", &pod, Some(&large), Some(&small), true),
        ("another asks for less of something else", &pod, Some(&other), Some(&large), false),
        ("another came", &pod, None, Some(&large), false),
    ] {
        assert_eq!(world.pod_wakes(&fit(), waiting, old, new), want, "{key}");
    }
}

#[test]
fn nodes_wake_pods_that_they_did_not_suit() {
    let k = tainted(&[taint("k", "NoSchedule")]);
    let closed = json!({"spec": {"unschedulable": true}});
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}});
    let chosen = json!({"spec": {"nodeSelector": {"z": "1"}}});
    let named = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["zz"]}]}]}}}}});
    let plain = json!({});
    for (key, hooks, pod, before, node, over, want) in [
        (
            "scheduler-core#6.14.H6 replaced",
            taints(),
            &plain,
            &k,
            "a",
            tainted(&[taint("k2", "NoSchedule")]),
            false,
        ),
        ("scheduler-core#6.14.H6 removed", taints(), &plain, &k, "a", plain.clone(), true),
        ("a tainted node comes", taints(), &plain, &k, "b", k.clone(), false),
        ("a clean node comes", taints(), &plain, &k, "b", plain.clone(), true),
        (
            "scheduler-core#6.14.H7 label",
            node_unschedulable::build(),
            &plain,
            &closed,
            "a",
            merged(closed.clone(), &label("x", "y")),
            false,
        ),
        (
            "scheduler-core#6.14.H7 uncordon",
            node_unschedulable::build(),
            &plain,
            &closed,
            "a",
            plain.clone(),
            true,
        ),
        ("a closed node comes", node_unschedulable::build(), &plain, &closed, "b", closed.clone(), false),
        ("scheduler-core#6.14.H8 other value", affinity(), &chosen, &plain, "a", label("z", "2"), false),
        ("scheduler-core#6.14.H8 the value", affinity(), &chosen, &plain, "a", label("z", "1"), true),
        ("scheduler-core#6.14.H9 another node", affinity(), &named, &plain, "b", plain.clone(), false),
        ("scheduler-core#6.14.H9 the node", affinity(), &named, &plain, "zz", plain.clone(), true),
        ("any node", node_name::build(), &plain, &plain, "b", plain.clone(), true),
        ("no new node", node_name::build(), &plain, &plain, "a", label("x", "y"), false),
        ("a node for ports", node_ports::build(), &plain, &plain, "b", plain.clone(), true),
    ] {
        let mut world = World::new();
        world.node("a", before.clone());
        let pod = world.pod("p", pod.clone());
        assert_eq!(world.node_wakes(&hooks, &pod, node, over), want, "{key}");
    }
}

#[test]
fn added_affinity_counts_when_nodes_change() {
    let selector =
        json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]});
    let added = node_affinity::Added {
        required: Some(koord_api::selector::NodeSelector::new(
            &serde_json::from_value(selector).unwrap(),
            "",
        )),
        preferred: None,
    };
    let hooks = node_affinity::build(added);
    let mut world = World::new();
    world.node("a", json!({}));
    let pod = world.pod("p", json!({}));
    assert_eq!(world.filtered(&hooks, &pod), ["node(s) didn't match scheduler-enforced node affinity"]);
    assert!(world.node_wakes(&hooks, &pod, "a", json!({"metadata": {"labels": {"pool": "x"}}})));
    assert!(!world.node_wakes(&hooks, &pod, "a", json!({"metadata": {"labels": {"pool": "y"}}})));
}

#[test]
fn own_tolerations_wake_a_pod() {
    let mut world = World::new();
    let tolerating = |key: &str| json!({"spec": {"tolerations": [{"key": key, "operator": "Exists"}]}});
    let old = world.pod("p", json!({}));
    let (cordon, other) =
        (world.pod("p", tolerating("node.kubernetes.io/unschedulable")), world.pod("p", tolerating("k")));
    let stranger = world.pod("q", json!({}));
    for (name, hooks, pod, want) in [
        ("the cordon", node_unschedulable::build(), &cordon, true),
        ("something else", node_unschedulable::build(), &other, false),
        ("any toleration may help with taints", taints(), &other, true),
    ] {
        assert_eq!(world.pod_wakes(&hooks, pod, Some(&old), Some(pod)), want, "{name}");
        assert!(!world.pod_wakes(&hooks, &stranger, Some(&old), Some(pod)), "{name}: of another pod");
    }
}

#[test]
fn ports_wake_pods_that_want_them() {
    let port = |number: i32| json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": number}]}]}});
    let on = |object: Value| merged(object, &json!({"spec": {"nodeName": "n"}}));
    let mut world = World::new();
    let pod = world.pod("p", port(80));
    let (holder, other, waiting) =
        (world.pod("h", on(port(80))), world.pod("o", on(port(81))), world.pod("w", port(80)));
    let hooks = node_ports::build();
    assert!(!world.pod_wakes(&hooks, &pod, Some(&other), None), "scheduler-core#6.14.H10 other pod");
    assert!(world.pod_wakes(&hooks, &pod, Some(&holder), None), "scheduler-core#6.14.H10 holder");
    assert!(!world.pod_wakes(&hooks, &pod, Some(&waiting), None), "it had no place");
}

#[test]
fn hints_of_another_scheduler() {
    let hinted = |hint: &str| json!({"metadata": {"annotations": {"internal.scheduling.koordinator.sh/scheduling-hint": hint}}});
    let mut world = World::new();
    world.node("a", json!({})).node("b", json!({})).node("c", json!({}));
    let hooks = scheduling_hint::build(crate::profile::args::SchedulingHintArgs { max_hint_nodes: 2 });
    let prepared = |world: &World, pod: &Arc<Pod>| {
        let mut cycle = crate::framework::Cycle::new(&world.cluster, pod);
        let only = hooks.pre_filter.as_ref().unwrap().prepare(&mut cycle);
        (only, hooks.prefer.as_ref().unwrap().prefer(&cycle))
    };
    let rows = world.rows();
    let pod = world.pod("p", hinted(r#"{"nodeNames":["b","x"],"preferredNodeNames":["c","y","a"]}"#));
    let (only, preferred) = prepared(&world, &pod);
    assert_eq!(only, Ok(crate::framework::Preparation::Only(vec![rows[1]])));
    assert_eq!(preferred, [rows[2]], "cut to two, and y is no node");
    let pod = world.pod("p", json!({}));
    assert_eq!(prepared(&world, &pod), (Ok(crate::framework::Preparation::Go), vec![]));
    let pod = world.pod("p", hinted("{"));
    let error: Status = prepared(&world, &pod).0.unwrap_err();
    assert_eq!(error.code, crate::framework::Code::Error);
}

/// Objects that no API server lets through, and large ones.
#[test]
fn bad_input_never_panics() {
    let huge = "9223372036854775807";
    let requests = [
        json!({"cpu": "-5", "memory": "-1Gi", "example.com/x": "-3"}),
        json!({"cpu": huge, "memory": huge, "ephemeral-storage": huge, "example.com/x": huge}),
        json!({"cpu": "abc", "": "1", "/": "1"}),
    ];
    let selectors = json!([{"topologyKey": "", "labelSelector": {"matchExpressions": [{"key": "", "operator": ""}]}},
        {"topologyKey": "z", "labelSelector": {"matchLabels": {"a b": "c d"}}, "namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "Gt"}]}}]);
    let terms = json!({"nodeSelectorTerms": [{}, {"matchExpressions": [{"key": "x", "operator": "Gt", "values": ["abc"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": []}]}]});
    let odd = json!({"nodeSelector": {"a b": "c d"}, "tolerations": [{}, {"operator": "Nope"}],
        "topologySpreadConstraints": [{"topologyKey": "", "maxSkew": -3, "minDomains": -1, "whenUnsatisfiable": "DoNotSchedule"},
            {"topologyKey": "z", "maxSkew": 0, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}},
            {"topologyKey": "z", "maxSkew": -9, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"a": "b"}}}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms,
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": -5, "preference": {}}]},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selectors},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selectors}}});
    let nodes = [
        json!({"status": {"allocatable": null}}),
        offering(json!({"cpu": "-4", "memory": "-1", "pods": "-1"})),
        offering(json!({"cpu": huge, "memory": huge, "pods": huge, "example.com/x": huge})),
        json!({"metadata": {"labels": {"z": "", "": ""}}, "spec": {"taints": [{"key": "", "effect": ""}]}}),
    ];
    let mut world = World::new();
    for (i, node) in nodes.into_iter().enumerate() {
        world.node(&format!("n{i}"), node);
    }
    let mut objects: Vec<Value> = requests.iter().map(|requests| asking(requests.clone())).collect();
    objects.push(json!({"spec": odd, "metadata": {"labels": {"a": "b"}}}));
    objects.push(json!({"spec": null}));
    for round in 0..2 {
        for (i, object) in objects.iter().enumerate() {
            let pod = world.pod(&format!("p{round}-{i}"), object.clone());
            for hooks in everything() {
                if hooks.filter.is_some() {
                    world.statuses(&hooks, &pod);
                }
                if hooks.score.is_some() {
                    let names = ["n0", "n1", "n2", "n3"];
                    let scores = world.scores(&hooks, &pod, &names).map(|(_, scores)| scores);
                    let all_fit = scores.iter().flatten().all(|score| (0..=100).contains(score));
                    assert!(all_fit, "{}: {scores:?} for {object}", hooks.name);
                }
            }
            let row = world.rows()[i % 4];
            world.cluster.assume(pod, row).unwrap();
        }
    }
}
