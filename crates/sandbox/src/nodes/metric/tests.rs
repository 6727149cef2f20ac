use serde_json::json;

use super::*;
use crate::nodes::shape::Gpus;

const MIB: i64 = 1 << 20;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// Samples every 15 seconds from 0 to `until`, CPU rising by 10 each.
fn samples(until: i64) -> Samples {
    let mut samples = Samples::default();
    for (step, second) in (0..=until).step_by(15).enumerate() {
        let cpu = i64::try_from(step).unwrap() * 10;
        samples.push(at(second), Use { cpu, memory: 8 * MIB }, Use { cpu: 5, memory: MIB });
    }
    samples
}

fn report(samples: &Samples, now: i64, pods: Vec<PodRow>, shape: &Shape) -> Value {
    let policy = Policy::of(None);
    let reclaimable = Use::default();
    let inputs = Inputs { node: "n", shape, policy: &policy, samples, pods, reclaimable, now: at(now) };
    serde_json::to_value(status(inputs)).unwrap()
}

#[test]
fn policies_have_defaults_and_floors() {
    let policy = |value: Value| {
        let policy: MetricCollectPolicy = serde_json::from_value(value).unwrap();
        let policy = Policy::of(Some(&policy));
        (policy.aggregate.as_secs(), policy.interval.as_secs(), policy.durations.len())
    };
    assert_eq!(policy(json!({})), (300, 60, 3));
    assert_eq!(
        policy(json!({"reportIntervalSeconds": 10, "aggregateDurationSeconds": 30})),
        (60, 30, 3),
        "E1, E2"
    );
    assert_eq!(
        policy(json!({"reportIntervalSeconds": 0, "aggregateDurationSeconds": 0})),
        (60, 30, 3),
        "E16"
    );
    assert_eq!(policy(json!({"nodeAggregatePolicy": {"durations": ["1m"]}})), (300, 60, 1), "E15");
    assert_eq!(policy(json!({"nodeAggregatePolicy": {"durations": []}})), (300, 60, 3), "E15");
}

#[test]
fn percentiles_count_as_upstream_does() {
    for (count, want) in [
        (1, [0, 0, 0, 0]),
        (2, [0, 0, 0, 0]),
        (7, [2, 5, 5, 5]),
        (20, [9, 17, 18, 18]),
        (600, [299, 539, 569, 593]),
    ] {
        assert_eq!([0.5, 0.9, 0.95, 0.99].map(|share| percentile_index(count, share)), want, "{count}");
    }
}

#[test]
fn windows_that_are_cold_stay_empty() {
    // 150 seconds of samples: half of five minutes, less than half of ten.
    let status = report(&samples(150), 150, Vec::new(), &Shape::default());
    let windows = &status["nodeMetric"]["aggregatedNodeUsages"];
    assert_eq!(windows[0]["duration"], "5m0s");
    assert_eq!(windows[0]["usage"]["avg"]["resources"], json!({"cpu": "50m", "memory": "8Mi"}));
    assert_eq!(windows[0]["usage"]["p90"]["resources"]["cpu"], "80m");
    assert_eq!(windows[1]["usage"], json!({"avg": {}, "p50": {}, "p90": {}, "p95": {}, "p99": {}}));
    let system = &status["nodeMetric"]["aggregatedSystemUsages"];
    assert_eq!(system[0]["usage"]["p99"]["resources"], json!({"cpu": "5m", "memory": "1Mi"}));
    assert_eq!(status["nodeMetric"]["nodeUsage"]["resources"]["cpu"], "50m");
    assert_eq!(status.get("podsMetric"), None);
}

#[test]
fn the_ring_holds_half_an_hour() {
    let status = report(&samples(7200), 7200, Vec::new(), &Shape::default());
    let half_hour = &status["nodeMetric"]["aggregatedNodeUsages"][2];
    // Steps 360 to 480 of ten each.
    assert_eq!(half_hour["usage"]["avg"]["resources"]["cpu"], "4200m");
    assert_eq!(samples(7200).ring.len(), SAMPLES_MAX);
}

#[test]
fn pods_and_their_gpus() {
    let row = |namespace: &str, name: &str, gpus| PodRow {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        used: Use { cpu: 1500, memory: 1536 },
        priority: Some(PriorityClass::Prod),
        qos: Some(Qos::Ls),
        gpus,
    };
    let gpus = BTreeMap::from([(1, GpuUse { core: 60, memory: 20 << 30 })]);
    let pods = vec![row("b", "x", BTreeMap::new()), row("a", "z", gpus), row("a", "y", BTreeMap::new())];
    let shape = Shape { gpus: Gpus { count: 2, ..Gpus::default() }, ..Shape::default() };
    let status = report(&samples(300), 300, pods, &shape);
    let names: Vec<&Value> = status["podsMetric"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["y", "z", "x"], "E7");
    let pod = &status["podsMetric"][1];
    assert_eq!(pod["podUsage"]["resources"], json!({"cpu": "1500m", "memory": "1536"}));
    assert_eq!((&pod["priority"], &pod["qos"]), (&json!("koord-prod"), &json!("LS")));
    let device = &pod["podUsage"]["devices"][0];
    assert_eq!((&device["minor"], &device["health"]), (&json!(1), &json!(false)));
    assert_eq!(device["resources"][GPU_MEMORY_RATIO], "25");
    let node = status["nodeMetric"]["nodeUsage"]["devices"].as_array().unwrap();
    assert_eq!(node.len(), 2, "idle GPUs are told, too");
    assert_eq!(node[0]["resources"][GPU_CORE], "0");
    assert_eq!(node[1]["resources"][GPU_CORE], "60");
    assert_eq!(node[1]["id"], device["id"]);
}
