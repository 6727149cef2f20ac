//! Pods counted against the limit of their quota: what they ask for, and whether it is still there.
//!
//! Pure: a [`Batch`] of pods meets a [`QuotaState`] and yields verdicts and the new usage to write. Spec: manager 18.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use koord_api::annotation::quota::{Admission, ChildRequest};
use koord_api::annotation::read_text;
use koord_api::annotation::{Annotation, AnnotationError};
use koord_api::crd::elastic_quota::{DEFAULT_QUOTA, ElasticQuota, ROOT_QUOTA, SYSTEM_QUOTA};
use koord_api::keys::resource;
use koord_api::pod::requests;
use koord_api::quantity::ResourceList;
use koord_api::transform::PodTransform;

use super::QuotaGates;
use super::amounts::add;
use super::info::{QuotaKey, annotation_of};
use super::ledger::Ledger;
use super::membership::quota_name;
use crate::webhook::denial::Denial;

/// Resources of pods; a quota that limits none of them counts no pods.
const POD_RESOURCES: [&str; 14] = [
    resource::CPU,
    resource::MEMORY,
    resource::EPHEMERAL_STORAGE,
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    resource::BATCH_CPU,
    resource::BATCH_MEMORY,
    resource::MID_CPU,
    resource::MID_MEMORY,
    resource::GPU,
    resource::NVIDIA_GPU,
    resource::GPU_SHARED,
    resource::GPU_MEMORY_RATIO,
];

/// The quota that a pod must be counted against, if any. `old` is the pod before an update.
pub fn target(
    old: Option<&Pod>,
    new: &Pod,
    namespace: &str,
    ledger: &Ledger,
    gates: QuotaGates,
) -> Result<Option<QuotaKey>, Denial> {
    if !gates.admission {
        return Ok(None);
    }
    let name = quota_name(new, namespace, ledger, gates);
    if let Some(old) = old
        && (!gates.admission_on_update || quota_name(old, namespace, ledger, gates) == name)
    {
        return Ok(None);
    }
    if ["", DEFAULT_QUOTA, SYSTEM_QUOTA, ROOT_QUOTA].contains(&name) {
        return Ok(None);
    }
    let mut places = ledger.places(name);
    match (places.next(), places.next()) {
        (Some(quota), None) => Ok(Some(quota.key.clone())),
        (None, _) => Err(Denial::bad_request(format!("elastic quota {name} not found"))),
        (Some(_), Some(_)) => Err(Denial::bad_request(format!("more than one elastic quota {name} found"))),
    }
}

/// What a pod is counted with: nothing once it has ended, or should have.
pub fn request(pod: &Pod, gates: QuotaGates, now: Timestamp) -> ResourceList {
    if has_ended(pod, now) {
        return ResourceList::new();
    }
    if !gates.replace_resources {
        return requests(pod);
    }
    let mut renamed = pod.clone();
    PodTransform { replace_resources: true, ..PodTransform::default() }.apply(&mut renamed, |_| ());
    requests(&renamed)
}

fn has_ended(pod: &Pod, now: Timestamp) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Failed" | "Succeeded")) {
        return true;
    }
    let meta = &pod.metadata;
    let (Some(deleted), Some(grace)) = (&meta.deletion_timestamp, meta.deletion_grace_period_seconds) else {
        return false;
    };
    deleted.0.saturating_add(SignedDuration::from_secs(grace)).is_ok_and(|end| now > end)
}

/// What counting looks at in a quota, at one version of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaState {
    pub key: QuotaKey,
    pub resource_version: String,
    pub max: ResourceList,
    /// Texts of the annotations, empty when absent.
    pub child_request: String,
    pub admission: String,
}

impl QuotaState {
    pub fn new(key: QuotaKey, quota: &ElasticQuota) -> QuotaState {
        QuotaState {
            key,
            resource_version: quota.metadata.resource_version.clone().unwrap_or_default(),
            max: quota.spec.as_ref().map(|spec| spec.max.clone()).unwrap_or_default(),
            child_request: annotation_of::<ChildRequest>(quota).to_owned(),
            admission: annotation_of::<Admission>(quota).to_owned(),
        }
    }

    /// Whether this is an older state of the object than the other. Versions compare as numbers, as the API server's do.
    pub fn is_older_than(&self, other: &QuotaState) -> bool {
        let number = |state: &QuotaState| state.resource_version.parse::<u64>().unwrap_or(0);
        number(self) < number(other)
    }

