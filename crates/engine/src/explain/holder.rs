//! Who has what a pod is missing.

use std::cmp::Reverse;
use std::sync::Arc;

use koord_api::resource::ResourceId;
use serde::{Deserialize, Serialize};

use super::amount::readable;
use super::survey::Against;
use crate::cluster::Cluster;
use crate::framework::Facts;
use crate::pod::{HostPort, Pod};
use crate::schedule::Nominated;

/// A pod that has something another one wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub pod: String,
    pub priority: i32,
    /// Its controller: `ReplicaSet web-5d8f`; empty for a pod on its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// What it has: `2 cpu`, `port 8080/TCP`.
    pub holds: String,
    /// It is not there yet; room was made for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_promised: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_leaving: bool,
}

/// Pods named for each thing that is missing.
const NAMED: usize = 3;

impl Holder {
    pub(super) fn of(pod: &Pod, holds: String) -> Holder {
        let owner = pod.class.owner.as_ref();
        Holder {
            pod: pod.key.to_string(),
            priority: pod.class.priority,
            owner: owner.map(|owner| format!("{} {}", owner.kind, owner.name)).unwrap_or_default(),
            holds,
            is_promised: false,
            is_leaving: pod.is_deleting,
        }
    }
}

/// The pods on a node that have most of what it lacks.
pub(crate) fn holders(cluster: &Cluster, nominated: &Nominated, pod: &Pod, against: &Against) -> Vec<Holder> {
    let mut holders = Vec::new();
    let here = &cluster.node(against.row).pods;
    let facts = || against.verdicts.iter().flat_map(|status| &status.reasons).map(|reason| &reason.facts);
    for facts in facts() {
        match facts {
            Facts::Shortage { resource, .. } => {
                let Some(id) = cluster.resources.id(resource) else { continue };
                let coming: Vec<Arc<Pod>> = nominated.before(pod, against.row).cloned().collect();
                for (other, is_promised) in largest(&here.all, &coming, id) {
                    let amount = other.class.requests.amounts.get(id);
                    let holds = format!("{} {resource}", readable(&cluster.resources, resource, amount));
                    holders.push(Holder { is_promised, ..Holder::of(other, holds) });
                }
            }
            Facts::Port { .. } => {
                let clashes = |taken: &HostPort| pod.class.ports.iter().any(|port| port.conflicts(taken));
                for other in &here.with_ports {
                    if let Some(port) = other.class.ports.iter().find(|port| clashes(port)) {
                        let port = super::cause::port_text(&port.protocol, &port.address, port.port);
                        holders.push(Holder::of(other, format!("port {port}")));
                    }
                }
            }
            _ => {}
        }
    }
    holders
}

/// Those with most of a resource, the most first, and whether they are only promised it. Pods are not counted by size.
fn largest<'a>(here: &'a [Arc<Pod>], coming: &'a [Arc<Pod>], id: ResourceId) -> Vec<(&'a Arc<Pod>, bool)> {
    let amount = |pod: &Arc<Pod>| pod.class.requests.amounts.get(id);
    let all = here.iter().map(|pod| (pod, false)).chain(coming.iter().map(|pod| (pod, true)));
    let mut all: Vec<(&Arc<Pod>, bool)> = all.filter(|(pod, _)| amount(pod) > 0).collect();
    all.sort_by_key(|(pod, _)| (Reverse(amount(pod)), pod.class.priority, pod.key.clone()));
    all.truncate(NAMED);
    all
}
