//! Which openAPIV3Schemas are structural, and what the API server says of those that are not.
//!
//! Works on the raw document, because what is forbidden (a description inside `anyOf`) does not
//! survive into the tree.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::{FieldError, Pattern};

/// The faults that make a schema unusable, and those that forbid it all the same.
pub(super) fn check(raw: &Value, path: &str) -> (Vec<FieldError>, Vec<FieldError>) {
    let node = Node::new(raw);
    let mut faults = Vec::new();
    if node.flag("nullable") {
        faults.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let mut structural = Vec::new();
    invariants(node, Level::Root, path, &mut structural);
    completeness(node, Some(node), path, path, &mut structural);
    structural.sort_by_key(FieldError::to_string);
    faults.extend(structural);
    let mut forbidden = Vec::new();
    standard(node, path, Place { root: true, in_meta: false, no_default: "" }, &mut forbidden);
    (faults, forbidden)
}

/// A node of the raw schema; absent fields read as their zero value.
#[derive(Clone, Copy)]
struct Node<'a>(Option<&'a Map<String, Value>>);

impl<'a> Node<'a> {
    fn new(raw: &'a Value) -> Node<'a> {
        Node(raw.as_object())
    }

    fn get(self, name: &str) -> Option<&'a Value> {
        self.0?.get(name).filter(|value| !value.is_null())
    }

    fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn text(self, name: &str) -> &'a str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    fn kind(self) -> &'a str {
        self.text("type")
    }

    fn child(self, name: &str) -> Option<Node<'a>> {
        self.get(name).filter(|value| value.is_object()).map(Node::new)
    }

    fn list(self, name: &str) -> &'a [Value] {
        self.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    fn properties(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        let raw = self.get("properties").and_then(Value::as_object);
        raw.into_iter().flatten().map(|(name, raw)| (name.as_str(), Node::new(raw)))
    }

    fn property(self, name: &str) -> Option<Node<'a>> {
        self.child("properties")?.child(name)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

fn invariants(node: Node<'_>, level: Level, path: &str, faults: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    if node.kind() == "array" && !node.has("items") {
        faults.push(FieldError::required(at("items"), "must be specified"));
    }
    if let Some(items) = node.child("items") {
        invariants(items, Level::Item, &at("items"), faults);
    }
    for (name, below) in node.properties() {
        invariants(below, Level::Field, &format!("{path}.properties[{name}]"), faults);
    }
    if node.has("additionalProperties") {
        if level == Level::Root {
            faults.push(FieldError::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if let Some(below) = node.child("additionalProperties") {
            invariants(below, Level::Field, &at("additionalProperties"), faults);
        }
    }
    extensions(node, path, faults);
    let (skip_any_of, skip_first) = int_or_string_pattern(node);
    value_validation(node, skip_any_of, skip_first, path, faults);
    types(node, level, path, faults);
    metadata(node, level, path, faults);
}

fn extensions(node: Node<'_>, path: &str, faults: &mut Vec<FieldError>) {
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if node.flag("x-kubernetes-int-or-string") && node.flag(name) {
            faults.push(FieldError::invalid(
                format!("{path}.{name}"),
                true,
                "must be false if x-kubernetes-int-or-string is true",
            ));
        }
    }
}

fn types(node: Node<'_>, level: Level, path: &str, faults: &mut Vec<FieldError>) {
    let field = format!("{path}.type");
    let embedded = node.flag("x-kubernetes-embedded-resource");
    let untyped = node.kind().is_empty()
        && !node.flag("x-kubernetes-int-or-string")
        && !node.flag("x-kubernetes-preserve-unknown-fields");
    if embedded && node.kind() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        faults.push(match node.kind() {
            "" => FieldError::required(field.clone(), detail),
            kind => FieldError::invalid(field.clone(), kind, detail),
        });
    } else if untyped {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        faults.push(FieldError::required(field.clone(), detail));
    }
    if embedded && node.has("additionalProperties") {
        faults.push(FieldError::forbidden(
            format!("{path}.additionalProperties"),
            "must not be used if x-kubernetes-embedded-resource is set",
        ));
    }
    if level == Level::Root && !node.kind().is_empty() && node.kind() != "object" {
        faults.push(FieldError::invalid(field, node.kind(), "must be object at the root"));
    }
}

