//! CPU burst: time that containers may save up in the kernel, and quotas raised while they are throttled.
//!
//! `node_state` says whether there is CPU to spare, `bucket` how long a container may use it, `quota` how far.
//! A container's burst and quota are decided together, because mainline kernels refuse a burst above the
//! quota. Spec: koordlet-enforce 6.

pub mod bucket;
pub mod quota;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use koord_api::annotation::ratio::Ratio;
use koord_api::crd::node_slo::{CpuBurstPolicy, CpuBurstStrategy};
use koord_api::keys::resource::CPU;
use koord_api::number::nearest;
use koord_api::qos::Qos;

use super::convert::{self, CFS_PERIOD_US, CFS_QUOTA_MIN_US};
use super::hooks::cpu_normalization::{self, Ratios};
use super::snapshot::{Container, CpuUsage, Pod, milli};
use super::why::OrNone;
use super::wish::{Batch, Cause, File, Place, Value, Why, Wish};
use bucket::{Bucket, Buckets};
use quota::Operation;

/// Everything one cycle looks at, taken at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    pub pods: &'a [Pod],
    /// Averages over the last seconds.
    pub usage: &'a CpuUsage,
    /// CPUs of the node; none before they were counted.
    pub processors: Option<usize>,
    pub groups: &'a BTreeMap<Place, GroupSample>,
    /// How much faster this node's CPU is, when CPU normalization is on.
    pub normalization: Ratios,
    /// Quotas of pinned pods are taken off by the cpuset hook, and not our business.
    pub is_pinned_quota_unset: bool,
    pub kernel: Kernel,
}

/// What is known of a pod's or container's group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupSample {
    /// None when it cannot be read; -1 is no limit.
    pub quota: Option<i64>,
    /// Cores used in the last second.
    pub used: Option<f64>,
    /// Share of periods that were throttled.
    pub throttled: Option<f64>,
}

/// What the kernel takes as burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The largest burst, in microseconds.
    pub burst_max: i64,
    /// Mainline: a burst above the quota is refused.
    pub is_burst_within_quota: bool,
}

/// What a cycle wants and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub node: NodeLoad,
    pub containers: Vec<ContainerBurst>,
    pub batches: Vec<Batch>,
}

/// What was decided for one container, with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerBurst {
    pub pod: usize,
    pub container: usize,
    /// Microseconds; none when the kernel would not take it.
    pub burst: Option<i64>,
    /// What the burst comes from.
    pub saving: Saving,
    pub quota: Option<quota::Move>,
}

/// One cycle. `luck` fills new buckets: a number from 0 to below 0.5 each time it is asked.
pub fn plan(
    now: Duration,
    sample: &Sample<'_>,
    strategy: &CpuBurstStrategy,
    buckets: &mut Buckets,
    luck: &mut dyn FnMut() -> f64,
) -> Plan {
    let node = node_load(sample, strategy);
    let mut plan = Plan { node, containers: Vec::new(), batches: Vec::new() };
    for (index, pod) in sample.pods.iter().enumerate() {
        let is_handled = pod.is_active() && !matches!(pod.qos, Some(Qos::Lse | Qos::Lsr | Qos::Be));
        if !is_handled {
            continue;
        }
        let own = match &pod.cpu_burst {
            Ok(Some(own)) => &own.over(strategy),
            _ => strategy,
        };
        let mut turn = Turn { now, sample, strategy: own, node, pod, buckets: &mut *buckets };
        let containers = turn.containers(luck);
        turn.batches(&containers, &mut plan.batches);
        plan.containers.extend(containers.into_iter().map(|c| ContainerBurst { pod: index, ..c }));
    }
    buckets.sweep(now);
    plan
}

/// One pod's part of a cycle.
struct Turn<'a> {
    now: Duration,
    sample: &'a Sample<'a>,
    strategy: &'a CpuBurstStrategy,
    node: NodeLoad,
    pod: &'a Pod,
    buckets: &'a mut Buckets,
}

