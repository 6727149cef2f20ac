//! The spec's rows about pods that want each other near or far.

use serde_json::{Value, json};

use super::*;
use crate::plugins::testing::{World, merged};

const NEAR: &str = "node(s) didn't match pod affinity rules";
const FAR: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

fn plugin() -> Hooks {
    build(Args::default())
}

fn term(key: &str, labels: Value) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": labels}})
}

fn required(kind: &str, terms: Value) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}})
}

fn preferred(kind: &str, weight: i32, labels: Value) -> Value {
    let terms = json!([{"weight": weight, "podAffinityTerm": term("zone", labels)}]);
    json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}})
}

fn labels(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

/// Nodes a, b, c in zones z1, z2, z3, and d without a zone.
fn world() -> World {
    let mut world = World::new();
    for (name, zone) in [("a", "z1"), ("b", "z2"), ("c", "z3")] {
        world.labelled(name, json!({ "zone": zone }));
    }
    world.node("d", json!({}));
    world
}

#[test]
fn required_terms() {
    let app = |app: &str| json!({ "app": app });
    let near = required("podAffinity", json!([term("zone", app("a"))]));
    let far = required("podAntiAffinity", json!([term("zone", app("a"))]));
    let two = required("podAffinity", json!([term("zone", app("a")), term("zone", json!({"tier": "x"}))]));
    let own = |over: &Value, own: Value| merged(labels(own), over);
    let nowhere: [&str; 4] = [NEAR; 4];
    for (key, existing, pod, want) in [
        ("near another", labels(app("a")), near.clone(), ["", NEAR, NEAR, NEAR]),
        ("nobody there", labels(app("b")), near.clone(), nowhere),
        ("scheduler-core#10.S25", json!({}), own(&near, app("a")), ["", "", "", NEAR]),
        (
            "it wants itself, but there is another",
            labels(app("a")),
            own(&near, app("a")),
            ["", NEAR, NEAR, NEAR],
        ),
        (
            "scheduler-core#10.S58",
            labels(app("a")),
            own(&two, json!({"app": "a", "tier": "x"})),
            ["", "", "", NEAR],
        ),
        ("one of two terms", labels(app("a")), two, nowhere),
        ("far from another", labels(app("a")), far.clone(), [FAR, "", "", ""]),
        ("another's wish", own(&far, app("b")), labels(app("a")), [EXISTING, "", "", ""]),
        ("scheduler-core#10.S59", own(&far, app("a")), own(&far, app("a")), [FAR, "", "", ""]),
        (
            "scheduler-core#10.S60",
            labels(app("a")),
            required("podAntiAffinity", json!([{"topologyKey": "zone"}])),
            ["", "", "", ""],
        ),
        (
            "a selector that cannot be read",
            labels(app("a")),
            required(
                "podAntiAffinity",
                json!([{"topologyKey": "zone",
                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "?"}]}}]),
            ),
            ["", "", "", ""],
        ),
        (
            "another namespace",
            merged(labels(app("a")), &json!({"metadata": {"namespace": "e"}})),
            far.clone(),
            ["", "", "", ""],
        ),
        (
            "all namespaces",
            merged(labels(app("a")), &json!({"metadata": {"namespace": "e"}})),
            required(
                "podAntiAffinity",
                json!([merged(term("zone", app("a")), &json!({"namespaceSelector": {}}))]),
            ),
            [FAR, "", "", ""],
        ),
        (
            "a named namespace",
            merged(labels(app("a")), &json!({"metadata": {"namespace": "e"}})),
            required(
                "podAntiAffinity",
                json!([merged(term("zone", app("a")), &json!({"namespaces": ["e"]}))]),
            ),
            [FAR, "", "", ""],
        ),
        ("nothing", json!({}), json!({}), ["", "", "", ""]),
    ] {
        let mut world = world();
        world.place("existing", "a", existing);
        let pod = world.pod("p", pod);
        assert_eq!(world.filtered(&plugin(), &pod), want, "{key}");
    }
}

