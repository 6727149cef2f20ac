//! Claims to persistent volumes.

use koord_api::quantity::Quantity;
use serde_json::{Value, json};

use super::super::cell::{access_modes, age, name};
use super::super::check::{Faults, IMMUTABLE, is_same};
use super::super::diff;
use super::super::pod_template::{claim_spec, claim_warnings, defaults};
use super::super::resources::amount;
use super::super::tree::{entries, fill, has, list, part, part_mut, remove, set, text, text_entries};
use super::super::{Admission, Approval, Cluster, FieldError, Hooks, Kind, Operation, Path, meta};
use super::{columns, limit_range, protect};
use crate::status::ApiError;

/// Where the class stood before it had a field.
pub(super) const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const PROTECTION: &str = "kubernetes.io/pvc-protection";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
        .short(&["pvc"])
        .status()
        .columns(columns::persistentvolumeclaims())
        .hooks(Hooks {
            default,
            prepare_create: |claim| {
                set(claim, "status", json!({"phase": "Pending"}));
                data_sources(claim, None);
            },
            prepare_update: |claim, old| data_sources(claim, Some(old)),
            validate,
            validate_status: |claim, _| validate_status(claim),
            admit,
            approve,
            warn: |claim, _| warn(claim),
            row,
            ..Hooks::default()
        });
    kind.returns_deleted = true;
    kind
}

fn default(claim: &mut Value) {
    if let Some(spec) = part_mut(claim, "spec") {
        defaults::claim_spec(spec);
    }
    if let Some(status) = part_mut(claim, "status") {
        fill(status, "phase", "Pending");
        defaults::round_up(status, "capacity");
        defaults::round_up(status, "allocatedResources");
    }
}

/// Two fields for one source: the older knows only claims and snapshots, and each follows the other.
fn data_sources(claim: &mut Value, old: Option<&Value>) {
    let was_used = old.is_some_and(|o| has(&o["spec"], "dataSource") || has(&o["spec"], "dataSourceRef"));
    let Some(spec) = part_mut(claim, "spec") else { return };
    let is_known = |source: &Value| match text(source, "kind") {
        "PersistentVolumeClaim" => text(source, "apiGroup").is_empty(),
        "VolumeSnapshot" => text(source, "apiGroup") == "snapshot.storage.k8s.io",
        _ => false,
    };
    if !was_used && !has(spec, "dataSourceRef") && !is_known(&spec["dataSource"]) {
        remove(spec, "dataSource");
    }
    let (source, reference) = (part(spec, "dataSource").cloned(), part(spec, "dataSourceRef").cloned());
    match (source, reference) {
        (Some(source), None) => set(spec, "dataSourceRef", source),
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => {
            set(spec, "dataSource", reference)
        }
        _ => {}
    }
}

fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.operation != Operation::Create || !admission.subresource.is_empty() {
        return Ok(());
    }
    protect(admission.object, PROTECTION);
    let is_classless =
        !has(&admission.object["spec"], "storageClassName") && beta_class(admission.object).is_none();
    if let Some(class) = Some(is_classless).filter(|c| *c).and_then(|_| default_class(admission.cluster)) {
        set(&mut admission.object["spec"], "storageClassName", class);
    }
    Ok(())
}

/// The newest class meant for claims that name none.
fn default_class(cluster: &dyn Cluster) -> Option<String> {
    let is_default = |class: &&Value| {
        text_entries(&class["metadata"], "annotations")
            .any(|(key, value)| [DEFAULT_CLASS, BETA_DEFAULT_CLASS].contains(&key) && value == "true")
    };
    let classes = cluster.list("storage.k8s.io", "storageclasses", "");
    let mut found: Vec<&Value> = classes.iter().filter(is_default).collect();
    found.sort_by_key(|class| {
        (std::cmp::Reverse(meta::text(class, "creationTimestamp").to_owned()), meta::name(class).to_owned())
    });
    found.first().map(|class| meta::name(class).to_owned())
}

pub(super) fn beta_class(object: &Value) -> Option<&str> {
    text_entries(&object["metadata"], "annotations").find(|(key, _)| *key == BETA_CLASS).map(|(_, v)| v)
}

fn approve(approval: &Approval<'_>) -> Result<(), ApiError> {
    if !approval.subresource.is_empty() {
        return Ok(());
    }
    if let Some(old) = approval.old {
        approve_resize(approval, old)?;
    }
    limit_range::approve_claim(approval)
}

/// Only bound claims of classes that allow it grow.
fn approve_resize(approval: &Approval<'_>, old: &Value) -> Result<(), ApiError> {
    let size = |claim: &Value| amount(&claim["spec"]["resources"]["requests"]["storage"]);
    if size(approval.object) <= size(old) || text(&old["status"], "phase") != "Bound" {
        return Ok(());
    }
    let class = beta_class(old).unwrap_or_else(|| text(&old["spec"], "storageClassName"));
    let found = approval.cluster.get("storage.k8s.io", "storageclasses", "", class);
    if found.is_some_and(|class| super::super::tree::flag(&class, "allowVolumeExpansion")) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
               support resize";
    Err(approval.kind.forbidden(meta::name(approval.object), why))
}

fn validate(claim: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    claim_spec(&claim["spec"], &Path::root("spec"), &mut out);
    if let Some(old) = old {
        validate_update(claim, old, &mut out);
    }
    out
}

