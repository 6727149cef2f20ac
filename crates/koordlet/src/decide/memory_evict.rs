//! Eviction for want of memory. Spec: koordlet-enforce 9.

use koord_api::crd::node_slo::ResourceThresholdStrategy;
use koord_api::number::{nearest, truncated};

use super::evict::ledger::{self, Ledger, Shortage};
use super::evict::pressure::{Pressure, PressureError, Release};
use super::evict::{
    Amounts, Kind, Resource, Task, Trigger, best_effort_victims, priority_victims, sort_by_use,
};
use super::snapshot::{MemoryUsage, Node, Pod};

/// Everything the memory triggers look at.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    pub node: &'a Node,
    pub pods: &'a [Pod],
    pub usage: &'a MemoryUsage,
}

impl<'a> Sample<'a> {
    /// What must be freed; none without a sample or below the threshold.
    fn release(&self, strategy: &ResourceThresholdStrategy) -> Result<Option<Release>, PressureError> {
        let pressure =
            Pressure::new(strategy.memory_evict_threshold_percent, strategy.memory_evict_lower_percent)?;
        let used = self.usage.node.map(truncated);
        Ok(used.and_then(|used| pressure.release(used, self.node.memory_capacity())))
    }

    fn task(&self, trigger: Trigger, release: &Release, victims: Vec<&'a Pod>) -> Task<'a> {
        let usage = self.usage;
        Task {
            trigger,
            kind: Kind::Used,
            wanted: Amounts::from([(Resource::Memory, release.amount)]),
            numbers: release.to_string(),
            victims,
            frees: Box::new(move |pod| Amounts::from([(Resource::Memory, used(usage, pod).unwrap_or(0))])),
        }
    }
}

/// Best-effort pods go while the node is too full.
pub fn by_best_effort<'a>(
    sample: &Sample<'a>,
    strategy: &ResourceThresholdStrategy,
) -> Result<Option<(Task<'a>, Release)>, PressureError> {
    let Some(release) = sample.release(strategy)? else { return Ok(None) };
    let mut victims = best_effort_victims(sample.pods, Trigger::BeMemory);
    sort_by_use(&mut victims, |pod| used(sample.usage, pod).unwrap_or(0));
    Ok(Some((sample.task(Trigger::BeMemory, &release, victims), release)))
}

/// Pods go by priority while the node is too full.
///
/// Differs: memory is counted in bytes, where upstream counts a thousand times as much as freed (item 9).
pub fn by_usage<'a>(
    sample: &Sample<'a>,
    strategy: &ResourceThresholdStrategy,
) -> Result<Option<(Task<'a>, Release)>, PressureError> {
    let priority_max = strategy
        .evict_enabled_priority_threshold
        .ok_or(PressureError::NotConfigured("EvictEnabledPriorityThreshold"))?;
    let Some(release) = sample.release(strategy)? else { return Ok(None) };
    let size = |pod: &Pod| used(sample.usage, pod).map(nearest);
    let victims = priority_victims(sample.pods, Trigger::Memory, priority_max, size);
    Ok(Some((sample.task(Trigger::Memory, &release, victims), release)))
}

/// Pods go by priority while more is requested than the node offers.
pub fn by_ledger<'a>(
    sample: &Sample<'a>,
    strategy: &ResourceThresholdStrategy,
) -> Result<Option<(Task<'a>, Vec<Shortage>)>, PressureError> {
    let ledger = Ledger::new(
        strategy.memory_allocatable_evict_threshold_percent,
        strategy.memory_allocatable_evict_lower_percent,
        strategy.allocatable_evict_priority_threshold,
    )?;
    let resources = [Resource::MidMemory, Resource::BatchMemory];
    let shortages = ledger.shortages(sample.pods, &sample.node.allocatable, resources);
    if shortages.is_empty() {
        return Ok(None);
    }
    let short = shortages.clone();
    let request = |pod: &Pod| ledger::frees(pod, &short).into_values().fold(0, i64::saturating_add);
    let size = |pod: &Pod| used(sample.usage, pod).map(|_| nearest(request(pod)));
    let victims = priority_victims(sample.pods, Trigger::MemoryAllocatable, ledger.priority_max, size);
    let frees = shortages.clone();
    let task = Task {
        trigger: Trigger::MemoryAllocatable,
        kind: Kind::Requested,
        wanted: shortages.iter().map(|shortage| (shortage.resource, shortage.release)).collect(),
        numbers: ledger::numbers(&ledger, &shortages),
        victims: victims.into_iter().filter(|pod| request(pod) > 0).collect(),
        frees: Box::new(move |pod| ledger::frees(pod, &frees)),
    };
    Ok(Some((task, shortages)))
}

