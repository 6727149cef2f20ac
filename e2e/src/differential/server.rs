//! The API server that the real scheduler works on: Kubernetes' own, or the sandbox; and plain requests to it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use koord_sandbox::server::tls::Authority;
use koord_sandbox::server::{Api, Server, ServerConfig};
use koord_sandbox::store::Limits;
use koord_testkit::ControlPlane;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::scenario::{kind, name, namespace};

/// Which API server to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ground {
    /// kube-apiserver and etcd.
    #[default]
    Kubernetes,
    /// Ours, in this process. It knows no runtime classes, so pods have no overhead there.
    Sandbox,
}

/// A running API server without controllers.
pub struct Host {
    running: Running,
    kubeconfig: PathBuf,
    _dir: tempfile::TempDir,
}

enum Running {
    Kubernetes(Box<ControlPlane>),
    Sandbox(Server),
}

impl Host {
    /// None, with the reason on stderr, where it cannot be built.
    pub async fn start(ground: Ground) -> Result<Option<Host>> {
        let dir = tempfile::tempdir()?;
        let (running, kubeconfig) = match ground {
            Ground::Kubernetes => {
                let Some(cluster) = tokio::task::block_in_place(start_kubernetes)? else { return Ok(None) };
                let kubeconfig = cluster.kubeconfig().to_owned();
                (Running::Kubernetes(Box::new(cluster)), kubeconfig)
            }
            Ground::Sandbox => {
                let server = start_sandbox().await?;
                let kubeconfig = dir.path().join("kubeconfig");
                std::fs::write(&kubeconfig, server.kubeconfig())?;
                (Running::Sandbox(server), kubeconfig)
            }
        };
        Ok(Some(Host { running, kubeconfig, _dir: dir }))
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub async fn stop(self) {
        match self.running {
            Running::Kubernetes(cluster) => drop(cluster),
            Running::Sandbox(server) => server.stop().await,
        }
    }
}

/// Nobody else may change what scenarios make, and no controller is there to satisfy admission.
fn start_kubernetes() -> Result<Option<ControlPlane>> {
    let off = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection";
    let builder = ControlPlane::builder()?.with_controller_manager(false).apiserver_args([off]);
    match builder.start() {
        Ok(cluster) => Ok(Some(cluster)),
        // Says why, and fails where a skip is a failure.
        Err(error) if error.is_unavailable() && koord_testkit::shared().is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn start_sandbox() -> Result<Server> {
    let config = ServerConfig {
        listen: "127.0.0.1:0".parse()?,
        authority: Authority::generate()?,
        tokens: HashMap::new(),
        control: None,
    };
    Server::start(Api::new(Limits::default()), config).await.context("start the sandbox")
}

/// Kinds that scenarios use, where they live, and whether they are in a namespace.
const KINDS: &[(&str, &str, bool)] = &[
    ("Pod", "/api/v1/pods", true),
    ("Node", "/api/v1/nodes", false),
    ("Namespace", "/api/v1/namespaces", false),
    ("Service", "/api/v1/services", true),
    ("PersistentVolume", "/api/v1/persistentvolumes", false),
    ("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims", true),
    ("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", false),
    ("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses", false),
    ("ReplicaSet", "/apis/apps/v1/replicasets", true),
    ("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets", true),
    ("StorageClass", "/apis/storage.k8s.io/v1/storageclasses", false),
    ("CSINode", "/apis/storage.k8s.io/v1/csinodes", false),
    ("CSIDriver", "/apis/storage.k8s.io/v1/csidrivers", false),
    ("CSIStorageCapacity", "/apis/storage.k8s.io/v1/csistoragecapacities", true),
];

/// Requests about objects as plain JSON.
#[derive(Clone)]
pub struct Talk {
    pub client: Client,
}

/// What a refused request was answered.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {text}")]
pub struct Refused {
    what: String,
    pub code: u16,
    text: String,
}

impl Talk {
    pub async fn new(kubeconfig: &Path) -> Result<Talk> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Talk { client: Client::try_from(config)? })
    }

    /// Creates it with its status. One that is there already is left as it is.
    pub async fn create(&self, object: &Value) -> Result<Value> {
        let path = folder(kind(object), namespace(object))?;
        let created = match self.send("POST", &path, "application/json", object).await {
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == 409) => {
                return self.get(kind(object), namespace(object), name(object)).await;
            }
            other => other?,
        };
        let keeps_status = matches!(kind(object), "Node");
        match object.get("status") {
            Some(status) if !keeps_status => {
                self.patch_status(kind(object), namespace(object), name(object), &json!({"status": status}))
                    .await
            }
            _ => Ok(created),
        }
    }

