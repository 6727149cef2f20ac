//! What koordlet does to the node: strategies that follow the load, and hooks that follow pods and rules.
//!
//! Every strategy is a row of `table`: it looks at the [`Ground`], asks its pure half in `decide`, and hands wishes
//! to the applier. All run on one thread, one after the other, so that none overlaps itself or another; one that
//! panics is told and counted, and has its next turn as usual. Spec: koordlet-enforce 4.

mod blkio;
mod burst;
mod core_sched;
mod evict;
mod files;
mod leave;
mod memory_qos;
mod reconcile;
mod resctrl;
mod suppress;
mod system_config;
mod tc;
mod terway;
mod usage;

#[cfg(test)]
mod tests;

pub use crate::decide::evict::Outcome;
pub use evict::{EvictOrder, Evictor};
pub use leave::Leftovers;
pub use suppress::Today;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_api::annotation::ratio::Ratio;
use koord_api::gate::Gates;
use koord_kit::events::{EventType, Note};
use koord_linux::cgroup::{Cgroups, Version};
use koord_linux::root::Root;

use crate::apply::{Applier, Names, Report, Settled};
use crate::decide::hooks::cpu_normalization;
use crate::decide::hooks::stage::Rules;
use crate::decide::snapshot::{Node, Pod};
use crate::decide::wish::Batch;
use crate::flags::{CollectOptions, HookOptions, QosOptions};
use crate::metrics::{KoordletMetrics, Metric};
use crate::programs::{Host, Stuck, TIME_LIMIT};
use crate::records::{Recorders, pod_reference};
use crate::state::{News, Snapshot};
use crate::store::Store;

/// What does not change while the process lives.
pub struct Setting {
    pub root: Root,
    pub cgroups: Arc<Cgroups>,
    pub gates: Gates,
    pub qos: QosOptions,
    pub hooks: HookOptions,
    pub collect: CollectOptions,
    pub is_anolis: bool,
    /// Whether programs of the host are found without entering its file system.
    pub is_host_mode: bool,
    pub page_bytes: i64,
    /// Where terway's daemon looks for its files.
    pub terway_dir: PathBuf,
    pub metrics: KoordletMetrics,
    /// None where nobody listens.
    pub recorders: Option<Recorders>,
}

impl Setting {
    pub fn version(&self) -> Version {
        self.cgroups.version()
    }

    /// What a ratio scales here.
    fn ratios(&self, ratio: Option<Ratio>) -> cpu_normalization::Ratios {
        cpu_normalization::Ratios::new(ratio, self.version() == Version::V2)
    }

    /// Whether quotas of pinned pods are the cpuset hook's business, and not burst's.
    fn is_pinned_quota_unset(&self) -> bool {
        self.gates.is_on("CPUSetAllocator") && !self.hooks.is_quota_unset_disabled
    }

    /// An event of a hook on a pod, at once, about something that went as it should.
    fn note(&self, namespace: &str, name: &str, uid: &str, reason: &str, text: &str) {
        if let Some(recorders) = &self.recorders {
            recorders.hooks.event(Note {
                regarding: pod_reference(namespace, name, uid),
                related: None,
                kind: EventType::Normal,
                reason: reason.to_owned(),
                action: String::new(),
                text: text.to_owned(),
            });
        }
    }
}

/// Everything a turn looks at, taken at one instant.
pub struct Ground<'a> {
    pub now: Instant,
    /// The wall clock, by which measurements are kept.
    pub now_ms: i64,
    /// Since the process began: the clock of everything that counts seconds.
    pub uptime: Duration,
    pub snapshot: &'a Snapshot,
    /// Those of the snapshot, by uid.
    pub pods: &'a [Pod],
    /// What is new since the last turn of all.
    pub news: News,
    pub store: &'a Store,
}

/// Through whom a strategy acts, and what it knows together with others.
struct Hands<'a> {
    applier: &'a mut Applier,
    evictor: &'a mut dyn Evictor,
    shared: &'a mut Shared,
}

