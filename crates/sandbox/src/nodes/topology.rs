//! NodeResourceTopology as koordlet reports it. Pure. Spec: koordlet-observe 8.

use std::collections::BTreeMap;

use koord_api::annotation::node::SystemQosResource;
use koord_api::annotation::node_reservation::NodeReservation;
use koord_api::annotation::node_topology::{
    BeCpuSharedPools, CpuBasicInfo, CpuSharedPool, CpuSharedPools, CpuTopologyReport,
    KubeletCpuManagerPolicy, PodCpuAllocs,
};
use koord_api::annotation::{self, Annotations};
use koord_api::cpuset::CpuSet;
use koord_api::crd::node_resource_topology::{
    TopologyPolicy, ZONE_TYPE_NODE, Zone, ZoneResource, sort_zones,
};
use koord_api::keys::node_topology::label::MANAGED_BY;
use koord_api::quantity::{Family, Quantity};
use koord_api::topology::{CpuTopology, take_by_topology};
use serde_json::{Value, json};

use super::shape::Shape;

/// CPUs given to one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) cpus: CpuSet,
    /// Shared with nobody, not even best-effort pods.
    pub(crate) is_exclusive: bool,
}

/// The report: what is to stand in the object besides its name and owner.
#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) annotations: Annotations,
    pub(crate) zones: Vec<Zone>,
    pub(crate) policy: TopologyPolicy,
}

/// What koordlet makes of a node with these annotations and these pinned pods.
pub(crate) fn report(shape: &Shape, node_annotations: &Annotations, pinned: &[&Pinned]) -> Report {
    let topology = shape.topology();
    let reservation = reservation(node_annotations, &topology);
    let system: Option<SystemQosResource> = annotation::read(node_annotations).unwrap_or_default();
    let mut gone = reserved(&reservation);
    if let Some(system) = system.as_ref().filter(|s| s.is_exclusive()) {
        gone = &gone | &system.cpuset.parse().unwrap_or_default();
    }
    let (mut ls, mut be) = (topology.all().clone(), topology.all().clone());
    for pod in pinned {
        ls = &ls - &pod.cpus;
        if pod.is_exclusive {
            be = &be - &pod.cpus;
        }
    }
    let mut annotations = Annotations::new();
    let basic = CpuBasicInfo {
        cpu_model: "Koord Sandbox CPU".to_owned(),
        hyper_thread_enabled: shape.threads > 1,
        vendor_id: "GenuineIntel".to_owned(),
        ..CpuBasicInfo::default()
    };
    let kubelet = KubeletCpuManagerPolicy { policy: "none".to_owned(), ..Default::default() };
    annotation::write(&mut annotations, &basic);
    annotation::write(&mut annotations, &CpuTopologyReport::from(&topology));
    annotation::write(&mut annotations, &CpuSharedPools(pools(&topology, &ls, &gone)));
    annotation::write(&mut annotations, &BeCpuSharedPools(pools(&topology, &be, &gone)));
    annotation::write(&mut annotations, &kubelet);
    annotation::write(&mut annotations, &PodCpuAllocs::default());
    annotation::write(&mut annotations, &reservation);
    annotation::write(&mut annotations, &system.unwrap_or_default());
    let policy = TopologyPolicy::from_kubelet(&shape.topology_policy, "container");
    Report { annotations, zones: zones(shape, &topology), policy }
}

/// The node's reservation with its CPUs worked out.
fn reservation(annotations: &Annotations, topology: &CpuTopology) -> NodeReservation {
    let mut reservation: NodeReservation =
        annotation::read(annotations).unwrap_or_default().unwrap_or_default();
    if !reservation.reserved_cpus.is_empty() {
        let cpus: CpuSet = reservation.reserved_cpus.parse().unwrap_or_default();
        reservation.reserved_cpus = cpus.to_string();
        return reservation;
    }
    let wanted = reservation.resources.get("cpu").map_or(0, |cpu| cpu.value());
    if let Ok(count) = usize::try_from(wanted)
        && let Some(cpus) = take_by_topology(topology, topology.all(), count)
    {
        reservation.reserved_cpus = cpus.to_string();
    }
    reservation
}

fn reserved(reservation: &NodeReservation) -> CpuSet {
    reservation.reserved_cpus.parse().unwrap_or_default()
}

/// Pools by NUMA node. A node without CPUs left has no pool, one emptied by `gone` keeps its place.
fn pools(topology: &CpuTopology, cpus: &CpuSet, gone: &CpuSet) -> Vec<CpuSharedPool> {
    let number = |id: u32| i32::try_from(id).unwrap_or(i32::MAX);
    let mut pools: Vec<CpuSharedPool> = topology
        .nodes()
        .filter_map(|(node, all)| {
            let here = all & cpus;
            let socket = topology.get(here.first()?)?.socket;
            let cpuset = (&here - gone).to_string();
            Some(CpuSharedPool { socket: number(socket), node: number(node), cpuset })
        })
        .collect();
    pools.sort_by_key(|pool| (pool.socket, pool.node));
    pools
}

fn zones(shape: &Shape, topology: &CpuTopology) -> Vec<Zone> {
    let nodes = i64::from(shape.numa_nodes().max(1));
    let amount = |name: &str, amount: Quantity| ZoneResource {
        name: name.to_owned(),
        capacity: amount,
        allocatable: amount,
        available: amount,
    };
    let mut zones: Vec<Zone> = topology
        .nodes()
        .map(|(node, cpus)| Zone {
            name: Zone::name_of(node),
            zone_type: ZONE_TYPE_NODE.to_owned(),
            resources: vec![
                amount(
                    "cpu",
                    Quantity::from_value(i64::try_from(cpus.len()).unwrap_or(i64::MAX), Family::DecimalSi),
                ),
                amount("hugepages-1Gi", Quantity::ZERO),
                amount("hugepages-2Mi", Quantity::ZERO),
                amount("memory", Quantity::bytes(shape.memory / nodes)),
            ],
            ..Zone::default()
        })
        .collect();
    sort_zones(&mut zones);
    zones
}

/// A new object with this report.
pub(crate) fn create(name: &str, node_uid: &str, report: &Report) -> Value {
    let mut object = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology",
        "metadata": {
            "name": name, "labels": {MANAGED_BY: "Koordinator"},
            "ownerReferences": super::objects::owner(name, node_uid),
        },
        "topologyPolicies": ["None"], "zones": [],
    });
    apply(&mut object, report);
    object
}

/// Puts a report into an object: other annotations and other resources of its zones stay.
pub(crate) fn apply(object: &mut Value, report: &Report) {
    for (key, text) in &report.annotations {
        object["metadata"]["annotations"][key] = Value::from(text.as_str());
    }
    let before = object["zones"].take();
    let mut after = Vec::new();
    for zone in &report.zones {
        let old =
            before.as_array().and_then(|list| list.iter().find(|old| old["name"] == zone.name.as_str()));
        let mut resources: BTreeMap<String, Value> = BTreeMap::new();
        for resource in old.and_then(|old| old["resources"].as_array()).into_iter().flatten() {
            resources.insert(resource["name"].as_str().unwrap_or_default().to_owned(), resource.clone());
        }
        for resource in &zone.resources {
            resources.insert(resource.name.clone(), json!(resource));
        }
        let mut zone = old.cloned().unwrap_or_else(|| json!({"name": zone.name, "type": zone.zone_type}));
        zone["resources"] = resources.into_values().collect();
        after.push(zone);
    }
    object["zones"] = Value::from(after);
    object["topologyPolicies"] = json!([report.policy.as_str()]);
}

#[cfg(test)]
mod tests;
