//! Whether a value keeps the limits of its schema, and the API server's words when it does not.

use serde_json::{Number, Value};

use super::fault::{Fault, print_float, print_number, quote};
use super::{Checks, FieldError, Kind, ListType, Schema, format};

/// Where Kubernetes knows no path, it prints this.
pub(super) const NO_PATH: &str = "<nil>";

/// Faults of a new value. Fields are checked in name order, so the answer is stable.
pub fn validate(value: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut faults = node(value, None, schema, "").faults;
    list_types(value, schema, "", &mut faults);
    embedded(value, schema, "", &mut faults);
    faults
}

/// Faults of a changed value. What was wrong before and is unchanged stays allowed, so that an
/// object stored under an older schema can still be updated elsewhere.
pub fn validate_update(value: &Value, old: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut faults = node(value, Some(old), schema, "").faults;
    list_types(value, schema, "", &mut faults);
    embedded(value, schema, "", &mut faults);
    faults
}

/// Faults of one value, and how many checks it passed: of several alternatives that all fail, the
/// one that came furthest is reported.
#[derive(Default)]
struct Verdict {
    faults: Vec<FieldError>,
    passed: usize,
}

impl Verdict {
    fn add(&mut self, fault: FieldError) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn merge(&mut self, other: Verdict) {
        self.passed += other.passed;
        other.faults.into_iter().for_each(|fault| self.add(fault));
    }

    fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }
}

fn node(value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Verdict {
    let no_checks = Checks::default();
    let checks = schema.checks.as_deref().unwrap_or(&no_checks);
    let mut verdict = Verdict::default();
    let format = if format::is_known(&checks.format) { checks.format.as_str() } else { "" };
    match check_type(value, schema, format, path) {
        Some(fault) => verdict.add(fault),
        None => verdict.passed += 1,
    }
    if schema.kind != Kind::Any || !format.is_empty() {
        verdict.passed += 1;
    }
    if !value.is_null() {
        verdict.merge(branches(value, old, checks, path));
        match value {
            Value::String(text) => string(text, checks, format, path, &mut verdict),
            Value::Number(number) => check_number(number, checks, path, &mut verdict),
            Value::Array(items) => list(items, old, schema, checks, path, &mut verdict),
            _ => {}
        }
        verdict.passed += 1;
    }
    allowed(value, checks, path, &mut verdict);
    if let Value::Object(fields) = value {
        object(fields, old, schema, checks, path, &mut verdict);
        verdict.passed += 1;
    }
    if old == Some(value) && !verdict.is_valid() {
        verdict.faults.clear();
    }
    verdict
}

/// The type of a value and the format that numbers carry in the texts.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn check_type(value: &Value, schema: &Schema, format: &str, path: &str) -> Option<FieldError> {
    let wanted = schema.kind;
    let accepts = |found: &str| wanted.name().split(',').any(|name| name == found);
    let (found, number_format) = type_of(value);
    if value.is_null() {
        let wrong = wanted != Kind::Any && !schema.nullable;
        return wrong.then(|| wrong_type(path, wanted.name(), found));
    }
    if wanted == Kind::Any && format.is_empty() {
        return None;
    }
    let whole_float = value.as_f64().is_some_and(|float| float.fract() == 0.0) && accepts("integer");
    let number = value.is_number() && accepts("number");
    let fits = accepts(found) || whole_float || number;
    let texts = matches!(value, Value::String(_) | Value::Array(_));
    if !texts && !format.is_empty() && !fits {
        return Some(wrong_type(path, format, number_format));
    }
    if texts && !format.is_empty() && !accepts("number") && !accepts("integer") {
        return None;
    }
    (!fits).then(|| wrong_type(path, wanted.name(), found))
}

fn wrong_type(path: &str, wanted: &str, found: &str) -> FieldError {
    let detail = format!("{path} in body must be of type {wanted}: {}", quote(found));
    FieldError::type_invalid(field(path), found, detail)
}

/// The field of a path; the object itself has none.
fn field(path: &str) -> &str {
    let field = path.strip_prefix('.').unwrap_or(path);
    if field.is_empty() { NO_PATH } else { field }
}

fn limit(path: &str, value: impl Into<Value>, text: String) -> FieldError {
    FieldError::invalid(field(path), value, format!("{path} in body {text}"))
}

fn composite(text: String) -> FieldError {
    FieldError::invalid(NO_PATH, "", text)
}

