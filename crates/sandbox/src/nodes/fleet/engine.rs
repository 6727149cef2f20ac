//! The task behind a fleet: owns all state, wakes by watch, timer, command and finished write.

use std::collections::{HashSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use koord_api::resource::ResourceTable;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::address::Addresses;
use super::host::{HostState, Hosts};
use super::nodes::{Facts, NodeState, Nodes, Owed};
use super::pods::{Pods, Seen, Work};
use super::timer::{Beat, Timer, Timers};
use super::traces::Traces;
use super::write::{About, Done, Job, PodJob, PodOutcome, Registered, Shared, Warning};
use super::{Command, FleetError, NodeHealth, Options, Timing};
use crate::nodes::admit::Taken;
use crate::nodes::lifecycle::{Verdict, chance};
use crate::nodes::metric::{SAMPLE_SECONDS, Samples};
use crate::nodes::objects;
use crate::nodes::shape::{Koordlet, Pool, Shape};
use crate::nodes::topology;
use crate::nodes::usage::Clock;
use crate::server::Api;
use crate::status::ApiError;
use crate::store::Watch;

mod commands;
mod residents;

/// Writes under way at once: enough to keep some cores busy while a webhook is slow.
const WRITES_MAX: usize = 32;
/// Events taken at once, so that timers and writes are not kept waiting.
const EVENTS_MAX: usize = 1024;
/// Before a write that failed is tried again.
const RETRY_MILLIS: i64 = 5_000;
/// Longest sleep, in case the clock behind the API jumps.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// A write of a node's that waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Register(u32),
    Lease(u32),
    Status(u32),
    Topology(u32),
    Device(u32),
    Report(u32),
}

pub(super) struct Engine {
    pub(super) shared: Arc<Shared>,
    timing: Timing,
    hosts: Option<Hosts>,
    pub(super) clock: Clock,
    pub(super) nodes: Nodes,
    pub(super) pods: Pods,
    pub(super) table: ResourceTable,
    pub(super) traces: Traces,
    timers: Timers,
    node_addresses: Addresses,
    pod_addresses: Addresses,
    watch: Watch,
    /// What keeps nodes alive goes first; pods and reports take turns after it.
    urgent: VecDeque<Wish>,
    reports: VecDeque<Wish>,
    warnings: VecDeque<Warning>,
    pod_queue: VecDeque<u32>,
    is_pods_turn: bool,
    jobs: JoinSet<Done>,
    waiting: Vec<Waiting>,
    /// Nodes that are not yet registered.
    registering: usize,
    /// Nodes were registered whose pods may be there already.
    must_scan: bool,
}

/// Somebody who waits for nodes to be registered.
struct Waiting {
    open: HashSet<u32>,
    answer: Answer,
}

enum Answer {
    Names(Vec<String>, oneshot::Sender<Result<Vec<String>, FleetError>>),
    Nothing(oneshot::Sender<()>),
}

impl Engine {
    pub(super) fn new(api: Arc<Api>, options: Options) -> Result<Engine, FleetError> {
        let kind = |plural: &str| api.kind("", plural).map_err(FleetError::Kind);
        let (pods, nodes) = (kind("pods")?, kind("nodes")?);
        // Pods that are there are met when their nodes are registered.
        let (_, watch) = api.list_and_watch(&pods);
        let habits = options.habits.sound();
        let clock = Clock { origin: api.now(), speed: habits.speed };
        let mut engine = Engine {
            shared: Arc::new(Shared { api, pods, nodes, habits }),
            timing: options.timing,
            hosts: options.hosts,
            clock,
            nodes: Nodes::default(),
            pods: Pods::default(),
            table: ResourceTable::new(),
            traces: Traces::default(),
            timers: Timers::default(),
            node_addresses: Addresses::new(Ipv4Addr::new(10, 0, 0, 0)),
            pod_addresses: Addresses::new(Ipv4Addr::new(10, 128, 0, 0)),
            watch,
            urgent: VecDeque::new(),
            reports: VecDeque::new(),
            warnings: VecDeque::new(),
            pod_queue: VecDeque::new(),
            is_pods_turn: true,
            jobs: JoinSet::new(),
            waiting: Vec::new(),
            registering: 0,
            must_scan: false,
        };
        for pool in &options.pools {
            engine.add(pool)?;
        }
        if options.adopt {
            engine.adopt();
        }
        Ok(engine)
    }

