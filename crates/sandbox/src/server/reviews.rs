//! Questions of who may do what. Everyone who is let in may do everything.

use serde_json::{Value, json};

use super::api::{Api, User};
use crate::kinds::{Fault, FieldError, Kind, Path, meta};
use crate::schema::builtin;
use crate::schema::decode::complete;
use crate::status::ApiError;

/// Whether objects of this kind are questions, which are answered and never stored.
pub(super) fn is_review(kind: &Kind) -> bool {
    ["authorization.k8s.io", "authentication.k8s.io"].contains(&kind.group.as_ref())
}

/// The answer to a review.
pub(super) fn answer(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    mut review: Value,
    user: &User,
) -> Result<Value, ApiError> {
    if kind.namespaced {
        meta::set(&mut review, "namespace", Some(Value::from(namespace)));
    }
    let errors = faults(kind, &review);
    if !errors.is_empty() {
        // Kubernetes names neither kind nor object here.
        return Err(ApiError::invalid(&kind.group, "", "", &errors));
    }
    review["status"] = match kind.kind.as_ref() {
        "SelfSubjectReview" => {
            let now = meta::format_time(api.now());
            meta::set(&mut review, "creationTimestamp", Some(Value::from(now)));
            json!({"userInfo": {"username": user.name, "groups": user.groups}})
        }
        "SelfSubjectRulesReview" => {
            if review["spec"]["namespace"].as_str().is_none_or(str::is_empty) {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            review["spec"] = json!({});
            json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            })
        }
        _ => json!({"allowed": true}),
    };
    if let Some(schema) = builtin::by_name(&builtin::type_name(&kind.group, &kind.version, &kind.kind)) {
        complete(&mut review, schema);
    }
    Ok(review)
}

fn faults(kind: &Kind, review: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !kind.kind.ends_with("AccessReview") {
        return errors;
    }
    let path = Path::root("spec");
    let spec = &review["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let other_path = path.child("nonResourceAttributes");
    // The value is printed with the names of Go's struct.
    let shown = |detail: &str| {
        let text = |field: &str| crate::kinds::quote(other[field].as_str().unwrap_or_default());
        let value = format!("{{\"Path\":{},\"Verb\":{}}}: {detail}", text("path"), text("verb"));
        FieldError::new(Fault::Invalid, &other_path, None, value)
    };
    match (resource.is_null(), other.is_null()) {
        (false, false) => errors.push(shown("cannot be specified in combination with resourceAttributes")),
        (true, true) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid(&path.child("resourceAttributes"), Value::Null, detail));
        }
        _ => {}
    }
    let is_empty = |field: &str| match &spec[field] {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    if !kind.kind.starts_with("Self") && is_empty("user") && is_empty("groups") {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&path.child("user"), "", detail));
    }
    let kept = if kind.namespaced { "namespace" } else { "managedFields" };
    let metadata = meta::of(review).into_iter().flatten();
    let is_named = metadata.filter(|(field, value)| *field != kept && !value.is_null()).count() > 0;
    if is_named {
        let except = if kind.namespaced { " except for namespace" } else { "" };
        let metadata = review["metadata"].clone();
        let detail = format!("must be empty{except}");
        errors.push(FieldError::invalid(&Path::root("metadata"), metadata, detail));
    }
    if kind.namespaced {
        let asked = resource["namespace"].as_str().unwrap_or_default();
        if !resource.is_null() && asked != meta::namespace(review) {
            let at = Path::root("spec.resourceAttributes.namespace");
            errors.push(FieldError::invalid(&at, asked, "must match metadata.namespace"));
        }
        if !other.is_null() {
            errors.push(shown("disallowed on this kind of request"));
        }
    }
    errors
}
