//! CPU suppression: how much CPU best-effort pods may use this second, and what that makes of their groups.
//!
//! Change the formula in `budget`, the size and choice of CPUs in `cpuset`, the quota in `quota`, the order of
//! it all in `plan`. Spec: koordlet-enforce 5.

pub mod cpuset;
pub mod pick;
pub mod quota;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use koord_api::cpuset::CpuSet;
use koord_api::crd::node_slo::{
    CgroupBase, CpuSuppressPolicy, HostApplicationSpec, ResourceThresholdStrategy,
};
use koord_api::qos::{KubeQos, Qos};

use super::convert::{UNLIMITED, milli_trunc, percent_trunc};
use super::snapshot::{BestEffortGroup, CpuUsage, Layout, Level, Node, Pod};
use super::wish::{Batch, Cause, File, Place, Value, Why, Wish};

/// Everything one cycle looks at, taken at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// None before the Node was seen.
    pub node: Option<&'a Node>,
    pub pods: &'a [Pod],
    pub applications: &'a [HostApplicationSpec],
    pub usage: &'a CpuUsage,
    /// None before the node's topology was reported.
    pub layout: Option<&'a Layout>,
    /// CPUs that the group of all pods has of its own, which best-effort pods cannot exceed; none when it has none.
    pub all_pods_cpus: Option<&'a CpuSet>,
    /// CPUs that the group of best-effort pods has now.
    pub old_cpus: &'a CpuSet,
    /// Its quota now; -1 is none.
    pub old_quota: i64,
    /// The groups below it that exist on disk.
    pub groups: &'a [BestEffortGroup],
}

/// The feature's switches.
#[derive(Clone, Copy, Debug)]
pub struct Switches<'a> {
    /// None when the node's strategy lacks the section.
    pub strategy: Option<&'a ResourceThresholdStrategy>,
    /// Gate BECPUManager: best-effort pods live in share pools, nobody is suppressed.
    pub is_cpu_manager_on: bool,
}

/// What was written before and need not be written again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The quota was given back since it was last used.
    pub is_quota_recovered: bool,
}

impl Memory {
    /// Takes note of whether the quota was written, where a plan gives it back.
    pub fn settle(&mut self, plan: &Plan, is_written: bool) {
        match plan.quota {
            QuotaMove::Used => self.is_quota_recovered = false,
            QuotaMove::Recovered if is_written => self.is_quota_recovered = true,
            QuotaMove::Recovered | QuotaMove::None => {}
        }
    }
}

/// What a cycle wants and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub verdict: Verdict,
    pub quota: QuotaMove,
    pub batches: Vec<Batch>,
}

impl Plan {
    /// Takes the write that gives the quota back out of the others: what becomes of these says nothing about it.
    pub fn take_recovery(&mut self) -> Option<Batch> {
        (self.quota == QuotaMove::Recovered).then(|| self.batches.pop()).flatten()
    }
}

/// What happens to the quota of best-effort pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaMove {
    None,
    /// The quota policy is in force.
    Used,
    /// The quota is given back, by the last batch.
    Recovered,
}

/// Why a cycle did what it did, with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing is touched.
    Skipped(Skip),
    /// Switched off: everything is given back.
    Off,
    /// Share pools take the place of suppression.
    Managed,
    ByCpuset {
        budget: Budget,
        /// None when there is nothing to choose from.
        choice: Result<cpuset::Choice, cpuset::NoChoice>,
    },
    ByQuota {
        budget: Budget,
        choice: quota::Choice,
    },
}

impl Verdict {
    /// Why there are no CPUs for best-effort pods, though they should be given some.
    pub fn fault(&self) -> Option<cpuset::NoChoice> {
        match self {
            Verdict::ByCpuset { choice: Err(fault), .. } => Some(*fault),
            _ => None,
        }
    }

    /// Whether this is of another kind than what was found before.
    pub fn is_news(&self, last: Option<&Verdict>) -> bool {
        let kind = |verdict: &Verdict| (std::mem::discriminant(verdict), verdict.fault());
        last.is_none_or(|last| kind(last) != kind(self))
    }
}

