//! Which CPUs best-effort pods get for a budget. Spec: koordlet-enforce 5.3.

use koord_api::cpuset::CpuSet;
use koord_api::qos::Qos;

use super::Sample;
use super::pick::pick;
use crate::decide::snapshot::{Layout, Pod};

/// CPUs that best-effort pods keep whatever happens, where there are so many.
const CPUS_MIN: usize = 2;

/// The chosen CPUs and how their number came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub cpus: CpuSet,
    /// CPUs the budget is worth, at least the minimum.
    pub wanted: usize,
    /// CPUs they had before.
    pub before: usize,
    /// How many they may gain at once.
    pub step: usize,
    /// Of the chosen ones, how many belong to LSR pods.
    pub shared_with_lsr: usize,
}

/// Why there are no CPUs to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoChoice {
    #[error("the node's CPU topology is not known")]
    NoTopology,
    /// Every CPU is reserved or belongs to an LSE pod.
    #[error("no CPU is left for best-effort pods")]
    NoCpu,
}

/// Chooses CPUs worth the budget: shrinking at once, growing by a tenth of the machine.
///
/// Differs: what is wanted beyond the CPUs that exist is cut off, where upstream gives nothing and best-effort
/// pods keep CPUs of LSE pods; without any CPU upstream divides by zero (items 4, 25).
pub fn choose(sample: &Sample<'_>, suppress_milli: i64) -> Result<Choice, NoChoice> {
    let layout = sample.layout.ok_or(NoChoice::NoTopology)?;
    let wanted = wanted(suppress_milli);
    let before = sample.old_cpus.len();
    let step = layout.topology.all().len().div_ceil(10);
    let size = wanted.min(before.saturating_add(step));
    let (lsr, others) = pools(&usable(layout, sample.all_pods_cpus), sample.pods);
    let available = lsr.len() + others.len();
    if available == 0 {
        return Err(NoChoice::NoCpu);
    }
    let size = size.min(available);
    let shared_with_lsr = size * lsr.len() / available;
    let from_lsr = pick(&layout.topology, &lsr, shared_with_lsr);
    let from_others = pick(&layout.topology, &others, size - shared_with_lsr);
    let cpus: CpuSet = from_lsr.into_iter().chain(from_others).collect();
    if cpus.is_empty() {
        return Err(NoChoice::NoCpu);
    }
    Ok(Choice { cpus, wanted, before, step, shared_with_lsr })
}

/// Whole CPUs of a budget, rounded up, never below the minimum.
fn wanted(suppress_milli: i64) -> usize {
    let cores = usize::try_from(suppress_milli.max(0)).unwrap_or(usize::MAX).div_ceil(1000);
    cores.max(CPUS_MIN)
}

/// Differs: CPUs that the group of all pods lacks are not chosen, where upstream's choice is refused. v1 gives a CPU that was
/// offline back to no group.
fn usable(layout: &Layout, all_pods_cpus: Option<&CpuSet>) -> CpuSet {
    let open = layout.open_cpus();
    all_pods_cpus.map_or(open.clone(), |cpus| &open & cpus)
}

/// CPUs pinned by LSR pods, and all others but those of LSE pods. A CPU that two pods claim is the later one's.
///
/// Differs: pods that have ended claim none.
fn pools(open: &CpuSet, pods: &[Pod]) -> (CpuSet, CpuSet) {
    let mut lse = CpuSet::new();
    let mut lsr = CpuSet::new();
    for pod in pods.iter().filter(|pod| pod.is_active()) {
        let pinned = pod.pinned_cpus();
        lse = &lse - &pinned;
        lsr = &lsr - &pinned;
        match pod.qos {
            Some(Qos::Lse) => lse = &lse | &pinned,
            Some(Qos::Lsr) => lsr = &lsr | &pinned,
            _ => {}
        }
    }
    (open & &lsr, &(open - &lse) - &lsr)
}
