//! The spec's rows about spreading, and defaults that come from workloads.

use serde_json::{Value, json};

use super::*;
use crate::engine::input::{Workload, WorkloadKind};
use crate::plugins::testing::{World, is_hopeless};

const MISSING: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
const SKEWED: &str = "node(s) didn't match pod topology spread constraints";

fn plugin() -> Hooks {
    build(&DefaultConstraints::System)
}

fn constraint(key: &str, skew: i32, action: &str) -> Value {
    json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"app": "a"}}})
}

fn soft(key: &str, skew: i32) -> Value {
    constraint(key, skew, "ScheduleAnyway")
}

fn hard(key: &str, skew: i32) -> Value {
    constraint(key, skew, "DoNotSchedule")
}

fn with(mut constraint: Value, key: &str, value: Value) -> Value {
    constraint[key] = value;
    constraint
}

fn spread(constraints: &[Value]) -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"topologySpreadConstraints": constraints}})
}

/// Nodes a, b, c … in these zones with so many pods each.
fn zones(counts: &[(&str, usize)]) -> World {
    let mut world = World::new();
    for (name, (zone, count)) in ["a", "b", "c", "d"].into_iter().zip(counts) {
        let labels = if zone.is_empty() { json!({}) } else { json!({ "zone": zone }) };
        world.labelled(name, labels).crowd(name, *count, &json!({"app": "a"}));
    }
    world
}

type Scored = Option<(Vec<i64>, Vec<i64>)>;

fn scored(world: &mut World, constraints: &[Value], nodes: &[&str]) -> Scored {
    let pod = world.pod("p", spread(constraints));
    world.scores(&plugin(), &pod, nodes)
}

fn want(raw: &[i64], normal: &[i64]) -> Scored {
    Some((raw.to_vec(), normal.to_vec()))
}

#[test]
fn soft_constraints_score() {
    let host = "kubernetes.io/hostname";
    let two_zones: &[(&str, usize)] = &[("z1", 3), ("z1", 1), ("z2", 1), ("z2", 0)];
    let all = &["a", "b", "c", "d"][..];
    let three = &all[..3];
    for (key, counts, constraints, nodes, expected) in [
        (
            "scheduler-core#10.S16",
            &[("z1", 2), ("z2", 1), ("z3", 0)][..],
            vec![soft("zone", 1)],
            three,
            want(&[3, 2, 0], &[0, 33, 100]),
        ),
        (
            "scheduler-core#10.S46",
            two_zones,
            vec![soft("zone", 1), soft(host, 1)],
            all,
            want(&[11, 7, 3, 1], &[9, 45, 81, 100]),
        ),
        (
            "scheduler-core#10.S47",
            two_zones,
            vec![soft("zone", 2), soft(host, 4)],
            all,
            want(&[15, 11, 7, 5], &[33, 60, 86, 100]),
        ),
        ("scheduler-core#10.S48", two_zones, vec![soft("zone", 1)], &["a", "c"], want(&[6, 1], &[16, 100])),
        (
            "scheduler-core#10.S49",
            &[("z1", 5), ("z2", 3), ("z3", 1)],
            vec![soft("zone", 1)],
            three,
            want(&[8, 5, 2], &[25, 62, 100]),
        ),
        (
            "scheduler-core#10.S49 skew 5",
            &[("z1", 5), ("z2", 3), ("z3", 1)],
            vec![soft("zone", 5)],
            three,
            want(&[12, 9, 6], &[50, 75, 100]),
        ),
        (
            "scheduler-core#10.S51",
            &[("z1", 2), ("z2", 0), ("", 1)],
            vec![soft("zone", 1)],
            three,
            want(&[3, 0, 0], &[0, 100, 0]),
        ),
        (
            "scheduler-core#10.S52",
            &[("z1", 0), ("z2", 0)],
            vec![soft("zone", 1)],
            &["a", "b"],
            want(&[0, 0], &[100, 100]),
        ),
        ("hard ones do not score", &[("z1", 2), ("z2", 0)], vec![hard("zone", 1)], &["a", "b"], None),
        ("no constraints, no workload", &[("z1", 2), ("z2", 0)], vec![], &["a", "b"], None),
    ] {
        assert_eq!(scored(&mut zones(counts), &constraints, nodes), expected, "{key}");
    }
}

#[test]
fn only_live_pods_of_the_namespace_count() {
    let mut world = zones(&[("z1", 0), ("z2", 0), ("z3", 1)]);
    let labels = json!({"app": "a"});
    let dying = json!({"metadata": {"labels": labels, "deletionTimestamp": "2024-01-01T00:00:00Z"}});
    world.place("dying", "a", dying);
    world.place("elsewhere", "b", json!({"metadata": {"labels": labels, "namespace": "other"}}));
    let got = scored(&mut world, &[soft("zone", 1)], &["a", "b", "c"]);
    assert_eq!(got, want(&[0, 0, 2], &[100, 100, 0]), "scheduler-core#10.S53");
}

