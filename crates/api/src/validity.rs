//! What the pod webhook refuses: QoS and priority that do not go together, amounts that make no sense.
//!
//! A check is a pure function from pods to field errors; their texts are part of upstream's contract.
//! A pod that has its node already, or is going, is only asked about what an update changes, so one that was
//! admitted before a rule existed can still be patched. Spec: api 3.2, 3.4 d; manager 16.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;

use crate::keys;
use crate::keys::resource::{BATCH_CPU, BATCH_MEMORY, CPU};
use crate::pod::{self, annotation, label};
use crate::priority::{self, PriorityClass};
use crate::qos::{self, Qos};
use crate::quantity::Quantity;

mod gpu;

pub use gpu::check_gpu;

/// What is wrong with QoS, priority and amounts of a new pod.
pub fn check_create(pod: &Pod) -> FieldErrors {
    let facts = Facts::of(pod);
    let mut errors = FieldErrors::default();
    errors.extend(facts.colocation());
    errors.extend(facts.combination());
    errors.extend(facts.cpu());
    errors
}

/// Which update rules are switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateOptions {
    /// Gate ColocationProfileSkipValidatingPriority: the sub-priority label may change.
    pub allow_sub_priority_change: bool,
}

/// What is wrong with QoS, priority and amounts of a changed pod.
pub fn check_update(old: &Pod, new: &Pod, options: UpdateOptions) -> FieldErrors {
    let (before, after) = (Facts::of(old), Facts::of(new));
    let is_settled = is_settled(old);
    let mut errors = FieldErrors::default();
    errors.extend(immutable(old, new, options));
    if !is_settled || (before.qos, before.has_batch) != (after.qos, after.has_batch) {
        errors.extend(after.colocation());
    }
    if !is_settled || (before.qos, before.class) != (after.qos, after.class) {
        errors.extend(after.combination());
    }
    if !is_settled || (before.qos, before.cpu) != (after.qos, after.cpu) {
        errors.extend(after.cpu());
    }
    errors
}

/// The mark of our own stand-in pods may not be worn by a real one. `old` is the pod before an update.
pub fn check_reserve_pod(old: Option<&Pod>, new: &Pod) -> FieldErrors {
    let key = keys::pod::annotation::RESERVE_POD;
    let is_old = old.is_some_and(|old| is_settled(old) && annotation(old, key).is_some());
    let error = annotation(new, key)
        .filter(|_| !is_old)
        .map(|_| FieldError::forbidden(format!("annotations.{key}"), "cannot set in annotations"));
    FieldErrors(error.into_iter().collect())
}

/// Whether refusing an update for what the pod already is would help nobody: it runs, or it is going, and what patches
/// it now (its owner, whoever removes a finalizer) cannot mend it.
///
/// Differs: upstream refuses these too (api 11, item 24).
fn is_settled(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    pod.metadata.deletion_timestamp.is_some() || node.is_some_and(|node| !node.is_empty())
}

/// Advice for a combination that is allowed but not meant to be used.
pub fn combination_warning(pod: &Pod) -> Option<String> {
    let (qos, class) = (qos::raw(pod)?, priority::class_raw(pod)?);
    let intended: &[PriorityClass] = match qos {
        Qos::Lse | Qos::Lsr => &[PriorityClass::Prod],
        Qos::Ls => &[PriorityClass::Prod, PriorityClass::Mid],
        Qos::Be => &[PriorityClass::Mid, PriorityClass::Batch, PriorityClass::Free],
        Qos::System => &[],
    };
    if intended.contains(&class) {
        return None;
    }
    let advice = match intended {
        [] => "priorities of system classes".to_string(),
        some => some.iter().map(|c| c.name()).collect::<Vec<_>>().join(", "),
    };
    let label = keys::pod::label::QOS_CLASS;
    Some(format!(
        "{label}={qos} with priorityClass={class} is not an intended combination; {qos} goes with {advice}"
    ))
}

/// Whether the matrix allows a raw QoS class with a raw priority class.
pub fn is_allowed(qos: Option<Qos>, class: Option<PriorityClass>) -> bool {
    match qos {
        Some(Qos::Lsr) => class == Some(PriorityClass::Prod),
        Some(Qos::Be) => class.is_some_and(|class| class != PriorityClass::Prod),
        _ => true,
    }
}

/// What the rules look at, taken from a pod once.
struct Facts {
    qos: Option<Qos>,
    class: Option<PriorityClass>,
    has_batch: bool,
    cpu: Quantity,
}