fn validate_update(claim: &Value, old: &Value, out: &mut Faults) {
    let (spec, before) = (&claim["spec"], &old["spec"]);
    let (mut masked, mut known) = (spec.clone(), before.clone());
    if text(before, "volumeName").is_empty() {
        copy(&mut known, spec, "volumeName");
    }
    mask_class(claim, old, &mut masked, out);
    let is_bound = text(&claim["status"], "phase") == "Bound";
    if is_bound {
        copy(&mut masked, before, "volumeAttributesClassName");
        if let Some(size) = part(&before["resources"]["requests"], "storage") {
            masked["resources"]["requests"]["storage"] = size.clone();
        }
    }
    let is_kept = |field: &&String| is_same(masked.get(*field), known.get(*field));
    let fields = masked.as_object().into_iter().chain(known.as_object()).flat_map(|fields| fields.keys());
    if !fields.into_iter().all(|field| is_kept(&field)) {
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{}",
            diff::objects("PersistentVolumeClaimSpec", &known, &masked)
        );
        out.push(FieldError::forbidden("spec", detail));
    }
    let size = |spec: &Value| amount(&spec["resources"]["requests"]["storage"]);
    if size(spec) < size(before) && size(spec) <= amount(&old["status"]["capacity"]["storage"]) {
        let detail = "field can not be less than status.capacity";
        out.push(FieldError::forbidden("spec.resources.requests.storage", detail));
    }
    if !is_same(spec.get("volumeMode"), before.get("volumeMode")) {
        out.push(FieldError::invalid("volumeMode", text(spec, "volumeMode"), IMMUTABLE));
    }
    let class = "volumeAttributesClassName";
    if spec.get(class) != before.get(class) && has(&old["status"], "currentVolumeAttributesClassName") {
        let noun = match part(spec, class).and_then(Value::as_str) {
            None => "nil",
            Some("") => "empty string",
            Some(_) => return,
        };
        let detail =
            format!("update to {noun} is forbidden when status.currentVolumeAttributesClassName is not nil");
        out.push(FieldError::forbidden("spec.volumeAttributesClassName", detail));
    }
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    match part(from, field) {
        Some(value) => set(to, field, value.clone()),
        None => {
            remove(to, field);
        }
    }
}

/// A class may move from its annotation to its field, and be given where there was none.
fn mask_class(claim: &Value, old: &Value, masked: &mut Value, out: &mut Faults) {
    let class = |c: &Value| part(&c["spec"], "storageClassName").and_then(Value::as_str).map(str::to_owned);
    let (new_class, old_class) = (class(claim), class(old));
    let (new_beta, old_beta) = (beta_class(claim), beta_class(old));
    let is_moved = old_beta.is_some()
        && old_class.is_none()
        && new_class.as_deref() == old_beta
        && (new_beta.is_none() || new_beta == old_beta);
    if is_moved {
        remove(masked, "storageClassName");
        return;
    }
    if new_beta.unwrap_or("") != old_beta.unwrap_or("") {
        let path = format!("metadata.annotations.{BETA_CLASS}");
        out.push(FieldError::invalid(path, new_beta.unwrap_or(""), IMMUTABLE));
    }
    if new_class.is_some() && old_class.is_none() && (old_beta.is_none() || new_class.as_deref() == old_beta)
    {
        remove(masked, "storageClassName");
    }
}

fn validate_status(claim: &Value) -> Vec<FieldError> {
    let mut out = Faults::new();
    if list(&claim["spec"], "accessModes").is_empty() {
        out.push(FieldError::required("Spec.accessModes", ""));
    }
    let status = Path::root("status");
    let path = status.child("capacity");
    for (name, value) in entries(&claim["status"], "capacity") {
        let size = amount(value);
        if size < Quantity::ZERO {
            let detail = "must be a valid resource quantity";
            out.push(FieldError::invalid(&path.key(name), size.value(), detail));
        }
    }
    out
}

fn warn(claim: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let keys = ["volume.beta.kubernetes.io/storage-class", "volume.beta.kubernetes.io/storage-provisioner"];
    let messages = [
        "deprecated since v1.8; use \"storageClassName\" attribute instead",
        "deprecated since v1.23; use \"volume.kubernetes.io/storage-provisioner\" instead",
    ];
    for (key, message) in keys.into_iter().zip(messages) {
        if text_entries(&claim["metadata"], "annotations").any(|(k, _)| k == key) {
            out.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    claim_warnings(&claim["spec"], &Path::root("spec"), &mut out);
    out
}

fn row(claim: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let (spec, status) = (&claim["spec"], &claim["status"]);
    let phase = if meta::is_deleting(claim) { "Terminating" } else { text(status, "phase") };
    let is_bound = !text(spec, "volumeName").is_empty();
    let (capacity, modes) = match is_bound {
        true => (amount(&status["capacity"]["storage"]).to_string(), access_modes(status)),
        false => (String::new(), String::new()),
    };
    let unset = |field: &str| Value::from(part(spec, field).and_then(Value::as_str).unwrap_or("<unset>"));
    vec![
        name(claim),
        phase.into(),
        text(spec, "volumeName").into(),
        capacity.into(),
        modes.into(),
        beta_class(claim).unwrap_or_else(|| text(spec, "storageClassName")).into(),
        unset("volumeAttributesClassName"),
        age(claim, now),
        unset("volumeMode"),
    ]
}
