//! Reservations as people and metrics ask for them. Spec: scheduler-reservation-loadaware A16.

use std::collections::{BTreeMap, BTreeSet};

use koord_api::quantity::{Quantity, ResourceList};
use koord_api::resource::ResourceVector;
use serde::Serialize;

use crate::cluster::reservations::record::Source;
use crate::cluster::reservations::{Entry, ReservationId};
use crate::cluster::{Cluster, Row};
use crate::engine::Engine;
use crate::pod::reservation::Policy;

/// One reservation for metrics, as its object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationGauge {
    pub name: String,
    pub phase: String,
    pub allocatable: ResourceList,
    pub allocated: ResourceList,
}

/// One reservation on a node, as it is counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservationView {
    pub name: String,
    /// Of the pod, for one that is a pod.
    pub namespace: String,
    pub uid: String,
    pub kind: &'static str,
    pub available: bool,
    pub allocate_once: bool,
    pub allocatable: ResourceList,
    pub reserved: ResourceList,
    pub allocated: ResourceList,
    /// Host ports that it holds, as `protocol/port`.
    pub ports: Vec<String>,
    /// Who may use it, in words; the fault of a list that cannot be read.
    pub owners: String,
    pub allocate_policy: &'static str,
    pub assigned_pods: Vec<AssignedPod>,
}

/// A pod that uses a reservation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub requests: ResourceList,
}

/// How reservations can be found by labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectorIndexView {
    pub enabled: bool,
    pub key_prefixes: Vec<String>,
    pub keys: Vec<String>,
    /// By `prefix*` or `key=value`.
    pub buckets: BTreeMap<String, BucketView>,
}

/// One list of the index.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketView {
    pub count: usize,
    /// By name, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Vec<String>>,
}

impl Engine {
    /// The index of reservations by labels; with names where they are asked for.
    pub fn selector_index(&self, with_names: bool) -> SelectorIndexView {
        let reservations = self.world.cluster.reservations();
        let index = reservations.selectors();
        let (prefixes, keys) = index.settings();
        let name = |id: &ReservationId| Some(reservations.entry(*id)?.record.name.to_string());
        let bucket = |list: &BTreeSet<ReservationId>| BucketView {
            count: list.len(),
            reservations: with_names.then(|| list.iter().filter_map(name).collect()),
        };
        SelectorIndexView {
            enabled: !index.is_empty(),
            key_prefixes: prefixes.iter().map(ToString::to_string).collect(),
            keys: keys.iter().map(ToString::to_string).collect(),
            buckets: index.lists().map(|(label, list)| (label, bucket(list))).collect(),
        }
    }

    /// Every Reservation, by UID.
    pub fn reservation_gauges(&self) -> Vec<ReservationGauge> {
        let gauge = |(_, known): (&str, &super::keeper::Known)| ReservationGauge {
            name: known.name.to_string(),
            phase: known.phase.to_string(),
            allocatable: known.allocatable.clone(),
            allocated: known.allocated.clone(),
        };
        self.keeper.all().map(gauge).collect()
    }

    /// The reservations on a node; none when there is no such node.
    pub fn node_reservations(&self, node: &str) -> Option<Vec<ReservationView>> {
        let cluster = &self.world.cluster;
        let row: Row = cluster.row(node)?;
        Some(cluster.reservations().on(row).map(|entry| view(cluster, entry)).collect())
    }
}

fn view(cluster: &Cluster, entry: &Entry) -> ReservationView {
    let record = &entry.record;
    let list = |amounts: &ResourceVector| amounts.to_list(&cluster.resources);
    let is_pod = record.source == Source::Pod;
    ReservationView {
        name: record.name.to_string(),
        namespace: if is_pod { record.pod.key.namespace.to_string() } else { String::new() },
        uid: record.uid.to_string(),
        kind: if is_pod { "Pod" } else { "Reservation" },
        available: entry.is_matchable,
        allocate_once: record.is_once,
        allocatable: list(&record.allocatable),
        reserved: list(&record.inner),
        allocated: list(&entry.allocated),
        ports: record.pod.class.ports.iter().map(|port| format!("{}/{}", port.protocol, port.port)).collect(),
        owners: match &record.owners {
            Ok(owners) => owners.to_string(),
            Err(fault) => fault.clone(),
        },
        allocate_policy: match record.policy {
            Policy::Default => "",
            Policy::Aligned => "Aligned",
            Policy::Restricted => "Restricted",
        },
        assigned_pods: entry.owners.iter().map(|owner| assigned(cluster, owner)).collect(),
    }
}

fn assigned(cluster: &Cluster, owner: &crate::cluster::reservations::Owner) -> AssignedPod {
    let pod = &owner.pod;
    let requests: BTreeMap<String, Quantity> = pod.class.requests.amounts.to_list(&cluster.resources);
    AssignedPod {
        namespace: pod.key.namespace.to_string(),
        name: pod.key.name.to_string(),
        uid: pod.uid.to_string(),
        requests,
    }
}
