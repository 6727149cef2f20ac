//! Eviction: how much must be freed, whose turn it is, and when it is enough.
//!
//! A trigger makes a [`Task`]; a [`Round`] walks through the tasks of one cycle and names one victim after the
//! other, hearing after each whether it went. Spec: koordlet-enforce 7.

pub mod ledger;
pub mod pressure;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY};
use koord_api::number::nearest;
use koord_api::qos::Qos;

use super::snapshot::Pod;

/// The reason that evictions are reported with.
pub const REASON: &str = "evicted";

/// A feature that evicts, by its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
    BeCpu,
    CpuAllocatable,
    Cpu,
    BeMemory,
    MemoryAllocatable,
    Memory,
}

impl Trigger {
    /// The feature gate.
    pub fn gate(self) -> &'static str {
        match self {
            Trigger::BeCpu => "BECPUEvict",
            Trigger::CpuAllocatable => "CPUAllocatableEvict",
            Trigger::Cpu => "CPUEvict",
            Trigger::BeMemory => "BEMemoryEvict",
            Trigger::MemoryAllocatable => "MemoryAllocatableEvict",
            Trigger::Memory => "MemoryEvict",
        }
    }

    /// The message that an eviction is reported with.
    pub fn message(self, pod: &Pod) -> String {
        format!("trigger by koordlet feature {}, kill pod: {}", self.gate(), pod.name)
    }

    /// The event on a pod that was evicted, or was not for the reason given: its reason and its message. The numbers
    /// come last, so that whoever knows upstream's words finds them at the beginning.
    pub fn event(self, pod: &Pod, numbers: &str, error: Option<&str>) -> (&'static str, String) {
        let Pod { namespace, name, .. } = pod;
        let message =
            format!("evict Pod:{namespace}/{name}, reason: {REASON}, message: {}", self.message(pod));
        match error {
            None => ("evictPodSuccess", format!("{message}; {numbers}")),
            // Without numbers, which differ each time: equal events are counted, others fill the list.
            Some(error) => ("evictPodFail", format!("{message}, error {error}")),
        }
    }

    /// Whether the pod lets this feature evict it.
    pub fn is_allowed_by(self, pod: &Pod) -> bool {
        pod.eviction_policy.as_ref().is_none_or(|policy| policy.allows(self.gate()))
    }
}

/// A resource that is freed. CPU in milli-cores, memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Cpu,
    MidCpu,
    BatchCpu,
    Memory,
    MidMemory,
    BatchMemory,
}

impl Resource {
    pub fn name(self) -> &'static str {
        match self {
            Resource::Cpu => CPU,
            Resource::MidCpu => MID_CPU,
            Resource::BatchCpu => BATCH_CPU,
            Resource::Memory => MEMORY,
            Resource::MidMemory => MID_MEMORY,
            Resource::BatchMemory => BATCH_MEMORY,
        }
    }
}

/// What is counted as freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What a pod uses.
    Used,
    /// What a pod requests.
    Requested,
}

pub type Amounts = BTreeMap<Resource, i64>;

/// What one trigger wants freed, and from whom, first to last.
pub struct Task<'a> {
    pub trigger: Trigger,
    pub kind: Kind,
    pub wanted: Amounts,
    /// What was found on the node, and the thresholds it met.
    pub numbers: String,
    pub victims: Vec<&'a Pod>,
    /// What one pod frees.
    pub frees: Box<dyn Fn(&Pod) -> Amounts + 'a>,
}

impl std::fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let victims: Vec<&str> = self.victims.iter().map(|pod| pod.name.as_str()).collect();
        f.debug_struct("Task")
            .field("trigger", &self.trigger)
            .field("kind", &self.kind)
            .field("wanted", &self.wanted)
            .field("numbers", &self.numbers)
            .field("victims", &victims)
            .finish_non_exhaustive()
    }
}

/// Whether the last eviction is too recent for another.
pub fn is_cooling(now: Duration, last: Option<Duration>, cool: Duration) -> bool {
    last.is_some_and(|last| now.saturating_sub(last) < cool)
}

