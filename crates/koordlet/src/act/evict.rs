//! Eviction on the node: when, whom, and what is remembered of it. Spec: koordlet-enforce 7 to 9.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_api::crd::node_slo::ResourceThresholdStrategy;
use koord_api::keys::resource::BATCH_CPU;
use koord_api::number::nearest;
use koord_api::qos::Qos;

use super::usage::{self, Sum};
use super::{Ground, Hands, Setting, Strategy};
use crate::decide::cpu_evict::satisfaction::{self, Config, Reading, Release, Verdict};
use crate::decide::cpu_evict::{self};
use crate::decide::evict::{Outcome, Round, Task, Trigger, back_off, is_cooling};
use crate::decide::memory_evict;
use crate::decide::snapshot::{CpuUsage, MemoryUsage, Node, Pod};
use crate::state::News;
use crate::store::{Aggregate, Kind, Property, Store, Window};

/// A pod evicted so lately is not evicted again; it counts as gone. Spec: koordlet-enforce 7.1.
const REMEMBERED: Duration = Duration::from_secs(120);
/// One that nobody answered for counts as gone for as long as pods usually take to end, and is then asked for again.
const REMEMBERED_UNANSWERED: Duration = Duration::from_secs(30);
/// How long a shortage of memory waits for pods that nobody has measured yet. They begin within two seconds, and who takes all
/// memory may be among them: others would go in its place.
const MEASURED_WITHIN: Duration = Duration::from_secs(3);
/// A round that took so long ends, however many pods are left: nothing else happens on the node meanwhile.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// A pod that must go.
#[derive(Clone, Copy, Debug)]
pub struct EvictOrder<'a> {
    pub pod: &'a Pod,
    pub trigger: Trigger,
    /// The numbers behind it, in words.
    pub numbers: &'a str,
}

/// Makes pods go, one at a time, and tells the world of it: event, metric, audit record.
pub trait Evictor: Send {
    fn evict(&mut self, order: EvictOrder<'_>) -> Outcome;

    /// Whether pods are evicted through the API server, and leave slowly: one that is still there is on its way.
    fn is_remembering(&self) -> bool;
}

/// Pods on their way, whatever made them go, and until when they count as such.
#[derive(Default)]
pub(super) struct Departures(BTreeMap<Arc<str>, Duration>);

impl Departures {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn pending(&mut self, now: Duration) -> BTreeSet<Arc<str>> {
        self.0.retain(|_, until| now < *until);
        self.0.keys().cloned().collect()
    }

    fn note(&mut self, uid: &Arc<str>, outcome: Outcome, now: Duration) {
        let remembered = match outcome {
            Outcome::Leaving => REMEMBERED,
            Outcome::Unanswered => REMEMBERED_UNANSWERED,
            Outcome::Refused | Outcome::NothingRuns | Outcome::Unreachable => return,
        };
        self.0.insert(uid.clone(), now + remembered);
    }
}

/// What one kind of eviction remembers.
#[derive(Default)]
struct Memory {
    /// When the last pod was evicted, by the time of the process.
    last: Option<Duration>,
    /// Rounds with a failure, one after the other, and when the next may begin.
    failures: u32,
    resume: Duration,
    /// What is wrong with the configuration of a trigger, so that it is told once.
    complaints: BTreeMap<&'static str, String>,
}

impl Memory {
    /// Whether nobody is asked for a while, since it failed.
    fn is_resting(&self, now: Duration) -> bool {
        now < self.resume
    }

