//! The text of FailedScheduling, row by row. Spec: scheduler-core 4.2.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::Diagnosis;
use super::tainted;
use super::world::{Spec, World, pod};
use crate::cluster::Row;
use crate::framework::{
    Code, Cycle, Filter, Hooks, NodeView, Nominating, PluginName, PostFilter, PostFilterInput, PostFiltered,
    PreFilter, Preparation, Reason, Scope, Status,
};
use crate::pod::Class;
use crate::random::Random;

/// A plugin that always answers the same: by node name at Filter, whatever the node elsewhere.
struct Says {
    name: PluginName,
    code: Code,
    reasons: Vec<&'static str>,
    only: Option<&'static str>,
}

impl Says {
    fn status(&self) -> Status {
        let reasons = self.reasons.iter().map(|text| Reason::new(*text)).collect();
        Status { code: self.code, reasons, plugin: self.name }
    }
}

impl PreFilter for Says {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        match self.only {
            Some(node) => Ok(Preparation::Only(cycle.cluster.row(node).into_iter().collect())),
            None => Err(self.status()),
        }
    }
}

impl Filter for Says {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    fn check(&self, _cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        match self.only.is_none_or(|name| *node.node().name == *name) {
            true => Err(self.status()),
            false => Ok(()),
        }
    }
}

impl PostFilter for Says {
    fn help(&self, _input: &PostFilterInput<'_>, _random: &mut Random) -> PostFiltered {
        PostFiltered { status: self.status(), nominating: Nominating::Keep, preemption: None }
    }
}

fn pre_filter(name: PluginName, code: Code, reason: &'static str) -> Hooks {
    Hooks::new(name).pre_filter(Arc::new(Says { name, code, reasons: vec![reason], only: None }))
}

fn narrowing(name: PluginName, node: &'static str) -> Hooks {
    let says = Says { name, code: Code::Success, reasons: Vec::new(), only: Some(node) };
    Hooks::new(name).pre_filter(Arc::new(says))
}