/// After the first round in which something failed nobody is asked for so long; after each further one twice as long.
const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
/// No longer than this: who did not answer may be back, and a disruption budget may have room again.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// How long nobody is asked after so many rounds with a failure, one after the other.
pub fn back_off(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1);
    BACK_OFF_FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(BACK_OFF_MAX)
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pod goes, or has gone already.
    Leaving,
    /// No answer in time. The order may have arrived all the same.
    Unanswered,
    /// This pod stays; another may go.
    Refused,
    /// Nothing of it runs, so nothing can be stopped, and nothing is freed. Nobody's failure.
    NothingRuns,
    /// Nobody is there to be asked, about other pods neither.
    Unreachable,
}

/// One cycle's evictions: ask `next_victim`, evict, report with `done`.
pub struct Round<'a> {
    tasks: &'a [Task<'a>],
    released: BTreeMap<(Kind, Resource), i64>,
    handled: BTreeSet<Arc<str>>,
    task: usize,
    victim: usize,
    /// The pod whose outcome is awaited.
    current: Option<&'a Pod>,
    is_over: bool,
    /// Whether at least one pod was evicted now, which starts the cool-down.
    pub has_evicted: bool,
    /// Whether at least one pod was not.
    pub has_failed: bool,
}

/// The next pod to evict.
#[derive(Clone, Debug, PartialEq)]
pub struct Order<'a> {
    pub pod: &'a Pod,
    pub trigger: Trigger,
    /// Why: what was found, what is wanted, what is freed so far and what this pod frees.
    pub numbers: String,
}

impl<'a> Round<'a> {
    /// `pending` were evicted before and are still there. They count before anybody is picked, for a pod on its way
    /// may use nothing any more and stand behind those that would then go too.
    ///
    /// Differs: upstream counts them as it comes to them (7.2).
    pub fn new(tasks: &'a [Task<'a>], pending: &BTreeSet<Arc<str>>) -> Round<'a> {
        let mut round = Round {
            tasks,
            released: BTreeMap::new(),
            handled: BTreeSet::new(),
            task: 0,
            victim: 0,
            current: None,
            is_over: false,
            has_evicted: false,
            has_failed: false,
        };
        for pod in tasks.iter().flat_map(|task| &task.victims) {
            if pending.contains(&pod.id.uid) && !round.handled.contains(&pod.id.uid) {
                round.count(pod);
            }
        }
        round
    }

    /// The next victim; none when every task is covered or out of victims, or nobody answers.
    pub fn next_victim(&mut self) -> Option<Order<'a>> {
        let tasks = self.tasks;
        while let Some(task) = tasks.get(self.task).filter(|_| !self.is_over) {
            match task.victims.get(self.victim).filter(|_| !self.is_covered(task)) {
                None => (self.task, self.victim) = (self.task + 1, 0),
                Some(pod) => {
                    self.victim += 1;
                    if self.handled.contains(&pod.id.uid) {
                        continue;
                    }
                    self.current = Some(pod);
                    return Some(Order { pod, trigger: task.trigger, numbers: self.numbers(task, pod) });
                }
            }
        }
        None
    }

    /// What became of the last victim. One that was refused may be tried again by a later task.
    ///
    /// Differs: who does not answer ends the round, where upstream asks for one pod after the other and waits each time.
    pub fn done(&mut self, outcome: Outcome) {
        let Some(pod) = self.current.take() else { return };
        match outcome {
            Outcome::Leaving => self.has_evicted = true,
            Outcome::Refused => self.has_failed = true,
            Outcome::NothingRuns => self.pass_over(pod),
            Outcome::Unanswered | Outcome::Unreachable => (self.has_failed, self.is_over) = (true, true),
        }
        if matches!(outcome, Outcome::Leaving | Outcome::Unanswered) {
            self.count(pod);
        }
    }

    /// A pod of which nothing runs uses nothing, and what it requests is withheld from nobody: others need not go for it.
    fn pass_over(&mut self, pod: &Pod) {
        for (key, amount) in self.freed_by(pod) {
            if key.0 == Kind::Requested {
                self.add(key, amount);
            }
        }
        self.handled.insert(pod.id.uid.clone());
    }

    fn numbers(&self, task: &Task<'_>, pod: &Pod) -> String {
        let frees = (task.frees)(pod);
        let mut text = task.numbers.clone();
        for (resource, wanted) in &task.wanted {
            let (released, own) =
                (self.released(task.kind, *resource), frees.get(resource).copied().unwrap_or(0));
            let name = resource.name();
            // Writing to a string cannot fail.
            let _ = write!(text, "; {name} to free {wanted}, freed {released}, by this pod {own}");
        }
        text
    }

    /// What was freed so far.
    pub fn released(&self, kind: Kind, resource: Resource) -> i64 {
        self.released.get(&(kind, resource)).copied().unwrap_or(0)
    }

    fn is_covered(&self, task: &Task<'_>) -> bool {
        task.wanted.iter().all(|(resource, wanted)| self.released(task.kind, *resource) >= *wanted)
    }

    /// Counts a pod once for every task that its going helps: per kind the largest amount of each resource.
    fn count(&mut self, pod: &Pod) {
        for (key, amount) in self.freed_by(pod) {
            self.add(key, amount);
        }
        self.handled.insert(pod.id.uid.clone());
    }

    fn freed_by(&self, pod: &Pod) -> BTreeMap<(Kind, Resource), i64> {
        let mut frees: BTreeMap<(Kind, Resource), i64> = BTreeMap::new();
        for task in self.tasks {
            for (resource, amount) in (task.frees)(pod) {
                let largest = frees.entry((task.kind, resource)).or_insert(amount);
                *largest = amount.max(*largest);
            }
        }
        frees
    }

    fn add(&mut self, key: (Kind, Resource), amount: i64) {
        let sum = self.released.entry(key).or_insert(0);
        *sum = sum.saturating_add(amount);
    }
}