impl Facts {
    fn of(pod: &Pod) -> Facts {
        let requests = pod::requests(pod);
        let amount = |name| requests.get(name).copied().unwrap_or_default();
        Facts {
            qos: qos::raw(pod),
            class: priority::class_raw(pod),
            has_batch: !amount(BATCH_CPU).is_zero() || !amount(BATCH_MEMORY).is_zero(),
            cpu: amount(CPU),
        }
    }

    fn colocation(&self) -> Option<FieldError> {
        let message = "must specify koordinator QoS BE with koordinator colocation resources";
        (self.has_batch && self.qos != Some(Qos::Be))
            .then(|| FieldError::required(label_path(keys::pod::label::QOS_CLASS), message))
    }

    fn combination(&self) -> Option<FieldError> {
        let qos = self.qos.filter(|qos| !is_allowed(Some(*qos), self.class))?;
        let class = self.class.map_or("", PriorityClass::name);
        let label = keys::pod::label::QOS_CLASS;
        let detail = format!("{label}={qos} and priorityClass={class} cannot be used in combination");
        Some(FieldError::forbidden("Pod", detail))
    }

    /// Pinned CPUs are whole ones. The text says LSR for LSE too.
    fn cpu(&self) -> Option<FieldError> {
        if !self.qos.is_some_and(Qos::is_pinned) {
            return None;
        }
        if self.cpu.is_zero() {
            return Some(FieldError::required(REQUESTS, "LSR Pod must declare the requested CPUs"));
        }
        let is_integer = self.cpu.value().saturating_mul(1000) == self.cpu.milli_value();
        (!is_integer)
            .then(|| FieldError::invalid(REQUESTS, self.cpu, "the requested CPUs of LSR Pod must be integer"))
    }
}

/// The path of errors about amounts, without the container's index: so upstream writes it.
const REQUESTS: &str = "pod.spec.containers[*].resources.requests";

fn label_path(key: &str) -> String {
    format!("labels.{key}")
}

fn immutable(old: &Pod, new: &Pod, options: UpdateOptions) -> Vec<FieldError> {
    let changed = |path: String, value: &str| FieldError::invalid(path, value, "field is immutable");
    let mut errors = Vec::new();
    let (old_qos, new_qos) = (qos::raw(old), qos::raw(new));
    if old_qos != new_qos {
        let text = new_qos.map_or("", Qos::as_str);
        errors.push(changed(label_path(keys::pod::label::QOS_CLASS), text));
    }
    let (old_class, new_class) = (priority::class_raw(old), priority::class_raw(new));
    if old_class != new_class {
        errors.push(changed("spec.priority".to_string(), new_class.map_or("", PriorityClass::name)));
    }
    let key = keys::pod::label::PRIORITY;
    let (old_sub, new_sub) = (label(old, key).unwrap_or(""), label(new, key).unwrap_or(""));
    if old_sub != new_sub && !options.allow_sub_priority_change {
        errors.push(changed(label_path(key), new_sub));
    }
    errors
}

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub path: String,
    pub fault: FieldFault,
    pub detail: String,
}

/// What kind of wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldFault {
    Required,
    Forbidden,
    Invalid { value: String },
}

impl FieldError {
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError { path: path.into(), fault: FieldFault::Required, detail: detail.into() }
    }

    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError { path: path.into(), fault: FieldFault::Forbidden, detail: detail.into() }
    }

    pub fn invalid(
        path: impl Into<String>,
        value: impl fmt::Display,
        detail: impl Into<String>,
    ) -> FieldError {
        let fault = FieldFault::Invalid { value: value.to_string() };
        FieldError { path: path.into(), fault, detail: detail.into() }
    }
}

/// Kubernetes' own format of field errors.
impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FieldError { path, fault, detail } = self;
        match fault {
            FieldFault::Required => write!(f, "{path}: Required value: {detail}"),
            FieldFault::Forbidden => write!(f, "{path}: Forbidden: {detail}"),
            FieldFault::Invalid { value } => write!(f, "{path}: Invalid value: {value:?}: {detail}"),
        }
    }
}

/// All that is wrong, in order. Empty is good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

impl FieldErrors {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn extend(&mut self, more: impl IntoIterator<Item = FieldError>) {
        self.0.extend(more);
    }
}

/// One error as it is; several in brackets, equal texts once.
impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = Vec::new();
        for text in self.0.iter().map(FieldError::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        match texts.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
