//! NodeMetric: what the node, its pods and its applications used of late. Spec: koordlet-observe 7.
//!
//! [`measure`] is called where the series store lives; `write` carries the result to the API server.

pub mod gauges;
pub mod write;

use std::sync::Arc;

use jiff::Timestamp;
use koord_api::crd::device::{DeviceInfo, DeviceType};
use koord_api::crd::node_metric::{
    AggregatedUsage, AggregationType, HostApplicationMetricInfo, NodeMemoryCollectPolicy, NodeMetricInfo,
    NodeMetricStatus, NumaUsage, PodMetricInfo, PredictedMetric, ResourceMap,
};
use koord_api::duration::GoDuration;
use koord_api::keys::resource::{CPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, MEMORY};
use koord_api::number::{nearest, truncated};
use koord_api::priority::PriorityClass;
use koord_api::quantity::{Family, Quantity, ResourceList};
use koord_api::time::Time;

use crate::predict::reclaimable::{Candidate, Prediction, amount, predict};
use crate::predict::{Amount, Predictor};
use crate::state::{MetricPolicy, PodState, Snapshot};
use crate::store::{Aggregate, Kind, Points, Store, Window};

/// What a report is made from.
#[derive(Clone, Copy)]
pub struct Sources<'s> {
    pub store: &'s Store,
    pub snapshot: &'s Snapshot,
    pub predictor: &'s Predictor,
    pub gpus: &'s [Gpu],
    /// Whether memory with page cache is measured.
    pub has_page_cache: bool,
    /// Whether cold pages are measured, so that use with hot pages is known.
    pub has_cold_pages: bool,
}

/// A GPU of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub minor: i32,
    pub uuid: Arc<str>,
    pub memory_total: i64,
    pub is_healthy: bool,
}

/// A report and what is worth a metric or a log line about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub status: NodeMetricStatus,
    pub prediction: Prediction,
    /// `namespace/name` of pods without samples.
    pub left_out: Vec<String>,
    /// Why memory is not told as the NodeMetric asks.
    pub memory_fault: Option<&'static str>,
}

/// The percentiles of a window, in upstream's order.
const AGGREGATES: [(AggregationType, Aggregate); 5] = [
    (AggregationType::Avg, Aggregate::Avg),
    (AggregationType::P50, Aggregate::P50),
    (AggregationType::P90, Aggregate::P90),
    (AggregationType::P95, Aggregate::P95),
    (AggregationType::P99, Aggregate::P99),
];

/// What was used up to now.
pub fn measure(sources: Sources<'_>, now_ms: i64) -> Report {
    let policy = &*sources.snapshot.metric_policy;
    let meter = Meter::new(sources, policy, now_ms);
    let (pods, left_out) = meter.pods();
    let candidates: Vec<Candidate> = pods.iter().map(|(state, _)| Candidate::of(state)).collect();
    let node = sources.snapshot.node.as_ref().map(|node| amount(&node.raw_allocatable()));
    let prediction = predict(sources.predictor, sources.predictor.settings(), &candidates, node, now_ms);
    let status = NodeMetricStatus {
        update_time: Timestamp::from_millisecond(now_ms).ok().map(Time),
        node_metric: Some(meter.node(policy)),
        pods_metric: pods.into_iter().map(|(_, info)| info).collect(),
        host_application_metric: meter.applications(),
        prod_reclaimable_metric: Some(PredictedMetric {
            resource: prediction
                .reclaimable
                .total
                .as_ref()
                .map_or_else(|_| ResourceMap::default(), predicted),
        }),
        prod_peak_metric: prediction
            .peak
            .total
            .as_ref()
            .ok()
            .map(|peak| PredictedMetric { resource: predicted(peak) }),
    };
    let memory_fault = memory_fault(policy.memory, sources);
    Report { status, prediction, left_out, memory_fault }
}

