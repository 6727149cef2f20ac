//! Reading and filling JSON objects by field name, absent and empty taken alike.

use serde_json::{Map, Value};

/// A text; empty when absent.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

pub(super) fn int(value: &Value, field: &str) -> Option<i64> {
    value.get(field).and_then(Value::as_i64)
}

pub(super) fn flag(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or(false)
}

/// The items of a list; none when absent.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The texts of a list.
pub(super) fn texts<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
    list(value, field).iter().filter_map(Value::as_str).collect()
}

/// The entries of a map, in order of key; none when absent.
pub(super) fn entries<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    value
        .get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value))
}

/// The entries of a map of texts.
pub(super) fn text_entries<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    entries(value, field).map(|(key, value)| (key, value.as_str().unwrap_or("")))
}

/// A field that is there and not null, whatever it holds.
pub(super) fn part<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    value.get(field).filter(|v| !v.is_null())
}

pub(super) fn has(value: &Value, field: &str) -> bool {
    part(value, field).is_some()
}

/// Whether a field is absent, null, or an empty text, list or map.
pub(super) fn is_empty(value: &Value, field: &str) -> bool {
    match value.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}

/// Sets a field that is absent, null or an empty text.
pub(super) fn fill(value: &mut Value, field: &str, default: impl Into<Value>) {
    let Some(fields) = value.as_object_mut() else { return };
    let is_absent = match fields.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if is_absent {
        fields.insert(field.to_owned(), default.into());
    }
}

/// Sets a number that is absent or zero.
pub(super) fn fill_number(value: &mut Value, field: &str, default: i64) {
    if int(value, field).unwrap_or(0) == 0 {
        set(value, field, default);
    }
}

pub(super) fn set(value: &mut Value, field: &str, new: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(field.to_owned(), new.into());
    }
}

pub(super) fn remove(value: &mut Value, field: &str) -> Option<Value> {
    value.as_object_mut().and_then(|fields| fields.remove(field))
}

/// The items of a list, to change.
pub(super) fn list_mut<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// A field that is an object, to change.
pub(super) fn part_mut<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    value.get_mut(field).filter(|v| v.is_object())
}

/// A map, made where it is absent.
pub(super) fn map_mut<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    let fields = value.as_object_mut()?;
    let found = fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if found.is_null() {
        *found = Value::Object(Map::new());
    }
    found.as_object_mut()
}
