//! What the user of a running sandbox may ask of it: status, reset, load, nodes, stop.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Inner, Step, Wanted};
use crate::dump::Dump;
use crate::nodes::{Fleet, FleetError, NodeHealth, NodeRow};
use crate::server::RestoreError;
use crate::server::control::{Control, Order, Reply};
use crate::server::discovery::KUBERNETES_VERSION;
use crate::status::ApiError;
use crate::store::Selection;

impl Control for Inner {
    fn carry_out(&self, order: Order) -> Reply<'_> {
        Box::pin(async move {
            let path: Vec<&str> = order.path.iter().map(String::as_str).collect();
            match (order.method.as_str(), path.as_slice()) {
                ("GET", ["status"]) => Ok(self.status().await),
                ("POST", ["stop"]) => {
                    self.stop.send_replace(true);
                    Ok(json!({}))
                }
                ("POST", ["reset"]) => self.reset().await,
                ("POST", ["load"]) => self.load(order.body.to_vec()).await,
                ("GET", ["nodes"]) => self.nodes().await,
                ("POST", ["nodes"]) => self.add_nodes(&order.body).await,
                ("POST", ["nodes", name, verb]) => self.change_node(name, verb).await,
                _ => Err(ApiError::no_such_path()),
            }
        })
    }
}

impl Inner {
    /// Counts of what there is.
    async fn status(&self) -> Value {
        let mut objects = BTreeMap::new();
        let registry = self.api.registry();
        for kind in registry.kinds().filter(|kind| kind.allows("list")) {
            let count = self.api.table(kind).len();
            let resource = crate::status::qualified(&kind.storage_group, &kind.plural);
            if count > 0 {
                objects.insert(resource, count);
            }
        }
        let mut pods: BTreeMap<String, usize> = BTreeMap::new();
        if let Ok(kind) = self.api.kind("", "pods") {
            for pod in self.api.list(&kind, &Selection::default()) {
                *pods.entry(pod.field("status.phase").to_owned()).or_default() += 1;
            }
        }
        let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
        if let Some(fleet) = &self.parts.lock().await.fleet {
            for node in fleet.list().await.unwrap_or_default() {
                *nodes.entry(self.state(&node)).or_default() += 1;
            }
        }
        json!({
            "server": self.address.get(),
            "kubernetes": KUBERNETES_VERSION,
            "started": self.started.to_string(),
            "revision": self.api.revision(),
            "nodes": nodes, "pods": pods, "objects": objects,
        })
    }

    /// Back to how the sandbox began, without the cluster it may have been given.
    async fn reset(&self) -> Result<Value, ApiError> {
        let mut parts = self.parts.lock().await;
        parts.stop().await;
        self.api.clear();
        let mut nodes = 0;
        let mut progress = |step: Step| {
            if let Step::Nodes(count) = step {
                nodes = count;
            }
        };
        let internal = |error: super::ClusterError| ApiError::internal(koord_kit::log::chain(&error));
        self.install_kinds(&mut progress).await.map_err(internal)?;
        *parts = self.start_parts(&mut progress).await.map_err(internal)?;
        Ok(json!({"nodes": nodes}))
    }

    async fn load(&self, body: Vec<u8>) -> Result<Value, ApiError> {
        let bad = |error: RestoreError| ApiError::bad_request(error.to_string());
        let dump = Dump::parse(body).map_err(|error| bad(error.into()))?;
        let restored = self.api.restore(&dump).await.map_err(bad)?;
        serde_json::to_value(restored).map_err(|error| ApiError::internal(error.to_string()))
    }

    async fn nodes(&self) -> Result<Value, ApiError> {
        let parts = self.parts.lock().await;
        let nodes = fleet(&parts.fleet)?.list().await.map_err(refused)?;
        let row = |node: &NodeRow| {
            json!({"name": node.name, "pool": node.pool, "state": self.state(node), "pods": node.pods,
                "cpus": node.cpus, "memory": node.memory, "gpus": node.gpus,
                "files": node.dir})
        };
        Ok(json!({"nodes": nodes.iter().map(row).collect::<Vec<Value>>()}))
    }

    /// How a node is, in one word.
    fn state(&self, node: &NodeRow) -> &'static str {
        let stored = self.api.kind("", "nodes").and_then(|kind| self.api.get(&kind, "", &node.name));
        match node.health {
            NodeHealth::Registering => "registering",
            NodeHealth::Failed => "failed",
            NodeHealth::Ready if stored.is_ok_and(|node| node.field("spec.unschedulable") == "true") => {
                "cordoned"
            }
            NodeHealth::Ready => "ready",
        }
    }

    async fn add_nodes(&self, body: &[u8]) -> Result<Value, ApiError> {
        let wanted: Wanted =
            serde_json::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let pools = wanted.pools().map_err(ApiError::bad_request)?;
        let parts = self.parts.lock().await;
        let fleet = fleet(&parts.fleet)?;
        let mut names = Vec::new();
        for pool in pools {
            names.extend(fleet.add(pool).await.map_err(refused)?);
        }
        Ok(json!({"nodes": names}))
    }

    /// `name` is a node's or a pool's.
    async fn change_node(&self, name: &str, verb: &str) -> Result<Value, ApiError> {
        let parts = self.parts.lock().await;
        let fleet = fleet(&parts.fleet)?;
        let changed = match verb {
            "fail" => fleet.fail(name).await,
            "revive" => fleet.revive(name).await,
            "cordon" => fleet.cordon(name).await,
            "uncordon" => fleet.uncordon(name).await,
            "remove" => fleet.remove(name).await,
            _ => return Err(ApiError::no_such_path()),
        };
        Ok(json!({"nodes": changed.map_err(refused)?}))
    }
}

fn refused(error: FleetError) -> ApiError {
    match error {
        FleetError::Unknown { .. } => ApiError::new(404, "NotFound", error.to_string()),
        FleetError::Stopped | FleetError::Host { .. } | FleetError::Agent { .. } => {
            ApiError::internal(error.to_string())
        }
        FleetError::NoHosts { .. } => ApiError::bad_request(error.to_string()),
        FleetError::Kind(error) => error,
        FleetError::Refused { error, .. } => error,
    }
}

/// The nodes, unless a reset that failed left none.
fn fleet(fleet: &Option<Fleet>) -> Result<&Fleet, ApiError> {
    fleet.as_ref().ok_or_else(|| ApiError::internal("the nodes have been stopped"))
}
