//! Who has what a pod is missing.

use std::cmp::Reverse;
use std::sync::Arc;

use koord_api::resource::ResourceId;
use serde::{Deserialize, Serialize};

use super::amount::readable;
use super::survey::Against;
use crate::cluster::{Cluster, Reserved};
use crate::framework::Facts;
use crate::pod::{HostPort, Pod};
use crate::schedule::Nominated;
use crate::time::Time;

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
    /// It is no pod but a reservation, which holds what it has for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserves: Option<Reserves>,
}

/// For whom a reservation holds something, and how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserves {
    pub name: String,
    /// In words: `pods with app=web`.
    pub owners: String,
    /// None for one that never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Pods named for each thing that is missing.
const NAMED: usize = 3;

impl Holder {
    pub(super) fn of(pod: &Pod, holds: String) -> Holder {
        let owner = pod.class.owner.as_ref();
        Holder {
            pod: pod.title(),
            priority: pod.class.priority,
            owner: owner.map(|owner| format!("{} {}", owner.kind, owner.name)).unwrap_or_default(),
            holds,
            is_promised: false,
            is_leaving: pod.is_deleting,
            reserves: None,
        }
    }

    /// The same, and for a reservation whom it is for.
    fn known(cluster: &Cluster, pod: &Pod, holds: String) -> Holder {
        let entry = pod.reserves.as_ref().and_then(|_| cluster.reservations().get(&pod.uid));
        Holder { reserves: entry.map(|entry| Reserves::of(&entry.record)), ..Holder::of(pod, holds) }
    }
}

impl Reserves {
    pub(crate) fn of(record: &Reserved) -> Reserves {
        Reserves {
            name: record.name.to_string(),
            owners: match &record.owners {
                Ok(owners) => owners.to_string(),
                Err(_) => "nobody, for its owners cannot be read".to_owned(),
            },
            until: record.expires,
        }
    }

    /// `Reserved by web-peak for pods with app=web until 2024-01-01T00:00:00Z`.
    pub(super) fn in_words(&self) -> String {
        let until = self.until.map(|until| format!(" until {until}")).unwrap_or_default();
        format!("Reserved by {} for {}{until}", self.name, self.owners)
    }
}

/// What a pod counts for on its node: a reservation only for what its owners have not taken.
fn counted(cluster: &Cluster, pod: &Pod, id: ResourceId) -> i64 {
    let whole = pod.class.requests.amounts.get(id);
    match pod.reserves.as_ref().and_then(|_| cluster.reservations().get(&pod.uid)) {
        Some(entry) => whole.saturating_sub(entry.allocated.get(id)).max(0),
        None => whole,
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
                for (other, is_promised) in largest(cluster, &here.all, &coming, id) {
                    let amount = counted(cluster, other, id);
                    let holds = format!("{} {resource}", readable(&cluster.resources, resource, amount));
                    holders.push(Holder { is_promised, ..Holder::known(cluster, other, holds) });
                }
            }
            Facts::Port { .. } => {
                let clashes = |taken: &HostPort| pod.class.ports.iter().any(|port| port.conflicts(taken));
                for other in &here.with_ports {
                    if let Some(port) = other.class.ports.iter().find(|port| clashes(port)) {
                        let port = super::cause::port_text(&port.protocol, &port.address, port.port);
                        holders.push(Holder::known(cluster, other, format!("port {port}")));
                    }
                }
            }
            _ => {}
        }
    }
    holders
}

/// Those with most of a resource, the most first, and whether they are only promised it. Pods are not counted by size.
fn largest<'a>(
    cluster: &Cluster,
    here: &'a [Arc<Pod>],
    coming: &'a [Arc<Pod>],
    id: ResourceId,
) -> Vec<(&'a Arc<Pod>, bool)> {
    let amount = |pod: &Arc<Pod>| counted(cluster, pod, id);
    let all = here.iter().map(|pod| (pod, false)).chain(coming.iter().map(|pod| (pod, true)));
    let mut all: Vec<(&Arc<Pod>, bool)> = all.filter(|(pod, _)| amount(pod) > 0).collect();
    all.sort_by_key(|(pod, _)| (Reverse(amount(pod)), pod.class.priority, pod.key.clone()));
    all.truncate(NAMED);
    all
}
