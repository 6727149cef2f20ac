//! CPU and memory of the node and of its NUMA nodes. Spec: koordlet-observe 5.2, 5.9.

use std::sync::Arc;
use std::time::Instant;

use koord_linux::handle::{Handle, Records};
use koord_linux::root::Root;
use koord_linux::stat::{self, MemInfo};

use super::facts::Facts;
use super::group::{Unread, bytes, to_millionths};
use super::{Pass, Shared, Usage};
use crate::store::{Id, Kind};

/// What one NUMA node uses. None where there is no sample yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NumaUsage {
    pub(super) id: u32,
    pub(super) cores: Shared<f64>,
    pub(super) bytes: Shared<f64>,
}

/// One NUMA node: its file, and where its samples go.
struct Numa {
    name: Arc<str>,
    memory: Handle,
    usage: NumaUsage,
    cpu_slot: Id,
    memory_slot: Id,
    /// Ticks of its CPUs since the last reading; None when no CPU could be compared.
    ticks: Option<u64>,
}

pub(super) struct Collector {
    root: Root,
    stat: Handle,
    meminfo: Handle,
    ticks_per_second: u64,
    baseline: Option<(Instant, u64)>,
    is_failing: bool,
    used: Shared<Usage>,
    memory: Option<MemInfo>,
    numa: Vec<Numa>,
    /// Ticks of each CPU, now and before.
    cpu_ticks: Vec<(u32, u64)>,
    cpu_ticks_before: Option<(Instant, Vec<(u32, u64)>)>,
    cpu_slot: Id,
    memory_slot: Id,
    page_cache_slot: Id,
}

impl Collector {
    pub(super) fn new(root: &Root) -> Collector {
        Collector {
            stat: Handle::new(root.proc.join("stat"), Records::One),
            meminfo: Handle::new(root.proc.join("meminfo"), Records::One),
            root: root.clone(),
            ticks_per_second: stat::ticks_per_second(),
            baseline: None,
            is_failing: false,
            used: None,
            memory: None,
            numa: Vec::new(),
            cpu_ticks: Vec::new(),
            cpu_ticks_before: None,
            cpu_slot: Id::default(),
            memory_slot: Id::default(),
            page_cache_slot: Id::default(),
        }
    }

