//! How the CPUs of a node hang together, and choosing some that belong together.
//!
//! Pure. `take_by_topology` is the choice kubelet makes; the scheduler's own policies are the
//! engine's. Spec: api 5.2, 5.3.

use std::collections::BTreeMap;

use crate::cpuset::CpuSet;

/// Where one CPU (a hardware thread) sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuInfo {
    pub id: u32,
    /// Unique within the socket.
    pub core: u32,
    pub socket: u32,
    /// NUMA node.
    pub node: u32,
}

/// The CPUs of one node, grouped by core, socket and NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// Ascending by id, each id once.
    cpus: Vec<CpuInfo>,
    all: CpuSet,
    cores: BTreeMap<(u32, u32), CpuSet>,
    sockets: BTreeMap<u32, CpuSet>,
    nodes: BTreeMap<u32, CpuSet>,
}

impl CpuTopology {
    /// When an id comes twice, its first place counts.
    pub fn new(cpus: impl IntoIterator<Item = CpuInfo>) -> CpuTopology {
        let mut topology = CpuTopology::default();
        for cpu in cpus {
            if topology.all.insert(cpu.id) {
                topology.cpus.push(cpu);
                topology.cores.entry(core_of(&cpu)).or_default().insert(cpu.id);
                topology.sockets.entry(cpu.socket).or_default().insert(cpu.id);
                topology.nodes.entry(cpu.node).or_default().insert(cpu.id);
            }
        }
        topology.cpus.sort_unstable_by_key(|cpu| cpu.id);
        topology
    }

    /// Ascending by id.
    pub fn cpus(&self) -> &[CpuInfo] {
        &self.cpus
    }

    pub fn get(&self, cpu: u32) -> Option<&CpuInfo> {
        self.cpus.binary_search_by_key(&cpu, |info| info.id).ok().map(|at| &self.cpus[at])
    }

    pub fn all(&self) -> &CpuSet {
        &self.all
    }

    /// The threads of a CPU's core, itself included; none for an unknown CPU.
    pub fn siblings(&self, cpu: u32) -> Option<&CpuSet> {
        self.cores.get(&core_of(self.get(cpu)?))
    }

    /// Socket and core number with their CPUs, ascending.
    pub fn cores(&self) -> impl Iterator<Item = ((u32, u32), &CpuSet)> {
        self.cores.iter().map(|(core, cpus)| (*core, cpus))
    }

    /// Sockets with their CPUs, ascending.
    pub fn sockets(&self) -> impl Iterator<Item = (u32, &CpuSet)> {
        self.sockets.iter().map(|(socket, cpus)| (*socket, cpus))
    }

    /// NUMA nodes with their CPUs, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &CpuSet)> {
        self.nodes.iter().map(|(node, cpus)| (*node, cpus))
    }

    pub fn socket(&self, socket: u32) -> Option<&CpuSet> {
        self.sockets.get(&socket)
    }

    pub fn node(&self, node: u32) -> Option<&CpuSet> {
        self.nodes.get(&node)
    }
}

fn core_of(cpu: &CpuInfo) -> (u32, u32) {
    (cpu.socket, cpu.core)
}

/// Chooses `count` of the available CPUs as kubelet does: whole NUMA nodes and sockets, then whole
/// cores, then single CPUs, each time from where fewest are left, lowest number first. None when
/// there are not enough.
pub fn take_by_topology(topology: &CpuTopology, available: &CpuSet, count: usize) -> Option<CpuSet> {
    let free = available & topology.all();
    if free.len() < count {
        return None;
    }
    let mut picker = Picker { topology, free, taken: CpuSet::new(), missing: count };
    // The larger unit first: a NUMA node of one or more sockets, or a socket of several nodes.
    if topology.sockets.len() >= topology.nodes.len() {
        picker.take_whole(|cpu| (cpu.node, 0));
        picker.take_whole(|cpu| (cpu.socket, 0));
    } else {
        picker.take_whole(|cpu| (cpu.socket, 0));
        picker.take_whole(|cpu| (cpu.node, 0));
    }
    picker.take_whole(core_of);
    picker.take_whole(|cpu| (cpu.id, 0));
    Some(picker.taken)
}

struct Picker<'a> {
    topology: &'a CpuTopology,
    free: CpuSet,
    taken: CpuSet,
    missing: usize,
}

/// What a CPU is grouped by: a socket and core, or another number beside zero.
type Group = (u32, u32);

impl Picker<'_> {
    /// Takes groups that are wholly free while they are no larger than what is missing.
    fn take_whole(&mut self, group: impl Fn(&CpuInfo) -> Group) {
        let mut members: BTreeMap<Group, CpuSet> = BTreeMap::new();
        for cpu in self.topology.cpus() {
            members.entry(group(cpu)).or_default().insert(cpu.id);
        }
        for cpu in self.in_order() {
            let Some(cpus) = members.remove(&group(&cpu)) else { continue };
            if cpus.len() <= self.missing && cpus.is_subset(&self.free) {
                self.missing -= cpus.len();
                self.free = &self.free - &cpus;
                self.taken = &self.taken | &cpus;
            }
        }
    }

    /// The free CPUs: by the larger unit, the smaller unit, the core and the id, and among units
    /// the one with fewest free CPUs first.
    fn in_order(&self) -> Vec<CpuInfo> {
        let topology = self.topology;
        let free_in = |cpus: Option<&CpuSet>| cpus.map_or(0, |cpus| (cpus & &self.free).len());
        let nodes_first = topology.sockets.len() >= topology.nodes.len();
        let mut cpus: Vec<CpuInfo> =
            topology.cpus.iter().filter(|cpu| self.free.contains(cpu.id)).copied().collect();
        cpus.sort_by_cached_key(|cpu| {
            let node = (free_in(topology.node(cpu.node)), cpu.node);
            let socket = (free_in(topology.socket(cpu.socket)), cpu.socket);
            let core = (free_in(topology.cores.get(&core_of(cpu))), core_of(cpu));
            let (outer, inner) = if nodes_first { (node, socket) } else { (socket, node) };
            (outer, inner, core, cpu.id)
        });
        cpus
    }
}

#[cfg(test)]
mod tests;