/// What a policy needs that is not measured, and what comes of that.
fn memory_fault(policy: NodeMemoryCollectPolicy, sources: Sources<'_>) -> Option<&'static str> {
    match policy {
        NodeMemoryCollectPolicy::UsageWithPageCache if !sources.has_page_cache => Some(
            "usageWithPageCache needs --enable-pagecache-collector; without it the use of the node is empty and pods are \
             left out",
        ),
        NodeMemoryCollectPolicy::UsageWithHotPageCache if !sources.has_cold_pages => Some(
            "usageWithHotPageCache needs the gate ColdPageCollector and a kernel with kidled; without them memory is \
             told without page cache",
        ),
        _ => None,
    }
}

fn predicted(amount: &Amount) -> ResourceMap {
    plain([(CPU, Quantity::cores_milli(amount.cpu_milli)), (MEMORY, Quantity::bytes(amount.memory))])
}

fn plain<const N: usize>(amounts: [(&str, Quantity); N]) -> ResourceMap {
    ResourceMap { resources: list(amounts), devices: Vec::new() }
}

fn list<const N: usize>(amounts: [(&str, Quantity); N]) -> ResourceList {
    amounts.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
}

/// CPU and memory in the form that reports carry. Spec: koordlet-observe 7.3.
fn usage(cores: f64, bytes: f64) -> ResourceMap {
    plain([
        (CPU, Quantity::cores_milli(truncated(cores * 1000.0))),
        (MEMORY, Quantity::bytes(truncated(bytes))),
    ])
}

/// Which series tell the memory.
struct MemoryKinds {
    node: Kind,
    pod: Kind,
    application: Kind,
}

impl MemoryKinds {
    fn of(policy: NodeMemoryCollectPolicy, has_cold_pages: bool) -> MemoryKinds {
        match policy {
            NodeMemoryCollectPolicy::UsageWithPageCache => MemoryKinds {
                node: Kind::NodeMemoryUsageWithPageCache,
                pod: Kind::PodMemoryUsageWithPageCache,
                application: Kind::HostApplicationMemoryUsageWithPageCache,
            },
            NodeMemoryCollectPolicy::UsageWithHotPageCache if has_cold_pages => MemoryKinds {
                node: Kind::NodeMemoryWithHotPageUsage,
                pod: Kind::PodMemoryWithHotPageUsage,
                application: Kind::HostApplicationMemoryWithHotPageUsage,
            },
            NodeMemoryCollectPolicy::UsageWithHotPageCache
            | NodeMemoryCollectPolicy::UsageWithoutPageCache => MemoryKinds {
                node: Kind::NodeMemoryUsage,
                pod: Kind::PodMemoryUsage,
                application: Kind::HostApplicationMemoryUsage,
            },
        }
    }
}

/// Reads the store for one report.
struct Meter<'s> {
    sources: Sources<'s>,
    kinds: MemoryKinds,
    now_ms: i64,
    /// The window of plain averages.
    window: Window,
}

