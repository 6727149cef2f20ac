//! Kinds that a CustomResourceDefinition brings.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::jsonpath::JsonPath;
use super::{Column, FieldError, Hooks, Kind, ScalePaths, Subresource, Text, meta};
use crate::schema::{Schema, crd};

/// What every kind of a CRD offers, in the order Kubernetes lists it for them.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// What a CRD's kind needs beside its row: shape, columns, conversions.
#[derive(Debug)]
pub struct Custom {
    pub schema: Schema,
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
    let mut kinds = Vec::new();
    let mut errors = Vec::new();
    let schema = |version: &Value| version["schema"].clone();
    let is_shared = versions.iter().all(|version| schema(version) == schema(&versions[0]));
    for (i, version) in versions.iter().enumerate() {
        // What all versions share is told once, under the name the oldest clients know.
        let path = match is_shared {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{i}].schema.openAPIV3Schema"),
        };
        match version_kind(spec, version, &path, storage) {
            Ok(kind) if version["served"] == true => kinds.push(kind),
            Ok(_) => {}
            Err(_) if is_shared && i > 0 => {}
            Err(faults) => errors.extend(faults),
        }
    }
    if errors.is_empty() { Ok(kinds) } else { Err(errors) }
}

fn version_kind(spec: &Value, version: &Value, path: &str, storage: &str) -> Result<Kind, Vec<FieldError>> {
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
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        subresources.push(Subresource::Status);
    }
    if let Some(scale) = version["subresources"]["scale"].as_object() {
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
        hooks: Hooks {
            // Without the status subresource, status is a field like any other.
            prepare_status: if has_status { meta::reset_for_status } else { |_, _| {} },
            ..Hooks::default()
        },
        custom: Some(Arc::new(Custom {
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
