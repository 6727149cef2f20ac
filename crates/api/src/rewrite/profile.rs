//! ClusterColocationProfiles: which ones a pod gets, and what they make of it. Spec: crds 6, api 3.4 a.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::resources::translate;
use super::strategic::{self, PatchError};
use crate::crd::cluster_colocation_profile::{ClusterColocationProfile, ClusterColocationProfileSpec};
use crate::keys::pod::label::{PRIORITY, QOS_CLASS};
use crate::keys::profile::annotation::SKIP_UPDATE_RESOURCES;
use crate::selector::Selector;

/// What there is to know beside the pod.
pub struct Surroundings<'a> {
    pub profiles: &'a [ClusterColocationProfile],
    /// Labels of the pod's namespace; none when they could not be looked up.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// PriorityClass objects by name.
    pub priority_classes: &'a BTreeMap<String, PriorityClassFacts>,
    /// Gate ColocationProfileSkipMutatingResources.
    pub skip_resources: bool,
}

/// What a pod takes over from a PriorityClass object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClassFacts {
    pub value: i32,
    pub preemption_policy: Option<String>,
}

/// What was done to a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Profiles whose selectors matched, by name.
    pub matched: Vec<String>,
    /// Those that chance let through.
    pub applied: Vec<String>,
    /// Whether amounts were moved to extended resources.
    pub translated: bool,
    /// Profiles that could not be judged and were skipped.
    pub warnings: Vec<String>,
}

/// Why a pod cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("priorityclasses.scheduling.k8s.io {name:?} not found")]
    NoPriorityClass { name: String },
    #[error("invalid value for IntOrString: {reason}")]
    Probability { reason: String },
    #[error("profile {profile}: {source}")]
    Patch { profile: String, source: PatchError },
    #[error("profile {profile}: the patched pod is not a pod: {reason}")]
    NoPod { profile: String, reason: String },
}

/// Applies all profiles that match, in order of name, then moves amounts to extended resources.
///
/// `dice` gives a number from 0 to 99 each time it is thrown, once for each profile that leaves it to
/// chance. On an error the pod may be half changed.
pub fn apply(
    pod: &mut Pod,
    around: &Surroundings<'_>,
    mut dice: impl FnMut() -> i64,
) -> Result<Applied, ProfileError> {
    let mut done = Applied::default();
    let mut matched: Vec<&ClusterColocationProfile> = Vec::new();
    for profile in around.profiles {
        match matches(profile, pod, around.namespace_labels) {
            Ok(true) => matched.push(profile),
            Ok(false) => {}
            Err(reason) => done.warnings.push(format!("profile {} is skipped: {reason}", name(profile))),
        }
    }
    matched.sort_by_key(|profile| name(profile));
    for profile in &matched {
        let Some(spec) = &profile.spec else { continue };
        if is_lucky(spec, &mut dice)? {
            apply_one(pod, name(profile), spec, around.priority_classes)?;
            done.applied.push(name(profile).to_string());
        }
    }
    let skips = |profile: &&ClusterColocationProfile| {
        profile.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(SKIP_UPDATE_RESOURCES))
    };
    let skip = around.skip_resources || matched.is_empty() || matched.iter().any(skips);
    done.translated = !skip && translate(pod);
    done.matched = matched.into_iter().map(|profile| name(profile).to_string()).collect();
    Ok(done)
}

fn name(profile: &ClusterColocationProfile) -> &str {
    profile.metadata.name.as_deref().unwrap_or_default()
}

/// Whether the selectors match.
///
/// Differs: a profile that cannot be judged is skipped, where upstream applies it (api 11, item 9).
fn matches(
    profile: &ClusterColocationProfile,
    pod: &Pod,
    namespace_labels: Option<&BTreeMap<String, String>>,
) -> Result<bool, String> {
    let Some(spec) = &profile.spec else { return Ok(true) };
    if let Some(selector) = compile(spec.namespace_selector.as_ref(), "namespaceSelector")? {
        let labels = namespace_labels.ok_or("the labels of the pod's namespace are not known")?;
        if !selector.matches(labels) {
            return Ok(false);
        }
    }
    let selector = compile(spec.selector.as_ref(), "selector")?;
    Ok(selector.is_none_or(|selector| selector.matches(&pod.metadata.labels)))
}

/// None when everything matches.
fn compile(selector: Option<&LabelSelector>, field: &str) -> Result<Option<Selector>, String> {
    let Some(selector) = selector else { return Ok(None) };
    let compiled =
        Selector::new_unchecked_labels(Some(selector)).map_err(|error| format!("{field}: {error}"))?;
    Ok((!compiled.is_everything()).then_some(compiled))
}