fn filter(name: PluginName, code: Code, reasons: &[&'static str], node: Option<&'static str>) -> Hooks {
    Hooks::new(name).filter(Arc::new(Says { name, code, reasons: reasons.to_vec(), only: node }))
}

fn post_filter(code: Code, reasons: &[&'static str]) -> Hooks {
    let says = Says { name: "Custom", code, reasons: reasons.to_vec(), only: None };
    Hooks::new("Custom").post_filter(Arc::new(says))
}

/// Nodes a, b, c of these sizes and two tainted ones.
fn five(sizes: [(&str, &str); 3]) -> World {
    let mut world = World::new();
    for (name, (cpu, memory)) in ["a", "b", "c"].into_iter().zip(sizes) {
        let allocatable = json!({"cpu": cpu, "memory": memory, "pods": "110"});
        world.node_with(name, allocatable, json!({}), json!({}));
    }
    for name in ["d", "e"] {
        let allocatable = json!({"cpu": "9", "memory": "9Gi", "pods": "9"});
        world.node_with(name, allocatable, tainted(), json!({}));
    }
    world
}

fn nodes(count: usize, cpu: &str) -> World {
    let mut world = World::new();
    for i in 0..count {
        world.node(&char::from(b'a' + u8::try_from(i).unwrap()).to_string(), cpu);
    }
    world
}

fn wants_2() -> Spec {
    pod("p").cpu("2").asks("memory", "2Gi")
}

const FILTERS: &str =
    "0/5 nodes are available: 1 Insufficient memory, 2 node(s) had untolerated taint(s), 3 Insufficient cpu.";
const UNHELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NO_CLAIMS: &str = "no new claims to deallocate";

#[test]
fn full_nodes_without_victims() {
    let full = || {
        let mut world = five([("3", "8Gi"), ("3", "8Gi"), ("3", "2Gi")]);
        for node in ["a", "b", "c"] {
            let holder = pod(&format!("on-{node}")).priority(10).cpu("2").asks("memory", "1Gi");
            world.place(&holder, node);
        }
        world
    };
    let tail = format!("preemption: 0/5 nodes are available: 2 {UNHELPFUL}, 3 {NO_VICTIMS}.");
    let alone = full().without_claims().message(&wants_2());
    assert_eq!(alone, format!("{FILTERS} {tail}"), "scheduler-core#4.2.T1");
    let both = full().message(&wants_2());
    assert_eq!(both, format!("{FILTERS} {NO_CLAIMS}, {tail}"), "scheduler-core#4.2.T7");
}

#[test]
fn nodes_too_small_for_the_pod() {
    let mut world = five([("1", "8Gi"), ("1", "8Gi"), ("1", "1Gi")]);
    let want = format!("{FILTERS} {NO_CLAIMS}, preemption: 0/5 nodes are available: 5 {UNHELPFUL}.");
    assert_eq!(world.message(&wants_2()), want, "scheduler-core#4.2.T8");

    let mut world = World::new();
    world.node_with("a", json!({"cpu": "1", "memory": "1Gi", "pods": "0"}), json!({}), json!({}));
    let greedy =
        wants_2().asks("ephemeral-storage", "1Gi").asks("example.com/x", "2").asks("hugepages-2Mi", "2Mi");
    let want = format!(
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient ephemeral-storage, 1 Insufficient \
         example.com/x, 1 Insufficient hugepages-2Mi, 1 Insufficient memory, 1 Too many pods. {NO_CLAIMS}, \
         preemption: 0/1 nodes are available: 1 {UNHELPFUL}."
    );
    assert_eq!(world.message(&greedy), want, "scheduler-core#4.2.T9");
}

#[test]
fn pinned_pods() {
    let pinned = |names: &[&str]| {
        let fields: Vec<Value> = names
            .iter()
            .map(|name| json!({"key": "metadata.name", "operator": "In", "values": [name]}))
            .collect();
        let terms = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
        let required = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        pod("p").cpu("2").with("affinity", required)
    };
    let helpless = format!("{NO_CLAIMS}, preemption: 0/3 nodes are available: 3 {UNHELPFUL}.");
    for (key, names, want) in [
        (
            "scheduler-core#4.2.T10",
            vec!["a"],
            format!("1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. {helpless}"),
        ),
        (
            "scheduler-core#4.2.T11",
            vec!["zz"],
            format!("3 node(s) didn't satisfy plugin(s) [NodeAffinity]. {helpless}"),
        ),
        ("scheduler-core#4.2.T12", vec!["a", "b"], "pod affinity terms conflict. not found".to_owned()),
    ] {
        let mut world = nodes(3, "1");
        assert_eq!(world.message(&pinned(&names)), format!("0/3 nodes are available: {want}"), "{key}");
    }
}

#[test]
fn refusals_of_the_pod_itself() {
    let quota = "Insufficient quotas, quotaName: q1, runtime: cpu:4, used: cpu:3, pod's request: cpu:2, \
                 exceedDimensions: [cpu]";
    let meek = pod("p").cpu("2").with("preemptionPolicy", json!("Never"));
    let never = "preemption: not eligible due to preemptionPolicy=Never.";
    let refuses = pre_filter("ElasticQuota", Code::Unschedulable, quota);

    let mut world = nodes(4, "4").without_claims().with(&refuses);
    let want = format!("0/4 nodes are available: {quota}. {never}");
    assert_eq!(world.message(&meek), want, "scheduler-core#4.2.T2");

    let quota_helps =
        post_filter(Code::Unschedulable, &["preemption: not eligible due to preemptionPolicy=Never."]);
    let mut world = nodes(4, "4").without_claims().with(&refuses).with(&quota_helps);
    world.framework.post_filters.reverse();
    let want = format!("0/4 nodes are available: {quota}. {never}, {never}");
    assert_eq!(world.message(&meek), want, "scheduler-core#4.2.T25");

    // The volume plugins refuse before DynamicResources is asked.
    let missing = pre_filter("VolumeBinding", Code::Unresolvable, "persistentvolumeclaim \"c1\" not found");
    let mut world = nodes(1, "4");
    world.framework.pre_filters.insert(0, missing);
    let want = "0/1 nodes are available: persistentvolumeclaim \"c1\" not found. not found";
    assert_eq!(world.message(&pod("p")), want, "scheduler-core#4.2.T13");
}

#[test]
fn the_last_refusal_of_the_pod_counts() {
    let soft = pre_filter("A", Code::Unschedulable, "soft");
    let mut world = nodes(2, "4").with(&soft).with(&pre_filter("B", Code::Unresolvable, "hard"));
    let want = format!(
        "0/2 nodes are available: hard. {NO_CLAIMS}, preemption: 0/2 nodes are available: 2 {UNHELPFUL}."
    );
    let unfit = world.unfit(&pod("p"), None);
    assert_eq!(unfit.message(), want, "scheduler-core#4.2.T14");
    assert_eq!(unfit.diagnosis.rejectors(), ["B"]);

    let soft1 = pre_filter("A", Code::Unschedulable, "soft1");
    let mut world = nodes(2, "4").with(&soft1).with(&pre_filter("B", Code::Unschedulable, "soft2"));
    let want = format!(
        "0/2 nodes are available: soft2. {NO_CLAIMS}, preemption: 0/2 nodes are available: 2 {NO_VICTIMS}."
    );
    assert_eq!(world.message(&pod("p")), want, "scheduler-core#4.2.T15");
}

#[test]
fn nodes_with_several_reasons() {
    let on_a = filter("A", Code::Unschedulable, &["r1", "r2"], Some("a"));
    let mut world = nodes(2, "4").with(&on_a).with(&filter("B", Code::Pending, &["r1"], Some("b")));
    let want = format!(
        "0/2 nodes are available: 1 r2, 2 r1. {NO_CLAIMS}, preemption: 0/2 nodes are available: 1 {NO_VICTIMS}, \
         1 {UNHELPFUL}."
    );
    assert_eq!(world.message(&pod("p")), want, "scheduler-core#4.2.T16");
}

#[test]
fn reasons_are_sorted_as_texts() {
    let mut world = nodes(12, "1");
    for name in ["k", "l"] {
        let allocatable = json!({"cpu": "1", "memory": "1Gi", "pods": "9"});
        world.node_with(name, allocatable, json!({"unschedulable": true}), json!({}));
    }
    let want = "0/12 nodes are available: 10 Insufficient cpu, 2 node(s) were unschedulable.";
    let message = world.unfit(&pod("p").cpu("2"), None).diagnosis.message();
    assert_eq!(message, want, "scheduler-core#4.2.T4");
}

#[test]
fn what_preemption_says() {
    let mut world = nodes(2, "2");
    world.place(&pod("x").priority(100).cpu("1"), "a");
    world.place(&pod("y").priority(1).cpu("1"), "a");
    world.place(&pod("z").priority(200).cpu("2"), "b");
    let want = format!(
        "0/2 nodes are available: 2 Insufficient cpu. {NO_CLAIMS}, preemption: 0/2 nodes are available: \
         1 Insufficient cpu, 1 {NO_VICTIMS}."
    );
    assert_eq!(world.message(&pod("p").priority(10).cpu("2")), want, "scheduler-core#4.2.T17");

    let mut world = nodes(1, "2");
    world.place(&pod("x").priority(1).cpu("2"), "a");
    let meek = pod("p").priority(10).cpu("2").with("preemptionPolicy", json!("Never"));
    let want = format!(
        "0/1 nodes are available: 1 Insufficient cpu. {NO_CLAIMS}, preemption: not eligible due to \
         preemptionPolicy=Never."
    );
    assert_eq!(world.message(&meek), want, "scheduler-core#4.2.T20");

    let mut world = nodes(2, "2");
    for node in ["a", "b"] {
        world.place(&pod(node).priority(1).cpu("2"), node);
    }
    let unfit = world.unfit(&pod("p").priority(10).cpu("2"), None);
    assert_eq!(unfit.message(), "0/2 nodes are available: 2 Insufficient cpu.", "scheduler-core#4.2.T6");
    assert!(matches!(unfit.nominating, Nominating::Node(_)), "scheduler-core#4.2.T6");
}

#[test]
fn other_plugins_that_help() {
    let refuses = filter("X", Code::Unschedulable, &["x"], None);
    for (key, helper, want) in [
        ("scheduler-core#4.2.T21", post_filter(Code::Unresolvable, &["stop here"]), "stop here".to_owned()),
        (
            "scheduler-core#4.2.T22",
            post_filter(Code::Unschedulable, &["m1", "m2"]),
            format!("m1, m2, preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."),
        ),
    ] {
        let mut world = nodes(1, "4").without_claims().with(&refuses);
        world.framework.post_filters.insert(0, helper);
        assert_eq!(world.message(&pod("p")), format!("0/1 nodes are available: 1 x. {want}"), "{key}");
    }
    let mut world = nodes(1, "4").with(&refuses);
    world.framework.post_filters.clear();
    let unfit = world.unfit(&pod("p"), None);
    assert_eq!(
        (unfit.message().as_str(), unfit.nominating),
        ("0/1 nodes are available: 1 x.", Nominating::Clear)
    );
}

#[test]
fn node_sets_that_have_nothing_in_common() {
    let mut world = nodes(2, "4").with(&narrowing("B", "b")).with(&narrowing("A", "a"));
    let unfit = world.unfit(&pod("p"), None);
    let want = format!(
        "0/2 nodes are available: node(s) didn't satisfy plugin(s) [A B] simultaneously. {NO_CLAIMS}, preemption: \
         0/2 nodes are available: 2 {UNHELPFUL}."
    );
    assert_eq!(unfit.message(), want, "scheduler-core#4.2.T23");
    assert_eq!(unfit.diagnosis.rejectors(), ["A", "B"]);
}

#[test]
fn a_refusal_after_the_choice_is_about_one_node() {
    let status = Status::unschedulable("Gang", "gang not ready");
    let diagnosis = Diagnosis::of_one(Row(3), status);
    assert_eq!(diagnosis.message(), "0/1 nodes are available: 1 gang not ready.", "scheduler-core#4.2.T5");
    assert_eq!((diagnosis.rejectors(), diagnosis.code_of(Row(3))), (vec!["Gang"], Code::Unschedulable));
}

#[test]
fn pods_with_resource_claims_are_refused() {
    let claims = json!([{"name": "gpu", "resourceClaimName": "g"}]);
    let mut world = nodes(1, "4");
    let unfit = world.unfit(&pod("p").with("resourceClaims", claims), None);
    let want = format!(
        "0/1 nodes are available: pod has spec.resourceClaims, and this scheduler does not allocate resource claims \
         yet. {NO_CLAIMS}, preemption: 0/1 nodes are available: 1 {UNHELPFUL}."
    );
    assert_eq!(unfit.message(), want);
    assert_eq!(unfit.diagnosis.rejectors(), ["DynamicResources"]);
    assert!(world.attempt(&pod("q"), None).is_ok());
}
