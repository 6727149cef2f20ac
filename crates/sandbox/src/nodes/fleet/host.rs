//! Nodes that stand as files, with a kubelet of their own, for an agent to be run on them.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::engine::Engine;
use super::mirror::{Mirror, News};
use crate::nodes::host::Tenant;
use crate::nodes::shape::Shape;
use crate::nodes::usage::{Use, system};
use crate::server::Api;
use crate::server::kubelet::{Kubelet, KubeletKeys};

/// What nodes with an agent of their own need.
#[derive(Clone)]
pub struct Hosts {
    /// The folder of their files; each has its own in it.
    pub dir: PathBuf,
    pub keys: KubeletKeys,
    /// How agents reach the API server.
    pub kubeconfig: String,
    /// Who runs agents on them; None leaves it to somebody outside.
    pub agents: Option<Arc<dyn Agents>>,
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// A node for an agent.
#[derive(Clone, Debug)]
pub struct HostNode {
    pub name: String,
    /// The root of its files: `proc`, `sys` with the cgroups, `kubelet`, and `run` and `data` for the agent.
    pub dir: PathBuf,
    pub kubeconfig: String,
}

/// What comes of starting an agent; the text says why it did not start.
pub type Started<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;
pub type Stopped<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Runs agents on nodes.
pub trait Agents: Send + Sync {
    fn start(&self, node: HostNode) -> Started<'_>;
    /// Returns when it has ended; a node without one is as good.
    fn stop<'a>(&'a self, node: &'a str) -> Stopped<'a>;
}

/// A node's files and its kubelet.
#[derive(Debug)]
pub(super) struct HostState {
    mirror: Mirror,
    kubelet: Kubelet,
    /// Pods as they were last read, by key and revision.
    known: HashMap<Arc<str>, (u64, Option<Tenant>)>,
}

impl HostState {
    pub(super) fn start(
        hosts: &Hosts,
        api: &Arc<Api>,
        name: &Arc<str>,
        shape: &Shape,
    ) -> io::Result<HostState> {
        let mirror = Mirror::start(&hosts.dir.join(&**name), shape, &hosts.keys.authority)?;
        let config = json!({"kubeletconfig": {
            "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "cgroupDriver": "cgroupfs", "cpuManagerPolicy": "none", "memoryManagerPolicy": "None",
            "topologyManagerPolicy": shape.topology_policy, "topologyManagerScope": "container",
        }});
        let kubelet = Kubelet::start(api.clone(), name.clone(), config, hosts.keys.clone())?;
        Ok(HostState { mirror, kubelet, known: HashMap::new() })
    }

    pub(super) fn port(&self) -> u16 {
        self.kubelet.port()
    }

    pub(super) fn dir(&self) -> &Path {
        self.mirror.dir()
    }
}

impl Engine {
    /// Tells a node's files who is on it and what everybody would use.
    pub(super) fn mirror(&mut self, slot: u32) {
        let now = self.now();
        let (clock, api) = (self.clock, self.shared.api.clone());
        let table = api.table(&self.shared.pods);
        let Some(node) = self.nodes.get_mut(slot) else { return };
        let capacity = Use { cpu: i64::from(node.shape.cpus()) * 1000, memory: node.shape.memory };
        let system = system(&node.name, self.shared.habits.seed, capacity, now);
        let Some(host) = &mut node.host else { return };
        let mut known = HashMap::new();
        let mut tenants = Vec::new();
        for pod in node.pods.iter().filter_map(|pod| self.pods.get(*pod)).filter(|pod| pod.is_counted) {
            let Some(stored) = table.get(&pod.key) else { continue };
            let read = match host.known.remove(&pod.key) {
                Some((revision, read)) if revision == stored.revision() => read,
                _ => serde_json::from_slice::<Pod>(&stored.json()).ok().and_then(|pod| Tenant::read(&pod)),
            };
            if let Some(tenant) = &read {
                let wants = pod.since.map(|since| pod.load.at(&clock, since, now)).unwrap_or_default();
                tenants.push(Tenant { wants, ..tenant.clone() });
            }
            known.insert(pod.key.clone(), (stored.revision(), read));
        }
        host.known = known;
        host.mirror.tell(News { tenants, system });
    }
}