/// What several strategies must see in the same way.
#[derive(Default)]
struct Shared {
    departures: evict::Departures,
    /// How much faster this node's CPU is. Spec: koordlet-enforce 15.3.
    normalization: cpu_normalization::Memory,
    has_looked: bool,
}

impl Shared {
    /// Takes over what the Node says anew.
    fn look(&mut self, news: News, node: Option<&Node>) {
        let Some(node) = node.filter(|_| news.node_metadata || !self.has_looked) else { return };
        self.has_looked = true;
        if let Err(error) = self.normalization.take(node) {
            tracing::warn!(error, "the CPU normalization ratio cannot be read; the last one stays");
        }
    }
}

impl Hands<'_> {
    fn apply(&mut self, ground: &Ground<'_>, batch: &Batch) -> Report {
        self.applier.apply(ground.now, batch, Names(ground.pods))
    }

    /// Applies what is wanted every second and seldom changes.
    fn settle(&mut self, ground: &Ground<'_>, batches: Vec<Batch>, settled: &mut Settled) -> Report {
        self.applier.settle(ground.now, batches, Names(ground.pods), settled)
    }
}

/// A strategy, or all hooks together.
trait Strategy: Send {
    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>);

    /// How many things about pods it remembers.
    fn kept(&self) -> usize {
        0
    }

    /// Whether something happened that cannot wait for the next turn.
    fn is_urgent(&self, _news: News) -> bool {
        false
    }
}

/// A strategy and when it has its turn.
struct Entry {
    name: &'static str,
    every: Duration,
    next: Option<Instant>,
    strategy: Box<dyn Strategy>,
}

/// All strategies that are on.
pub struct Act {
    setting: Setting,
    entries: Vec<Entry>,
    shared: Shared,
    today: Today,
}

/// Everything that is on, in the order of turns.
fn table(setting: &Setting, today: &Today) -> Vec<Entry> {
    let mut entries = strategies(setting, today);
    // An interval of 0 switches a strategy off, as its gate does.
    entries.retain(|entry| !entry.every.is_zero());
    entries.extend(hooks(setting));
    entries
}

/// The strategies under the names of the original, with the gates of which one at least must be on.
fn strategies(setting: &Setting, today: &Today) -> Vec<Entry> {
    let is_on = |gates: &[&str]| gates.iter().any(|gate| setting.gates.is_on(gate));
    let qos = &setting.qos;
    let mut entries = Vec::new();
    let mut add = |name, gates: &[&str], every, strategy: Box<dyn Strategy>| {
        if is_on(gates) {
            entries.push(Entry { name, every, next: None, strategy });
        }
    };
    // Upstream spells it so.
    add(
        "CPUSuppresss",
        &["BECPUSuppress"],
        qos.suppress_interval,
        Box::new(suppress::Suppress::new(today.clone())),
    );
    add("CPUBurst", &["CPUBurst"], qos.reconcile_interval, Box::<burst::Burst>::default());
    add(
        "CPUEvict",
        &["BECPUEvict", "CPUAllocatableEvict", "CPUEvict"],
        qos.cpu_evict_interval,
        Box::<evict::CpuEvict>::default(),
    );
    add(
        "memoryEvict",
        &["BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict"],
        qos.memory_evict_interval,
        Box::<evict::MemoryEvict>::default(),
    );
    add("CgroupReconcile", &["CgroupReconcile"], qos.reconcile_interval, Box::new(memory_qos::MemoryQos));
    add(
        "ResctrlReconcile",
        &["RdtResctrl"],
        qos.reconcile_interval,
        Box::<resctrl::ResctrlClasses>::default(),
    );
    add("BlkioReconcile", &["BlkIOReconcile"], qos.reconcile_interval, Box::<blkio::Blkio>::default());
    add(
        "SystemConfigReconcile",
        &["SystemConfig"],
        qos.reconcile_interval,
        Box::<system_config::SystemConfig>::default(),
    );
    entries
}