#[test]
fn tainted_nodes_count_or_not() {
    for (policy, expected) in [("Ignore", want(&[1, 4], &[100, 25])), ("Honor", want(&[1, 0], &[0, 100]))] {
        let mut world = zones(&[("z1", 1), ("z2", 3), ("z2", 0)]);
        let tainted = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            "metadata": {"labels": {"zone": "z2"}}});
        world.node("b", tainted);
        let constraint = with(soft("zone", 1), "nodeTaintsPolicy", json!(policy));
        let got = scored(&mut world, &[constraint], &["a", "c"]);
        assert_eq!(got, expected, "scheduler-core#10.S54 {policy}");
    }
}

#[test]
fn hard_constraints_filter() {
    let three: &[(&str, usize)] = &[("z1", 3), ("z2", 1), ("z3", 1)];
    let unlike = json!({"metadata": {"labels": {"app": "b"}}});
    for (key, constraint, over, expected) in [
        ("scheduler-core#10.S17", hard("zone", 1), json!({}), [SKEWED, "", ""]),
        (
            "scheduler-core#10.S18",
            with(hard("zone", 1), "minDomains", json!(4)),
            json!({}),
            [SKEWED, SKEWED, SKEWED],
        ),
        ("scheduler-core#10.S55", hard("zone", 1), unlike, [SKEWED, "", ""]),
        ("no label anywhere", hard("rack", 1), json!({}), [MISSING, MISSING, MISSING]),
        ("no selector", with(hard("zone", 1), "labelSelector", Value::Null), json!({}), ["", "", ""]),
        ("empty selector", with(hard("zone", 1), "labelSelector", json!({})), json!({}), ["", "", ""]),
        (
            "selector that cannot be read",
            with(
                hard("zone", 1),
                "labelSelector",
                json!({"matchExpressions": [{"key": "a", "operator": "X"}]}),
            ),
            json!({}),
            ["", "", ""],
        ),
        (
            "keys of the pod's own labels",
            with(hard("zone", 1), "matchLabelKeys", json!(["hash"])),
            json!({"metadata": {"labels": {"hash": "new"}}}),
            ["", "", ""],
        ),
    ] {
        let mut world = zones(three);
        let pod = world.pod("p", crate::plugins::testing::merged(spread(&[constraint]), &over));
        assert_eq!(world.filtered(&plugin(), &pod), expected, "{key}");
    }
}

#[test]
fn nodes_that_lack_a_key_do_not_count() {
    let mut world = World::new();
    world.labelled("a", json!({"zone": "z1", "rack": "r1"})).labelled("b", json!({"zone": "z2"}));
    world.labelled("c", json!({"zone": "z3", "rack": "r3"}));
    world.crowd("a", 2, &json!({"app": "a"}));
    world.crowd("c", 1, &json!({"app": "a"}));
    let pod = world.pod("p", spread(&[hard("zone", 1), hard("rack", 1)]));
    let statuses = world.statuses(&plugin(), &pod);
    let key = "scheduler-core#10.S56";
    assert_eq!(world.filtered(&plugin(), &pod), [SKEWED, MISSING, ""], "{key}");
    assert_eq!(statuses.iter().map(is_hopeless).collect::<Vec<_>>(), [false, true, false], "{key}");
}

#[test]
fn nodes_that_the_pod_does_not_want_count_or_not() {
    for (policy, expected) in [("Honor", ["", ""]), ("Ignore", [SKEWED, ""])] {
        let mut world = zones(&[("z1", 2), ("z2", 0)]);
        let constraint = with(hard("zone", 1), "nodeAffinityPolicy", json!(policy));
        let mut object = spread(&[constraint]);
        object["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "a"});
        let pod = world.pod("p", object);
        assert_eq!(world.filtered(&plugin(), &pod), expected, "scheduler-core#10.S57 {policy}");
    }
}

#[test]
fn simulated_pods_count() {
    let mut world = zones(&[("z1", 1), ("z2", 0)]);
    let pod = world.pod("p", spread(&[hard("zone", 1)]));
    let other = world.pod("other", json!({"metadata": {"labels": {"app": "a"}}}));
    world.cluster.attend(&pod.class);
    let rows = world.rows();
    let hooks = plugin();
    let (before, filter) = (hooks.pre_filter.unwrap(), hooks.filter.unwrap());
    let mut cycle = Cycle::new(&world.cluster, &pod);
    assert_eq!(before.prepare(&mut cycle), Ok(Preparation::Go));
    let fits = |cycle: &Cycle<'_>| {
        let fits = |row: &Row| filter.check(cycle, &NodeView::of(&world.cluster, *row)).is_ok();
        rows.iter().map(fits).collect::<Vec<bool>>()
    };
    assert_eq!(fits(&cycle), [false, true]);
    let mut supposed = cycle.clone();
    before.add_pod(&mut supposed, &other, rows[1]);
    assert_eq!(fits(&supposed), [true, true]);
    before.remove_pod(&mut supposed, &other, rows[1]);
    before.remove_pod(&mut supposed, &other, rows[0]);
    assert_eq!(fits(&supposed), [true, true]);
    assert_eq!(fits(&cycle), [false, true], "the original does not notice");
}

