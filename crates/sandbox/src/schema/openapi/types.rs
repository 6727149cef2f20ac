//! Types of a document: those of its resources, and all they refer to.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::{Kind, ListType, PatchStrategy, Schema, builtin};
use super::{META, Resource, type_name};

/// Where descriptions of lists lead.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

#[derive(Default)]
pub(super) struct Types {
    schemas: BTreeMap<String, Value>,
}

impl Types {
    pub(super) fn add_resource(&mut self, group: &str, version: &str, resource: &Resource<'_>) {
        let custom = resource.custom.is_some();
        let name = type_name(group, version, resource.kind, custom);
        match resource.custom {
            Some(raw) => {
                let schema = self.custom(raw, group, version, resource.kind);
                self.schemas.insert(name.clone(), schema);
            }
            None => {
                self.add_named(&name);
                self.mark(&name, group, version, resource.kind);
            }
        }
        if resource.verbs.contains(&"list") {
            let list = self.list(&name, resource);
            self.schemas.insert(format!("{name}List"), list);
            self.mark(&format!("{name}List"), group, version, &format!("{}List", resource.kind));
        }
        for below in resource.subresources {
            let name = builtin::type_name(below.group, below.version, below.kind);
            if builtin::by_name(&name).is_some() && !self.schemas.contains_key(&name) {
                self.add_named(&name);
                self.mark(&name, below.group, below.version, below.kind);
            }
        }
        for name in ["DeleteOptions", "Status", "ObjectMeta"] {
            self.add_named(&format!("{META}.{name}"));
        }
        self.schemas.entry(format!("{META}.Patch")).or_insert_with(|| json!({"type": "object"}));
        self.mark(&format!("{META}.DeleteOptions"), group, version, "DeleteOptions");
        self.mark(&format!("{META}.Status"), "", "v1", "Status");
    }

    pub(super) fn into_json(self) -> Value {
        Value::Object(self.schemas.into_iter().collect())
    }

