//! What the engine knows of a pod's appetite, and what it makes of it for NodeMetric.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use koord_api::annotation::cpu::ResourceStatus;
use koord_api::annotation::device::DeviceAllocations;
use koord_api::annotation::{self, Annotations};
use koord_api::crd::device::DeviceType;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::keys::resource::{
    BATCH_CPU, BATCH_MEMORY, CPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, MEMORY, MID_CPU, MID_MEMORY,
};
use koord_api::priority::{self, PriorityClass};
use koord_api::qos::{self, Qos};
use koord_api::quantity::ResourceList;
use serde_json::Value;

use super::engine::Engine;
use super::nodes::NodeState;
use super::pods::{Extras, GpuShare, PodState, Seen, Work};
use crate::nodes::admit::{self, Ask};
use crate::nodes::behaviour::{self, Problem};
use crate::nodes::metric::{self, GpuUse, Inputs, PodRow, Policy};
use crate::nodes::profile::{Measure, Profile, Wanted};
use crate::nodes::topology::Pinned;
use crate::nodes::usage::{IsBestEffort, Load, Use, squeeze, system};
use crate::store::Stored;

/// koordlet says nothing of what a pod could give back before it has watched it for a day.
const COLD_SECONDS: f64 = 86_400.0;
/// koordlet's safety margin, in percent.
const MARGIN: i64 = 10;
/// Of its GPU's cores and memory a pod uses so much, in percent.
const GPU_SHARE: i64 = 60;

impl PodState {
    pub(super) fn pinned(&self) -> Option<&Pinned> {
        self.extras.as_ref()?.pinned.as_ref()
    }

    /// Reason and message.
    pub(super) fn rejected(&self) -> Option<&(String, String)> {
        self.extras.as_ref()?.rejected.as_ref()
    }

    fn is_best_effort(&self) -> bool {
        self.qos == Some(Qos::Be)
    }
}

impl Engine {
    /// What is to be remembered of a pod, what it asks for, and which of its annotations make no sense.
    pub(super) fn describe(
        &mut self,
        node: u32,
        stored: &Arc<Stored>,
        pod: &Pod,
        identity: u64,
    ) -> (PodState, Ask, Vec<Problem>) {
        let none = Annotations::new();
        let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
        let (usage, mut problems) = behaviour::usage(annotations);
        let namespace = stored.namespace();
        let mut profile = |measure: Measure, wanted: Option<Wanted>| match wanted? {
            Wanted::Profile(profile) => Some(profile),
            Wanted::TraceIn { config_map, key } => {
                let place = (namespace, config_map.as_str(), key.as_str());
                match self.traces.get(&self.shared.api, measure, place) {
                    Ok(trace) => Some(Profile::Trace(trace)),
                    Err(accepted) => {
                        let value = format!("trace:{config_map}/{key}");
                        let key = match measure {
                            Measure::Cpu => crate::nodes::annotation::CPU_USAGE,
                            Measure::Memory => crate::nodes::annotation::MEMORY_USAGE,
                        };
                        problems.push(Problem { key: key.to_owned(), value, accepted });
                        None
                    }
                }
            }
        };
        let load = Load {
            cpu: profile(Measure::Cpu, usage.cpu),
            memory: profile(Measure::Memory, usage.memory),
            request: native(&koord_api::pod::requests(pod)),
            limit: native(&koord_api::pod::limits(pod)),
        };
        let ask = admit::ask(pod, &mut self.table);
        let extras = extras(pod, annotations, self.nodes.get(node));
        let state = PodState {
            key: stored.key().into(),
            identity,
            node,
            address: 0,
            asked: ask.requests.iter().collect(),
            ports: ask.ports.clone().into(),
            load,
            since: None,
            wake: None,
            revision: stored.revision(),
            seen: Seen::Nothing,
            extras: extras.map(Box::new),
            priority: priority::class_with_default(pod),
            qos: qos::with_default(pod),
            work: Work::Idle,
            is_counted: false,
        };
        (state, ask, problems)
    }

