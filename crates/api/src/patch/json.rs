//! JSON patch (RFC 6902), as lenient as the API server's.
//!
//! Lenient where the RFC is not: a field may be replaced before it exists, a missing field equals
//! null in a test and is copied as null, and places in lists may count from the end.

use serde_json::{Map, Value};

use super::PatchError;
use crate::gojson::syntax_error;

/// Operations one patch may hold.
const OPERATIONS_MAX: usize = 10_000;
/// Bytes that all copies of one patch may add up to: the size of the largest body.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Reads a patch and applies it.
pub fn apply(document: Value, patch: &[u8]) -> Result<Value, PatchError> {
    apply_operations(document, &parse(patch)?)
}

/// One step of a patch; what is not given is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    pub op: String,
    pub path: Option<String>,
    pub from: Option<String>,
    pub value: Option<Value>,
}

/// Reads the steps of a patch.
pub fn parse(patch: &[u8]) -> Result<Vec<Operation>, PatchError> {
    let decoding = |text: String| PatchError::Malformed(format!("error decoding patch: {text}"));
    let value: Value = serde_json::from_slice(patch).map_err(|_| decoding(syntax_error(patch)))?;
    let steps = match value {
        Value::Array(steps) => steps,
        other => {
            let found = type_name(&other);
            let text = format!("json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp");
            return Err(decoding(text));
        }
    };
    if steps.len() > OPERATIONS_MAX {
        let text = "The allowed maximum operations in a JSON patch is";
        return Err(PatchError::TooLarge(format!("{text} {OPERATIONS_MAX}, got {}", steps.len())));
    }
    steps.into_iter().map(|step| operation(step).map_err(decoding)).collect()
}

fn operation(step: Value) -> Result<Operation, String> {
    let mut fields = match step {
        Value::Object(fields) => fields,
        other => {
            let found = type_name(&other);
            return Err(format!("json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"));
        }
    };
    let mut text = |name: &str| match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!(
            "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
            type_name(&other)
        )),
    };
    Ok(Operation {
        op: text("op")?.unwrap_or_default(),
        path: text("path")?,
        from: text("from")?,
        value: fields.remove("value"),
    })
}

/// What a value is, as messages of the API server call it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Applies the steps in order; the first that fails fails the whole.
pub fn apply_operations(mut document: Value, operations: &[Operation]) -> Result<Value, PatchError> {
    let mut copied = 0;
    for operation in operations {
        step(&mut document, operation, &mut copied).map_err(PatchError::DoesNotApply)?;
    }
    Ok(document)
}

fn step(document: &mut Value, operation: &Operation, copied: &mut usize) -> Result<(), String> {
    let path = || operation.path.as_deref().ok_or("operation missing path field: missing value".to_owned());
    let from = || operation.from.as_deref().ok_or("operation, missing from field: missing value".to_owned());
    let value = || operation.value.clone().unwrap_or(Value::Null);
    match operation.op.as_str() {
        "add" => add(document, path()?, value()),
        "remove" => {
            let path = path()?;
            let removed = remove(document, path).map(drop);
            removed.map_err(|why| format!("error in remove for path: '{path}': {why}"))
        }
        "replace" => replace(document, path()?, value()),
        "move" => {
            let (from, path) = (from()?, path()?);
            let value = remove(document, from)?;
            add(document, path, value)
        }
        "copy" => {
            let value = get(document, from()?)?.cloned().unwrap_or(Value::Null);
            *copied += value.to_string().len();
            if *copied > COPIED_BYTES_MAX {
                return Err(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {COPIED_BYTES_MAX}"
                ));
            }
            add(document, path()?, value)
        }
        "test" => test(document, path()?, operation.value.as_ref()),
        other => Err(format!("Unexpected kind: {}", if other.is_empty() { "unknown" } else { other })),
    }
}

/// What a path ends in: an object or a list, and the key within it.
enum Place<'a> {
    Field(&'a mut Map<String, Value>, String),
    Element(&'a mut Vec<Value>, String),
}

fn find<'a>(document: &'a mut Value, path: &str) -> Result<Place<'a>, String> {
    let missing = || format!("doc is missing path: {path:?}: missing value");
    let mut parts = path.split('/').skip(1).map(unescape).collect::<Vec<String>>();
    let key = parts.pop().ok_or_else(missing)?;
    let mut current = document;
    for part in parts {
        current = match current {
            Value::Object(fields) => fields.get_mut(&part).ok_or_else(missing)?,
            Value::Array(items) => {
                let index = index(&part, items.len()).ok().filter(|index| *index < items.len());
                index.and_then(|index| items.get_mut(index)).ok_or_else(missing)?
            }
            _ => return Err(missing()),
        };
    }
    match current {
        Value::Object(fields) => Ok(Place::Field(fields, key)),
        Value::Array(items) => Ok(Place::Element(items, key)),
        _ => Err(missing()),
    }
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// A place in a list; negative ones count from `length`.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let invalid = || format!("Unable to access invalid index: {key}: invalid index referenced");
    let place: i64 = key.parse().map_err(|_| format!("value was not a proper array index: '{key}'"))?;
    if place >= 0 {
        return usize::try_from(place).map_err(|_| invalid());
    }
    let length = i64::try_from(length).map_err(|_| invalid())?;
    usize::try_from(length + place).map_err(|_| invalid())
}

