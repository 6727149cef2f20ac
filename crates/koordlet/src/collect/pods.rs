//! CPU, memory and throttling of pods and their containers. Spec: koordlet-observe 5.3, 5.6, 5.9.

use std::collections::HashMap;
use std::sync::Arc;

use koord_api::keys::resource::BATCH_CPU;
use koord_api::qos::Qos;
use koord_linux::cgroup::{Cgroups, ContainerId, Dir};
use koord_linux::handle::Handle;
use koord_linux::memory_stat;
use koord_linux::resource::Resource;
use koord_linux::stat::page_bytes;

use super::cold::ColdSlots;
use super::group::{Group, Rates, Reading, bytes};
use super::pressure::PressureSlots;
use super::{Pass, Shared, Usage};
use crate::decide::snapshot::{Container, Phase, Pod, whole};
use crate::store::{Id, Kind};

/// What samples of a group are called.
pub(super) struct Kinds {
    cpu: Kind,
    memory: Kind,
    page_cache: Kind,
    throttled: Kind,
}

const OF_PODS: Kinds = Kinds {
    cpu: Kind::PodCpuUsage,
    memory: Kind::PodMemoryUsage,
    page_cache: Kind::PodMemoryUsageWithPageCache,
    throttled: Kind::PodCpuThrottled,
};
const OF_CONTAINERS: Kinds = Kinds {
    cpu: Kind::ContainerCpuUsage,
    memory: Kind::ContainerMemoryUsage,
    page_cache: Kind::ContainerMemoryUsageWithPageCache,
    throttled: Kind::ContainerCpuThrottled,
};

/// A pod, or one of its containers, that is measured.
pub(super) struct Record {
    /// The uid of a pod, the id of a container: `containerd://1f`.
    pub(super) id: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) group: Group,
    slots: Slots,
    pub(super) pressure: Option<Box<PressureSlots>>,
    pub(super) cold: Option<Box<ColdSlots>>,
}

/// Where its samples go.
#[derive(Default)]
struct Slots {
    cpu: Id,
    memory: Id,
    page_cache: Id,
    throttled: Id,
}

impl Record {
    fn new(cgroups: &Cgroups, dir: Dir, id: Arc<str>, name: &str) -> Option<Record> {
        let group = Group::new(cgroups, dir)
            .inspect_err(|error| tracing::warn!(%id, %error, "a group cannot be measured"))
            .ok()?;
        Some(Record { id, name: name.into(), group, slots: Slots::default(), pressure: None, cold: None })
    }

    /// Reads the group and adds what is known at once. The rates still have to be added.
    fn read(&mut self, pass: &mut Pass<'_>, kinds: &Kinds, is_expected: bool) -> Option<Reading> {
        let reading = self.group.read_patiently(pass.buffer, is_expected)?;
        if pass.has_page_cache {
            let id = pass.store.place(&mut self.slots.page_cache, || kinds.page_cache.of([&self.id]));
            pass.batch.add(id, pass.now.unix_ms, bytes(reading.memory.used_with_page_cache()));
        }
        Some(reading)
    }

    /// Adds CPU, memory and throttling since the last reading.
    fn add_rates(&mut self, pass: &mut Pass<'_>, kinds: &Kinds, reading: &Reading) -> (Rates, Option<Usage>) {
        let rates = self.group.rates(pass.now.instant, reading, pass.baseline_age_max);
        let at_ms = pass.now.unix_ms;
        let usage = rates.cores.map(|cores| Usage { cores, bytes: bytes(reading.memory.used()) });
        if let Some(usage) = usage {
            let cpu = pass.store.place(&mut self.slots.cpu, || kinds.cpu.of([&self.id]));
            pass.batch.add(cpu, at_ms, usage.cores);
            let memory = pass.store.place(&mut self.slots.memory, || kinds.memory.of([&self.id]));
            pass.batch.add(memory, at_ms, usage.bytes);
        }
        if let Some(ratio) = rates.throttled {
            let id = pass.store.place(&mut self.slots.throttled, || kinds.throttled.of([&self.id]));
            pass.batch.add(id, at_ms, ratio);
        }
        (rates, usage)
    }
}

/// A pod and its containers.
pub(super) struct PodRecord {
    pub(super) pod: Record,
    pub(super) namespace: Arc<str>,
    pub(super) containers: Vec<Record>,
    phase: Phase,
    numa: Option<Handle>,
}

impl PodRecord {
    fn new(cgroups: &Cgroups, pod: &Pod) -> Option<PodRecord> {
        let dir = cgroups.pod_dir(pod.id.kube_qos, &pod.id.uid);
        let numa = cgroups.handle(Resource::MemoryNumaStat, &dir).ok();
        Some(PodRecord {
            pod: Record::new(cgroups, dir, Arc::clone(&pod.id.uid), &pod.name)?,
            namespace: pod.namespace.as_str().into(),
            containers: Vec::new(),
            phase: pod.phase,
            numa,
        })
    }

    /// Follows the object: containers come and go. What changed is worth a new attempt.
    fn follow(&mut self, cgroups: &Cgroups, pod: &Pod) {
        // Differs: sidecars are measured as well; upstream leaves all init containers out.
        let ids: Vec<(&Container, &Arc<str>)> =
            pod.containers.iter().filter_map(|container| Some((container, container.id.as_ref()?))).collect();
        let is_same = self.phase == pod.phase
            && self.containers.iter().map(|known| &known.id).eq(ids.iter().map(|(_, id)| *id));
        if is_same {
            return;
        }
        self.phase = pod.phase;
        self.pod.group.patience.succeeded();
        let mut known: HashMap<Arc<str>, Record> =
            self.containers.drain(..).map(|record| (Arc::clone(&record.id), record)).collect();
        for (container, id) in ids {
            let record = known.remove(id).or_else(|| {
                let parsed = id
                    .parse::<ContainerId>()
                    .inspect_err(|error| tracing::warn!(%error, "odd container"))
                    .ok()?;
                let dir = cgroups.container_dir(self.pod.group.dir(), &parsed);
                Record::new(cgroups, dir, Arc::clone(id), &container.name)
            });
            self.containers.extend(record);
        }
    }
}