impl<'s> Meter<'s> {
    fn new(sources: Sources<'s>, policy: &MetricPolicy, now_ms: i64) -> Meter<'s> {
        let start_ms = now_ms.saturating_sub(policy.aggregate_seconds.saturating_mul(1000));
        Meter {
            sources,
            kinds: MemoryKinds::of(policy.memory, sources.has_cold_pages),
            now_ms,
            window: Window { start_ms, end_ms: now_ms },
        }
    }

    fn points(&self, kind: Kind, values: &[&Arc<str>], window: Window) -> Points {
        let properties: Vec<_> =
            kind.properties().iter().zip(values).map(|(property, value)| (*property, &***value)).collect();
        match kind.select(&properties) {
            Ok(selector) => self.sources.store.query(&selector, window),
            Err(_) => Points::default(),
        }
    }

    fn average(&self, kind: Kind, values: &[&Arc<str>]) -> Option<f64> {
        self.points(kind, values, self.window).value(Aggregate::Avg).ok()
    }

    /// Averages of CPU and memory; none unless both were measured.
    fn averages(&self, cpu: Kind, memory: Kind, values: &[&Arc<str>]) -> Option<ResourceMap> {
        Some(usage(self.average(cpu, values)?, self.average(memory, values)?))
    }

    fn node(&self, policy: &MetricPolicy) -> NodeMetricInfo {
        let memory = self.kinds.node;
        let mut node_usage = self.averages(Kind::NodeCpuUsage, memory, &[]).unwrap_or_default();
        if !node_usage.resources.is_empty() {
            node_usage.devices = self.node_gpus(Aggregate::Avg, self.window);
        }
        let windows = |cpu: Kind, memory: Kind| {
            policy.windows.iter().map(|length| self.aggregated(cpu, memory, *length)).collect()
        };
        NodeMetricInfo {
            node_usage,
            aggregated_node_usages: windows(Kind::NodeCpuUsage, memory),
            system_usage: self.averages(Kind::SysCpuUsage, Kind::SysMemoryUsage, &[]).unwrap_or_default(),
            aggregated_system_usages: windows(Kind::SysCpuUsage, Kind::SysMemoryUsage),
            numa_usages: self.numa_nodes(),
        }
    }

    /// The percentiles of one window; all empty while there are samples for less than half of it.
    fn aggregated(&self, cpu: Kind, memory: Kind, length: GoDuration) -> AggregatedUsage {
        let length_ms = length.0 / 1_000_000;
        let window = Window { start_ms: self.now_ms.saturating_sub(length_ms), end_ms: self.now_ms };
        let cores = self.points(cpu, &[], window);
        let bytes = self.points(memory, &[], window);
        let is_cold = cores.span_ms().saturating_mul(2) < length_ms;
        let of = |aggregate: Aggregate| {
            let (cores, bytes) = (cores.value(aggregate).ok()?, bytes.value(aggregate).ok()?);
            let mut map = usage(cores, bytes);
            if cpu == Kind::NodeCpuUsage {
                map.devices = self.node_gpus(aggregate, window);
            }
            Some(map)
        };
        let value = |aggregate| if is_cold { None } else { of(aggregate) }.unwrap_or_default();
        let usage = AGGREGATES.into_iter().map(|(name, aggregate)| (name, value(aggregate)));
        AggregatedUsage { usage: usage.collect(), duration: length }
    }

    /// NUMA nodes that were measured, by id. The system's part may be missing.
    fn numa_nodes(&self) -> Vec<NumaUsage> {
        let series = self.sources.store.series(Kind::NodeNumaCpuUsage);
        let mut usages: Vec<NumaUsage> = series
            .filter_map(|(key, _)| {
                let id = key.values().first()?;
                Some(NumaUsage {
                    numa_node_id: id.parse().ok()?,
                    node_usage: self.averages(Kind::NodeNumaCpuUsage, Kind::NodeNumaMemoryUsage, &[id])?,
                    system_usage: self
                        .averages(Kind::SysNumaCpuUsage, Kind::SysNumaMemoryUsage, &[id])
                        .unwrap_or_default(),
                })
            })
            .collect();
        usages.sort_by_key(|usage| usage.numa_node_id);
        usages
    }

    fn node_gpus(&self, aggregate: Aggregate, window: Window) -> Vec<DeviceInfo> {
        let of = |gpu: &Gpu| {
            let minor: Arc<str> = gpu.minor.to_string().into();
            let value = |kind: Kind| self.points(kind, &[&minor, &gpu.uuid], window).value(aggregate).ok();
            Some(device(gpu, value(Kind::NodeGpuCoreUsage)?, value(Kind::NodeGpuMemoryUsage)?))
        };
        self.sources.gpus.iter().filter_map(of).collect()
    }

    fn pod_gpus(&self, uid: &Arc<str>) -> Vec<DeviceInfo> {
        let of = |gpu: &Gpu| {
            let minor: Arc<str> = gpu.minor.to_string().into();
            let value = |kind: Kind| self.average(kind, &[uid, &minor, &gpu.uuid]);
            Some(device(gpu, value(Kind::PodGpuCoreUsage)?, value(Kind::PodGpuMemoryUsage)?))
        };
        self.sources.gpus.iter().filter_map(of).collect()
    }

    /// Pods that were measured, by namespace and name, and the names of the others.
    fn pods(&self) -> (Vec<(&'s PodState, PodMetricInfo)>, Vec<String>) {
        let mut measured = Vec::new();
        let mut left_out = Vec::new();
        let mut pods: Vec<&PodState> = self.sources.snapshot.pods.iter().map(AsRef::as_ref).collect();
        pods.sort_by(|a, b| a.pod.full_name().cmp(&b.pod.full_name()));
        for state in pods {
            match self.averages(Kind::PodCpuUsage, self.kinds.pod, &[state.uid()]) {
                Some(usage) => measured.push((state, self.pod(state, usage))),
                None => left_out.push(format!("{}/{}", state.pod.namespace, state.pod.name)),
            }
        }
        (measured, left_out)
    }

    fn pod(&self, state: &PodState, mut usage: ResourceMap) -> PodMetricInfo {
        let pod = &state.pod;
        usage.devices = self.pod_gpus(state.uid());
        PodMetricInfo {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            pod_usage: usage,
            priority: pod.priority_class.map_or("", PriorityClass::name).to_owned(),
            qos: pod.class.as_str().to_owned(),
            extensions: None,
        }
    }

    /// Applications beside the pods that were measured, by name.
    fn applications(&self) -> Vec<HostApplicationMetricInfo> {
        let mut infos: Vec<HostApplicationMetricInfo> = self
            .sources
            .snapshot
            .host_applications()
            .iter()
            .filter_map(|application| {
                let name: Arc<str> = application.name.as_str().into();
                let usage = self.averages(Kind::HostApplicationCpuUsage, self.kinds.application, &[&name])?;
                Some(HostApplicationMetricInfo {
                    name: application.name.clone(),
                    usage,
                    priority: application.priority.clone(),
                    qos: application.qos.clone(),
                })
            })
            .collect();
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }
}

/// Use of a GPU: percent of its cores, bytes, and percent of its memory.
fn device(gpu: &Gpu, core: f64, memory: f64) -> DeviceInfo {
    let whole = |value: f64, family: Family| Quantity::from_value(truncated(value), family);
    let ratio = if gpu.memory_total > 0 { memory * 100.0 / nearest(gpu.memory_total) } else { 0.0 };
    DeviceInfo {
        device_type: DeviceType::Gpu,
        id: gpu.uuid.to_string(),
        minor: Some(gpu.minor),
        // Differs: upstream never says that a GPU works.
        health: gpu.is_healthy,
        resources: list([
            (GPU_CORE, whole(core, Family::DecimalSi)),
            (GPU_MEMORY, whole(memory, Family::BinarySi)),
            (GPU_MEMORY_RATIO, whole(ratio, Family::DecimalSi)),
        ]),
        ..DeviceInfo::default()
    }
}

#[cfg(test)]
mod tests;
