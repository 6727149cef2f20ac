//! Resource quotas, as data: their rules are kept, but nothing is counted against them.

use serde_json::{Value, json};

use super::super::cell::{age, name};
use super::super::check::{Faults, IMMUTABLE};
use super::super::pod_template::defaults;
use super::super::resources::{amount, check_amount, check_name, is_quota_huge_pages};
use super::super::tree::{entries, list, part, part_mut, set, text, texts};
use super::super::{FieldError, Hooks, Kind, Path};
use super::columns;

const COUNTED: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const COMPUTE: &[&str] =
    &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const EXISTS_ONLY: &[&str] =
    &["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "ResourceQuota", "resourcequotas")
        .short(&["quota"])
        .status()
        .columns(columns::resourcequotas())
        .hooks(Hooks {
            default: |quota| {
                for (part, field) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
                    if let Some(part) = part_mut(quota, part) {
                        defaults::round_up(part, field);
                    }
                }
            },
            prepare_create: |quota| set(quota, "status", json!({})),
            validate,
            validate_status: |quota, _| {
                let mut out = Faults::new();
                let path = Path::root("status");
                amounts(&quota["status"], "hard", &path, &mut out);
                amounts(&quota["status"], "used", &path, &mut out);
                out
            },
            row,
            ..Hooks::default()
        });
    kind.returns_deleted = true;
    kind
}

fn validate(quota: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    let spec = &quota["spec"];
    let path = Path::root("spec");
    amounts(spec, "hard", &path, &mut out);
    scopes(spec, &path.child("scopes"), &mut out);
    if let Some(selector) = part(spec, "scopeSelector") {
        scope_selector(spec, selector, &path.child("scopeSelector"), &mut out);
    }
    if let Some(old) = old {
        let sorted = |spec: &Value| {
            let mut scopes: Vec<String> = texts(spec, "scopes").into_iter().map(str::to_owned).collect();
            scopes.sort();
            scopes.dedup();
            scopes
        };
        if sorted(spec) != sorted(&old["spec"]) {
            let value = part(spec, "scopes").cloned().unwrap_or(Value::Null);
            out.push(FieldError::invalid(&path.child("scopes"), value, IMMUTABLE));
        }
    }
    out
}

fn amounts(parent: &Value, field: &str, path: &Path<'_>, out: &mut Faults) {
    let path = path.child(field);
    for (name, value) in entries(parent, field) {
        let path = path.key(name);
        check_name(name, &path, out);
        if !name.contains('/') && !is_counted(name) {
            out.push(FieldError::invalid(&path, name, "must be a standard resource for quota"));
        }
        check_amount(name, value, &path, out);
    }
}

fn is_counted(name: &str) -> bool {
    COUNTED.contains(&name) || is_quota_huge_pages(name)
}

/// Whether a scope says anything about a resource.
fn is_about(scope: &str, name: &str) -> bool {
    match scope {
        "BestEffort" => name == "pods",
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => COMPUTE.contains(&name),
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&name),
        _ => true,
    }
}

fn is_scope(scope: &str) -> bool {
    EXISTS_ONLY.contains(&scope) || ["PriorityClass", "VolumeAttributesClass"].contains(&scope)
}

fn conflict(scopes: &[&str]) -> bool {
    let both = |a: &str, b: &str| scopes.contains(&a) && scopes.contains(&b);
    both("BestEffort", "NotBestEffort") || both("Terminating", "NotTerminating")
}

fn scopes(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let found = texts(spec, "scopes");
    let mut fault = |detail: &str| out.push(FieldError::invalid(path, spec["scopes"].clone(), detail));
    for scope in &found {
        if !is_scope(scope) {
            fault("unsupported scope");
        }
        for (name, _) in entries(spec, "hard").filter(|(name, _)| is_counted(name)) {
            if !is_about(scope, name) {
                fault("unsupported scope applied to resource");
            }
        }
    }
    if conflict(&found) {
        fault("conflicting scopes");
    }
}

fn scope_selector(spec: &Value, selector: &Value, path: &Path<'_>, out: &mut Faults) {
    let path = path.child("matchExpressions");
    let mut found: Vec<&str> = Vec::new();
    for expression in list(selector, "matchExpressions") {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        let values = texts(expression, "values");
        if !is_scope(scope) {
            out.push(FieldError::invalid(&path.child("scopeName"), scope, "unsupported scope"));
        }
        for (name, _) in entries(spec, "hard").filter(|(name, _)| is_counted(name)) {
            if !is_about(scope, name) {
                let detail = "unsupported scope applied to resource";
                out.push(FieldError::invalid(&path, selector.clone(), detail));
            }
        }
        if EXISTS_ONLY.contains(&scope) && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            out.push(FieldError::invalid(&path.child("operator"), operator, detail));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                out.push(FieldError::required(&path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                out.push(FieldError::invalid(&path.child("values"), expression["values"].clone(), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let detail = "not a valid selector operator";
                out.push(FieldError::invalid(&path.child("operator"), operator, detail));
            }
        }
        found.push(scope);
    }
    if conflict(&found) {
        let value = part(spec, "scopes").cloned().unwrap_or(Value::Null);
        out.push(FieldError::invalid(&path, value, "conflicting scopes"));
    }
}

fn row(quota: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let status = &quota["status"];
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in entries(status, "hard") {
        let used = amount(&status["used"][resource]);
        let line = format!("{resource}: {used}/{}", amount(hard));
        match resource.starts_with("limits.") {
            true => limits.push(line),
            false => requests.push(line),
        }
    }
    vec![name(quota), requests.join(", ").into(), limits.join(", ").into(), age(quota, now)]
}