    /// Measures a node.
    pub(super) fn sample(&mut self, slot: u32) {
        let now = self.now();
        let Some(node) = self.nodes.get(slot) else { return };
        let (system, pods) = self.uses(node, now);
        let mut sum = system;
        pods.into_iter().for_each(|(used, _)| sum += used);
        if let Some(node) = self.nodes.get_mut(slot) {
            node.samples.push(now, sum, system);
        }
    }

    /// What the node's own services and its running pods use now.
    fn uses(&self, node: &NodeState, now: Timestamp) -> (Use, Vec<(Use, IsBestEffort)>) {
        let capacity = capacity(node);
        let system = system(&node.name, self.shared.habits.seed, capacity, now);
        let running = node.pods.iter().filter_map(|slot| {
            let pod = self.pods.get(*slot)?;
            Some((pod.load.at(&self.clock, pod.since?, now), IsBestEffort(pod.is_best_effort())))
        });
        let mut pods: Vec<_> = running.collect();
        squeeze(capacity.cpu, system, &mut pods);
        (system, pods)
    }

    /// How the node's NodeMetric wants to be measured.
    fn policy(&self, slot: u32) -> Policy {
        let api = &self.shared.api;
        let object = self.nodes.get(slot).and_then(|node| {
            let kind = api.kind("slo.koordinator.sh", "nodemetrics").ok()?;
            api.get(&kind, "", &node.name).ok()
        });
        let metric: Option<NodeMetric> =
            object.and_then(|stored| serde_json::from_slice(&stored.json()).ok());
        Policy::of(metric.and_then(|metric| metric.spec?.metric_collect_policy).as_ref())
    }

    /// The status of the node's NodeMetric, and milliseconds until the next.
    pub(super) fn metric(&self, slot: u32) -> Option<(Value, i64)> {
        let now = self.now();
        let node = self.nodes.get(slot)?;
        let policy = self.policy(slot);
        let start = now.checked_sub(policy.aggregate).unwrap_or(now);
        let mut rows: Vec<PodRow> = Vec::new();
        let mut uses: Vec<(Use, IsBestEffort)> = Vec::new();
        for pod in node.pods.iter().filter_map(|slot| self.pods.get(*slot)) {
            let Some(since) = pod.since else { continue };
            let used = pod.load.mean(&self.clock, since, start, now);
            uses.push((used, IsBestEffort(pod.is_best_effort())));
            let (namespace, name) = pod.key.split_once('/').unwrap_or(("", &pod.key));
            rows.push(PodRow {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                used,
                priority: pod.priority,
                qos: pod.qos,
                gpus: gpus(pod),
            });
        }
        let capacity = capacity(node);
        squeeze(capacity.cpu, system(&node.name, self.shared.habits.seed, capacity, now), &mut uses);
        for (row, (used, _)) in rows.iter_mut().zip(uses) {
            row.used = used;
        }
        let status = metric::status(Inputs {
            node: &node.name,
            shape: &node.shape,
            policy: &policy,
            samples: &node.samples,
            pods: rows,
            reclaimable: self.reclaimable(node, now),
            now,
        });
        let interval = match node.facts.report_interval {
            Some(interval) => i64::try_from(interval.as_millis()),
            None => i64::try_from(policy.interval.as_millis()),
        };
        let interval = interval.unwrap_or(i64::MAX);
        Some((serde_json::to_value(status).ok()?, interval))
    }

    /// What prod pods have requested and are not expected to need: of those watched for a day, the
    /// request less their peak of that day with a margin. Spec: koordlet-observe 9.4, by the profile
    /// itself instead of a histogram of its past.
    fn reclaimable(&self, node: &NodeState, now: Timestamp) -> Use {
        let (mut reclaimable, mut peaks) = (Use::default(), Use::default());
        for pod in node.pods.iter().filter_map(|slot| self.pods.get(*slot)) {
            let Some(since) = pod.since else { continue };
            let age = self.clock.time(now) - self.clock.time(since);
            if !matches!(pod.priority, None | Some(PriorityClass::Prod)) || age <= COLD_SECONDS {
                continue;
            }
            let peak = self.peak(&pod.load, since, now);
            peaks += peak;
            reclaimable += Use {
                cpu: (pod.load.request.cpu - peak.cpu).max(0),
                memory: (pod.load.request.memory - peak.memory).max(0),
            };
        }
        let allocatable = Use { cpu: capacity(node).cpu, memory: node.shape.allocatable_memory() };
        Use {
            cpu: reclaimable.cpu.min((allocatable.cpu - peaks.cpu).max(0)),
            memory: reclaimable.memory.min((allocatable.memory - peaks.memory).max(0)),
        }
    }

