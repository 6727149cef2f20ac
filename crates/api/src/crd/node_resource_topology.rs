//! NodeResourceTopology: the NUMA nodes of one node. koordlet writes v1alpha1. Spec: crds 10.

use crate::crd::wire::{open_enum, wire, wire_required};
use crate::quantity::Quantity;

/// The version that koordlet writes and the scheduler reads.
pub mod v1alpha1 {
    use super::{TopologyPolicy, Zone};
    use crate::crd::wire::object;

    object! {
        /// The NUMA nodes of the node of the same name.
        #[schemars(extend("required" = ["topologyPolicies", "zones"]))]
        pub struct NodeResourceTopology = "topology.node.k8s.io" / "v1alpha1", "noderesourcetopologies", ClusterResourceScope {
            /// How kubelet places containers on NUMA nodes.
            pub topology_policies: Vec<TopologyPolicy>,
            /// One entry for each NUMA node.
            pub zones: Vec<Zone>,
        }
    }
}

/// The version that is stored.
pub mod v1alpha2 {
    use super::{Attribute, TopologyPolicy, Zone};
    use crate::crd::wire::object;

    object! {
        /// The NUMA nodes of the node of the same name.
        #[schemars(extend("required" = ["zones"]))]
        pub struct NodeResourceTopology = "topology.node.k8s.io" / "v1alpha2", "noderesourcetopologies", ClusterResourceScope {
            /// How kubelet places containers on NUMA nodes; replaced by attributes.
            pub topology_policies: Vec<TopologyPolicy>,
            /// One entry for each NUMA node.
            pub zones: Vec<Zone>,
            /// More about the node.
            pub attributes: Vec<Attribute>,
        }
    }
}

wire! {
    /// One NUMA node.
    #[schemars(extend("required" = ["name", "type"]))]
    pub struct Zone {
        pub name: String,
        #[serde(rename = "type")]
        pub zone_type: String,
        /// The zone around this one.
        pub parent: String,
        /// Distances to other zones.
        pub costs: Vec<ZoneCost>,
        /// More about the zone.
        pub attributes: Vec<Attribute>,
        /// What the zone offers.
        pub resources: Vec<ZoneResource>,
    }
}

wire_required! {
    /// Distance to another zone.
    #[schemars(extend("required" = ["name", "value"]))]
    pub struct ZoneCost {
        pub name: String,
        pub value: i64,
    }

    /// A name and its value.
    #[schemars(extend("required" = ["name", "value"]))]
    pub struct Attribute {
        pub name: String,
        pub value: String,
    }

    /// What a zone offers of one resource.
    #[schemars(extend("required" = ["allocatable", "available", "capacity", "name"]))]
    pub struct ZoneResource {
        pub name: String,
        pub capacity: Quantity,
        pub allocatable: Quantity,
        pub available: Quantity,
    }
}

open_enum! {
    /// How kubelet places containers on NUMA nodes.
    pub enum TopologyPolicy {
        SingleNumaNodeContainerLevel = "SingleNUMANodeContainerLevel",
        RestrictedContainerLevel = "RestrictedContainerLevel",
        BestEffortContainerLevel = "BestEffortContainerLevel",
        SingleNumaNodePodLevel = "SingleNUMANodePodLevel",
        RestrictedPodLevel = "RestrictedPodLevel",
        BestEffortPodLevel = "BestEffortPodLevel",
        None = "None",
    }
}

impl TopologyPolicy {
    /// What kubelet's `topologyManagerPolicy` and `topologyManagerScope` amount to.
    ///
    /// Differs: upstream reads a missing scope as no policy; kubelet itself means `container`.
    pub fn from_kubelet(policy: &str, scope: &str) -> TopologyPolicy {
        match (policy, scope) {
            ("single-numa-node", "container" | "") => TopologyPolicy::SingleNumaNodeContainerLevel,
            ("restricted", "container" | "") => TopologyPolicy::RestrictedContainerLevel,
            ("best-effort", "container" | "") => TopologyPolicy::BestEffortContainerLevel,
            ("single-numa-node", "pod") => TopologyPolicy::SingleNumaNodePodLevel,
            ("restricted", "pod") => TopologyPolicy::RestrictedPodLevel,
            ("best-effort", "pod") => TopologyPolicy::BestEffortPodLevel,
            _ => TopologyPolicy::None,
        }
    }
}

/// Type of a zone that is a NUMA node.
pub const ZONE_TYPE_NODE: &str = "Node";

const ZONE_NAME_PREFIX: &str = "node-";

impl Zone {
    /// The name of the zone of a NUMA node.
    pub fn name_of(numa_node: u32) -> String {
        format!("{ZONE_NAME_PREFIX}{numa_node}")
    }

    /// The NUMA node of this zone, when its name tells one.
    pub fn numa_node(&self) -> Option<u32> {
        self.name.strip_prefix(ZONE_NAME_PREFIX)?.parse().ok()
    }
}

/// Puts zones in the order in which they are published: by NUMA node, others after them by name.
///
/// Differs: upstream sorts by name as text, so that node-10 stands before node-2.
pub fn sort_zones(zones: &mut [Zone]) {
    zones.sort_by(|a, b| {
        let key = |zone: &Zone| zone.numa_node().map_or(u64::MAX, u64::from);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_of_kubelet() {
        for (policy, scope, want) in [
            ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
            ("restricted", "container", "RestrictedContainerLevel"),
            ("best-effort", "container", "BestEffortContainerLevel"),
            ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
            ("restricted", "pod", "RestrictedPodLevel"),
            ("best-effort", "pod", "BestEffortPodLevel"),
            ("restricted", "", "RestrictedContainerLevel"),
            ("none", "container", "None"),
            ("none", "pod", "None"),
            ("", "", "None"),
            ("odd", "pod", "None"),
            ("restricted", "odd", "None"),
        ] {
            assert_eq!(TopologyPolicy::from_kubelet(policy, scope).as_str(), want, "{policy} {scope}");
        }
    }

    #[test]
    fn zones_stand_in_order_of_numbers() {
        let mut zones: Vec<Zone> = ["other", "node-10", "node-2", "node-x", "node-0"]
            .map(|name| Zone { name: name.to_owned(), ..Zone::default() })
            .to_vec();
        sort_zones(&mut zones);
        let names: Vec<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
        assert_eq!(names, ["node-0", "node-2", "node-10", "node-x", "other"]);
        assert_eq!(Zone::name_of(3), "node-3");
    }

    #[test]
    fn required_fields_are_written_even_when_empty() {
        let topology = v1alpha1::NodeResourceTopology {
            topology_policies: vec![TopologyPolicy::None],
            ..Default::default()
        };
        assert_eq!(
            serde_json::to_value(&topology).unwrap(),
            json!({
                "apiVersion": "topology.node.k8s.io/v1alpha1",
                "kind": "NodeResourceTopology",
                "metadata": {},
                "topologyPolicies": ["None"],
                "zones": [],
            })
        );
        let attribute = Attribute { name: "a".to_owned(), value: String::new() };
        assert_eq!(serde_json::to_value(attribute).unwrap(), json!({ "name": "a", "value": "" }));
    }
}
