//! The scheduling.k8s.io group: priorities of pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::rules::{self, Faults};
use super::{Admission, Column, FieldError, Hooks, Kind, Operation, Path, cell, meta};
use crate::status::ApiError;

const SYSTEM_PREFIX: &str = "system-";
/// What users may give; above is the system's.
const VALUE_MAX: i64 = 1_000_000_000;

/// The classes every cluster has: name, value, description.
const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind::builtin("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
            .cluster_scoped()
            .short(&["pc"])
            .columns(columns())
            .hooks(Hooks {
                default: |class| rules::default(class, "preemptionPolicy", "PreemptLowerPriority"),
                // Its generation never moves on.
                prepare_create: |class| meta::set(class, "generation", Some(Value::from(1))),
                validate,
                admit,
                row,
                ..Hooks::default()
            }),
    ]
}

/// The classes that exist before anyone made one.
pub(crate) fn system_priority_classes() -> impl Iterator<Item = Value> {
    SYSTEM_CLASSES.into_iter().map(|(name, value, description)| {
        json!({
            "kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1",
            "metadata": {"name": name, "generation": 1},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        })
    })
}

fn validate(class: &Value, old: Option<&Value>) -> Faults {
    let value_path = Path::root("value");
    let policy_path = Path::root("preemptionPolicy");
    let mut errors = Vec::new();
    let value = class["value"].as_i64().unwrap_or(0);
    if let Some(old) = old {
        if value != old["value"].as_i64().unwrap_or(0) {
            errors.push(FieldError::forbidden(&value_path, "may not be changed in an update."));
        }
        let (new, old) = (&class["preemptionPolicy"], &old["preemptionPolicy"]);
        errors.extend(rules::immutable(new, old, &policy_path));
        return errors;
    }
    let name = meta::name(class);
    if name.starts_with(SYSTEM_PREFIX) {
        if let Err(why) = check_system_class(name, value, class["globalDefault"] == true) {
            let metadata = Path::root("metadata");
            let detail = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
            );
            errors.push(FieldError::forbidden(&metadata.child("name"), detail));
        }
    } else if value > VALUE_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {VALUE_MAX}");
        errors.push(FieldError::forbidden(&value_path, detail));
    }
    match rules::text(&class["preemptionPolicy"]) {
        "" => errors.push(FieldError::required(&policy_path, "")),
        _ => {
            let policies = ["PreemptLowerPriority", "Never"];
            errors.extend(rules::one_of(&class["preemptionPolicy"], &policies, &policy_path));
        }
    }
    errors
}

/// Only the system's own classes, exactly as they are, may bear its prefix.
fn check_system_class(name: &str, value: i64, is_default: bool) -> Result<(), String> {
    let known = SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name);
    match known {
        None => Err(format!("{name} is not a known system priority class")),
        Some((_, wanted, _)) if *wanted != value => {
            Err(format!("value of {name} PriorityClass must be {wanted}"))
        }
        Some(_) if is_default => Err(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => Ok(()),
    }
}

/// One class at most is the default.
fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.operation == Operation::Delete || admission.object["globalDefault"] != true {
        return Ok(());
    }
    let classes = admission.cluster.list("scheduling.k8s.io", "priorityclasses", "");
    let defaults = classes.iter().filter(|class| class["globalDefault"] == true);
    // Of several, which only a race can make, the lowest counts.
    let Some(current) = defaults.min_by_key(|class| class["value"].as_i64()) else { return Ok(()) };
    let name = meta::name(admission.object);
    if admission.operation == Operation::Update && meta::name(current) == name {
        return Ok(());
    }
    let why = format!(
        "PriorityClass {} is already marked as default. Only one default can exist",
        meta::name(current)
    );
    Err(ApiError::forbidden("scheduling.k8s.io", "priorityclasses", name, &why))
}

fn columns() -> Vec<Column> {
    let class = "io.k8s.api.scheduling.v1.PriorityClass";
    vec![
        cell::name_column(),
        cell::documented("Value", "integer", 0, class, "value"),
        cell::documented("Global-Default", "boolean", 0, class, "globalDefault"),
        cell::age_column(),
        cell::documented("PreemptionPolicy", "string", 0, class, "preemptionPolicy"),
    ]
}

fn row(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(class),
        cell::count(&class["value"]),
        cell::flag(&class["globalDefault"], false),
        cell::age(class, now),
        cell::text(&class["preemptionPolicy"]),
    ]
}