/// Whether chance lets a profile through: `p` of 100 throws do.
///
/// Differs: upstream's `p` percent are `p + 1` (api 11, item 8).
fn is_lucky(
    spec: &ClusterColocationProfileSpec,
    dice: &mut impl FnMut() -> i64,
) -> Result<bool, ProfileError> {
    let percent = match &spec.probability {
        None => 100,
        Some(IntOrString::Int(percent)) => i64::from(*percent),
        Some(IntOrString::String(text)) => parse_percent(text)?,
    };
    match percent {
        ..=0 => Ok(false),
        100.. => Ok(true),
        percent => Ok(dice() < percent),
    }
}

fn parse_percent(text: &str) -> Result<i64, ProfileError> {
    let error = |reason: String| ProfileError::Probability { reason };
    let Some(digits) = text.strip_suffix('%') else {
        return Err(error("invalid type: string is not a percentage".to_string()));
    };
    digits.parse().map_err(|_| error(format!("invalid value {text:?}: expected a whole number before the %")))
}

/// The fields of one profile, in their order. The patch is last and has the last word.
fn apply_one(
    pod: &mut Pod,
    profile: &str,
    spec: &ClusterColocationProfileSpec,
    priority_classes: &BTreeMap<String, PriorityClassFacts>,
) -> Result<(), ProfileError> {
    merge(&mut pod.metadata.labels, &spec.labels);
    merge(&mut pod.metadata.annotations, &spec.annotations);
    copy_keys(&mut pod.metadata.labels, &spec.label_keys_mapping);
    copy_keys(&mut pod.metadata.annotations, &spec.annotation_keys_mapping);
    append(&mut pod.metadata.labels, &spec.label_suffixes);
    let pod_spec = pod.spec.get_or_insert_default();
    if !spec.scheduler_name.is_empty() {
        pod_spec.scheduler_name = Some(spec.scheduler_name.clone());
    }
    if !spec.priority_class_name.is_empty() {
        let name = &spec.priority_class_name;
        let class =
            priority_classes.get(name).ok_or_else(|| ProfileError::NoPriorityClass { name: name.clone() })?;
        pod_spec.priority_class_name = Some(name.clone());
        pod_spec.priority = Some(class.value);
        pod_spec.preemption_policy = class.preemption_policy.clone();
    }
    let mut set_label = |key: &str, value: String| {
        pod.metadata.labels.get_or_insert_default().insert(key.to_string(), value);
    };
    if !spec.qos_class.is_empty() {
        set_label(QOS_CLASS, spec.qos_class.clone());
    }
    if let Some(priority) = spec.koordinator_priority {
        set_label(PRIORITY, priority.to_string());
    }
    match &spec.patch {
        Some(patch) => apply_patch(pod, profile, patch),
        None => Ok(()),
    }
}

type Texts = Option<BTreeMap<String, String>>;

fn merge(texts: &mut Texts, more: &BTreeMap<String, String>) {
    if !more.is_empty() {
        texts.get_or_insert_default().extend(more.clone());
    }
}

/// Copies values to other keys; a missing one is copied as empty.
fn copy_keys(texts: &mut Texts, mapping: &BTreeMap<String, String>) {
    for (from, to) in mapping {
        let texts = texts.get_or_insert_default();
        let value = texts.get(from).cloned().unwrap_or_default();
        texts.insert(to.clone(), value);
    }
}

/// Appends to values that are there.
fn append(texts: &mut Texts, suffixes: &BTreeMap<String, String>) {
    for (key, suffix) in suffixes {
        if let Some(value) = texts.as_mut().and_then(|texts| texts.get_mut(key)) {
            value.push_str(suffix);
        }
    }
}

fn apply_patch(pod: &mut Pod, profile: &str, patch: &serde_json::Value) -> Result<(), ProfileError> {
    let no_pod = |error: serde_json::Error| ProfileError::NoPod {
        profile: profile.to_string(),
        reason: error.to_string(),
    };
    let mut document = serde_json::to_value(&*pod).map_err(no_pod)?;
    strategic::apply(&mut document, patch)
        .map_err(|source| ProfileError::Patch { profile: profile.to_string(), source })?;
    *pod = serde_json::from_value(document).map_err(no_pod)?;
    Ok(())
}

#[cfg(test)]
mod tests;
