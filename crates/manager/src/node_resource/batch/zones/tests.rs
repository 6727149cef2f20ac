//! The worked examples of NUMA zones. Spec: manager 6.7.

use jiff::SignedDuration;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::keys::node::annotation::CPU_NORMALIZATION_RATIO;
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY};
use serde_json::{Value, json};

use super::*;
use crate::node_resource::fixture::{Act, World, batch};
use crate::node_resource::plugin::NodeMemory;

/// Batch cpu and memory of each zone after the plan is carried out, none where a zone has none.
type Zones = Vec<Lent>;

/// Batch cpu and memory of a zone.
type Lent = (Option<i64>, Option<i64>);

/// Carries out what a plan says about zones, as the controller does.
fn turn(world: &mut World, memory: &mut NodeMemory, ratio: Option<&str>) -> (bool, Zones) {
    let mut plan = world.plan_with(memory);
    if let Some(ratio) = ratio {
        plan.resource.annotations.insert(CPU_NORMALIZATION_RATIO.to_owned(), ratio.to_owned());
    }
    let raw = world.topology.clone().unwrap();
    let mut object: NodeResourceTopology = serde_json::from_value(raw.clone()).unwrap();
    let before = object.zones.clone();
    let has_changed = apply(&mut object.zones, &plan.resource, plan.zones.closeness);
    if ratio.is_none() {
        assert_eq!(has_changed, plan.zones.is_needed);
    }
    if has_changed {
        memory.zones_synced = Some(world.now);
    }
    let patch = serde_json::to_vec(&steps(&before, &object.zones)).unwrap();
    let patched = koord_api::patch::json::apply(raw, &patch).unwrap();
    let read: NodeResourceTopology = serde_json::from_value(patched.clone()).unwrap();
    assert_eq!(read.zones, object.zones, "{}", String::from_utf8_lossy(&patch));
    world.topology = Some(patched);
    let amount = |zone: &Zone, name: &str| {
        let found = zone.resources.iter().find(|resource| resource.name == name)?;
        assert_eq!(found.available.value(), found.available.milli_value() / 1000, "whole numbers");
        Some(found.available.value())
    };
    let zones = object.zones.iter().map(|zone| (amount(zone, BATCH_CPU), amount(zone, BATCH_MEMORY)));
    (has_changed, zones.collect())
}

const FIRST: (Option<i64>, Option<i64>) = (Some(2_200), Some(24_910_810_317));
const SECOND: (Option<i64>, Option<i64>) = (Some(10_200), Some(57_123_065_037));

fn strip_cpu_and_memory(world: &mut World, zone: usize) {
    world.topology.as_mut().unwrap()["zones"][zone]["resources"] = json!([]);
}

