//! The apiextensions.k8s.io group.

use serde_json::Value;

use super::{Hooks, Kind};

pub(super) fn kinds() -> Vec<Kind> {
    let mut definition =
        Kind::builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
            .cluster_scoped()
            .short(&["crd", "crds"])
            .category("api-extensions")
            .generation()
            .status()
            .hooks(Hooks { default: default_names, ..Hooks::default() });
    definition.unconditional_update = false;
    vec![definition]
}

fn default_names(definition: &mut Value) {
    let names = &mut definition["spec"]["names"];
    let Some(kind) = names["kind"].as_str().map(str::to_owned) else { return };
    if names["singular"].as_str().is_none_or(str::is_empty) {
        names["singular"] = Value::from(kind.to_lowercase());
    }
    if names["listKind"].as_str().is_none_or(str::is_empty) {
        names["listKind"] = Value::from(format!("{kind}List"));
    }
}
