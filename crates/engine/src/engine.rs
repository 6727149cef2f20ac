//! The whole scheduler as a state machine: events in, commands out. No I/O, no clock; one owner.
//!
//! `Engine::take` is told what happened, `Engine::step` tries one pod, and what the outside has to do is collected as
//! commands whose outcomes come back as events. The same inputs at the same times give the same commands.
//!
//! A pod's way: `pods` (the API tells of it) → the queue → `step` (search, assume, reserve, permit) → `binding` (wait,
//! writes, bind), or from anywhere on that way to `failure` (back to the queue, with reasons for users).

mod binding;
pub mod command;
mod complaints;
pub mod dump;
mod explain;
mod failure;
pub mod handlers;
pub mod input;
pub mod measure;
mod objects;
mod options;
mod pods;
mod reservations;
mod step;
mod view;
mod world;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use command::{Command, Subject};
pub use handlers::FailureHandler;
pub use input::{Input, Outcome};
pub use options::Options;
pub use reservations::{ReservationGauge, ReservationView};
pub use view::Queued;

use crate::cluster::{Cluster, Row};
use crate::extender::Extender;
use crate::hash::UidMap;
use crate::plugins::registry::{self, Manner};
use crate::pod::PodKey;
use crate::profile::ProfileError;
use crate::queue::{self, Queue};
use crate::random::Random;
use crate::schedule::{Framework, Memory, Nominated, Sampling, Ties};
use crate::time::Time;
use world::World;

/// One scheduler.
pub struct Engine {
    world: World,
    queue: Queue<World>,
    /// Pods with a place that are not bound yet, by UID.
    bindings: UidMap<binding::Binding>,
    nominated: Nominated,
    keeper: reservations::Keeper,
    checks_scheduler: bool,
    /// What attempts remember, for each profile.
    memories: Vec<Memory>,
    /// Nodes came or went, so that promises must be looked up anew.
    is_renominating: bool,
    /// Where the next search begins.
    search_start: usize,
    random: Random,
    commands: Vec<Command>,
    /// The latest time that was told.
    latest: Time,
    complaints: complaints::Complaints,
    preemptions: Preemptions,
    handlers: handlers::Handlers,
    extenders: Vec<Box<dyn Extender>>,
    dumps: dump::Dumps,
    measuring: measure::Measuring,
}

/// What preemption did, for metrics; the owner takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preemptions {
    pub attempts: u64,
    /// The number of victims of each.
    pub victims: Vec<usize>,
}

/// What one attempt brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempted {
    pub pod: Subject,
    pub scheduler: Box<str>,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// When it could first be tried.
    pub since: Option<Time>,
    /// Nodes looked at.
    pub evaluated: usize,
    /// Nodes that passed, with their totals; no totals when only one passed, and none at all when the choice was made
    /// from memory.
    pub feasible: Vec<(Row, i64)>,
    /// How many passed, in any case.
    pub feasible_count: usize,
    pub verdict: Verdict,
    /// What [`Engine::set_dumps`] asked for.
    pub dumped: Option<Box<dump::Dumped>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has a place; binding is under way.
    Scheduled {
        node: Box<str>,
    },
    Unschedulable {
        message: String,
    },
    Error {
        message: String,
    },
    /// There was nothing to do: deleted or placed meanwhile.
    Skipped,
}

impl Engine {
    pub fn new(options: &Options) -> Result<Engine, ProfileError> {
        options.check()?;
        // Exactly kube-scheduler's choices need its sampling too.
        let manner = match (options.parallelism, options.percentage_of_nodes_to_score) {
            (1, percent) => Manner { sampling: Sampling::Percent(percent), ties: Ties::Heap },
            (_, 0) => Manner::default(),
            (_, percent) => Manner { sampling: Sampling::Percent(percent), ties: Ties::Random },
        };
        let frameworks = options.profiles.iter().map(|profile| registry::framework(profile, manner));
        Ok(Engine::with_frameworks(options, frameworks.collect()))
    }

    fn with_frameworks(options: &Options, frameworks: Vec<Framework>) -> Engine {
        let mut world = World {
            cluster: Cluster::default(),
            frameworks,
            plugins: Default::default(),
            waiting: UidMap::default(),
            others: UidMap::default(),
            hint_times: None,
        };
        for profile in options.profiles.iter().filter(|profile| profile.spreads()) {
            let defaults = &profile.args.pod_topology_spread.default_constraints;
            world.cluster.set_default_spread(&profile.scheduler_name, defaults);
        }
        for args in options.profiles.iter().map(|profile| &profile.args.reservation) {
            world.cluster.set_reservation_args(args);
        }
        for framework in &world.frameworks {
            framework.loads().for_each(|settings| world.cluster.follow_load(settings));
        }
        let profiles = world.queue_profiles();
        let keeping = options.profiles.iter().find(|profile| profile.reserves());
        let memories = world.frameworks.iter().map(|_| Memory::default()).collect();
        let queue_options = queue::Options {
            initial_backoff: options.initial_backoff,
            max_backoff: options.max_backoff,
            max_in_unschedulable: options.max_in_unschedulable,
            uses_hints: options.uses_hints,
            pops_from_backoff: options.pops_from_backoff,
            sort: queue::Sort::Priority,
        };
        Engine {
            world,
            queue: Queue::new(queue_options, profiles),
            bindings: UidMap::default(),
            nominated: Nominated::default(),
            keeper: reservations::Keeper::new(keeping.map(|profile| &profile.args.reservation)),
            checks_scheduler: options.checks_scheduler,
            memories,
            is_renominating: false,
            search_start: 0,
            random: Random::new(options.seed),
            commands: Vec::new(),
            latest: Time::MIN,
            complaints: complaints::Complaints::default(),
            preemptions: Preemptions::default(),
            handlers: handlers::Handlers::default(),
            extenders: Vec::new(),
            dumps: dump::Dumps::default(),
            measuring: measure::Measuring::default(),
        }
    }

