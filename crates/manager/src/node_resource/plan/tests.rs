//! When a node is written. Spec: manager 5.4.

use jiff::SignedDuration;
use koord_api::patch::merge;
use serde_json::{Value, json};

use super::*;
use crate::node_resource::PLUGINS;
use crate::node_resource::batch::BatchResource;
use crate::node_resource::fixture::{BATCH_CPU, World};

#[test]
fn what_counts_as_moved() {
    let amount = |value: i64| Some(Quantity::from_value(value, koord_api::quantity::Family::DecimalSi));
    for (key, old, new, want) in [
        ("manager#5.4.D1", amount(10_000), amount(11_000), false),
        ("manager#5.4.D2", amount(10_000), amount(11_001), true),
        ("manager#5.4.D3", amount(0), amount(0), false),
        ("manager#5.4.D4", amount(0), amount(1), true),
        ("manager#5.4.D5", None, amount(0), true),
        ("manager#5.4.D8", amount(10_000), amount(9_000), false),
        ("manager#5.4.D9", amount(10_000), amount(8_999), true),
        ("manager#5.4.D10", amount(30), amount(33), false),
        ("manager#5.4.D11", amount(7), amount(8), true),
        ("manager#5.4.D12", amount(10_000), None, true),
        ("absent", None, None, false),
        ("more than can be counted", amount(i64::MIN), amount(i64::MAX), true),
    ] {
        assert_eq!(moved(old, new, 0.1), want, "{key}");
    }
}

/// N1 as it is once written, so that nothing has moved.
fn written() -> (World, NodeMemory) {
    let mut world = World::n1();
    let plan = world.plan();
    for (list, amounts) in
        [("capacity", &plan.prepared.capacity), ("allocatable", &plan.prepared.allocatable)]
    {
        world.node["status"][list] = serde_json::to_value(amounts).unwrap();
    }
    let memory = NodeMemory { node_synced: Some(world.now), ..NodeMemory::default() };
    (world, memory)
}

#[test]
fn small_changes_wait() {
    let (mut world, mut memory) = written();
    assert!(!world.plan_with(&mut memory).needs_status);
    // 12400 becomes 12390.
    world.usage("web", "koord-prod", "6010m", "40Gi");
    world.now += SignedDuration::from_secs(300);
    world.report_age(SignedDuration::ZERO);
    assert!(!world.plan_with(&mut memory).needs_status, "manager#5.4.D7");
    world.now += SignedDuration::from_secs(1);
    assert!(world.plan_with(&mut memory).needs_status, "manager#5.4.D6");
    let (world, mut memory) = written();
    memory.node_synced = None;
    // How many requests this comes to is counted where they are sent: `controllers::node_resource`.
    assert!(world.plan_with(&mut memory).needs_status, "manager#5.4.D13 it is due");
    memory.node_synced = Some(world.now);
    assert!(!world.plan_with(&mut memory).needs_status, "manager#5.4.D13 the second time it is not");
}

/// The plugins that were asked at a stage, in order.
fn asked(plan: &Plan, stage: Stage) -> Vec<&'static str> {
    plan.runs.iter().filter(|run| run.stage == stage).map(|run| run.plugin).collect()
}

