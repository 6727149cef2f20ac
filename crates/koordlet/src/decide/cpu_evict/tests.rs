use std::sync::Arc;

use koord_api::crd::node_slo::CpuEvictPolicy;
use proptest::prelude::*;

use super::satisfaction::{Config, ConfigError, Reading, Verdict, Window, verdict};
use super::*;
use crate::decide::sketch::{PodSketch, node, pod};

fn strategy(lower: i64, upper: i64) -> ResourceThresholdStrategy {
    ResourceThresholdStrategy {
        cpu_evict_be_satisfaction_lower_percent: Some(lower),
        cpu_evict_be_satisfaction_upper_percent: Some(upper),
        ..ResourceThresholdStrategy::default()
    }
}

fn reading((used, requested, real_limit): (i64, i64, i64)) -> Reading {
    let [used, requested, real_limit] = [used, requested, real_limit].map(nearest);
    Reading { used, requested, real_limit }
}

fn window(average: (i64, i64, i64), latest: (i64, i64, i64)) -> Window {
    Window { average: reading(average), latest: reading(latest), samples: 1, interval_seconds: 1, seconds: 1 }
}

fn released(strategy: &ResourceThresholdStrategy, window: &Window, allocatable: Option<i64>) -> Option<i64> {
    match verdict(&Config::new(strategy).unwrap(), window, allocatable) {
        Verdict::Release(release) => Some(release.milli),
        _ => None,
    }
}

#[test]
fn satisfaction() {
    for (key, (lower, upper), numbers, want) in [
        ("koordlet-enforce#18.44", (60, 80), (4000, 10_000, 4000), Some(4000)),
        ("koordlet-enforce#18.45", (60, 80), (3000, 10_000, 4000), None),
        ("koordlet-enforce#18.46", (60, 80), (6500, 10_000, 7000), None),
        ("koordlet-enforce#18.47", (60, 80), (100, 5000, 500), Some(3500)),
        ("koordlet-enforce#18.140", (60, 80), (6000, 10_000, 6000), Some(2000)),
        ("koordlet-enforce#18.141", (60, 80), (0, 10_000, 999), Some(7001)),
        ("koordlet-enforce#18.142", (60, 80), (899, 10_000, 1000), None),
        ("koordlet-enforce#18.143", (60, 80), (3000, 7000, 3000), Some(2600)),
        ("koordlet-enforce#18.144", (60, 60), (6000, 10_000, 6000), None),
    ] {
        assert_eq!(released(&strategy(lower, upper), &window(numbers, numbers), None), want, "{key}");
    }
    let usual = strategy(60, 80);
    for (key, average, latest, want) in [
        ("koordlet-enforce#18.49", (4000, 10_000, 4000), (5000, 10_000, 5500), Some(2500)),
        ("koordlet-enforce#18.145", (4750, 10_000, 4000), (5500, 10_000, 5500), Some(2500)),
        ("koordlet-enforce#18.145", (4000, 10_000, 4000), (4000, 10_000, 5500), None),
        ("koordlet-enforce#18.146", (4000, 10_000, 4000), (4000, 8000, 4000), Some(2400)),
    ] {
        assert_eq!(released(&usual, &window(average, latest), None), want, "{key}");
    }
}

#[test]
fn by_allocatable() {
    let policy = ResourceThresholdStrategy {
        cpu_evict_policy: Some(CpuEvictPolicy::EvictByAllocatable),
        ..strategy(60, 80)
    };
    let numbers = (100, 5000, 400);
    let release = |allocatable| released(&policy, &window(numbers, numbers), allocatable);
    assert_eq!(release(Some(0)), Some(3999), "koordlet-enforce#18.147 koordlet-enforce#18.48");
    assert_eq!(release(None), None, "koordlet-enforce#18.147");
    assert_eq!(release(Some(-5)), None, "koordlet-enforce#18.147");
}

