//! Pods that wait and nodes, as JSON: what extenders are sent of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1 as core;

/// Fed by the watches before the engine hears of a change, so that it is never older than what the engine knows.
#[derive(Debug, Default)]
pub struct Objects {
    /// Whether an extender wants whole nodes.
    with_nodes: bool,
    /// Whether one wants whole pods that may have to go.
    with_victims: bool,
    nodes: Mutex<HashMap<Box<str>, Arc<str>>>,
    /// By UID; only those without a node, unless victims are wanted.
    pods: Mutex<HashMap<Box<str>, Arc<str>>>,
}

impl Objects {
    pub fn new(with_nodes: bool, with_victims: bool) -> Objects {
        Objects { with_nodes, with_victims, ..Objects::default() }
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
        if !self.with_victims && node.is_some_and(|node| !node.is_empty()) {
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
