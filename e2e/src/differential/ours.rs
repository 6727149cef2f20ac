//! Our engine at work on the same scenario, in this process.
//!
//! One engine decides as it does in production, from what it remembers. One beside it asks every node and tells all
//! totals, and one for each score plugin has that plugin alone, so that its totals are that plugin's part. All follow
//! what the real scheduler did, so that one tie does not make the rest diverge.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use koord_engine::engine::input::{Storage, Workload};
use koord_engine::engine::{Attempted, Command, Engine, Input, Options, Outcome as Answer, Verdict};
use koord_engine::profile::Profile;
use koord_engine::profile::expand::Enabled;
use koord_engine::profile::point::Point;
use koord_engine::time::Time;
use serde_json::Value;

use super::record::PlayedPod;
use super::scenario::{Outcome, kind, name, namespace};

/// A pod may be tried so often in one step: once, and again when its victims are gone.
const ATTEMPTS_MAX: usize = 4;
/// Longer than any backoff.
const PAUSE: Duration = Duration::from_secs(30);

/// Our scheduler, and what its totals are made of.
pub struct Ours {
    /// As in production.
    whole: Engine,
    /// Asks every node.
    plain: Engine,
    parts: Vec<(&'static str, Engine)>,
    now: Time,
    /// Pods as they were last told of, by uid.
    pods: BTreeMap<String, Value>,
    /// The version of each volume and claim that was last told of, by uid.
    versions: BTreeMap<String, Value>,
}

impl Ours {
    pub fn new() -> Result<Ours> {
        let profile = Profile::standard("default-scheduler");
        let engine = |profile: &Profile, parallelism| {
            Engine::new(&Options { parallelism, ..Options::new(vec![profile.clone()]) })
        };
        let only = |enabled: &Enabled| {
            let mut alone = profile.clone();
            alone.points[Point::Score] = vec![*enabled];
            Ok((enabled.plugin, engine(&alone, 1)?))
        };
        let parts = profile.points[Point::Score].iter().map(only).collect::<Result<_>>()?;
        let now = Time::from_seconds(k8s_openapi::jiff::Timestamp::now().as_second());
        Ok(Ours {
            whole: engine(&profile, 16)?,
            plain: engine(&profile, 1)?,
            parts,
            now,
            pods: BTreeMap::new(),
            versions: BTreeMap::new(),
        })
    }

    /// An object as it is now.
    pub fn tell(&mut self, object: &Value) -> Result<()> {
        if kind(object) == "Pod" {
            self.pods.insert(uid(object), object.clone());
        }
        self.is_news(object);
        if let Some(input) = input(object).with_context(|| object.to_string())? {
            self.all(&input);
        }
        Ok(())
    }

    fn is_news(&mut self, object: &Value) -> bool {
        let version = object["metadata"]["resourceVersion"].clone();
        self.versions.insert(uid(object), version.clone()) != Some(version)
    }

    /// A pod or node is gone.
    pub fn forget(&mut self, object: &Value) {
        let (namespace, name) = (namespace(object).to_owned(), name(object).to_owned());
        self.all(&match kind(object) {
            "Node" => Input::NodeGone { name },
            _ => Input::PodGone { namespace, name, uid: uid(object) },
        });
    }

    fn all(&mut self, input: &Input) {
        self.now = self.now + Duration::from_millis(1);
        let parts = self.parts.iter_mut().map(|(_, engine)| engine);
        for engine in parts.chain([&mut self.whole, &mut self.plain]) {
            engine.take(self.now, input.clone());
        }
    }