#[test]
fn plugins_are_asked_until_one_says_yes() {
    let (mut world, mut memory) = written();
    let plan = world.plan_with(&mut memory);
    let [mid, batch, gpu, rdma] = ["MidResource", "BatchResource", "GPUDeviceResource", "RDMADeviceResource"];
    let [ratio, amplification] = ["CPUNormalization", "ResourceAmplification"];
    assert_eq!(asked(&plan, Stage::StatusCheck), [mid, batch, gpu, rdma], "manager 5.3");
    assert_eq!(asked(&plan, Stage::MetaCheck), [ratio], "manager 5.3: the ratio is not written yet");
    world.usage("web", "koord-prod", "10", "40Gi");
    world.node["metadata"]["annotations"] = json!(plan.prepared.annotations);
    let plan = world.plan_with(&mut memory);
    assert_eq!(asked(&plan, Stage::StatusCheck), [mid, batch]);
    assert_eq!(asked(&plan, Stage::MetaCheck), [ratio, amplification, gpu]);
    world.node["status"]["capacity"] = json!(null);
    let plan = world.plan_with(&mut memory);
    assert!(asked(&plan, Stage::StatusCheck).is_empty() && asked(&plan, Stage::MetaCheck).is_empty());
    let sets_up: Vec<_> =
        PLUGINS.iter().filter(|plugin| plugin.sets_up()).map(|plugin| plugin.name()).collect();
    assert_eq!(sets_up, [ratio, amplification, batch, gpu, rdma], "manager 5.3");
}

#[test]
fn a_node_whose_status_is_empty_is_left_alone() {
    for list in ["capacity", "allocatable"] {
        let mut world = World::n1();
        world.node["status"][list] = json!(null);
        let plan = world.plan();
        assert!(!plan.needs_status && !plan.needs_meta, "{list}");
    }
}

#[test]
fn looked_at_again_when_the_report_gets_too_old() {
    let mut world = World::n1();
    world.report_age(SignedDuration::from_mins(14));
    assert_eq!(world.plan().again_at, Some(world.now + SignedDuration::from_secs(61)), "manager#26.DB-22");
    world.report_age(SignedDuration::from_mins(16));
    assert_eq!(world.plan().again_at, None);
    world.set(json!({"batchStabilizationWindowSeconds": 600}));
    assert_eq!(world.plan().again_at, Some(world.now + SignedDuration::from_secs(541)));
    world.set(json!({"enable": false}));
    assert_eq!(world.plan().again_at, None, "nothing to take off");
}

#[test]
fn a_plan_is_carried_over_to_the_object_as_it_is_spelled() {
    let mut world = World::n1();
    world.node["status"]["allocatable"]["cpu"] = json!("62000m");
    world.node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let plan = world.plan();
    let view = |node: &Value| NodeView::of(&serde_json::from_value(node.clone()).unwrap());
    let patched = |node: Value, patch: Value| merge::apply(node, patch.to_string().as_bytes()).unwrap();
    let patch = plan.prepared.patch(&view(&world.node));
    let json = patched(world.node.clone(), patch);
    assert_eq!(view(&json), plan.prepared);
    assert_eq!(json["status"]["allocatable"]["cpu"], "62000m");
    assert_eq!(json["status"]["allocatable"][BATCH_CPU], "12400");
    assert_eq!(json["status"]["conditions"][0]["type"], "Ready");
    let mut off = plan.prepared.clone();
    off.set_resource(BATCH_CPU, None);
    off.annotations.insert("note".to_owned(), "new".to_owned());
    let notes = off.meta_patch(&plan.prepared);
    assert_eq!(notes, json!({"metadata": {"annotations": {"note": "new"}}}));
    let json = patched(json, off.patch(&plan.prepared));
    assert_eq!(view(&json), off);
    assert!(json["status"]["capacity"].get(BATCH_CPU).is_none());
    assert_eq!(off.patch(&off), json!({"metadata": {}, "status": {}}));
}

#[test]
fn the_table_of_plugins_is_sound() {
    let names: Vec<&str> = PLUGINS.iter().map(|plugin| plugin.name()).collect();
    let unique: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len());
    let place = |name: &str| names.iter().position(|known| *known == name);
    assert!(place("MidResource") < place("BatchResource"));
}

#[test]
fn a_plugin_that_is_off_touches_nothing() {
    let mut world = World::n1();
    world.node["status"]["allocatable"]["kubernetes.io/mid-cpu"] = json!("5");
    let plan = world.parts().plan_with(&[&BatchResource], &mut NodeMemory::default()).unwrap();
    assert_eq!(plan.prepared.allocatable("kubernetes.io/mid-cpu").unwrap().value(), 5);
}