#[test]
fn namespaces_are_chosen_by_label() {
    let mut world = world();
    let selected = merged(
        term("zone", json!({"app": "a"})),
        &json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}),
    );
    world.place("existing", "a", json!({"metadata": {"labels": {"app": "a"}, "namespace": "e"}}));
    let pod = world.pod("p", required("podAntiAffinity", json!([selected])));
    assert_eq!(world.filtered(&plugin(), &pod), ["", "", "", ""]);
    world.cluster.set_namespace("e", [("team".to_owned(), "x".to_owned())].into());
    assert_eq!(world.filtered(&plugin(), &pod), [FAR, "", "", ""]);
}

fn raw_and_normal(world: &mut World, pod: &Arc<Pod>) -> Option<(Vec<i64>, Vec<i64>)> {
    world.scores(&plugin(), pod, &["a", "b", "c"])
}

#[test]
fn preferred_terms() {
    let mut world = world();
    let p = json!({"app": "p"});
    world.place("one", "a", required("podAffinity", json!([term("zone", p.clone())])));
    world.place("two", "b", preferred("podAffinity", 7, p.clone()));
    world.place("three", "c", preferred("podAntiAffinity", 4, p.clone()));
    let pod = world.pod("p", labels(p));
    let want = Some((vec![1, 7, -4], vec![45, 100, 0]));
    assert_eq!(raw_and_normal(&mut world, &pod), want, "scheduler-core#10.S44");
    let stranger = world.pod("q", labels(json!({"app": "q"})));
    assert_eq!(raw_and_normal(&mut world, &stranger), None, "nobody speaks of it");
    let ignoring = build(Args { ignore_preferred_terms_of_existing_pods: true, hard_pod_affinity_weight: 1 });
    assert_eq!(world.scores(&ignoring, &pod, &["a", "b", "c"]), None);
    let unmoved = build(Args { hard_pod_affinity_weight: 0, ..Args::default() });
    assert_eq!(world.scores(&unmoved, &pod, &["a", "b", "c"]).unwrap().0, [0, 7, -4]);
}

#[test]
fn own_preferences() {
    let mut world = world();
    world.crowd("a", 1, &json!({"app": "bad"}));
    world.crowd("c", 3, &json!({"app": "good"}));
    let both = merged(
        preferred("podAffinity", 10, json!({"app": "good"})),
        &preferred("podAntiAffinity", 10, json!({"app": "bad"})),
    );
    let pod = world.pod("p", both);
    let want = Some((vec![-10, 0, 30], vec![0, 25, 100]));
    assert_eq!(raw_and_normal(&mut world, &pod), want, "scheduler-core#10.S15");

    let mut world = World::new();
    world.labelled("a", json!({"zone": "z"})).labelled("b", json!({"zone": "z"}));
    world.crowd("a", 1, &json!({"app": "good"}));
    let pod = world.pod("p", preferred("podAffinity", 5, json!({"app": "good"})));
    let got = world.scores(&plugin(), &pod, &["a", "b"]);
    assert_eq!(got, Some((vec![5, 5], vec![0, 0])), "scheduler-core#10.S45");
}

#[test]
fn simulated_pods_count() {
    let mut world = world();
    let a = json!({"app": "a"});
    let holder = |name: &str, key: &str, world: &mut World| {
        world.pod(name, required("podAntiAffinity", json!([term(key, json!({"app": "p"}))])))
    };
    let far = required("podAntiAffinity", json!([term("zone", a.clone())]));
    let pod = world.pod("p", merged(labels(json!({"app": "p"})), &far));
    let existing = world.place("existing", "a", labels(a));
    let (one, two) = (holder("one", "zone", &mut world), holder("two", "zone", &mut world));
    let third = holder("three", "kubernetes.io/hostname", &mut world);
    world.cluster.attend(&pod.class);
    world.cluster.attend(&third.class);
    let rows = world.rows();
    let hooks = plugin();
    let (before, filter) = (hooks.pre_filter.unwrap(), hooks.filter.unwrap());
    let mut cycle = Cycle::new(&world.cluster, &pod);
    assert_eq!(before.prepare(&mut cycle), Ok(Preparation::Go));
    let said = |cycle: &Cycle<'_>, row: Row| {
        let verdict = filter.check(cycle, &NodeView::of(&world.cluster, row));
        verdict.err().map_or(String::new(), |status| status.to_string())
    };
    assert_eq!(said(&cycle, rows[0]), FAR);
    before.remove_pod(&mut cycle, &existing, rows[0]);
    assert_eq!(said(&cycle, rows[0]), "");
    for other in [&one, &two, &third] {
        before.add_pod(&mut cycle, other, rows[1]);
    }
    assert_eq!(said(&cycle, rows[1]), EXISTING);
    before.remove_pod(&mut cycle, &one, rows[1]);
    before.remove_pod(&mut cycle, &two, rows[1]);
    assert_eq!(said(&cycle, rows[1]), EXISTING, "the third one is still there");
    assert_eq!(said(&cycle, rows[2]), "");
    before.remove_pod(&mut cycle, &third, rows[1]);
    assert_eq!(said(&cycle, rows[1]), "");
}

