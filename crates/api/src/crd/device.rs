//! Device: the accelerators and network cards of one node. Spec: crds 3.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::crd::schema;
use crate::crd::wire::{object, open_enum, wire, wire_required};
use crate::quantity::ResourceList;

object! {
    /// The accelerators and network cards of the node of the same name.
    pub struct Device = "scheduling.koordinator.sh" / "v1alpha1", "devices", ClusterResourceScope {
        /// What is there. Written by koordlet.
        pub spec: Option<DeviceSpec>,
        /// What is in use, for information.
        pub status: Option<DeviceStatus>,
    }
}

wire! {
    /// What is there.
    pub struct DeviceSpec {
        /// Sorted by type, then minor number.
        pub devices: Vec<DeviceInfo>,
    }

    /// One device.
    #[schemars(extend("required" = ["health"]))]
    pub struct DeviceInfo {
        /// `gpu`, `rdma` or `fpga`.
        #[serde(rename = "type")]
        pub device_type: DeviceType,
        /// Properties that a device hint may select by.
        pub labels: BTreeMap<String, String>,
        /// UUID of a GPU, bus id of a network card.
        pub id: String,
        /// Minor number, from 0.
        pub minor: Option<i32>,
        /// Number of the slot.
        #[serde(rename = "moduleID")]
        pub module_id: Option<i32>,
        /// Whether the device works.
        #[schemars(extend("x-koord-default" = false))]
        pub health: bool,
        /// What the device offers.
        pub resources: ResourceList,
        /// Where the device sits.
        pub topology: Option<DeviceTopology>,
        /// Virtual functions of a network card.
        pub vf_groups: Vec<VirtualFunctionGroup>,
        /// What is known about its health.
        #[schemars(schema_with = "schema::conditions")]
        pub conditions: Vec<Condition>,
    }

    /// Virtual functions with the same properties.
    pub struct VirtualFunctionGroup {
        pub labels: BTreeMap<String, String>,
        pub vfs: Vec<VirtualFunction>,
    }

    /// One virtual function.
    #[schemars(extend("required" = ["minor"]))]
    pub struct VirtualFunction {
        pub minor: i32,
        /// dddd:bb:dd.f
        #[serde(rename = "busID")]
        pub bus_id: String,
    }

    /// What is in use.
    pub struct DeviceStatus {
        pub allocations: Vec<DeviceAllocation>,
    }

    /// What is in use of one type.
    pub struct DeviceAllocation {
        #[serde(rename = "type")]
        pub device_type: DeviceType,
        pub entries: Vec<DeviceAllocationItem>,
    }

    /// What one pod uses.
    pub struct DeviceAllocationItem {
        pub namespace: String,
        pub name: String,
        pub uuid: String,
        pub minors: Vec<i32>,
    }
}

wire_required! {
    /// Where a device sits.
    #[schemars(extend("required" = ["nodeID", "pcieID", "socketID"]))]
    pub struct DeviceTopology {
        #[serde(rename = "socketID")]
        pub socket_id: i32,
        /// NUMA node, unique across sockets.
        #[serde(rename = "nodeID")]
        pub node_id: i32,
        /// PCIe switch, unique across NUMA nodes.
        #[serde(rename = "pcieID")]
        pub pcie_id: String,
        /// dddd:bb:dd.f
        #[serde(rename = "busID")]
        pub bus_id: Option<String>,
    }
}

open_enum! {
    /// Kinds of devices.
    pub enum DeviceType {
        Gpu = "gpu",
        Rdma = "rdma",
        Fpga = "fpga",
    }
}

/// Type of the condition that tells whether a device works.
pub const CONDITION_HEALTHY: &str = "Healthy";
