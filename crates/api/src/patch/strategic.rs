//! Strategic merge patch: lists are merged by key, and directives say what else to do.
//!
//! Which lists merge, and by which key, is the `Shape` of the built-in type; custom resources have no
//! strategic merge. Directives: `$patch: replace|delete`, `$retainKeys`,
//! `$setElementOrder/field` and `$deleteFromPrimitiveList/field`.

mod order;
pub mod pod;

use serde_json::{Map, Value};

use super::PatchError;
use super::json::type_name;
use crate::gojson::syntax_error;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Reads a patch and applies it to an object of the type `shape`.
pub fn apply<S: Shape>(document: Value, patch: &[u8], shape: &S) -> Result<Value, PatchError> {
    let value: Value =
        serde_json::from_slice(patch).map_err(|_| PatchError::Malformed(syntax_error(patch)))?;
    match value {
        Value::Object(patch) => apply_fields(document, patch, shape),
        Value::Null => Ok(document),
        other => Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            type_name(&other)
        ))),
    }
}

/// Applies a patch that is already a tree.
pub fn apply_fields<S: Shape>(
    document: Value,
    patch: Map<String, Value>,
    shape: &S,
) -> Result<Value, PatchError> {
    let fields = match document {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    merge_map(fields, patch, Some(shape)).map(Value::Object)
}

/// What a merge has to know of a type, field by field.
pub trait Shape {
    /// A field of the object, or any value of the map.
    fn field(&self, name: &str) -> Option<&Self>;
    /// What the list holds.
    fn items(&self) -> Option<&Self>;
    /// Elements of the list are merged; else the list is replaced.
    fn merges(&self) -> bool;
    /// The object is replaced; else it is merged.
    fn replaces(&self) -> bool;
    /// The field that tells elements apart; empty for scalars.
    fn merge_key(&self) -> &str;
}

fn unexpected(text: impl Into<String>) -> PatchError {
    PatchError::Unexpected(text.into())
}

fn merge_map<S: Shape>(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    shape: Option<&S>,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order::set_orders(&mut original, &mut patch, shape)?;
    for (key, value) in patch {
        let deletes = key.starts_with(DELETE_FROM);
        let key = match deletes {
            true => directive_target(&key, DELETE_FROM)?.to_owned(),
            false => key,
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        merge_field(&mut original, key, value, deletes, shape)?;
    }
    Ok(original)
}

fn merge_field<S: Shape>(
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
    deletes: bool,
    shape: Option<&S>,
) -> Result<(), PatchError> {
    let below = shape.and_then(|shape| shape.field(&key));
    let merged = match (original.remove(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) => Some(match below.is_some_and(Shape::replaces) {
            true => Value::Object(new),
            false => Value::Object(merge_map(old, new, below)?),
        }),
        (Some(Value::Array(mut old)), Value::Array(new)) => {
            Some(Value::Array(merge_list(&mut old, new, deletes, below)?))
        }
        (old, _) if deletes => old,
        (Some(old), new) if same_scalar(&old, &new) => Some(new),
        (_, new) => strip_directives(discard_nulls(new)),
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

fn same_scalar(old: &Value, new: &Value) -> bool {
    matches!(
        (old, new),
        (Value::String(_), Value::String(_))
            | (Value::Bool(_), Value::Bool(_))
            | (Value::Number(_), Value::Number(_))
    )
}

/// The list field a directive such as `$setElementOrder/containers` speaks of.
fn directive_target<'a>(key: &'a str, prefix: &str) -> Result<&'a str, PatchError> {
    let what = if prefix == DELETE_FROM { "primitive list" } else { "setElementOrder list" };
    match key.split_once('/') {
        Some((found, target)) if found == prefix => Ok(target),
        _ => Err(PatchError::Malformed(format!("invalid patch format of {what}"))),
    }
}

/// With `$retainKeys`, fields that it does not name are dropped before the merge.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || PatchError::Malformed("invalid patch format of retainKeys".to_owned());
    let keys = keys.as_array().ok_or_else(bad)?;
    let named = |name: &String| keys.iter().any(|key| key == name);
    let directive = |name: &String| name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
    let stray = |(name, value): (&String, &Value)| !value.is_null() && !directive(name) && !named(name);
    if patch.iter().any(stray) {
        return Err(bad());
    }
    original.retain(|name, _| named(name));
    Ok(())
}

/// A list field of the patch, merged into the object's.
///
/// `original` is left as the API server leaves its own copy: elements that go make room for those
/// that come, and this, not the list as it was, then decides where server-only elements stand.
fn merge_list<S: Shape>(
    original: &mut [Value],
    patch: Vec<Value>,
    deletes: bool,
    shape: Option<&S>,
) -> Result<Vec<Value>, PatchError> {
    let merges = shape.is_some_and(Shape::merges);
    if !merges && !deletes {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(Vec::new());
    }
    let key = shape.map(Shape::merge_key).unwrap_or_default();
    let items = shape.and_then(Shape::items);
    if !is_list_of_maps(original, &patch)? {
        if deletes {
            return Ok(original.iter().filter(|item| !patch.contains(item)).cloned().collect());
        }
        let merged = order::deduplicate(original.iter().chain(&patch).cloned().collect());
        return order::arrange(merged, &patch, original, "");
    }
    if key.is_empty() {
        return Err(unexpected("cannot merge lists without merge key"));
    }
    let (mut kept, patch) = special_elements(original, patch, key)?;
    let server: Vec<Value> = kept.clone();
    for (place, element) in merge_elements(&mut kept, &patch, key, items)? {
        if let Some(slot) = original.get_mut(place) {
            *slot = element;
        }
    }
    order::arrange(kept, &patch, &server, key)
}

/// Whether the elements are objects. They must all be of one type.
fn is_list_of_maps(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut types = original.iter().chain(patch).map(type_name);
    let first = types.next().unwrap_or("null");
    if first == "array" {
        return Err(PatchError::DoesNotApply("lists of lists are not supported".to_owned()));
    }
    match types.all(|other| other == first) {
        true => Ok(first == "object"),
        false => {
            let lists = format!("[{} {}]", print_list(original), print_list(patch));
            Err(unexpected(format!("list element types are not identical: {lists}")))
        }
    }
}

/// Carries out `$patch` inside elements: what is left of the object's list, and of the patch.
fn special_elements(
    original: &mut [Value],
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::new();
    let mut length = original.len();
    let mut replaces = false;
    for element in patch {
        match element.get(DIRECTIVE) {
            None => plain.push(element),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let value = element.get(key).ok_or_else(|| no_merge_key(&element, key))?;
                    while let Some(at) = original[..length].iter().position(|old| old.get(key) == Some(value))
                    {
                        original[at..length].rotate_left(1);
                        length -= 1;
                    }
                }
                Some("replace") => replaces = true,
                Some("merge") => {
                    return Err(unexpected("merging lists cannot yet be specified in the patch"));
                }
                _ => {
                    let empty = Map::new();
                    return Err(unknown_directive(directive, element.as_object().unwrap_or(&empty)));
                }
            },
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (original[..length].to_vec(), plain) })
}

