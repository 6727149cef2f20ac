//! Why something is wanted: the numbers behind a wish, as one value that audit records are rendered from.
//!
//! Every wish of every turn has one, so it is a plain value without an allocation of its own, put into words only when
//! something is written. The numbers are those of the module that decides; a new kind is one variant here.

use std::fmt;
use std::sync::Arc;

use super::hooks::{
    batch_resource, core_sched, cpu_normalization, cpuset, group_identity, oom_score, pod_resctrl, tc,
};
use super::{blkio, cpu_burst, cpu_suppress, memory_qos, resctrl, system_config};

/// The numbers behind a wish.
///
/// Any two are equal: the same value for other numbers is the same wish.
#[derive(Clone, Debug, Default)]
pub enum Why {
    /// Nothing led to it but the value itself.
    #[default]
    Unsaid,
    /// Shared by all groups of best-effort pods.
    Suppress(Arc<cpu_suppress::Numbers>),
    /// Only there when a quota moves.
    QuotaBurst(Arc<cpu_burst::Numbers>),
    KernelBurst(cpu_burst::Saving),
    Memory(memory_qos::Numbers),
    MemoryOfPods(memory_qos::Sum),
    MinFree(system_config::Part),
    Resctrl(resctrl::Numbers),
    PodResctrl(pod_resctrl::Because),
    Identity(group_identity::Source),
    Cpus(cpuset::Because),
    BatchResource(batch_resource::Numbers),
    Normalization(cpu_normalization::Scaling),
    CoreSched(core_sched::Because),
    TrafficClass(tc::Because),
    Block(blkio::Because),
    OomScore(oom_score::Because),
}

impl Why {
    /// None when there is nothing to say.
    fn numbers(&self) -> Option<&dyn fmt::Display> {
        match self {
            Why::Unsaid => None,
            Why::Suppress(numbers) => Some(&**numbers),
            Why::QuotaBurst(numbers) => Some(&**numbers),
            Why::KernelBurst(saving) => Some(saving),
            Why::Memory(numbers) => Some(numbers),
            Why::MemoryOfPods(sum) => Some(sum),
            Why::MinFree(part) => Some(part),
            Why::Resctrl(numbers) => Some(numbers),
            Why::PodResctrl(because) => Some(because),
            Why::Identity(source) => Some(source),
            Why::Cpus(because) => Some(because),
            Why::BatchResource(numbers) => Some(numbers),
            Why::Normalization(scaling) => Some(scaling),
            Why::CoreSched(because) => Some(because),
            Why::TrafficClass(because) => Some(because),
            Why::Block(because) => Some(because),
            Why::OomScore(because) => Some(because),
        }
    }
}

/// What follows the words about the write: `; ` and the numbers, or nothing.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.numbers().map_or(Ok(()), |numbers| write!(f, "; {numbers}"))
    }
}

impl PartialEq for Why {
    fn eq(&self, _: &Why) -> bool {
        true
    }
}

/// An amount that may not be there, as words have it.
pub(super) struct OrNone(pub(super) Option<i64>);

impl fmt::Display for OrNone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(amount) => amount.fmt(f),
            None => f.write_str("none"),
        }
    }
}