fn service(name: &str, selector: Value) -> Workload {
    let object = json!({"kind": "Service", "metadata": {"name": name, "namespace": "d"},
        "spec": {"selector": selector}});
    serde_json::from_value(object).unwrap()
}

fn replica_set(name: &str, selector: Value) -> Workload {
    let object = json!({"kind": "ReplicaSet", "metadata": {"name": name, "namespace": "d"},
        "spec": {"selector": selector}});
    serde_json::from_value(object).unwrap()
}

#[test]
fn services_spread_by_default() {
    let mut world = World::new();
    let zone = |zone: &str| json!({"topology.kubernetes.io/zone": zone});
    let labels = json!({"app": "a"});
    world.labelled("a", zone("z1")).labelled("b", zone("z2")).labelled("c", json!({}));
    world.crowd("a", 2, &labels);
    world.crowd("c", 1, &labels);
    let pod = world.pod("p", json!({"metadata": {"labels": labels}}));
    let nodes = ["a", "b", "c"];
    assert_eq!(world.scores(&plugin(), &pod, &nodes), None, "nobody selects it");
    world.cluster.set_workload(&service("s", json!({"app": "other"})));
    assert_eq!(world.scores(&plugin(), &pod, &nodes), None, "another pod's Service");
    world.cluster.set_workload(&service("s", json!({"app": "a"})));
    let expected = want(&[12, 6, 4], &[33, 83, 100]);
    assert_eq!(world.scores(&plugin(), &pod, &nodes), expected, "scheduler-core#10.S50");
    world.place("more", "b", json!({"metadata": {"labels": labels}}));
    let more = world.scores(&plugin(), &pod, &nodes).unwrap();
    assert_eq!(more.0, [12, 9, 4], "counts follow the pods");
    world.cluster.remove_workload(WorkloadKind::Service, "d", "s");
    assert_eq!(world.scores(&plugin(), &pod, &nodes), None, "the Service is gone");
    world.cluster.remove_workload(WorkloadKind::Service, "d", "s");
    world.cluster.set_workload(&service("all", json!(null)));
    assert_eq!(world.scores(&plugin(), &pod, &nodes), None, "a Service without selector");
}

