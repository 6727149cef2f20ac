//! JSON merge patch (RFC 7386), and the patch that leads from one object to another.

use serde_json::{Map, Value};

use super::PatchError;
use super::json::type_name;
use crate::gojson::syntax_error;

/// Reads a patch and applies it.
pub fn apply(document: Value, patch: &[u8]) -> Result<Value, PatchError> {
    let value: Value = serde_json::from_slice(patch)
        .map_err(|_| PatchError::Malformed(format!("error decoding patch: {}", syntax_error(patch))))?;
    match value {
        Value::Object(patch) => Ok(apply_fields(document, patch)),
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            type_name(&other)
        ))),
    }
}

/// Applies a patch that is already a tree.
pub fn apply_fields(mut document: Value, patch: Map<String, Value>) -> Value {
    match &mut document {
        Value::Object(fields) => {
            merge(fields, patch);
            document
        }
        _ => drop_nulls(Value::Object(patch)),
    }
}

fn merge(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match (fields.get_mut(&name), value) {
            (_, Value::Null) => {
                fields.remove(&name);
            }
            (Some(Value::Object(below)), Value::Object(patch)) => merge(below, patch),
            // Differs from the RFC as the API server does: nulls inside lists' objects go too,
            // except where the list takes the place of an object.
            (Some(Value::Object(_)), value) => {
                fields.insert(name, value);
            }
            (_, value) => {
                fields.insert(name, drop_nulls(value));
            }
        }
    }
}

fn drop_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, drop_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(drop_nulls).collect()),
        other => other,
    }
}

/// The smallest merge patch that turns `from` into `to`.
pub fn diff(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        match (from.get(name), value) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(name.clone(), Value::Object(diff(old, new)));
            }
            (_, new) => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::tests::any_json;
    use super::*;

    #[test]
    fn patches() {
        for (document, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": [1]}), json!({"a": [{"b": null, "c": 1}]}), json!({"a": [{"c": 1}]})),
        ] {
            let text = patch.to_string();
            assert_eq!(apply(document, text.as_bytes()), Ok(want), "{text}");
        }
        let refused = |patch: &str| apply(json!({}), patch.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused("null"), "Invalid JSON Patch");
        assert_eq!(
            refused("[]"),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }

    proptest! {
        /// Merge patches cannot set null, so the target has none.
        #[test]
        fn diff_leads_to_the_target(from in any_json(), to in any_json()) {
            let (from, to) = (drop_nulls(from), drop_nulls(to));
            if let (Value::Object(old), Value::Object(new)) = (&from, &to) {
                let patch = diff(old, new);
                prop_assert_eq!(apply_fields(from.clone(), patch), to);
            }
        }
    }
}