    /// Works through the tasks of a turn.
    fn carry_out(&mut self, ground: &Ground<'_>, hands: &mut Hands<'_>, tasks: &[Task<'_>]) {
        if tasks.is_empty() {
            self.failures = 0;
            return;
        }
        for Task { trigger, wanted, numbers, .. } in tasks {
            tracing::info!(feature = trigger.gate(), numbers, ?wanted, "pods must go");
        }
        let (now, began) = (ground.uptime, Instant::now());
        let pending = hands.shared.departures.pending(now);
        let mut round = Round::new(tasks, &pending);
        while let Some(order) = round.next_victim() {
            let outcome = hands.evictor.evict(EvictOrder {
                pod: order.pod,
                trigger: order.trigger,
                numbers: &order.numbers,
            });
            if hands.evictor.is_remembering() {
                hands.shared.departures.note(&order.pod.id.uid, outcome, now);
            }
            round.done(outcome);
            if began.elapsed() >= ROUND_MAX {
                tracing::warn!("evictions take too long; the rest waits");
                break;
            }
        }
        self.settle(now, began.elapsed(), &round);
    }

    /// Starts the cool-down after a success, and a wait after a failure.
    fn settle(&mut self, now: Duration, took: Duration, round: &Round<'_>) {
        if round.has_evicted {
            self.last = Some(now);
        }
        if round.has_failed {
            self.failures = self.failures.saturating_add(1);
            // From the end of the round, whose answers may have taken seconds.
            self.resume = now + Duration::from_secs(took.as_secs()) + back_off(self.failures);
        } else if round.has_evicted {
            self.failures = 0;
        }
    }

    /// Takes the task of one trigger, or says what is wrong with its configuration.
    fn take<'a, T, E: fmt::Display>(
        &mut self,
        trigger: Trigger,
        found: Result<Option<(Task<'a>, T)>, E>,
        tasks: &mut Vec<Task<'a>>,
    ) {
        if found.is_ok() {
            self.complaints.remove(trigger.gate());
        }
        match found {
            Ok(found) => tasks.extend(found.map(|(task, _)| task)),
            Err(error) => {
                let error = error.to_string();
                if self.is_new(trigger, &error) {
                    tracing::warn!("skip {}, invalid config: {error}", trigger.gate());
                }
            }
        }
    }

    /// Takes note of what is wrong, and says whether that was not known.
    fn is_new(&mut self, trigger: Trigger, error: &str) -> bool {
        let before = self.complaints.insert(trigger.gate(), error.to_owned());
        before.is_none_or(|before| before != error)
    }
}

/// The node and its strategy, when the strategy is on.
fn ground_of<'a>(ground: &Ground<'a>) -> Option<(&'a Node, &'a ResourceThresholdStrategy)> {
    let strategy = &ground.snapshot.slo.as_deref()?.threshold;
    let node = &ground.snapshot.node.as_deref()?.node;
    (strategy.enable == Some(true)).then_some((node, strategy))
}

/// Eviction for want of CPU.
#[derive(Default)]
pub(super) struct CpuEvict {
    memory: Memory,
}

impl Strategy for CpuEvict {
    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some((node, strategy)) = ground_of(ground) else { return };
        // The process began with an eviction, so to say: nobody goes in its first seconds.
        let last = self.memory.last.or(Some(Duration::ZERO));
        let is_too_soon = is_cooling(ground.uptime, last, setting.qos.cpu_evict_cool);
        if is_too_soon || self.memory.is_resting(ground.uptime) || node.cpu_capacity_milli() <= 0 {
            return;
        }
        let is_on = |trigger: Trigger| setting.gates.is_on(trigger.gate());
        let window = EvictWindow::new(setting, ground, strategy);
        let ended = ended_request_milli(ground.pods);
        let found = is_on(Trigger::BeCpu).then(|| satisfied(ground.store, strategy, node, &window, ended));
        // Everybody's use is asked for only when it matters.
        let is_short = matches!(found, Some(Ok(Some(_))));
        let is_needed = is_short || is_on(Trigger::CpuAllocatable) || is_on(Trigger::Cpu);
        let usage = if is_needed { window.usage(ground.store) } else { CpuUsage::default() };
        let sample = cpu_evict::Sample { node, pods: ground.pods, usage: &usage };
        let mut tasks = Vec::new();
        if let Some(found) = found {
            let task = |release: Release| (cpu_evict::by_satisfaction(&sample, &release), release);
            self.memory.take(Trigger::BeCpu, found.map(|release| release.map(task)), &mut tasks);
        }
        if is_on(Trigger::CpuAllocatable) {
            self.memory.take(Trigger::CpuAllocatable, cpu_evict::by_ledger(&sample, strategy), &mut tasks);
        }
        if is_on(Trigger::Cpu) {
            self.memory.take(Trigger::Cpu, cpu_evict::by_usage(&sample, strategy), &mut tasks);
        }
        self.memory.carry_out(ground, hands, &tasks);
    }
}

