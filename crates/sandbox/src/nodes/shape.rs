//! What a node is made of: CPUs, memory, devices, names.
//!
//! Pure. `read` takes pools from YAML, `flag` from the compact form of a command line; both say all that
//! is wrong at once. Change what is accepted in `shape/read.rs`.

use std::collections::BTreeMap;

use koord_api::quantity::ResourceList;
use koord_api::topology::{CpuInfo, CpuTopology};

mod read;

pub use read::{REAL_KOORDLETS_MAX, flag, read};

/// Some nodes alike. They are called `name-0`, `name-1`, …
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: String,
    pub count: u32,
    pub shape: Shape,
}

/// One node of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Physical cores of all sockets together; a multiple of the NUMA nodes.
    pub cores: u32,
    /// Threads of a core.
    pub threads: u32,
    pub sockets: u32,
    pub numa_per_socket: u32,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    pub pods: u32,
    /// Kept back from pods, besides what kubelet keeps for itself.
    pub reserved_cpu_milli: i64,
    /// Bytes.
    pub reserved_memory: i64,
    pub gpus: Gpus,
    pub rdma: Rdma,
    /// More that capacity and allocatable name.
    pub resources: ResourceList,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub region: String,
    /// Nodes take them in turn.
    pub zones: Vec<String>,
    /// Kubelet's `topologyManagerPolicy`.
    pub topology_policy: String,
    pub koordlet: Koordlet,
}

/// Who reports what a node uses, and holds its pods back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Koordlet {
    /// The node itself, out of what its pods are said to use.
    #[default]
    Simulated,
    /// A koordlet, which finds the node's files and its kubelet as on a machine.
    Real,
}

/// GPUs of a node, spread over its NUMA nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpus {
    pub count: u32,
    pub model: String,
    pub driver: String,
    /// Bytes, of each.
    pub memory: i64,
}

/// RDMA network cards of a node, spread over its NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rdma {
    pub count: u32,
    /// Virtual functions of each.
    pub vfs: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

const GIB: i64 = 1 << 30;

/// What kubelet keeps back by default: the point at which it evicts for memory.
const EVICTION_MEMORY: i64 = 100 << 20;

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            cores: 32,
            threads: 1,
            sockets: 1,
            numa_per_socket: 1,
            memory: 128 * GIB,
            ephemeral_storage: 200 * GIB,
            pods: 110,
            reserved_cpu_milli: 0,
            reserved_memory: 0,
            gpus: Gpus::default(),
            rdma: Rdma::default(),
            resources: ResourceList::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            region: "sandbox".to_owned(),
            zones: zone_names(1),
            topology_policy: "none".to_owned(),
            koordlet: Koordlet::Simulated,
        }
    }
}

impl Default for Gpus {
    fn default() -> Gpus {
        Gpus {
            count: 0,
            model: "A100-SXM4-80GB".to_owned(),
            driver: "550.54.15".to_owned(),
            memory: 80 * GIB,
        }
    }
}

impl Pool {
    /// The name of the node with this number.
    pub fn node_name(&self, index: u32) -> String {
        format!("{}-{index}", self.name)
    }
}

impl Shape {
    /// Logical CPUs.
    pub fn cpus(&self) -> u32 {
        self.cores * self.threads
    }

    pub fn numa_nodes(&self) -> u32 {
        self.sockets * self.numa_per_socket
    }

    /// Where each CPU sits: cores in order over the NUMA nodes, second threads after all first ones, as
    /// Linux numbers them.
    pub fn topology(&self) -> CpuTopology {
        let per_node = self.cores / self.numa_nodes().max(1);
        CpuTopology::new((0..self.cpus()).map(|id| {
            let core = id % self.cores.max(1);
            let node = core / per_node.max(1);
            CpuInfo { id, core, node, socket: node / self.numa_per_socket.max(1) }
        }))
    }

    /// The zone of the node with this number.
    pub fn zone(&self, index: u32) -> Option<&str> {
        let count = u32::try_from(self.zones.len()).ok().filter(|count| *count > 0)?;
        let at = usize::try_from(index % count).ok()?;
        self.zones.get(at).map(String::as_str)
    }

    /// Bytes that pods may use.
    pub fn allocatable_memory(&self) -> i64 {
        (self.memory - self.reserved_memory - EVICTION_MEMORY).max(0)
    }

    /// Bytes that pods may use: kubelet evicts when a tenth is left.
    pub fn allocatable_storage(&self) -> i64 {
        self.ephemeral_storage - self.ephemeral_storage / 10
    }
}

fn zone_names(count: u32) -> Vec<String> {
    (1..=count).map(|number| format!("zone-{number}")).collect()
}

#[cfg(test)]
mod tests;