/// anyOf, oneOf, allOf and not.
fn branches(value: &Value, old: Option<&Value>, checks: &Checks, path: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let try_all = |schemas: &[Schema]| -> Vec<Verdict> {
        schemas.iter().map(|schema| node(value, old, schema, path)).collect()
    };
    if !checks.any_of.is_empty() {
        let tried = try_all(&checks.any_of);
        if !tried.iter().any(Verdict::is_valid) {
            verdict.add(composite(format!("{} must validate at least one schema (anyOf)", quote(path))));
        }
        verdict.merge(closest(tried));
    }
    if !checks.one_of.is_empty() {
        let tried = try_all(&checks.one_of);
        let valid = tried.iter().filter(|one| one.is_valid()).count();
        if valid != 1 {
            let found = match valid {
                0 => "Found none valid".to_owned(),
                valid => format!("Found {valid} valid alternatives"),
            };
            let text = format!("{} must validate one and only one schema (oneOf). {found}", quote(path));
            verdict.add(composite(text));
        }
        if valid < 2 {
            verdict.merge(closest(tried));
        }
    }
    let tried = try_all(&checks.all_of);
    let (count, valid) = (tried.len(), tried.iter().filter(|one| one.is_valid()).count());
    tried.into_iter().for_each(|one| verdict.merge(one));
    if valid != count {
        let none = if valid == 0 { ". None validated" } else { "" };
        verdict.add(composite(format!("{} must validate all the schemas (allOf){none}", quote(path))));
    }
    if checks.not.as_ref().is_some_and(|not| node(value, old, not, path).is_valid()) {
        verdict.add(composite(format!("{} must not validate the schema (not)", quote(path))));
    }
    verdict.passed += 1;
    verdict
}

/// The first alternative that holds, or else the one that came furthest.
fn closest(tried: Vec<Verdict>) -> Verdict {
    let mut best: Option<Verdict> = None;
    for one in tried {
        if one.is_valid() {
            return one;
        }
        if best.as_ref().is_none_or(|best| one.passed > best.passed) {
            best = Some(one);
        }
    }
    best.unwrap_or_default()
}

fn string(text: &str, checks: &Checks, format: &str, path: &str, verdict: &mut Verdict) {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let pattern = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text));
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        verdict.add(FieldError::too_long(field(path), max));
    } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
        verdict.add(limit(path, text, format!("should be at least {min} chars long")));
    } else if let Some(pattern) = pattern {
        verdict.add(limit(path, text, format!("should match '{}'", pattern.as_str())));
    }
    verdict.passed += 1;
    if format.is_empty() {
        return;
    }
    if !format::matches(format, text) {
        let detail = format!("{path} in body must be of type {format}: {}", quote(text));
        verdict.add(FieldError::type_invalid(field(path), text, detail));
    }
    verdict.passed += 1;
}

/// Whole numbers are compared with the limit cut to a whole number, as the API server does.
fn check_number(number: &Number, checks: &Checks, path: &str, verdict: &mut Verdict) {
    let whole = number.as_i64().is_some();
    let value = number.as_f64().unwrap_or_default();
    let bound = |limit: f64| if whole { limit.trunc() } else { limit };
    let outside = |limit: f64, exclusive: bool, sign: f64| {
        let over = (value - bound(limit)) * sign;
        over > 0.0 || (exclusive && over == 0.0)
    };
    if let Some(factor) = checks.multiple_of {
        let quotient = if factor < 1.0 { value * (1.0 / factor) } else { value / bound(factor) };
        if quotient.fract() != 0.0 {
            let text = format!("should be a multiple of {}", print_float(bound(factor)));
            verdict.add(limit(path, number.clone(), text));
        }
    }
    if let Some(minimum) = checks.minimum.filter(|min| outside(*min, checks.exclusive_minimum, -1.0)) {
        let words = if checks.exclusive_minimum { "greater than" } else { "greater than or equal to" };
        verdict.add(limit(
            path,
            number.clone(),
            format!("should be {words} {}", print_float(bound(minimum))),
        ));
    }
    if let Some(maximum) = checks.maximum.filter(|max| outside(*max, checks.exclusive_maximum, 1.0)) {
        let words = if checks.exclusive_maximum { "less than" } else { "less than or equal to" };
        verdict.add(limit(
            path,
            number.clone(),
            format!("should be {words} {}", print_float(bound(maximum))),
        ));
    }
    verdict.passed += 2;
}

fn list(
    items: &[Value],
    old: Option<&Value>,
    schema: &Schema,
    checks: &Checks,
    path: &str,
    verdict: &mut Verdict,
) {
    if let Some(below) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            let old = old.and_then(|old| correlate(item, old, &schema.list_type));
            verdict.merge(node(item, old, below, &format!("{path}[{index}]")));
        }
    }
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(min) = checks.min_items.filter(|min| count < *min) {
        verdict.add(limit(path, count, format!("should have at least {min} items")));
    }
    if let Some(max) = checks.max_items.filter(|max| count > *max) {
        verdict.add(FieldError::too_many(field(path), count, max));
    }
    let repeated = || (1..items.len()).any(|index| items[..index].contains(&items[index]));
    if checks.unique_items && repeated() {
        verdict.add(limit(path, "", "shouldn't contain duplicates".to_owned()));
    }
    verdict.passed += 2;
}

