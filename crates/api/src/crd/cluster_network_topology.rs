//! ClusterNetworkTopology: the layers of a cluster's network. Spec: crds 12.

use crate::crd::wire::{object, wire, wire_required};

/// The layer above all others.
pub const CLUSTER_LAYER: &str = "ClusterTopologyLayer";
/// The layer of nodes.
pub const NODE_LAYER: &str = "NodeTopologyLayer";

object! {
    /// The layers of the cluster's network.
    pub struct ClusterNetworkTopology = "scheduling.koordinator.sh" / "v1alpha1", "clusternetworktopologies", ClusterResourceScope {
        /// The layers, from labels of nodes.
        pub spec: Option<ClusterNetworkTopologySpec>,
        /// The tree that the nodes form. Written by koord-scheduler.
        pub status: Option<ClusterNetworkTopologyStatus>,
    }
}

wire! {
    /// One layer.
    #[schemars(extend("required" = ["topologyLayer"]))]
    pub struct NetworkTopologyLayer {
        /// Name of the layer; ClusterTopologyLayer is the root, NodeTopologyLayer the leaf.
        pub topology_layer: String,
        /// The layer above.
        pub parent_topology_layer: String,
        /// Labels of a node, any of which names its place in this layer.
        pub label_key: Vec<String>,
    }

    /// The tree that the nodes form.
    pub struct ClusterNetworkTopologyStatus {
        pub detail_status: Vec<NetworkTopologyDetail>,
    }

    /// One place in the tree.
    #[schemars(extend("required" = ["nodeNum", "topologyInfo"]))]
    pub struct NetworkTopologyDetail {
        pub topology_info: TopologyInfo,
        /// The place above.
        pub parent_topology_info: Option<TopologyInfo>,
        /// The layer below.
        pub child_topology_layer: String,
        /// The places below.
        pub child_topology_names: Vec<String>,
        /// Nodes in this place.
        pub node_num: i32,
    }
}

wire_required! {
    /// The layers, from labels of nodes.
    #[schemars(extend("required" = ["networkTopologySpec"]))]
    pub struct ClusterNetworkTopologySpec {
        pub network_topology_spec: Vec<NetworkTopologyLayer>,
    }

    /// Layer and name of a place.
    #[schemars(extend("required" = ["topologyLayer", "topologyName"]))]
    pub struct TopologyInfo {
        pub topology_layer: String,
        pub topology_name: String,
    }
}
