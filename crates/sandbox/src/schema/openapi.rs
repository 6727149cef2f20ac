//! OpenAPI v3: what kubectl explain, apply and validation ask the server about its types.
//!
//! One document per group and version, made on demand from the schemas in use. Paths carry only
//! what clients look for: which operations a kind has, and the parameters and patch types of each.

mod types;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::builtin;

/// A resource as its document describes it.
#[derive(Clone, Debug)]
pub struct Resource<'a> {
    pub kind: &'a str,
    pub plural: &'a str,
    pub namespaced: bool,
    /// As discovery lists them: create, delete, deletecollection, get, list, patch, update, watch.
    pub verbs: &'a [&'a str],
    pub subresources: &'a [Subresource<'a>],
    /// The openAPIV3Schema of a custom resource; `None` for built-in ones.
    pub custom: Option<&'a Value>,
}

/// A subresource, with the kind its requests carry.
#[derive(Clone, Debug)]
pub struct Subresource<'a> {
    pub name: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub verbs: &'a [&'a str],
}

/// The path of a group and version below /openapi/v3, and of its resources: `api/v1`,
/// `apis/apps/v1`.
pub fn path_of(group: &str, version: &str) -> String {
    match group {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    }
}

/// The document of one group and version.
pub fn document(group: &str, version: &str, resources: &[Resource<'_>]) -> Value {
    let place = Place { group, version };
    let mut paths = Map::new();
    let mut types = types::Types::default();
    for resource in resources {
        place.resource(resource, &mut paths);
        types.add_resource(group, version, resource);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.35"},
        "paths": paths,
        "components": {"schemas": types.into_json()},
    })
}

/// The index of all documents: path, and the hash of the document's bytes.
pub fn index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let paths: Map<String, Value> = documents
        .into_iter()
        .map(|(path, hash)| {
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path.to_owned(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// A hash of a document for its URL and ETag (FNV-1a, 128 bits): it tells versions apart, it does
/// not protect anything.
pub fn hash(document: &[u8]) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = document.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032X}")
}

/// The OpenAPI name of a kind: built-in ones after their Go package, custom ones after their group
/// read backwards.
pub fn type_name(group: &str, version: &str, kind: &str, custom: bool) -> String {
    if !custom {
        return builtin::type_name(group, version, kind);
    }
    let mut labels: Vec<&str> = group.split('.').rev().collect();
    labels.extend([version, kind]);
    labels.join(".")
}

struct Place<'a> {
    group: &'a str,
    version: &'a str,
}

/// One operation to be described.
struct Operation<'a> {
    action: &'a str,
    /// Type of the body, where there is one, and of the answer.
    body: Option<String>,
    answer: String,
    parameters: &'a [(&'a str, &'a str)],
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    id: String,
    strategic: bool,
}

const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const GET: &[(&str, &str)] = &[("resourceVersion", "string")];

/// HTTP method, discovery verb, action in the document, parameters.
type Verb = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);
const COLLECTION: [Verb; 3] = [
    ("get", "list", "list", LIST),
    ("post", "create", "post", WRITE),
    ("delete", "deletecollection", "deletecollection", LIST),
];
const ITEM: [Verb; 4] = [
    ("get", "get", "get", GET),
    ("put", "update", "put", WRITE),
    ("delete", "delete", "delete", DELETE),
    ("patch", "patch", "patch", PATCH),
];

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

