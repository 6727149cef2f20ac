//! Rules many kinds share: numbers, percentages, label selectors, what may not change.
//!
//! Texts and order are those of Kubernetes. A field that is absent reads as null.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use koord_api::selector::{Selector, SelectorError};
use serde_json::{Map, Value};

use super::{Fault, FieldError, Path, meta, names, quote};

/// The faults of one object, collected in order.
pub(super) type Faults = Vec<FieldError>;

const IMMUTABLE: &str = "field is immutable";
const REASON_FORMAT: &str = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";
const REASON_MAX: i64 = 1024;
const MESSAGE_MAX: i64 = 32 * 1024;

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a pointer in Go would be set.
pub(super) fn is_set(value: &Value) -> bool {
    !value.is_null()
}

/// Sets a field that is absent. `parent` becomes an object where it is null.
pub(super) fn default(parent: &mut Value, field: &str, value: impl Into<Value>) {
    if parent[field].is_null() {
        parent[field] = value.into();
    }
}

/// As `default`, for fields where empty means absent.
pub(super) fn default_text(parent: &mut Value, field: &str, value: &str) {
    if text(&parent[field]).is_empty() {
        parent[field] = Value::from(value);
    }
}

/// Elements of a list that may be absent, to be changed.
pub(super) fn each<'a>(parent: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    parent.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// A number, if there is one, must not be below zero.
pub(super) fn non_negative(value: &Value, path: &Path<'_>) -> Option<FieldError> {
    let number = value.as_i64().filter(|number| *number < 0)?;
    Some(FieldError::invalid(path, number, "must be greater than or equal to 0"))
}

/// As `non_negative` for several fields of one object.
pub(super) fn all_non_negative<'a>(
    object: &'a Value,
    path: &'a Path<'a>,
    fields: &'a [&'a str],
) -> impl Iterator<Item = FieldError> + 'a {
    fields.iter().filter_map(|field| non_negative(&object[*field], &path.child(field)))
}

/// Whether two values mean the same to Go: null, empty lists and empty maps are alike.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    let is_empty = |v: &Value| match v {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            let covers = |a: &Map<String, Value>, b: &Map<String, Value>| {
                a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&Value::Null)))
            };
            covers(a, b) && covers(b, a)
        }
        (a, b) => a == b || (is_empty(a) && is_empty(b) && (a.is_null() || b.is_null())),
    }
}

/// A field that may not change once the object exists.
pub(super) fn immutable(new: &Value, old: &Value, path: &Path<'_>) -> Option<FieldError> {
    (!same(new, old)).then(|| FieldError::invalid(path, new.clone(), IMMUTABLE))
}

/// As `immutable`, with the value as Go's own type prints it.
pub(super) fn immutable_as(new: &Value, old: &Value, shown: &str, path: &Path<'_>) -> Option<FieldError> {
    (!same(new, old)).then(|| invalid_as(path, shown, IMMUTABLE))
}

/// A fault whose value is printed as Go prints a struct: in the order of its fields.
pub(super) fn invalid_as(path: &Path<'_>, shown: &str, detail: &str) -> FieldError {
    let detail = match detail {
        "" => shown.to_owned(),
        detail => format!("{shown}: {detail}"),
    };
    FieldError::new(Fault::Invalid, path, None, detail)
}

/// The faults of a text that must be one of several.
pub(super) fn one_of(value: &Value, allowed: &[&str], path: &Path<'_>) -> Option<FieldError> {
    let found = text(value);
    (!allowed.contains(&found)).then(|| FieldError::not_supported(path, found, allowed.iter().copied()))
}

/// Faults of a name rule, each at the same place.
pub(super) fn faults<'a>(
    found: Vec<String>,
    value: &'a str,
    path: &'a Path<'a>,
) -> impl Iterator<Item = FieldError> + 'a {
    found.into_iter().map(move |fault| FieldError::invalid(path, value, fault))
}

/// A label selector, compiled. Null selects nothing.
pub(super) fn selector(tree: &Value) -> Result<Selector, SelectorError> {
    if tree.is_null() {
        return Ok(Selector::nothing());
    }
    match serde_json::from_value::<LabelSelector>(tree.clone()) {
        Ok(selector) => Selector::new(Some(&selector)),
        // Decoding has checked the types already.
        Err(_) => Ok(Selector::nothing()),
    }
}

pub(super) fn is_empty_selector(tree: &Value) -> bool {
    let labels = tree["matchLabels"].as_object().map_or(0, Map::len);
    labels + list(&tree["matchExpressions"]).len() == 0
}

/// Labels as selectors match them.
pub(super) fn labels(tree: &Value) -> BTreeMap<String, String> {
    let fields = tree.as_object().into_iter().flatten();
    fields.map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}

/// The faults of a label selector.
pub(super) fn label_selector(tree: &Value, path: &Path<'_>) -> Faults {
    label_selector_with(tree, false, path)
}