    /// Says which kind a type is.
    fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        if let Some(schema) = self.schemas.get_mut(name) {
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": group, "kind": kind, "version": version}]);
        }
    }

    fn add_named(&mut self, name: &str) {
        let Some(schema) = builtin::by_name(name).filter(|_| !self.schemas.contains_key(name)) else {
            return;
        };
        // In place before its fields are followed: types refer to themselves.
        self.schemas.insert(name.to_owned(), Value::Null);
        let value = self.whole(schema, name);
        self.schemas.insert(name.to_owned(), value);
    }

    fn whole(&mut self, schema: &Schema, name: &str) -> Value {
        let mut value = match schema.kind {
            Kind::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            Kind::IntOrString => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            Kind::Time | Kind::MicroTime => json!({"type": "string", "format": "date-time"}),
            Kind::Any if name.ends_with("RawExtension") || name.ends_with("FieldsV1") => {
                json!({"type": "object"})
            }
            _ => self.inner(schema),
        };
        if !schema.description.is_empty() {
            value["description"] = schema.description.as_str().into();
        }
        value
    }

    /// A field, an element or a map value: described in place, or by reference.
    fn part(&mut self, schema: &Schema, default: Option<Value>) -> Value {
        let mut value = match schema.kind {
            Kind::Type(id) => {
                let name = builtin::name_of(id);
                self.add_named(name);
                let target = format!("#/components/schemas/{name}");
                let mut extra = Map::new();
                extensions(schema, &mut extra);
                match default.is_some() || !schema.description.is_empty() || !extra.is_empty() {
                    true => {
                        extra.insert("allOf".to_owned(), json!([{"$ref": target}]));
                        Value::Object(extra)
                    }
                    false => json!({"$ref": target}),
                }
            }
            _ => self.inner(schema),
        };
        if !schema.description.is_empty() {
            value["description"] = schema.description.as_str().into();
        }
        if let Some(default) = default {
            value["default"] = default;
        }
        value
    }

    fn inner(&mut self, schema: &Schema) -> Value {
        let mut value = Map::new();
        let kind = schema.kind.name();
        if !kind.is_empty() {
            value.insert("type".to_owned(), kind.into());
        }
        if schema.kind == Kind::Bytes {
            value.insert("format".to_owned(), "byte".into());
        }
        if let Some(items) = &schema.items {
            let default = element_default(items);
            value.insert("items".to_owned(), self.part(items, default));
        }
        if let Some(below) = &schema.additional {
            let default = element_default(below);
            value.insert("additionalProperties".to_owned(), self.part(below, default));
        }
        if !schema.properties.is_empty() {
            let fields: Map<String, Value> = schema
                .properties
                .iter()
                .map(|(name, below)| (name.clone(), self.part(below, field_default(below))))
                .collect();
            value.insert("properties".to_owned(), fields.into());
        }
        limits(schema, &mut value);
        extensions(schema, &mut value);
        value.into()
    }

    fn list(&mut self, item: &str, resource: &Resource<'_>) -> Value {
        self.add_named(&format!("{META}.ListMeta"));
        let mut items = json!({"$ref": format!("#/components/schemas/{item}")});
        let mut metadata = json!({"allOf": [{"$ref": format!("#/components/schemas/{META}.ListMeta")}]});
        if resource.custom.is_none() {
            items = json!({"default": {}, "allOf": [items]});
            metadata["default"] = json!({});
        }
        let mut about = format!("List of {}.", resource.plural);
        if resource.custom.is_some() {
            about.push_str(&format!(" More info: {CONVENTIONS}"));
            metadata["description"] =
                json!(format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds"));
        }
        let mut value = json!({
            "description": format!("{0}List is a list of {0}", resource.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "items": {"type": "array", "items": items, "description": about},
                "metadata": metadata,
            },
        });
        self.type_meta(&mut value);
        value
    }

    /// apiVersion and kind as every object has them.
    fn type_meta(&mut self, value: &mut Value) {
        let pod = builtin::by_name("io.k8s.api.core.v1.Pod");
        for name in ["apiVersion", "kind"] {
            let below = pod.and_then(|pod| pod.properties.get(name)).cloned().unwrap_or_default();
            value["properties"][name] = self.part(&below, None);
        }
    }

    /// A custom resource: its own schema, with what every object has.
    fn custom(&mut self, raw: &Value, group: &str, version: &str, kind: &str) -> Value {
        let mut value = unfolded(raw);
        if !value.is_object() {
            value = json!({"type": "object"});
        }
        if value.get("properties").is_none() {
            value["properties"] = json!({});
        }
        self.type_meta(&mut value);
        let description = builtin::by_name("io.k8s.api.core.v1.Pod")
            .and_then(|pod| pod.properties.get("metadata"))
            .map(|metadata| metadata.description.clone());
        value["properties"]["metadata"] = json!({
            "description": description.unwrap_or_default(),
            "allOf": [{"$ref": format!("#/components/schemas/{META}.ObjectMeta")}],
        });
        value["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "kind": kind, "version": version}]);
        value
    }
}

/// Says in plain OpenAPI what x-kubernetes-int-or-string means.
fn unfolded(raw: &Value) -> Value {
    match raw {
        Value::Object(fields) => {
            let mut fields: Map<String, Value> =
                fields.iter().map(|(name, value)| (name.clone(), unfolded(value))).collect();
            let folded = fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
            if folded && !fields.contains_key("anyOf") && !fields.contains_key("allOf") {
                fields.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            Value::Object(fields)
        }
        Value::Array(items) => items.iter().map(unfolded).collect(),
        other => other.clone(),
    }
}

/// Go values that are not pointers have a default: their zero.
fn field_default(schema: &Schema) -> Option<Value> {
    let by_value = schema.go.as_ref().is_some_and(|go| !go.pointer);
    match &schema.default {
        Some(default) => Some(default.clone()),
        None => (by_value && is_struct(schema)).then(|| json!({})),
    }
}

fn element_default(schema: &Schema) -> Option<Value> {
    match schema.kind {
        Kind::String => Some("".into()),
        Kind::Integer => Some(0.into()),
        _ => is_struct(schema).then(|| json!({})),
    }
}

fn is_struct(schema: &Schema) -> bool {
    matches!(schema.kind, Kind::Type(_))
        && schema.resolve().kind == Kind::Object
        && !schema.resolve().properties.is_empty()
}

fn limits(schema: &Schema, value: &mut Map<String, Value>) {
    let Some(checks) = &schema.checks else { return };
    if !checks.required.is_empty() {
        value.insert("required".to_owned(), checks.required.clone().into());
    }
    if !checks.format.is_empty() {
        value.insert("format".to_owned(), checks.format.as_str().into());
    }
    if !checks.allowed.is_empty() {
        // The values of a list are limited on its elements.
        match value.get_mut("items") {
            Some(items) => items["enum"] = checks.allowed.clone().into(),
            None => drop(value.insert("enum".to_owned(), checks.allowed.clone().into())),
        }
    }
}

fn extensions(schema: &Schema, value: &mut Map<String, Value>) {
    match &schema.list_type {
        ListType::Atomic => {}
        ListType::Set => drop(value.insert("x-kubernetes-list-type".to_owned(), "set".into())),
        ListType::Map(keys) => {
            value.insert("x-kubernetes-list-type".to_owned(), "map".into());
            value.insert("x-kubernetes-list-map-keys".to_owned(), keys.clone().into());
        }
    }
    if let Some(atomic) = schema.atomic {
        let map_type = if atomic { "atomic" } else { "granular" };
        value.insert("x-kubernetes-map-type".to_owned(), map_type.into());
    }
    let PatchStrategy { merge, retain_keys, replace, key } = &schema.patch;
    let strategies: Vec<&str> = [(*merge, "merge"), (*retain_keys, "retainKeys"), (*replace, "replace")]
        .iter()
        .filter(|(given, _)| *given)
        .map(|(_, name)| *name)
        .collect();
    if !strategies.is_empty() {
        value.insert("x-kubernetes-patch-strategy".to_owned(), strategies.join(",").into());
    }
    if !key.is_empty() {
        value.insert("x-kubernetes-patch-merge-key".to_owned(), key.as_str().into());
    }
}