/// What is missing for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    #[error("cannot parse feature config for invalid nodeSLO")]
    NoStrategy,
    #[error("the node is not known yet")]
    NoNode,
    #[error("the node has no pods")]
    NoPods,
    #[error("the node's CPU use is not known")]
    NoUsage,
}

/// One cycle. Spec: koordlet-enforce 5.2.
pub fn plan(sample: &Sample<'_>, switches: Switches<'_>, memory: Memory) -> Plan {
    let Some(strategy) = switches.strategy else { return skipped(Skip::NoStrategy) };
    if switches.is_cpu_manager_on {
        return given_back(Verdict::Managed, memory, managed_cpus(sample));
    }
    if strategy.enable != Some(true) {
        return given_back(Verdict::Off, memory, recovered_cpus(sample));
    }
    let budget = match budget(sample, strategy) {
        Ok(budget) => budget,
        Err(skip) => return skipped(skip),
    };
    if strategy.cpu_suppress_policy == Some(CpuSuppressPolicy::CfsQuota) {
        return by_quota(sample, budget);
    }
    let choice = cpuset::choose(sample, budget.suppress_milli);
    let cpus = match (&choice, sample.layout) {
        (Ok(choice), Some(layout)) => {
            let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let (wanted, before) = (count(choice.wanted), count(choice.before));
            let why = Why::Suppress(Arc::new(Numbers { budget, wanted, before, unit: "CPUs" }));
            cpuset_batch(sample, layout, &choice.cpus, &why)
        }
        _ => None,
    };
    given_back(Verdict::ByCpuset { budget, choice }, memory, cpus)
}

fn skipped(skip: Skip) -> Plan {
    Plan { verdict: Verdict::Skipped(skip), quota: QuotaMove::None, batches: Vec::new() }
}

fn by_quota(sample: &Sample<'_>, budget: Budget) -> Plan {
    let choice = quota::choose(budget.suppress_milli, budget.capacity_milli, sample.old_quota);
    let why = Numbers { budget, wanted: choice.wanted, before: choice.before, unit: "us" };
    let wish = |quota: i64| quota_wish(quota, Cause::CpuSuppress).because(&Why::Suppress(Arc::new(why)));
    let mut wishes: Vec<Wish> = choice.quota.map(wish).into_iter().collect();
    if !wishes.is_empty() && sample.old_quota == UNLIMITED {
        wishes.extend(sample.groups.iter().map(unlimited));
    }
    let mut batches = if wishes.is_empty() { Vec::new() } else { vec![Batch::Each(wishes)] };
    batches.extend(recovered_cpus(sample));
    Plan { verdict: Verdict::ByQuota { budget, choice }, quota: QuotaMove::Used, batches }
}

/// Differs: quotas of single pods go together with the first quota of all, where upstream leaves them to a hook that runs
/// later: v1 refuses a quota that a child exceeds.
fn unlimited(group: &BestEffortGroup) -> Wish {
    let value = Value::Number(UNLIMITED);
    Wish::new(group.place.clone(), File::CpuCfsQuota, value, Cause::QuotaRecovery)
}

/// A plan that writes some CPUs, and gives the quota back unless that was done already.
fn given_back(verdict: Verdict, memory: Memory, cpus: Option<Batch>) -> Plan {
    let mut batches: Vec<Batch> = cpus.into_iter().collect();
    if memory.is_quota_recovered {
        return Plan { verdict, quota: QuotaMove::None, batches };
    }
    batches.push(Batch::Each(vec![quota_wish(UNLIMITED, Cause::QuotaRecovery)]));
    Plan { verdict, quota: QuotaMove::Recovered, batches }
}

fn quota_wish(quota: i64, cause: Cause) -> Wish {
    let place = Place::Kube(KubeQos::BestEffort);
    Wish::new(place, File::CpuCfsQuota, Value::Number(quota), cause)
}