#[test]
fn owners_narrow_what_services_select() {
    let own = |api: &str| {
        json!({"metadata": {"labels": {"app": "a", "hash": "1"}, "ownerReferences": [
            {"apiVersion": api, "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]}})
    };
    let mut world = World::new();
    world.node("a", json!({})).node("b", json!({}));
    world.crowd("a", 2, &json!({"app": "a", "hash": "0"}));
    world.crowd("b", 1, &json!({"app": "a", "hash": "1"}));
    let pod = world.pod("p", own("apps/v1"));
    let raw =
        |world: &mut World, pod: &Arc<Pod>| world.scores(&plugin(), pod, &["a", "b"]).map(|(raw, _)| raw);
    world.cluster.set_workload(&service("s", json!({"app": "a"})));
    // Two nodes: ln 4 for each pod, and 2 for the skew.
    assert_eq!(raw(&mut world, &pod), Some(vec![5, 3]), "the Service alone");
    world.cluster.set_workload(&replica_set("r", json!({"matchLabels": {"app": "a", "hash": "1"}})));
    assert_eq!(raw(&mut world, &pod), Some(vec![2, 3]), "with the owner");
    let foreign = world.pod("q", own("example.com/v1"));
    assert_eq!(raw(&mut world, &foreign), Some(vec![5, 3]), "an owner of another group");
    world
        .cluster
        .set_workload(&replica_set("r", json!({"matchExpressions": [{"key": "x", "operator": "?"}]})));
    assert_eq!(raw(&mut world, &pod), Some(vec![5, 3]), "a selector that cannot be read");
    world.cluster.remove_workload(WorkloadKind::ReplicaSet, "d", "r");
    world.cluster.remove_workload(WorkloadKind::Service, "d", "s");
    assert_eq!(raw(&mut world, &pod), None);
    world.cluster.set_workload(&replica_set("r", json!({"matchLabels": {"hash": "1"}})));
    assert_eq!(raw(&mut world, &pod), Some(vec![2, 3]), "the owner alone");
}

#[test]
fn listed_defaults_filter_and_score_as_own_ones() {
    let list = |constraints: Value| DefaultConstraints::List(serde_json::from_value(constraints).unwrap());
    let defaults = list(json!([
        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
        {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]));
    let mut world = zones(&[("z1", 1), ("z2", 0), ("", 0)]);
    world.cluster.set_default_spread("default-scheduler", &defaults);
    world.cluster.set_workload(&service("s", json!({"app": "a"})));
    let pod = world.pod("p", json!({"metadata": {"labels": {"app": "a"}}}));
    let hooks = build(&defaults);
    assert_eq!(world.filtered(&hooks, &pod), [SKEWED, "", MISSING]);
    let nothing = Some((vec![0, 0], vec![0, 0]));
    assert_eq!(world.scores(&hooks, &pod, &["a", "b"]), nothing, "no node has a rack, so all are ignored");
    let other =
        world.pod("q", json!({"spec": {"schedulerName": "other"}, "metadata": {"labels": {"app": "a"}}}));
    assert_eq!(world.filtered(&hooks, &other), ["", "", ""], "another profile's pod");
    let own = world.pod("o", spread(&[soft("zone", 1)]));
    assert_eq!(world.filtered(&hooks, &own), ["", "", ""], "own constraints take the place of all defaults");
    let none = list(json!([]));
    world.cluster.set_default_spread("default-scheduler", &none);
    assert_eq!(world.filtered(&build(&none), &pod), ["", "", ""]);
}

#[test]
fn what_wakes_a_pod() {
    let mut world = zones(&[("z1", 1), ("z2", 0), ("", 0)]);
    let tainted = with(hard("zone", 1), "nodeTaintsPolicy", json!("Honor"));
    let pod = world.pod("p", spread(&[hard("zone", 1)]));
    let honoring = world.pod("h", spread(&[tainted]));
    let like = |labels: Value, node: &str, namespace: &str| json!({"metadata": {"labels": labels, "namespace": namespace}, "spec": {"nodeName": node}});
    let hooks = plugin();
    let a = json!({"app": "a"});
    let matching = world.pod("m", like(a.clone(), "b", "d"));
    let other = world.pod("m", like(json!({}), "b", "d"));
    let foreign = world.pod("m", like(a.clone(), "b", "e"));
    let waiting = world.pod("m", like(a, "", "d"));
    for (name, old, new, expected) in [
        ("one of the kind came", None, Some(&matching), true),
        ("another came", None, Some(&other), false),
        ("one of another namespace came", None, Some(&foreign), false),
        ("one that waits came", None, Some(&waiting), false),
        ("one of the kind went", Some(&matching), None, true),
        ("another went", Some(&other), None, false),
        ("one became of the kind", Some(&other), Some(&matching), true),
        ("nothing changed", Some(&matching), Some(&matching), false),
    ] {
        assert_eq!(world.pod_wakes(&hooks, &pod, old, new), expected, "{name}");
    }
    let tolerating = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"tolerations": [{"operator": "Exists"}]}});
    let more = world.pod("h", tolerating(json!({"app": "a"})));
    assert!(world.pod_wakes(&hooks, &honoring, Some(&honoring), Some(&more)));
    let more = world.pod("p", tolerating(json!({"app": "a"})));
    assert!(!world.pod_wakes(&hooks, &pod, Some(&pod), Some(&more)), "taints do not matter to it");
    let relabelled = world.pod("p", spread(&[hard("zone", 1)]));
    let before = world.pod("p", json!({"metadata": {"labels": {"app": "b"}}}));
    assert!(world.pod_wakes(&hooks, &relabelled, Some(&before), Some(&relabelled)));
    for (name, node, over, expected) in [
        ("a node without the key", "n1", json!({}), false),
        ("a node with the key", "n2", json!({"metadata": {"labels": {"zone": "z3"}}}), true),
        ("it gets the key", "n1", json!({"metadata": {"labels": {"zone": "z4"}}}), true),
        ("it moves", "n1", json!({"metadata": {"labels": {"zone": "z5"}}}), true),
        ("another label", "n1", json!({"metadata": {"labels": {"zone": "z5", "x": "y"}}}), false),
        (
            "taints",
            "n1",
            json!({"metadata": {"labels": {"zone": "z5", "x": "y"}},
                "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
            true,
        ),
        ("it loses the key", "n1", json!({}), true),
        (
            "taints of a node without the key",
            "n1",
            json!({"spec": {"taints": [{"key": "j", "effect": "NoSchedule"}]}}),
            false,
        ),
    ] {
        assert_eq!(world.node_wakes(&hooks, &pod, node, over), expected, "{name}");
    }
}