/// The element of the old list that is the same one: only lists with keys can tell.
fn correlate<'a>(item: &Value, old: &'a Value, list_type: &ListType) -> Option<&'a Value> {
    let ListType::Map(keys) = list_type else { return None };
    let same = |other: &&Value| keys.iter().all(|key| item.get(key) == other.get(key));
    old.as_array()?.iter().find(same)
}

fn allowed(value: &Value, checks: &Checks, path: &str, verdict: &mut Verdict) {
    verdict.passed += 1;
    if checks.allowed.is_empty() {
        return;
    }
    let same = |one: &Value| match (one.as_f64(), value.as_f64()) {
        (Some(one), Some(value)) => one == value,
        _ => one == value,
    };
    if !value.is_null() && checks.allowed.iter().any(same) {
        return;
    }
    let names: Vec<String> = checks
        .allowed
        .iter()
        .map(|one| match one {
            Value::String(text) => text.clone(),
            Value::Number(number) => print_number(number),
            other => other.to_string(),
        })
        .collect();
    verdict.add(FieldError::not_supported(field(path), value.clone(), names.iter().map(String::as_str)));
}

fn object(
    fields: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    schema: &Schema,
    checks: &Checks,
    path: &str,
    verdict: &mut Verdict,
) {
    let count = i64::try_from(fields.len()).unwrap_or(i64::MAX);
    if let Some(min) = checks.min_properties.filter(|min| count < *min) {
        verdict.add(limit(path, count, format!("should have at least {min} properties")));
    }
    if let Some(max) = checks.max_properties.filter(|max| count > *max) {
        verdict.add(FieldError::too_many(field(path), count, max));
    }
    for (name, value) in fields {
        // At the root these two say what the object is, and change with the version asked for.
        let old = old.filter(|_| !(path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind")));
        let old = old.and_then(|old| old.get(name));
        if let Some(below) = schema.properties.get(name) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            verdict.merge(node(value, old, below, &path));
        } else if let Some(below) = &schema.additional {
            verdict.merge(node(value, old, below, &format!("{path}.{name}")));
        }
    }
    for name in checks.required.iter().filter(|name| !fields.contains_key(*name)) {
        verdict.add(FieldError::required(field(&format!("{path}.{name}")), ""));
    }
}

/// Elements of sets, and keys of keyed lists, may stand only once.
fn list_types(value: &Value, schema: &Schema, path: &str, faults: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(below) = schema.properties.get(name) {
                    list_types(value, below, &join(path, name), faults);
                } else if let Some(below) = &schema.additional {
                    list_types(value, below, &format!("{path}[{name}]"), faults);
                }
            }
        }
        Value::Array(items) => {
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => duplicates(items.clone(), path, faults),
                ListType::Map(keys) => keyed(items, keys, path, faults),
            }
            if let Some(below) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    list_types(item, below, &format!("{path}[{index}]"), faults);
                }
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn keyed(items: &[Value], keys: &[String], path: &str, faults: &mut Vec<FieldError>) {
    let is_object = |item: &Value| item.is_object() || item.is_null();
    if let Some(index) = items.iter().position(|item| !is_object(item)) {
        return faults.push(FieldError::invalid(
            format!("{path}[{index}]"),
            items[index].clone(),
            "must be an object for an array of list-type map",
        ));
    }
    let key_of = |item: &Value| {
        let present = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(present.collect())
    };
    duplicates(items.iter().map(key_of).collect(), path, faults);
}

/// Each repeated value is reported once, at its second place.
fn duplicates(values: Vec<Value>, path: &str, faults: &mut Vec<FieldError>) {
    for (index, value) in values.iter().enumerate() {
        let before = values[..index].iter().filter(|other| *other == value).count();
        if before == 1 {
            faults.push(FieldError::duplicate(format!("{path}[{index}]"), value.clone()));
        }
    }
}

/// A whole object inside an object must say what it is.
fn embedded(value: &Value, schema: &Schema, path: &str, faults: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if schema.embedded {
                type_meta(fields, path, faults);
            }
            for (name, value) in fields {
                if let Some(below) = schema.properties.get(name) {
                    embedded(value, below, &join(path, name), faults);
                } else if let Some(below) = &schema.additional {
                    embedded(value, below, &format!("{path}[{name}]"), faults);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                embedded(item, below, &format!("{path}[{index}]"), faults);
            }
        }
        _ => {}
    }
}

fn type_meta(fields: &serde_json::Map<String, Value>, path: &str, faults: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let field = join(path, name);
        match fields.get(name) {
            None => faults.push(FieldError::new(Fault::Required, field, None, "")),
            Some(Value::String(text)) if text.is_empty() => {
                faults.push(FieldError::invalid(field, "", "must not be empty"));
            }
            Some(Value::String(_)) => {}
            Some(other) => faults.push(FieldError::invalid(field, other.clone(), "must be a string")),
        }
    }
}
