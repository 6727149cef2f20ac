//! NodeNUMAResource. Spec: scheduler-numa-cpu 4.

use super::fit::cpu_and_memory;
use super::{Allocation, Scoring};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNumaResourceArgs {
    pub default_cpu_bind_policy: CpuBindDefault,
    /// Of nodes.
    pub scoring: Scoring,
    /// Of NUMA nodes within a node.
    pub numa_scoring: Scoring,
}

/// What a pod that may bind CPUs gets when it names no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuBindDefault {
    /// It is not bound.
    Unbound,
    FullPcpus,
    SpreadByPcpus,
}

impl Default for NodeNumaResourceArgs {
    fn default() -> NodeNumaResourceArgs {
        let least = Scoring { strategy: Allocation::Least, resources: cpu_and_memory() };
        NodeNumaResourceArgs {
            default_cpu_bind_policy: CpuBindDefault::FullPcpus,
            scoring: least.clone(),
            numa_scoring: least,
        }
    }
}
