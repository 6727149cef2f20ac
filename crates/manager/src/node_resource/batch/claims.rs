//! Who on a node has a better claim than batch pods, and to how much. Spec: manager 6.1, 6.3.

use std::cmp::Ordering;
use std::ops::AddAssign;

use koord_api::priority::PriorityClass;
use koord_api::qos::Qos;
use koord_api::quantity::Quantity;

use super::steady::Steady;
use crate::amounts::{Amounts, scale_milli_trunc, scale_trunc};
use crate::node_resource::plugin::Input;
use crate::node_resource::view::{MetricView, PodUsage};
use crate::pods::PodBrief;
use koord_api::number::nearest;

/// Sums over high-priority pods, one for each policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Claims {
    pub request: Amounts,
    pub used: Amounts,
    pub max_used_request: Amounts,
}

impl AddAssign for Claims {
    fn add_assign(&mut self, other: Claims) {
        self.request += other.request;
        self.used += other.used;
        self.max_used_request += other.max_used_request;
    }
}

/// How many pods stand behind the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// High-priority pods.
    pub pods: usize,
    /// Those of them that no report has measured.
    pub unmeasured: usize,
    /// Reports about pods that are no longer there.
    pub dangling: usize,
}

/// The high-priority pods of a node, there or still reported.
pub struct Tenants<'a> {
    all: Vec<Tenant<'a>>,
    /// How many were measured in an earlier report only.
    pub(super) borrowed: usize,
}

/// One of them.
struct Tenant<'a> {
    /// Of native resources.
    request: Amounts,
    /// Of native and mid resources.
    demand: Amounts,
    used: Measured,
    /// Whether its CPUs are its own even when idle.
    is_lse: bool,
    numa_nodes: &'a [i32],
}

#[derive(Clone, Copy)]
enum Measured {
    Used(Amounts),
    /// Nobody measured it; what it is expected to use.
    Expected(Amounts),
    /// Reported, but not there.
    Dangling(Amounts),
}

impl<'a> Tenants<'a> {
    pub(super) fn of(
        input: &Input<'a>,
        metric: &MetricView,
        steady: Option<&Steady>,
        is_bridged: bool,
    ) -> Tenants<'a> {
        let mut active: Vec<&'a PodBrief> =
            input.pods.iter().map(AsRef::as_ref).filter(|pod: &&PodBrief| pod.is_active()).collect();
        active.sort_unstable_by_key(|pod| pod.names());
        let mut borrowed = 0;
        let mut all: Vec<Tenant<'a>> = Vec::with_capacity(active.len());
        // Both are in the order of their names: one walk tells who was measured and who is gone.
        let mut usages = metric.pods.iter().peekable();
        let mut dangling: Vec<&PodUsage> = Vec::new();
        for pod in active {
            let mut now = None;
            while let Some(usage) = usages.peek() {
                match usage.key().cmp(&pod.names()) {
                    Ordering::Less => dangling.extend(usages.next()),
                    Ordering::Equal => now = usages.next(),
                    Ordering::Greater => break,
                }
            }
            if pod.is_high_priority() {
                let used = now.or_else(|| steady.and_then(|steady| steady.used_before(pod.names())));
                borrowed += usize::from(now.is_none() && used.is_some());
                all.push(Tenant::of(pod, used));
            }
        }
        dangling.extend(usages);
        if steady.is_some() && !is_bridged {
            expect_less(&mut all);
        }
        let dangling = dangling.into_iter().filter(|usage| outranks_batch(usage, steady.is_some()));
        all.extend(dangling.map(Tenant::dangling));
        Tenants { all, borrowed }
    }

    pub(super) fn claims(&self) -> Claims {
        let mut sum = Claims::default();
        for tenant in &self.all {
            sum += tenant.claims(|amounts| amounts);
        }
        sum
    }

    /// The claims on each of so many zones. Who has no NUMA node among them is spread over all.
    pub(super) fn claims_by_zone(&self, zones: usize) -> Vec<Claims> {
        let mut sums = vec![Claims::default(); zones];
        let mut everywhere = Claims::default();
        for tenant in &self.all {
            let places = || {
                let places = tenant.numa_nodes.iter().filter_map(|id| usize::try_from(*id).ok());
                places.filter(|place| *place < zones)
            };
            match places().count() {
                0 => everywhere += tenant.claims(|amounts| amounts.share_ceil(zones)),
                // One zone's share is rounded, too.
                count => {
                    let share = tenant.claims(|amounts| amounts.share_ceil(count));
                    places().for_each(|place| sums[place] += share);
                }
            }
        }
        sums.iter_mut().for_each(|sum| *sum += everywhere);
        sums
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for tenant in &self.all {
            match tenant.used {
                Measured::Used(_) => counts.pods += 1,
                Measured::Expected(_) => {
                    counts.pods += 1;
                    counts.unmeasured += 1;
                }
                Measured::Dangling(_) => counts.dangling += 1,
            }
        }
        counts
    }
}

