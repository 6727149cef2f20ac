//! Bringing an object into the shape of its schema: unknown fields out, nulls out, defaults in.
//!
//! The order on every write is `prune`, `drop_nulls`, `fill_defaults`; then it is validated.

use serde_json::{Map, Value};

use super::Schema;

/// Drops fields that have no place in the schema, and returns their paths, sorted.
///
/// With `resource` the value is a whole object, whose apiVersion, kind and metadata are known
/// whatever the schema says.
pub fn prune(value: &mut Value, schema: &Schema, resource: bool) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), unknown: Vec::new() };
    pruner.node(value, Some(schema), resource || schema.embedded);
    pruner.unknown.sort();
    pruner.unknown
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    fn node(&mut self, value: &mut Value, schema: Option<&Schema>, resource: bool) {
        match value {
            Value::Object(fields) => self.fields(fields, schema, resource),
            Value::Array(items) => {
                let keep_unknown = schema.is_some_and(|schema| schema.preserve_unknown);
                let below = schema.and_then(|schema| schema.items.as_deref());
                if keep_unknown && below.is_none() {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    self.node(item, below, below.is_some_and(|schema| schema.embedded));
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, fields: &mut Map<String, Value>, schema: Option<&Schema>, resource: bool) {
        let keep_unknown = schema.is_some_and(|schema| schema.preserve_unknown);
        fields.retain(|name, value| {
            let meta = matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            if resource && meta {
                return true;
            }
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            let below = schema.and_then(|schema| schema.field(name));
            let known = below.is_some();
            match below {
                Some(schema) => self.node(value, Some(schema), schema.embedded),
                None if keep_unknown => {}
                None => self.unknown.push(self.path.clone()),
            }
            self.path.truncate(length);
            known || keep_unknown
        });
    }
}

/// Drops null where the schema allows none and has no default to put in its place.
pub fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| match schema.field(name) {
            Some(below) if value.is_null() => below.nullable || below.default.is_some(),
            Some(below) => {
                drop_nulls(value, below);
                true
            }
            None => true,
        }),
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                items.iter_mut().for_each(|item| drop_nulls(item, below));
            }
        }
        _ => {}
    }
}

/// Fills defaults into objects that are present.
pub fn fill_defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => {
            for (name, below) in &schema.properties {
                let Some(default) = &below.default else { continue };
                let missing = fields.get(name).is_none_or(|value| value.is_null() && !below.nullable);
                if missing {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(below) = schema.field(name) {
                    stand_in(value, below);
                    fill_defaults(value, below);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for item in items {
                stand_in(item, below);
                fill_defaults(item, below);
            }
        }
        _ => {}
    }
}

/// Puts the default in place of a null that may not stay.
fn stand_in(value: &mut Value, schema: &Schema) {
    if let Some(default) = schema.default.as_ref().filter(|_| value.is_null() && !schema.nullable) {
        *value = default.clone();
    }
}