fn metadata(node: Node<'_>, level: Level, path: &str, faults: &mut Vec<FieldError>) {
    let embedded = node.flag("x-kubernetes-embedded-resource");
    let is_resource = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(below) = node.property(name).filter(|below| is_resource && below.kind() != "string") {
            faults.push(FieldError::invalid(
                format!("{path}.properties[{name}].type"),
                below.kind(),
                "must be string",
            ));
        }
    }
    if let Some(meta) = node.property("metadata") {
        let field = format!("{path}.properties[metadata]");
        if is_resource && meta.kind() != "object" {
            faults.push(FieldError::invalid(format!("{field}.type"), meta.kind(), "must be object"));
        }
        if level == Level::Root && !plain_metadata(meta) {
            faults.push(FieldError::forbidden(
                field,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
    let bare = node.properties().next().is_none();
    if embedded && !node.flag("x-kubernetes-preserve-unknown-fields") && bare {
        faults.push(FieldError::required(
            format!("{path}.properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

/// Whether the root's metadata says nothing, or only how a name looks.
fn plain_metadata(meta: Node<'_>) -> bool {
    let names: BTreeSet<&str> = meta.properties().map(|(name, _)| name).collect();
    let only_names = names.iter().all(|name| matches!(*name, "name" | "generateName"));
    let other =
        meta.0.into_iter().flatten().any(|(name, value)| {
            !value.is_null() && !matches!(name.as_str(), "type" | "properties" | "default")
        });
    only_names && !other
}

/// `anyOf: [{type: integer}, {type: string}]`, alone or as the first of `allOf`, is the one place
/// where types may stand inside a value validation.
fn int_or_string_pattern(node: Node<'_>) -> (bool, bool) {
    let is_pattern = |branches: &[Value]| {
        let bare = |raw: &Value, kind| {
            raw.as_object().is_some_and(|fields| fields.len() == 1 && raw["type"] == kind)
        };
        matches!(branches, [first, second] if bare(first, "integer") && bare(second, "string"))
    };
    let first = node.list("allOf").first().map(|raw| Node::new(raw).list("anyOf")).unwrap_or_default();
    (is_pattern(node.list("anyOf")), is_pattern(first))
}

fn value_validation(
    node: Node<'_>,
    skip_any_of: bool,
    skip_first: bool,
    path: &str,
    faults: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, raw) in node.list("anyOf").iter().enumerate() {
            nested(Node::new(raw), false, &format!("{path}.anyOf[{index}]"), faults);
        }
    }
    for (index, raw) in node.list("allOf").iter().enumerate() {
        nested(Node::new(raw), skip_first && index == 0, &format!("{path}.allOf[{index}]"), faults);
    }
    for (index, raw) in node.list("oneOf").iter().enumerate() {
        nested(Node::new(raw), false, &format!("{path}.oneOf[{index}]"), faults);
    }
    if let Some(not) = node.child("not") {
        nested(not, false, &format!("{path}.not"), faults);
    }
    let pattern = node.text("pattern");
    if let Some(error) = Pattern::new(pattern).err().filter(|_| !pattern.is_empty()) {
        faults.push(FieldError::invalid(
            format!("{path}.pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: {error}"),
        ));
    }
}

/// A branch of anyOf, allOf, oneOf or not: it may limit values, and nothing else.
fn nested(node: Node<'_>, skip_any_of: bool, path: &str, faults: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    value_validation(node, skip_any_of, false, path, faults);
    if let Some(items) = node.child("items") {
        nested(items, false, &at("items"), faults);
    }
    for (name, below) in node.properties() {
        nested(below, false, &format!("{path}.properties[{name}]"), faults);
    }
    for name in ["type", "title", "description", "x-kubernetes-list-map-keys"] {
        if !node.text(name).is_empty() || !node.list(name).is_empty() {
            faults.push(FieldError::forbidden(at(name), "must be empty to be structural"));
        }
    }
    for name in ["additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"] {
        let given = node.get(name).is_some_and(|value| value != &Value::Bool(false));
        if given {
            faults.push(FieldError::forbidden(at(name), "must be undefined to be structural"));
        }
    }
    for name in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if node.flag(name) {
            faults.push(FieldError::forbidden(at(name), "must be false to be structural"));
        }
    }
    if node.property("metadata").is_some() {
        faults.push(FieldError::forbidden(
            format!("{path}.properties[metadata]"),
            "must not be specified in a nested context",
        ));
    }
}

/// Every value that a branch limits must be described outside the branches too.
fn completeness(
    node: Node<'_>,
    described: Option<Node<'_>>,
    path: &str,
    branch: &str,
    faults: &mut Vec<FieldError>,
) {
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, raw) in node.list(name).iter().enumerate() {
            nested_completeness(
                Node::new(raw),
                described,
                path,
                &format!("{branch}.{name}[{index}]"),
                faults,
            );
        }
    }
    if let Some(not) = node.child("not") {
        nested_completeness(not, described, path, &format!("{branch}.not"), faults);
    }
}

fn nested_completeness(
    node: Node<'_>,
    described: Option<Node<'_>>,
    path: &str,
    branch: &str,
    faults: &mut Vec<FieldError>,
) {
    let Some(described) = described else {
        return faults.push(FieldError::required(path, format!("because it is defined in {branch}")));
    };
    completeness(node, Some(described), path, branch, faults);
    if let Some(items) = node.child("items") {
        let (path, branch) = (format!("{path}.items"), format!("{branch}.items"));
        nested_completeness(items, described.child("items"), &path, &branch, faults);
    }
    for (name, below) in node.properties() {
        let path = format!("{path}.properties[{name}]");
        let branch = format!("{branch}.properties[{name}]");
        nested_completeness(below, described.property(name), &path, &branch, faults);
    }
}

/// Where a node stands, as far as its rules depend on it.
#[derive(Clone, Copy)]
struct Place {
    root: bool,
    in_meta: bool,
    /// Why no default may stand here; empty where one may.
    no_default: &'static str,
}

/// Rules for every node, structural or not.
fn standard(node: Node<'_>, path: &str, place: Place, faults: &mut Vec<FieldError>) {
    unsupported(node, path, place, faults);
    maps(node, path, faults);
    lists(node, path, faults);
    let inside = Place { root: false, ..place };
    if let Some(below) = node.child("additionalProperties") {
        let no_default = match place.in_meta {
            true => " inside additionalProperties applying to object metadata",
            false => place.no_default,
        };
        standard(below, &format!("{path}.additionalProperties"), Place { no_default, ..inside }, faults);
    }
    for (name, below) in node.properties() {
        let meta = matches!(name, "metadata" | "kind" | "apiVersion");
        let mut below_place = inside;
        if meta && (place.root || node.flag("x-kubernetes-embedded-resource")) {
            below_place.in_meta = true;
        }
        if meta && place.root {
            below_place.no_default = match name {
                "metadata" => " in top-level metadata",
                "kind" => " in top-level kind",
                _ => " in top-level apiVersion",
            };
        }
        standard(below, &format!("{path}.properties[{name}]"), below_place, faults);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, raw) in node.list(name).iter().enumerate() {
            standard(Node::new(raw), &format!("{path}.{name}[{index}]"), inside, faults);
        }
    }
    for name in ["items", "not"] {
        if let Some(below) = node.child(name) {
            standard(below, &format!("{path}.{name}"), inside, faults);
        }
    }
}

fn unsupported(node: Node<'_>, path: &str, place: Place, faults: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let kind = node.kind();
    if !kind.is_empty() && kind != "null" && !TYPES.contains(&kind) {
        faults.push(FieldError::not_supported(at("type"), kind, TYPES));
    }
    if kind == "null" {
        faults.push(FieldError::not_supported(at("type"), kind, TYPES));
        faults.push(FieldError::forbidden(
            at("type"),
            "type cannot be set to null, use nullable as an alternative",
        ));
    }
    if node.has("default") && !place.no_default.is_empty() {
        faults.push(FieldError::forbidden(at("default"), format!("must not be set{}", place.no_default)));
    }
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if node.has(name) {
            faults.push(FieldError::forbidden(at(name), format!("{name} is not supported")));
        }
    }
    if !node.list("items").is_empty() {
        faults.push(FieldError::forbidden(at("items"), "items must be a schema object and not an array"));
    }
    if place.in_meta && node.flag("x-kubernetes-embedded-resource") {
        faults.push(FieldError::forbidden(
            at("x-kubernetes-embedded-resource"),
            "must not be used inside of resource meta",
        ));
    }
    if node.flag("uniqueItems") {
        faults.push(FieldError::forbidden(
            at("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        faults.push(FieldError::invalid(
            at("x-kubernetes-preserve-unknown-fields"),
            false,
            "must be true or undefined",
        ));
    }
}

fn maps(node: Node<'_>, path: &str, faults: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let both = node.has("additionalProperties") && node.properties().next().is_some();
    if both && node.get("additionalProperties") != Some(&Value::Bool(true)) {
        faults.push(FieldError::forbidden(
            at("additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        ));
    }
    if !node.has("x-kubernetes-map-type") {
        return;
    }
    wanted_type(node, "object", "must be object if x-kubernetes-map-type is specified", path, faults);
    let map_type = node.text("x-kubernetes-map-type");
    if !matches!(map_type, "atomic" | "granular") {
        faults.push(FieldError::not_supported(at("x-kubernetes-map-type"), map_type, ["atomic", "granular"]));
    }
}

fn wanted_type(node: Node<'_>, wanted: &str, detail: &str, path: &str, faults: &mut Vec<FieldError>) {
    match node.kind() {
        "" => faults.push(FieldError::required(format!("{path}.type"), detail)),
        kind if kind != wanted => faults.push(FieldError::invalid(format!("{path}.type"), kind, detail)),
        _ => {}
    }
}

fn lists(node: Node<'_>, path: &str, faults: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let list_type = node.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = node.list("x-kubernetes-list-map-keys");
    let items = node.child("items");
    if let Some(list_type) = list_type {
        wanted_type(node, "array", "must be array if x-kubernetes-list-type is specified", path, faults);
        if !matches!(list_type, "atomic" | "set" | "map") {
            let supported = ["atomic", "set", "map"];
            faults.push(FieldError::not_supported(at("x-kubernetes-list-type"), list_type, supported));
        }
    }
    if !keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        faults.push(match list_type {
            None => FieldError::required(at("x-kubernetes-list-type"), detail),
            Some(list_type) => FieldError::invalid(at("x-kubernetes-list-type"), list_type, detail),
        });
    }
    match (list_type, items) {
        (Some("set"), Some(items)) => set_items(items, path, faults),
        (Some("map"), _) => map_items(node, items, path, faults),
        _ => {}
    }
}

fn set_items(items: Node<'_>, path: &str, faults: &mut Vec<FieldError>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    for (kind, name) in [("array", "x-kubernetes-list-type"), ("object", "x-kubernetes-map-type")] {
        let absent_is_fine = kind == "array";
        let value = items.get(name).cloned();
        let wrong = match &value {
            Some(value) => value != "atomic",
            None => !absent_is_fine,
        };
        if items.kind() == kind && wrong {
            // The API server prints the list type in both cases.
            let printed = items.get("x-kubernetes-list-type").cloned().unwrap_or(Value::Null);
            faults.push(FieldError::invalid(format!("{path}.items.{name}"), printed, detail));
        }
    }
    if items.flag("nullable") {
        faults.push(FieldError::forbidden(
            format!("{path}.items.nullable"),
            "cannot be nullable when x-kubernetes-list-type is set",
        ));
    }
}

fn map_items(node: Node<'_>, items: Option<Node<'_>>, path: &str, faults: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let raw_keys = node.list("x-kubernetes-list-map-keys");
    if raw_keys.is_empty() {
        faults.push(FieldError::required(
            at("x-kubernetes-list-map-keys"),
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let Some(items) = items else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        return faults.push(FieldError::required(at("items"), detail));
    };
    if items.kind() != "object" {
        return faults.push(FieldError::invalid(
            at("items.type"),
            items.kind(),
            "must be object if parent array's x-kubernetes-list-type is map",
        ));
    }
    if items.flag("nullable") {
        faults.push(FieldError::forbidden(
            at("items.nullable"),
            "cannot be nullable when x-kubernetes-list-type is map",
        ));
    }
    let printed = || Value::from(raw_keys.to_vec());
    let mut seen = BTreeSet::new();
    for key in raw_keys.iter().filter_map(Value::as_str) {
        match items.property(key) {
            None => faults.push(FieldError::invalid(
                at("x-kubernetes-list-map-keys"),
                printed(),
                "entries must all be names of item properties",
            )),
            Some(property) => map_key(items, key, property, path, faults),
        }
        if !seen.insert(key) {
            let detail = "must not contain duplicate entries";
            faults.push(FieldError::invalid(at("x-kubernetes-list-map-keys"), printed(), detail));
        }
    }
}

fn map_key(items: Node<'_>, key: &str, property: Node<'_>, path: &str, faults: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.items.properties[{key}].{name}");
    if matches!(property.kind(), "array" | "object") {
        faults.push(FieldError::invalid(
            at("type"),
            items.kind(),
            "must be a scalar type if parent array's x-kubernetes-list-type is map",
        ));
    }
    let required = items.list("required").iter().any(|name| name == key);
    if !required && !property.has("default") {
        faults.push(FieldError::required(
            at("default"),
            "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ));
    }
    if property.flag("nullable") {
        faults.push(FieldError::forbidden(
            at("nullable"),
            "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
        ));
    }
}