/// Merges the patch's elements into those with the same key; returns those that were new, and
/// where they went.
fn merge_elements<S: Shape>(
    original: &mut Vec<Value>,
    patch: &[Value],
    key: &str,
    shape: Option<&S>,
) -> Result<Vec<(usize, Value)>, PatchError> {
    let mut new = Vec::new();
    for element in patch {
        let value = element.get(key).ok_or_else(|| no_merge_key(element, key))?;
        let place = original.iter().position(|old| old.get(key) == Some(value));
        match (place, element) {
            (Some(place), Value::Object(patch)) => {
                let old = match std::mem::take(&mut original[place]) {
                    Value::Object(old) => old,
                    _ => Map::new(),
                };
                original[place] = Value::Object(merge_map(old, patch.clone(), shape)?);
            }
            _ => {
                new.push((original.len(), element.clone()));
                original.push(element.clone());
            }
        }
    }
    Ok(new)
}

/// Nulls in what is new to the object mean nothing.
fn discard_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, discard_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(discard_nulls).collect()),
        other => other,
    }
}

/// Directives have no place in the object itself; an object that holds one goes as a whole.
fn strip_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(name, value)| Some((name, strip_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(strip_directives).collect())),
        other => Some(other),
    }
}

fn no_merge_key(element: &Value, key: &str) -> PatchError {
    unexpected(format!("map: {} does not contain declared merge key: {key}", print(element)))
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    let map = print(&Value::Object(patch.clone()));
    unexpected(format!("unknown patch type: {} in map: {map}", print(directive)))
}

/// A value as Go's `%v` prints it.
pub fn print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => print_list(items),
        Value::Object(fields) => {
            let mut pairs: Vec<(&String, &Value)> = fields.iter().collect();
            pairs.sort_by_key(|(name, _)| *name);
            let pairs: Vec<String> =
                pairs.iter().map(|(name, value)| format!("{name}:{}", print(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        other => other.to_string(),
    }
}

fn print_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