    /// What we would do with the pod, from memory and by asking every node; then the real outcome becomes ours.
    pub fn place(&mut self, pod: &PlayedPod, after: &[Value]) -> Result<[Outcome; 2]> {
        if !pod.is_known {
            self.tell(&pod.before)?;
        }
        if let Some(ungated) = &pod.ungated {
            let early = self.whole.step(self.now);
            ensure!(early.is_none(), "a gated pod was tried: {early:?}");
            self.tell(ungated)?;
        }
        // What did not change is no news.
        let after: Vec<Value> = after.iter().filter(|object| self.is_news(object)).cloned().collect();
        self.now = self.now + PAUSE;
        let outcomes = [&mut self.whole, &mut self.plain].map(|engine| -> Result<Outcome> {
            let mut way = walk(engine, self.now, pod)?;
            correct(engine, self.now, pod, &way, &self.pods)?;
            if follow(engine, self.now, pod, &after, &way)? == Some(false) {
                way.outcome.message = "the place was found, but no bind came".to_owned();
            }
            anyhow::Ok(way.outcome)
        });
        let mut parts: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
        for (plugin, engine) in &mut self.parts {
            let alone = walk(engine, self.now, pod)?;
            for (node, score) in &alone.outcome.scores {
                parts.entry(node.clone()).or_default().insert((*plugin).to_owned(), *score);
            }
            correct(engine, self.now, pod, &alone, &self.pods)?;
            follow(engine, self.now, pod, &after, &alone)?;
        }
        if let Some(now) = &pod.now {
            self.pods.insert(uid(now), now.clone());
        }
        self.now = self.now + PAUSE;
        let [whole, plain] = outcomes;
        let (mut whole, mut plain): (Outcome, Outcome) = (whole?, plain?);
        plain.parts = parts;
        // What is remembered tells no totals.
        (whole.scores, whole.parts) = (plain.scores.clone(), plain.parts.clone());
        Ok([whole, plain])
    }
}

/// What one engine did with a pod.
struct Way {
    outcome: Outcome,
    /// Pods that it thinks are gone: those it preempted.
    preempted: BTreeSet<String>,
    is_preparing: bool,
    /// Volumes that it wants to bind first.
    volumes: Vec<String>,
}

/// Lets an engine try the pod until it has a node or is refused for good.
fn walk(engine: &mut Engine, start: Time, pod: &PlayedPod) -> Result<Way> {
    let uid = uid(&pod.before);
    let mut way = Way {
        outcome: Outcome::default(),
        preempted: BTreeSet::new(),
        is_preparing: false,
        volumes: Vec::new(),
    };
    let mut now = start;
    for _ in 0..ATTEMPTS_MAX {
        engine.take(now, Input::Tick);
        let Some(attempted) = engine.step(now) else { break };
        ensure!(*attempted.pod.uid == *uid, "{} was tried", attempted.pod.key);
        way.outcome.woken = pod.is_known;
        way.read(engine, &attempted);
        let mut victims = Vec::new();
        for command in engine.take_commands() {
            match command {
                Command::Preempt(order) => {
                    way.outcome.nominated = order.node.to_string();
                    victims.extend(order.victims);
                }
                Command::Prepare(plan) => {
                    way.is_preparing = true;
                    way.volumes = plan.volumes.into_iter().filter_map(|it| it.metadata.name).collect();
                }
                _ => {}
            }
        }
        if victims.is_empty() {
            break;
        }
        for victim in &victims {
            way.outcome.gone.push(victim.key.name.to_string());
            way.preempted.insert(victim.uid.to_string());
            let (namespace, name) = (victim.key.namespace.to_string(), victim.key.name.to_string());
            engine.take(now, Input::PodGone { namespace, name, uid: victim.uid.to_string() });
        }
        engine.take(now, Input::Outcome { uid: uid.clone(), outcome: Answer::Preempted });
        now = now + PAUSE;
    }
    way.outcome.gone.sort();
    Ok(way)
}

impl Way {
    fn read(&mut self, engine: &Engine, attempted: &Attempted) {
        let outcome = &mut self.outcome;
        (outcome.node, outcome.message) = Default::default();
        outcome.scores.clear();
        match &attempted.verdict {
            Verdict::Scheduled { node } => outcome.node = node.to_string(),
            Verdict::Unschedulable { message } | Verdict::Error { message } => {
                outcome.message.clone_from(message)
            }
            Verdict::Skipped => outcome.message = "skipped".to_owned(),
        }
        // One node alone is not scored.
        if attempted.feasible.len() > 1 {
            let named = |row| engine.cluster().node(row).name.to_string();
            outcome.scores = attempted.feasible.iter().map(|(row, total)| (named(*row), *total)).collect();
        }
    }
}

/// Pods that it preempted and that stayed come back; those that went in truth go.
fn correct(
    engine: &mut Engine,
    now: Time,
    pod: &PlayedPod,
    way: &Way,
    pods: &BTreeMap<String, Value>,
) -> Result<()> {
    for victim in &pod.victims {
        let (namespace, name) = (namespace(victim).to_owned(), name(victim).to_owned());
        engine.take(now, Input::PodGone { namespace, name, uid: uid(victim) });
    }
    for wrong in way.preempted.iter().filter(|wrong| pod.victims.iter().all(|victim| uid(victim) != **wrong))
    {
        if let Some(input) = pods.get(wrong).map(input).transpose()?.flatten() {
            engine.take(now, input);
        }
    }
    Ok(())
}

/// Makes the real outcome this engine's own. Tells whether a bind was posted where both chose alike.
fn follow(
    engine: &mut Engine,
    now: Time,
    pod: &PlayedPod,
    after: &[Value],
    way: &Way,
) -> Result<Option<bool>> {
    let uid = uid(&pod.before);
    let answer = |outcome| Input::Outcome { uid: uid.clone(), outcome };
    // Which of two volumes that fit equally well is chance; those that the real scheduler bound are in `after`.
    let is_bound = |volume: &String| {
        after.iter().any(|object| kind(object) == "PersistentVolume" && name(object) == volume)
    };
    let is_alike = !way.outcome.node.is_empty()
        && way.outcome.node == pod.outcome.node
        && way.volumes.iter().all(is_bound);
    for object in after {
        if let Some(input) = input(object)? {
            engine.take(now, input);
        }
    }
    let mut binds = None;
    if is_alike {
        if way.is_preparing {
            engine.take(now, answer(Answer::Prepared));
            binds = Some(engine.take_commands().iter().any(|command| matches!(command, Command::Bind(_))));
        }
        engine.take(now, answer(Answer::Bound));
    } else if !way.outcome.node.is_empty() {
        let message = "another place was chosen".to_owned();
        engine.take(
            now,
            answer(match way.is_preparing {
                true => Answer::PrepareFailed { message },
                false => Answer::BindFailed { message },
            }),
        );
    }
    match &pod.now {
        Some(now_is) => {
            if let Some(input) = input(now_is)? {
                engine.take(now, input);
            }
        }
        None => {
            let (namespace, name) = (namespace(&pod.before).to_owned(), name(&pod.before).to_owned());
            engine.take(now, Input::PodGone { namespace, name, uid });
        }
    }
    engine.take_commands();
    Ok(binds)
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// The input that an object is; none for kinds that schedulers do not look at.
fn input(object: &Value) -> Result<Option<Input>> {
    let value = object.clone();
    Ok(Some(match kind(object) {
        "Pod" => Input::Pod { object: serde_json::from_value(value)? },
        "Node" => Input::Node { object: serde_json::from_value(value)? },
        "Namespace" => Input::Namespace { object: serde_json::from_value(value)? },
        "PodDisruptionBudget" => Input::Budget { object: serde_json::from_value(value)? },
        "Service" => Input::Workload { object: Workload::Service(serde_json::from_value(value)?) },
        "ReplicaSet" => Input::Workload { object: Workload::ReplicaSet(serde_json::from_value(value)?) },
        "PersistentVolume" => storage(Storage::PersistentVolume(serde_json::from_value(value)?)),
        "PersistentVolumeClaim" => storage(Storage::PersistentVolumeClaim(serde_json::from_value(value)?)),
        "StorageClass" => storage(Storage::StorageClass(serde_json::from_value(value)?)),
        "CSINode" => storage(Storage::CsiNode(serde_json::from_value(value)?)),
        "CSIDriver" => storage(Storage::CsiDriver(serde_json::from_value(value)?)),
        "CSIStorageCapacity" => storage(Storage::CsiStorageCapacity(serde_json::from_value(value)?)),
        _ => return Ok(None),
    }))
}

fn storage(object: Storage) -> Input {
    Input::Storage { object }
}