/// How much CPU best-effort pods may use, and the parts of the sum. Milli-cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    pub capacity_milli: i64,
    pub threshold_percent: i64,
    pub min_percent: Option<i64>,
    /// Used by pods that are not best-effort, and by pods that nobody knows.
    pub ls_used_milli: i64,
    /// Used by best-effort pods.
    pub be_used_milli: i64,
    /// Used by host applications that are not best-effort.
    pub host_ls_used_milli: i64,
    /// Used by the rest of the system, or reserved for it, whichever is more.
    pub system_milli: i64,
    pub reserved_milli: i64,
    /// May be negative.
    pub suppress_milli: i64,
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Budget { capacity_milli, threshold_percent, ls_used_milli, host_ls_used_milli, .. } = self;
        let Budget { system_milli, reserved_milli, suppress_milli, be_used_milli, .. } = self;
        write!(
            f,
            "{threshold_percent} % of {capacity_milli}m - LS pods {ls_used_milli}m - host applications \
             {host_ls_used_milli}m - system {system_milli}m (reserved {reserved_milli}m)"
        )?;
        if let Some(percent) = self.min_percent {
            write!(f, ", at least {percent} %,")?;
        }
        write!(f, " = {suppress_milli}m; BE pods use {be_used_milli}m")
    }
}

/// A budget, and what it means for what best-effort pods have.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub budget: Budget,
    pub wanted: i64,
    pub before: i64,
    pub unit: &'static str,
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numbers { budget, wanted, before, unit } = self;
        write!(f, "{budget}; from {before} to {wanted} {unit}, a step at a time")
    }
}

/// suppress(BE) = capacity · threshold − used by LS − max(system, reserved). Spec: koordlet-enforce 5.1.
pub fn budget(sample: &Sample<'_>, strategy: &ResourceThresholdStrategy) -> Result<Budget, Skip> {
    let node = sample.node.ok_or(Skip::NoNode)?;
    if sample.pods.is_empty() {
        return Err(Skip::NoPods);
    }
    let usage = sample.usage;
    let node_used = usage.node.ok_or(Skip::NoUsage)?;
    let be: Vec<f64> =
        sample.pods.iter().filter(|p| p.is_best_effort()).filter_map(|p| used(usage, p)).collect();
    let (pods_all, pods_be): (f64, f64) = (usage.pods.values().sum(), be.iter().sum());
    let hosts = sample.applications.iter().filter_map(|app| Some((app, *usage.applications.get(&app.name)?)));
    let (mut host_all, mut host_ls) = (0.0, 0.0);
    for (application, cores) in hosts {
        host_all += cores;
        if !is_best_effort_application(application) {
            host_ls += cores;
        }
    }
    let capacity_milli = node.cpu_capacity_milli();
    let reserved_milli = node.cpu_reserved_milli();
    let system_milli = milli_trunc(node_used - pods_all - host_all).max(0).max(reserved_milli);
    let ls_used_milli = milli_trunc(ls_used(sample));
    let host_ls_used_milli = milli_trunc(host_ls);
    let threshold_percent = strategy.cpu_suppress_threshold_percent.unwrap_or(65);
    let free = percent_trunc(capacity_milli, threshold_percent)
        .saturating_sub(ls_used_milli)
        .saturating_sub(host_ls_used_milli)
        .saturating_sub(system_milli);
    let least = strategy.cpu_suppress_min_percent.map(|percent| percent_trunc(capacity_milli, percent));
    Ok(Budget {
        capacity_milli,
        threshold_percent,
        min_percent: strategy.cpu_suppress_min_percent,
        ls_used_milli,
        be_used_milli: milli_trunc(pods_be),
        host_ls_used_milli,
        system_milli,
        reserved_milli,
        suppress_milli: least.map_or(free, |least| free.max(least)),
    })
}

/// What pods use that are not known to be best-effort. Summed as they come, not as a difference, so that
/// nothing is lost by rounding.
fn ls_used(sample: &Sample<'_>) -> f64 {
    let best_effort: BTreeSet<&str> =
        sample.pods.iter().filter(|pod| pod.is_best_effort()).map(|pod| &*pod.id.uid).collect();
    let others = sample.usage.pods.iter().filter(|(uid, _)| !best_effort.contains(&***uid));
    others.map(|(_, cores)| cores).sum()
}