/// The times that CPU eviction looks at.
struct EvictWindow {
    interval_seconds: i64,
    seconds: i64,
    /// What averages are taken over.
    whole: Window,
    /// What the newest values must be in.
    recent: Window,
}

impl EvictWindow {
    fn new(setting: &Setting, ground: &Ground<'_>, strategy: &ResourceThresholdStrategy) -> EvictWindow {
        let interval_seconds = whole_seconds(setting.collect.interval);
        let seconds = satisfaction::window_seconds(strategy, interval_seconds);
        EvictWindow {
            interval_seconds,
            seconds,
            whole: Window::before(ground.now_ms, Duration::from_secs(seconds.unsigned_abs())),
            recent: usage::recent(ground.now_ms, setting.collect.interval),
        }
    }

    /// The node's average, and what each pod used last.
    fn usage(&self, store: &Store) -> CpuUsage {
        let mut usage = CpuUsage::default();
        usage::each(store, Kind::NodeCpuUsage, self.whole, Sum::Average, |_, value| usage.node = Some(value));
        usage::each(store, Kind::PodCpuUsage, self.recent, Sum::Last, |key, value| {
            usage.pods.extend(key.values().first().map(|uid| (uid.clone(), value)));
        });
        usage
    }
}

/// What best-effort pods must give back.
fn satisfied(
    store: &Store,
    strategy: &ResourceThresholdStrategy,
    node: &Node,
    window: &EvictWindow,
    ended_milli: i64,
) -> Result<Option<Release>, satisfaction::ConfigError> {
    let config = Config::new(strategy)?;
    let reading = |window: Window, aggregate: Aggregate| {
        let of = |allocation: &str| best_effort(store, window, allocation, aggregate);
        let requested = (of("request")? - nearest(ended_milli)).max(0.0);
        Some(Reading { used: of("usage")?, requested, real_limit: of("real-limit")? })
    };
    let least = ["usage", "request", "real-limit"]
        .into_iter()
        .filter_map(|allocation| best_effort(store, window.whole, allocation, Aggregate::Count))
        .fold(f64::INFINITY, f64::min);
    let (Some(average), Some(latest)) =
        (reading(window.whole, Aggregate::Avg), reading(window.recent, Aggregate::Last))
    else {
        return Ok(None);
    };
    let window = satisfaction::Window {
        average,
        latest,
        samples: koord_api::number::truncated(least),
        interval_seconds: window.interval_seconds,
        seconds: window.seconds,
    };
    Ok(match satisfaction::verdict(&config, &window, node.batch_cpu_allocatable_milli()) {
        Verdict::Release(release) => Some(release),
        _ => None,
    })
}

/// What best-effort pods request that have ended and are listed still.
///
/// Differs: it is taken off what is requested, where upstream evicts pods that run for its sake.
fn ended_request_milli(pods: &[Pod]) -> i64 {
    let ended = pods.iter().filter(|pod| pod.qos == Some(Qos::Be) && !pod.is_active());
    ended.map(|pod| pod.sum_requests(BATCH_CPU)).fold(0, i64::saturating_add)
}

