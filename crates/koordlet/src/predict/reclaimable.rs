//! What prod pods asked for and will not need. Spec: koordlet-observe 9.4.
//!
//! Two views, of which the more careful counts: each pod by its own history, and all pods of a class together.

use std::collections::BTreeSet;
use std::sync::Arc;

use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::priority::PriorityClass;
use koord_api::quantity::ResourceList;

use super::models::{Amount, History, Settings, classes};
use super::{SYSTEM, class_key};
use crate::decide::snapshot::{milli, whole};
use crate::state::PodState;

/// The two views and what follows from both, under the names that metrics carry.
pub const POD_PREDICTOR: &str = "podReclaimablePredictor";
pub const PRIORITY_PREDICTOR: &str = "priorityReclaimablePredictor";
pub const MIN_PREDICTOR: &str = "minPredictor";

/// A pod as prediction sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub uid: Arc<str>,
    pub namespace: String,
    pub name: String,
    pub class: Option<PriorityClass>,
    pub created_ms: i64,
    /// Being deleted, or ended.
    pub is_leaving: bool,
    pub request: Amount,
}

impl Candidate {
    pub fn of(state: &PodState) -> Candidate {
        let pod = &state.pod;
        Candidate {
            uid: pod.id.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            class: pod.priority_class,
            created_ms: pod.created_seconds.saturating_mul(1000),
            is_leaving: state.is_deleting || state.is_finished,
            request: amount(&pod.requests),
        }
    }
}

/// CPU and memory of a list; what is not there counts as none.
pub fn amount(list: &ResourceList) -> Amount {
    Amount { cpu_milli: milli(list, CPU).unwrap_or(0), memory: whole(list, MEMORY).unwrap_or(0) }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    pub reclaimable: Outcome,
    /// The most that prod pods will need.
    pub peak: Outcome,
    /// Pods that could not be counted, in upstream's words.
    pub refused: Vec<String>,
}

/// A number by view; the last is what is reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub by_pod: Result<Amount, String>,
    pub by_class: Result<Amount, String>,
    pub total: Result<Amount, String>,
}

impl Default for Outcome {
    fn default() -> Outcome {
        let none = || Err("empty predictor".to_owned());
        Outcome { by_pod: none(), by_class: none(), total: none() }
    }
}

impl Outcome {
    fn of(
        what: &str,
        by_pod: Result<Amount, String>,
        by_class: Result<Amount, String>,
        join: impl Fn(Amount, Amount) -> Amount,
    ) -> Outcome {
        let named = |name: &str, view: &Result<Amount, String>| {
            view.clone().map_err(|error| format!("failed to get predictor {name} {what}, error: {error}"))
        };
        let total = named(POD_PREDICTOR, &by_pod)
            .and_then(|pod| Ok(join(pod, named(PRIORITY_PREDICTOR, &by_class)?)));
        Outcome { by_pod, by_class, total }
    }
}

/// What prod pods will not need of what they asked for. `allocatable` is none while the Node is unknown.
pub fn predict(
    history: &impl History,
    settings: &Settings,
    pods: &[Candidate],
    allocatable: Option<Amount>,
    now_ms: i64,
) -> Prediction {
    let (by_pod, refused) = ByPod::count(history, settings, pods, now_ms);
    let by_class = ByClass::count(pods);
    let unreclaimable = by_class.unreclaimable(history, settings);
    let node = |name: &str| allocatable.ok_or_else(|| format!("failed to get {name} result for node is nil"));
    let pod_result = node(POD_PREDICTOR).map(|node| by_pod.result(node));
    let class_result =
        node(PRIORITY_PREDICTOR).and_then(|node| Ok(within(node, by_class.request, unreclaimable.clone()?)));
    Prediction {
        reclaimable: Outcome::of("result", pod_result, class_result, Amount::min),
        peak: Outcome::of("peak", Ok(by_pod.peak()), unreclaimable, Amount::max),
        refused,
    }
}