/// All pods of the node.
#[derive(Default)]
pub(super) struct Collector {
    /// In the order they were told.
    records: Vec<PodRecord>,
    /// What pods of class BE ask for.
    batch_request_milli: i64,
    used: Shared<Usage>,
    /// Bytes by NUMA node, of all pods together.
    numa_used: Shared<Vec<(u32, u64)>>,
    numa_scratch: Vec<(u32, u64)>,
    numa_sum: Vec<(u32, u64)>,
}

impl Collector {
    pub(super) fn set<'p>(&mut self, cgroups: &Cgroups, pods: impl IntoIterator<Item = &'p Pod>) {
        let mut known: HashMap<Arc<str>, PodRecord> =
            self.records.drain(..).map(|record| (Arc::clone(&record.pod.id), record)).collect();
        self.batch_request_milli = 0;
        for pod in pods {
            self.batch_request_milli = self.batch_request_milli.saturating_add(batch_request_milli(pod));
            let is_moved =
                |record: &PodRecord| *record.pod.group.dir() != cgroups.pod_dir(pod.id.kube_qos, &pod.id.uid);
            let record = known.remove(&pod.id.uid).filter(|record| !is_moved(record));
            let Some(mut record) = record.or_else(|| PodRecord::new(cgroups, pod)) else { continue };
            record.follow(cgroups, pod);
            self.records.push(record);
        }
    }

    pub(super) fn run(&mut self, pass: &mut Pass<'_>) {
        let mut sum = Usage::default();
        self.numa_sum.clear();
        for record in &mut self.records {
            let Some(usage) = run_pod(pass, record) else { continue };
            sum.cores += usage.cores;
            sum.bytes += usage.bytes;
            let Some(numa) = &mut record.numa else { continue };
            let Ok(content) = numa.read(pass.buffer) else {
                // The pod is there and this is not: the kernel knows no NUMA nodes.
                record.numa = None;
                continue;
            };
            if memory_stat::numa_pages(pass.cgroups.version(), content, &mut self.numa_scratch).is_ok() {
                add_pages(&mut self.numa_sum, &self.numa_scratch);
            }
        }
        pass.commit("PodResourceCollector");
        self.used = Some((pass.now.instant, sum));
        if self.numa_sum.is_empty() {
            self.numa_used = None;
        } else {
            let (at, shared) = self.numa_used.get_or_insert_with(|| (pass.now.instant, Vec::new()));
            *at = pass.now.instant;
            shared.clone_from(&self.numa_sum);
        }
    }

    pub(super) fn used(&self) -> Shared<Usage> {
        self.used
    }

    pub(super) fn numa_used(&self) -> Option<(std::time::Instant, &[(u32, u64)])> {
        self.numa_used.as_ref().map(|(at, used)| (*at, used.as_slice()))
    }

    pub(super) fn batch_request_milli(&self) -> i64 {
        self.batch_request_milli
    }

    pub(super) fn records(&self) -> &[PodRecord] {
        &self.records
    }

    pub(super) fn records_mut(&mut self) -> &mut [PodRecord] {
        &mut self.records
    }

    pub(super) fn opens(&self) -> u64 {
        let of = |record: &PodRecord| {
            let containers: u64 = record.containers.iter().map(|container| container.group.opens()).sum();
            record.pod.group.opens() + containers + u64::from(record.numa.as_ref().map_or(0, Handle::opens))
        };
        self.records.iter().map(of).sum()
    }
}

/// One pod and then its containers, whose first reading waits for the pod's second. None when the pod gave no sample.
fn run_pod(pass: &mut Pass<'_>, record: &mut PodRecord) -> Option<Usage> {
    let is_active = record.phase != Phase::Over;
    let reading = record.pod.read(pass, &OF_PODS, is_active)?;
    let (_, usage) = record.pod.add_rates(pass, &OF_PODS, &reading);
    if usage.is_none() && !pass.has_page_cache {
        return None;
    }
    for container in &mut record.containers {
        let reading = container.read(pass, &OF_CONTAINERS, is_active);
        if let Some(reading) = reading.filter(|_| usage.is_some()) {
            container.add_rates(pass, &OF_CONTAINERS, &reading);
        }
    }
    usage
}

fn add_pages(sum: &mut Vec<(u32, u64)>, pages: &[(u32, u64)]) {
    for (node, count) in pages {
        let bytes = count.saturating_mul(page_bytes());
        match sum.iter_mut().find(|(known, _)| known == node) {
            Some((_, total)) => *total = total.saturating_add(bytes),
            None => sum.push((*node, bytes)),
        }
    }
}

/// What a pod labelled BE asks for, whatever its phase.
fn batch_request_milli(pod: &Pod) -> i64 {
    if pod.qos != Some(Qos::Be) {
        return 0;
    }
    let requests = pod.containers.iter().filter_map(|container| whole(&container.requests, BATCH_CPU));
    requests.map(|amount| amount.max(0)).fold(0, i64::saturating_add)
}