impl Turn<'_> {
    fn containers(&mut self, luck: &mut dyn FnMut() -> f64) -> Vec<ContainerBurst> {
        let pod = self.pod;
        let mut out = Vec::new();
        for (index, container) in pod.containers.iter().enumerate() {
            let Some(place) = container.place(pod) else { continue };
            let group = self.sample.groups.get(&place).copied().unwrap_or_default();
            let quota = self.quota_move(container, &group, luck);
            let effective = quota.as_ref().map_or(group.quota, |quota| Some(quota.target));
            let limit_milli = milli(&container.limits, CPU).unwrap_or(0);
            let saving = Saving::new(limit_milli, self.strategy, effective);
            let burst = self.within_kernel(saving.burst(), effective);
            out.push(ContainerBurst { pod: 0, container: index, burst, saving, quota });
        }
        out
    }

    /// None when the container has no quota to move, or none that can be read.
    fn quota_move(
        &mut self,
        container: &Container,
        group: &GroupSample,
        luck: &mut dyn FnMut() -> f64,
    ) -> Option<quota::Move> {
        let limit_milli = milli(&container.limits, CPU).filter(|limit| *limit > 0)?;
        let id = container.id.clone().filter(|_| container.is_running)?;
        // Differs: a pinned pod's quota is left to the cpuset hook, which takes it off (item 28).
        if self.is_left_out() {
            return None;
        }
        let limit = nearest(limit_milli) / 1000.0;
        let used = group.used.unwrap_or(limit);
        let is_allowed = self.buckets.ask(&id, self.now, self.strategy, used / limit * 100.0, luck);
        // Differs: the base is what CPU normalization makes of the limit, so that the two agree (item 28).
        let base = convert::scaled_quota(convert::quota(limit_milli), self.normalization().containers);
        let wish = Operation::wanted(self.strategy, is_allowed, group.throttled);
        Some(quota::Move::new(base, self.strategy, group.quota?, wish, self.node.state))
    }

    /// The burst that the kernel takes beside a quota.
    fn within_kernel(&self, burst: i64, quota: Option<i64>) -> Option<i64> {
        let kernel = self.sample.kernel;
        let burst = match quota {
            Some(quota) if kernel.is_burst_within_quota && quota > 0 => burst.min(quota),
            _ => burst,
        };
        (0..=kernel.burst_max).contains(&burst).then_some(burst)
    }

    /// Bursts that must shrink before quotas do, then quotas, then the other bursts.
    fn batches(&self, containers: &[ContainerBurst], out: &mut Vec<Batch>) {
        let held = self.sample.groups.get(&self.pod.place()).and_then(|group| group.quota);
        let ratios = self.normalization();
        let mut quotas = match ratios.containers {
            Some(_) => self.quotas_at_once(containers, held, ratios.pods),
            None => self.quotas_in_turn(containers, held),
        };
        // Any quota is less than none.
        let is_shrinking = |c: &&ContainerBurst| {
            c.quota.as_ref().is_some_and(|quota| quota.before < 0 || quota.target < quota.before)
        };
        let (early, late): (Vec<&ContainerBurst>, Vec<_>) = containers.iter().partition(is_shrinking);
        let write = |c: &&ContainerBurst| {
            Some(self.wish(c, File::CpuCfsBurst, c.burst?)?.because(&Why::KernelBurst(c.saving)))
        };
        // A quota that dips on its way, even if it ends higher, needs a burst that fits below the dip.
        let is_pod_shrinking = quotas.pod_lowest < held;
        let pod_quota = if is_pod_shrinking { quotas.pod_lowest } else { quotas.pod };
        let sum = self.pod_burst(containers, pod_quota);
        let why = Why::KernelBurst(self.pod_saving(pod_quota));
        let pod_burst =
            sum.map(|burst| self.pod_wish(File::CpuCfsBurst, burst, Cause::CpuBurst).because(&why));
        let (before, after) = if is_pod_shrinking { (pod_burst, None) } else { (None, pod_burst) };
        let early: Vec<Wish> = early.iter().filter_map(write).chain(before).collect();
        let late: Vec<Wish> = late.iter().filter_map(write).chain(after).collect();
        out.extend(Some(early).filter(|wishes| !wishes.is_empty()).map(Batch::Each));
        out.append(&mut quotas.batches);
        out.extend(Some(late).filter(|wishes| !wishes.is_empty()).map(Batch::Each));
    }

    /// Each container takes its pod along by as much as it moves itself.
    fn quotas_in_turn(&self, containers: &[ContainerBurst], held: Option<i64>) -> Quotas {
        let mut quotas = Quotas { batches: Vec::new(), pod: held, pod_lowest: held };
        for (container, wanted) in moving(containers) {
            let delta = wanted.delta();
            let why = self.why(container, wanted);
            let own = self.wish(container, File::CpuCfsQuota, wanted.target).map(|wish| wish.because(&why));
            let moved = |quota: i64| quota.saturating_add(delta).max(CFS_QUOTA_MIN_US);
            let pods = quotas.pod.filter(|quota| *quota > 0 && delta != 0).map(moved);
            quotas.pod = pods.or(quotas.pod);
            quotas.pod_lowest = quotas.pod_lowest.min(quotas.pod);
            let pods =
                pods.map(|quota| self.pod_wish(File::CpuCfsQuota, quota, Cause::QuotaBurst).because(&why));
            let chain = if delta > 0 {
                pods.into_iter().chain(own).collect()
            } else {
                own.into_iter().chain(pods).collect()
            };
            quotas.batches.push(Batch::Chain(chain));
        }
        quotas
    }

    /// The pod and its containers together, each where it belongs.
    ///
    /// Differs: where CPU normalization scales quotas, the pod's follows from limits and not from its last value: a container
    /// begins with a quota that nobody scaled and its pod never had, and would take the pod down with it (item 28).
    fn quotas_at_once(
        &self,
        containers: &[ContainerBurst],
        held: Option<i64>,
        ratio: Option<Ratio>,
    ) -> Quotas {
        let target = held.filter(|quota| *quota > 0).and_then(|_| self.normal_quota(containers, ratio));
        let is_moving = target.is_some() && target != held;
        let pods = target.filter(|_| is_moving).map(|quota| {
            let why = self.why_normal(containers, ratio);
            self.pod_wish(File::CpuCfsQuota, quota, Cause::QuotaBurst).because(&why)
        });
        let own = |(container, wanted): (&ContainerBurst, &quota::Move)| {
            let wish = self.wish(container, File::CpuCfsQuota, wanted.target)?;
            Some(wish.because(&self.why(container, wanted)))
        };
        let own: Vec<Wish> = moving(containers).filter_map(own).collect();
        let levels = vec![pods.into_iter().collect(), own];
        let is_quiet = levels.iter().all(Vec::is_empty);
        let batches = if is_quiet { Vec::new() } else { vec![Batch::Levels(levels)] };
        let pod = target.or(held);
        Quotas { batches, pod, pod_lowest: held.min(pod) }
    }

    /// What the pod's quotas are scaled by; nothing when they are not, or are left to others.
    fn normalization(&self) -> Ratios {
        let is_scaled = cpu_normalization::applies(self.pod) && !self.is_left_out();
        if is_scaled { self.sample.normalization } else { Ratios::default() }
    }

    /// A pinned pod's quota is left to the cpuset hook, which takes it off.
    fn is_left_out(&self) -> bool {
        self.sample.is_pinned_quota_unset && self.pod.is_pinned()
    }

    /// What the pod's limits say together, scaled, and what its containers have above theirs. None without a limit, and
    /// while an init container runs: kubelet may have made room for it.
    fn normal_quota(&self, containers: &[ContainerBurst], ratio: Option<Ratio>) -> Option<i64> {
        let whole = cpu_normalization::pod_quota(self.pod);
        let is_beginning = self.pod.running_init_containers().next().is_some();
        let base = (whole > 0 && !is_beginning).then(|| convert::scaled_quota(whole, ratio))?;
        let moves = containers.iter().filter_map(|container| container.quota.as_ref());
        Some(moves.map(quota::Move::above).fold(base, i64::saturating_add))
    }

    /// The first container that has more than its limit says; else the limits themselves.
    fn why_normal(&self, containers: &[ContainerBurst], ratio: Option<Ratio>) -> Why {
        let raised = |container: &ContainerBurst| {
            let quota = container.quota.filter(|quota| quota.above() > 0)?;
            Some(self.why(container, &quota))
        };
        let quota = cpu_normalization::pod_quota(self.pod);
        let scaling = cpu_normalization::Scaling { quota, ratio };
        containers.iter().find_map(raised).unwrap_or(Why::Normalization(scaling))
    }

    /// The sum over containers of what they should have; none without containers or when it is too large.
    fn pod_burst(&self, containers: &[ContainerBurst], pod_quota: Option<i64>) -> Option<i64> {
        let bursts = containers.iter().map(|c| match self.sample.kernel.is_burst_within_quota {
            true => c.burst.unwrap_or(0),
            false => c.saving.burst(),
        });
        let sum = bursts.fold(0, i64::saturating_add);
        (!containers.is_empty()).then_some(sum).and_then(|sum| self.within_kernel(sum, pod_quota))
    }

    fn wish(&self, burst: &ContainerBurst, file: File, value: i64) -> Option<Wish> {
        let place = self.pod.containers.get(burst.container)?.place(self.pod)?;
        let cause = if file == File::CpuCfsQuota { Cause::QuotaBurst } else { Cause::CpuBurst };
        Some(Wish::new(place, file, Value::Number(value), cause))
    }

    fn why(&self, burst: &ContainerBurst, quota: &quota::Move) -> Why {
        let own = self.pod.containers.get(burst.container);
        let place = own.and_then(|own| own.place(self.pod));
        let group = place.and_then(|place| self.sample.groups.get(&place)).copied().unwrap_or_default();
        let bucket = own.and_then(|own| self.buckets.get(own.id.as_deref()?)).copied();
        let limit_milli = burst.saving.limit_milli;
        Why::QuotaBurst(Arc::new(Numbers { limit_milli, quota: *quota, group, bucket, node: self.node }))
    }

    /// What the pod's burst comes from: the limits of its containers together.
    fn pod_saving(&self, quota: Option<i64>) -> Saving {
        let limits = self.pod.containers.iter().filter_map(|own| milli(&own.limits, CPU));
        Saving::new(limits.fold(0, i64::saturating_add), self.strategy, quota)
    }

    fn pod_wish(&self, file: File, value: i64, cause: Cause) -> Wish {
        Wish::new(self.pod.place(), file, Value::Number(value), cause)
    }
}

