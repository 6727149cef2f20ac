use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::{Hint, Interest, Registration};
use crate::framework::plugin_set::PluginSet;
use crate::framework::status::Status;

mod backoff;
mod hints;
mod model;
mod operations;
mod waking;

/// What a fake hint function answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Queue,
    Skip,
    Fail,
    /// Depends on the pod, the plugin and the change, in no way that means anything.
    Toss,
}

/// Plugins and pods for tests.
#[derive(Debug, Default)]
pub(super) struct Fake {
    /// Who holds whom.
    gates: BTreeSet<(PluginId, PodKey)>,
    /// What was asked of PreEnqueue plugins.
    asked: Vec<(PluginId, PodKey)>,
    hints_asked: usize,
    /// Pods that are gone or have a node.
    not_waiting: BTreeSet<PodUid>,
    /// Reverses the order of names, when the host sorts.
    is_reversed: bool,
}

impl Host for Fake {
    /// A label of the pod, which the host's own order goes by.
    type Content = i32;
    type Change = u64;
    type HintFn = Answer;

    fn pre_enqueue(&mut self, plugin: PluginId, pod: &QueuedPod<i32>) -> Result<(), Status> {
        self.asked.push((plugin, pod.pod.key.clone()));
        if self.gates.contains(&(plugin, pod.pod.key.clone())) {
            return Err(Status::unresolvable("Gate", "held"));
        }
        Ok(())
    }

    fn hint(
        &mut self,
        plugin: PluginId,
        answer: &Answer,
        pod: &QueuedPod<i32>,
        _: &Event,
        change: &u64,
    ) -> Result<Hint, Status> {
        self.hints_asked += 1;
        match answer {
            Answer::Queue => Ok(Hint::Queue),
            Answer::Skip => Ok(Hint::Skip),
            Answer::Fail => Err(Status::error("Fit", "no idea")),
            Answer::Toss if toss(plugin, &pod.pod.uid, *change) => Ok(Hint::Queue),
            Answer::Toss => Ok(Hint::Skip),
        }
    }

    fn order(&self, a: &QueuedPod<i32>, b: &QueuedPod<i32>) -> std::cmp::Ordering {
        let order = a.pod.content.cmp(&b.pod.content);
        if self.is_reversed { order.reverse() } else { order }
    }

    fn is_waiting(&self, pod: &Pod<i32>) -> bool {
        !self.not_waiting.contains(&pod.uid)
    }
}

/// Heads or tails.
fn toss(plugin: PluginId, uid: &PodUid, change: u64) -> bool {
    let letters: u64 = uid.as_str().bytes().map(u64::from).sum();
    (letters + change + u64::try_from(plugin.index()).unwrap()).is_multiple_of(3)
}

fn plugin(index: u32) -> PluginId {
    PluginId::new(index).unwrap()
}

fn plugins(indices: &[u32]) -> PluginSet {
    indices.iter().map(|index| plugin(*index)).collect()
}

fn key(name: &str) -> PodKey {
    PodKey::new("ns", name)
}

fn pod(name: &str, priority: i32) -> Pod<i32> {
    Pod {
        key: key(name),
        uid: name.into(),
        profile: ProfileId(0),
        priority,
        nominated: None,
        content: priority,
    }
}

fn seconds(seconds: f64) -> Time {
    Time::default() + std::time::Duration::from_secs_f64(seconds)
}

fn node(action: Action) -> Event {
    Event::new(Resource::Node, action)
}

/// Plugins 0 to 5; 0 and 1 are PreEnqueue plugins.
const GATE: u32 = 0;
const GATE2: u32 = 1;
const FIT: u32 = 2;
const AFFINITY: u32 = 3;
const DEAF: u32 = 4;
const ALL_EARS: u32 = 5;