    pub(super) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Command>,
        mut stopped: watch::Receiver<bool>,
    ) {
        loop {
            let has_more = self.take_events();
            self.fire();
            self.scan();
            self.launch();
            if has_more {
                // Finished writes and commands get their turn even in a flood of events.
                self.take_done();
                if let Ok(command) = inbox.try_recv() {
                    self.obey(command);
                }
                if *stopped.borrow() {
                    break;
                }
                tokio::task::yield_now().await;
                continue;
            }
            let wait = self.wait();
            tokio::select! {
                biased;
                _ = stopped.changed() => break,
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    done.into_iter().for_each(|done| self.done(done));
                    self.take_done();
                }
                command = inbox.recv() => match command {
                    Some(command) => self.obey(command),
                    None => break,
                },
                () = self.watch.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        while self.jobs.join_next().await.is_some() {}
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.api.now()
    }

    fn now_millis(&self) -> i64 {
        self.now().as_millisecond()
    }

    /// Until the next timer.
    fn wait(&self) -> Duration {
        let Some(next) = self.timers.next() else { return SLEEP_MAX };
        let millis = u64::try_from(next - self.now_millis()).unwrap_or(0);
        Duration::from_millis(millis).min(SLEEP_MAX)
    }

    /// Makes the nodes of a pool; they register soon.
    fn add(&mut self, pool: &Pool) -> Result<Vec<u32>, FleetError> {
        let first = self.nodes.next_index(&pool.name);
        let shape = Arc::new(pool.shape.clone());
        let name: Arc<str> = pool.name.as_str().into();
        let mut slots = Vec::new();
        for index in first..first.saturating_add(pool.count) {
            let node = pool.node_name(index);
            if self.nodes.find(&node).is_some() {
                continue;
            }
            match self.host(&node, &shape) {
                Ok(host) => slots.push(self.insert(node, name.clone(), index, shape.clone(), host)),
                // All of a pool or nothing.
                Err(error) => {
                    slots.into_iter().for_each(|slot| self.forget_node(slot));
                    return Err(error);
                }
            }
        }
        Ok(slots)
    }

    /// The files and the kubelet of a node on which an agent is to run.
    fn host(&self, node: &str, shape: &Shape) -> Result<Option<HostState>, FleetError> {
        if shape.koordlet == Koordlet::Simulated {
            return Ok(None);
        }
        let node = || node.to_owned();
        let hosts = self.hosts.as_ref().ok_or_else(|| FleetError::NoHosts { node: node() })?;
        let host = HostState::start(hosts, &self.shared.api, &node().into(), shape);
        host.map(Some).map_err(|source| FleetError::Host { node: node(), source })
    }

    /// Brings nodes to life that somebody else made.
    fn adopt(&mut self) {
        let pool: Arc<str> = "adopted".into();
        let nodes = self.shared.api.list(&self.shared.nodes, &crate::store::Selection::default());
        for (index, stored) in (0..).zip(nodes) {
            if self.nodes.find(stored.name()).is_none() {
                let shape = Arc::new(objects::shape_of(&stored.value()));
                let slot = self.insert(stored.name().to_owned(), pool.clone(), index, shape, None);
                self.nodes.get_mut(slot).into_iter().for_each(|node| node.is_adopted = true);
            }
        }
    }

    fn insert(
        &mut self,
        name: String,
        pool: Arc<str>,
        index: u32,
        shape: Arc<Shape>,
        host: Option<HostState>,
    ) -> u32 {
        let known = self.shared.api.get(&self.shared.nodes, "", &name).ok();
        let known = known.and_then(|stored| objects::address_of(&stored.value()));
        // A kubelet that answers is on this machine.
        let address = match host {
            Some(_) => Ipv4Addr::LOCALHOST,
            None => self.node_addresses.take(known),
        };
        let has_devices = shape.gpus.count + shape.rdma.count > 0;
        let slot = self.nodes.insert(NodeState {
            name: name.as_str().into(),
            pool,
            index,
            shape,
            address,
            is_adopted: false,
            health: NodeHealth::Registering,
            uid: String::new(),
            facts: Facts::default(),
            taken: Taken::default(),
            pods: Vec::new(),
            samples: Samples::default(),
            host,
            owes: Owed { topology: true, device: has_devices },
            due: [0; Beat::ALL.len()],
        });
        self.registering += 1;
        self.urgent.push_back(Wish::Register(slot));
        slot
    }

    fn registered(&mut self, slot: u32, result: Result<Registered, ApiError>) {
        let Some(node) = self.nodes.get_mut(slot) else { return };
        match result {
            Err(error) => {
                tracing::warn!(node = %node.name, %error, "a simulated node cannot register");
                // Its lease timer tries again.
                let at = self.now_millis() + RETRY_MILLIS;
                self.set_due(slot, Beat::Lease, at);
            }
            Ok(registered) => {
                node.uid = registered.uid;
                if node.health == NodeHealth::Registering {
                    node.health = NodeHealth::Ready;
                    self.registering = self.registering.saturating_sub(1);
                    self.must_scan = true;
                }
                self.refresh(slot);
                self.start_beats(slot);
                self.pay(slot);
                self.answer(slot);
            }
        }
    }

    /// Sets all timers of a node, each at a moment of its own within the first period.
    fn start_beats(&mut self, slot: u32) {
        let now = self.now_millis();
        for beat in Beat::ALL {
            let Some(node) = self.nodes.get(slot) else { return };
            let period = self.period(node, beat);
            let spread = Duration::from_millis(period).mul_f64(chance(&[&node.name, &format!("{beat:?}")]));
            let spread = i64::try_from(spread.as_millis()).unwrap_or(0);
            self.set_due(slot, beat, now + spread.max(1));
        }
    }

    /// Milliseconds between beats of a node.
    fn period(&self, node: &NodeState, beat: Beat) -> u64 {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        match beat {
            Beat::Lease => millis(self.timing.lease),
            Beat::Status => millis(self.timing.status),
            Beat::Sample if node.host.is_some() => 1000,
            Beat::Sample => SAMPLE_SECONDS.unsigned_abs() * 1000,
            Beat::Report => node.facts.report_interval.map_or(60_000, millis),
        }
    }

    pub(super) fn set_due(&mut self, slot: u32, beat: Beat, at: i64) {
        if let Some(node) = self.nodes.get_mut(slot) {
            node.due[beat.index()] = at;
            self.timers.set(at, Timer::Node(slot, beat));
        }
    }

    /// Forgets a node and the pods on it.
    fn forget_node(&mut self, slot: u32) {
        let pods = self.nodes.get(slot).map(|node| node.pods.clone()).unwrap_or_default();
        for pod in pods {
            self.forget_pod(pod);
        }
        if let Some(node) = self.nodes.remove(slot) {
            if node.host.is_none() {
                self.node_addresses.give_back(node.address);
            }
            if node.health == NodeHealth::Registering {
                self.registering = self.registering.saturating_sub(1);
            }
        }
        self.answer(slot);
    }

    fn fail(&mut self, slot: u32) {
        if let Some(node) = self.nodes.get_mut(slot).filter(|node| node.is_ready()) {
            node.health = NodeHealth::Failed;
        }
    }

    fn revive(&mut self, slot: u32) {
        let Some(node) = self.nodes.get_mut(slot).filter(|node| node.health == NodeHealth::Failed) else {
            return;
        };
        node.health = NodeHealth::Ready;
        let pods = node.pods.clone();
        self.urgent.extend([Wish::Status(slot), Wish::Lease(slot)]);
        self.start_beats(slot);
        for pod in pods {
            self.queue(pod);
        }
    }

    /// Takes in what the Node object says now; false when it is gone.
    fn refresh(&mut self, slot: u32) -> bool {
        let Some(node) = self.nodes.get_mut(slot) else { return false };
        let Ok(stored) = self.shared.api.get(&self.shared.nodes, "", &node.name) else { return false };
        if node.facts.revision != stored.revision() {
            let interval = node.facts.report_interval;
            let has_news = node.facts.update(stored.revision(), &stored.value(), &mut self.table);
            node.owes.topology |= has_news;
            let changed = node.facts.report_interval.filter(|new| interval != Some(*new));
            changed.into_iter().for_each(|new| self.report_within(slot, new));
        }
        true
    }

    /// Whoever asks for reports more often does not wait for one of the old kind.
    fn report_within(&mut self, slot: u32, interval: Duration) {
        let at = self.now_millis().saturating_add(i64::try_from(interval.as_millis()).unwrap_or(i64::MAX));
        if self.nodes.get(slot).is_some_and(|node| node.due[Beat::Report.index()] > at) {
            self.set_due(slot, Beat::Report, at);
        }
    }

    /// Writes what koordlet owes, where the kinds are served.
    fn pay(&mut self, slot: u32) {
        let registry = self.shared.api.registry();
        // An agent of its own speaks for itself.
        let is_ours = |node: &&mut NodeState| node.is_ready() && node.host.is_none();
        let Some(node) = self.nodes.get_mut(slot).filter(is_ours) else { return };
        if node.owes.topology
            && registry.find_resource("topology.node.k8s.io", "noderesourcetopologies").is_some()
        {
            node.owes.topology = false;
            self.reports.push_back(Wish::Topology(slot));
        }
        if node.owes.device && registry.find_resource("scheduling.koordinator.sh", "devices").is_some() {
            node.owes.device = false;
            self.reports.push_back(Wish::Device(slot));
        }
    }

    fn fire(&mut self) {
        let now = self.now_millis();
        while let Some((at, timer)) = self.timers.pop(now) {
            match timer {
                Timer::Pod(slot) => {
                    if let Some(pod) = self.pods.get_mut(slot).filter(|pod| pod.wake == Some(at)) {
                        pod.wake = None;
                        self.queue(slot);
                    }
                }
                Timer::Node(slot, beat) => {
                    let node = self.nodes.get(slot).filter(|node| node.due[beat.index()] == at);
                    match node.map(|node| node.health) {
                        Some(NodeHealth::Ready) => self.beat(slot, beat, now),
                        Some(NodeHealth::Registering) => self.urgent.push_back(Wish::Register(slot)),
                        Some(NodeHealth::Failed) | None => {}
                    }
                }
            }
        }
    }

    fn beat(&mut self, slot: u32, beat: Beat, now: i64) {
        let Some(node) = self.nodes.get(slot) else { return };
        let period = i64::try_from(self.period(node, beat)).unwrap_or(i64::MAX);
        match beat {
            Beat::Lease => {
                // Somebody deleted the Node: kubelet does not make it again.
                if !self.refresh(slot) {
                    return self.forget_node(slot);
                }
                self.urgent.push_back(Wish::Lease(slot));
                if self.nodes.get(slot).is_some_and(|node| node.facts.is_said_down) {
                    self.urgent.push_back(Wish::Status(slot));
                }
                self.pay(slot);
            }
            Beat::Status => self.urgent.push_back(Wish::Status(slot)),
            Beat::Sample if node.host.is_some() => self.mirror(slot),
            Beat::Sample => self.sample(slot),
            Beat::Report => {
                if node.host.is_none()
                    && self.shared.api.registry().find_resource("slo.koordinator.sh", "nodemetrics").is_some()
                {
                    // Its own spec says when the next one is due; see `metric`.
                    return self.reports.push_back(Wish::Report(slot));
                }
            }
        }
        self.set_due(slot, beat, now + period);
    }

    fn launch(&mut self) {
        while self.jobs.len() < WRITES_MAX {
            let Some(job) = self.next_job() else { return };
            self.jobs.spawn(self.shared.clone().run(job));
        }
    }

    /// The next write; wishes that have become pointless are skipped.
    fn next_job(&mut self) -> Option<Job> {
        loop {
            if let Some(wish) = self.urgent.pop_front() {
                match self.make(wish) {
                    Some(job) => return Some(job),
                    None => continue,
                }
            }
            if let Some(warning) = self.warnings.pop_front() {
                return Some(Job::Warn(warning));
            }
            self.is_pods_turn = !self.is_pods_turn;
            let is_pods_turn = !self.pod_queue.is_empty() && (self.is_pods_turn || self.reports.is_empty());
            let job = match is_pods_turn {
                true => self.pod_queue.pop_front().map(|slot| self.pod_job(slot)),
                false => self.reports.pop_front().map(|wish| self.make(wish)),
            };
            match job {
                Some(Some(job)) => return Some(job),
                Some(None) => {}
                None => return None,
            }
        }
    }

    fn make(&mut self, wish: Wish) -> Option<Job> {
        let (Wish::Register(slot)
        | Wish::Lease(slot)
        | Wish::Status(slot)
        | Wish::Topology(slot)
        | Wish::Device(slot)
        | Wish::Report(slot)) = wish;
        let node = self.nodes.get(slot).filter(|node| node.health != NodeHealth::Failed)?;
        let about = About {
            slot,
            name: node.name.clone(),
            index: node.index,
            address: node.address,
            kubelet_port: node.host.as_ref().map_or(objects::KUBELET_PORT, HostState::port),
            uid: node.uid.clone(),
            shape: node.shape.clone(),
            is_adopted: node.is_adopted,
        };
        Some(match wish {
            Wish::Register(_) => Job::Register(about),
            Wish::Lease(_) => Job::Lease(about),
            Wish::Status(_) => Job::Status(about),
            Wish::Device(_) => Job::Device(about),
            Wish::Topology(_) => {
                let pinned: Vec<_> =
                    node.pods.iter().filter_map(|pod| self.pods.get(*pod)?.pinned()).collect();
                let report = topology::report(&node.shape, &node.facts.annotations, &pinned);
                Job::Topology(about, report)
            }
            Wish::Report(_) => {
                // A first report may come before the first measurement is due.
                if node.samples.is_empty() {
                    self.sample(slot);
                }
                let (status, interval) = self.metric(slot)?;
                self.set_due(slot, Beat::Report, self.now_millis().saturating_add(interval));
                Job::Metric(about, status)
            }
        })
    }

    fn pod_job(&mut self, slot: u32) -> Option<Job> {
        let generation = self.pods.generation(slot);
        let pod = self.pods.get_mut(slot)?;
        let node = self.nodes.get(pod.node)?;
        if !node.is_ready() {
            pod.work = Work::Idle;
            return None;
        }
        pod.work = Work::Writing;
        pod.wake = None;
        let rejected = pod.rejected().cloned();
        Some(Job::Pod(PodJob {
            slot,
            generation,
            key: pod.key.clone(),
            identity: pod.identity,
            node: node.name.clone(),
            host: node.address,
            address: Ipv4Addr::from(pod.address),
            verdict: match rejected {
                Some((reason, message)) => Verdict::Rejected { reason, message },
                None => Verdict::Admitted,
            },
        }))
    }

    fn take_done(&mut self) {
        while let Some(done) = self.jobs.try_join_next() {
            done.into_iter().for_each(|done| self.done(done));
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Pod { slot, generation, outcome } => {
                if self.pods.generation(slot) == generation {
                    self.pod_done(slot, outcome);
                }
            }
            Done::Registered { slot, result } => self.registered(slot, result),
            Done::Topology { slot, is_written: false } => {
                self.nodes.get_mut(slot).into_iter().for_each(|node| node.owes.topology = true);
            }
            Done::Device { slot, is_written: false } => {
                self.nodes.get_mut(slot).into_iter().for_each(|node| node.owes.device = true);
            }
            Done::Topology { .. } | Done::Device { .. } | Done::Nothing => {}
        }
    }

    fn pod_done(&mut self, slot: u32, outcome: PodOutcome) {
        let retry = self.now_millis() + RETRY_MILLIS;
        let Some(pod) = self.pods.get_mut(slot) else { return };
        let has_news = pod.work == Work::WritingAndQueued;
        pod.work = Work::Idle;
        let seen = std::mem::take(&mut pod.seen);
        let key = pod.key.clone();
        let (mut own, host) = (None, pod.node);
        let wake = match outcome {
            PodOutcome::Over => return self.forget_pod(slot),
            PodOutcome::Failed(error) => {
                tracing::warn!(pod = %pod.key, %error, "a simulated node cannot write a pod's status");
                Some(retry)
            }
            PodOutcome::Kept { wake, since, revision } => {
                own = Some(Seen::One(revision));
                pod.since = since;
                pod.revision = pod.revision.max(revision);
                // Up to the next whole millisecond, or the timer comes a moment too early.
                wake.map(|wake| wake.as_millisecond() + 1)
            }
        };
        pod.wake = wake;
        if let Some(at) = wake {
            self.timers.set(at, Timer::Pod(slot));
        }
        self.mirror(host);
        if seen != Seen::Nothing && Some(seen) != own {
            // Somebody else wrote, too.
            let stored = self.shared.api.table(&self.shared.pods).get(&key);
            stored.into_iter().for_each(|stored| self.change_pod(slot, &stored));
        } else if has_news {
            self.queue(slot);
        }
    }
}