    /// The most a pod used in the last day of its time, with koordlet's margin.
    fn peak(&self, load: &Load, since: Timestamp, now: Timestamp) -> Use {
        const POINTS: i32 = 24;
        let step = COLD_SECONDS / f64::from(POINTS) / self.clock.speed;
        let step = SignedDuration::try_from_secs_f64(step).unwrap_or_default();
        let mut peak = Use::default();
        for point in 0..POINTS {
            let back = step * point;
            let used = load.at(&self.clock, since, now.checked_sub(back).unwrap_or(now));
            peak = Use { cpu: peak.cpu.max(used.cpu), memory: peak.memory.max(used.memory) };
        }
        let with_margin = |amount: i64| amount.saturating_mul(100 + MARGIN) / 100;
        Use { cpu: with_margin(peak.cpu), memory: with_margin(peak.memory) }
    }
}

fn capacity(node: &NodeState) -> Use {
    Use { cpu: i64::from(node.shape.cpus()) * 1000, memory: node.shape.memory }
}

/// CPU and memory as a list counts them: native ones, else those of batch and mid pods.
fn native(list: &ResourceList) -> Use {
    let cpu = list.get(CPU).map(|amount| amount.milli_value());
    // These are counted in thousandths already.
    let other = |name: &str| list.get(name).map(|amount| amount.value());
    let memory = other(MEMORY);
    Use {
        cpu: cpu.or_else(|| other(BATCH_CPU)).or_else(|| other(MID_CPU)).unwrap_or(0),
        memory: memory.or_else(|| other(BATCH_MEMORY)).or_else(|| other(MID_MEMORY)).unwrap_or(0),
    }
}

/// CPUs and GPUs that the scheduler gave to a pod.
fn extras(pod: &Pod, annotations: &Annotations, node: Option<&NodeState>) -> Option<Extras> {
    let status: Option<ResourceStatus> = annotation::read(annotations).unwrap_or_default();
    let cpus = status.and_then(|status| status.cpuset.parse().ok());
    let cpus = cpus.filter(|cpus: &koord_api::cpuset::CpuSet| !cpus.is_empty());
    let pinned = cpus.map(|cpus| Pinned { cpus, is_exclusive: qos::raw(pod) == Some(Qos::Lse) });
    let given: Option<DeviceAllocations> = annotation::read(annotations).unwrap_or_default();
    let total = node.map_or(0, |node| node.shape.gpus.memory);
    let mut gpus = Vec::new();
    for share in given.iter().flat_map(|given| given.0.get(&DeviceType::Gpu)).flatten() {
        let get = |name: &str| share.resources.get(name).map_or(0, |amount| amount.value());
        let by_ratio = get(GPU_MEMORY_RATIO).saturating_mul(total) / 100;
        let memory = if get(GPU_MEMORY) > 0 { get(GPU_MEMORY) } else { by_ratio };
        let Ok(minor) = u32::try_from(share.minor) else { continue };
        gpus.push(GpuShare { minor, core: get(GPU_CORE), memory });
    }
    (pinned.is_some() || !gpus.is_empty()).then_some(Extras { rejected: None, pinned, gpus })
}

fn gpus(pod: &PodState) -> BTreeMap<u32, GpuUse> {
    let shares = pod.extras.iter().flat_map(|extras| &extras.gpus);
    let part = |amount: i64| amount.saturating_mul(GPU_SHARE) / 100;
    shares.map(|s| (s.minor, GpuUse { core: part(s.core), memory: part(s.memory) })).collect()
}
