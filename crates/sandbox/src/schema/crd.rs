//! The schema of a custom resource, from its CRD's openAPIV3Schema.
//!
//! `parse` refuses what the API server refuses (`structural` holds those rules) and, beyond it,
//! rules written in CEL, which nothing here could check.

mod structural;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Checks, FieldError, Kind, ListType, Pattern, Schema, shape, validate};

/// Reads an openAPIV3Schema. `path` is where it stands in the CRD, for the texts of faults:
/// `spec.versions[0].schema.openAPIV3Schema`, or `spec.validation.openAPIV3Schema` when all
/// versions share one, as the API server names it.
pub fn parse(raw: &Value, path: &str) -> Result<Schema, Vec<FieldError>> {
    let (mut faults, mut forbidden) = structural::check(raw, path);
    find_rules(raw, path, &mut forbidden);
    if !faults.is_empty() {
        faults.extend(forbidden);
        return Err(faults);
    }
    let schema = convert(raw);
    check_defaults(&schema, path, true, false, &mut faults);
    faults.extend(forbidden);
    match faults.is_empty() {
        true => Ok(schema),
        false => Err(faults),
    }
}

/// The tree of a schema already known to be sound.
fn convert(raw: &Value) -> Schema {
    let Some(fields) = raw.as_object() else { return Schema::default() };
    let flag = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or(false);
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Schema {
        kind: kind(fields),
        properties: properties(fields),
        additional: additional(fields),
        items: fields.get("items").map(|items| Box::new(convert(items))),
        nullable: flag("nullable"),
        default: fields.get("default").filter(|value| !value.is_null()).cloned(),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        list_type: list_type(fields),
        atomic: fields.get("x-kubernetes-map-type").map(|value| value == "atomic"),
        checks: checks(fields),
        title: text("title"),
        description: text("description"),
        ..Schema::default()
    }
}

fn kind(fields: &Map<String, Value>) -> Kind {
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return Kind::IntOrString;
    }
    match fields.get("type").and_then(Value::as_str).unwrap_or_default() {
        "object" => Kind::Object,
        "array" => Kind::List,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => Kind::Any,
    }
}

fn properties(fields: &Map<String, Value>) -> BTreeMap<String, Schema> {
    let raw = fields.get("properties").and_then(Value::as_object);
    raw.into_iter().flatten().map(|(name, raw)| (name.clone(), convert(raw))).collect()
}

fn additional(fields: &Map<String, Value>) -> Option<Box<Schema>> {
    match fields.get("additionalProperties")? {
        // Values of a map without a schema have no fields of their own: they are pruned bare.
        Value::Bool(true) => Some(Box::new(Schema { nullable: true, ..Schema::default() })),
        Value::Object(_) => fields.get("additionalProperties").map(|raw| Box::new(convert(raw))),
        _ => None,
    }
}

fn list_type(fields: &Map<String, Value>) -> ListType {
    let keys = || {
        let raw = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        raw.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(keys()),
        _ => ListType::Atomic,
    }
}

fn checks(fields: &Map<String, Value>) -> Option<Box<Checks>> {
    let number = |name: &str| fields.get(name).and_then(Value::as_f64);
    let count = |name: &str| fields.get(name).and_then(Value::as_i64);
    let flag = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or(false);
    let list = |name: &str| fields.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let schemas = |name: &str| list(name).iter().map(convert).collect::<Vec<Schema>>();
    let checks = Checks {
        required: list("required").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        allowed: list("enum"),
        format: fields.get("format").and_then(Value::as_str).unwrap_or_default().to_owned(),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        pattern: fields.get("pattern").and_then(Value::as_str).and_then(|text| Pattern::new(text).ok()),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: schemas("allOf"),
        any_of: schemas("anyOf"),
        one_of: schemas("oneOf"),
        not: fields.get("not").map(|raw| Box::new(convert(raw))),
    };
    checks.any().then(|| Box::new(checks))
}

impl Checks {
    /// Whether there is anything to check at all: most fields have nothing.
    fn any(&self) -> bool {
        let numbers = [self.minimum, self.maximum, self.multiple_of];
        let counts = [
            self.min_length,
            self.max_length,
            self.min_items,
            self.max_items,
            self.min_properties,
            self.max_properties,
        ];
        let branches = self.all_of.len() + self.any_of.len() + self.one_of.len();
        numbers.iter().any(Option::is_some)
            || counts.iter().any(Option::is_some)
            || branches + self.required.len() + self.allowed.len() > 0
            || self.pattern.is_some()
            || self.not.is_some()
            || self.unique_items
            || !self.format.is_empty()
    }
}

/// A rule nobody checks would be a promise broken in silence, so the CRD is refused.
fn find_rules(raw: &Value, path: &str, faults: &mut Vec<FieldError>) {
    for (name, below) in raw.as_object().into_iter().flatten() {
        match name.as_str() {
            "x-kubernetes-validations" if below.as_array().is_some_and(|rules| !rules.is_empty()) => {
                faults.push(FieldError::forbidden(
                    format!("{path}.x-kubernetes-validations"),
                    "this API server cannot check CEL rules; remove them to install the definition here",
                ));
            }
            "properties" => {
                for (name, below) in below.as_object().into_iter().flatten() {
                    find_rules(below, &format!("{path}.properties[{name}]"), faults);
                }
            }
            "items" | "additionalProperties" | "not" => {
                find_rules(below, &format!("{path}.{name}"), faults);
            }
            "allOf" | "anyOf" | "oneOf" => {
                for (index, below) in below.as_array().into_iter().flatten().enumerate() {
                    find_rules(below, &format!("{path}.{name}[{index}]"), faults);
                }
            }
            _ => {}
        }
    }
}

/// A default must itself be valid and free of unknown fields.
fn check_defaults(schema: &Schema, path: &str, root: bool, in_meta: bool, faults: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        let field = format!("{path}.default");
        let mut pruned = default.clone();
        if !in_meta && !shape::prune(&mut pruned, schema, schema.embedded).is_empty() {
            faults.push(FieldError::invalid(&field, default.clone(), "must not have unknown fields"));
        }
        for mut fault in validate::validate(default, schema) {
            fault.field = match fault.field.as_str() {
                validate::NO_PATH => field.clone(),
                below => format!("{field}.{below}"),
            };
            faults.push(fault);
        }
    }
    if let Some(items) = &schema.items {
        check_defaults(items, &format!("{path}.items"), false, in_meta, faults);
    }
    for (name, below) in &schema.properties {
        let meta = in_meta
            || ((root || schema.embedded) && matches!(name.as_str(), "metadata" | "apiVersion" | "kind"));
        check_defaults(below, &format!("{path}.properties[{name}]"), false, meta, faults);
    }
}

#[cfg(test)]
mod spec_tests;
#[cfg(test)]
mod tests;
