//! Our part of the object: what differs, and how it is put in without touching what others wrote.
//!
//! Spec: koordlet-observe 8.4 and 14, item 15.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use koord_api::crd::node_resource_topology::sort_zones;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::crd::node_resource_topology::{Zone, ZoneResource};
use koord_api::keys::node_topology::label::{ENABLE_NUMA_RESERVATION, MANAGED_BY};

use super::{Computed, is_same_json};
use crate::state::NodeState;

const MANAGER: &str = "Koordinator";

impl Computed {
    /// A new object of the node.
    pub fn new_object(&self, node: &NodeState) -> NodeResourceTopology {
        let mut object = NodeResourceTopology::default();
        object.metadata.name = Some(node.name.clone());
        object.metadata.labels = Some(BTreeMap::from([(MANAGED_BY.to_owned(), MANAGER.to_owned())]));
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.name.clone(),
            uid: node.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]);
        self.apply(&mut object);
        object
    }

    /// Why an object is not as it should be; none when it is.
    pub fn difference(&self, object: &NodeResourceTopology) -> Option<String> {
        if object.topology_policies != std::slice::from_ref(&self.policy) {
            return Some(format!("topologyPolicies should be [{}]", self.policy));
        }
        let annotations = object.metadata.annotations.as_ref();
        for (key, wanted) in &self.annotations {
            let found = annotations.and_then(|annotations| annotations.get(key));
            if !found.is_some_and(|found| is_same_json(found, wanted)) {
                return Some(format!("annotation {key} should be {wanted}"));
            }
        }
        let labels = object.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get(ENABLE_NUMA_RESERVATION));
        if label != self.numa_reservation.as_ref() {
            return Some(format!("label {ENABLE_NUMA_RESERVATION} should be {:?}", self.numa_reservation));
        }
        let mut merged = object.zones.clone();
        self.merge_zones(&mut merged);
        (merged != object.zones).then(|| "zones differ".to_owned())
    }

    /// Puts our part in. What did not change keeps its text; what others wrote stays.
    pub fn apply(&self, object: &mut NodeResourceTopology) {
        object.topology_policies = vec![self.policy.clone()];
        let annotations = object.metadata.annotations.get_or_insert_default();
        for (key, wanted) in &self.annotations {
            if !annotations.get(key).is_some_and(|found| is_same_json(found, wanted)) {
                annotations.insert(key.clone(), wanted.clone());
            }
        }
        let labels = object.metadata.labels.get_or_insert_default();
        match &self.numa_reservation {
            Some(value) => labels.insert(ENABLE_NUMA_RESERVATION.to_owned(), value.clone()),
            // Differs: upstream leaves it there for good and then writes in every round.
            None => labels.remove(ENABLE_NUMA_RESERVATION),
        };
        self.merge_zones(&mut object.zones);
    }

    /// Zones that are not ours go; of those that stay, what we do not compute is left alone.
    ///
    /// Differs: upstream loses everything but allocatable amounts on the way.
    fn merge_zones(&self, zones: &mut Vec<Zone>) {
        let mut merged: Vec<Zone> = Vec::with_capacity(self.zones.len());
        for wanted in &self.zones {
            let mut zone = zones
                .iter()
                .find(|zone| zone.name == wanted.name)
                .cloned()
                .unwrap_or_else(|| Zone { name: wanted.name.clone(), ..Zone::default() });
            zone.zone_type.clone_from(&wanted.zone_type);
            let before = zone.resources.len();
            wanted.resources.iter().for_each(|resource| merge_resource(&mut zone.resources, resource));
            if zone.resources.len() != before {
                zone.resources.sort_by(|a, b| a.name.cmp(&b.name));
            }
            merged.push(zone);
        }
        sort_zones(&mut merged);
        *zones = merged;
    }
}

/// Amounts that are equal keep the form they have.
fn merge_resource(resources: &mut Vec<ZoneResource>, wanted: &ZoneResource) {
    match resources.iter_mut().find(|resource| resource.name == wanted.name) {
        Some(found) if found == wanted => {}
        Some(found) => *found = wanted.clone(),
        None => resources.push(wanted.clone()),
    }
}
