//! What changes seldom: CPUs, NUMA nodes, huge pages and disks. Spec: koordlet-observe 5.7, 5.8.

use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_api::cpuset::CpuSet;
use koord_linux::block::Storage;
use koord_linux::cpu_info::CpuInfo;
use koord_linux::error::Error;
use koord_linux::handle::{Buffer, Handle};
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
    /// The CPUs that the facts are about.
    online: Option<CpuSet>,
    switch: Switch,
    rounds: Rounds,
}

/// The file that tells which CPUs are online. It is read every second, for a CPU that went must not stay in anybody's
/// set until the next round.
struct Switch {
    file: Handle,
    seen: Vec<u8>,
}

impl Switch {
    /// Whether it tells something else than at the last look. A kernel without the file never does.
    fn has_changed(&mut self, buffer: &mut Buffer) -> bool {
        let Ok(content) = self.file.read(buffer) else { return false };
        if content == self.seen {
            return false;
        }
        let is_first = self.seen.is_empty();
        self.seen.clear();
        self.seen.extend_from_slice(content);
        !is_first
    }
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
            online: None,
            switch: Switch { file: topology::online_handle(root), seen: Vec::new() },
            rounds: Rounds::default(),
        }
    }

    pub(super) fn run(&mut self, now: Instant, buffer: &mut Buffer) {
        let is_changed = self.switch.has_changed(buffer);
        if self.every.is_due(now) || is_changed {
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
        let facts = match self.read_cpus() {
            Ok(facts) => facts,
            Err(error) => {
                self.rounds.cpu.failed += 1;
                tracing::warn!(%error, "CPUs cannot be read");
                return;
            }
        };
        self.rounds.cpu.succeeded += 1;
        self.facts.cpu = Some(kept(self.facts.cpu.take(), facts));
        self.rounds.numa.succeeded += 1;
        self.facts.numa = topology::numa_nodes(&self.root).into();
    }

    /// The files of each CPU, a dozen, are read only when other CPUs are online than before.
    fn read_cpus(&mut self) -> Result<CpuFacts, Error> {
        let online = topology::online_cpus(&self.root)?;
        if let Some(known) = self.facts.cpu.as_ref().filter(|_| self.online.as_ref() == Some(&online)) {
            return Ok(CpuFacts { info: known.info.with_switches(&self.root), ..CpuFacts::clone(known) });
        }
        let facts = CpuFacts::new(CpuInfo::read(&self.root), topology::cpus(&self.root)?);
        self.online = Some(online);
        Ok(facts)
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
