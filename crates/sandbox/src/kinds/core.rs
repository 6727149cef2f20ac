//! The core group.

use serde_json::{Value, json};

use super::{Hooks, Kind, Subresource, meta, names};

/// Seconds a pod may take to end when nobody says otherwise.
const GRACE_SECONDS: i64 = 30;

pub(super) fn kinds() -> Vec<Kind> {
    let mut pod = Kind::builtin("v1", "Pod", "pods")
        .short(&["po"])
        .category("all")
        .status()
        .generation()
        .subresource(Subresource::Binding)
        .subresource(Subresource::Eviction)
        .subresource(Subresource::EphemeralContainers)
        .subresource(Subresource::Resize)
        .hooks(Hooks {
            prepare_create: |pod| pod["status"] = json!({"phase": "Pending"}),
            grace: pod_grace,
            fields: pod_fields,
            field_names: &["spec.nodeName", "status.phase"],
            ..Hooks::default()
        });
    pod.returns_deleted = true;
    let mut namespace = Kind::builtin("v1", "Namespace", "namespaces")
        .cluster_scoped()
        .short(&["ns"])
        .status()
        .subresource(Subresource::Finalize)
        .hooks(Hooks {
            name: names::label,
            prepare_create: prepare_namespace,
            fields: |namespace| vec![("status.phase", text(&namespace["status"]["phase"]))],
            field_names: &["status.phase"],
            ..Hooks::default()
        });
    namespace.verbs = &["create", "delete", "get", "list", "patch", "update", "watch"];
    namespace.returns_deleted = true;
    vec![
        Kind::builtin("v1", "ConfigMap", "configmaps").short(&["cm"]),
        namespace,
        Kind::builtin("v1", "Node", "nodes").cluster_scoped().short(&["no"]).status(),
        pod,
    ]
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn pod_fields(pod: &Value) -> Vec<(&'static str, String)> {
    vec![("spec.nodeName", text(&pod["spec"]["nodeName"])), ("status.phase", text(&pod["status"]["phase"]))]
}

/// What was asked for or the pod's own period; none for a pod that is not on a node or has ended.
fn pod_grace(pod: &Value, requested: Option<i64>) -> Option<i64> {
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(GRACE_SECONDS);
    let is_placed = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let is_over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    match is_placed && !is_over {
        true => Some(requested.unwrap_or(own)).map(|seconds| if seconds < 0 { 1 } else { seconds }),
        false => Some(0),
    }
}

fn prepare_namespace(namespace: &mut Value) {
    namespace["spec"] = json!({"finalizers": ["kubernetes"]});
    namespace["status"] = json!({"phase": "Active"});
    let name = meta::name(namespace).to_owned();
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
}