    pub(super) fn run(&mut self, pass: &mut Pass<'_>, facts: &Facts) {
        match self.read(pass) {
            Ok(usage) => {
                self.is_failing = false;
                if let Some(usage) = usage {
                    self.add(pass, usage);
                    self.run_numa(pass, facts);
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "the node's counters cannot be read");
                }
            }
        }
        pass.commit("NodeResourceCollector");
    }

    fn add(&mut self, pass: &mut Pass<'_>, usage: Usage) {
        let at_ms = pass.now.unix_ms;
        let cpu = pass.store.place(&mut self.cpu_slot, || Kind::NodeCpuUsage.of([]));
        pass.batch.add(cpu, at_ms, usage.cores);
        let memory = pass.store.place(&mut self.memory_slot, || Kind::NodeMemoryUsage.of([]));
        pass.batch.add(memory, at_ms, usage.bytes);
        self.used = Some((pass.now.instant, usage));
    }

    /// What the node used since the last reading; None when there is none, or the counter went back.
    fn read(&mut self, pass: &mut Pass<'_>) -> Result<Option<Usage>, Unread> {
        let content = self.stat.read(pass.buffer)?;
        let ticks = stat::used_ticks(content)?;
        // Kernels without lines of single CPUs just have no NUMA usage.
        if stat::used_ticks_per_cpu(content, &mut self.cpu_ticks).is_err() {
            self.cpu_ticks.clear();
        }
        self.cpu_ticks.sort_unstable();
        let memory = MemInfo::parse(self.meminfo.read(pass.buffer)?);
        self.memory = Some(memory);
        if pass.has_page_cache {
            let slot = &mut self.page_cache_slot;
            let id = pass.store.place(slot, || Kind::NodeMemoryUsageWithPageCache.of([]));
            pass.batch.add(id, pass.now.unix_ms, bytes(memory.used_with_page_cache_bytes()));
        }
        let now = pass.now.instant;
        let Some((before_at, before)) = self.baseline.replace((now, ticks)) else { return Ok(None) };
        let cores = stat::cores(before, ticks, now.duration_since(before_at), self.ticks_per_second);
        Ok(cores.map(|cores| Usage { cores: to_millionths(cores), bytes: bytes(memory.used_bytes()) }))
    }

    fn run_numa(&mut self, pass: &mut Pass<'_>, facts: &Facts) {
        self.follow(facts);
        let (now, at_ms) = (pass.now.instant, pass.now.unix_ms);
        for numa in &mut self.numa {
            let Ok(content) = numa.memory.read(pass.buffer) else { continue };
            let used = bytes(MemInfo::parse(content).numa_used_bytes());
            let slot = &mut numa.memory_slot;
            let id = pass.store.place(slot, || Kind::NodeNumaMemoryUsage.of([&numa.name]));
            pass.batch.add(id, at_ms, used);
            numa.usage.bytes = Some((now, used));
        }
        let Some(cpu) = &facts.cpu else { return };
        let Some((before_at, mut before)) = self.cpu_ticks_before.take() else {
            self.cpu_ticks_before = Some((now, self.cpu_ticks.clone()));
            return;
        };
        for (id, ticks) in &self.cpu_ticks {
            let known = before.binary_search_by_key(id, |(id, _)| *id).ok().map(|at| before[at].1);
            let worked = known.and_then(|known| ticks.checked_sub(known));
            let Some((worked, node)) = worked.zip(cpu.node_of(*id)) else { continue };
            if let Some(numa) = self.numa.iter_mut().find(|numa| numa.usage.id == node) {
                numa.ticks = Some(numa.ticks.unwrap_or(0).saturating_add(worked));
            }
        }
        let elapsed = now.duration_since(before_at);
        for numa in &mut self.numa {
            let cores =
                numa.ticks.take().and_then(|ticks| stat::cores(0, ticks, elapsed, self.ticks_per_second));
            let Some(cores) = cores.map(to_millionths) else {
                if !cpu.cpus.iter().any(|cpu| cpu.node == numa.usage.id) {
                    // The last of its CPUs went offline: it uses none, and nobody waits for its next point.
                    numa.usage.cores = None;
                }
                continue;
            };
            let id = pass.store.place(&mut numa.cpu_slot, || Kind::NodeNumaCpuUsage.of([&numa.name]));
            pass.batch.add(id, at_ms, cores);
            numa.usage.cores = Some((now, cores));
        }
        std::mem::swap(&mut before, &mut self.cpu_ticks);
        self.cpu_ticks_before = Some((now, before));
    }

    /// Opens the files of NUMA nodes when it is known which there are.
    fn follow(&mut self, facts: &Facts) {
        if facts.numa.iter().map(|node| node.id).eq(self.numa.iter().map(|numa| numa.usage.id)) {
            return;
        }
        let of = |id: u32| {
            let path = self.root.sys.join(format!("bus/node/devices/node{id}/meminfo"));
            Numa {
                name: id.to_string().into(),
                memory: Handle::new(path, Records::One),
                usage: NumaUsage { id, ..NumaUsage::default() },
                cpu_slot: Id::default(),
                memory_slot: Id::default(),
                ticks: None,
            }
        };
        self.numa = facts.numa.iter().map(|node| of(node.id)).collect();
    }

    pub(super) fn used(&self) -> Shared<Usage> {
        self.used
    }

    pub(super) fn numa_used(&self) -> impl Iterator<Item = (&Arc<str>, NumaUsage)> {
        self.numa.iter().map(|numa| (&numa.name, numa.usage))
    }

    /// As of the last round.
    pub(super) fn memory(&self) -> Option<MemInfo> {
        self.memory
    }

    pub(super) fn opens(&self) -> u64 {
        let numa: u64 = self.numa.iter().map(|numa| u64::from(numa.memory.opens())).sum();
        u64::from(self.stat.opens()) + u64::from(self.meminfo.opens()) + numa
    }

    #[cfg(test)]
    pub(super) fn set_ticks_per_second(&mut self, ticks: u64) {
        self.ticks_per_second = ticks;
    }
}