#[test]
fn thousands_of_terms() {
    let mut world = world();
    world.place("existing", "a", labels(json!({"app": "a", "k7": "v"})));
    let terms: Vec<Value> = (0..3000).map(|i| term("zone", json!({format!("k{i}"): "v"}))).collect();
    let near: Vec<Value> = (0..3000).map(|_| term("zone", json!({"app": "a"}))).collect();
    let object = merged(required("podAntiAffinity", json!(terms)), &required("podAffinity", json!(near)));
    let pod = world.pod("p", object);
    assert_eq!(world.filtered(&plugin(), &pod), [FAR, NEAR, NEAR, NEAR]);
    let counted = world.pod("q", labels(json!({"k7": "v"})));
    world.cluster.assume(pod, world.rows()[1]).unwrap();
    assert_eq!(world.filtered(&plugin(), &counted), ["", EXISTING, "", ""]);
}

#[test]
fn what_wakes_a_pod() {
    let mut world = world();
    let hooks = plugin();
    let a = json!({"app": "a"});
    let near = world.pod("near", required("podAffinity", json!([term("zone", a.clone())])));
    let far_object = required("podAntiAffinity", json!([term("zone", a.clone())]));
    let far = world.pod("far", far_object.clone());
    let liked = world.pod("liked", labels(a.clone()));
    let on = |world: &mut World, object: Value| {
        world.pod("x", merged(object, &json!({"spec": {"nodeName": "a"}})))
    };
    let like = on(&mut world, labels(a.clone()));
    let unlike = on(&mut world, labels(json!({"app": "b"})));
    let waiting = world.pod("x", labels(a));
    let holder = on(&mut world, far_object);
    for (name, pod, old, new, want) in [
        ("one to be near came", &near, None, Some(&like), true),
        ("another came", &near, None, Some(&unlike), false),
        ("one that waits came", &near, None, Some(&waiting), false),
        ("one became one to be near", &near, Some(&unlike), Some(&like), true),
        ("one to be near went", &near, Some(&like), None, false),
        ("scheduler-core#6.14.H11", &far, Some(&like), None, true),
        ("another went", &far, Some(&unlike), None, false),
        ("one is no longer to be far from", &far, Some(&like), Some(&unlike), true),
        ("one to be far from came", &far, None, Some(&like), false),
        ("scheduler-core#6.14.H12", &liked, Some(&holder), None, true),
        ("scheduler-core#6.14.H12 another went", &liked, Some(&unlike), None, false),
    ] {
        assert_eq!(world.pod_wakes(&hooks, pod, old, new), want, "{name}");
    }
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    for (name, pod, node, over, want) in [
        ("a node without the key, near", &near, "n1", json!({}), false),
        ("a node with the key, near", &near, "n2", zone("z"), true),
        ("the key appears, near", &near, "n1", zone("z"), true),
        ("the key changes, near", &near, "n1", zone("y"), true),
        ("the key disappears, near", &near, "n1", json!({"metadata": {"labels": null}}), false),
        ("a node without the key, far", &far, "n3", json!({}), true),
        ("a node with the key, far", &far, "n4", zone("z"), true),
        ("the key changes, far", &far, "n4", zone("y"), true),
        ("another label, far", &far, "n4", json!({"metadata": {"labels": {"zone": "y", "x": "x"}}}), false),
        ("the key disappears, far", &far, "n4", json!({"metadata": {"labels": null}}), true),
        ("the key appears, far", &far, "n3", zone("z"), false),
    ] {
        assert_eq!(world.node_wakes(&hooks, pod, node, over), want, "{name}");
    }
}