/// As `label_selector`; an object that has wrong values already may keep them.
pub(super) fn label_selector_with(tree: &Value, allow_values: bool, path: &Path<'_>) -> Faults {
    let mut errors = meta::validate_labels(tree.get("matchLabels"), &path.child("matchLabels"));
    let expressions = path.child("matchExpressions");
    for (i, expression) in list(&tree["matchExpressions"]).iter().enumerate() {
        let at = expressions.index(i);
        let values = list(&expression["values"]);
        match text(&expression["operator"]) {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &at.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &at.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = text(&expression["key"]);
        errors.extend(faults(names::is_qualified_name(key), key, &at.child("key")));
        if allow_values {
            continue;
        }
        for (i, value) in values.iter().map(text).enumerate() {
            errors.extend(faults(names::is_label_value(value), value, &at.child("values").index(i)));
        }
    }
    errors
}

/// Whether a selector holds values that would be refused today.
pub(super) fn has_bad_values(tree: &Value) -> bool {
    let values = list(&tree["matchExpressions"]).iter().flat_map(|e| list(&e["values"]));
    values.into_iter().any(|value| !names::is_label_value(text(value)).is_empty())
}

/// The number in front of the percent sign.
fn percent(value: &Value) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// The number of `3` and `3%` alike.
pub(super) fn int_or_percent(value: &Value) -> i64 {
    percent(value).or_else(|| value.as_i64()).or_else(|| text(value).parse().ok()).unwrap_or(0)
}

/// A number not below zero, or a percentage.
pub(super) fn positive_int_or_percent(value: &Value, path: &Path<'_>) -> Option<FieldError> {
    if value.is_string() && percent(value).is_none() {
        let fault = names::regex_fault(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        );
        return Some(FieldError::invalid(path, value.clone(), fault));
    }
    non_negative(value, path)
}

/// A percentage of at most 100.
pub(super) fn at_most_100_percent(value: &Value, path: &Path<'_>) -> Option<FieldError> {
    percent(value).filter(|percent| *percent > 100)?;
    Some(FieldError::invalid(path, value.clone(), "must not be greater than 100%"))
}

/// A counter that only grows.
pub(super) fn not_decremented(new: &Value, old: &Value, path: &Path<'_>) -> Option<FieldError> {
    let before = old.as_i64()?;
    let now = new.as_i64().unwrap_or(0);
    (new.is_null() || now < before).then(|| FieldError::invalid(path, now, "cannot be decremented"))
}

/// The faults of conditions with reason and transition time.
pub(super) fn conditions(conditions: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (i, condition) in list(conditions).iter().enumerate() {
        let at = path.index(i);
        let kind = text(&condition["type"]);
        match seen.contains(&kind) {
            true => errors.push(FieldError::duplicate(&at.child("type"), kind)),
            false => seen.push(kind),
        }
        errors.extend(faults(names::is_qualified_name(kind), kind, &at.child("type")));
        errors.extend(one_of(&condition["status"], &["False", "True", "Unknown"], &at.child("status")));
        if condition["observedGeneration"].as_i64().is_some_and(|seen| seen < 0) {
            let detail = "must be greater than or equal to zero";
            let seen = condition["observedGeneration"].clone();
            errors.push(FieldError::invalid(&at.child("observedGeneration"), seen, detail));
        }
        if condition["lastTransitionTime"].is_null() {
            errors.push(FieldError::required(&at.child("lastTransitionTime"), ""));
        }
        errors.extend(condition_reason(text(&condition["reason"]), &at.child("reason")));
        if length(text(&condition["message"])) > MESSAGE_MAX {
            errors.push(FieldError::too_long(&at.child("message"), MESSAGE_MAX));
        }
    }
    errors
}

fn condition_reason(reason: &str, path: &Path<'_>) -> Faults {
    if reason.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = reason.as_bytes();
    let is_fine = bytes[0].is_ascii_alphabetic()
        && bytes.last().is_some_and(|b| is_word(*b))
        && bytes.iter().all(|b| is_word(*b) || b",:".contains(b));
    if !is_fine {
        let fault = names::regex_fault(
            "a condition reason must start with alphabetic character, optionally followed by a string of \
             alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
            REASON_FORMAT,
            &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
        );
        errors.push(FieldError::invalid(path, reason, fault));
    }
    if length(reason) > REASON_MAX {
        errors.push(FieldError::too_long(path, REASON_MAX));
    }
    errors
}

/// Bytes of a text.
pub(super) fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

/// Whether a condition of this type is true.
pub(super) fn has_condition(object: &Value, kind: &str) -> bool {
    list(&object["status"]["conditions"]).iter().any(|c| c["type"] == kind && c["status"] == "True")
}

/// A label selector as Go prints it.
pub(super) fn show_selector(selector: &Value) -> String {
    if selector.is_null() {
        return "null".to_owned();
    }
    let parts = ["matchLabels", "matchExpressions"].into_iter().filter(|field| is_set(&selector[*field]));
    let parts: Vec<String> = parts.map(|field| format!("{}:{}", quote(field), selector[field])).collect();
    format!("{{{}}}", parts.join(","))
}

/// `acme.io/path`.
pub(super) fn domain_prefixed_path(value: &str, path: &Path<'_>) -> Faults {
    const FORMAT: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
    if value.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let Some((host, rest)) =
        value.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![FieldError::invalid(path, value, detail)];
    };
    let mut errors: Faults = faults(names::is_subdomain(host), host, path).collect();
    let is_fine = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(is_fine) {
        errors.push(FieldError::invalid(path, rest, names::regex_fault("Invalid path", FORMAT, &[])));
    }
    errors
}

/// A domain of at least three parts.
pub(super) fn fully_qualified_name(name: &str, path: &Path<'_>) -> Option<FieldError> {
    if name.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let found = names::is_subdomain(name);
    if !found.is_empty() {
        return Some(FieldError::invalid(path, name, found.join(",")));
    }
    let detail = "should be a domain with at least three segments separated by dots";
    (name.split('.').count() < 3).then(|| FieldError::invalid(path, name, detail))
}