#[test]
fn worked_out() {
    let max = json!({"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "maxUsageRequest"});
    let requested = json!({"memoryCalculatePolicy": "request", "batchCPUThresholdPercent": 5});
    let some = |cpu, memory| (Some(cpu), Some(memory));
    let rows: &[(&str, Act<'_>, Option<&str>, [Lent; 2])] = &[
        ("manager#6.7.Z1, manager#6.7.Z2", &|_| {}, None, [FIRST, SECOND]),
        ("manager#6.7.Z3", &|w| w.on_numa("db", &[0, 7]), None, [FIRST, SECOND]),
        (
            "manager#6.7.Z4",
            &|w| {
                strip_cpu_and_memory(w, 0);
                strip_cpu_and_memory(w, 1);
            },
            None,
            [(None, None), (None, None)],
        ),
        (
            "manager#6.7.Z5",
            &|w| w.set(max.clone()),
            None,
            [some(0, 9_878_424_781), some(5_200, 44_238_163_149)],
        ),
        (
            "manager#6.7.Z6",
            &|w| w.set(requested.clone()),
            None,
            [some(1_600, 13_099_650_253), some(1_600, 47_459_388_621)],
        ),
        (
            "manager#6.7.Z7",
            &|w| w.usage("web", "koord-prod", "6001m", "42949672961"),
            None,
            [some(2_199, 24_910_810_317), some(10_199, 57_123_065_037)],
        ),
        (
            "manager 6.5, 5.5: the whole of a pod in one zone is rounded up, too",
            &|w| {
                w.on_numa("web", &[1]);
                w.usage("web", "koord-prod", "6000500u", "40Gi");
            },
            None,
            [some(5_200, 46_385_646_797), some(7_199, 35_648_228_557)],
        ),
        ("manager#6.7.Z8", &|_| {}, Some("1.25"), [(Some(2_750), FIRST.1), (Some(12_750), SECOND.1)]),
        ("manager#6.7.Z11", &|w| strip_cpu_and_memory(w, 1), None, [FIRST, some(0, 0)]),
        ("manager#6.7.Z12, manager#26.DB-30", &|w| w.on_numa("db", &[0, 0]), None, [FIRST, SECOND]),
    ];
    for (key, change, ratio, want) in rows {
        let mut world = World::n1_zones();
        change(&mut world);
        assert_eq!(turn(&mut world, &mut NodeMemory::default(), *ratio).1, want, "{key}");
    }
}

fn batch_entry(capacity: &str, allocatable: &str, available: &str) -> Value {
    json!({"name": BATCH_CPU, "capacity": capacity, "allocatable": allocatable, "available": available})
}

fn push(world: &mut World, zone: usize, entry: Value) {
    world.topology.as_mut().unwrap()["zones"][zone]["resources"].as_array_mut().unwrap().push(entry);
}

#[test]
fn zones_of_a_node_that_lends_nothing_are_emptied() {
    let age = |w: &mut World| w.report_age(SignedDuration::from_mins(16));
    let off = |w: &mut World| w.set(json!({"enable": false}));
    let rows: &[(&str, Act<'_>)] = &[("manager#6.7.Z9, manager#26.DB-2", &age), ("switched off", &off)];
    for (key, change) in rows {
        let mut world = World::n1_zones();
        push(&mut world, 0, batch_entry("100", "100", "100"));
        change(&mut world);
        let mut memory = NodeMemory::default();
        let (has_changed, zones) = turn(&mut world, &mut memory, None);
        assert_eq!((has_changed, zones), (true, vec![(Some(0), None), (None, None)]), "{key}");
        assert!(!turn(&mut world, &mut memory, None).0, "{key}: once is enough");
    }
}

#[test]
fn each_field_is_compared_by_itself() {
    let mut world = World::n1_zones();
    push(&mut world, 0, batch_entry("2300", "2100", "1000"));
    let mut memory = NodeMemory { zones_synced: Some(world.now), ..NodeMemory::default() };
    turn(&mut world, &mut memory, None);
    let resources = &world.topology.unwrap()["zones"][0]["resources"];
    let names: Vec<_> = resources.as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cpu", BATCH_CPU, BATCH_MEMORY, "memory"], "manager#6.7.Z10 sorted by name");
    assert_eq!(resources[1]["capacity"], "2300", "manager#6.7.Z10");
    assert_eq!(resources[1]["allocatable"], "2100", "manager#6.7.Z10");
    assert_eq!(resources[1]["available"], "2200", "manager#6.7.Z10");
}

#[test]
fn zones_follow_exactly_when_they_are_due() {
    let mut world = World::n1_zones();
    world.find_pod("db")["metadata"]["annotations"] = json!({});
    let mut memory = NodeMemory::default();
    let cpu = |zones: &Zones| zones.iter().map(|zone| zone.0).collect::<Vec<_>>();
    let step = |world: &mut World, memory: &mut NodeMemory, seconds: i64| {
        world.now += SignedDuration::from_secs(seconds);
        world.report_age(SignedDuration::ZERO);
        let plan = world.plan_with(memory);
        if plan.needs_status {
            memory.node_synced = Some(world.now);
            for list in ["capacity", "allocatable"] {
                let amount = batch(&plan).0.unwrap().to_string();
                world.node["status"][list][BATCH_CPU] = json!(amount);
                let amount = batch(&plan).1.unwrap().to_string();
                world.node["status"][list][BATCH_MEMORY] = json!(amount);
                world.node["status"][list]["kubernetes.io/mid-cpu"] = json!("0");
                world.node["status"][list]["kubernetes.io/mid-memory"] = json!("0");
            }
        }
        let written = turn(world, memory, None);
        let node = world.node["status"]["allocatable"][BATCH_CPU].as_str().unwrap().to_owned();
        (node, written)
    };
    let (node, (_, zones)) = step(&mut world, &mut memory, 0);
    assert_eq!((node.as_str(), cpu(&zones)), ("12400", vec![Some(6_200); 2]));
    world.usage("web", "koord-prod", "6200m", "40Gi");
    let (node, (_, zones)) = step(&mut world, &mut memory, 301);
    assert_eq!(
        (node.as_str(), cpu(&zones)),
        ("12200", vec![Some(6_100); 2]),
        "manager#6.7.Z13, manager#26.DB-37"
    );
    world.usage("web", "koord-prod", "6300m", "40Gi");
    for turns in 1..=5 {
        let (node, (has_changed, zones)) = step(&mut world, &mut memory, 60);
        assert_eq!(node, "12200", "manager#6.7.Z14 turn {turns}");
        assert_eq!((has_changed, cpu(&zones)), (false, vec![Some(6_100); 2]), "manager#6.7.Z14 turn {turns}");
    }
    let (node, (has_changed, zones)) = step(&mut world, &mut memory, 60);
    assert_eq!(node, "12100", "manager#6.7.Z14");
    assert_eq!((has_changed, cpu(&zones)), (true, vec![Some(6_050); 2]), "manager#6.7.Z14");
}
