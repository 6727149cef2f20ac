//! CustomResourceDefinitions: kinds come and go while the server runs.

use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

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

fn is_crd(kind: &Kind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.plural == "customresourcedefinitions"
}

impl Api {
    /// Serves the kinds of a definition at once, or takes them away with their objects.
    pub(super) fn crd_written(&self, old: Option<&Arc<Stored>>, new: Option<&Arc<Stored>>) {
        let _guard = self.kinds_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut registry = (*self.registry()).clone();
        match new.map(|stored| stored.value()) {
            Some(definition) => self.serve(&mut registry, &definition),
            None => {
                let Some(definition) = old.map(|stored| stored.value()) else { return };
                let (group, plural) = resource(&definition);
                registry.remove(&group, &plural);
                // Differs: objects go with their definition at once, finalizers or not; Kubernetes
                // would keep the definition until their finalizers are done.
                self.store.table(&group, &plural).clear();
            }
        }
        self.set_registry(registry);
    }

    fn serve(&self, registry: &mut Registry, definition: &Value) {
        let (group, plural) = resource(definition);
        let conflict = name_conflict(registry, definition);
        if conflict.is_none() {
            registry.remove(&group, &plural);
            for kind in from_crd(definition).unwrap_or_default() {
                registry.insert(kind);
            }
        }
        self.write_status(definition, conflict);
    }

    /// What Kubernetes' naming controller reports on the definition.
    fn write_status(&self, definition: &Value, conflict: Option<String>) {
        let Ok(kind) = self.kind("apiextensions.k8s.io", "customresourcedefinitions") else { return };
        let table = self.table(&kind);
        let name = meta::name(definition);
        let now = meta::format_time(self.now());
        while let Some(stored) = table.get(name) {
            let mut object = stored.value();
            let status = status(&object, conflict.as_deref(), &now);
            if object["status"] == status {
                return;
            }
            object["status"] = status;
            if table.replace(draft(&kind, object), stored.revision()).is_ok() {
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

/// A kind of the same name from another resource of the group.
fn name_conflict(registry: &Registry, definition: &Value) -> Option<String> {
    let (group, plural) = resource(definition);
    let wanted = definition["spec"]["names"]["kind"].as_str()?;
    let kinds = registry.group(&group)?.versions.iter().flat_map(|v| v.kinds.values());
    let taken = kinds.into_iter().any(|kind| kind.kind == wanted && kind.plural != plural);
    taken.then(|| format!("{} is already in use", crate::kinds::quote(wanted)))
}

fn status(object: &Value, conflict: Option<&str>, now: &str) -> Value {
    let old = &object["status"];
    let condition = |type_: &str, is: bool, reason: &str, message: &str| {
        let status = if is { "True" } else { "False" };
        let before = old["conditions"].as_array().into_iter().flatten();
        let same = before.into_iter().find(|c| c["type"] == type_ && c["status"] == status);
        let since = same.map_or(json!(now), |c| c["lastTransitionTime"].clone());
        json!({"type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
    };
    let conditions = match conflict {
        None => vec![
            condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
            condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        Some(why) => vec![
            condition("NamesAccepted", false, "KindConflict", why),
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
    let names =
        if conflict.is_none() { object["spec"]["names"].clone() } else { json!({"plural": "", "kind": ""}) };
    json!({"conditions": conditions, "acceptedNames": names, "storedVersions": stored})
}