fn used(usage: &CpuUsage, pod: &Pod) -> Option<f64> {
    usage.pods.get(&pod.id.uid).copied()
}

/// Only an application inside the group of best-effort pods is held down with them.
fn is_best_effort_application(application: &HostApplicationSpec) -> bool {
    let base = application.cgroup_path.as_ref().and_then(|path| path.base.as_ref());
    application.qos == Qos::Be.as_str() && base == Some(&CgroupBase::KubepodsBesteffort)
}

/// All CPUs that best-effort pods may ever use: not those reserved, nor those of LSE pods.
///
/// Differs: pods that have ended give their CPUs back, where upstream keeps them for as long as kubelet lists the pod.
pub fn full_cpus(layout: &Layout, pods: &[Pod]) -> CpuSet {
    let mut cpus = layout.open_cpus();
    for pod in pods.iter().filter(|pod| pod.is_active() && pod.qos == Some(Qos::Lse)) {
        cpus = &cpus - &pod.pinned_cpus();
    }
    cpus
}

/// The full set for every group; none when there is no CPU to write.
fn recovered_cpus(sample: &Sample<'_>) -> Option<Batch> {
    let full = full_cpus(sample.layout?, sample.pods);
    levels(sample.groups, &full, &Why::default(), |_| Some(&full))
}

/// The full set for every group but those below pods that the cpuset hook looks after, sandboxes too. Which group is the
/// sandbox is known once the ids of all containers are told; until then nobody else would widen or narrow it, and on
/// cgroup v1 it would hold up its parents. A container that has just begun may be widened with it for that long. Spec: koordlet-enforce 5.7.
fn managed_cpus(sample: &Sample<'_>) -> Option<Batch> {
    let full = full_cpus(sample.layout?, sample.pods);
    let is_told =
        |pod: &Pod| pod.containers.iter().chain(&pod.init_containers).all(|container| container.id.is_some());
    let is_hooked = |group: &BestEffortGroup| {
        let pod = group.pod.as_ref().and_then(|uid| sample.pods.iter().find(|pod| pod.id.uid == *uid));
        let is_written = |pod: &Pod| matches!(group.place, Place::Container(..)) || is_told(pod);
        group.level == Level::Container && pod.is_some_and(|pod| pod.is_placed() && is_written(pod))
    };
    levels(sample.groups, &full, &Why::default(), |group| (!is_hooked(group)).then_some(&full))
}

/// Under kubelet's static manager only containers are narrowed: kubelet writes their sets itself and must not
/// be blocked by a narrow parent. Spec: koordlet-enforce 5.4.
fn cpuset_batch(sample: &Sample<'_>, layout: &Layout, cpus: &CpuSet, why: &Why) -> Option<Batch> {
    if !layout.is_kubelet_static {
        return levels(sample.groups, cpus, why, |_| Some(cpus));
    }
    let full = full_cpus(layout, sample.pods);
    levels(sample.groups, &full, why, |group| match group.level {
        Level::Pod => Some(&full),
        Level::Container => Some(cpus),
    })
}

/// A set for the group of all best-effort pods, and one for each group below.
fn levels<'a>(
    groups: &[BestEffortGroup],
    top: &CpuSet,
    why: &Why,
    of: impl Fn(&BestEffortGroup) -> Option<&'a CpuSet>,
) -> Option<Batch> {
    let wish = |place: Place, cpus: &CpuSet| {
        Wish::new(place, File::CpusetCpus, Value::Cpus(cpus.clone()), Cause::CpuSuppress).because(why)
    };
    if top.is_empty() {
        return None;
    }
    let level = |level: Level| {
        let groups = groups.iter().filter(|group| group.level == level);
        let sets = groups.filter_map(|group| Some((group, of(group)?)));
        sets.filter(|(_, cpus)| !cpus.is_empty())
            .map(|(group, cpus)| wish(group.place.clone(), cpus))
            .collect()
    };
    let root = vec![wish(Place::Kube(KubeQos::BestEffort), top)];
    Some(Batch::Levels(vec![root, level(Level::Pod), level(Level::Container)]))
}

#[cfg(test)]
mod tests;
