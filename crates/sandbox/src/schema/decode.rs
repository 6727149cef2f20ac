//! Reading a request body: types, unknown and repeated fields, and Go's words for what is wrong.
//!
//! A built-in object comes out as Go would hold it: empty values gone where Go drops them,
//! quantities and times in canonical form. Custom resources are read without a schema, and shaped
//! afterwards. `complete` adds what Go writes even when it is empty.

mod visitor;

use koord_api::gojson::syntax_error;
use serde_json::{Map, Value};

use super::fault::quote;
use super::{Kind, Schema, builtin, shape};

/// A body that could be read.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// `unknown field "…"` and `duplicate field "…"` in the order met: warnings, or with strict
    /// field validation the reasons to refuse.
    pub strict: Vec<String>,
}

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON at all; the text is that of Go's decoder.
    #[error("{0}")]
    Syntax(String),
    /// JSON of the wrong shape; the text is that of Go's decoder.
    #[error("{0}")]
    Type(String),
}

/// The strict decoding error that lists what a lenient reader would only warn of.
pub fn strict_error(faults: &[String]) -> String {
    format!("strict decoding error: {}", faults.join(", "))
}

/// Reads a built-in object of the type `go_name` (`Pod`).
pub fn decode(body: &[u8], schema: &Schema, go_name: &str) -> Result<Decoded, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let decoded = visitor::run(&mut deserializer, Some(schema), go_name);
    match (decoded, deserializer.end()) {
        (Ok(decoded), Ok(())) => decoded,
        _ => Err(DecodeError::Syntax(syntax_error(body))),
    }
}

/// Reads an object of a kind known only at run time, and reports repeated fields.
pub fn decode_untyped(body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let decoded = visitor::run(&mut deserializer, None, "");
    match (decoded, deserializer.end()) {
        (Ok(decoded), Ok(())) => decoded,
        _ => Err(DecodeError::Syntax(syntax_error(body))),
    }
}

/// Reads a custom resource: metadata as every object has it, the rest pruned to its schema. Nulls
/// and defaults are left to `shape`.
pub fn decode_custom(body: &[u8], schema: &Schema) -> Result<Decoded, DecodeError> {
    let Decoded { value, mut strict } = decode_untyped(body)?;
    let (value, unknown) = coerce(value, schema)?;
    strict.extend(unknown);
    Ok(Decoded { value, strict })
}

/// The same from a tree, for example the outcome of a patch.
pub fn decode_custom_value(value: Value, schema: &Schema) -> Result<Decoded, DecodeError> {
    let (value, strict) = coerce(value, schema)?;
    Ok(Decoded { value, strict })
}

fn coerce(mut value: Value, schema: &Schema) -> Result<(Value, Vec<String>), DecodeError> {
    let mut unknown: Vec<String> = Vec::new();
    if let Some(metadata) = value.get_mut("metadata") {
        let decoded = decode_value(metadata, builtin::object_meta(), "ObjectMeta")?;
        *metadata = decoded.value;
        // Places inside metadata are told from the object's root.
        unknown.extend(decoded.strict.iter().map(|fault| fault.replacen('"', "\"metadata.", 1)));
    }
    let pruned = shape::prune(&mut value, schema, true);
    unknown.extend(pruned.iter().map(|path| format!("unknown field {}", quote(path))));
    unknown.sort();
    Ok((value, unknown))
}

/// Reads a built-in object from a tree, for example the outcome of a patch.
pub fn decode_value(value: &Value, schema: &Schema, go_name: &str) -> Result<Decoded, DecodeError> {
    visitor::run(value, Some(schema), go_name)
        .unwrap_or_else(|error| Err(DecodeError::Syntax(error.to_string())))
}

/// Adds the fields that Go writes even when they are empty.
pub fn complete(value: &mut Value, schema: &Schema) {
    let schema = schema.resolve();
    match value {
        Value::Object(fields) if !schema.properties.is_empty() => {
            for (name, below) in &schema.properties {
                match fields.get_mut(name) {
                    Some(value) => complete(value, below),
                    None => {
                        if let Some(zero) = zero(below) {
                            fields.insert(name.clone(), zero);
                        }
                    }
                }
            }
        }
        Value::Object(fields) => {
            if let Some(below) = &schema.additional {
                fields.values_mut().for_each(|value| complete(value, below));
            }
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                items.iter_mut().for_each(|item| complete(item, below));
            }
        }
        _ => {}
    }
}

/// As `complete`, for an object about to rest: the form it rests in with Kubernetes knows no empty
/// lists, so those that Go writes always come back as null.
pub fn settle(value: &mut Value, schema: &Schema) {
    complete(value, schema);
    drop_empty_lists(value, schema);
}

fn drop_empty_lists(value: &mut Value, schema: &Schema) {
    let schema = schema.resolve();
    match value {
        Value::Object(fields) if !schema.properties.is_empty() => {
            for (name, value) in fields {
                let Some(below) = schema.properties.get(name) else { continue };
                match value {
                    Value::Array(items) if items.is_empty() => *value = Value::Null,
                    value => drop_empty_lists(value, below),
                }
            }
        }
        Value::Object(fields) => {
            if let Some(below) = &schema.additional {
                fields.values_mut().for_each(|value| drop_empty_lists(value, below));
            }
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                items.iter_mut().for_each(|item| drop_empty_lists(item, below));
            }
        }
        _ => {}
    }
}

/// What Go writes for a field nobody set; `None` where it writes nothing.
fn zero(schema: &Schema) -> Option<Value> {
    let go = schema.go.as_deref()?;
    let kind = schema.resolve().kind;
    if go.pointer {
        return go.always.then_some(Value::Null);
    }
    match kind {
        Kind::Object if !schema.resolve().properties.is_empty() && !go.omit_zero => {
            let mut value = Value::Object(Map::new());
            complete(&mut value, schema);
            Some(value)
        }
        // Structs without known fields and values of any shape write null when unset.
        Kind::Time | Kind::MicroTime => (!go.omit_zero).then_some(Value::Null),
        Kind::Quantity => Some("0".into()),
        Kind::IntOrString => Some(0.into()),
        _ if !go.always => None,
        Kind::String => Some("".into()),
        Kind::Integer | Kind::Number => Some(0.into()),
        Kind::Boolean => Some(false.into()),
        _ => Some(Value::Null),
    }
}

#[cfg(test)]
mod tests;
