//! An engine that anything is told, and what must hold all the same: it never panics, its ledger stays equal to a
//! recount, no pod is lost, and none waits for ever.
//!
//! One event per line: `Input` as JSON, or bytes of which the first chooses what happens and the rest the details
//! (`objects` makes something of them, valid or not).

use std::collections::{BTreeMap, BTreeSet};

use koord_engine::Engine;
use koord_engine::engine::{Command, Input, Options, Outcome};
use koord_engine::profile::Profile;
use koord_engine::profile::expand::{Choice, PluginSet, PluginSets};
use koord_engine::queue::QueueName;
use koord_engine::time::Time;

mod objects;
mod tape;

use objects::Maker;
use tape::Tape;

/// Lines beyond these are not looked at, so that one input ends soon.
const LINES_MAX: usize = 150;
/// Counting everything again is slow.
const RECOUNTED_EVERY: usize = 8;
/// The whole seconds that a queue needs to come to rest: longer than any backoff, and than a stay in the pool.
const REST_SECONDS: i64 = 400;

/// Plays these lines to an engine.
pub(crate) fn play(data: &[u8]) {
    let mut world = World::new();
    for (number, line) in data.split(|byte| *byte == b'\n').take(LINES_MAX).enumerate() {
        world.happen(line);
        if number % RECOUNTED_EVERY == 0 {
            world.check();
        }
    }
    world.check();
    world.come_to_rest();
}

/// An engine, and what it was told.
struct World {
    engine: Engine,
    maker: Maker,
    now: Time,
    unanswered: Vec<Command>,
    /// Pods that somebody of ours has to place: by name, the uid told of last.
    waiting: BTreeMap<(String, String), String>,
    /// Objects told of, as they were.
    told: Vec<Input>,
}