fn used(usage: &MemoryUsage, pod: &Pod) -> Option<i64> {
    usage.pods.get(&pod.id.uid).map(|bytes| truncated(*bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::decide::evict::{Outcome, Round};
    use crate::decide::sketch::{PodSketch, node, pod};

    const GIB: f64 = 1_073_741_824.0;

    fn strategy(threshold: i64, lower: Option<i64>) -> ResourceThresholdStrategy {
        ResourceThresholdStrategy {
            memory_evict_threshold_percent: Some(threshold),
            memory_evict_lower_percent: lower,
            evict_enabled_priority_threshold: Some(7999),
            ..ResourceThresholdStrategy::default()
        }
    }

    fn usage(node_gib: f64, pods: &[(&str, f64)]) -> MemoryUsage {
        let pods = pods.iter().map(|(uid, bytes)| (Arc::from(*uid), *bytes)).collect();
        MemoryUsage { node: Some(node_gib * GIB), pods }
    }

    #[test]
    fn releases() {
        let node = node(&[("memory", "100Gi")], &[]).read();
        for (key, used, threshold, lower, want) in [
            ("koordlet-enforce#18.53", 71.9, 70, None, Some(3.0)),
            ("koordlet-enforce#18.54", 69.99, 70, None, None),
            ("koordlet-enforce#18.55", 80.0, 70, Some(60), Some(20.0)),
            ("koordlet-enforce#18.163", 70.0, 70, None, Some(2.0)),
            ("koordlet-enforce#18.164", 70.0, 1, None, Some(71.0)),
        ] {
            let usage = usage(used, &[]);
            let sample = Sample { node: &node, pods: &[], usage: &usage };
            let task = by_best_effort(&sample, &strategy(threshold, lower)).unwrap();
            assert_eq!(task.map(|(_, release)| nearest(release.amount) / GIB), want, "{key}");
        }
        let usage = usage(80.0, &[]);
        let sample = Sample { node: &node, pods: &[], usage: &usage };
        let error = by_best_effort(&sample, &strategy(70, Some(70))).unwrap_err().to_string();
        assert_eq!(
            error, "lower percent(70) should less than threshold percent(70)",
            "koordlet-enforce#18.56"
        );
        let error = by_best_effort(&sample, &strategy(-1, None)).unwrap_err().to_string();
        assert_eq!(error, "threshold percent(-1) should equal or greater than 0");
    }

    fn pods(list: &[(&str, i32)]) -> Vec<Pod> {
        let be = |(name, priority): &(&str, i32)| {
            pod(name).qos("BE").priority(*priority).label("koordinator.sh/eviction-enabled", "true")
        };
        list.iter().map(be).map(|sketch: PodSketch| sketch.read()).collect()
    }

    #[test]
    fn victims_of_best_effort() {
        let node = node(&[("memory", "100Gi")], &[]).read();
        let pods = pods(&[("a", 5500), ("b", 5500), ("e", 5500), ("f", 5500), ("c", 5000), ("d", 5999)]);
        let usage = usage(80.0, &[("a", 100.0), ("b", 300.0), ("c", 10.0), ("d", 1000.0)]);
        let sample = Sample { node: &node, pods: &pods, usage: &usage };
        let (task, _) = by_best_effort(&sample, &strategy(70, None)).unwrap().unwrap();
        let names: Vec<&str> = task.victims.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["c", "b", "a", "f", "e", "d"], "koordlet-enforce#18.165");
    }

    /// Only mid and batch memory counts, of pods that may go and of those that may not.
    #[test]
    fn more_is_requested_than_there_is() {
        let batch = "kubernetes.io/batch-memory";
        let asking = |name: &str, priority: i32, bytes: &str| {
            let requests = [(batch, bytes)];
            let pod = pod(name).qos("BE").priority(priority).container("c", &requests, &[]);
            pod.label("koordinator.sh/eviction-enabled", "true")
        };
        let service = pod("s").qos("LS").priority(9000).container("c", &[("memory", "900Gi")], &[]);
        let pods = [asking("a", 5500, "4Gi").read(), asking("b", 5400, "2Gi").read(), service.read()];
        let usage = usage(0.0, &[("a", GIB), ("b", GIB)]);
        let limits = |threshold, lower, priority| ResourceThresholdStrategy {
            memory_allocatable_evict_threshold_percent: threshold,
            memory_allocatable_evict_lower_percent: lower,
            allocatable_evict_priority_threshold: priority,
            ..ResourceThresholdStrategy::default()
        };
        let gone = |allocatable: &str, strategy: &ResourceThresholdStrategy| -> Result<Vec<String>, String> {
            let node = node(&[], &[(batch, allocatable), ("memory", "64Gi")]).read();
            let sample = Sample { node: &node, pods: &pods, usage: &usage };
            let found = by_ledger(&sample, strategy).map_err(|error| error.to_string())?;
            let tasks: Vec<Task<'_>> = found.into_iter().map(|(task, _)| task).collect();
            let pending = BTreeSet::new();
            let mut round = Round::new(&tasks, &pending);
            let mut gone = Vec::new();
            while let Some(order) = round.next_victim() {
                gone.push(order.pod.name.clone());
                round.done(Outcome::Leaving);
            }
            Ok(gone)
        };
        let whole = limits(Some(100), Some(80), Some(7999));
        // api 7.4: 6 of 5 GiB is more than 110 percent, and 100 percent of it remain.
        for (allocatable, want) in [("5.5Gi", &[][..]), ("5Gi", &["b"])] {
            assert_eq!(gone(allocatable, &limits(None, None, Some(7999))).unwrap(), want, "{allocatable}");
        }
        for (allocatable, want) in
            [("6Gi", &[][..]), ("5Gi", &["b"]), ("4Gi", &["b", "a"]), ("0", &["b", "a"])]
        {
            assert_eq!(gone(allocatable, &whole).unwrap(), want, "{allocatable}");
        }
        for (strategy, want) in [
            (limits(Some(90), None, Some(7999)), "lower percent(100) should less than threshold percent(90)"),
            (limits(Some(100), Some(80), None), "AllocatableEvictPriorityThreshold not config"),
            (limits(Some(80), Some(80), Some(1)), "lower percent(80) should less than threshold percent(80)"),
        ] {
            assert_eq!(gone("5Gi", &strategy), Err(want.to_owned()));
        }
        assert!(gone("5Gi", &limits(Some(100), Some(80), Some(8000))).is_err(), "prod pods never go");
        assert_eq!(
            gone("5Gi", &limits(Some(100), Some(80), Some(5399))).unwrap(),
            [""; 0],
            "nobody's priority"
        );
    }

    #[test]
    fn how_many_go() {
        let node = node(&[("memory", "100Gi")], &[]).read();
        let pods = pods(&[("c", 5000), ("b", 5500), ("a", 5500), ("d", 5999)]);
        let usage = usage(80.0, &[("c", 3.0 * GIB), ("b", 6.0 * GIB), ("a", 4.0 * GIB), ("d", 20.0 * GIB)]);
        let sample = Sample { node: &node, pods: &pods, usage: &usage };
        for (key, task) in [
            ("koordlet-enforce#18.166", by_best_effort(&sample, &strategy(70, None))),
            ("koordlet-enforce#18.167", by_usage(&sample, &strategy(70, None))),
        ] {
            let tasks = [task.unwrap().unwrap().0];
            let pending = BTreeSet::new();
            let mut round = Round::new(&tasks, &pending);
            let mut gone = Vec::new();
            while let Some(order) = round.next_victim() {
                gone.push(order.pod.name.as_str());
                round.done(Outcome::Leaving);
            }
            assert_eq!(gone, ["c", "b", "a"], "{key}");
        }
    }
}