fn profile() -> Profile<Answer> {
    let mut profile = Profile { pre_enqueue: vec![plugin(GATE), plugin(GATE2)], ..Profile::default() };
    let gates_gone = Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED;
    let mut register = |index, interest| profile.registrations.register(plugin(index), interest);
    register(GATE, Interest::Only(vec![Registration::with(Resource::Pod, gates_gone, Answer::Queue)]));
    register(GATE2, Interest::Everything);
    register(
        FIT,
        Interest::Only(vec![
            Registration::with(Resource::Node, Action::ADD, Answer::Toss),
            Registration::with(Resource::Pod, Action::DELETE, Answer::Queue),
        ]),
    );
    register(
        AFFINITY,
        Interest::Only(vec![
            Registration::with(Resource::Node, Action::ADD | Action::UPDATE_NODE_LABEL, Answer::Skip),
            Registration::with(Resource::PersistentVolume, Action::ADD, Answer::Fail),
            Registration::with(Resource::Pod, Action::UPDATE_POD_LABEL, Answer::Queue),
        ]),
    );
    register(DEAF, Interest::Only(vec![]));
    register(ALL_EARS, Interest::Everything);
    profile
}

/// A queue, the pods that were taken out of it, and the time.
struct World {
    queue: Queue<Fake>,
    fake: Fake,
    now: Time,
    flying: BTreeMap<String, QueuedPod<i32>>,
}

impl World {
    fn new(options: Options) -> World {
        World {
            queue: Queue::new(options, vec![profile()]),
            fake: Fake::default(),
            now: Time::default(),
            flying: BTreeMap::new(),
        }
    }

    fn at(&mut self, time: f64) {
        self.now = seconds(time);
    }

    /// What a shell does: ticks at every whole second up to the time.
    fn tick_until(&mut self, time: f64) {
        while self.now.next_second() <= seconds(time) {
            self.now = self.now.next_second();
            self.queue.tick(&mut self.fake, self.now);
        }
        self.now = seconds(time);
    }

    fn add(&mut self, name: &str, priority: i32) -> QueueName {
        self.queue.add(&mut self.fake, pod(name, priority), self.now)
    }

    fn pop(&mut self) -> Option<String> {
        let record = self.queue.pop(&self.fake, self.now)?;
        let name = record.pod.uid.to_string();
        self.flying.insert(name.clone(), record);
        Some(name)
    }

    fn pop_all(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// Gives a pod back that these plugins refused.
    fn fail(
        &mut self,
        name: &str,
        unschedulable: &[u32],
        pending: &[u32],
    ) -> Result<QueueName, AlreadyQueued> {
        let mut record = self.flying.remove(name).expect("a pod in flight");
        record.unschedulable_plugins = plugins(unschedulable).union(plugins(pending));
        record.pending_plugins = plugins(pending);
        self.queue.add_unschedulable(&mut self.fake, record, self.now)
    }

    /// Adds a pod and lets these plugins refuse it.
    fn refused(&mut self, name: &str, unschedulable: &[u32], pending: &[u32]) -> QueueName {
        self.add(name, i32::MAX);
        assert_eq!(self.pop().as_deref(), Some(name));
        self.fail(name, unschedulable, pending).unwrap()
    }

    fn event(&mut self, event: &Event) {
        self.queue.move_all(&mut self.fake, event, &0, |_| true, self.now);
    }

    fn activate(&mut self, name: &str) {
        self.queue.activate(&mut self.fake, [(&key(name), &name.into())], self.now);
    }

    fn update(&mut self, pod: Pod<i32>, events: &[Event]) {
        let update = PodUpdate { pod, was_nominated: None, events, change: 0, is_relevant: true };
        self.queue.update(&mut self.fake, update, self.now);
    }

    fn waiting(&self, name: &str) -> Waiting<'_, i32> {
        match self.queue.whereabouts(&self.fake, &key(name), &name.into()) {
            Some(Whereabouts::Queued(waiting)) => waiting,
            other => panic!("{name} is not queued: {other:?}"),
        }
    }

    /// Where a pod is, in a word.
    fn place(&self, name: &str) -> &'static str {
        match self.queue.whereabouts(&self.fake, &key(name), &name.into()) {
            None => "nowhere",
            Some(Whereabouts::InFlight { .. }) => "in flight",
            Some(Whereabouts::Queued(waiting)) => match waiting.queue {
                QueueName::Active => "active",
                QueueName::Backoff if waiting.is_error => "error backoff",
                QueueName::Backoff => "backoff",
                QueueName::Unschedulable => "unschedulable",
                QueueName::Gated => "gated",
            },
        }
    }

    fn came(&self, queue: QueueName, label: &str) -> u64 {
        let counts = self.queue.incoming().iter();
        counts.filter(|((q, cause), _)| *q == queue && cause.to_string() == label).map(|(_, n)| n).sum()
    }
}