fn existing(key: &str, length: usize) -> Result<usize, String> {
    let invalid = || format!("Unable to access invalid index: {key}: invalid index referenced");
    index(key, length).and_then(|place| if place < length { Ok(place) } else { Err(invalid()) })
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    match find(document, path)? {
        Place::Field(fields, key) => {
            fields.insert(key, value);
        }
        Place::Element(items, key) if key == "-" => items.push(value),
        Place::Element(items, key) => {
            let place = existing(&key, items.len() + 1)?;
            items.insert(place, value);
        }
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    match find(document, path)? {
        Place::Field(fields, key) => fields
            .remove(&key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Place::Element(items, key) => {
            let place = existing(&key, items.len())?;
            Ok(items.remove(place))
        }
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    match find(document, path)? {
        Place::Field(fields, key) => {
            fields.insert(key, value);
        }
        Place::Element(items, key) => {
            let place = existing(&key, items.len())?;
            items[place] = value;
        }
    }
    Ok(())
}

fn get<'a>(document: &'a mut Value, path: &str) -> Result<Option<&'a Value>, String> {
    match find(document, path)? {
        Place::Field(fields, key) => Ok(fields.get(&key)),
        Place::Element(items, key) => {
            let place = existing(&key, items.len())?;
            Ok(items.get(place))
        }
    }
}

fn test(document: &mut Value, path: &str, wanted: Option<&Value>) -> Result<(), String> {
    let found = match path.is_empty() {
        true => Some(&*document),
        false => get(document, path)?,
    };
    let wanted = wanted.unwrap_or(&Value::Null);
    match found.unwrap_or(&Value::Null) == wanted {
        true => Ok(()),
        false => Err(format!("testing value {path} failed: test failed")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(patch: Value) -> Result<Value, PatchError> {
        apply(json!({"data": {"a": "1"}, "list": ["x", "y"]}), patch.to_string().as_bytes())
    }

    #[test]
    fn operations() {
        for (patch, want) in [
            (
                json!([{"op": "add", "path": "/data/b", "value": "2"}]),
                json!({"data": {"a": "1", "b": "2"}, "list": ["x", "y"]}),
            ),
            (
                json!([{"op": "add", "path": "/list/1", "value": "z"}]),
                json!({"data": {"a": "1"}, "list": ["x", "z", "y"]}),
            ),
            (
                json!([{"op": "add", "path": "/list/-", "value": "z"}]),
                json!({"data": {"a": "1"}, "list": ["x", "y", "z"]}),
            ),
            (
                json!([{"op": "add", "path": "/list/-1", "value": "z"}]),
                json!({"data": {"a": "1"}, "list": ["x", "y", "z"]}),
            ),
            (json!([{"op": "remove", "path": "/list/0"}]), json!({"data": {"a": "1"}, "list": ["y"]})),
            (
                json!([{"op": "replace", "path": "/data/new", "value": "2"}]),
                json!({"data": {"a": "1", "new": "2"}, "list": ["x", "y"]}),
            ),
            (
                json!([{"op": "copy", "from": "/data/none", "path": "/data/b"}]),
                json!({"data": {"a": "1", "b": null}, "list": ["x", "y"]}),
            ),
            (
                json!([{"op": "move", "from": "/data/a", "path": "/data/b~1c"}]),
                json!({"data": {"b/c": "1"}, "list": ["x", "y"]}),
            ),
            (
                json!([{"op": "test", "path": "/data/none", "value": null}, {"op": "replace", "path": "", "value": {}}]),
                json!({}),
            ),
        ] {
            assert_eq!(run(patch.clone()), Ok(want), "{patch}");
        }
    }

    #[test]
    fn what_does_not_apply() {
        for patch in [
            json!([{"op": "test", "path": "/data/a", "value": "2"}]),
            json!([{"op": "remove", "path": "/data/z"}]),
            json!([{"op": "add", "path": "/dat/z", "value": "1"}]),
            json!([{"op": "move", "path": "/data/z", "from": "/data/q"}]),
            json!([{"op": "copy", "path": "/data/z"}]),
            json!([{"op": "foo", "path": "/data/z"}]),
            json!([{"path": "/data/z"}]),
            json!([{"op": "add", "path": "/list/5", "value": "z"}]),
            json!([{"op": "add", "path": "/list/x", "value": "z"}]),
            json!([{"op": "replace", "path": "/list/2", "value": "z"}]),
            json!([{"op": "add", "path": "data", "value": "z"}]),
            json!([{"op": "remove", "path": ""}]),
            json!([{"op": "add", "value": "z"}]),
            json!([{"op": "add", "path": "/data/a/c", "value": 1}]),
        ] {
            assert!(matches!(run(patch.clone()), Err(PatchError::DoesNotApply(_))), "{patch}");
        }
    }

    #[test]
    fn what_is_no_patch() {
        for (patch, want) in [
            ("x", "invalid character 'x' looking for beginning of value"),
            ("", "unexpected end of JSON input"),
            ("{}", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            ("[1]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        ] {
            let want = PatchError::Malformed(format!("error decoding patch: {want}"));
            assert_eq!(apply(json!({}), patch.as_bytes()), Err(want), "{patch}");
        }
        let long =
            serde_json::to_vec(&vec![json!({"op": "test", "path": "/a"}); OPERATIONS_MAX + 1]).unwrap();
        assert!(matches!(apply(json!({}), &long), Err(PatchError::TooLarge(_))));
    }
}
