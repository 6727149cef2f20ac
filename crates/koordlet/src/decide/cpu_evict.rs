//! Eviction for want of CPU: best-effort pods that get too little of what they request, a node too busy, and
//! more CPU promised than there is. Spec: koordlet-enforce 8.

pub mod satisfaction;

use koord_api::crd::node_slo::ResourceThresholdStrategy;
use koord_api::keys::resource::BATCH_CPU;
use koord_api::number::nearest;

use super::convert::milli_trunc;
use super::evict::ledger::{self, Ledger, Shortage};
use super::evict::pressure::{Pressure, PressureError, Release};
use super::evict::{
    Amounts, Kind, Resource, Task, Trigger, best_effort_victims, priority_victims, sort_by_satisfaction,
};
use super::snapshot::{CpuUsage, Node, Pod};

/// Everything the CPU triggers look at.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    pub node: &'a Node,
    pub pods: &'a [Pod],
    /// The node's average over the eviction window, and the newest of pods.
    pub usage: &'a CpuUsage,
}

/// Best-effort pods go until the others get what they request. `release` is what `satisfaction` found.
pub fn by_satisfaction<'a>(sample: &Sample<'a>, release: &satisfaction::Release) -> Task<'a> {
    let usage = sample.usage;
    let mut victims = best_effort_victims(sample.pods, Trigger::BeCpu);
    sort_by_satisfaction(&mut victims, |pod| usage.pods.get(&pod.id.uid).map_or(0.0, |cores| cores * 1000.0));
    Task {
        trigger: Trigger::BeCpu,
        kind: Kind::Requested,
        wanted: Amounts::from([(Resource::BatchCpu, release.milli)]),
        numbers: release.to_string(),
        victims,
        frees: Box::new(|pod| Amounts::from([(Resource::BatchCpu, pod.sum_requests(BATCH_CPU))])),
    }
}

/// Pods go by priority while the node is too busy. Spec: koordlet-enforce 8.2.
pub fn by_usage<'a>(
    sample: &Sample<'a>,
    strategy: &ResourceThresholdStrategy,
) -> Result<Option<(Task<'a>, Release)>, PressureError> {
    let threshold = strategy
        .cpu_evict_threshold_percent
        .ok_or(PressureError::NotConfigured("CPUEvictThresholdPercent"))?;
    let pressure = Pressure::new(Some(threshold), strategy.cpu_evict_lower_percent)?;
    let priority_max = strategy
        .evict_enabled_priority_threshold
        .ok_or(PressureError::NotConfigured("EvictEnabledPriorityThreshold"))?;
    let Some(used) = sample.usage.node.map(milli_trunc) else { return Ok(None) };
    let Some(release) = pressure.release(used, sample.node.cpu_capacity_milli()) else { return Ok(None) };
    let usage = sample.usage;
    let cores = move |pod: &Pod| usage.pods.get(&pod.id.uid).copied();
    let task = Task {
        trigger: Trigger::Cpu,
        kind: Kind::Used,
        wanted: Amounts::from([(Resource::Cpu, release.amount)]),
        numbers: release.to_string(),
        victims: priority_victims(sample.pods, Trigger::Cpu, priority_max, cores),
        frees: Box::new(move |pod| Amounts::from([(Resource::Cpu, cores(pod).map_or(0, milli_trunc))])),
    };
    Ok(Some((task, release)))
}

/// Pods go by priority while more is requested than the node offers. Spec: koordlet-enforce 8.3.
pub fn by_ledger<'a>(
    sample: &Sample<'a>,
    strategy: &ResourceThresholdStrategy,
) -> Result<Option<(Task<'a>, Vec<Shortage>)>, PressureError> {
    let ledger = Ledger::new(
        strategy.cpu_allocatable_evict_threshold_percent,
        strategy.cpu_allocatable_evict_lower_percent,
        strategy.allocatable_evict_priority_threshold,
    )?;
    let resources = [Resource::MidCpu, Resource::BatchCpu];
    let shortages = ledger.shortages(sample.pods, &sample.node.allocatable, resources);
    if shortages.is_empty() {
        return Ok(None);
    }
    let usage = sample.usage;
    let short = shortages.clone();
    let request = |pod: &Pod| ledger::frees(pod, &short).into_values().fold(0, i64::saturating_add);
    let size = |pod: &Pod| usage.pods.get(&pod.id.uid).map(|_| nearest(request(pod)));
    let victims = priority_victims(sample.pods, Trigger::CpuAllocatable, ledger.priority_max, size);
    let frees = shortages.clone();
    let task = Task {
        trigger: Trigger::CpuAllocatable,
        kind: Kind::Requested,
        wanted: shortages.iter().map(|shortage| (shortage.resource, shortage.release)).collect(),
        numbers: ledger::numbers(&ledger, &shortages),
        // A pod that frees nothing of what is short would go in vain.
        victims: victims.into_iter().filter(|pod| request(pod) > 0).collect(),
        frees: Box::new(move |pod| ledger::frees(pod, &frees)),
    };
    Ok(Some((task, shortages)))
}

#[cfg(test)]
mod tests;
