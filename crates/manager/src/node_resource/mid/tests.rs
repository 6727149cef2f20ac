//! The worked examples of mid resources. Spec: manager 7.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::node_resource::fixture::{Act, World, allocatable};

const GI: i64 = 1 << 30;

/// N1 with what mid resources look at.
fn world(change: impl FnOnce(&mut World)) -> World {
    let mut world = World::n1();
    reclaimable(&mut world, json!({"cpu": "12", "memory": "40Gi"}));
    change(&mut world);
    world
}

fn reclaimable(world: &mut World, resources: Value) {
    world.metric["status"]["prodReclaimableMetric"] = json!({"resource": {"resources": resources}});
}

fn used(world: &mut World, resources: Value) {
    world.metric["status"]["nodeMetric"]["nodeUsage"] = json!({"resources": resources});
}

fn mid(world: &World) -> (Option<i64>, Option<i64>) {
    let plan = world.plan();
    (allocatable(&plan, MID_CPU), allocatable(&plan, MID_MEMORY))
}

#[test]
fn lent_out() {
    let half = json!({"midUnallocatedPercent": 50});
    let rows: &[(&str, Act<'_>, i64, i64)] = &[
        ("manager#7.I1", &|_| {}, 12_000, 40 * GI),
        (
            "manager#7.I2",
            &|w| w.set(json!({"midUnallocatedPercent": 50, "midCPUThresholdPercent": 30})),
            19_200,
            121_332_826_112,
        ),
        (
            "manager#7.I3",
            &|w| {
                w.metric["status"]["prodReclaimableMetric"] = json!(null);
                w.set(half.clone());
            },
            15_500,
            73 * GI,
        ),
        ("manager#7.I4", &|w| used(w, json!({"cpu": "20"})), 0, 0),
        ("manager#7.I5", &|w| reclaimable(w, json!({"cpu": "60", "memory": "40Gi"})), 44_000, 40 * GI),
        (
            "manager#7.I6",
            &|w| {
                w.set(json!({
                    "midReclaimMode": "static",
                    "midStaticCPUReservedPercent": 20, "midStaticMemoryReservedPercent": 10,
                }));
            },
            12_800,
            27_487_790_694,
        ),
        (
            "manager#7.I7",
            &|w| {
                w.set(json!({
                    "midReclaimMode": "static",
                    "midStaticCPUReservedPercent": 100, "midStaticMemoryReservedPercent": 100,
                    "midCPUThresholdPercent": 10, "midMemoryThresholdPercent": 20,
                }));
            },
            6_400,
            54_975_581_388,
        ),
        (
            "manager#7.I9",
            &|w| {
                w.set(half.clone());
                w.host_app("nginx", "koord-mid", "10", "10Gi");
            },
            27_500,
            121_332_826_112,
        ),
        (
            "manager#7.I10",
            &|w| {
                w.set(half.clone());
                w.host_app("nginx", "koord-prod", "10", "10Gi");
            },
            23_500,
            116_500_987_904,
        ),
        (
            "manager#7.I11",
            &|w| {
                used(w, json!({"cpu": "20"}));
                w.set(half.clone());
            },
            15_500,
            78_383_153_152,
        ),
        (
            "manager#7.I12",
            &|w| {
                used(w, json!({"cpu": "70", "memory": "300Gi"}));
                w.set(half.clone());
            },
            15_500,
            78_383_153_152,
        ),
        (
            "manager#7.I13",
            &|w| {
                w.set(json!({"midReclaimMode": "static"}));
                w.label("node.koordinator.sh/mid-static-cpu-reserved-ratio", "1.5");
                w.label("node.koordinator.sh/mid-static-memory-reserved-ratio", "0.07");
            },
            64_000,
            19_241_453_486,
        ),
        (
            "manager#7.I14",
            &|w| reclaimable(w, json!({"cpu": "1234500u", "memory": "1000500m"})),
            1_235,
            1_001,
        ),
        ("manager#7.I16", &|w| w.set(json!({"midUnallocatedPercent": 33})), 22_230, 94_682_554_040),
        ("manager#7.I17", &|w| reclaimable(w, json!({"cpu": "-3", "memory": "40Gi"})), 0, 40 * GI),
    ];
    for (key, change, cpu, memory) in rows {
        assert_eq!(mid(&world(change)), (Some(*cpu), Some(*memory)), "{key}");
    }
}

#[test]
fn taken_off_the_node() {
    let old = |w: &mut World| w.report_age(SignedDuration::from_secs(15 * 60 + 1));
    let rows: &[(&str, Act<'_>)] = &[
        ("manager#7.I8", &old),
        ("manager#7.I15", &|w| {
            w.set(json!({"midReclaimMode": "static", "midStaticCPUReservedPercent": 20}));
            w.metric = json!(null);
        }),
        ("manager#26.DB-18", &|w| w.metric["status"]["nodeMetric"] = json!(null)),
        ("switched off", &|w| w.set(json!({"enable": false}))),
    ];
    for (key, change) in rows {
        let mut world = world(|w| {
            w.node["status"]["allocatable"][MID_CPU] = json!("7");
            w.node["status"]["capacity"][MID_CPU] = json!("7");
        });
        change(&mut world);
        assert_eq!(mid(&world), (None, None), "{key}");
        assert!(world.plan().needs_status, "{key}");
    }
}

#[test]
fn a_node_that_has_not_reported_is_an_error() {
    let world = world(|w| w.node["status"]["allocatable"] = json!(null));
    let plan = world.plan();
    let run = plan.runs.iter().find(|run| run.plugin == "MidResource").unwrap();
    assert!(run.error.is_some());
    assert!(!plan.needs_status && !plan.needs_meta, "nothing is written then");
}
