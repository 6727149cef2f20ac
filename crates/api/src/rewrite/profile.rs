//! ClusterColocationProfiles: which ones a pod gets, and what they make of it. Spec: crds 6, api 3.4 a, manager 15.2.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::{Value, json};

use super::resources::translate;
use super::shape::class_part;
use super::tree::{Object, child, object, texts};
use crate::crd::cluster_colocation_profile::{ClusterColocationProfile, ClusterColocationProfileSpec};
use crate::keys::pod::label::{PRIORITY, QOS_CLASS};
use crate::keys::profile::annotation::SKIP_UPDATE_RESOURCES;
use crate::patch::PatchError;
use crate::patch::strategic::{self, pod::POD};
use crate::priority::class_with_default;
use crate::selector::{Labels, Selector};

/// Profiles in the order they are applied, which is that of their names.
#[derive(Clone, Debug, Default)]
pub struct Profiles(Vec<Profile>);

impl Profiles {
    /// Compiles all profiles of a cluster.
    pub fn new<'a>(profiles: impl IntoIterator<Item = &'a ClusterColocationProfile>) -> Profiles {
        profiles.into_iter().map(Profile::new).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.0.iter()
    }

    /// Whether the labels of a namespace can matter at all.
    pub fn ask_for_namespaces(&self) -> bool {
        self.0.iter().any(|profile| matches!(&profile.target, Ok(Target { namespaces: Some(_), .. })))
    }
}

impl FromIterator<Profile> for Profiles {
    fn from_iter<I: IntoIterator<Item = Profile>>(profiles: I) -> Profiles {
        let mut list: Vec<Profile> = profiles.into_iter().collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Profiles(list)
    }
}

/// A profile, read once and matched often.
#[derive(Clone, Debug)]
pub struct Profile {
    name: String,
    target: Result<Target, String>,
    chance: Result<Chance, ProfileError>,
    skips_resources: bool,
    spec: ClusterColocationProfileSpec,
}

/// Which pods; an absent selector takes all.
#[derive(Clone, Debug)]
struct Target {
    namespaces: Option<Selector>,
    pods: Option<Selector>,
}

/// How often a profile is applied to the pods it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    Always,
    Never,
    /// So many times out of 100, from 1 to 99.
    Percent(i64),
}

impl Chance {
    /// Whether chance lets a profile through: `p` of 100 throws do. Only a share throws the dice.
    ///
    /// Differs: upstream's `p` percent are `p + 1` (api 11, item 8).
    pub fn decide(self, dice: &mut impl FnMut() -> i64) -> bool {
        match self {
            Chance::Always => true,
            Chance::Never => false,
            Chance::Percent(percent) => dice() < percent,
        }
    }
}

/// What there is to know beside the pod.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    pub profiles: &'a Profiles,
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
}

/// Why a pod cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct ProfileError {
    /// The profile at fault.
    pub profile: String,
    pub fault: ProfileFault,
}

/// What is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileFault {
    #[error("PriorityClass.scheduling.k8s.io {name:?} not found")]
    NoPriorityClass { name: String },
    #[error("invalid value for IntOrString: {reason}")]
    Probability { reason: String },
    #[error("profile {profile}: {source}")]
    Patch { profile: String, source: PatchError },
    #[error("profile {profile}: the patched pod is not a pod: {reason}")]
    NoPod { profile: String, reason: String },
    #[error("profile {profile}: the patched Reservation is not a Reservation: {reason}")]
    NoReservation { profile: String, reason: String },
}

/// Applies all profiles that match, in order of name, then moves amounts to extended resources.
///
/// `dice` gives a number from 0 to 99 each time it is thrown, once for each profile that leaves it to
/// chance. On an error the pod may be half changed.
pub fn apply(
    pod: &mut Value,
    around: Surroundings<'_>,
    mut dice: impl FnMut() -> i64,
) -> Result<Applied, ProfileError> {
    let matched: Vec<&Profile> =
        around.profiles.iter().filter(|profile| profile.matches(pod, around.namespace_labels)).collect();
    let mut done = Applied::default();
    for profile in &matched {
        if profile.chance()?.decide(&mut dice) {
            profile.apply(pod, around.priority_classes)?;
            done.applied.push(profile.name.clone());
        }
    }
    let skip =
        around.skip_resources || matched.is_empty() || matched.iter().any(|profile| profile.skips_resources);
    done.translated = !skip && translate_by_class(pod);
    done.matched = matched.iter().map(|profile| profile.name.clone()).collect();
    Ok(done)
}

