//! Random histories against a model that is slow and plain: maps, lists, and the rules as the spec has them.
//!
//! After every step each pod is where the model says, with the same history: none is lost, none is twice.

use proptest::prelude::*;

use super::*;
use crate::queue::store::Place;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const SECOND: i64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Happening {
    NodeAdd,
    NodeLabel,
    NodeTaint,
    PodDelete,
    VolumeAdd,
    OwnLabel,
    OwnGatesGone,
    OwnUpdate,
    Wildcard,
}
use Happening::*;

impl Happening {
    fn event(self) -> Event {
        match self {
            NodeAdd => node(Action::ADD),
            NodeLabel => node(Action::UPDATE_NODE_LABEL),
            NodeTaint => node(Action::UPDATE_NODE_TAINT),
            PodDelete => Event::new(Resource::AssignedPod, Action::DELETE),
            VolumeAdd => Event::new(Resource::PersistentVolume, Action::ADD),
            OwnLabel => Event::new(Resource::UnscheduledPod, Action::UPDATE_POD_LABEL),
            OwnGatesGone => {
                Event::new(Resource::UnscheduledPod, Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
            }
            OwnUpdate => Event::unscheduled_pod_update(),
            Wildcard => Event::wildcard(),
        }
    }

    /// What the profile of the tests answers; none when the plugin is not registered.
    fn answer(self, by: u32) -> Option<Answer> {
        match (by, self) {
            (GATE2 | ALL_EARS, _) => Some(Answer::Queue),
            (GATE, OwnGatesGone) => Some(Answer::Queue),
            (FIT, NodeAdd) => Some(Answer::Toss),
            (FIT, NodeTaint | PodDelete) => Some(Answer::Queue),
            (AFFINITY, NodeAdd | NodeLabel) => Some(Answer::Skip),
            (AFFINITY, NodeTaint | OwnLabel) => Some(Answer::Queue),
            (AFFINITY, VolumeAdd) => Some(Answer::Fail),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add {
        name: usize,
        priority: i32,
    },
    /// The pod was deleted and made again, and only the second was seen.
    Reborn {
        name: usize,
    },
    Pop,
    Take {
        name: usize,
    },
    Fail {
        flying: usize,
        rejectors: Vec<u32>,
        pending: Vec<u32>,
    },
    Done {
        flying: usize,
    },
    Delete {
        name: usize,
    },
    Activate {
        name: usize,
    },
    Happen {
        what: Happening,
        change: u64,
        limit: i32,
    },
    Update {
        name: usize,
        priority: i32,
        what: Happening,
        change: u64,
    },
    Gate {
        name: usize,
        by: u32,
        is_closed: bool,
    },
    Pass {
        millis: i64,
    },
    Tick,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES.len();
    let sets = prop::collection::vec(2u32..6, 0..3);
    let events = prop::sample::select(vec![NodeAdd, NodeLabel, NodeTaint, PodDelete, VolumeAdd, Wildcard]);
    let own = prop::sample::select(vec![OwnLabel, OwnGatesGone, OwnUpdate]);
    let passing = prop_oneof![20 => 0i64..2500, 2 => 60_000i64..400_000, 1 => -900_000i64..0];
    let step = prop_oneof![
        4 => (name.clone(), -1i32..2).prop_map(|(name, priority)| Step::Add { name, priority }),
        1 => name.clone().prop_map(|name| Step::Reborn { name }),
        6 => Just(Step::Pop),
        1 => name.clone().prop_map(|name| Step::Take { name }),
        6 => (any::<usize>(), sets.clone(), sets)
            .prop_map(|(flying, rejectors, pending)| Step::Fail { flying, rejectors, pending }),
        1 => any::<usize>().prop_map(|flying| Step::Done { flying }),
        1 => name.clone().prop_map(|name| Step::Delete { name }),
        2 => name.clone().prop_map(|name| Step::Activate { name }),
        4 => (events, 0u64..3, -1i32..2)
            .prop_map(|(what, change, limit)| Step::Happen { what, change, limit }),
        2 => (name.clone(), -1i32..2, own, 0u64..3)
            .prop_map(|(name, priority, what, change)| Step::Update { name, priority, what, change }),
        2 => (name, 0u32..2, any::<bool>())
            .prop_map(|(name, by, is_closed)| Step::Gate { name, by, is_closed }),
        4 => passing.prop_map(|millis| Step::Pass { millis }),
        4 => Just(Step::Tick),
    ];
    prop::collection::vec(step, 0..100)
}

#[derive(Clone, Debug, PartialEq)]
struct ModelPod {
    place: Place,
    uid: String,
    priority: i32,
    timestamp: i64,
    attempts: u32,
    refusals: u32,
    errors: u32,
    rejectors: BTreeSet<u32>,
    pending: BTreeSet<u32>,
    gate: Option<u32>,
    ends: Option<i64>,
    cycle: u64,
    arrival: u64,
}

#[derive(Clone, Debug)]
enum Listed {
    Pod(String),
    Event(Happening, u64),
    Force(String),
}

/// The queue as the spec has it.
#[derive(Debug)]
struct Model {
    hints: bool,
    pops: bool,
    now: Option<i64>,
    pool_due: i64,
    queued: BTreeMap<String, ModelPod>,
    list: Vec<Listed>,
    gates: BTreeSet<(u32, String)>,
    cycle: u64,
    moved: Option<u64>,
    arrivals: u64,
}

fn floor(time: i64) -> i64 {
    time - time.rem_euclid(SECOND)
}

impl Model {
    fn observe(&mut self, now: i64) -> i64 {
        let latest = *self.now.get_or_insert_with(|| {
            self.pool_due = now;
            now
        });
        let back = latest - now;
        if back > SECOND {
            let shift = -floor(-back);
            for pod in self.queued.values_mut() {
                pod.timestamp -= shift;
                pod.ends = pod.ends.map(|ends| ends - shift);
            }
            self.pool_due -= shift;
            self.now = Some(now);
        } else {
            self.now = Some(now.max(latest));
        }
        self.now.unwrap()
    }

    fn is_flying(&self, uid: &str) -> bool {
        self.list.iter().any(|listed| matches!(listed, Listed::Pod(other) if other == uid))
    }

    fn record(&mut self, listed: Listed) {
        if self.hints && self.list.iter().any(|listed| matches!(listed, Listed::Pod(_))) {
            self.list.push(listed);
        }
    }

    fn done(&mut self, uid: &str) {
        self.list.retain(|listed| !matches!(listed, Listed::Pod(other) if other == uid));
        let first = self.list.iter().position(|listed| matches!(listed, Listed::Pod(_)));
        self.list.drain(..first.unwrap_or(self.list.len()));
    }

    fn pre_enqueue(&self, name: &str, pod: &mut ModelPod) {
        let mut order: Vec<u32> = pod.gate.into_iter().collect();
        order.extend([GATE, GATE2].into_iter().filter(|by| pod.gate != Some(*by)));
        pod.gate = order.into_iter().find(|by| self.gates.contains(&(*by, name.to_owned())));
        pod.rejectors.extend(pod.gate);
    }

    fn put(&mut self, name: &str, mut pod: ModelPod, place: Place) {
        if place != Place::Pool || pod.place != Place::Pool {
            pod.arrival = self.arrivals;
            self.arrivals += 1;
        }
        pod.place = place;
        self.queued.insert(name.to_owned(), pod);
    }

    fn move_to_active(&mut self, name: &str, mut pod: ModelPod) {
        let passed = self.pops && matches!(pod.place, Place::Backoff | Place::ErrorBackoff);
        if !passed {
            self.pre_enqueue(name, &mut pod);
        }
        let place = if pod.gate.is_some() { Place::Pool } else { Place::Active };
        self.put(name, pod, place);
    }

    fn move_to_backoff(&mut self, name: &str, mut pod: ModelPod) {
        if self.pops {
            self.pre_enqueue(name, &mut pod);
        }
        let place = match (&pod.gate, pod.rejectors.is_empty() && pod.pending.is_empty()) {
            (Some(_), _) if self.pops => Place::Pool,
            (_, true) => Place::ErrorBackoff,
            _ => Place::Backoff,
        };
        self.put(name, pod, place);
    }

    /// 0: skip, 1: after backoff, 2: at once.
    fn strategy(&self, pod: &ModelPod, listed: &Listed) -> u8 {
        let rejectors: BTreeSet<u32> = pod.rejectors.union(&pod.pending).copied().collect();
        let (what, change) = match listed {
            _ if rejectors.is_empty() => return 1,
            Listed::Pod(_) => return 0,
            Listed::Force(uid) => return u8::from(*uid == pod.uid),
            Listed::Event(Wildcard, _) => return 1,
            Listed::Event(what, change) => (*what, *change),
        };
        let strength = |by: u32| match what.answer(by) {
            None => 0,
            Some(Answer::Skip) if self.hints => 0,
            Some(Answer::Toss) if self.hints && !toss(plugin(by), &pod.uid.as_str().into(), change) => 0,
            Some(_) => 1 + u8::from(pod.pending.contains(&by)),
        };
        rejectors.into_iter().map(strength).max().unwrap_or(0)
    }

    fn requeue(&mut self, name: &str, pod: ModelPod, strategy: u8, now: i64) {
        let aligned = if self.pops { floor(now) } else { now };
        match strategy {
            0 => self.put(name, pod, Place::Pool),
            1 if pod.ends.is_some_and(|ends| ends >= aligned) => self.move_to_backoff(name, pod),
            _ => self.move_to_active(name, pod),
        }
    }

    fn insert(&mut self, name: &str, uid: &str, priority: i32, now: i64) {
        let pod = ModelPod {
            place: Place::Nowhere,
            uid: uid.to_owned(),
            priority,
            timestamp: now,
            attempts: 0,
            refusals: 0,
            errors: 0,
            rejectors: BTreeSet::new(),
            pending: BTreeSet::new(),
            gate: None,
            ends: None,
            cycle: 0,
            arrival: 0,
        };
        self.move_to_active(name, pod);
    }

    fn add(&mut self, name: &str, uid: &str, priority: i32, now: i64) {
        match self.queued.get_mut(name) {
            Some(pod) if pod.uid == uid => pod.priority = priority,
            _ => self.insert(name, uid, priority, now),
        }
    }

    fn first(&self, place: Place) -> Option<String> {
        let pods = self.queued.iter().filter(|(_, pod)| pod.place == place);
        let by_sort = place == Place::Active || place == Place::Backoff && self.pops;
        let key = |pod: &ModelPod| {
            let ends = if place == Place::Active { None } else { pod.ends };
            let sort = if by_sort { (-pod.priority, pod.timestamp) } else { (0, 0) };
            (ends, sort, pod.arrival)
        };
        pods.min_by_key(|(_, pod)| key(pod)).map(|(name, _)| name.clone())
    }

    fn pop(&mut self) -> Option<(String, ModelPod)> {
        loop {
            let early = || self.pops.then(|| self.first(Place::Backoff)).flatten();
            let name = self.first(Place::Active).or_else(early)?;
            let mut pod = self.queued.remove(&name)?;
            if self.is_flying(&pod.uid) {
                continue;
            }
            self.list.push(Listed::Pod(pod.uid.clone()));
            self.cycle += 1;
            pod.attempts += 1;
            self.start(&mut pod);
            return Some((name, pod));
        }
    }

    fn start(&self, pod: &mut ModelPod) {
        pod.cycle = self.cycle;
        pod.rejectors.clear();
        pod.pending.clear();
        pod.gate = None;
        pod.place = Place::Nowhere;
    }

    fn fail(&mut self, name: &str, mut pod: ModelPod, now: i64) {
        let uid = pod.uid.clone();
        if !self.queued.contains_key(name) {
            let is_error = pod.rejectors.is_empty() && pod.pending.is_empty();
            pod.errors = if is_error { pod.errors + 1 } else { 0 };
            pod.refusals += u32::from(!is_error);
            pod.timestamp = now;
            let count = if pod.errors > 0 { pod.errors } else { pod.refusals };
            let duration = SECOND.checked_shl(count - 1).filter(|d| *d < 10 * SECOND).unwrap_or(10 * SECOND);
            pod.ends = Some(if self.pops { floor(now + duration) } else { now + duration });
            let start = self.list.iter().position(|l| matches!(l, Listed::Pod(other) if *other == uid));
            let strategy = match start {
                _ if is_error => 1,
                _ if !self.hints => u8::from(self.moved.is_some_and(|moved| moved >= pod.cycle)),
                None => 1,
                Some(start) => self.list[start..].iter().map(|l| self.strategy(&pod, l)).max().unwrap_or(0),
            };
            if strategy == 1 && !self.hints {
                self.move_to_backoff(name, pod);
            } else {
                self.requeue(name, pod, strategy, now);
            }
        }
        self.done(&uid);
    }

    fn wake(&mut self, candidates: Vec<(String, ModelPod)>, listed: &Listed, now: i64) {
        for (name, pod) in candidates {
            let strategy = self.strategy(&pod, listed);
            if strategy > 0 {
                self.requeue(&name, pod, strategy, now);
            }
        }
        self.moved = Some(self.cycle);
        self.record(listed.clone());
    }

    fn pool(&self, filter: impl Fn(&ModelPod) -> bool) -> Vec<(String, ModelPod)> {
        let pods = self.queued.iter().filter(|(_, pod)| pod.place == Place::Pool && filter(pod));
        let mut pods: Vec<_> = pods.map(|(name, pod)| (name.clone(), pod.clone())).collect();
        pods.sort_by_key(|(_, pod)| pod.arrival);
        pods
    }

    fn happen(&mut self, what: Happening, change: u64, limit: i32, now: i64) {
        let opens = |by: u32| what != Wildcard && what.answer(by).is_some();
        let candidates = self.pool(|pod| pod.priority <= limit && pod.gate.is_none_or(opens));
        self.wake(candidates, &Listed::Event(what, change), now);
    }

    fn activate(&mut self, name: &str, uid: &str) {
        match self.queued.get(name).cloned() {
            Some(pod) if pod.place != Place::Active => self.move_to_active(name, pod),
            Some(_) => {}
            None if self.is_flying(uid) => {
                self.moved = Some(self.cycle);
                self.record(Listed::Force(uid.to_owned()));
            }
            None => {}
        }
    }

    fn update(&mut self, name: &str, uid: &str, priority: i32, listed: Listed, now: i64) {
        if self.is_flying(uid) {
            self.moved = Some(self.cycle);
            return self.record(listed);
        }
        let Some(pod) = self.queued.get_mut(name).filter(|pod| pod.uid == uid) else {
            return self.insert(name, uid, priority, now);
        };
        pod.priority = priority;
        if pod.place == Place::Pool {
            let pod = pod.clone();
            let strategy = if self.hints { self.strategy(&pod, &listed) } else { 1 };
            if strategy > 0 {
                self.requeue(name, pod, strategy, now);
            }
        }
    }

    fn tick(&mut self, now: i64) {
        for place in [Place::Backoff, Place::ErrorBackoff] {
            while let Some(name) = self.first(place) {
                let pod = self.queued[&name].clone();
                if pod.ends.is_some_and(|ends| ends >= floor(now)) {
                    break;
                }
                self.move_to_active(&name, pod);
            }
        }
        if now >= self.pool_due {
            while self.pool_due <= now {
                self.pool_due += 30 * SECOND;
            }
            let due = self.pool(|pod| pod.gate.is_none() && now - pod.timestamp > 300 * SECOND);
            if !due.is_empty() {
                self.wake(due, &Listed::Event(Wildcard, 0), now);
            }
        }
    }

    fn next_wake(&self, now: i64) -> Option<i64> {
        let in_backoff = |pod: &&ModelPod| matches!(pod.place, Place::Backoff | Place::ErrorBackoff);
        let released = self.queued.values().filter(in_backoff).filter_map(|pod| pod.ends);
        let released = released.map(|ends| floor(ends) + SECOND);
        let searched = (!self.pool(|pod| pod.gate.is_none()).is_empty()).then_some(self.pool_due);
        released.chain(searched).min().map(|time| time.max(now))
    }
}

/// Both, side by side.
struct Pair {
    world: World,
    model: Model,
    clock: i64,
    /// How often each pod was made anew.
    births: [u32; NAMES.len()],
    flying: Vec<(String, QueuedPod<i32>, ModelPod)>,
}

impl Pair {
    fn new(uses_hints: bool, pops_from_backoff: bool) -> Pair {
        let options = Options { uses_hints, pops_from_backoff, ..Options::default() };
        let model = Model {
            hints: uses_hints,
            pops: pops_from_backoff,
            now: None,
            pool_due: 0,
            queued: BTreeMap::new(),
            list: Vec::new(),
            gates: BTreeSet::new(),
            cycle: 0,
            moved: None,
            arrivals: 0,
        };
        let clock = 1_000_000 * SECOND + SECOND / 4;
        Pair { world: World::new(options), model, clock, births: [0; NAMES.len()], flying: Vec::new() }
    }

    fn uid(&self, name: usize) -> String {
        format!("{}{}", NAMES[name], self.births[name])
    }

    fn pod(&self, name: usize, priority: i32) -> Pod<i32> {
        Pod { uid: self.uid(name).as_str().into(), ..pod(NAMES[name], priority) }
    }

    fn apply(&mut self, step: &Step) {
        let time = Time::from_nanos(self.clock);
        let World { queue, fake, .. } = &mut self.world;
        match step {
            Step::Pass { millis } => self.clock += millis * 1_000_000,
            Step::Gate { name, by, is_closed } => {
                if *is_closed {
                    fake.gates.insert((plugin(*by), key(NAMES[*name])));
                    self.model.gates.insert((*by, NAMES[*name].to_owned()));
                } else {
                    fake.gates.remove(&(plugin(*by), key(NAMES[*name])));
                    self.model.gates.remove(&(*by, NAMES[*name].to_owned()));
                }
            }
            Step::Done { flying } => {
                if let Some(index) = flying.checked_rem(self.flying.len()) {
                    let (_, record, pod) = self.flying.remove(index);
                    queue.done(&record.pod.uid);
                    self.model.done(&pod.uid);
                }
            }
            Step::Delete { name } => {
                let uid = self.uid(*name);
                self.world.queue.delete(&self.world.fake, &key(NAMES[*name]), &uid.as_str().into());
                let is_it = self.model.queued.get(NAMES[*name]).is_some_and(|pod| pod.uid == uid);
                if is_it {
                    self.model.queued.remove(NAMES[*name]);
                }
            }
            Step::Fail { .. } if self.flying.is_empty() => {}
            _ => {
                let now = self.model.observe(self.clock);
                self.apply_timed(step, time, now);
            }
        }
    }

    fn apply_timed(&mut self, step: &Step, time: Time, now: i64) {
        match step {
            Step::Add { name, priority } => {
                let pod = self.pod(*name, *priority);
                self.world.queue.add(&mut self.world.fake, pod, time);
                self.model.add(NAMES[*name], &self.uid(*name), *priority, now);
            }
            Step::Reborn { name } => {
                self.births[*name] += 1;
                self.apply_timed(&Step::Add { name: *name, priority: 0 }, time, now);
            }
            Step::Pop => {
                let record = self.world.queue.pop(&self.world.fake, time);
                let pod = self.model.pop();
                assert_eq!(record.as_ref().map(|r| r.pod.key.clone()), pod.as_ref().map(|(n, _)| key(n)));
                if let (Some(record), Some((name, pod))) = (record, pod) {
                    assert_same(&name, &record, &pod);
                    self.flying.push((name, record, pod));
                }
            }
            Step::Take { name } => {
                let record = self.world.queue.take(&self.world.fake, &key(NAMES[*name]), time);
                let pod = self.model.queued.remove(NAMES[*name]);
                assert_eq!(record.is_some(), pod.is_some());
                if let (Some(record), Some(mut pod)) = (record, pod) {
                    self.model.start(&mut pod);
                    self.flying.push((NAMES[*name].to_owned(), record, pod));
                }
            }
            Step::Fail { flying, rejectors, pending } => {
                let index = flying % self.flying.len();
                let (name, mut record, mut pod) = self.flying.remove(index);
                record.unschedulable_plugins = plugins(rejectors);
                record.pending_plugins = plugins(pending);
                pod.rejectors = rejectors.iter().copied().collect();
                pod.pending = pending.iter().copied().collect();
                let is_new = !self.model.queued.contains_key(&name);
                let answer = self.world.queue.add_unschedulable(&mut self.world.fake, record, time);
                assert_eq!(answer.is_ok(), is_new);
                self.model.fail(&name, pod, now);
            }
            Step::Activate { name } => {
                let uid = self.uid(*name);
                let pods = [(&key(NAMES[*name]), &uid.as_str().into())];
                self.world.queue.activate(&mut self.world.fake, pods, time);
                self.model.activate(NAMES[*name], &uid);
            }
            Step::Happen { what, change, limit } => {
                let pre_check = |record: &QueuedPod<i32>| record.pod.priority <= *limit;
                let World { queue, fake, .. } = &mut self.world;
                queue.move_all(fake, &what.event(), change, pre_check, time);
                self.model.happen(*what, *change, *limit, now);
            }
            Step::Update { name, priority, what, change } => {
                let events = [what.event()];
                let pod = self.pod(*name, *priority);
                let (change, events) = (*change, &events);
                let update = PodUpdate { pod, was_nominated: None, events, change, is_relevant: true };
                self.world.queue.update(&mut self.world.fake, update, time);
                let listed = Listed::Event(*what, change);
                self.model.update(NAMES[*name], &self.uid(*name), *priority, listed, now);
            }
            Step::Tick => {
                self.world.queue.tick(&mut self.world.fake, time);
                self.model.tick(now);
            }
            Step::Pass { .. } | Step::Gate { .. } | Step::Done { .. } | Step::Delete { .. } => {}
        }
    }

    fn compare(&self) {
        let queue = &self.world.queue;
        assert_eq!(queue.len(), self.model.queued.len());
        let mut pending = Pending::default();
        let mut held: BTreeMap<PluginId, u64> = BTreeMap::new();
        for (name, pod) in &self.model.queued {
            let slot = queue.store.find(&key(name)).expect("lost");
            assert_eq!(queue.store.place(slot), pod.place, "{name}");
            assert_same(name, queue.store.get(slot), pod);
            *match (pod.place, pod.gate) {
                (Place::Active, _) => &mut pending.active,
                (Place::Pool, None) => &mut pending.unschedulable,
                (Place::Pool, Some(_)) => &mut pending.gated,
                _ => &mut pending.backoff,
            } += 1;
            for by in pod.rejectors.union(&pod.pending) {
                *held.entry(plugin(*by)).or_default() += 1;
            }
        }
        assert_eq!(queue.pending(), pending, "gauges equal a recount");
        let counted = queue.unschedulable().iter().filter(|(_, count)| **count > 0);
        let counted: BTreeMap<_, _> = counted.map(|((_, by), count)| (*by, *count)).collect();
        assert_eq!(counted, held, "gauges equal a recount");
        let in_flight: Vec<String> = queue.in_flight().map(|flying| flying.uid.to_string()).collect();
        let is_pod = |listed: &Listed| if let Listed::Pod(uid) = listed { Some(uid.clone()) } else { None };
        assert_eq!(in_flight, self.model.list.iter().filter_map(is_pod).collect::<Vec<_>>());
        assert_eq!(queue.in_flight_events().values().sum::<usize>(), self.model.list.len(), "events kept");
        assert_eq!(queue.cycle(), self.model.cycle);
        let now = self.model.now.unwrap_or(self.clock);
        let next_wake = queue.next_wake(Time::from_nanos(now)).map(Time::nanos);
        assert_eq!(next_wake, self.model.next_wake(now), "next wake");
    }
}

fn assert_same(name: &str, record: &QueuedPod<i32>, pod: &ModelPod) {
    assert_eq!(record.pod.uid.as_str(), pod.uid, "{name}");
    assert_eq!(record.pod.priority, pod.priority, "{name}");
    assert_eq!(record.timestamp.nanos(), pod.timestamp, "{name}: timestamp");
    let counts = (record.attempts, record.unschedulable_count, record.consecutive_errors, record.cycle);
    assert_eq!(counts, (pod.attempts, pod.refusals, pod.errors, pod.cycle), "{name}");
    let set = |set: &BTreeSet<u32>| plugins(&set.iter().copied().collect::<Vec<_>>());
    assert_eq!(record.unschedulable_plugins, set(&pod.rejectors), "{name}");
    assert_eq!(record.pending_plugins, set(&pod.pending), "{name}");
    assert_eq!(record.gate.as_ref().map(|gate| gate.plugin), pod.gate.map(plugin), "{name}: gate");
    assert_eq!(record.backoff_ends.map(Time::nanos), pod.ends, "{name}: backoff");
}

proptest! {
    #[test]
    fn no_history_loses_or_doubles_a_pod(
        steps in steps(), uses_hints in any::<bool>(), pops_from_backoff in any::<bool>(),
    ) {
        let mut pair = Pair::new(uses_hints, pops_from_backoff);
        for step in &steps {
            pair.apply(step);
            pair.compare();
        }
    }
}
