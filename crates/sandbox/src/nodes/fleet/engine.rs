//! The task behind a fleet: owns all state, wakes by watch, timer, command and finished write.

use std::collections::{HashSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use koord_api::resource::ResourceTable;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::address::Addresses;
use super::nodes::{Facts, NodeState, Nodes, Owed};
use super::pods::{Pods, Seen, Work};
use super::timer::{Beat, Timer, Timers};
use super::traces::Traces;
use super::write::{About, Done, Job, PodJob, PodOutcome, Registered, Shared, Warning};
use super::{Command, NodeHealth, NodeRow, Options, Timing};
use crate::nodes::admit::{self, Taken};
use crate::nodes::lifecycle::{Verdict, chance, hash};
use crate::nodes::metric::{SAMPLE_SECONDS, Samples};
use crate::nodes::objects;
use crate::nodes::shape::{Pool, Shape};
use crate::nodes::topology;
use crate::nodes::usage::Clock;
use crate::server::Api;
use crate::status::ApiError;
use crate::store::{Change, Stored, Watch};

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
    Names(Vec<String>, oneshot::Sender<Vec<String>>),
    Nothing(oneshot::Sender<()>),
}

impl Engine {
    pub(super) fn new(api: Arc<Api>, options: Options) -> Result<Engine, ApiError> {
        let (pods, nodes) = (api.kind("", "pods")?, api.kind("", "nodes")?);
        // Pods that are there are met when their nodes are registered.
        let (_, watch) = api.list_and_watch(&pods);
        let clock = Clock { origin: api.now(), speed: options.habits.speed };
        let mut engine = Engine {
            shared: Arc::new(Shared { api, pods, nodes, habits: options.habits }),
            timing: options.timing,
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
            engine.add(pool);
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

    // Nodes: coming, going, falling silent.

    /// Makes the nodes of a pool; they register soon.
    fn add(&mut self, pool: &Pool) -> Vec<u32> {
        let first = self.nodes.next_index(&pool.name);
        let shape = Arc::new(pool.shape.clone());
        let name: Arc<str> = pool.name.as_str().into();
        let mut slots = Vec::new();
        for index in first..first.saturating_add(pool.count) {
            let node = pool.node_name(index);
            if self.nodes.find(&node).is_none() {
                slots.push(self.insert(node, name.clone(), index, shape.clone(), false));
            }
        }
        slots
    }

    /// Brings nodes to life that somebody else made.
    fn adopt(&mut self) {
        let pool: Arc<str> = "adopted".into();
        let nodes = self.shared.api.list(&self.shared.nodes, &crate::store::Selection::default());
        for (index, stored) in (0..).zip(nodes) {
            if self.nodes.find(stored.name()).is_none() {
                let shape = Arc::new(objects::shape_of(&stored.value()));
                self.insert(stored.name().to_owned(), pool.clone(), index, shape, true);
            }
        }
    }

    fn insert(
        &mut self,
        name: String,
        pool: Arc<str>,
        index: u32,
        shape: Arc<Shape>,
        is_adopted: bool,
    ) -> u32 {
        let known = self.shared.api.get(&self.shared.nodes, "", &name).ok();
        let known = known.and_then(|stored| objects::address_of(&stored.value()));
        let address = self.node_addresses.take(known);
        let has_devices = shape.gpus.count + shape.rdma.count > 0;
        let slot = self.nodes.insert(NodeState {
            name: name.as_str().into(),
            pool,
            index,
            shape,
            address,
            is_adopted,
            health: NodeHealth::Registering,
            uid: String::new(),
            facts: Facts::default(),
            taken: Taken::default(),
            pods: Vec::new(),
            samples: Samples::default(),
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
            let period = self.period(beat);
            let spread = Duration::from_millis(period).mul_f64(chance(&[&node.name, &format!("{beat:?}")]));
            let spread = i64::try_from(spread.as_millis()).unwrap_or(0);
            self.set_due(slot, beat, now + spread.max(1));
        }
    }

    /// Milliseconds between beats.
    fn period(&self, beat: Beat) -> u64 {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        match beat {
            Beat::Lease => millis(self.timing.lease),
            Beat::Status => millis(self.timing.status),
            Beat::Sample => SAMPLE_SECONDS.unsigned_abs() * 1000,
            Beat::Report => 60_000,
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
            self.node_addresses.give_back(node.address);
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
            let has_news = node.facts.update(stored.revision(), &stored.value(), &mut self.table);
            node.owes.topology |= has_news;
        }
        true
    }

    /// Writes what koordlet owes, where the kinds are served.
    fn pay(&mut self, slot: u32) {
        let registry = self.shared.api.registry();
        let Some(node) = self.nodes.get_mut(slot).filter(|node| node.is_ready()) else { return };
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

    // Pods: met, changed, forgotten.

    /// Takes what the watch has; true when there may be more.
    fn take_events(&mut self) -> bool {
        let Ok(events) = self.watch.take(EVENTS_MAX) else {
            self.relist();
            return true;
        };
        let count = events.len();
        for event in events {
            match event.change {
                Change::Deleted => {
                    let slot = self.pods.find(event.object.key());
                    slot.into_iter().for_each(|slot| self.forget_pod(slot));
                }
                _ => self.observe(&event.object),
            }
        }
        count == EVENTS_MAX
    }

    /// The watch fell behind: what is there now is all that counts.
    fn relist(&mut self) {
        let (items, watch) = self.shared.api.list_and_watch(&self.shared.pods);
        self.watch = watch;
        let there: HashSet<&str> = items.iter().map(|item| item.key()).collect();
        let known: Vec<u32> = self.pods.slots().collect();
        for slot in known {
            if self.pods.get(slot).is_some_and(|pod| !there.contains(&*pod.key)) {
                self.forget_pod(slot);
            }
        }
        for item in &items {
            self.observe(item);
        }
    }

    /// Meets pods that were bound before their nodes came to life.
    fn scan(&mut self) {
        if self.registering > 0 || !std::mem::take(&mut self.must_scan) {
            return;
        }
        let pods = self.shared.api.table(&self.shared.pods);
        let query = crate::store::Query::default();
        let is_ours = |pod: &Stored| self.nodes.find(pod.field("spec.nodeName")).is_some();
        let found = pods.page(query, &is_ours).map(|page| page.items).unwrap_or_default();
        for pod in &found {
            self.observe(pod);
        }
    }

    fn observe(&mut self, stored: &Arc<Stored>) {
        let node = self.nodes.find(stored.field("spec.nodeName"));
        let node = node
            .filter(|slot| self.nodes.get(*slot).is_some_and(|node| node.health != NodeHealth::Registering));
        let known = self.pods.find(stored.key());
        let identity = hash(&[stored.uid()]);
        if let Some(slot) = known
            && let Some(pod) = self.pods.get_mut(slot)
            && pod.identity == identity
            && Some(pod.node) == node
        {
            match pod.work {
                _ if pod.revision >= stored.revision() => {}
                // Perhaps our own doing; the writer's answer will tell.
                Work::Writing | Work::WritingAndQueued => pod.seen.note(stored.revision()),
                Work::Idle | Work::Queued => {
                    pod.revision = stored.revision();
                    self.change_pod(slot, stored);
                }
            }
            return;
        }
        known.into_iter().for_each(|slot| self.forget_pod(slot));
        if let Some(node) = node {
            self.meet_pod(node, stored, identity);
        }
    }

    fn meet_pod(&mut self, node: u32, stored: &Arc<Stored>, identity: u64) {
        let Some(pod) = read_pod(stored) else { return };
        let status = pod.status.as_ref();
        let is_over =
            status.and_then(|s| s.phase.as_deref()).is_some_and(|p| ["Succeeded", "Failed"].contains(&p));
        let grace = pod.metadata.deletion_grace_period_seconds;
        // One that has ended is the cluster's; one that must yet be removed is ours.
        if is_over && grace.is_none_or(|grace| grace == 0) {
            return;
        }
        self.refresh(node);
        let is_new = status.is_none_or(|status| status.start_time.is_none());
        let (mut state, ask, problems) = self.describe(node, stored, &pod, identity);
        let known = status.and_then(|s| s.pod_ip.as_deref()).and_then(|ip| ip.parse().ok());
        state.address = u32::from(self.pod_addresses.take(known));
        let Some(host) = self.nodes.get_mut(node) else { return };
        let verdict = match is_new && !is_over {
            true => admit::admit(&pod, &ask, &host.facts.node, &host.taken, &self.table),
            false => Verdict::Admitted,
        };
        let warn = |reason: &str, message: String| Warning {
            node: host.name.clone(),
            namespace: stored.namespace().to_owned(),
            pod: stored.name().to_owned(),
            uid: stored.uid().to_owned(),
            reason: reason.to_owned(),
            message,
        };
        if is_new && !problems.is_empty() {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            self.warnings.push_back(warn("InvalidSandboxAnnotation", texts.join("; ")));
        }
        match verdict {
            Verdict::Rejected { reason, message } => {
                self.warnings.push_back(warn(&reason, message.clone()));
                state.extras.get_or_insert_default().rejected = Some((reason, message));
            }
            Verdict::Admitted => {
                host.taken.requested += &ask.requests;
                host.taken.pods += 1;
                host.taken.ports.extend(ask.ports);
                host.owes.topology |= state.pinned().is_some();
            }
        }
        let slot = self.pods.insert(state);
        if let Some(host) = self.nodes.get_mut(node) {
            host.pods.push(slot);
        }
        self.pay(node);
        self.queue(slot);
    }

    /// Somebody else changed a pod: its requests, its annotations, or that it is to go.
    fn change_pod(&mut self, slot: u32, stored: &Arc<Stored>) {
        let Some(pod) = read_pod(stored) else { return };
        let Some(old) = self.pods.get(slot) else { return };
        let (node, identity) = (old.node, old.identity);
        let is_rejected = old.rejected().is_some();
        let (state, ask, _) = self.describe(node, stored, &pod, identity);
        let (Some(old), Some(host)) = (self.pods.get_mut(slot), self.nodes.get_mut(node)) else { return };
        if !is_rejected {
            for (id, amount) in &old.asked {
                host.taken.requested.set(*id, host.taken.requested.get(*id).saturating_sub(*amount));
            }
            host.taken.requested += &ask.requests;
        }
        host.owes.topology |= state.pinned() != old.pinned();
        old.asked = state.asked;
        old.load = state.load;
        old.priority = state.priority;
        old.qos = state.qos;
        let rejected = old.extras.take().and_then(|extras| extras.rejected);
        old.extras = state.extras;
        if rejected.is_some() {
            old.extras.get_or_insert_default().rejected = rejected;
        }
        self.pay(node);
        self.queue(slot);
    }

    fn forget_pod(&mut self, slot: u32) {
        let Some(pod) = self.pods.remove(slot) else { return };
        self.pod_addresses.give_back(Ipv4Addr::from(pod.address));
        let Some(host) = self.nodes.get_mut(pod.node) else { return };
        host.pods.retain(|other| *other != slot);
        if pod.rejected().is_some() {
            return;
        }
        for (id, amount) in &pod.asked {
            host.taken.requested.set(*id, host.taken.requested.get(*id).saturating_sub(*amount));
        }
        host.taken.pods -= 1;
        for port in &pod.ports {
            if let Some(at) = host.taken.ports.iter().position(|taken| taken == port) {
                host.taken.ports.swap_remove(at);
            }
        }
        if pod.pinned().is_some() {
            host.owes.topology = true;
            self.pay(pod.node);
        }
    }

    fn queue(&mut self, slot: u32) {
        let Some(pod) = self.pods.get_mut(slot) else { return };
        if !self.nodes.get(pod.node).is_some_and(NodeState::is_ready) {
            return;
        }
        match pod.work {
            Work::Idle => {
                pod.work = Work::Queued;
                self.pod_queue.push_back(slot);
            }
            Work::Writing => pod.work = Work::WritingAndQueued,
            Work::Queued | Work::WritingAndQueued => {}
        }
    }

    // Time.

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
        let mut period = i64::try_from(self.period(beat)).unwrap_or(i64::MAX);
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
            Beat::Sample => self.sample(slot),
            Beat::Report => {
                if self.shared.api.registry().find_resource("slo.koordinator.sh", "nodemetrics").is_some() {
                    self.reports.push_back(Wish::Report(slot));
                    period = self.policy(slot).interval.as_millis().try_into().unwrap_or(period);
                }
            }
        }
        self.set_due(slot, beat, now + period);
    }

    // Writes.

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
            Wish::Report(_) => Job::Metric(about, self.metric(slot)?),
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
        let mut own = None;
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
        if seen != Seen::Nothing && Some(seen) != own {
            // Somebody else wrote, too.
            let stored = self.shared.api.table(&self.shared.pods).get(&key);
            stored.into_iter().for_each(|stored| self.change_pod(slot, &stored));
        } else if has_news {
            self.queue(slot);
        }
    }

    // Commands.

    fn obey(&mut self, command: Command) {
        match command {
            Command::Add(pool, reply) => {
                let slots = self.add(&pool);
                let name = |slot: &u32| self.nodes.get(*slot).map(|node| node.name.to_string());
                let names = slots.iter().filter_map(name).collect();
                self.wait_for(slots.into_iter().collect(), Answer::Names(names, reply));
            }
            Command::Ready(reply) => {
                let open = self.nodes.iter().filter(|(_, node)| node.health == NodeHealth::Registering);
                let open = open.map(|(slot, _)| slot).collect();
                self.wait_for(open, Answer::Nothing(reply));
            }
            Command::Find(name, reply) => {
                let _ = reply.send(self.named(&name));
            }
            Command::Fail(names, reply) => {
                self.each(&names, Engine::fail);
                let _ = reply.send(());
            }
            Command::Revive(names, reply) => {
                self.each(&names, Engine::revive);
                let _ = reply.send(());
            }
            Command::Forget(names, reply) => {
                self.each(&names, Engine::forget_node);
                let _ = reply.send(());
            }
            Command::List(reply) => {
                let _ = reply.send(self.rows());
            }
        }
    }

    fn each(&mut self, names: &[String], act: fn(&mut Engine, u32)) {
        for name in names {
            if let Some(slot) = self.nodes.find(name) {
                act(self, slot);
            }
        }
    }

    /// The node of this name, or all of the pool of this name.
    fn named(&self, name: &str) -> Vec<String> {
        if self.nodes.find(name).is_some() {
            return vec![name.to_owned()];
        }
        let mut rows = self.rows();
        rows.retain(|row| row.pool == name);
        rows.into_iter().map(|row| row.name).collect()
    }

    fn rows(&self) -> Vec<NodeRow> {
        let mut nodes: Vec<&NodeState> = self.nodes.iter().map(|(_, node)| node).collect();
        nodes.sort_by(|a, b| (&a.pool, a.index, &a.name).cmp(&(&b.pool, b.index, &b.name)));
        let row = |node: &NodeState| NodeRow {
            name: node.name.to_string(),
            pool: node.pool.to_string(),
            health: node.health,
            pods: node.pods.len(),
            cpus: node.shape.cpus(),
            memory: node.shape.memory,
            gpus: node.shape.gpus.count,
        };
        nodes.into_iter().map(row).collect()
    }

    fn wait_for(&mut self, open: HashSet<u32>, answer: Answer) {
        self.waiting.push(Waiting { open, answer });
        self.settle();
    }

    /// A node is registered or gone: somebody may have waited for it.
    fn answer(&mut self, slot: u32) {
        for waiting in &mut self.waiting {
            waiting.open.remove(&slot);
        }
        self.settle();
    }

    fn settle(&mut self) {
        for waiting in self.waiting.extract_if(.., |waiting| waiting.open.is_empty()) {
            match waiting.answer {
                Answer::Names(names, reply) => drop(reply.send(names)),
                Answer::Nothing(reply) => drop(reply.send(())),
            }
        }
    }
}

fn read_pod(stored: &Stored) -> Option<Pod> {
    match serde_json::from_slice(&stored.json()) {
        Ok(pod) => Some(pod),
        Err(error) => {
            tracing::warn!(pod = stored.key(), %error, "a pod that cannot be read");
            None
        }
    }
}
