use std::time::Duration;

use super::super::scenario::{Action, Count, Expectation, Nodes, PatchKind, PodState, Which};
use super::*;

/// A scenario with these lines after its head.
fn file(rest: &str) -> String {
    format!("apiVersion: demo.koord.sh/v1alpha1\nkind: Scenario\nname: shop\ntitle: A shop\n{rest}")
}

fn check(text: &str) -> Result<Scenario, String> {
    check_files(&[("main.yaml", text)])
}

/// Reads the first of some files.
fn check_files(files: &[(&'static str, &str)]) -> Result<Scenario, String> {
    let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let files: Vec<(&'static str, &'static str)> =
        files.iter().map(|(name, text)| (*name, leak(text))).collect();
    let files: &'static [(&'static str, &'static str)] = Box::leak(files.into_boxed_slice());
    read(&Library::Embedded(files), Path::new(files[0].0)).map_err(|error| format!("{error:#}"))
}

/// The only step of a file.
fn step(body: &str) -> super::super::scenario::Step {
    let mut scenario = check(&file(&format!("steps:\n- title: s\n{body}"))).unwrap();
    scenario.parts.remove(0).steps.remove(0)
}

#[test]
fn the_built_in_scenario_is_sound() {
    let scenario = super::super::load(None).unwrap();
    assert_eq!(scenario.parts.len(), 7);
    assert_eq!(scenario.needs, Needs { nodes: 100, zones: 3 });
    let pool = koord_sandbox::nodes::shape::flag(&scenario.shapes[0]).unwrap();
    assert_eq!((pool.count, pool.shape.zones.len()), (100, 3));
    // A part that is played alone brings the nodes that it has here.
    let alone = |file: &str| read(&Library::Embedded(super::super::BUILTIN), Path::new(file)).unwrap().shapes;
    assert_eq!([alone("colocation.yaml"), alone("agent.yaml")].concat(), scenario.shapes[1..]);
    // Every file is reachable, and every step of it waits for something.
    assert_eq!(super::super::BUILTIN.len(), scenario.parts.len() + 1);
    for step in scenario.parts.iter().flat_map(|part| &part.steps) {
        assert!(!step.expectations.is_empty(), "{}", step.title);
    }
}

#[test]
fn every_action_is_read() {
    let step = step(
        "  timeout: 1m30s\n  explain: true\n  explainNode: node-1\n  do:\n\
         \x20 - apply: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]\n\
         \x20 - delete: {kind: Pod, name: p}\n\
         \x20 - scale: {kind: Deployment, name: d, replicas: 3}\n\
         \x20 - patch: {kind: Deployment, name: d, type: merge, patch: {spec: {paused: true}}}\n\
         \x20 - patch: {kind: Job, name: j, patch: {}}\n\
         \x20 - patch: {kind: Pod, selector: app=web, patch: {}}\n\
         \x20 - cordon: {name: node-1}\n\
         \x20 - cordon: {selector: zone=a}\n\
         \x20 - uncordon: {hosting: {pod: p}}\n",
    );
    assert_eq!((step.timeout, step.explains), (Duration::from_secs(90), true));
    assert_eq!(step.explains_node.as_deref(), Some("node-1"));
    let [apply, delete, scale, patch, strategic, all, named, selected, hosting] = step.actions.as_slice()
    else {
        panic!("{:?}", step.actions)
    };
    let Action::Apply { object, manifest } = apply else { panic!("{apply:?}") };
    assert_eq!((object.namespace.as_str(), &manifest["metadata"]["namespace"]), ("shop", &"shop".into()));
    assert!(matches!(delete, Action::Delete(object) if object.api_version == "v1" && object.name == "p"));
    assert!(matches!(scale, Action::Scale { replicas: 3, object } if object.api_version == "apps/v1"));
    assert!(matches!(patch, Action::Patch { how: PatchKind::Merge, .. }));
    assert!(matches!(strategic, Action::Patch { how: PatchKind::Strategic, .. }));
    assert!(matches!(all, Action::PatchAll { selector, .. } if selector.text == "app=web"));
    assert!(matches!(named, Action::Cordon(Nodes::Named(name)) if name == "node-1"));
    assert!(matches!(selected, Action::Cordon(Nodes::Selected(labelled)) if labelled.text == "zone=a"));
    assert!(matches!(hosting, Action::Uncordon(Nodes::Hosting(pods)) if pods.namespace == "shop"));
}

#[test]
fn every_expectation_is_read() {
    let step = step(
        "  expect:\n\
         \x20 - ready: {kind: Deployment, name: d, count: 3}\n\
         \x20 - pods: {selector: app=web, are: running, count: 3}\n\
         \x20 - pods: {selector: app=web, are: scheduled, atLeast: 2}\n\
         \x20 - pods: {pod: p, are: succeeded, matches: {spec: {}}}\n\
         \x20 - spread: {selector: app=web, over: topology.kubernetes.io/zone}\n\
         \x20 - onNodes: {pod: p, nodes: disk=ssd}\n\
         \x20 - unschedulable: {pod: p, message: none, pattern: 'cpu|memory'}\n\
         \x20 - preempted: {selector: app=batch, by: {pod: p}}\n\
         \x20 - gone: {pod: p}\n\
         \x20 - allocatable: {resource: cpu, atLeast: 20k}\n\
         \x20 - allocatable: {resource: cpu, nodes: disk=ssd, atLeast: 1, atMost: 4Gi}\n\
         \x20 - usage: {selector: app=web, resource: memory, atMost: 4Gi}\n\
         \x20 - object: {apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, name: r, matches: {status: {phase: Available}}}\n",
    );
    assert_eq!(step.timeout, Duration::from_secs(60));
    let [
        ready,
        running,
        scheduled,
        done,
        spread,
        on_nodes,
        unschedulable,
        preempted,
        gone,
        open,
        closed,
        usage,
        object,
    ] = step.expectations.as_slice()
    else {
        panic!("{:?}", step.expectations)
    };
    assert!(matches!(ready, Expectation::Ready { count: Some(3), .. }));
    assert!(matches!(running, Expectation::Pods { state: PodState::Running, count: Count::Exactly(3), .. }));
    assert!(matches!(scheduled, Expectation::Pods { count: Count::AtLeast(2), .. }));
    assert!(matches!(
        done,
        Expectation::Pods { state: PodState::Succeeded, count: Count::All, matches: Some(_), .. }
    ));
    assert!(matches!(spread, Expectation::Spread { max_skew: 1, domains_min: 0, .. }));
    assert!(matches!(on_nodes, Expectation::OnNodes { nodes, .. } if nodes.text == "disk=ssd"));
    assert!(matches!(unschedulable, Expectation::Unschedulable { message: Some(_), pattern: Some(_), .. }));
    assert!(matches!(preempted, Expectation::Preempted { count: Count::AtLeast(1), by: Some(_), .. }));
    assert!(
        matches!(gone, Expectation::Gone { pods } if matches!(&pods.which, Which::Named(name) if name == "p"))
    );
    assert!(
        matches!(open, Expectation::Allocatable { nodes: None, most: None, least: Some(least), .. } if least.value() == 20_000)
    );
    assert!(matches!(closed, Expectation::Allocatable { nodes: Some(_), most: Some(_), .. }));
    assert!(
        matches!(usage, Expectation::Usage { resource, least: None, most: Some(most), .. } if resource == "memory" && most.value() == 4 << 30)
    );
    assert!(matches!(object, Expectation::Object { object, .. } if object.kind == "Reservation"));
}

#[test]
fn a_kind_that_was_applied_needs_no_version_again() {
    let step = step(
        "  do:\n  - apply: [{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}]\n\
         \x20 expect:\n  - object: {kind: Widget, name: w, matches: {}}\n",
    );
    assert!(
        matches!(&step.expectations[0], Expectation::Object { object, .. } if object.api_version == "example.com/v1")
    );
}

/// Each mistake is told with its file, line and field, and with what would be right.
#[test]
fn mistakes_are_told_with_their_place() {
    let step = |body: &str| file(&format!("steps:\n- title: s\n{body}"));
    for (name, text, wants) in [
        ("empty", String::new(), &["main.yaml", "empty"][..]),
        (
            "not a scenario",
            "apiVersion: v1\nkind: Pod\n".to_owned(),
            &["main.yaml:2:", "demo.koord.sh/v1alpha1 Scenario"],
        ),
        ("nothing to do", file(""), &["nothing to do"]),
        ("unknown field", file("stps: []\n"), &["main.yaml:5:", "stps", "did you mean steps?"]),
        ("no title", file("steps: [{text: x}]\n"), &["main.yaml:5:", "steps[0]", "title"]),
        ("bad namespace", file("namespaces: [Shop_1]\n"), &["main.yaml:5:", "namespaces[0]", "a-z"]),
        ("no namespace", file("namespaces: []\n"), &["namespaces", "at least one"]),
        (
            "whom to patch",
            step("  do: [{patch: {kind: Pod, patch: {}}}]\n"),
            &["main.yaml:7:", "steps[0].do[0].patch", "one of name and selector"],
        ),
        (
            "an amount",
            step("  expect: [{allocatable: {resource: cpu, atMost: much}}]\n"),
            &["main.yaml:7:", "steps[0].expect[0].allocatable.atMost", "much", "20k"],
        ),
        (
            "no amount",
            step("  expect: [{allocatable: {resource: cpu}}]\n"),
            &["steps[0].expect[0].allocatable", "atLeast, atMost or both"],
        ),
        ("bad shape", file("nodes: [cores=many]\n"), &["main.yaml:5:", "nodes[0]", "many"]),
        (
            "unknown action",
            step("  do: [{explode: {}}]\n"),
            &["main.yaml:7:", "steps[0].do[0]", "explode", "cordon"],
        ),
        (
            "unknown expectation",
            step("  expect: [{happy: {}}]\n"),
            &["steps[0].expect[0]", "happy", "spread"],
        ),
        ("bad timeout", step("  timeout: soon\n"), &["main.yaml:7:", "steps[0].timeout", "soon", "90s"]),
        ("zero timeout", step("  timeout: 0s\n"), &["steps[0].timeout", "0s"]),
        (
            "field of an action",
            step("  do: [{delete: {kind: Pod, name: p, force: true}}]\n"),
            &["delete.force", "unknown field"],
        ),
        (
            "no name",
            step("  do: [{apply: [{apiVersion: v1, kind: Pod}]}]\n"),
            &["apply[0].metadata.name", "needs this"],
        ),
        ("no kind", step("  do: [{apply: [{apiVersion: v1}]}]\n"), &["apply[0].kind"]),
        (
            "a namespace of others",
            step(
                "  do: [{apply: [{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: kube-system}}]}]\n",
            ),
            &["apply[0].metadata.namespace", "kube-system", "shop"],
        ),
        (
            "a namespace by hand",
            step("  do: [{apply: [{apiVersion: v1, kind: Namespace, metadata: {name: x}}]}]\n"),
            &["apply[0].kind", "`namespaces`"],
        ),
        (
            "an unknown kind",
            step("  do: [{delete: {kind: Widget, name: w}}]\n"),
            &["delete.apiVersion", "Widget"],
        ),
        (
            "negative replicas",
            step("  do: [{scale: {kind: Deployment, name: d, replicas: -1}}]\n"),
            &["scale.replicas", "-1"],
        ),
        (
            "two kinds of nodes",
            step("  do: [{cordon: {name: a, selector: b=c}}]\n"),
            &["do[0].cordon", "exactly one"],
        ),
        (
            "no amount of use",
            step("  expect: [{usage: {pod: p, resource: cpu}}]\n"),
            &["steps[0].expect[0].usage", "atLeast, atMost or both"],
        ),
        (
            "a resource that nobody measures",
            step("  expect: [{usage: {pod: p, resource: disk, atLeast: 1}}]\n"),
            &["usage.resource", "\"disk\"", "cpu or memory"],
        ),
        ("no pods", step("  expect: [{gone: {}}]\n"), &["expect[0].gone", "exactly one of pod and selector"]),
        ("a bad selector", step("  expect: [{gone: {selector: '=='}}]\n"), &["gone.selector", "=="]),
        (
            "a bad state",
            step("  expect: [{pods: {pod: p, are: happy}}]\n"),
            &["pods.are", "happy", "running"],
        ),
        (
            "two counts",
            step("  expect: [{pods: {pod: p, are: ready, count: 1, atLeast: 1}}]\n"),
            &["pods.atLeast", "exclude"],
        ),
        ("a bad label", step("  expect: [{spread: {pod: p, over: 'a b'}}]\n"), &["spread.over"]),
        (
            "a bad pattern",
            step("  expect: [{unschedulable: {pod: p, pattern: '('}}]\n"),
            &["unschedulable.pattern", "not a pattern"],
        ),
        ("a missing file", step("  do: [{applyFile: web.yaml}]\n"), &["do[0].applyFile", "web.yaml"]),
        ("a missing part", file("parts: [more.yaml]\n"), &["main.yaml:5:", "parts[0]", "more.yaml"]),
        ("itself", file("parts: [main.yaml]\n"), &["parts[0]", "includes itself"]),
    ] {
        let error = check(&text).err().unwrap_or_else(|| panic!("{name} is accepted"));
        for want in wants {
            assert!(error.contains(want), "{name}: {want:?} in {error}");
        }
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let error =
        check(&file("steps:\n- title: a\n  timeout: x\n- title: b\n  do: [{delete: {kind: W, name: w}}]\n"));
    let error = error.unwrap_err();
    assert_eq!(error.lines().count(), 2, "{error}");
}

#[test]
fn parts_come_in_order_with_what_they_need() {
    let head = |name: &str| {
        format!("apiVersion: demo.koord.sh/v1alpha1\nkind: Scenario\nname: {name}\ntitle: T {name}\n")
    };
    let main = format!(
        "{}needs: {{nodes: 2}}\nparts: [a.yaml, b.yaml]\nnext: [first]\nnodes: [count=4]\n",
        head("main")
    );
    let a = format!("{}text: about a\nneeds: {{nodes: 1, zones: 3}}\nsteps: [{{title: s}}]\n", head("a"));
    let b =
        format!("{}namespaces: [x, z]\nnodes: [count=9]\nnext: [second]\nsteps: [{{title: t}}]\n", head("b"));
    let files = [("main.yaml", main.as_str()), ("a.yaml", a.as_str()), ("b.yaml", b.as_str())];
    let scenario = check_files(&files).unwrap();
    let names: Vec<&str> = scenario.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!((scenario.name.as_str(), names), ("main", vec!["a", "b"]));
    assert_eq!(scenario.parts[0].text, "about a");
    assert_eq!(scenario.parts[0].namespaces, ["a"]);
    assert_eq!(scenario.parts[1].namespaces, ["x", "z"]);
    assert_eq!(scenario.needs, Needs { nodes: 2, zones: 3 });
    assert_eq!(scenario.next, ["first", "second"]);
    assert_eq!(scenario.shapes, ["count=4"], "the file that is played says which nodes there are");

    let twice = format!("{}parts: [a.yaml, a.yaml]\n", head("main"));
    let error = check_files(&[("main.yaml", twice.as_str()), ("a.yaml", a.as_str())]).unwrap_err();
    assert!(error.contains("two parts are called \"a\""), "{error}");
    let bad = format!("{}steps: [{{title: s, timeout: x}}]\n", head("b"));
    let error =
        check_files(&[("main.yaml", main.as_str()), ("a.yaml", a.as_str()), ("b.yaml", bad.as_str())]);
    let error = error.unwrap_err();
    assert!(error.contains("main.yaml:6:") && error.contains("b.yaml:5:"), "both places: {error}");
}

#[test]
fn manifests_may_stand_in_files() {
    let main = file("steps: [{title: s, do: [{applyFile: web.yaml}]}]\n");
    let web = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n";
    let scenario = check_files(&[("main.yaml", &main), ("web.yaml", web)]).unwrap();
    assert_eq!(scenario.parts[0].steps[0].actions.len(), 2);
    let error = check_files(&[("main.yaml", &main), ("web.yaml", "just: text\n")]).unwrap_err();
    assert!(error.contains("web.yaml") && error.contains("no kind"), "{error}");
}
