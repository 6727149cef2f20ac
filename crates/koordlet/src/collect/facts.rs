//! What changes seldom: CPUs, NUMA nodes, huge pages and disks. Spec: koordlet-observe 5.7, 5.8.

use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_linux::block::Storage;
use koord_linux::cpu_info::CpuInfo;
use koord_linux::root::Root;
use koord_linux::topology::{self, Cpu, NumaNode};

use super::Settings;
use super::every::Every;

/// Disks change with mounts and volumes; reading them costs a few hundred files.
const STORAGE_INTERVAL_MIN: Duration = Duration::from_secs(10);

/// The CPUs of the node, and what kind they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuFacts {
    pub info: CpuInfo,
    /// By NUMA node, socket, core and id.
    pub cpus: Vec<Cpu>,
    /// NUMA node by CPU.
    nodes: Vec<(u32, u32)>,
}

impl CpuFacts {
    pub fn new(info: CpuInfo, cpus: Vec<Cpu>) -> CpuFacts {
        let mut nodes: Vec<(u32, u32)> = cpus.iter().map(|cpu| (cpu.id, cpu.node)).collect();
        nodes.sort_unstable();
        CpuFacts { info, cpus, nodes }
    }

    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.binary_search_by_key(&cpu, |(id, _)| *id).ok().map(|at| self.nodes[at].1)
    }
}

/// What is known of the machine. The newest value stays until there is a newer one.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub cpu: Option<Arc<CpuFacts>>,
    /// Huge pages count only where the gate `HugePageReport` is on; that is the reporter's to look at.
    pub numa: Arc<[NumaNode]>,
    pub storage: Option<Arc<Storage>>,
}

/// Rounds that succeeded and failed, for the counters of the same names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    pub cpu: Outcomes,
    pub numa: Outcomes,
    pub storage: Outcomes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub succeeded: u64,
    pub failed: u64,
}

pub(super) struct Collector {
    root: Root,
    every: Every,
    storage_every: Option<Every>,
    facts: Facts,
    rounds: Rounds,
}

impl Collector {
    pub(super) fn new(root: &Root, settings: &Settings) -> Collector {
        // Differs: upstream runs four programs every second; what they tell changes less often.
        let interval = settings.storage_interval.max(STORAGE_INTERVAL_MIN);
        Collector {
            root: root.clone(),
            every: Every::new(settings.node_info_interval),
            storage_every: settings.has_storage.then(|| Every::new(interval)),
            facts: Facts::default(),
            rounds: Rounds::default(),
        }
    }

    pub(super) fn run(&mut self, now: Instant) {
        if self.every.is_due(now) {
            self.read_node();
        }
        if self.storage_every.as_mut().is_some_and(|every| every.is_due(now)) {
            match Storage::read(&self.root) {
                Ok(storage) => {
                    self.rounds.storage.succeeded += 1;
                    self.facts.storage = Some(kept(self.facts.storage.take(), storage));
                }
                Err(error) => {
                    self.rounds.storage.failed += 1;
                    tracing::warn!(%error, "disks cannot be read");
                }
            }
        }
    }

    /// Without CPUs there is no round.
    fn read_node(&mut self) {
        let cpus = match topology::cpus(&self.root) {
            Ok(cpus) => cpus,
            Err(error) => {
                self.rounds.cpu.failed += 1;
                tracing::warn!(%error, "CPUs cannot be read");
                return;
            }
        };
        self.rounds.cpu.succeeded += 1;
        let facts = CpuFacts::new(CpuInfo::read(&self.root), cpus);
        self.facts.cpu = Some(kept(self.facts.cpu.take(), facts));
        self.rounds.numa.succeeded += 1;
        self.facts.numa = topology::numa_nodes(&self.root).into();
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(super) fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    pub(super) fn has_started(&self) -> bool {
        self.facts.cpu.is_some()
    }
}

/// The old value where it is the same, so that readers see by its address that nothing changed.
fn kept<T: PartialEq>(old: Option<Arc<T>>, new: T) -> Arc<T> {
    old.filter(|old| **old == new).unwrap_or_else(|| Arc::new(new))
}
