//! Affinity of pods to nodes and to other pods.

use serde_json::Value;

use super::super::check::{Faults, label_selector, qualified_name, rule};
use super::super::tree::{int, list, part, text, texts};
use super::super::{FieldError, Path, names};
use super::scheduling::label_keys;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn check(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(affinity) = part(spec, "affinity") else { return };
    if let Some(node) = part(affinity, "nodeAffinity") {
        let path = path.child("nodeAffinity");
        if let Some(required) = part(node, REQUIRED) {
            node_selector(required, &path.child(REQUIRED), out);
        }
        let path = path.child(PREFERRED);
        for (i, term) in list(node, PREFERRED).iter().enumerate() {
            let path = path.index(i);
            weight(term, &path, out);
            node_term(&term["preference"], true, &path.child("preference"), out);
        }
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = part(affinity, field) else { continue };
        let path = path.child(field);
        let at = path.child(REQUIRED);
        for (i, term) in list(pods, REQUIRED).iter().enumerate() {
            pod_term(term, &at.index(i), out);
        }
        let at = path.child(PREFERRED);
        for (i, term) in list(pods, PREFERRED).iter().enumerate() {
            let path = at.index(i);
            weight(term, &path, out);
            pod_term(&term["podAffinityTerm"], &path.child("podAffinityTerm"), out);
        }
    }
}

fn weight(term: &Value, path: &Path<'_>, out: &mut Faults) {
    let weight = int(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        out.push(FieldError::invalid(&path.child("weight"), weight, "must be in the range 1-100"));
    }
}

/// `NodeSelector`: at least one term.
pub(crate) fn node_selector(selector: &Value, path: &Path<'_>, out: &mut Faults) {
    let path = path.child("nodeSelectorTerms");
    let terms = list(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        return out.push(FieldError::required(&path, "must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        node_term(term, false, &path.index(i), out);
    }
}

fn node_term(term: &Value, any_value: bool, path: &Path<'_>, out: &mut Faults) {
    let at = path.child("matchExpressions");
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        node_expression(expression, any_value, &at.index(i), out);
    }
    let at = path.child("matchFields");
    for (i, expression) in list(term, "matchFields").iter().enumerate() {
        node_field(expression, &at.index(i), out);
    }
}

fn node_expression(expression: &Value, any_value: bool, path: &Path<'_>, out: &mut Faults) {
    let values = texts(expression, "values");
    let at = path.child("values");
    match text(expression, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            out.push(FieldError::required(&at, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            out.push(FieldError::forbidden(&at, detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            out.push(FieldError::required(&at, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => operator_fault(other, path, out),
    }
    qualified_name(text(expression, "key"), &path.child("key"), out);
    if !any_value {
        for (i, value) in values.into_iter().enumerate() {
            rule(names::is_label_value(value), value, &at.index(i), out);
        }
    }
}

fn operator_fault(operator: &str, path: &Path<'_>, out: &mut Faults) {
    out.push(FieldError::invalid(&path.child("operator"), operator, "not a valid selector operator"));
}

/// Only the name of a node can be asked for.
fn node_field(expression: &Value, path: &Path<'_>, out: &mut Faults) {
    let values = texts(expression, "values");
    match text(expression, "operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            out.push(FieldError::required(&path.child("values"), detail));
        }
        "In" | "NotIn" => {}
        other => operator_fault(other, path, out),
    }
    let key = text(expression, "key");
    if key != "metadata.name" {
        return out.push(FieldError::invalid(&path.child("key"), key, "not a valid field selector key"));
    }
    let path = path.child("values");
    for (i, value) in values.into_iter().enumerate() {
        rule(names::is_subdomain(value), value, &path.index(i), out);
    }
}

fn pod_term(term: &Value, path: &Path<'_>, out: &mut Faults) {
    for selector in ["labelSelector", "namespaceSelector"] {
        label_selector(term.get(selector), &path.child(selector), out);
    }
    for namespace in texts(term, "namespaces") {
        rule(names::is_label(namespace), namespace, &path.child("namespace"), out);
    }
    label_keys(term, path, out);
    let key = text(term, "topologyKey");
    let path = path.child("topologyKey");
    if key.is_empty() {
        out.push(FieldError::required(&path, "can not be empty"));
    }
    qualified_name(key, &path, out);
}