/// The class is that of the pod as the profiles left it.
fn translate_by_class(pod: &mut Value) -> bool {
    class_with_default(&class_part(pod)).is_some_and(|class| translate(pod, class))
}

impl Profile {
    pub fn new(profile: &ClusterColocationProfile) -> Profile {
        let name = profile.metadata.name.clone().unwrap_or_default();
        let annotations = profile.metadata.annotations.as_ref();
        let spec = profile.spec.clone().unwrap_or_default();
        let chance =
            chance(spec.probability.as_ref()).map_err(|fault| ProfileError { profile: name.clone(), fault });
        Profile {
            target: Target::new(&spec),
            chance,
            skips_resources: annotations.is_some_and(|texts| texts.contains_key(SKIP_UPDATE_RESOURCES)),
            name,
            spec,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn spec(&self) -> &ClusterColocationProfileSpec {
        &self.spec
    }

    /// Whether the selectors match, those of pods against the pod as it is now.
    ///
    /// Differs: a profile that cannot be judged matches nothing, where upstream applies it (api 11, item 9).
    pub fn matches(&self, pod: &Value, namespace_labels: Option<&BTreeMap<String, String>>) -> bool {
        let Ok(target) = &self.target else { return false };
        let in_namespace = match (&target.namespaces, namespace_labels) {
            (None, _) => true,
            (Some(selector), Some(labels)) => selector.matches(labels),
            (Some(_), None) => false,
        };
        in_namespace && target.selects(pod)
    }

    /// Whether the selector of pods matches an object that belongs to no namespace.
    pub(super) fn selects(&self, object: &Value) -> bool {
        self.target.as_ref().is_ok_and(|target| target.selects(object))
    }

    /// How often the profile is applied.
    pub fn chance(&self) -> Result<Chance, ProfileError> {
        self.chance.clone()
    }

    /// What makes the profile useless, or denies the pods it selects. Found out without a pod, for the profile's owner.
    pub fn faults(&self, priority_classes: &BTreeMap<String, PriorityClassFacts>) -> Vec<String> {
        let mut faults = Vec::new();
        if let Err(reason) = &self.target {
            faults.push(format!("it selects no pods, because its {reason}"));
        }
        if let Err(error) = &self.chance {
            faults.push(format!("pods it selects are denied: {error}"));
        }
        let mut sample = json!({"metadata": {}, "spec": {"containers": [{"name": "sample"}]}});
        if let Err(error) = self.apply(&mut sample, priority_classes) {
            faults.push(format!("pods it selects are denied: {error}"));
        }
        faults
    }

    /// Applies the fields of the profile, in their order. The patch is last and has the last word.
    pub fn apply(
        &self,
        pod: &mut Value,
        priority_classes: &BTreeMap<String, PriorityClassFacts>,
    ) -> Result<(), ProfileError> {
        self.set_texts(pod);
        self.append_suffixes(pod, |_, _| true);
        let spec = &self.spec;
        if !spec.scheduler_name.is_empty() {
            child(object(pod), "spec").insert("schedulerName".to_owned(), json!(spec.scheduler_name));
        }
        self.set_qos(pod);
        if !spec.priority_class_name.is_empty() {
            let name = &spec.priority_class_name;
            let class = priority_classes
                .get(name)
                .ok_or_else(|| self.error(ProfileFault::NoPriorityClass { name: name.clone() }))?;
            set_priority(child(object(pod), "spec"), name, class);
        }
        self.set_sub_priority(pod);
        self.patch(pod)
    }

    /// Applies what a pod that already exists may still be given: no scheduler, no priority.
    ///
    /// Differs: a suffix that is there is not appended again; upstream's labels grow with every pass (manager 26,
    /// DB-11).
    pub fn apply_late(&self, pod: &mut Value) -> Result<(), ProfileError> {
        self.set_texts(pod);
        self.append_suffixes(pod, |value, suffix| !value.ends_with(suffix));
        self.set_qos(pod);
        self.set_sub_priority(pod);
        self.patch(pod)
    }

    /// Labels and annotations that are set and copied.
    pub(super) fn set_texts(&self, pod: &mut Value) {
        let spec = &self.spec;
        for (which, set, mapping) in [
            ("labels", &spec.labels, &spec.label_keys_mapping),
            ("annotations", &spec.annotations, &spec.annotation_keys_mapping),
        ] {
            if set.is_empty() && mapping.is_empty() {
                continue;
            }
            let texts = texts(pod, which);
            texts.extend(set.iter().map(|(key, value)| (key.clone(), json!(value))));
            for (from, to) in mapping {
                let value = texts.get(from).cloned().unwrap_or_else(|| json!(""));
                texts.insert(to.clone(), value);
            }
        }
    }

    pub(super) fn append_suffixes(&self, pod: &mut Value, is_due: impl Fn(&str, &str) -> bool) {
        for (key, suffix) in &self.spec.label_suffixes {
            if let Some(Value::String(value)) =
                pod.pointer_mut("/metadata/labels").and_then(|labels| labels.get_mut(key))
                && is_due(value, suffix)
            {
                value.push_str(suffix);
            }
        }
    }

    pub(super) fn set_qos(&self, pod: &mut Value) {
        if !self.spec.qos_class.is_empty() {
            texts(pod, "labels").insert(QOS_CLASS.to_owned(), json!(self.spec.qos_class));
        }
    }

    pub(super) fn set_sub_priority(&self, pod: &mut Value) {
        if let Some(priority) = self.spec.koordinator_priority {
            texts(pod, "labels").insert(PRIORITY.to_owned(), json!(priority.to_string()));
        }
    }

    fn patch(&self, pod: &mut Value) -> Result<(), ProfileError> {
        let patch = match &self.spec.patch {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Object(patch)) => patch.clone(),
            Some(_) => {
                let source = PatchError::Malformed("the patch is not an object".to_owned());
                return Err(self.error(ProfileFault::Patch { profile: self.name.clone(), source }));
            }
        };
        *pod = strategic::apply_fields(pod.take(), patch, &POD)
            .map_err(|source| self.error(ProfileFault::Patch { profile: self.name.clone(), source }))?;
        let no_pod = |error: serde_json::Error| {
            self.error(ProfileFault::NoPod { profile: self.name.clone(), reason: error.to_string() })
        };
        Pod::deserialize(&*pod).map(drop).map_err(no_pod)
    }

    pub(super) fn error(&self, fault: ProfileFault) -> ProfileError {
        ProfileError { profile: self.name.clone(), fault }
    }
}

/// All three go together: the API server compares them after admission.
pub(super) fn set_priority(spec: &mut Object, name: &str, class: &PriorityClassFacts) {
    spec.insert("priorityClassName".to_owned(), json!(name));
    spec.insert("priority".to_owned(), json!(class.value));
    match &class.preemption_policy {
        Some(policy) => spec.insert("preemptionPolicy".to_owned(), json!(policy)),
        None => spec.remove("preemptionPolicy"),
    };
}

struct PodLabels<'a>(Option<&'a Object>);

