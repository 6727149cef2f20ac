//! What people read about a node.

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::node_resource::PLUGINS;
use crate::node_resource::fixture::{Act, World};
use crate::node_resource::plugin::Options;
use crate::node_resource::settings::Settings;

fn explained(world: &World, memory: &NodeMemory) -> NodeExplanation {
    explained_by(world, PLUGINS, Asked::Writer(memory))
}

fn explained_by(world: &World, plugins: &[&dyn Plugin], asked: Asked<'_>) -> NodeExplanation {
    let parts = world.parts();
    let settings = Settings::from(parts.strategy.as_ref().unwrap());
    let input = Input {
        now: parts.now,
        node: &parts.node,
        config: &parts.config,
        settings: &settings,
        metric: parts.metric.as_ref(),
        pods: &parts.pods,
        topology: parts.topology.as_ref(),
        device: None,
        options: Options::default(),
    };
    explain(plugins, &input, asked)
}

#[test]
fn the_maths_line_by_line() {
    let mut world = World::n1();
    world.set(json!({
        "cpuReclaimThresholdPercent": 60, "batchCPUThresholdPercent": 90,
        "nodeConfigs": [{"name": "big", "nodeSelector": {}, "memoryReclaimThresholdPercent": 65}],
    }));
    world.label("node.koordinator.sh/cpu-reclaim-ratio", "0.60");
    let text = explained(&world, &NodeMemory::default()).to_string();
    let want = "\
batch: cpu by usage, memory by usage; 4 high-priority pods, 1 of them not measured; 1 reports of pods that are gone
                         cpu     memory
     capacity            64      256Gi
  -  margin              25600m  96207267430  what cpuReclaimThresholdPercent=60 (label node.koordinator.sh/cpu-reclaim-ratio), memoryReclaimThresholdPercent=65 (node item 0 \"big\") leave
  -  system              5       6Gi          larger of used (3 / 5Gi, host applications 1500m / 1Gi) and reserved (2 / 6Gi by the kubelet, 5 / 0 by annotation)
  -  high-priority pods  21      84Gi         cpuCalculatePolicy=\"usage\" (default), memoryCalculatePolicy=\"usage\" (default); used 21 / 84Gi, requested 29 / 104Gi, larger of both 31 / 110Gi
  <  cap                 57600m  -            batchCPUThresholdPercent=90 (cluster)
  =  batch               12400m  82033875354
";
    assert!(text.contains(want), "{text}");
    assert!(text.starts_with("node n1: colocation is on\n"), "{text}");
    let resource = "  kubernetes.io/batch-cpu     12400        -\n";
    assert!(text.contains(resource), "{text}");
    assert!(text.contains("\nwritten: it is due\n"), "{text}");
}

#[test]
fn what_happens_between_the_formula_and_the_node() {
    let normalized = |world: &mut World| {
        let model = r#"{"enable":true,"ratioModel":{"X":{"baseRatio":1.25}}}"#;
        world.config.insert("cpu-normalization-config".to_owned(), model.to_owned());
        world.topology.as_mut().unwrap()["metadata"]["annotations"] =
            json!({"node.koordinator.sh/cpu-basic-info": r#"{"cpuModel":"X"}"#});
    };
    let others = |world: &mut World| {
        let text = r#"{"allocations":[
            {"name":"a","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"5000","kubernetes.io/batch-memory":"1Gi"}},
            {"name":"b","priority":"koord-mid","resources":{"kubernetes.io/batch-cpu":"1000"}}]}"#;
        world.annotate("node.koordinator.sh/thirdPartyAllocations", text);
    };
    let end = |lines: &[Line]| -> Vec<String> {
        let from = lines.iter().position(|line| line.term == "batch").unwrap();
        lines[from..].iter().map(|line| format!("{} {} {}", line.sign, line.term, line.cpu)).collect()
    };
    type Row<'r> = (&'r str, Act<'r>, &'r [&'r str], &'r [&'r str], &'r str);
    let rows: &[Row<'_>] = &[
        ("plain", &|_| {}, &["= batch 12400m"], &["= batch 2200m"], "12400"),
        (
            "manager#6.7.B7, manager#6.7.Z8",
            &|w| normalized(w),
            &["= batch 12400m", "x faster CPU 1.25", "= published 15500m"],
            &["= batch 2200m", "x faster CPU 1.25", "= published 2750m"],
            "15500",
        ),
        (
            "manager#6.7.B8",
            &|w| others(w),
            &["= batch 12400m", "- third parties 5", "= published 7400m"],
            &["= batch 2200m"],
            "7400",
        ),
        (
            "manager#6.7.B25",
            &|w| {
                normalized(w);
                others(w);
            },
            &["= batch 12400m", "x faster CPU 1.25", "- third parties 5", "= published 10500m"],
            &["= batch 2200m", "x faster CPU 1.25", "= published 2750m"],
            "10500",
        ),
    ];
    for (key, change, node, zone, wanted) in rows {
        let mut world = World::n1_zones();
        change(&mut world);
        let explanation = explained(&world, &NodeMemory::default());
        assert_eq!(end(&explanation.batch.lines), *node, "{key}");
        assert_eq!(end(&explanation.zones[0].account.lines), *zone, "{key}");
        assert_eq!(explanation.resources[0].wanted.as_deref(), Some(*wanted), "{key}");
        let last = explanation.batch.lines.last().unwrap();
        let memory: Quantity = last.memory.parse().unwrap();
        let memory_wanted: Quantity = explanation.resources[1].wanted.as_deref().unwrap().parse().unwrap();
        assert_eq!(memory, memory_wanted, "{key}: it adds up");
    }
}

#[test]
fn mid_and_zones() {
    let mut world = World::n1_zones();
    world.metric["status"]["prodReclaimableMetric"] =
        json!({"resource": {"resources": {"cpu": "12", "memory": "40Gi"}}});
    world.set(json!({"midUnallocatedPercent": 50}));
    let explanation = explained(&world, &NodeMemory::default());
    let mid: Vec<_> = explanation.mid.lines.iter().map(|line| (line.sign, &*line.term, &*line.cpu)).collect();
    let want = [
        ("", "prod reclaimable", "12"),
        ("<", "unused", "44"),
        ("+", "unallocated part", "15500m"),
        ("<", "cap", "64"),
        ("=", "mid", "27500m"),
    ];
    assert_eq!(mid, want);
    let note = &explanation.mid.lines[2].note;
    assert!(note.starts_with("midUnallocatedPercent=50 (cluster) of unallocated 31 / 146Gi"), "{note}");
    let zones: Vec<_> = explanation
        .zones
        .iter()
        .map(|found| (found.zone.as_str(), found.account.lines.last().unwrap().cpu.as_str()))
        .collect();
    assert_eq!(zones, [("node-0", "2200m"), ("node-1", "10200m")]);
    world.set(json!({"midReclaimMode": "static", "midStaticCPUReservedPercent": 20}));
    let text = explained(&world, &NodeMemory::default()).to_string();
    assert!(text.contains("mid: static"), "{text}");
    assert!(text.contains("midStaticCPUReservedPercent=20 (cluster)"), "{text}");
}

#[test]
fn why_there_is_nothing() {
    let rows: &[(&str, &str, Act<'_>)] = &[
        ("colocation is off in the cluster", "taken off: colocation is off", &|w| {
            w.set(json!({"enable": false}))
        }),
        ("colocation is off on this node", "taken off: colocation is off", &|w| {
            w.annotate("node.koordinator.sh/colocation-strategy", r#"{"enable":false}"#);
        }),
        ("colocation is on", "taken off: there is no NodeMetric", &|w| w.metric = json!(null)),
        ("colocation is on", "taken off: the node agent has not reported", &|w| {
            w.metric["status"]["updateTime"] = json!(null);
        }),
        ("colocation is on", "taken off: the report lacks the node itself", &|w| {
            w.metric["status"]["nodeMetric"] = json!(null);
        }),
        (
            "colocation is on",
            "taken off: the report is 960 s old, more than degradeTimeMinutes allows",
            &|w| w.report_age(SignedDuration::from_mins(16)),
        ),
    ];
    for (state, summary, change) in rows {
        let mut world = World::n1();
        change(&mut world);
        let explanation = explained(&world, &NodeMemory::default());
        assert_eq!((&*explanation.state, &*explanation.batch.summary), (*state, *summary));
        assert_eq!(explanation.mid.summary, *summary);
    }
}

#[test]
fn what_is_held_and_why_nothing_is_written() {
    let mut world = World::n1();
    world.set(json!({"batchStabilizationWindowSeconds": 600}));
    let mut memory = NodeMemory::default();
    world.plan_with(&mut memory);
    world.usage("web", "koord-prod", "4", "40Gi");
    world.now += SignedDuration::from_secs(60);
    memory.node_synced = Some(world.now);
    let before = explained(&world, &memory);
    let held = before.batch.lines.iter().find(|line| line.term == "earlier demand").unwrap();
    assert_eq!(held.cpu, "2");
    assert!(held.note.contains("batchStabilizationWindowSeconds=600 (cluster)"), "{held:?}");
    assert_eq!(explained(&world, &memory), before, "asking changes nothing");
    let written = world.plan_with(&mut memory).prepared;
    world.node["status"]["capacity"] = json!(written.capacity);
    world.node["status"]["allocatable"] = json!(written.allocatable);
    world.node["metadata"]["annotations"] = json!(written.annotations);
    world.now += SignedDuration::from_secs(7);
    let text = explained(&world, &memory).write;
    assert!(text.contains("the last write was 7 s ago, not more than 300 s"), "{text}");
}

#[test]
fn whoever_does_not_write_says_so() {
    let mut world = World::n1();
    world.set(json!({"batchStabilizationWindowSeconds": 600}));
    let mut memory = NodeMemory::default();
    world.plan_with(&mut memory);
    world.usage("web", "koord-prod", "4", "40Gi");
    world.now += SignedDuration::from_secs(60);
    let leader = explained(&world, &memory);
    let follower = explained_by(&world, PLUGINS, Asked::Onlooker("another replica writes it"));
    assert_eq!(follower.write, "another replica writes it");
    assert_eq!(follower.parameters, leader.parameters);
    assert!(follower.batch.lines.iter().all(|line| line.term != "earlier demand"), "{follower}");
    let batch_only: Vec<&dyn Plugin> = vec![&BatchResource];
    let partial = explained_by(&world, &batch_only, Asked::Writer(&memory));
    assert_eq!(partial.batch, leader.batch);
    assert_eq!(partial.mid.summary, "the plugin MidResource is switched off");
    world.set(json!({"enable": false}));
    let off = explained_by(&world, &batch_only, Asked::Writer(&memory));
    assert_eq!(off.mid.summary, "taken off: colocation is off");
}

#[test]
fn data_has_the_same_lines() {
    let data = json!(explained(&World::n1_zones(), &NodeMemory::default()));
    assert_eq!(
        data["batch"]["lines"][0],
        json!({"sign": "", "term": "capacity", "cpu": "64", "memory": "256Gi", "note": ""})
    );
    assert_eq!(data["zones"][1]["zone"], "node-1");
    assert_eq!(data["zones"][1]["lines"][0]["cpu"], "32");
    assert_eq!(data["parameters"][0], json!({"name": "enable", "value": "true", "layer": "cluster"}));
    assert_eq!(data["resources"][0], json!({"name": BATCH_CPU, "wanted": "12400", "standing": null}));
}
