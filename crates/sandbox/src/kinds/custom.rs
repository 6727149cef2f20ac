//! Kinds that a CustomResourceDefinition brings.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::jsonpath::JsonPath;
use super::{Column, FieldError, Hooks, Kind, ScalePaths, Subresource, Text, meta, version_rank};
use crate::schema::{Schema, builtin, crd};

/// In the order in which discovery tells them.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// What a CRD's kind needs beside its row: shape, columns, conversions.
#[derive(Debug)]
pub struct Custom {
    pub schema: Schema,
    /// The same with apiVersion, kind and metadata: who owns what is told of all fields.
    pub typed: Schema,
    /// Stored objects may lack defaults that came later.
    pub fills_on_read: bool,
    /// What users of a deprecated version are told.
    pub deprecation: Option<String>,
    /// The raw openAPIV3Schema, for OpenAPI documents.
    pub openapi: Value,
    pub is_storage: bool,
    pub storage_api_version: String,
    /// Of the columns after the name.
    paths: Vec<(JsonPath, Text)>,
    selectable: Vec<(Text, JsonPath)>,
}

impl Custom {
    pub(super) fn knows_field(&self, field: &str) -> bool {
        self.selectable.iter().any(|(name, _)| name == field)
    }

    pub(super) fn selectable(&self, object: &Value) -> Vec<(Text, String)> {
        let value = |path: &JsonPath| match path.find(object).first() {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        self.selectable.iter().map(|(name, path)| (name.clone(), value(path))).collect()
    }

    pub(super) fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut cells = vec![Value::from(meta::name(object))];
        cells.extend(self.paths.iter().map(|(path, kind)| cell(&path.find(object), kind, now)));
        cells
    }
}

