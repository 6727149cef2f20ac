//! Namespaces.

use serde_json::{Value, json};

use super::super::cell::{age, name};
use super::super::check::{Faults, finalizer_name, qualified_name};
use super::super::tree::{fill, list, map_mut, part_mut, set, text, texts};
use super::super::{FieldError, Hooks, Kind, Path, Subresource, meta, names};
use super::columns;

/// The label that carries a namespace's own name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "Namespace", "namespaces")
        .cluster_scoped()
        .short(&["ns"])
        .status()
        .subresource(Subresource::Finalize)
        .columns(columns::namespaces())
        .hooks(Hooks {
            name: names::label,
            default,
            prepare_create,
            prepare_update: |namespace, old| {
                namespace["spec"]["finalizers"] = old["spec"]["finalizers"].clone()
            },
            validate: |namespace, old| validate(namespace, old.is_none()),
            validate_part: Some(|_, namespace, _| validate(namespace, false)),
            validate_status,
            fields: |namespace| vec![("status.phase", text(&namespace["status"], "phase").to_owned())],
            field_names: &["status.phase"],
            row: |namespace, now| {
                vec![name(namespace), text(&namespace["status"], "phase").into(), age(namespace, now)]
            },
            ..Hooks::default()
        });
    kind.verbs = &["create", "delete", "get", "list", "patch", "update", "watch"];
    kind.returns_deleted = true;
    kind
}

fn default(namespace: &mut Value) {
    label(namespace);
    if let Some(status) = part_mut(namespace, "status") {
        fill(status, "phase", "Active");
    }
}

fn label(namespace: &mut Value) {
    let name = meta::name(namespace).to_owned();
    if name.is_empty() {
        return;
    }
    if let Some(labels) = part_mut(namespace, "metadata").and_then(|m| map_mut(m, "labels")) {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
}

/// Kubernetes' own finalizer is among those of every namespace; a generated name is known by now.
fn prepare_create(namespace: &mut Value) {
    set(namespace, "status", json!({"phase": "Active"}));
    label(namespace);
    let mut finalizers = list(&namespace["spec"], "finalizers").to_vec();
    if !finalizers.iter().any(|f| f == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    set(namespace, "spec", json!({"finalizers": finalizers}));
}

/// Of a new namespace Kubernetes tells the list, later the item.
fn validate(namespace: &Value, is_new: bool) -> Vec<FieldError> {
    let mut out = Faults::new();
    let spec = Path::root("spec");
    let path = spec.child("finalizers");
    for (i, finalizer) in texts(&namespace["spec"], "finalizers").into_iter().enumerate() {
        let path = if is_new { path } else { path.index(i) };
        qualified_name(finalizer, &path, &mut out);
        finalizer_name(finalizer, &path, &mut out);
    }
    out
}

fn validate_status(namespace: &Value, _: &Value) -> Vec<FieldError> {
    let phase = text(&namespace["status"], "phase");
    let (wanted, state) = match meta::is_deleting(namespace) {
        true => ("Terminating", "not empty"),
        false => ("Active", "empty"),
    };
    if phase == wanted {
        return Vec::new();
    }
    let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {state}");
    vec![FieldError::invalid("status.Phase", phase, detail)]
}