/// Best-effort pods that a trigger may evict.
///
/// Differs: only pods that still run, where upstream counts the requests of ended ones as freed (item 26).
pub fn best_effort_victims(pods: &[Pod], trigger: Trigger) -> Vec<&Pod> {
    let is_victim = |pod: &&Pod| pod.is_active() && pod.qos == Some(Qos::Be) && trigger.is_allowed_by(pod);
    pods.iter().filter(is_victim).collect()
}

/// Pods that agreed to be evicted by priority: least important first, and of equals the one with most of
/// `size`. A pod without `size` is no victim.
pub fn priority_victims(
    pods: &[Pod],
    trigger: Trigger,
    priority_max: i32,
    size: impl Fn(&Pod) -> Option<f64>,
) -> Vec<&Pod> {
    let is_victim = |pod: &Pod| {
        pod.is_active()
            && trigger.is_allowed_by(pod)
            && pod.priority <= priority_max
            && pod.is_eviction_enabled
    };
    let mut victims: Vec<(&Pod, f64)> =
        pods.iter().filter(|pod| is_victim(pod)).filter_map(|pod| Some((pod, size(pod)?))).collect();
    victims.sort_by(|(a, a_size), (b, b_size)| {
        let order = |pod: &Pod| (pod.eviction_priority, pod.priority, pod.sub_priority);
        order(a).cmp(&order(b)).then(b_size.total_cmp(a_size)).then(a.full_name().cmp(&b.full_name()))
    });
    victims.into_iter().map(|(pod, _)| pod).collect()
}

/// Sorts by priority, then by falling share of the request in use, then by falling request: the fewer go.
///
/// Differs: a pod without priority has that of its class, where upstream's order has no end (item 10). Of pods with equal
/// shares the one that requests most goes first, where upstream's order is arbitrary: a pod that was not measured yet
/// has no share, and smaller ones would go with it.
pub fn sort_by_satisfaction(victims: &mut [&Pod], used_milli: impl Fn(&Pod) -> f64) {
    let share = |pod: &Pod| match pod.sum_requests(BATCH_CPU) {
        request if request > 0 => used_milli(pod) / nearest(request),
        _ => 0.0,
    };
    victims.sort_by(|a, b| {
        let by_share = share(b).total_cmp(&share(a));
        let by_request = b.sum_requests(BATCH_CPU).cmp(&a.sum_requests(BATCH_CPU));
        let by_size = by_share.then(by_request);
        a.priority.cmp(&b.priority).then(by_size).then(a.full_name().cmp(&b.full_name()))
    });
}

/// Sorts by priority, then by falling use; of pods that use nothing the last by name first.
pub fn sort_by_use(victims: &mut [&Pod], used: impl Fn(&Pod) -> i64) {
    victims.sort_by(|a, b| {
        let order = a.priority.cmp(&b.priority).then(used(b).cmp(&used(a)));
        let by_name = if used(a) == 0 {
            Reverse(a.full_name()).cmp(&Reverse(b.full_name()))
        } else {
            a.full_name().cmp(&b.full_name())
        };
        order.then(by_name)
    });
}

#[cfg(test)]
mod tests;