/// Writes of a pod's quotas, and what they make of its own. Microseconds; -1 is none.
struct Quotas {
    batches: Vec<Batch>,
    /// None when it is not known.
    pod: Option<i64>,
    pod_lowest: Option<i64>,
}

/// Containers whose quota is not where it should be.
fn moving(containers: &[ContainerBurst]) -> impl Iterator<Item = (&ContainerBurst, &quota::Move)> {
    let quotas = containers.iter().filter_map(|container| Some((container, container.quota.as_ref()?)));
    quotas.filter(|(_, quota)| quota.target != quota.before)
}

/// What moved a quota.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub limit_milli: i64,
    pub quota: quota::Move,
    pub group: GroupSample,
    /// None where bursts may last for ever.
    pub bucket: Option<Bucket>,
    pub node: NodeLoad,
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quota::Move { operation, base, ceiling, before, target, .. } = self.quota;
        let NodeLoad { state, pool_total, pool_used, threshold_percent } = self.node;
        let limit_milli = self.limit_milli;
        write!(
            f,
            "{operation:?} from {before} to {target}, within {base} and {ceiling} of limit {limit_milli}m"
        )?;
        if let Some(cores) = self.group.used {
            write!(f, "; {cores:.2} cores used")?;
        }
        if let Some(share) = self.group.throttled {
            write!(f, ", {:.0} % of periods throttled", share * 100.0)?;
        }
        if let Some(Bucket { tokens, capacity, .. }) = self.bucket {
            write!(f, "; {tokens} of {capacity} tokens left")?;
        }
        write!(
            f,
            "; {state:?}: {pool_used:.2} of {pool_total:.2} shared cores used, threshold {threshold_percent} %"
        )
    }
}

