//! The policy group: how many pods may be missing at once.

use jiff::Timestamp;
use serde_json::Value;

use super::rules::{self, Faults};
use super::{Column, Hooks, Kind, Path, cell, internal, names};

pub(super) fn kinds() -> Vec<Kind> {
    let mut budget = Kind::builtin("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
        .short(&["pdb"])
        .generation()
        .status()
        .columns(columns())
        .hooks(Hooks { name: names::path_segment, validate, validate_status, row, ..Hooks::default() });
    budget.unconditional_update = false;
    vec![budget]
}

fn validate(budget: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &budget["spec"];
    let mut errors = Vec::new();
    if rules::is_set(&spec["minAvailable"]) && rules::is_set(&spec["maxUnavailable"]) {
        let shown = internal::compact("PodDisruptionBudgetSpec", spec);
        errors.push(rules::invalid_as(&path, &shown, "minAvailable and maxUnavailable cannot be both set"));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        errors.extend(rules::positive_int_or_percent(&spec[field], &path.child(field)));
        errors.extend(rules::at_most_100_percent(&spec[field], &path.child(field)));
    }
    let selector = path.child("selector");
    let may_keep =
        old.is_some_and(|old| !rules::label_selector(&old["spec"]["selector"], &selector).is_empty());
    errors.extend(rules::label_selector_with(&spec["selector"], may_keep, &selector));
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if rules::is_set(policy) {
        let at = path.child("unhealthyPodEvictionPolicy");
        errors.extend(rules::one_of(policy, &["AlwaysAllow", "IfHealthyBudget"], &at));
    }
    errors
}

fn validate_status(budget: &Value, _: &Value) -> Faults {
    let path = Path::root("status");
    let status = &budget["status"];
    let mut errors = rules::conditions(&status["conditions"], &path.child("conditions"));
    let numbers = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    errors.extend(rules::all_non_negative(status, &path, &numbers));
    errors
}

fn columns() -> Vec<Column> {
    let allowed = "Calculated number of pods that may be disrupted at this time.";
    vec![
        cell::name_column(),
        Column::new("Min Available", "string", 0, "The minimum number of pods that must be available."),
        Column::new("Max Unavailable", "string", 0, "The maximum number of pods that may be unavailable."),
        Column::new("Allowed Disruptions", "integer", 0, allowed),
        cell::age_column(),
    ]
}

fn row(budget: &Value, now: Timestamp) -> Vec<Value> {
    let limit = |value: &Value| match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    vec![
        cell::name(budget),
        Value::from(limit(&budget["spec"]["minAvailable"])),
        Value::from(limit(&budget["spec"]["maxUnavailable"])),
        cell::count(&budget["status"]["disruptionsAllowed"]),
        cell::age(budget, now),
    ]
}
