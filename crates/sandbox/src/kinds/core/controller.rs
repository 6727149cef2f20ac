//! Pod templates, and replication controllers, which older tools still make.

use serde_json::{Value, json};

use super::super::cell::{age, containers, labels, name};
use super::super::check::{Faults, nonnegative};
use super::super::pod_template::{default_spec, validate_template};
use super::super::tree::{entries, fill, has, int, is_empty, list, part, part_mut, set, text};
use super::super::{FieldError, Hooks, Kind, Path, ScalePaths, Subresource};
use super::columns;

pub(super) fn pod_template() -> Kind {
    let mut kind = Kind::builtin("v1", "PodTemplate", "podtemplates")
        .generation()
        .columns(columns::podtemplates())
        .hooks(Hooks {
            default: |object| default_spec(&mut object["template"]["spec"]),
            validate: |object, _| validate_template(&object["template"], &Path::root("template")),
            row: |object, _| {
                let (names, images) = containers(list(&object["template"]["spec"], "containers"));
                vec![name(object), names, images, labels(&object["template"]["metadata"], "labels")]
            },
            ..Hooks::default()
        });
    kind.returns_deleted = true;
    kind
}

pub(super) fn replication_controller() -> Kind {
    let scale = ScalePaths::workload();
    let mut kind = Kind::builtin("v1", "ReplicationController", "replicationcontrollers")
        .short(&["rc"])
        .category("all")
        .generation()
        .subresource(Subresource::Scale(scale))
        .status()
        .columns(columns::replicationcontrollers())
        .hooks(Hooks {
            default,
            prepare_create: |object| set(object, "status", json!({"replicas": 0})),
            validate: |object, _| validate(object),
            validate_status: |object, _| validate_status(&object["status"]),
            fields: |object| {
                let replicas = int(&object["status"], "replicas").unwrap_or(0);
                vec![("status.replicas", replicas.to_string())]
            },
            field_names: &["status.replicas"],
            row: |object, now| {
                let (names, images) = containers(list(&object["spec"]["template"]["spec"], "containers"));
                let number = |part: &str, field: &str| Value::from(int(&object[part], field).unwrap_or(0));
                vec![
                    name(object),
                    number("spec", "replicas"),
                    number("status", "replicas"),
                    number("status", "readyReplicas"),
                    age(object, now),
                    names,
                    images,
                    labels(&object["spec"], "selector"),
                ]
            },
            ..Hooks::default()
        });
    kind.orphans_by_default = true;
    kind
}

/// Selector and labels are those of the template unless given.
fn default(object: &mut Value) {
    let template = object["spec"]["template"]["metadata"].get("labels").cloned();
    if let Some(found) = template.filter(|labels| labels.is_object()) {
        if is_empty(&object["spec"], "selector") {
            set(&mut object["spec"], "selector", found.clone());
        }
        if is_empty(&object["metadata"], "labels") {
            set(&mut object["metadata"], "labels", found);
        }
    }
    let Some(spec) = part_mut(object, "spec") else { return };
    fill(spec, "replicas", 1);
    if let Some(template) = part_mut(spec, "template") {
        default_spec(&mut template["spec"]);
    }
}

fn validate(object: &Value) -> Vec<FieldError> {
    let mut out = Faults::new();
    let spec = &object["spec"];
    let path = Path::root("spec");
    nonnegative(int(spec, "minReadySeconds").unwrap_or(0), &path.child("minReadySeconds"), &mut out);
    if is_empty(spec, "selector") {
        out.push(FieldError::required(&path.child("selector"), ""));
    }
    match int(spec, "replicas") {
        None => out.push(FieldError::required(&path.child("replicas"), "")),
        Some(replicas) => nonnegative(replicas, &path.child("replicas"), &mut out),
    }
    let path = path.child("template");
    let Some(template) = part(spec, "template") else {
        out.push(FieldError::required(&path, ""));
        return out;
    };
    let found = &template["metadata"]["labels"];
    if !entries(spec, "selector").all(|(key, value)| part(found, key) == Some(value)) {
        let metadata = path.child("metadata");
        let detail = "`selector` does not match template `labels`";
        out.push(FieldError::invalid(&metadata.child("labels"), found.clone(), detail));
    }
    out.extend(validate_template(template, &path));
    let path = path.child("spec");
    let policy = text(&template["spec"], "restartPolicy");
    if policy != "Always" {
        out.push(FieldError::not_supported(&path.child("restartPolicy"), policy, ["Always"]));
    }
    if has(&template["spec"], "activeDeadlineSeconds") {
        let detail = "activeDeadlineSeconds in ReplicationController is not Supported";
        out.push(FieldError::forbidden(&path.child("activeDeadlineSeconds"), detail));
    }
    out
}

fn validate_status(status: &Value) -> Vec<FieldError> {
    let mut out = Faults::new();
    let path = Path::root("status");
    let number = |field: &str| int(status, field).unwrap_or(0);
    for field in
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"]
    {
        nonnegative(number(field), &path.child(field), &mut out);
    }
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if number(field) > number("replicas") {
            let detail = "cannot be greater than status.replicas";
            out.push(FieldError::invalid(&path.child(field), number(field), detail));
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let detail = "cannot be greater than readyReplicas";
        out.push(FieldError::invalid(&path.child("availableReplicas"), number("availableReplicas"), detail));
    }
    out
}