#[test]
fn windows() {
    let enough = |seconds, interval_seconds, samples| {
        let numbers = (4000, 10_000, 4000);
        let window = Window { seconds, interval_seconds, samples, ..window(numbers, numbers) };
        released(&strategy(60, 80), &window, None).is_some()
    };
    assert!(!enough(60, 1, 19) && enough(60, 1, 20), "koordlet-enforce#18.50");
    assert!(!enough(59, 10, 1) && enough(59, 10, 2), "koordlet-enforce#18.148");
    let seconds = |window| ResourceThresholdStrategy {
        cpu_evict_time_window_seconds: window,
        ..ResourceThresholdStrategy::default()
    };
    assert_eq!(satisfaction::window_seconds(&seconds(None), 1), 1);
    assert_eq!(satisfaction::window_seconds(&seconds(Some(60)), 1), 60);
}

#[test]
fn bad_configurations() {
    let error = |lower, upper| Config::new(&strategy(lower, upper)).unwrap_err().to_string();
    assert_eq!(Config::new(&ResourceThresholdStrategy::default()), Err(ConfigError::Missing),);
    let text = "CPUEvictBESatisfactionLowerPercent(70) is not valid! must (0,60]";
    assert_eq!(error(70, 80), text, "koordlet-enforce#18.51");
    let text = "CPUEvictBESatisfactionUpperPercent(100) is not valid,must (0,100)";
    assert_eq!(error(60, 100), text, "koordlet-enforce#18.52");
    let text = "CPUEvictBESatisfactionUpperPercent(50) < CPUEvictBESatisfactionLowerPercent(60)";
    assert_eq!(error(60, 50), text);
}

fn be(name: &str, priority: i32, request: &str) -> PodSketch {
    pod(name).qos("BE").priority(priority).container("c", &[("kubernetes.io/batch-cpu", request)], &[])
}

fn usage(node: f64, pods: &[(&str, f64)]) -> CpuUsage {
    let pods = pods.iter().map(|(uid, cores)| (Arc::from(*uid), *cores)).collect();
    CpuUsage { node: Some(node), pods, ..CpuUsage::default() }
}

fn names(task: &Task<'_>) -> Vec<String> {
    task.victims.iter().map(|pod| pod.name.clone()).collect()
}

/// What was found when best-effort pods use and may use a tenth of what they request.
fn found(milli: i64) -> satisfaction::Release {
    let config = Config::new(&strategy(60, 80)).unwrap();
    satisfaction::Release {
        milli,
        by_average: milli,
        by_latest: milli,
        limit: 400.0,
        requested: 4000.0,
        used: 400.0,
        config,
    }
}

#[test]
fn numbers_are_told() {
    let want = "best-effort pods use 400m of 400m, threshold 90 %, and request 4000m: satisfied to 10 %, lower 60 %, \
                upper 80 %";
    assert_eq!(found(1000).to_string(), want);
}

/// Of pods that use nothing, or were not measured yet, the largest goes first, so that one suffices.
#[test]
fn the_largest_of_equals_goes_first() {
    let pods: Vec<Pod> =
        [be("a", 5500, "500"), be("greedy", 5500, "32000")].iter().map(PodSketch::read).collect();
    let node = node(&[], &[]).read();
    for (case, used) in [("not measured", usage(0.0, &[])), ("idle", usage(0.0, &[("a", 0.0)]))] {
        let task = by_satisfaction(&Sample { node: &node, pods: &pods, usage: &used }, &found(20_000));
        assert_eq!(names(&task), ["greedy", "a"], "{case}");
    }
}

#[test]
fn victims_by_satisfaction() {
    let pods: Vec<Pod> = [
        be("a", 5500, "1000"),
        be("b", 5500, "1000"),
        be("e", 5500, "0"),
        be("c", 5000, "1000"),
        be("d", 5999, "1000"),
    ]
    .iter()
    .map(PodSketch::read)
    .collect();
    let usage = usage(0.0, &[("a", 0.5), ("b", 0.9), ("e", 5.0), ("c", 0.1), ("d", 1.0)]);
    let node = node(&[], &[]).read();
    let task = by_satisfaction(&Sample { node: &node, pods: &pods, usage: &usage }, &found(1000));
    assert_eq!(names(&task), ["c", "b", "a", "e", "d"], "koordlet-enforce#18.149");
}