fn cell(found: &[&Value], kind: &str, now: Timestamp) -> Value {
    let Some(first) = found.first() else { return Value::Null };
    match kind {
        "integer" => first.as_i64().or_else(|| first.as_f64().map(|f| f.trunc().to_string().parse().ok())?),
        _ => None,
    }
    .map(Value::from)
    .unwrap_or_else(|| match kind {
        "integer" => Value::Null,
        "number" => first.as_f64().map_or(Value::Null, Value::from),
        "boolean" => first.as_bool().map_or(Value::Null, Value::from),
        "date" => match first.as_str().map(str::parse::<Timestamp>) {
            Some(Ok(then)) => Value::from(meta::format_age(now, then)),
            Some(Err(_)) => Value::from("<invalid>"),
            None => Value::Null,
        },
        _ => Value::from(found.iter().map(|v| plain(v)).collect::<Vec<_>>().join(" ")),
    })
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The kinds of a CRD's served versions, or the faults of its schemas.
pub fn from_crd(definition: &Value) -> Result<Vec<Kind>, Vec<FieldError>> {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let storage = versions.iter().find(|v| v["storage"] == true);
    let storage = storage.and_then(|v| v["name"].as_str()).unwrap_or_default();
    // Versions that share a schema have it once, above them.
    let is_shared = versions.iter().all(|v| v["schema"] == versions[0]["schema"]);
    let path = |i: usize| match is_shared {
        true => "spec.validation.openAPIV3Schema".to_owned(),
        false => format!("spec.versions[{i}].schema.openAPIV3Schema"),
    };
    let paths: Vec<String> = (0..versions.len()).map(path).collect();
    let mut kinds = Vec::new();
    let mut errors = Vec::new();
    for (i, version) in versions.iter().enumerate() {
        match version_kind(definition, version, &paths[i], storage) {
            Ok(kind) if version["served"] == true => kinds.push(kind),
            Ok(_) => {}
            Err(faults) => {
                errors.extend(faults);
                if is_shared {
                    break;
                }
            }
        }
    }
    if errors.is_empty() { Ok(kinds) } else { Err(errors) }
}

fn version_kind(
    definition: &Value,
    version: &Value,
    path: &str,
    storage: &str,
) -> Result<Kind, Vec<FieldError>> {
    let spec = &definition["spec"];
    let owned = |value: &Value| Text::from(value.as_str().unwrap_or_default().to_owned());
    let list = |value: &Value| value.as_array().into_iter().flatten().map(owned).collect::<Vec<Text>>();
    let names = &spec["names"];
    let group = owned(&spec["group"]);
    let openapi = version["schema"]["openAPIV3Schema"].clone();
    let schema = crd::parse(&openapi, path)?;
    let (columns, paths) = columns(&version["additionalPrinterColumns"]);
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    let selectable = selectable.filter_map(|field| {
        let path = field["jsonPath"].as_str()?;
        Some((Text::from(path.trim_start_matches('.').to_owned()), JsonPath::parse(path)?))
    });
    let subresources = subresources(&version["subresources"]);
    let has_status = subresources.contains(&Subresource::Status);
    Ok(Kind {
        version: owned(&version["name"]),
        kind: owned(&names["kind"]),
        plural: owned(&names["plural"]),
        singular: owned(&names["singular"]),
        short_names: list(&names["shortNames"]),
        categories: list(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        verbs: VERBS,
        subresources,
        columns,
        storage_group: group.clone(),
        has_generation: true,
        create_on_update: false,
        unconditional_update: false,
        orphans_by_default: false,
        returns_deleted: false,
        status_on_create: false,
        hooks: Hooks {
            // Without the status subresource, status is a field like any other.
            prepare_status: if has_status { meta::reset_for_status } else { |_, _| {} },
            ..Hooks::default()
        },
        custom: Some(Arc::new(Custom {
            typed: typed(&schema),
            fills_on_read: meta::generation(definition) > 1 && has_defaults(&schema),
            deprecation: deprecation(spec, version),
            schema,
            openapi,
            is_storage: version["name"] == storage,
            storage_api_version: format!("{group}/{storage}"),
            paths,
            selectable: selectable.collect(),
        })),
        group,
    })
}

/// The parts with paths of their own that a version declares.
fn subresources(declared: &Value) -> Vec<Subresource> {
    let mut subresources = Vec::new();
    if declared["status"].is_object() {
        subresources.push(Subresource::Status);
    }
    if let Some(scale) = declared["scale"].as_object() {
        let path = |field: &str| {
            let text = scale.get(field).and_then(Value::as_str)?;
            Some(Text::from(text.trim_start_matches('.').to_owned()))
        };
        subresources.push(Subresource::Scale(ScalePaths {
            spec_replicas: path("specReplicasPath").unwrap_or_default(),
            status_replicas: path("statusReplicasPath").unwrap_or_default(),
            selector: path("labelSelectorPath"),
        }));
    }
    subresources
}

/// The schema with the fields that every object has.
fn typed(schema: &Schema) -> Schema {
    let mut typed = schema.clone();
    let text = || Schema { kind: crate::schema::Kind::String, ..Schema::default() };
    typed.properties.insert("apiVersion".to_owned(), text());
    typed.properties.insert("kind".to_owned(), text());
    typed.properties.insert("metadata".to_owned(), builtin::object_meta().clone());
    typed
}

fn has_defaults(schema: &Schema) -> bool {
    let below = schema.properties.values().chain(schema.items.as_deref()).chain(schema.additional.as_deref());
    schema.default.is_some() || below.into_iter().any(has_defaults)
}

/// The warning of a deprecated version: its own, or the way to a better one.
fn deprecation(spec: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind, name) = (text(&spec["group"]), text(&spec["names"]["kind"]), text(&version["name"]));
    let others = spec["versions"].as_array().into_iter().flatten();
    let better = others
        .filter(|v| v["served"] == true && v["deprecated"] != true)
        .map(|v| text(&v["name"]))
        .filter(|other| version_rank(other) > version_rank(&name))
        .max_by_key(|other| version_rank(other));
    let deprecated = format!("{group}/{name} {kind} is deprecated");
    Some(match better {
        Some(better) => format!("{deprecated}; use {group}/{better} {kind}"),
        None => deprecated,
    })
}

/// The columns after the name: those of the CRD, or the age.
fn columns(raw: &Value) -> (Vec<Column>, Vec<(JsonPath, Text)>) {
    const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although \
        some resources may allow a client to request the generation of an appropriate name automatically. Name \
        is primarily intended for creation idempotence and configuration definition. Cannot be updated. More \
        info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
    const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was \
        created. It is not guaranteed to be set in happens-before order across separate operations. Clients may \
        not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. \
        Read-only. Null for lists. More info: \
        https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
    let mut columns = vec![Column { format: "name".into(), ..Column::new("Name", "string", 0, NAME) }];
    let mut paths = Vec::new();
    for column in raw.as_array().into_iter().flatten() {
        let text = |field: &str| Text::from(column[field].as_str().unwrap_or_default().to_owned());
        let Some(path) = JsonPath::parse(&text("jsonPath")) else { continue };
        let description = match text("description") {
            empty if empty.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {}", text("jsonPath")).into()
            }
            given => given,
        };
        columns.push(Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: column["priority"].as_i64().unwrap_or(0),
        });
        paths.push((path, text("type")));
    }
    if paths.is_empty() {
        columns.push(Column::new("Age", "date", 0, CREATED));
        let path = JsonPath::parse(".metadata.creationTimestamp").expect("a plain path");
        paths.push((path, "date".into()));
    }
    (columns, paths)
}