/// What a container, or a pod, saves its time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saving {
    /// 0 without a limit.
    pub limit_milli: i64,
    /// None where the policy lets nothing be saved.
    pub percent: Option<i64>,
    /// The quota beside it; -1 is none, and None is not known.
    pub quota: Option<i64>,
}

impl Saving {
    fn new(limit_milli: i64, strategy: &CpuBurstStrategy, quota: Option<i64>) -> Saving {
        let is_on = matches!(strategy.policy, Some(CpuBurstPolicy::Auto | CpuBurstPolicy::CpuBurstOnly));
        Saving { limit_milli, percent: is_on.then(|| strategy.cpu_burst_percent.unwrap_or(0)), quota }
    }

    /// Time that may be saved up, in microseconds, whatever the kernel takes. Spec: koordlet-enforce 6.2.
    fn burst(&self) -> i64 {
        let Some(percent) = self.percent.filter(|_| self.limit_milli > 0) else { return 0 };
        let burst = i128::from(self.limit_milli) * i128::from(percent) * i128::from(CFS_PERIOD_US) / 100_000;
        i64::try_from(burst).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Saving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}m, cpuBurstPercent {}", self.limit_milli, OrNone(self.percent))?;
        self.quota.map_or(Ok(()), |quota| write!(f, ", quota {quota}"))
    }
}

