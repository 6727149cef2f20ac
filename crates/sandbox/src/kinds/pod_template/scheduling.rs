//! Where a pod may go: tolerations, gates, spread over topologies.

use serde_json::Value;

use super::super::check::{Faults, label_selector, one_of, positive, qualified_name};
use super::super::tree::{entries, has, int, list, part, text, texts};
use super::super::{FieldError, Path, names};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Readiness gates and scheduling gates.
pub(super) fn gates(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let at = path.child("readinessGates");
    for (i, gate) in list(spec, "readinessGates").iter().enumerate() {
        qualified_name(text(gate, "conditionType"), &at.index(i).child("conditionType"), out);
    }
    let at = path.child("schedulingGates");
    let mut seen: Vec<&str> = Vec::new();
    for (i, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        qualified_name(name, &at.index(i), out);
        if seen.contains(&name) {
            out.push(FieldError::duplicate(&at.index(i), name));
        }
        seen.push(name);
    }
}

pub(crate) fn tolerations(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    for (i, toleration) in list(spec, "tolerations").iter().enumerate() {
        check_toleration(toleration, &path.index(i), out);
    }
}

fn check_toleration(toleration: &Value, path: &Path<'_>, out: &mut Faults) {
    let get = |field: &str| text(toleration, field);
    let (key, operator, value, effect) = (get("key"), get("operator"), get("value"), get("effect"));
    if !key.is_empty() {
        qualified_name(key, &path.child("key"), out);
    }
    if key.is_empty() && operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        out.push(FieldError::invalid(&path.child("operator"), operator, detail));
    }
    if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        out.push(FieldError::invalid(&path.child("effect"), effect, detail));
    }
    match operator {
        "Equal" | "" => {
            let faults = names::is_label_value(value);
            if !faults.is_empty() {
                out.push(FieldError::invalid(&path.child("operator"), value, faults.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            out.push(FieldError::invalid(&path.child("operator"), value, detail));
        }
        "Exists" => {}
        "Lt" | "Gt" => {
            let supported = ["Equal", "Exists", "Lt", "Gt"];
            out.push(FieldError::not_supported(&path.child("operator"), operator, supported));
        }
        _ => out.push(FieldError::not_supported(&path.child("operator"), operator, ["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        taint_effect(effect, &path.child("effect"), out);
    }
}

pub(crate) fn taint_effect(effect: &str, path: &Path<'_>, out: &mut Faults) {
    one_of(effect, EFFECTS, path, out);
}

pub(super) fn spread(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let constraints = list(spec, "topologySpreadConstraints");
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        positive(int(constraint, "maxSkew").unwrap_or(0), &path.child("maxSkew"), out);
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            out.push(FieldError::required(&path.child("topologyKey"), "can not be empty"));
        }
        one_of(action, &["DoNotSchedule", "ScheduleAnyway"], &path.child("whenUnsatisfiable"), out);
        let is_same = |c: &Value| text(c, "topologyKey") == key && text(c, "whenUnsatisfiable") == action;
        if constraints[i + 1..].iter().any(is_same) {
            let path = path.child("{topologyKey, whenUnsatisfiable}");
            out.push(FieldError::duplicate(&path, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = int(constraint, "minDomains") {
            let path = path.child("minDomains");
            positive(domains, &path, out);
            if action != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                out.push(FieldError::invalid(&path, domains, detail));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = constraint.get(field).and_then(Value::as_str) {
                one_of(policy, &["Honor", "Ignore"], &path.child(field), out);
            }
        }
        label_keys(constraint, &path, out);
        label_selector(constraint.get("labelSelector"), &path.child("labelSelector"), out);
    }
}

/// `matchLabelKeys` and `mismatchLabelKeys` of a term, beside its label selector.
pub(super) fn label_keys(term: &Value, path: &Path<'_>, out: &mut Faults) {
    let selector = part(term, "labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = texts(term, field);
        let path = path.child(field);
        if keys.is_empty() {
            continue;
        }
        if selector.is_none() {
            out.push(FieldError::forbidden(&path, "must not be specified when labelSelector is not set"));
            continue;
        }
        for (i, key) in keys.into_iter().enumerate() {
            qualified_name(key, &path.index(i), out);
        }
    }
    let keys = texts(term, "matchLabelKeys");
    if let Some(selector) = selector {
        let mut known: Vec<&str> = entries(selector, "matchLabels").map(|(key, _)| key).collect();
        for expression in list(selector, "matchExpressions") {
            let key = text(expression, "key");
            // The selector already holds what these keys made of it: a second mention is the user's.
            let at = keys.iter().rposition(|k| *k == key).filter(|_| known.contains(&key));
            if let Some(at) = at {
                let detail = "exists in both matchLabelKeys and labelSelector";
                out.push(FieldError::invalid(&path.index(at), key, detail));
            }
            known.push(key);
        }
    }
    let other = texts(term, "mismatchLabelKeys");
    let path = path.child("matchLabelKeys");
    for (i, key) in keys.into_iter().enumerate().filter(|(_, key)| other.contains(key)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        out.push(FieldError::invalid(&path.index(i), key, detail));
    }
}