/// What follows pods and rules.
fn hooks(setting: &Setting) -> Vec<Entry> {
    let every = setting.hooks.reconcile_interval;
    let entry = |name, strategy: Box<dyn Strategy>| Entry { name, every, next: None, strategy };
    let traffic = tc::Tc::new(&setting.root, host_programs(&setting.root, setting.is_host_mode));
    let mut entries = vec![
        entry("TerwayQoS", Box::<terway::Terway>::default()),
        entry("CoreSched", Box::<core_sched::CoreSched>::default()),
        entry("TCNetworkQoS", Box::new(traffic)),
    ];
    entries.retain(|entry| setting.gates.is_on(entry.name));
    entries.push(entry("runtime-hooks", Box::<reconcile::Reconciler>::default()));
    entries
}

fn host_programs(root: &Root, is_host_mode: bool) -> Box<Host> {
    let enter = || vec!["nsenter".to_owned(), format!("--mount={}", root.proc.join("1/ns/mnt").display())];
    let through = if is_host_mode { Vec::new() } else { enter() };
    Box::new(Host { through, time_limit: TIME_LIMIT, stuck: Stuck::default() })
}

impl Act {
    pub fn new(setting: Setting) -> Act {
        let today = Today::default();
        let entries = table(&setting, &today);
        Act { setting, entries, shared: Shared::default(), today }
    }

    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// What suppression last worked out, for whoever asks.
    pub fn today(&self) -> Today {
        self.today.clone()
    }

    /// What hooks go by now, whoever asks them.
    pub fn rules<'r>(&'r self, snapshot: &'r Snapshot) -> Rules<'r> {
        let (setting, ratio) = (&self.setting, self.shared.normalization.ratio);
        Rules {
            gates: &setting.gates,
            layout: snapshot.layout.as_deref(),
            batch: reconcile::batch_rule(snapshot, ratio),
            ratio,
            identity: reconcile::identity(setting, snapshot),
            is_quota_unset_disabled: setting.hooks.is_quota_unset_disabled,
            hami: &setting.hooks.hami,
        }
    }

    /// How many things about pods strategies remember.
    pub fn kept(&self) -> usize {
        self.shared.departures.len() + self.entries.iter().map(|entry| entry.strategy.kept()).sum::<usize>()
    }

    /// Gives every strategy that is due its turn.
    pub fn turn(&mut self, ground: &Ground<'_>, applier: &mut Applier, evictor: &mut dyn Evictor) {
        self.shared.look(ground.news, ground.snapshot.node.as_deref().map(|node| &node.node));
        let hands = &mut Hands { applier, evictor, shared: &mut self.shared };
        for entry in &mut self.entries {
            let is_due = entry.next.is_none_or(|next| ground.now >= next);
            if !is_due && !entry.strategy.is_urgent(ground.news) {
                continue;
            }
            entry.next = Some(due_after(entry.next, ground.now, entry.every));
            let turn = AssertUnwindSafe(|| entry.strategy.turn(&self.setting, ground, hands));
            let status = match catch_unwind(turn) {
                Ok(()) => "succeeded",
                Err(_) => {
                    tracing::error!(
                        strategy = entry.name,
                        "a strategy panicked; it goes on with its next turn"
                    );
                    "failed"
                }
            };
            self.setting.metrics.count(Metric::StrategyHealth, &[entry.name, status]);
        }
    }
}

/// The next turn: in step with this one, unless that would be in the past.
fn due_after(due: Option<Instant>, now: Instant, every: Duration) -> Instant {
    let every = every.max(Duration::from_millis(100));
    // A turn that comes a little late must not make the next one miss its second; one that news brought was not due.
    let in_step = due.filter(|due| *due <= now).unwrap_or(now) + every;
    if in_step > now { in_step } else { now + every }
}