    /// What is used, and up to where. Upstream's words when an annotation cannot be read.
    fn amounts(&self) -> Result<(ResourceList, ResourceList), String> {
        let used = read_text::<ChildRequest>(ChildRequest::KEY, &self.child_request);
        let limit = read_text::<Admission>(Admission::KEY, &self.admission);
        match (used, limit) {
            (Ok(used), Ok(limit)) => {
                let limit = limit.map(|limit| limit.0).filter(|limit| !limit.is_empty());
                Ok((used.unwrap_or_default().0, limit.unwrap_or_else(|| self.max.clone())))
            }
            (used, limit) => {
                let errors: Vec<String> =
                    used.err().iter().chain(limit.err().iter()).map(AnnotationError::reason).collect();
                match errors.as_slice() {
                    [one] => Err(one.clone()),
                    several => Err(format!("[{}]", several.join(", "))),
                }
            }
        }
    }
}

/// Pods that are counted together, each with its verdict once there is one.
#[derive(Debug)]
pub struct Batch {
    pods: Vec<Entry>,
    /// What the admitted pods add, kept while a write is tried again.
    delta: ResourceList,
    /// The resources for which `delta` was made.
    counted: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    request: ResourceList,
    /// None while it depends on the write.
    verdict: Option<Result<(), String>>,
}

/// A new usage to be written before any of the open pods may pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Charge {
    /// Text of the annotation.
    pub child_request: String,
    /// Pods that changed it; none when an earlier judgement was taken over.
    pub pods: Option<usize>,
}

impl Batch {
    pub fn new(requests: impl IntoIterator<Item = ResourceList>) -> Batch {
        let pods = requests.into_iter().map(|request| Entry { request, verdict: None }).collect();
        Batch { pods, delta: ResourceList::new(), counted: Vec::new() }
    }

    /// Judges the open pods in order by the quota as it is now. None when nothing is to be written; then all have a verdict.
    pub fn judge(&mut self, quota: &QuotaState) -> Option<Charge> {
        let (mut used, limit) = match quota.amounts() {
            Ok(amounts) => amounts,
            Err(text) => {
                self.close(&Err(text));
                return None;
            }
        };
        if !POD_RESOURCES.iter().any(|name| quota.max.contains_key(*name)) {
            self.close(&Ok(()));
            return None;
        }
        let still_fits = !self.delta.is_empty()
            && self.counted.iter().eq(quota.max.keys())
            && exceeded(&used, &self.delta, &limit).is_empty();
        if still_fits {
            add(&mut used, &self.delta);
            return Some(Charge { child_request: ChildRequest(used).text(), pods: None });
        }
        self.counted = quota.max.keys().cloned().collect();
        let changed = self.judge_each(quota, &mut used, &limit);
        (changed > 0).then(|| Charge { child_request: ChildRequest(used).text(), pods: Some(changed) })
    }

    fn judge_each(&mut self, quota: &QuotaState, used: &mut ResourceList, limit: &ResourceList) -> usize {
        self.delta.clear();
        let mut changed = 0;
        for pod in self.pods.iter_mut().filter(|pod| pod.verdict.is_none()) {
            let request: ResourceList = pod
                .request
                .iter()
                .filter(|(name, amount)| quota.max.contains_key(*name) && !amount.is_zero())
                .map(|(name, amount)| (name.clone(), *amount))
                .collect();
            let over = exceeded(used, &request, limit);
            if !over.is_empty() {
                pod.verdict = Some(Err(refusal(quota, &over, [&request, used, limit])));
            } else if request.is_empty() {
                pod.verdict = Some(Ok(()));
            } else {
                add(used, &request);
                add(&mut self.delta, &request);
                changed += 1;
            }
        }
        changed
    }

    /// Gives all open pods the same verdict.
    pub fn close(&mut self, verdict: &Result<(), String>) {
        for pod in self.pods.iter_mut().filter(|pod| pod.verdict.is_none()) {
            pod.verdict = Some(verdict.clone());
        }
    }

    /// The verdicts in the order of the requests. Nobody passes unjudged.
    pub fn verdicts(self) -> impl Iterator<Item = Result<(), String>> {
        self.pods.into_iter().map(|pod| pod.verdict.unwrap_or_else(|| Err("DEFAULT DENY".to_owned())))
    }
}

/// Resources of the request that would pass their limit. What has no limit cannot.
fn exceeded(used: &ResourceList, request: &ResourceList, limit: &ResourceList) -> Vec<String> {
    let is_over = |name: &String| {
        let of = |list: &ResourceList| list.get(name).copied().unwrap_or_default();
        limit.get(name).is_some_and(|limit| of(used) + of(request) > *limit)
    };
    request.keys().filter(|name| is_over(name)).cloned().collect()
}

fn refusal(quota: &QuotaState, over: &[String], [request, used, limit]: [&ResourceList; 3]) -> String {
    let show = |list: &ResourceList| {
        let amounts: BTreeMap<_, _> = over.iter().filter_map(|name| Some((name, list.get(name)?))).collect();
        amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
    };
    let key = &quota.key;
    let (request, used, limit) = (show(request), show(used), show(limit));
    format!("exceeded quota: {key}, requested: {request}, used: {used}, limited: {limit}")
}

#[cfg(test)]
mod tests;
