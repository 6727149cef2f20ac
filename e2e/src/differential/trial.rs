//! One scenario on both sides, step by step, and the state in which a difference arose.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::compare::{Difference, differences};
use super::ours::Ours;
use super::record::{Event, Lab, Played, PlayedPod, keeps_others_off};
use super::scenario::{Outcome, Scenario, Step, is_kind, kind, name, namespace};

/// What a scenario brought.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub placed: usize,
    pub pending: usize,
    pub preempting: usize,
    /// Changes of the cluster while a pod waited, and those that made the scheduler try it again.
    pub waited: usize,
    pub woken: usize,
    /// Those that made ours alone try it again, as docs/differences.md says.
    pub remembered: usize,
    /// Nodes scored, on both sides.
    pub scored: usize,
    pub found: Vec<Found>,
    /// The scenario with what the real scheduler did.
    pub recorded: Scenario,
}

/// A pod that was not treated alike.
#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    pub pod: String,
    pub differences: Vec<Difference>,
    /// The same state, made at once, and this pod alone.
    pub frozen: Scenario,
    pub real: Outcome,
}

impl Found {
    /// The first kind of difference, by which smaller scenarios are measured.
    pub fn what(&self) -> &str {
        self.differences.first().map_or("", |difference| &difference.what)
    }
}

/// Runs a scenario on both sides.
pub async fn run(lab: &mut Lab, scenario: &Scenario) -> Result<Trial> {
    let mut ours = Ours::new()?;
    let mut state = State::default();
    for (object, stored) in lab.set_up(&scenario.base).await? {
        ours.tell(&stored)?;
        state.keep(&object, &stored);
    }
    let mut trial = Trial { recorded: scenario.clone(), ..Trial::default() };
    for (number, step) in scenario.steps.iter().enumerate() {
        let played =
            lab.play(step).await.with_context(|| format!("seed {}, step {number}", scenario.seed))?;
        let before = state.clone();
        for event in &played.events {
            match event {
                Event::Is { object, stored } => {
                    ours.tell(stored)?;
                    state.keep(object, stored);
                }
                Event::Gone(object) => {
                    ours.forget(object);
                    state.drop(object);
                }
            }
        }
        for pod in &played.pods {
            let outcomes = ours.place(pod, &played.after)?;
            let pod_name = name(&pod.object).to_owned();
            trial.count(pod);
            let mut found: Vec<Difference> = Vec::new();
            for difference in outcomes.iter().flat_map(|outcome| differences(&pod.outcome, outcome)) {
                if !found.contains(&difference) {
                    found.push(difference);
                }
            }
            let is_better = is_remembered(&found, &played);
            trial.remembered += usize::from(is_better);
            if !found.is_empty() && !is_better {
                let frozen = match pod.is_known {
                    false => state.freeze(scenario, &pod.object, None),
                    true => before.freeze(scenario, &pod.object, Some(step)),
                };
                let (seed, real) = (scenario.seed, pod.outcome.clone());
                let differences = found.clone();
                trial.found.push(Found { seed, pod: pod_name.clone(), differences, frozen, real });
            }
            if !found.is_empty() {
                // The two no longer agree on why it waits, or whether.
                if let Some(waiting) = lab.stop_waiting().await? {
                    ours.forget(&waiting);
                }
            }
            trial.recorded.steps[number].want.insert(pod_name, pod.outcome.clone());
        }
        state.follow(&played);
    }
    Ok(trial)
}

/// Whether the only difference is one that we want: kube-scheduler forgets a pod that another pod's anti-affinity keeps
/// off when that other one goes, ours does not.
fn is_remembered(found: &[Difference], played: &Played) -> bool {
    matches!(found, [only] if only.is_tried_by_ours_alone())
        && played.events.iter().any(|event| matches!(event, Event::Gone(gone) if keeps_others_off(gone)))
}

impl Trial {
    /// Leaves out kinds of differences.
    pub fn pass_over(&mut self, kinds: &[String]) {
        for found in &mut self.found {
            found.differences.retain(|difference| !kinds.contains(&difference.what));
        }
        self.found.retain(|found| !found.differences.is_empty());
    }

    fn count(&mut self, pod: &PlayedPod) {
        let real = &pod.outcome;
        match (pod.is_known, real.node.is_empty()) {
            (true, _) => {
                self.waited += 1;
                self.woken += usize::from(real.woken);
            }
            (false, true) => self.pending += 1,
            (false, false) => self.placed += 1,
        }
        self.preempting += usize::from(!real.gone.is_empty());
        self.scored += real.scores.len();
    }
}

/// All objects as they are now.
#[derive(Clone, Default)]
struct State {
    objects: BTreeMap<(String, String, String), Value>,
}

impl State {
    fn keep(&mut self, object: &Value, stored: &Value) {
        if object.is_null() {
            return;
        }
        let mut object = object.clone();
        if is_kind(&object, "Pod") {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("schedulingGates");
                spec.insert("nodeName".to_owned(), stored["spec"]["nodeName"].clone());
            }
            object["status"] = json!({"phase": "Running", "startTime": stored["status"]["startTime"]});
        }
        self.objects.insert(key(&object), object);
    }

    fn drop(&mut self, object: &Value) {
        self.objects.remove(&key(object));
    }

    fn follow(&mut self, played: &Played) {
        for object in &played.after {
            self.objects.insert(key(object), bare(object));
        }
        for pod in &played.pods {
            for victim in &pod.victims {
                self.drop(victim);
            }
            if let Some(bound) = pod.now.as_ref().filter(|_| !pod.outcome.node.is_empty()) {
                self.keep(&pod.object, bound);
            }
        }
    }

    /// A scenario that begins here and places one pod, or lets it wait for one more step.
    fn freeze(&self, scenario: &Scenario, pod: &Value, waits_for: Option<&Step>) -> Scenario {
        // In the order in which they can be made again.
        const ORDER: [&str; 13] = [
            "PriorityClass",
            "RuntimeClass",
            "Namespace",
            "StorageClass",
            "CSIDriver",
            "Service",
            "ReplicaSet",
            "PodDisruptionBudget",
            "PersistentVolumeClaim",
            "PersistentVolume",
            "CSINode",
            "CSIStorageCapacity",
            "Node",
        ];
        let of = |wanted: &'static str| {
            self.objects.values().filter(move |object| is_kind(object, wanted)).cloned()
        };
        let base = ORDER.into_iter().chain(["Pod"]).flat_map(of).collect();
        let step = Step { create: vec![pod.clone()], keep: waits_for.is_some(), ..Step::default() };
        let steps = std::iter::once(step).chain(waits_for.cloned()).collect();
        Scenario { family: scenario.family.clone(), seed: scenario.seed, base, steps }
    }
}

fn key(object: &Value) -> (String, String, String) {
    (kind(object).to_owned(), namespace(object).to_owned(), name(object).to_owned())
}

/// A volume or claim without what the server adds.
fn bare(object: &Value) -> Value {
    let mut bare = object.clone();
    let mut meta = Map::new();
    for field in ["name", "namespace", "labels", "annotations"] {
        if let Some(value) = object["metadata"].get(field) {
            meta.insert(field.to_owned(), value.clone());
        }
    }
    bare["metadata"] = Value::Object(meta);
    if let Some(reference) = bare["spec"].get_mut("claimRef").and_then(Value::as_object_mut) {
        reference.remove("uid");
        reference.remove("resourceVersion");
    }
    bare
}
