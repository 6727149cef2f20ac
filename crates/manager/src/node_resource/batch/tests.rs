//! The worked examples of the batch formula. Spec: manager 6.7.

use jiff::SignedDuration;
use koord_api::slo::SloConfig;
use serde_json::json;

use super::*;
use crate::node_resource::fixture::{Act, World, allocatable, batch};
use crate::node_resource::plan::Stage;
use crate::node_resource::{PLUGINS, Plan};

const GI: i64 = 1 << 30;
/// Memory of B1.
const M1: i64 = 82_033_875_354;

const RESERVATION: &str = "node.koordinator.sh/reservation";
const STRATEGY: &str = "node.koordinator.sh/colocation-strategy";
const THIRD_PARTY: &str = "node.koordinator.sh/thirdPartyAllocations";
const ORIGIN: &str = "node.koordinator.sh/originExtendedAllocatable";

type Change = fn(&mut World);

fn changed(change: impl FnOnce(&mut World)) -> World {
    let mut world = World::n1();
    change(&mut world);
    world
}

#[test]
fn policies_and_caps() {
    let rows: &[(&str, Change, i64, i64)] = &[
        ("manager#6.7.B1", |_| {}, 12_400, M1),
        ("manager#6.7.B2", |w| w.set(json!({"memoryCalculatePolicy": "request"})), 12_400, 60_559_038_874),
        (
            "manager#6.7.B3, manager#26.DB-1",
            |w| {
                w.set(json!({"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "maxUsageRequest"}))
            },
            2_400,
            54_116_587_930,
        ),
        ("manager#6.7.B4", |w| w.set(json!({"cpuCalculatePolicy": "request"})), 12_400, M1),
        (
            "unknown policies",
            |w| w.set(json!({"cpuCalculatePolicy": "x", "memoryCalculatePolicy": "y"})),
            12_400,
            M1,
        ),
        ("manager#6.7.B5", |w| w.set(json!({"batchCPUThresholdPercent": 15})), 9_600, M1),
        ("manager#6.7.B6", |w| w.set(json!({"batchMemoryThresholdPercent": 20})), 12_400, 54_975_581_388),
        ("manager#6.7.B14", |w| w.set(json!({"cpuReclaimThresholdPercent": 150})), 70_000, M1),
        ("manager#6.7.B15", |w| w.usage("web", "koord-prod", "25", "40Gi"), 0, M1),
        ("manager#6.7.B20", |w| w.set(json!({"cpuReclaimThresholdPercent": 0})), 0, M1),
        ("manager#6.7.B21", |w| w.usage("web", "koord-prod", "6000500u", "40Gi"), 12_400, M1),
        ("manager#6.7.B22", |w| w.set(json!({"batchCPUThresholdPercent": 0})), 0, M1),
    ];
    for (key, change, cpu, memory) in rows {
        assert_eq!(batch(&changed(change).plan()), (Some(*cpu), Some(*memory)), "{key}");
    }
}

#[test]
fn pods_and_their_reports() {
    let qos = |world: &mut World, pod: &str, qos: &str| {
        world.find_pod(pod)["metadata"]["labels"]["koordinator.sh/qosClass"] = json!(qos);
    };
    let rows: &[(&str, Act<'_>, i64, i64)] = &[
        ("manager#6.7.B18", &|w| w.phase("web", "Succeeded"), 12_400, M1),
        (
            "manager#6.7.B19",
            &|w| {
                w.phase("spark", "Succeeded");
                w.usage("spark", "", "10", "20Gi");
            },
            2_400,
            60_559_038_874,
        ),
        (
            "manager#6.7.B30",
            &|w| {
                w.pod("odd", "BE", "whatever", "3", "3Gi");
                w.pod("failed", "LS", "koord-prod", "9", "9Gi");
                w.phase("failed", "Failed");
                w.pod("pending", "LS", "koord-prod", "1", "1Gi");
                w.phase("pending", "Pending");
            },
            11_400,
            80_960_133_530,
        ),
        ("manager#6.7.B39", &|w| qos(w, "db", "LSR"), 15_400, M1),
        (
            "a pod reported twice counts as reported last",
            &|w| {
                let first = w.metric["status"]["podsMetric"][0].clone();
                w.usage("web", "koord-prod", "1", "1Gi");
                w.metric["status"]["podsMetric"].as_array_mut().unwrap().push(first);
            },
            12_400,
            M1,
        ),
    ];
    for (key, change, cpu, memory) in rows {
        assert_eq!(batch(&changed(change).plan()), (Some(*cpu), Some(*memory)), "{key}");
    }
}

#[test]
fn what_is_reserved_and_what_the_system_uses() {
    let rows: &[(&str, Change, i64, i64)] = &[
        ("manager#6.7.B11", |w| w.host_app("nginx", "koord-batch", "1500m", "1Gi"), 12_400, M1),
        ("manager#6.7.B12", |w| w.annotate(RESERVATION, r#"{"reservedCPUs":"0-9"}"#), 7_400, M1),
        ("manager#6.7.B13", |w| w.annotate(RESERVATION, "oops"), 12_900, M1),
        (
            "manager#6.7.B27",
            |w| {
                let text = r#"{"resources":{"cpu":"5","memory":"20Gi"},"reservedCPUs":"0-3"}"#;
                w.annotate(RESERVATION, text);
            },
            12_900,
            67_001_489_818,
        ),
        (
            "manager#6.7.B28",
            |w| w.annotate(RESERVATION, r#"{"resources":{"cpu":"20"},"reservedCPUs":"a-b"}"#),
            12_900,
            M1,
        ),
        (
            "manager#6.7.B29",
            |w| w.annotate(RESERVATION, r#"{"resources":{"cpu":"20"},"applyPolicy":"ReservedCPUsOnly"}"#),
            0,
            M1,
        ),
        (
            "manager#6.7.B31",
            |w| {
                w.host_app("none", "", "9", "9Gi");
                w.host_app("mid", "koord-mid", "2", "2Gi");
            },
            10_900,
            79_886_391_706,
        ),
    ];
    for (key, change, cpu, memory) in rows {
        assert_eq!(batch(&changed(change).plan()), (Some(*cpu), Some(*memory)), "{key}");
    }
}

#[test]
fn an_amplified_node_keeps_its_kubelet_reservation() {
    let world = changed(|w| {
        w.annotate(RESERVATION, "{}");
        w.metric["status"]["hostApplicationMetric"] = json!([]);
        w.metric["status"]["nodeMetric"]["systemUsage"] = json!({"resources": {}});
        w.node["status"]["allocatable"] = json!({"cpu": "93", "memory": "300Gi"});
        w.annotate("node.koordinator.sh/raw-allocatable", r#"{"cpu":"62","memory":"250Gi"}"#);
    });
    // 64 - 25.6 - 2 - 21 cores.
    assert_eq!(batch(&world.plan()).0, Some(15_400), "manager#26.DB-10");
    let unreadable = changed(|w| {
        w.annotate("node.koordinator.sh/raw-allocatable", "oops");
    });
    assert_eq!(batch(&unreadable.plan()).0, Some(12_400));
}

#[test]
fn the_example_of_the_release_note() {
    let mut world = World::n1();
    world.node["status"] =
        json!({"capacity": {"cpu": "100", "memory": "0"}, "allocatable": {"cpu": "100", "memory": "0"}});
    world.set(json!({"cpuReclaimThresholdPercent": 65}));
    world.pods.clear();
    world.pod("ls", "LS", "koord-prod", "40", "0");
    world.metric["status"]["podsMetric"] = json!([]);
    world.usage("ls", "koord-prod", "33", "0");
    world.metric["status"]["hostApplicationMetric"] = json!([]);
    world.metric["status"]["nodeMetric"]["systemUsage"] = json!({"resources": {"cpu": "7"}});
    world.annotate(RESERVATION, r#"{"resources":{"cpu":"10"}}"#);
    assert_eq!(batch(&world.plan()).0, Some(22_000), "manager#6.7.B17");
    world.annotate(RESERVATION, "{}");
    assert_eq!(batch(&world.plan()).0, Some(25_000), "manager#6.7.B17");
}

#[test]
fn strategies_of_nodes() {
    let everywhere = |mut item: serde_json::Value| {
        item["nodeSelector"] = json!({});
        item
    };
    let rows: &[(&str, Act<'_>, i64, i64)] = &[
        ("manager#6.7.B33", &|w| w.annotate(STRATEGY, r#"{"cpuReclaimThresholdPercent":-10}"#), 12_400, M1),
        (
            "manager#6.7.B34",
            &|w| {
                w.set(json!({"nodeConfigs": [
                    everywhere(json!({"name": "a", "cpuReclaimThresholdPercent": 90, "memoryReclaimThresholdPercent": 50})),
                    everywhere(json!({"name": "b", "memoryReclaimThresholdPercent": 10})),
                ]}));
                w.annotate(STRATEGY, r#"{"cpuReclaimThresholdPercent":70}"#);
                w.label("node.koordinator.sh/cpu-reclaim-ratio", "0.29");
            },
            0,
            40_802_189_312,
        ),
        (
            "manager#6.7.B36",
            &|w| {
                let item = json!({"cpuReclaimThresholdPercent": -1, "memoryReclaimThresholdPercent": 50});
                w.set(json!({"nodeConfigs": [everywhere(item)]}));
            },
            12_400,
            M1,
        ),
        (
            "manager#6.7.B41",
            &|w| w.label("node.koordinator.sh/memory-reclaim-ratio", "1.2"),
            12_400,
            233_216_724_172,
        ),
    ];
    for (key, change, cpu, memory) in rows {
        assert_eq!(batch(&changed(change).plan()), (Some(*cpu), Some(*memory)), "{key}");
    }
}

#[test]
fn taken_off_the_node() {
    let minutes = |minutes: i64, seconds| SignedDuration::from_secs(minutes * 60 + seconds);
    let lacks_node = |w: &mut World| w.metric["status"]["nodeMetric"] = json!(null);
    let rows: &[(&str, Act<'_>)] = &[
        ("manager#6.7.B9", &|w| w.report_age(minutes(15, 1))),
        ("manager#6.7.B10", &|w| w.metric = json!(null)),
        ("manager#6.7.B16", &|w| w.set(json!({"enable": false}))),
        ("manager#6.7.B35", &|w| w.annotate(STRATEGY, r#"{"enable":false}"#)),
        ("manager#6.7.B40, manager#26.DB-18", &lacks_node),
        ("manager#6.7.B42", &|w| {
            w.strategy(json!({"enable": false, "nodeConfigs": [{"nodeSelector": {}, "enable": true}]}))
        }),
        ("manager#6.7.B43", &|w| w.config.clear()),
        ("never reported", &|w| w.metric["status"]["updateTime"] = json!(null)),
    ];
    for (key, change) in rows {
        let mut world = World::n1();
        world.node["status"]["allocatable"][BATCH_CPU] = json!("7");
        world.node["status"]["capacity"][BATCH_CPU] = json!("7");
        change(&mut world);
        let plan = world.plan();
        assert_eq!(batch(&plan), (None, None), "{key}");
        let origin = &plan.prepared.annotations[ORIGIN];
        let want = r#"{"resources":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}"#;
        assert_eq!(origin, want, "{key}");
        assert!(plan.needs_status, "{key}");
    }
    let mut world = World::n1();
    world.report_age(minutes(15, -1));
    assert_eq!(batch(&world.plan()), (Some(12_400), Some(M1)), "manager#6.7.B32");
    world.report_age(minutes(15, 0));
    assert_eq!(batch(&world.plan()).0, Some(12_400), "exactly as old as allowed");
}

#[test]
fn a_node_without_annotations_gets_its_note() {
    let mut world = World::n1();
    world.node["metadata"] = json!({"name": "n1"});
    world.set(json!({"enable": false}));
    assert!(world.plan().prepared.annotations.contains_key(ORIGIN), "manager#26.DB-24");
}

#[test]
fn no_plan_without_configuration() {
    for (key, text, event) in [
        ("manager#6.7.B37", "{bad", "ColocationCfgUnmarshalFailed"),
        // Upstream is silent about a document that says something impossible.
        ("manager#6.7.B38", r#"{"enable":true,"degradeTimeMinutes":0}"#, "SLOCfgInvalid"),
    ] {
        let mut world = World::n1();
        world.config.insert("colocation-config".to_owned(), text.to_owned());
        let mut config = SloConfig::default();
        let loaded = config.load(Some(&world.config));
        assert_eq!(loaded.events.first().map(|event| event.reason), Some(event), "{key}");
        assert!(world.parts_under(config).plan_with(PLUGINS, &mut NodeMemory::default()).is_none(), "{key}");
    }
}

/// Lays a result over N1, with the ratio that the normalization plugin would have set.
fn prepared(world: &World, ratio: Option<&str>) -> (NodeView, Option<PluginError>) {
    let Plan { mut resource, .. } = world.plan();
    if let Some(ratio) = ratio {
        resource.annotations.insert(CPU_NORMALIZATION_RATIO.to_owned(), ratio.to_owned());
    }
    let mut node = world.parts().node;
    let error = BatchResource.prepare(&mut node, &resource).err();
    let once = node.clone();
    assert_eq!(BatchResource.prepare(&mut node, &resource).err(), error);
    assert_eq!(node, once, "twice is once");
    (node, error)
}

#[test]
fn ratios_and_other_schedulers() {
    let given = |entries: &[(&str, &str, &str)]| {
        let all: Vec<_> = entries
            .iter()
            .map(|(name, class, cpu)| json!({"name": name, "priority": class, "resources": {BATCH_CPU: cpu}}))
            .collect();
        json!({"allocations": all}).to_string()
    };
    let yarn = given(&[("yarn", "koord-batch", "5k")]);
    let two = given(&[("yarn", "koord-batch", "5k"), ("slurm", "koord-mid", "1k")]);
    let much = given(&[("yarn", "koord-batch", "50k")]);
    for (key, ratio, third_party, web, published, origin) in [
        ("manager#6.7.B7", Some("1.25"), None, "6", 15_500, 15_500),
        ("manager#6.7.B8", None, Some(&yarn), "6", 7_400, 12_400),
        ("manager#6.7.B23", None, Some(&much), "6", 0, 12_400),
        ("manager#6.7.B24", Some("1.25"), None, "5999m", 15_502, 15_502),
        ("manager#6.7.B25", Some("1.25"), Some(&two), "6", 10_500, 15_500),
        ("a ratio of 1", Some("1.00"), None, "6", 12_400, 12_400),
        ("no ratio", Some("abc"), None, "6", 12_400, 12_400),
    ] {
        let mut world = World::n1();
        world.usage("web", "koord-prod", web, "40Gi");
        if let Some(text) = third_party {
            world.annotate(THIRD_PARTY, text);
        }
        let (node, error) = prepared(&world, ratio);
        assert_eq!(error, None, "{key}");
        assert_eq!(node.allocatable(BATCH_CPU).unwrap().value(), published, "{key}");
        assert_eq!(node.allocatable(BATCH_MEMORY).unwrap().value(), M1, "{key}");
        let noted: OriginExtendedAllocatable = read(&node.annotations).unwrap().unwrap();
        assert_eq!(noted.resources[BATCH_CPU].value(), origin, "{key}");
    }
}

#[test]
fn notes_that_cannot_be_read() {
    let mut world = World::n1();
    world.annotate(THIRD_PARTY, "oops");
    let plan = world.plan();
    assert_eq!(batch(&plan), (Some(12_400), Some(M1)), "manager#6.7.B26");
    let failed: Vec<_> = plan.runs.iter().filter(|run| run.error.is_some()).collect();
    assert_eq!(failed.len(), 1, "manager#6.7.B26");
    assert_eq!((failed[0].plugin, failed[0].stage), ("BatchResource", Stage::Prepare), "manager#6.7.B26");
    world.annotate(ORIGIN, "oops");
    assert!(world.plan().prepared.annotations[ORIGIN].contains("12400"));
    world.annotate(ORIGIN, r#"{"resources":{"example.com/x":"1"}}"#);
    assert!(
        world.plan().prepared.annotations[ORIGIN].contains(r#""example.com/x":"1""#),
        "others' keys stay"
    );
}

#[test]
fn what_mid_pods_request_counts() {
    let mut world = World::n1();
    world.find_pod("mid")["spec"]["containers"][0]["resources"]["requests"] =
        json!({"kubernetes.io/mid-cpu": "3k", "kubernetes.io/mid-memory": "10Gi"});
    world.set(json!({"memoryCalculatePolicy": "request"}));
    assert_eq!(batch(&world.plan()), (Some(12_400), Some(60_559_038_874 - 10 * GI)), "manager#26.DB-21");
    world.set(json!({"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "maxUsageRequest"}));
    // It requests one core more than it uses, and 6 GiB.
    assert_eq!(batch(&world.plan()), (Some(1_400), Some(54_116_587_930 - 6 * GI)), "manager#26.DB-21");
}

#[test]
fn a_node_that_was_never_colocated_keeps_its_other_resources() {
    let mut world = World::n1();
    world.node["status"]["allocatable"]["example.com/x"] = json!("3");
    world.node["status"]["capacity"]["example.com/x"] = json!("3");
    world.set(json!({"enable": false}));
    assert_eq!(allocatable(&world.plan(), "example.com/x"), Some(3));
}

#[test]
fn other_notes_of_a_node_that_is_switched_off() {
    let mut world = World::n1();
    world.annotate("node.koordinator.sh/cpu-normalization-ratio", "1.20");
    world.annotate("node.koordinator.sh/resource-amplification-ratio", r#"{"cpu":1.5}"#);
    world.set(json!({"enable": false}));
    let plan = world.plan();
    let annotations = &plan.prepared.annotations;
    assert_eq!(batch(&plan), (None, None), "manager#6.7.B44");
    assert_eq!(annotations["node.koordinator.sh/cpu-normalization-ratio"], "1.20", "manager#6.7.B44");
    assert!(!annotations.contains_key("node.koordinator.sh/resource-amplification-ratio"), "manager#6.7.B44");
    let origin = r#"{"resources":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}"#;
    assert_eq!(annotations[ORIGIN], origin, "manager#6.7.B44");
}