    pub async fn get(&self, kind: &str, namespace: &str, name: &str) -> Result<Value> {
        let path = format!("{}/{name}", folder(kind, namespace)?);
        self.send("GET", &path, "application/json", &Value::Null).await
    }

    /// All of a kind.
    pub async fn list(&self, kind: &str) -> Result<Vec<Value>> {
        let mut list = self.send("GET", place(kind)?.0, "application/json", &Value::Null).await?;
        let mut items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        for item in &mut items {
            item["kind"] = json!(kind);
        }
        Ok(items)
    }

    pub async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: &Value) -> Result<Value> {
        let path = format!("{}/{name}", folder(kind, namespace)?);
        self.send("PATCH", &path, "application/merge-patch+json", patch).await
    }

    pub async fn patch_status(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value> {
        let path = format!("{}/{name}/status", folder(kind, namespace)?);
        self.send("PATCH", &path, "application/merge-patch+json", patch).await
    }

    /// Replaces a node, in one write where only its status or only the rest changes: a scheduler looks after each.
    /// Returns it after each.
    pub async fn replace_node(&self, node: &Value) -> Result<Vec<Value>> {
        let path = format!("/api/v1/nodes/{}", name(node));
        let known = self.get("Node", "", name(node)).await?;
        let mut stored = Vec::new();
        if has_other_status(&known, node) {
            stored.push(self.send("PUT", &format!("{path}/status"), "application/json", node).await?);
        }
        if stored.is_empty() || has_other_spec(&known, node) {
            stored.push(self.send("PUT", &path, "application/json", node).await?);
        }
        Ok(stored)
    }

    /// Deletes it at once; one that is not there is fine.
    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<()> {
        let path = format!("{}/{name}", folder(kind, namespace)?);
        let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        match self.send("DELETE", &path, "application/json", &now).await {
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == 404) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Deletes all of a kind at once, in one namespace where the kind has them.
    pub async fn clear(&self, kind: &str, namespace: &str) -> Result<()> {
        let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        self.send("DELETE", &folder(kind, namespace)?, "application/json", &now).await.map(drop)
    }

    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Result<Value> {
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request =
            http::Request::builder().method(method).uri(path).header("Content-Type", content).body(bytes)?;
        self.client.request::<Value>(request).await.map_err(|error| match error {
            kube::Error::Api(status) => anyhow!(Refused {
                what: format!("{method} {path}"),
                code: status.code,
                text: status.message.clone(),
            }),
            other => anyhow!(other).context(format!("{method} {path}")),
        })
    }
}

fn has_other_status(known: &Value, node: &Value) -> bool {
    ["allocatable", "capacity"].iter().any(|part| known["status"][part] != node["status"][part])
}

/// Labels that only marks are go with either write.
fn has_other_spec(known: &Value, node: &Value) -> bool {
    let labels = |node: &Value| {
        let mut labels = node["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        labels.remove(super::record::MARK);
        labels
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_closed = |node: &Value| node["spec"]["unschedulable"] == json!(true);
    is_closed(known) != is_closed(node)
        || list(&known["spec"]["taints"]) != list(&node["spec"]["taints"])
        || labels(known) != labels(node)
}

fn place(kind: &str) -> Result<(&'static str, bool)> {
    let known = KINDS.iter().find(|(known, ..)| *known == kind);
    known
        .map(|(_, path, in_namespace)| (*path, *in_namespace))
        .with_context(|| format!("no path for kind {kind:?}"))
}

fn folder(kind: &str, namespace: &str) -> Result<String> {
    let (path, in_namespace) = place(kind)?;
    if !in_namespace {
        return Ok(path.to_owned());
    }
    let (group, plural) = path.rsplit_once('/').context("a path has parts")?;
    Ok(format!("{group}/namespaces/{namespace}/{plural}"))
}