/// How full the CPUs are that containers may burst into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLoad {
    pub state: NodeState,
    /// Cores that are not pinned by LSE and LSR pods.
    pub pool_total: f64,
    /// Used of them, by the system too.
    pub pool_used: f64,
    pub threshold_percent: i64,
}

/// Whether there is CPU to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Idle,
    /// Nearly full: nothing is raised.
    Cooling,
    /// Full: everything is lowered.
    Overload,
    /// Without samples nothing is raised.
    Unknown,
}

/// Spec: koordlet-enforce 6.1.
pub fn node_load(sample: &Sample<'_>, strategy: &CpuBurstStrategy) -> NodeLoad {
    let threshold_percent = strategy.share_pool_threshold_percent.unwrap_or(50);
    let (Some(node_used), Some(processors)) = (sample.usage.node, sample.processors) else {
        return NodeLoad { state: NodeState::Unknown, pool_total: 0.0, pool_used: 0.0, threshold_percent };
    };
    let mut pool_total = nearest(i64::try_from(processors).unwrap_or(i64::MAX));
    let mut pool_used = node_used;
    for pod in sample.pods {
        if pod.qos.is_some_and(Qos::is_pinned) {
            pool_total -= nearest(milli(&pod.requests, CPU).unwrap_or(0)) / 1000.0;
        }
        if matches!(pod.qos, Some(Qos::Lse | Qos::Lsr | Qos::Be)) {
            pool_used -= sample.usage.pods.get(&pod.id.uid).copied().unwrap_or(0.0);
        }
    }
    let ratio = if pool_total > 0.0 { pool_used / pool_total } else { 1.0 };
    let threshold = nearest(threshold_percent) / 100.0;
    let state = if ratio >= threshold {
        NodeState::Overload
    } else if ratio >= 0.9 * threshold {
        NodeState::Cooling
    } else {
        NodeState::Idle
    };
    NodeLoad { state, pool_total, pool_used, threshold_percent }
}

#[cfg(test)]
mod tests;
