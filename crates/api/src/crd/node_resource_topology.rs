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