#[test]
fn a_busy_node() {
    let release = |capacity: &str, used: f64, lower: Option<i64>| {
        let node = node(&[("cpu", capacity)], &[]).read();
        let strategy = ResourceThresholdStrategy {
            cpu_evict_threshold_percent: Some(70),
            cpu_evict_lower_percent: lower,
            evict_enabled_priority_threshold: Some(7999),
            ..ResourceThresholdStrategy::default()
        };
        let usage = usage(used, &[]);
        let sample = Sample { node: &node, pods: &[], usage: &usage };
        by_usage(&sample, &strategy).unwrap().map(|(_, release)| release.amount)
    };
    for (key, capacity, used, lower, want) in [
        ("koordlet-enforce#18.150", "20", 16.0, None, Some(2400)),
        ("koordlet-enforce#18.150", "20", 13.99, None, None),
        ("koordlet-enforce#18.150", "20", 14.19, None, Some(400)),
        ("koordlet-enforce#18.151", "7900m", 6.5, None, Some(1106)),
        ("koordlet-enforce#18.152", "20", 16.0, Some(50), Some(6000)),
    ] {
        assert_eq!(release(capacity, used, lower), want, "{key}");
    }
}

#[test]
fn more_promised_than_there_is() {
    const ENABLED: &str = "koordinator.sh/eviction-enabled";
    let shortages = |allocatable: &[(&str, &str)], pods: &[PodSketch]| {
        let pods: Vec<Pod> = pods.iter().map(|pod| pod.clone().label(ENABLED, "true").read()).collect();
        let node = node(&[], allocatable).read();
        let strategy = ResourceThresholdStrategy {
            cpu_allocatable_evict_threshold_percent: Some(100),
            cpu_allocatable_evict_lower_percent: Some(80),
            allocatable_evict_priority_threshold: Some(7999),
            ..ResourceThresholdStrategy::default()
        };
        let usage = usage(0.0, &[("a", 1.0), ("b", 1.0)]);
        let sample = Sample { node: &node, pods: &pods, usage: &usage };
        let task = by_ledger(&sample, &strategy).unwrap();
        task.map(|(task, shortages)| (shortages[0].release, names(&task)))
    };
    let batch = |amount| [("kubernetes.io/batch-cpu", amount)];
    let two = || [be("a", 5500, "2000"), be("b", 5500, "4000")];
    let one = || [be("a", 5500, "4000")];
    let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    assert_eq!(
        shortages(&batch("5000"), &two()),
        Some((2000, strings(&["b", "a"]))),
        "koordlet-enforce#18.154"
    );
    assert_eq!(shortages(&batch("4000"), &one()), None, "koordlet-enforce#18.155");
    assert_eq!(shortages(&batch("0"), &one()), Some((4000, strings(&["a"]))), "koordlet-enforce#18.156");
    assert_eq!(shortages(&[], &one()), Some((4000, strings(&["a"]))), "koordlet-enforce#18.156");
    let free = [pod("a").priority(3500).container("c", &[("cpu", "2")], &[])];
    assert_eq!(shortages(&[("cpu", "1")], &free), None, "koordlet-enforce#18.157");
    let text = "priorityThresholdPercent(8000) should less than 7999, koor-prod pods should not be killed";
    assert_eq!(Ledger::new(Some(100), Some(80), Some(8000)).unwrap_err().to_string(), text);
}

proptest! {
    /// Never more is freed than best-effort pods request, and never anything while they do not use what they have.
    #[test]
    fn releases_within_bounds(
        used in 0_i64..100_000, requested in 0_i64..100_000, limit in -1_i64..100_000, lower in 1_i64..=60,
        above in 0_i64..=39,
    ) {
        let numbers = (used, requested, limit);
        if let Some(release) = released(&strategy(lower, lower + above), &window(numbers, numbers), None) {
            prop_assert!(release > 0 && release <= requested);
            prop_assert!(limit < 1000 || used * 100 >= limit * 90);
        }
    }
}
