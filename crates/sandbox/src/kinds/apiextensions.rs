//! The apiextensions.k8s.io group: definitions of kinds. Their schemas are judged in `schema::crd`.

use serde_json::{Value, json};

use super::{Hooks, Kind, meta, rules};

mod validate;

pub(super) fn kinds() -> Vec<Kind> {
    let mut definition =
        Kind::builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
            .cluster_scoped()
            .short(&["crd", "crds"])
            .category("api-extensions")
            .generation()
            .status()
            .hooks(Hooks {
                default,
                prepare_create: note_stored_version,
                prepare_update: |definition, _| note_stored_version(definition),
                prepare_status: meta::reset_for_status,
                validate: validate::definition,
                validate_status: |definition, _| validate::status(definition),
                ..Hooks::default()
            });
    definition.unconditional_update = false;
    vec![definition]
}

fn default(definition: &mut Value) {
    let spec = &mut definition["spec"];
    let names = &mut spec["names"];
    let kind = rules::text(&names["kind"]).to_owned();
    rules::default_text(names, "singular", &kind.to_lowercase());
    if !kind.is_empty() {
        rules::default_text(names, "listKind", &format!("{kind}List"));
    }
    rules::default(spec, "conversion", json!({"strategy": "None"}));
    if spec["conversion"]["webhook"]["clientConfig"]["service"].is_object() {
        rules::default(&mut spec["conversion"]["webhook"]["clientConfig"]["service"], "port", 443);
    }
    if rules::list(&definition["status"]["storedVersions"]).is_empty() {
        note_stored_version(definition);
    }
}

/// Objects may rest in every version that ever was the storage version.
fn note_stored_version(definition: &mut Value) {
    let versions = rules::list(&definition["spec"]["versions"]);
    let Some(storage) = versions.iter().find(|version| version["storage"] == true) else { return };
    // A version without a name has the empty one, as everywhere else.
    let name = Value::from(rules::text(&storage["name"]));
    let stored = &mut definition["status"]["storedVersions"];
    match stored.as_array_mut() {
        Some(list) if list.contains(&name) => {}
        Some(list) => list.push(name),
        None => *stored = json!([name]),
    }
}
