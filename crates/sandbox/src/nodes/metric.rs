//! NodeMetric as koordlet reports it: a ring of samples, and the status made from it.
//!
//! Pure. Spec: koordlet-observe 7.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use koord_api::crd::device::{DeviceInfo, DeviceType};
use koord_api::crd::node_metric::{
    AggregatedUsage, AggregationType, MetricCollectPolicy, NodeMetricInfo, NodeMetricStatus, PodMetricInfo,
    PredictedMetric, ResourceMap,
};
use koord_api::duration::GoDuration;
use koord_api::keys::resource::{CPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, MEMORY};
use koord_api::priority::PriorityClass;
use koord_api::qos::Qos;
use koord_api::quantity::{Family, Quantity, ResourceList};
use koord_api::time::Time;
use serde_json::{Value, json};

use super::shape::Shape;
use super::usage::Use;

/// How often a node is measured; koordlet does it every second, which no report shows.
pub(crate) const SAMPLE_SECONDS: i64 = 15;
/// Half an hour of samples: the longest window that koordlet reports by default.
const SAMPLES_MAX: usize = 121;
const PAGE: i64 = 4096;

/// A measurement in few bytes: there are many nodes.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Seconds since 1970.
    at: u32,
    cpu: u32,
    system_cpu: u32,
    /// In pages.
    memory: u32,
    system_memory: u32,
}

/// The measurements of the last half hour, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    ring: VecDeque<Sample>,
}

