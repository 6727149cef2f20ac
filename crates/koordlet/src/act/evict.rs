//! Eviction on the node: when, whom, and what is remembered of it. Spec: koordlet-enforce 7 to 9.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use koord_api::crd::node_slo::ResourceThresholdStrategy;

use super::usage::{self, Sum};
use super::{Ground, Hands, Setting, Strategy};
use crate::decide::cpu_evict::satisfaction::{self, Config, Reading, Verdict};
use crate::decide::cpu_evict::{self};
use crate::decide::evict::{Round, Task, Trigger, is_cooling};
use crate::decide::memory_evict;
use crate::decide::snapshot::{Node, Pod};
use crate::store::{Aggregate, Kind, Property, Store, Window};

/// A pod evicted so lately is not evicted again; it counts as gone.
const REMEMBERED: Duration = Duration::from_secs(120);

/// A pod that must go.
#[derive(Clone, Copy, Debug)]
pub struct EvictOrder<'a> {
    pub pod: &'a Pod,
    pub trigger: Trigger,
}

/// Makes pods go, one at a time, and tells the world of it: event, metric, audit record.
pub trait Evictor: Send {
    /// Whether it went, or is on its way.
    fn evict(&mut self, order: EvictOrder<'_>) -> bool;

    /// Whether pods are evicted through the API server, and leave slowly: one that is still there is on its way.
    fn is_remembering(&self) -> bool;
}

/// What one kind of eviction remembers.
#[derive(Default)]
struct Memory {
    /// When the last pod was evicted, by the time of the process.
    last: Option<Duration>,
    /// Pods on their way, and since when.
    leaving: BTreeMap<Arc<str>, Duration>,
    /// What is wrong with the configuration, so that it is told once.
    complaint: String,
}

impl Memory {
    /// Works through the tasks of a turn.
    fn carry_out(&mut self, ground: &Ground<'_>, hands: &mut Hands<'_>, tasks: &[Task<'_>]) {
        let now = ground.uptime;
        self.leaving.retain(|_, since| now.saturating_sub(*since) < REMEMBERED);
        let pending: BTreeSet<Arc<str>> = self.leaving.keys().cloned().collect();
        let mut round = Round::new(tasks, &pending);
        while let Some(order) = round.next_victim() {
            let is_gone = hands.evictor.evict(EvictOrder { pod: order.pod, trigger: order.trigger });
            if is_gone && hands.evictor.is_remembering() {
                self.leaving.insert(order.pod.id.uid.clone(), now);
            }
            round.done(is_gone);
        }
        if round.has_evicted {
            self.last = Some(now);
        }
    }

    /// Takes the task of one trigger, or says what is wrong with its configuration.
    fn take<'a, T, E: fmt::Display>(
        &mut self,
        trigger: Trigger,
        found: Result<Option<(Task<'a>, T)>, E>,
        tasks: &mut Vec<Task<'a>>,
    ) where
        T: fmt::Debug,
    {
        match found {
            Ok(Some((task, numbers))) => {
                tracing::info!(feature = trigger.gate(), ?numbers, wanted = ?task.wanted, "pods must go");
                tasks.push(task);
            }
            Ok(None) => {}
            Err(error) => self.complain(trigger, &error.to_string()),
        }
    }

    fn complain(&mut self, trigger: Trigger, error: &str) {
        let complaint = format!("skip {}, invalid config: {error}", trigger.gate());
        if self.complaint != complaint {
            tracing::warn!("{complaint}");
            self.complaint = complaint;
        }
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
    fn kept(&self) -> usize {
        self.memory.leaving.len()
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some((node, strategy)) = ground_of(ground) else { return };
        // The process began with an eviction, so to say: nobody goes in its first seconds.
        let last = self.memory.last.or(Some(Duration::ZERO));
        if is_cooling(ground.uptime, last, setting.qos.cpu_evict_cool) || node.cpu_capacity_milli() <= 0 {
            return;
        }
        let interval = whole_seconds(setting.collect.interval);
        let seconds = satisfaction::window_seconds(strategy, interval);
        let window = Window::before(ground.now_ms, Duration::from_secs(seconds.unsigned_abs()));
        let average = usage::cpu(ground.store, window, Sum::Average);
        let sample = cpu_evict::Sample { node, pods: ground.pods, usage: &average };
        let is_on = |trigger: Trigger| setting.gates.is_on(trigger.gate());
        let mut tasks = Vec::new();
        if is_on(Trigger::BeCpu) {
            let found = satisfied(ground, strategy, node, (interval, seconds));
            let found =
                found.map(|milli| milli.map(|milli| (cpu_evict::by_satisfaction(&sample, milli), milli)));
            self.memory.take(Trigger::BeCpu, found, &mut tasks);
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

/// What best-effort pods must give back, in milli-cores. Seconds are those between measurements and of the window.
fn satisfied(
    ground: &Ground<'_>,
    strategy: &ResourceThresholdStrategy,
    node: &Node,
    (interval_seconds, seconds): (i64, i64),
) -> Result<Option<i64>, satisfaction::ConfigError> {
    let config = Config::new(strategy)?;
    let window = Window::before(ground.now_ms, Duration::from_secs(seconds.unsigned_abs()));
    let reading = |aggregate: Aggregate, store: &Store| {
        let of = |allocation: &str| best_effort(store, window, allocation, aggregate);
        Some(Reading { used: of("usage")?, requested: of("request")?, real_limit: of("real-limit")? })
    };
    let least = ["usage", "request", "real-limit"]
        .into_iter()
        .filter_map(|allocation| best_effort(ground.store, window, allocation, Aggregate::Count))
        .fold(f64::INFINITY, f64::min);
    let (Some(average), Some(latest)) =
        (reading(Aggregate::Avg, ground.store), reading(Aggregate::Last, ground.store))
    else {
        return Ok(None);
    };
    let window = satisfaction::Window {
        average,
        latest,
        samples: koord_api::number::truncated(least),
        interval_seconds,
        seconds,
    };
    Ok(match satisfaction::verdict(&config, &window, node.batch_cpu_allocatable_milli()) {
        Verdict::Release { milli, .. } => Some(milli),
        _ => None,
    })
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
}

impl Strategy for MemoryEvict {
    fn kept(&self) -> usize {
        self.memory.leaving.len()
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some((node, strategy)) = ground_of(ground) else { return };
        let is_too_soon = is_cooling(ground.uptime, self.memory.last, setting.qos.memory_evict_cool);
        if is_too_soon || node.memory_capacity() <= 0 {
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
        self.memory.carry_out(ground, hands, &tasks);
    }
}

fn whole_seconds(interval: Duration) -> i64 {
    i64::try_from(interval.as_secs()).unwrap_or(i64::MAX)
}