/// A number of best-effort pods together.
fn best_effort(store: &Store, window: Window, allocation: &str, aggregate: Aggregate) -> Option<f64> {
    let properties = [(Property::BeResource, "cpu"), (Property::BeAllocation, allocation)];
    let selector = Kind::NodeBe.select(&properties).ok()?;
    store.query(&selector, window).value(aggregate).ok()
}

/// Eviction for want of memory.
#[derive(Default)]
pub(super) struct MemoryEvict {
    memory: Memory,
    short_since: Option<Duration>,
    /// Whether the last turn left it at that.
    is_waiting: bool,
}

impl MemoryEvict {
    // Differs: upstream takes others for a pod that was not measured yet, and that pod after them.
    /// Whether it will soon be known who takes the memory.
    fn waits(&mut self, ground: &Ground<'_>, tasks: &[Task<'_>], usage: &MemoryUsage) -> bool {
        if tasks.is_empty() {
            self.short_since = None;
            return false;
        }
        let since = *self.short_since.get_or_insert(ground.uptime);
        let is_unmeasured = |pod: &Pod| {
            let runs =
                pod.containers.iter().chain(&pod.init_containers).any(|container| container.is_running);
            pod.is_active() && runs && !usage.pods.contains_key(&pod.id.uid)
        };
        ground.uptime.saturating_sub(since) < MEASURED_WITHIN && ground.pods.iter().any(is_unmeasured)
    }
}

impl Strategy for MemoryEvict {
    /// Seconds count now, whatever the interval is.
    fn is_urgent(&self, _: News) -> bool {
        self.is_waiting
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        self.is_waiting = false;
        let Some((node, strategy)) = ground_of(ground) else { return };
        let is_too_soon = is_cooling(ground.uptime, self.memory.last, setting.qos.memory_evict_cool);
        if is_too_soon || self.memory.is_resting(ground.uptime) || node.memory_capacity() <= 0 {
            return;
        }
        let window = usage::recent(ground.now_ms, setting.collect.interval);
        let usage = usage::memory(ground.store, window, Sum::Last);
        let sample = memory_evict::Sample { node, pods: ground.pods, usage: &usage };
        let is_on = |trigger: Trigger| setting.gates.is_on(trigger.gate());
        let mut tasks = Vec::new();
        if is_on(Trigger::BeMemory) {
            self.memory.take(Trigger::BeMemory, memory_evict::by_best_effort(&sample, strategy), &mut tasks);
        }
        if is_on(Trigger::MemoryAllocatable) {
            self.memory.take(
                Trigger::MemoryAllocatable,
                memory_evict::by_ledger(&sample, strategy),
                &mut tasks,
            );
        }
        if is_on(Trigger::Memory) {
            self.memory.take(Trigger::Memory, memory_evict::by_usage(&sample, strategy), &mut tasks);
        }
        self.is_waiting = self.waits(ground, &tasks, &usage);
        if !self.is_waiting {
            self.memory.carry_out(ground, hands, &tasks);
        }
    }
}

fn whole_seconds(interval: Duration) -> i64 {
    i64::try_from(interval.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Triggers do not drown each other out, and what was well in between is told again.
    #[test]
    fn each_complaint_is_told_once() {
        let mut memory = Memory::default();
        let mut is_told = |trigger, error| memory.is_new(trigger, error);
        for (turn, want) in [(1, true), (2, false), (3, false)] {
            let told =
                [Trigger::BeCpu, Trigger::Cpu].map(|trigger| is_told(trigger, "threshold percent is nil"));
            assert_eq!(told, [want; 2], "turn {turn}");
        }
        assert!(is_told(Trigger::Cpu, "another"));
        let well: Result<Option<(Task<'_>, ())>, String> = Ok(None);
        memory.take(Trigger::Cpu, well, &mut Vec::new());
        let told =
            [Trigger::BeCpu, Trigger::Cpu].map(|trigger| memory.is_new(trigger, "threshold percent is nil"));
        assert_eq!(told, [false, true]);
    }
}