impl Samples {
    pub(crate) fn push(&mut self, now: Timestamp, node: Use, system: Use) {
        let small = |amount: i64| u32::try_from(amount).unwrap_or(if amount < 0 { 0 } else { u32::MAX });
        if self.ring.len() == SAMPLES_MAX {
            self.ring.pop_front();
        }
        self.ring.push_back(Sample {
            at: small(now.as_second()),
            cpu: small(node.cpu),
            system_cpu: small(system.cpu),
            memory: small(node.memory / PAGE),
            system_memory: small(system.memory / PAGE),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Node and system within a window that ends now, oldest first; and how much time they span.
    fn within(&self, window: SignedDuration, now: Timestamp) -> (Vec<(Use, Use)>, i64) {
        let start = now.as_second() - window.as_secs();
        let inside = self.ring.iter().filter(|sample| i64::from(sample.at) >= start);
        let (mut oldest, mut newest) = (None, 0);
        let mut uses = Vec::new();
        for sample in inside {
            oldest.get_or_insert(sample.at);
            newest = sample.at;
            let memory = |pages: u32| i64::from(pages) * PAGE;
            let node = Use { cpu: i64::from(sample.cpu), memory: memory(sample.memory) };
            let system = Use { cpu: i64::from(sample.system_cpu), memory: memory(sample.system_memory) };
            uses.push((node, system));
        }
        let span = oldest.map_or(0, |oldest| i64::from(newest) - i64::from(oldest));
        (uses, span)
    }
}

/// How to measure, with koordlet's defaults and floors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    pub(crate) aggregate: SignedDuration,
    pub(crate) interval: SignedDuration,
    durations: Vec<GoDuration>,
}

const MINUTE: i64 = 60;

impl Policy {
    pub(crate) fn of(policy: Option<&MetricCollectPolicy>) -> Policy {
        let none = MetricCollectPolicy::default();
        let policy = policy.unwrap_or(&none);
        let seconds = |value: Option<i64>, default: i64, floor: i64| {
            SignedDuration::from_secs(value.unwrap_or(default).max(floor))
        };
        let durations =
            policy.node_aggregate_policy.as_ref().map(|p| p.durations.clone()).unwrap_or_default();
        let default = [5, 10, 30].map(|minutes| GoDuration::from_seconds(minutes * MINUTE));
        Policy {
            aggregate: seconds(policy.aggregate_duration_seconds, 5 * MINUTE, MINUTE),
            interval: seconds(policy.report_interval_seconds, MINUTE, 30),
            durations: if durations.is_empty() { default.to_vec() } else { durations },
        }
    }
}

/// The spec that koord-manager gives by default, for clusters without one.
pub(crate) fn default_spec() -> Value {
    json!({"metricCollectPolicy": {
        "aggregateDurationSeconds": 300, "reportIntervalSeconds": 60,
        "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }})
}

/// A pod as the report names it.
#[derive(Clone, Debug)]
pub(crate) struct PodRow {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) used: Use,
    pub(crate) priority: Option<PriorityClass>,
    pub(crate) qos: Option<Qos>,
    /// By minor number.
    pub(crate) gpus: BTreeMap<u32, GpuUse>,
}

/// Use of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuUse {
    /// Hundredths of its cores.
    pub(crate) core: i64,
    /// Bytes.
    pub(crate) memory: i64,
}

/// Everything a report is made of.
pub(crate) struct Inputs<'a> {
    pub(crate) node: &'a str,
    pub(crate) shape: &'a Shape,
    pub(crate) policy: &'a Policy,
    pub(crate) samples: &'a Samples,
    pub(crate) pods: Vec<PodRow>,
    pub(crate) reclaimable: Use,
    pub(crate) now: Timestamp,
}

/// The status koordlet would write.
pub(crate) fn status(inputs: Inputs<'_>) -> NodeMetricStatus {
    let Inputs { policy, samples, now, .. } = inputs;
    let (recent, _) = samples.within(policy.aggregate, now);
    let gpus = node_gpus(&inputs);
    let devices = |map: Option<Use>| {
        map.map_or_else(ResourceMap::default, |used| ResourceMap {
            devices: gpus.clone(),
            ..resource_map(used)
        })
    };
    let mut node = Vec::new();
    let mut system = Vec::new();
    for duration in &policy.durations {
        let window = SignedDuration::from_nanos(duration.0);
        let (uses, span) = samples.within(window, now);
        // Too few samples to speak for the window.
        let is_cold = span * 2 < window.as_secs();
        let side = |pick: fn(&(Use, Use)) -> Use, devices: &dyn Fn(Option<Use>) -> ResourceMap| {
            let uses: Vec<Use> = uses.iter().map(pick).filter(|_| !is_cold).collect();
            let usage =
                AGGREGATES.iter().map(|(kind, share)| (kind.clone(), devices(aggregate(&uses, *share))));
            AggregatedUsage { usage: usage.collect(), duration: *duration }
        };
        node.push(side(|pair| pair.0, &devices));
        system.push(side(|pair| pair.1, &|used| used.map(resource_map).unwrap_or_default()));
    }
    let mean = |pick: fn(&(Use, Use)) -> Use| aggregate(&recent.iter().map(pick).collect::<Vec<_>>(), None);
    let mut pods = inputs.pods;
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    NodeMetricStatus {
        update_time: Some(Time(now)),
        node_metric: Some(NodeMetricInfo {
            node_usage: devices(mean(|pair| pair.0)),
            aggregated_node_usages: node,
            system_usage: mean(|pair| pair.1).map(resource_map).unwrap_or_default(),
            aggregated_system_usages: system,
            numa_usages: Vec::new(),
        }),
        pods_metric: pods.into_iter().map(|pod| pod_metric(pod, inputs.node, inputs.shape)).collect(),
        prod_reclaimable_metric: Some(PredictedMetric { resource: resource_map(inputs.reclaimable) }),
        ..NodeMetricStatus::default()
    }
}

/// The aggregates of a window; no share is the mean.
const AGGREGATES: [(AggregationType, Option<f32>); 5] = [
    (AggregationType::Avg, None),
    (AggregationType::P50, Some(0.5)),
    (AggregationType::P90, Some(0.9)),
    (AggregationType::P95, Some(0.95)),
    (AggregationType::P99, Some(0.99)),
];

/// Mean or percentile of each resource by itself. Spec: koordlet-observe 4.4.
fn aggregate(uses: &[Use], share: Option<f32>) -> Option<Use> {
    let pick = |of: fn(&Use) -> i64| -> Option<i64> {
        let mut values: Vec<i64> = uses.iter().map(of).collect();
        let count = i64::try_from(values.len()).ok().filter(|count| *count > 0)?;
        let Some(share) = share else { return Some(values.iter().sum::<i64>() / count) };
        values.sort_unstable();
        values.get(percentile_index(values.len(), share)).copied()
    };
    Some(Use { cpu: pick(|used| used.cpu)?, memory: pick(|used| used.memory)? })
}

/// Upstream multiplies in single precision, cuts, and counts from one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn percentile_index(count: usize, share: f32) -> usize {
    ((count as f32 * share) as usize).saturating_sub(1)
}

fn resource_map(used: Use) -> ResourceMap {
    let resources = ResourceList::from([
        (CPU.to_owned(), Quantity::cores_milli(used.cpu)),
        (MEMORY.to_owned(), Quantity::bytes(used.memory)),
    ]);
    ResourceMap { resources, devices: Vec::new() }
}

fn pod_metric(pod: PodRow, node: &str, shape: &Shape) -> PodMetricInfo {
    let devices = pod.gpus.iter().map(|(minor, used)| gpu(node, shape, *minor, *used)).collect();
    PodMetricInfo {
        pod_usage: ResourceMap { devices, ..resource_map(pod.used) },
        name: pod.name,
        namespace: pod.namespace,
        priority: pod.priority.map_or("", PriorityClass::name).to_owned(),
        qos: pod.qos.map_or("", Qos::as_str).to_owned(),
        extensions: None,
    }
}

/// Every GPU of the node, also those that idle.
fn node_gpus(inputs: &Inputs<'_>) -> Vec<DeviceInfo> {
    let mut sums: BTreeMap<u32, GpuUse> =
        (0..inputs.shape.gpus.count).map(|minor| (minor, GpuUse::default())).collect();
    for (minor, used) in inputs.pods.iter().flat_map(|pod| &pod.gpus) {
        if let Some(sum) = sums.get_mut(minor) {
            sum.core += used.core;
            sum.memory += used.memory;
        }
    }
    sums.into_iter().map(|(minor, used)| gpu(inputs.node, inputs.shape, minor, used)).collect()
}

fn gpu(node: &str, shape: &Shape, minor: u32, used: GpuUse) -> DeviceInfo {
    let number = |value: i64| Quantity::from_value(value, Family::DecimalSi);
    let ratio = used.memory.saturating_mul(100) / shape.gpus.memory.max(1);
    DeviceInfo {
        device_type: DeviceType::Gpu,
        id: super::devices::gpu_id(node, minor),
        minor: i32::try_from(minor).ok(),
        resources: ResourceList::from([
            (GPU_CORE.to_owned(), number(used.core)),
            (GPU_MEMORY.to_owned(), Quantity::bytes(used.memory)),
            (GPU_MEMORY_RATIO.to_owned(), number(ratio)),
        ]),
        ..DeviceInfo::default()
    }
}

#[cfg(test)]
mod tests;