impl Place<'_> {
    fn resource(&self, resource: &Resource<'_>, paths: &mut Map<String, Value>) {
        let root = format!("/{}", path_of(self.group, self.version));
        let plural = resource.plural;
        let collection = match resource.namespaced {
            true => format!("{root}/namespaces/{{namespace}}/{plural}"),
            false => format!("{root}/{plural}"),
        };
        let item = format!("{collection}/{{name}}");
        let own = |verb: &Verb| self.operation(resource, verb, None);
        insert(paths, &collection, operations(&COLLECTION, resource.verbs, &own), resource.namespaced, false);
        insert(paths, &item, operations(&ITEM, resource.verbs, &own), resource.namespaced, true);
        if resource.namespaced && resource.verbs.contains(&"list") {
            let list = operations(&COLLECTION[..1], resource.verbs, &own);
            insert(paths, &format!("{root}/{plural}"), list, false, false);
        }
        for subresource in resource.subresources {
            let mut found = operations(&ITEM, subresource.verbs, &|verb| {
                self.operation(resource, verb, Some(subresource))
            });
            let create = operations(&COLLECTION[1..2], subresource.verbs, &|verb| {
                self.operation(resource, verb, Some(subresource))
            });
            found.extend(create);
            insert(paths, &format!("{item}/{}", subresource.name), found, resource.namespaced, true);
        }
    }

    fn operation(&self, resource: &Resource<'_>, verb: &Verb, below: Option<&Subresource<'_>>) -> Value {
        let (_, _, action, parameters) = *verb;
        let custom = resource.custom.is_some();
        let (group, version, kind) = match below {
            Some(below) => (below.group, below.version, below.kind),
            None => (self.group, self.version, resource.kind),
        };
        let own_kind = (group, version, kind) == (self.group, self.version, resource.kind);
        let name = type_name(group, version, kind, custom && own_kind);
        let (body, answer) = match action {
            "list" => (None, format!("{name}List")),
            "deletecollection" => (Some(format!("{META}.DeleteOptions")), format!("{META}.Status")),
            "delete" => (Some(format!("{META}.DeleteOptions")), format!("{META}.Status")),
            "patch" => (Some(format!("{META}.Patch")), name),
            "get" => (None, name),
            _ => (Some(name.clone()), name),
        };
        let id = self.operation_id(resource, action, below.map(|below| below.name).unwrap_or_default());
        let strategic = !custom;
        describe(&Operation { action, body, answer, parameters, group, version, kind, id, strategic })
    }

    fn operation_id(&self, resource: &Resource<'_>, action: &str, subresource: &str) -> String {
        let word = match action {
            "get" => "read",
            "post" => "create",
            "put" => "replace",
            "deletecollection" => "deleteCollection",
            other => other,
        };
        let group = match self.group.split('.').next().unwrap_or_default() {
            "" => "core",
            label => label,
        };
        let scope = if resource.namespaced { "Namespaced" } else { "" };
        let parts = [
            capital(group),
            capital(self.version),
            scope.to_owned(),
            capital(resource.kind),
            capital(subresource),
        ];
        format!("{word}{}", parts.concat())
    }
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

fn operations(table: &[Verb], verbs: &[&str], describe: &dyn Fn(&Verb) -> Value) -> Map<String, Value> {
    let served = table.iter().filter(|(_, verb, _, _)| verbs.contains(verb));
    served.map(|verb| (verb.0.to_owned(), describe(verb))).collect()
}

fn insert(
    paths: &mut Map<String, Value>,
    path: &str,
    mut operations: Map<String, Value>,
    namespaced: bool,
    named: bool,
) {
    if operations.is_empty() {
        return;
    }
    let names: BTreeSet<&str> = [("name", named), ("namespace", namespaced)]
        .iter()
        .filter(|(_, given)| *given)
        .map(|(name, _)| *name)
        .collect();
    let parameters: Vec<Value> = names
        .into_iter()
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    if !parameters.is_empty() {
        operations.insert("parameters".to_owned(), parameters.into());
    }
    paths.insert(path.to_owned(), Value::Object(operations));
}

fn describe(operation: &Operation<'_>) -> Value {
    let parameters: Vec<Value> = operation
        .parameters
        .iter()
        .map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}))
        .collect();
    let content = |name: &str, media: &[&str]| -> Value {
        let schema = json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
        media.iter().map(|media| ((*media).to_owned(), schema.clone())).collect::<Map<String, Value>>().into()
    };
    let answer = json!({"description": "OK", "content": content(&operation.answer, &["application/json", "application/yaml"])});
    let mut responses = json!({"200": answer, "401": {"description": "Unauthorized"}});
    if matches!(operation.action, "post" | "put" | "patch") {
        responses["201"] = answer.clone();
    }
    let mut value = json!({
        "operationId": operation.id,
        "parameters": parameters,
        "responses": responses,
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": operation.group, "version": operation.version, "kind": operation.kind},
    });
    if let Some(body) = &operation.body {
        let media: &[&str] = match (operation.action, operation.strategic) {
            ("patch", true) => &[
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ],
            ("patch", false) => &[
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
            ],
            _ => &["application/json", "application/yaml"],
        };
        value["requestBody"] = json!({"content": content(body, media)});
    }
    value
}

#[cfg(test)]
mod tests;
