//! CustomResourceDefinitions: kinds come and go while the server runs.

use std::sync::{Arc, PoisonError};

use serde_json::{Map, Value, json};

use super::api::{Api, draft};
use crate::kinds::{FieldError, Kind, Registry, from_crd, meta};
use crate::store::Stored;

/// The faults of a definition's schemas: it is refused before anything is served.
pub(super) fn check(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let versions = object["spec"]["versions"].as_array().into_iter().flatten();
    // A version without a schema is refused for that alone.
    let has_schemas = versions.into_iter().all(|version| version["schema"]["openAPIV3Schema"].is_object());
    match is_crd(kind) && has_schemas {
        true => from_crd(object).err().unwrap_or_default(),
        false => Vec::new(),
    }
}

pub(super) fn is_crd(kind: &Kind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.plural == "customresourcedefinitions"
}

/// A definition waits for its objects to go.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Keeps a definition under deletion until its objects are gone.
pub(super) fn hold(definition: &mut Value) {
    let mut list: Vec<Value> = meta::finalizers(definition).into_iter().map(Value::from).collect();
    if !meta::is_deleting(definition) && !list.contains(&Value::from(CLEANUP)) {
        list.push(Value::from(CLEANUP));
        meta::set(definition, "finalizers", Some(Value::Array(list)));
    }
}

impl Api {
    /// Serves the kinds of a definition at once, or takes them away with their objects.
    pub(super) fn crd_written(&self, old: Option<&Arc<Stored>>, new: Option<&Arc<Stored>>) {
        let _guard = self.kinds_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut registry = (*self.registry()).clone();
        match new.map(|stored| stored.value()) {
            Some(definition) if meta::finalizers(&definition).contains(&CLEANUP) => {
                let (group, plural) = resource(&definition);
                registry.remove(&group, &plural);
                // Differs: objects go with their definition at once, finalizers or not; Kubernetes
                // would keep the definition until their finalizers are done.
                self.store.table(&group, &plural).clear();
                self.release(meta::name(&definition));
            }
            Some(definition) => self.serve(&mut registry, &definition),
            None => {
                let Some(definition) = old.map(|stored| stored.value()) else { return };
                let (group, plural) = resource(&definition);
                registry.remove(&group, &plural);
                self.store.table(&group, &plural).clear();
            }
        }
        self.set_registry(registry);
    }

    fn serve(&self, registry: &mut Registry, definition: &Value) {
        let (group, plural) = resource(definition);
        let names = judge_names(registry, definition);
        if names.conflict.is_none() {
            registry.remove(&group, &plural);
            for kind in from_crd(definition).unwrap_or_default() {
                registry.insert(kind);
            }
        }
        self.write_status(definition, &names);
    }

    /// What Kubernetes' naming controller reports on the definition.
    fn write_status(&self, definition: &Value, names: &Names) {
        let Ok(kind) = self.kind("apiextensions.k8s.io", "customresourcedefinitions") else { return };
        let table = self.table(&kind);
        let name = meta::name(definition);
        let now = meta::format_time(self.now());
        while let Some(stored) = table.get(name) {
            let mut object = stored.value();
            let status = status(&object, names, &now);
            if object["status"] == status {
                return;
            }
            object["status"] = status;
            if table.replace(draft(&kind, object), stored.revision()).is_ok() {
                return;
            }
        }
    }

    /// The objects are gone: so is what held the definition, and without other finalizers the definition itself.
    fn release(&self, name: &str) {
        let Ok(kind) = self.kind("apiextensions.k8s.io", "customresourcedefinitions") else { return };
        let table = self.table(&kind);
        while let Some(stored) = table.get(name) {
            let mut object = stored.value();
            let rest = meta::finalizers(&object).into_iter().filter(|f| *f != CLEANUP).map(Value::from);
            let rest: Vec<Value> = rest.collect();
            let done = match rest.is_empty() {
                true => table.remove(name, stored.revision()).is_ok(),
                false => {
                    meta::set(&mut object, "finalizers", Some(Value::Array(rest)));
                    table.replace(draft(&kind, object), stored.revision()).is_ok()
                }
            };
            if done {
                return;
            }
        }
    }
}

fn resource(definition: &Value) -> (String, String) {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&spec["group"]), text(&spec["names"]["plural"]))
}

/// Names of a definition that others of its group have already.
#[derive(Debug, Default, PartialEq)]
struct Names {
    accepted: Map<String, Value>,
    /// Reason and message of the last conflict.
    conflict: Option<(&'static str, String)>,
}

/// Every name is accepted for itself, in the order in which Kubernetes looks at them.
fn judge_names(registry: &Registry, definition: &Value) -> Names {
    let (group, plural) = resource(definition);
    let kinds = registry.group(&group).into_iter().flat_map(|group| &group.versions);
    let others: Vec<&Arc<Kind>> =
        kinds.flat_map(|version| version.kinds.values()).filter(|kind| kind.plural != plural).collect();
    let is_resource = |name: &str| {
        let has = |kind: &Arc<Kind>| {
            kind.plural == name || kind.singular == name || kind.short_names.iter().any(|short| short == name)
        };
        others.iter().any(|kind| has(kind))
    };
    let is_kind = |name: &str| {
        let has = |kind: &Arc<Kind>| kind.kind == name || format!("{}List", kind.kind) == name;
        others.iter().any(|kind| has(kind))
    };
    let wanted = &definition["spec"]["names"];
    let mut names = Names::default();
    names.accepted.insert("kind".to_owned(), Value::from(""));
    let mut take = |field: &str, reason, is_taken: &dyn Fn(&str) -> bool| {
        let list = match &wanted[field] {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            other => Vec::from_iter(other.as_str()),
        };
        match list.iter().find(|name| is_taken(name)) {
            Some(name) => {
                names.conflict = Some((reason, format!("{} is already in use", crate::kinds::quote(name))));
            }
            None if list.is_empty() => {}
            None => {
                names.accepted.insert(field.to_owned(), wanted[field].clone());
            }
        }
    };
    take("plural", "PluralConflict", &is_resource);
    take("singular", "SingularConflict", &is_resource);
    take("shortNames", "ShortNamesConflict", &is_resource);
    take("kind", "KindConflict", &is_kind);
    take("listKind", "ListKindConflict", &is_kind);
    take("categories", "", &|_| false);
    names
}

fn status(object: &Value, names: &Names, now: &str) -> Value {
    let old = &object["status"];
    let condition = |type_: &str, is: bool, reason: &str, message: &str| {
        let status = if is { "True" } else { "False" };
        let before = old["conditions"].as_array().into_iter().flatten();
        let same = before.into_iter().find(|c| c["type"] == type_ && c["status"] == status);
        let since = same.map_or(json!(now), |c| c["lastTransitionTime"].clone());
        json!({"type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
    };
    let conditions = match &names.conflict {
        None => vec![
            condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
            condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        Some((reason, why)) => vec![
            condition("NamesAccepted", false, reason, why),
            condition("Established", false, "NotAccepted", "not all names are accepted"),
        ],
    };
    let mut stored: Vec<Value> = old["storedVersions"].as_array().cloned().unwrap_or_default();
    let versions = object["spec"]["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|v| v["storage"] == true) {
        if !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    json!({"conditions": conditions, "acceptedNames": names.accepted, "storedVersions": stored})
}