    /// Something happened.
    pub fn take(&mut self, now: Time, input: Input) {
        let begun = self.measuring.begin(&input);
        // What an attempt or an outcome told the queue is not this one's.
        self.queue.take_event();
        self.observe(now);
        self.pass_time(now);
        self.hear(now, input);
        self.fulfil_wishes(now);
        self.follow_nominations();
        self.end_event(begun);
    }

    fn hear(&mut self, now: Time, input: Input) {
        match input {
            Input::Pod { object } => self.pod_is(now, &object),
            Input::PodGone { uid, .. } => self.pod_is_gone(now, &uid),
            Input::Node { object } => self.node_is(now, &object),
            Input::NodeGone { name } => self.node_is_gone(now, &name),
            Input::Namespace { object } => {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                self.world.cluster.set_namespace(name, object.metadata.labels.clone().unwrap_or_default());
            }
            Input::NamespaceGone { name } => self.world.cluster.set_namespace(&name, Default::default()),
            Input::Reservation { object } => self.reservation_is(now, &object),
            Input::ReservationGone { uid, .. } => self.reservation_is_gone(now, &uid),
            Input::Outcome { uid, outcome } => self.outcome(now, &uid, outcome),
            Input::Activate { namespace, name } => self.activate_named(now, &namespace, &name),
            Input::Tick => {
                self.queue.tick(&mut self.world, now);
                self.expire(now);
            }
            Input::NodeMetric { object } => self.node_is_measured(now, &object),
            Input::NodeMetricGone { name } => self.node_metric_is_gone(now, &name),
            Input::Budget { object } => self.world.cluster.set_budget(&object),
            Input::BudgetGone { namespace, name } => {
                self.world.cluster.remove_budget(&namespace, &name);
            }
            Input::Workload { object } => self.world.cluster.set_workload(&object),
            Input::WorkloadGone { kind, namespace, name } => {
                self.world.cluster.remove_workload(kind, &namespace, &name);
            }
            Input::Storage { object } => {
                let change = self.world.cluster.set_storage(&object);
                self.storage_changed(now, change);
            }
            Input::StorageGone { kind, namespace, name } => {
                let change = self.world.cluster.remove_storage(kind, &namespace, &name);
                self.storage_changed(now, change);
            }
        }
    }

    /// Lets somebody have a say about failed attempts: before the default handler, which they can replace, or after it.
    pub fn handle_failures(&mut self, handler: Arc<dyn FailureHandler>, comes_first: bool) {
        match comes_first {
            true => self.handlers.before.push(handler),
            false => self.handlers.after.push(handler),
        }
    }

    /// Others who have a say, in the order they are asked.
    pub fn set_extenders(&mut self, extenders: Vec<Box<dyn Extender>>) {
        self.extenders = extenders;
    }

    /// What the outside has to do, in order.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// When to send a tick though nothing else happens; none when nothing waits for the time.
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        let opening = self.world.cluster.next_opening().filter(|_| self.queue.pending().unschedulable > 0);
        self.queue
            .next_wake(now)
            .into_iter()
            .chain(self.next_expiry())
            .chain(opening)
            .chain(self.keeper.next())
            .min()
    }

    /// Whether `step` has something to try.
    pub fn is_ready(&self) -> bool {
        self.queue.is_ready()
    }

    /// Pods that have a place and are not bound yet.
    pub fn binding_count(&self) -> usize {
        self.bindings.len()
    }

    pub fn cluster(&self) -> &Cluster {
        &self.world.cluster
    }

    /// What preemption did since the last call.
    pub fn take_preemptions(&mut self) -> Preemptions {
        std::mem::take(&mut self.preemptions)
    }

    /// Gauge `pending_pods`.
    pub fn pending(&self) -> queue::Pending {
        self.queue.pending()
    }

    fn activate(&mut self, now: Time, uid: &str) {
        let Some(waiting) = self.world.waiting.get(uid) else { return };
        let (key, uid) = (world::queue_key(&waiting.pod), world::queue_uid(uid));
        self.queue.activate(&mut self.world, [(&key, &uid)], now);
    }

    fn activate_named(&mut self, now: Time, namespace: &str, name: &str) {
        let named = |key: &PodKey| *key.namespace == *namespace && *key.name == *name;
        let found = self.world.waiting.iter().find(|(_, waiting)| named(&waiting.pod.key));
        if let Some(uid) = found.map(|(uid, _)| uid.clone()) {
            self.activate(now, &uid);
        }
    }
}
