//! The known complaints as cases, and a day of load. Spec: manager 26 DB-23.

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::node_resource::fixture::{World, batch};
use crate::node_resource::plugin::NodeMemory;

mod day;
mod examples;

/// Half an hour.
const WINDOW: i64 = 1800;

/// The same node under both strategies.
struct Both {
    world: World,
    memories: [NodeMemory; 2],
}

impl Both {
    fn new() -> Both {
        Both { world: World::n1(), memories: Default::default() }
    }

    /// Batch cpu by default and by the steadier strategy after so many seconds and a new report.
    fn after(&mut self, seconds: i64) -> [Option<i64>; 2] {
        self.world.now += SignedDuration::from_secs(seconds);
        self.world.report_age(SignedDuration::ZERO);
        self.now()
    }

    /// The same without one.
    fn after_silence(&mut self, seconds: i64) -> [Option<i64>; 2] {
        self.world.now += SignedDuration::from_secs(seconds);
        self.now()
    }

    fn now(&mut self) -> [Option<i64>; 2] {
        let [plain, steady] = &mut self.memories;
        let by_default = batch(&self.world.plan_with(plain)).0;
        let mut world = self.world.clone();
        world.set(json!({"batchStabilizationWindowSeconds": WINDOW}));
        [by_default, batch(&world.plan_with(steady)).0]
    }
}

#[test]
fn a_pod_that_has_just_landed() {
    let mut both = Both::new();
    // `new` has not been measured: 4 cores by default, half of that by the steadier strategy, for those here use less.
    assert_eq!(both.after(0), [Some(12_400), Some(14_400)]);
    both.world.usage("new", "koord-prod", "2", "4Gi");
    assert_eq!(both.after(60), [Some(14_400), Some(14_400)]);
    both.world.pod("late", "LS", "koord-prod", "8", "8Gi");
    // It will use 2 cores. By default 8 are taken away and 6 of them given back a minute later.
    assert_eq!(both.after(60), [Some(6_400), Some(10_400)], "manager#26.DB-23");
    both.world.usage("late", "koord-prod", "2", "2Gi");
    assert_eq!(both.after(60), [Some(12_400), Some(10_400)]);
    assert_eq!(both.after(WINDOW - 60), [Some(12_400), Some(10_400)], "held for the window");
    assert_eq!(both.after(61), [Some(12_400), Some(12_400)], "and then given back");
}

#[test]
fn a_pod_that_is_gone_but_still_reported() {
    let mut both = Both::new();
    both.world.usage("new", "koord-prod", "2", "4Gi");
    assert_eq!(both.after(0), [Some(14_400), Some(14_400)]);
    both.world.pods.retain(|pod| pod["metadata"]["name"] != "web");
    assert_eq!(both.after(60), [Some(14_400), Some(14_400)], "its use counts while it is reported");
    both.world.unreport("web");
    assert_eq!(both.after(60), [Some(20_400), Some(14_400)]);
    assert_eq!(both.after(WINDOW), [Some(20_400), Some(20_400)]);
    // A batch job ended, and the agent no longer knows of what class it was.
    both.world.phase("spark", "Succeeded");
    both.world.usage("spark", "", "10", "20Gi");
    both.world.metric["status"]["podsMetric"].as_array_mut().unwrap().last_mut().unwrap()["qos"] =
        json!("BE");
    assert_eq!(both.after(60), [Some(10_400), Some(20_400)], "its use is no loss");
}

#[test]
fn a_gap_in_the_reports() {
    let mut both = Both::new();
    both.world.usage("new", "koord-prod", "2", "4Gi");
    assert_eq!(both.after(0), [Some(14_400), Some(14_400)]);
    assert_eq!(both.after_silence(15 * 60 + 1), [None, Some(14_400)], "manager#26.DB-23");
    both.world.pod("late", "LS", "koord-prod", "8", "8Gi");
    assert_eq!(both.after_silence(60), [None, Some(6_400)], "who comes now counts in full");
    both.world.pods.pop();
    assert_eq!(both.after_silence(WINDOW - 60), [None, None], "not for ever");
    assert_eq!(both.after(0), [Some(14_400), Some(6_400)], "what was claimed meanwhile is held");
    assert_eq!(both.after(WINDOW), [Some(14_400), Some(14_400)]);
}

#[test]
fn a_metric_that_was_deleted() {
    let mut both = Both::new();
    both.world.usage("new", "koord-prod", "2", "4Gi");
    both.after(0);
    let metric = std::mem::take(&mut both.world.metric);
    assert_eq!(both.after_silence(60), [None, Some(14_400)]);
    // Made anew by the manager, and not yet filled.
    both.world.metric = json!({"metadata": {"name": "n1"}});
    assert_eq!(both.after_silence(60), [None, Some(14_400)]);
    both.world.metric = metric;
    assert_eq!(both.after(60), [Some(14_400), Some(14_400)]);
}

#[test]
fn a_report_that_lacks_pods() {
    let mut both = Both::new();
    both.world.usage("new", "koord-prod", "2", "4Gi");
    assert_eq!(both.after(0), [Some(14_400), Some(14_400)]);
    let pods = both.world.metric["status"]["podsMetric"].take();
    both.world.metric["status"]["podsMetric"] = json!([]);
    // All count with their requests by default: 64 - 25.6 - 5 - 28 cores.
    assert_eq!(both.after(60), [Some(5_400), Some(14_400)]);
    assert_eq!(both.after(WINDOW), [Some(5_400), Some(15_400)], "only what was dangling is gone");
    both.world.metric["status"]["podsMetric"] = pods;
    assert_eq!(both.after(60), [Some(14_400), Some(14_400)]);
}

#[test]
fn growing_demand_and_new_strategies_count_at_once() {
    let mut both = Both::new();
    both.world.usage("new", "koord-prod", "2", "4Gi");
    assert_eq!(both.after(0), [Some(14_400), Some(14_400)]);
    both.world.usage("web", "koord-prod", "10", "40Gi");
    assert_eq!(both.after(60), [Some(10_400), Some(10_400)]);
    both.world.usage("web", "koord-prod", "6", "40Gi");
    assert_eq!(both.after(60), [Some(14_400), Some(10_400)]);
    both.world.set(json!({"cpuReclaimThresholdPercent": 70}));
    assert_eq!(both.after(0), [Some(20_800), Some(16_800)], "6.4 cores more to lend");
    both.world.set(json!({"cpuCalculatePolicy": "maxUsageRequest"}));
    assert_eq!(both.after(60), [Some(8_800), Some(8_800)], "counted anew");
}

#[test]
fn the_highest_of_the_window() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let amount = |cores: i64| Quantity::cores_milli(cores * 1000);
    let mut window = Window::default();
    let mut next = |second, cores| window.highest(at(second - 10), at(second), amount(cores));
    assert_eq!(next(0, 3), amount(3));
    assert_eq!(next(5, 2), amount(3));
    assert_eq!(next(10, 1), amount(3), "still within it");
    assert_eq!(next(11, 1), amount(2));
    assert_eq!(next(12, 5), amount(5));
    assert_eq!(next(22, 0), amount(5));
    assert_eq!(next(23, 0), amount(0));
}