impl Labels for PodLabels<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0?.get(key)?.as_str()
    }
}

impl Target {
    fn new(spec: &ClusterColocationProfileSpec) -> Result<Target, String> {
        Ok(Target {
            namespaces: compile(spec.namespace_selector.as_ref(), "namespaceSelector")?,
            pods: compile(spec.selector.as_ref(), "selector")?,
        })
    }

    fn selects(&self, object: &Value) -> bool {
        let labels =
            PodLabels(object.get("metadata").and_then(|metadata| metadata.get("labels")?.as_object()));
        self.pods.as_ref().is_none_or(|selector| selector.matches(&labels))
    }
}

/// None when everything matches.
fn compile(selector: Option<&LabelSelector>, field: &str) -> Result<Option<Selector>, String> {
    let Some(selector) = selector else { return Ok(None) };
    let compiled = Selector::new_unchecked_labels(Some(selector))
        .map_err(|error| format!("{field} cannot be read: {error}"))?;
    Ok((!compiled.is_everything()).then_some(compiled))
}

fn chance(probability: Option<&IntOrString>) -> Result<Chance, ProfileFault> {
    let percent = match probability {
        None => 100,
        Some(IntOrString::Int(percent)) => i64::from(*percent),
        Some(IntOrString::String(text)) => parse_percent(text)?,
    };
    Ok(match percent {
        ..=0 => Chance::Never,
        100.. => Chance::Always,
        percent => Chance::Percent(percent),
    })
}

fn parse_percent(text: &str) -> Result<i64, ProfileFault> {
    let error = |reason: String| ProfileFault::Probability { reason };
    let Some(digits) = text.strip_suffix('%') else {
        return Err(error("invalid type: string is not a percentage".to_owned()));
    };
    digits.parse().map_err(|_| {
        error(format!("invalid value {text:?}: strconv.Atoi: parsing {digits:?}: invalid syntax"))
    })
}

#[cfg(test)]
mod tests;