/// Whether what a pod that is gone still uses counts: it does unless it was of a lower class. The steadier strategy
/// takes the QoS for pods whose class was not reported.
fn outranks_batch(usage: &PodUsage, is_steady: bool) -> bool {
    let class =
        usage.class.or_else(|| (is_steady && usage.qos == Some(Qos::Be)).then_some(PriorityClass::Batch));
    !matches!(class, Some(PriorityClass::Batch | PriorityClass::Free))
}

impl<'a> Tenant<'a> {
    fn of(pod: &'a PodBrief, used: Option<&PodUsage>) -> Tenant<'a> {
        let request = pod.requests.native;
        Tenant {
            request,
            // Differs: mid resources count as requested too; upstream sees none in mid pods (DB-21).
            demand: request + pod.requests.mid,
            used: used.map_or(Measured::Expected(request), |usage| Measured::Used(usage.used)),
            is_lse: pod.qos == Some(Qos::Lse),
            numa_nodes: &pod.numa_nodes,
        }
    }

    fn dangling(usage: &PodUsage) -> Tenant<'a> {
        Tenant {
            request: Amounts::ZERO,
            demand: Amounts::ZERO,
            used: Measured::Dangling(usage.used),
            is_lse: false,
            numa_nodes: &[],
        }
    }

    /// What it claims where it has this share of its amounts.
    fn claims(&self, share: impl Fn(Amounts) -> Amounts) -> Claims {
        let (request, demand) = (share(self.request), share(self.demand));
        match self.used {
            // Differs: a pod that was not measured counts with its request for every policy; upstream forgets it for
            // maxUsageRequest (DB-1).
            Measured::Expected(used) => {
                Claims { request: demand, used: share(used), max_used_request: demand }
            }
            Measured::Used(used) => {
                let used = share(used);
                let cpu = if self.is_lse { request.cpu } else { used.cpu };
                let counted = Amounts { cpu, memory: used.memory };
                Claims { request: demand, used: counted, max_used_request: demand.max(used) }
            }
            Measured::Dangling(used) => {
                let used = share(used);
                Claims { request: Amounts::ZERO, used, max_used_request: used }
            }
        }
    }
}

/// A newcomer is expected to use as large a part of its request as those here do, and at least half of it.
const EXPECTED_MIN: f64 = 0.5;

/// Newcomers are not counted with all that they may use, only to shrink to what they do use a minute later.
fn expect_less(all: &mut [Tenant<'_>]) {
    let (mut requested, mut used) = (Amounts::ZERO, Amounts::ZERO);
    for tenant in all.iter() {
        // Who requests nothing, or something else, is nobody to go by.
        if let Measured::Used(amounts) = tenant.used
            && tenant.request != Amounts::ZERO
        {
            requested += tenant.request;
            used += amounts;
        }
    }
    let part = |used: Quantity, requested: Quantity| {
        let part = nearest(used.milli_value()) / nearest(requested.milli_value());
        // Nobody to compare with: all of it.
        if requested > Quantity::ZERO { part.clamp(EXPECTED_MIN, 1.0) } else { 1.0 }
    };
    let (cpu, memory) = (part(used.cpu, requested.cpu), part(used.memory, requested.memory));
    for tenant in all {
        if let Measured::Expected(expected) = &mut tenant.used {
            *expected = Amounts {
                cpu: scale_milli_trunc(tenant.request.cpu, cpu),
                memory: scale_trunc(tenant.request.memory, memory),
            };
        }
    }
}
