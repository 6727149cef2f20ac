//! Pods that wait and nodes, as JSON: what extenders are sent of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use http::Request;
use k8s_openapi::api::core::v1 as core;
use koord_engine::engine::command::Subject;
use koord_kit::log::chain;
use kube::client::Body;

/// Fed by the watches before the engine hears of a change, so that it is never older than what the engine knows.
#[derive(Debug, Default)]
pub struct Objects {
    /// Whether an extender wants whole nodes.
    with_nodes: bool,
    nodes: Mutex<HashMap<Box<str>, Arc<str>>>,
    /// By UID; only those without a node.
    pods: Mutex<HashMap<Box<str>, Arc<str>>>,
}

impl Objects {
    pub fn new(with_nodes: bool) -> Objects {
        Objects { with_nodes, ..Objects::default() }
    }

    pub fn set_node(&self, node: &core::Node) {
        let (Some(name), true) = (node.metadata.name.as_deref(), self.with_nodes) else { return };
        if let Ok(json) = serde_json::to_string(node) {
            lock(&self.nodes).insert(name.into(), json.into());
        }
    }

    pub fn remove_node(&self, name: &str) {
        lock(&self.nodes).remove(name);
    }

    pub fn set_pod(&self, pod: &core::Pod) {
        let Some(uid) = pod.metadata.uid.as_deref() else { return };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if node.is_some_and(|node| !node.is_empty()) {
            return self.remove_pod(uid);
        }
        if let Ok(json) = serde_json::to_string(pod) {
            lock(&self.pods).insert(uid.into(), json.into());
        }
    }

    pub fn remove_pod(&self, uid: &str) {
        lock(&self.pods).remove(uid);
    }

    pub(super) fn pod(&self, uid: &str) -> Option<Arc<str>> {
        lock(&self.pods).get(uid).cloned()
    }

    /// Those of these nodes that are there.
    pub(super) fn nodes(&self, names: &[Box<str>]) -> Vec<Arc<str>> {
        let nodes = lock(&self.nodes);
        names.iter().filter_map(|name| nodes.get(name).cloned()).collect()
    }
}

/// Whoever panicked has left whole entries.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A pod that has a node, from the API: few are ever asked for, so they are not kept.
pub(super) async fn read(api: &kube::Client, pod: &Subject) -> Result<Arc<str>, String> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.key.namespace, pod.key.name);
    let request = Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = api.send(request).await.map_err(|error| chain(&error))?;
    let status = answer.status();
    let bytes = answer.into_body().collect_bytes().await.map_err(|error| chain(&error))?;
    let object: core::Pod = match status.is_success() {
        true => serde_json::from_slice(&bytes).map_err(|error| error.to_string())?,
        false => return Err(format!("cannot read victim {}: the server answered {status}", pod.key)),
    };
    serde_json::to_string(&object).map(Arc::from).map_err(|error| error.to_string())
}