fn is_counted(class: Option<PriorityClass>) -> bool {
    matches!(class, Some(PriorityClass::Prod) | None)
}

/// What is asked for beyond the peak, as far as the node has it.
fn within(node: Amount, request: Amount, unreclaimable: Amount) -> Amount {
    node.less(unreclaimable).min(request.less(unreclaimable))
}

/// Each pod by its own history.
#[derive(Clone, Copy, Debug, Default)]
struct ByPod {
    reclaimable: Amount,
    unreclaimable: Amount,
    /// Requests of pods that nothing is known of yet.
    unpredicted: Amount,
}

impl ByPod {
    fn count(
        history: &impl History,
        settings: &Settings,
        pods: &[Candidate],
        now_ms: i64,
    ) -> (ByPod, Vec<String>) {
        let mut sums = ByPod::default();
        let mut seen = BTreeSet::new();
        let mut refused = Vec::new();
        for pod in pods.iter().filter(|pod| is_counted(pod.class)) {
            if seen.insert(&pod.uid) {
                sums.add(history, settings, pod, now_ms);
            } else {
                let (namespace, name) = (&pod.namespace, &pod.name);
                refused.push(format!(
                    "failed to add pod ({namespace}/{name}) to {POD_PREDICTOR}. error: pod {namespace}/{name} \
                     already exist in the pod reclaimable predictor"
                ));
            }
        }
        (sums, refused)
    }

    fn add(&mut self, history: &impl History, settings: &Settings, pod: &Candidate, now_ms: i64) {
        if now_ms.saturating_sub(pod.created_ms) <= settings.cold_start_ms {
            self.unpredicted = self.unpredicted.plus(pod.request);
            return;
        }
        if pod.is_leaving {
            return;
        }
        let Ok(peaks) = history.peaks(&pod.uid) else {
            self.unpredicted = self.unpredicted.plus(pod.request);
            return;
        };
        let peak = peaks.peak().times(settings.margin());
        self.unreclaimable = self.unreclaimable.plus(peak);
        self.reclaimable = self.reclaimable.plus(pod.request.less(peak));
    }

    fn result(&self, node: Amount) -> Amount {
        node.less(self.unreclaimable).min(self.reclaimable)
    }

    fn peak(&self) -> Amount {
        self.unreclaimable.plus(self.unpredicted)
    }
}

/// All pods of a class together.
#[derive(Clone, Debug, Default)]
struct ByClass {
    request: Amount,
    /// Classes that a pod is in.
    present: Vec<Option<PriorityClass>>,
}

impl ByClass {
    /// Differs: upstream leaves out pods that the other view could not count; each view counts for itself here.
    fn count(pods: &[Candidate]) -> ByClass {
        let mut sums = ByClass::default();
        let mut seen = BTreeSet::new();
        let counted = pods.iter().filter(|pod| is_counted(pod.class) && !pod.is_leaving);
        for pod in counted.filter(|pod| seen.insert(&pod.uid)) {
            sums.request = sums.request.plus(pod.request);
            if !sums.present.contains(&pod.class) {
                sums.present.push(pod.class);
            }
        }
        sums
    }

    /// What prod pods, pods without class and the system itself need at most.
    fn unreclaimable(&self, history: &impl History, settings: &Settings) -> Result<Amount, String> {
        let system = history.peaks(SYSTEM);
        let mut sum =
            system.map_err(|error| format!("failed to get prediction of sys, err: {error}"))?.peak();
        for class in classes().filter(|class| is_counted(*class)) {
            let key = class_key(class);
            let name = class.map_or("", PriorityClass::name);
            let peaks = history
                .peaks(&key)
                .map_err(|error| format!("failed to get prediction of priority {name}, err: {error}"))?;
            // Differs: upstream adds the end of the first bucket (25m, 5Mi) for a class that nobody is in.
            if self.present.contains(&class) || !history.is_idle(&key) {
                sum = sum.plus(peaks.peak());
            }
        }
        Ok(sum.times(settings.margin()))
    }
}

#[cfg(test)]
mod tests;