impl World {
    fn new() -> World {
        World {
            engine: engine(),
            maker: Maker::default(),
            now: Time::from_seconds(1_700_000_000),
            unanswered: Vec::new(),
            waiting: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    fn happen(&mut self, line: &[u8]) {
        if let Ok(input) = serde_json::from_slice::<Input>(line) {
            self.tell(input);
            return;
        }
        let mut tape = Tape::new(line);
        match tape.byte() {
            b'a' => self.answer(tape.byte()),
            b't' => self.pass_time(&mut tape),
            b'e' => self.explain(&mut tape),
            b'r' => self.tell_again(&mut tape),
            b'k' => self.start_anew(),
            b'A' => {
                let (namespace, name) = self.maker.pod_name(&mut tape);
                self.tell(Input::Activate { namespace, name });
            }
            b'o' => {
                // An answer that nobody waits for.
                let (_, name) = self.maker.pod_name(&mut tape);
                let outcome = [Outcome::Bound, Outcome::Prepared, Outcome::Preempted];
                let outcome = outcome[usize::from(tape.byte()) % 3].clone();
                self.tell(Input::Outcome { uid: format!("uid-{name}"), outcome });
            }
            kind => match self.maker.input(kind, &mut tape) {
                Some(input) => self.tell(input),
                None => drop(self.engine.step(self.now)),
            },
        }
        self.unanswered.extend(self.engine.take_commands());
    }

    fn tell(&mut self, input: Input) {
        match &input {
            Input::Pod { object } => {
                let key = key_of(object);
                let spec = object.spec.as_ref();
                let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
                let is_open = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default().is_empty()
                    && !matches!(phase, Some("Succeeded" | "Failed"))
                    && object.metadata.deletion_timestamp.is_none();
                let uid = object.metadata.uid.clone().unwrap_or_default();
                match is_open && !uid.is_empty() && is_ours(object) {
                    true => drop(self.waiting.insert(key, uid)),
                    // A name means the pod that it was told of last.
                    false => drop(self.waiting.remove(&key)),
                }
            }
            Input::PodGone { uid, .. } => self.waiting.retain(|_, known| known != uid),
            _ => {}
        }
        if self.told.len() < LINES_MAX {
            self.told.push(input.clone());
        }
        self.engine.take(self.now, input);
    }

    /// What became of the oldest command that has an outcome.
    fn answer(&mut self, byte: u8) {
        while !self.unanswered.is_empty() {
            if let Some((uid, outcome)) = outcome(&self.unanswered.remove(0), byte % 4 != 3) {
                self.engine.take(self.now, Input::Outcome { uid, outcome });
                break;
            }
        }
        self.unanswered.extend(self.engine.take_commands());
    }

    /// Clocks jump, also back, and to the ends of time.
    fn pass_time(&mut self, tape: &mut Tape<'_>) {
        let nanos = self.now.nanos();
        let by = i64::from(tape.byte()) - 64;
        self.now = Time::from_nanos(match tape.byte() % 8 {
            0..=3 => nanos.saturating_add(by * 1_000_000_000),
            4 => nanos.saturating_add(by * 1_000_000),
            5 => nanos.saturating_add(by * 1_000_000_000 * 86_400),
            6 => i64::MAX,
            _ => i64::MIN,
        });
        self.engine.take(self.now, Input::Tick);
    }

    fn explain(&mut self, tape: &mut Tape<'_>) {
        let (namespace, name) = self.maker.pod_name(tape);
        if tape.chance(4) {
            let report = self.engine.explain_pending(self.now);
            serde_json::to_string(&report).expect("a report can be written");
        } else if let Some(explanation) = self.engine.explain(self.now, &namespace, &name) {
            serde_json::to_string(&explanation).expect("an explanation can be written");
        }
    }

    /// Events come twice, and late.
    fn tell_again(&mut self, tape: &mut Tape<'_>) {
        let at = usize::from(tape.byte()) * self.told.len() / 256;
        let Some(input) = self.told.get(at).cloned() else { return };
        // Of a pod that another one of its name has followed, nothing comes any more.
        let uid_of = |input: &Input| match input {
            Input::Pod { object } => Some((key_of(object), object.metadata.uid.clone())),
            _ => None,
        };
        let is_stale = uid_of(&input).is_some_and(|(key, uid)| {
            let last = self.told.iter().rev().filter_map(uid_of).find(|(known, _)| *known == key);
            last.is_some_and(|(_, last)| last != uid)
        });
        if !is_stale {
            self.tell(input);
        }
    }

    /// The scheduler starts anew, and is told all that there ever was.
    fn start_anew(&mut self) {
        self.engine = engine();
        self.unanswered.clear();
        self.waiting.clear();
        for input in std::mem::take(&mut self.told) {
            self.tell(input);
        }
    }

    fn check(&self) {
        let cluster = self.engine.cluster();
        assert_eq!(cluster.recount(), cluster.ledger());
        assert_eq!(cluster.recount_reservations(), cluster.reservation_ledger());
        let queued = self.queued();
        for (key, uid) in &self.waiting {
            let is_somewhere = queued.contains(uid) || cluster.held(uid).is_some() || self.is_binding(uid);
            assert!(is_somewhere, "{key:?} {uid} is lost");
        }
    }

    fn queued(&self) -> BTreeSet<String> {
        let parts = [QueueName::Active, QueueName::Backoff, QueueName::Unschedulable, QueueName::Gated];
        let queued = parts.into_iter().flat_map(|part| self.engine.queued(part));
        queued.map(|queued| queued.pod.uid.to_string()).collect()
    }

    fn is_binding(&self, uid: &str) -> bool {
        self.engine.binding().any(|(pod, _)| *pod.uid == *uid)
    }

    /// All answers come and time goes on as it should: every pod that waits and is not held back is tried.
    fn come_to_rest(&mut self) {
        let mut tried: BTreeSet<String> = BTreeSet::new();
        self.now = Time::from_seconds(1_800_000_000);
        for _ in 0..4 {
            self.now = Time::from_seconds(self.now.nanos() / 1_000_000_000 + REST_SECONDS);
            self.engine.take(self.now, Input::Tick);
            for _ in 0..4 * LINES_MAX {
                while !self.unanswered.is_empty() {
                    self.answer(0);
                }
                let Some(attempted) = self.engine.step(self.now) else { break };
                tried.insert(attempted.pod.uid.to_string());
                self.unanswered.extend(self.engine.take_commands());
            }
        }
        self.check();
        let gated: BTreeSet<String> =
            self.engine.queued(QueueName::Gated).iter().map(|queued| queued.pod.uid.to_string()).collect();
        for (key, uid) in &self.waiting {
            let is_placed = self.engine.cluster().held(uid).is_some() || self.is_binding(uid);
            assert!(is_placed || gated.contains(uid) || tried.contains(uid), "{key:?} {uid} is stuck");
        }
    }
}

/// The default plugins, and a profile with ours beside them.
fn engine() -> Engine {
    let plus = [
        "Reservation",
        "LoadAwareScheduling",
        "NodeResourcesFitPlus",
        "ScarceResourceAvoidance",
        "SchedulingHint",
    ];
    let enabled = plus.map(|name| Choice { name: name.to_owned(), weight: 2 }).to_vec();
    let custom =
        PluginSets { multi_point: PluginSet { enabled, disabled: Vec::new() }, ..PluginSets::default() };
    let mut ours = Profile::standard(objects::OURS);
    ours.points = PluginSets::defaults().merge(&custom).expand(objects::OURS).expect("plugins that exist");
    let options = Options::new(vec![Profile::standard(objects::STANDARD), ours]);
    Engine::new(&options).expect("profiles that fit together")
}

fn key_of(pod: &k8s_openapi::api::core::v1::Pod) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&pod.metadata.namespace), text(&pod.metadata.name))
}

fn is_ours(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    // A label may name another scheduler.
    pod.metadata.labels.iter().flatten().all(|(key, _)| !key.contains("scheduler"))
        && matches!(name.unwrap_or(objects::STANDARD), objects::STANDARD | objects::OURS)
}

fn outcome(command: &Command, is_good: bool) -> Option<(String, Outcome)> {
    let message = || "no".to_owned();
    Some(match command {
        Command::Bind(binding) => (
            binding.pod.uid.to_string(),
            if is_good { Outcome::Bound } else { Outcome::BindFailed { message: message() } },
        ),
        Command::Prepare(plan) => (
            plan.pod.as_ref()?.uid.to_string(),
            if is_good { Outcome::Prepared } else { Outcome::PrepareFailed { message: message() } },
        ),
        Command::Preempt(order) => (
            order.preemptor.uid.to_string(),
            if is_good { Outcome::Preempted } else { Outcome::PreemptFailed { message: message() } },
        ),
        Command::WriteReservation(write) => (
            write.uid.to_string(),
            if is_good { Outcome::Written } else { Outcome::WriteFailed { message: message() } },
        ),
        Command::PatchStatus(_)
        | Command::Unmark(_)
        | Command::DeleteReservation { .. }
        | Command::Tell(_)
        | Command::Warn(_) => return None,
    })
}
