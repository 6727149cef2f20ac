//! The Device object of a node with GPUs or RDMA cards, as koordlet reports it. Pure.
//! Spec: koordlet-observe 6.6.

use koord_api::crd::device::{DeviceInfo, DeviceTopology, DeviceType, VirtualFunction, VirtualFunctionGroup};
use koord_api::keys::device::label::{GPU_DRIVER_VERSION, GPU_MODEL, GPU_VENDOR};
use koord_api::keys::resource::{GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA};
use koord_api::quantity::{Family, Quantity, ResourceList};
use serde_json::{Map, Value, json};

use super::lifecycle::hex_digest;
use super::shape::Shape;

/// GPUs that hang on one PCIe switch, as in usual servers.
const GPUS_PER_SWITCH: u32 = 2;
/// Functions of one PCI device.
const FUNCTIONS: u32 = 8;

/// What is there, sorted by type, then minor number.
pub(crate) fn devices(shape: &Shape, node: &str) -> Vec<DeviceInfo> {
    let gpus = (0..shape.gpus.count).map(|minor| gpu(shape, node, minor));
    let cards = (0..shape.rdma.count).map(|minor| card(shape, minor));
    gpus.chain(cards).collect()
}

/// UUID of a GPU, as the driver writes it.
pub(crate) fn gpu_id(node: &str, minor: u32) -> String {
    let hex = hex_digest(&[node, "gpu", &minor.to_string()]);
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
}

fn gpu(shape: &Shape, node: &str, minor: u32) -> DeviceInfo {
    let hundred = Quantity::from_value(100, Family::DecimalSi);
    DeviceInfo {
        device_type: DeviceType::Gpu,
        id: gpu_id(node, minor),
        minor: i32::try_from(minor).ok(),
        health: true,
        resources: ResourceList::from([
            (GPU_CORE.to_owned(), hundred),
            (GPU_MEMORY.to_owned(), Quantity::bytes(shape.gpus.memory)),
            (GPU_MEMORY_RATIO.to_owned(), hundred),
        ]),
        topology: Some(place(shape, Slot::of(shape, shape.gpus.count, minor), 0)),
        ..DeviceInfo::default()
    }
}

fn card(shape: &Shape, minor: u32) -> DeviceInfo {
    let slot = Slot::of(shape, shape.rdma.count, minor);
    let topology = place(shape, slot, 1);
    let bus = bus(shape, slot, 1);
    let vfs: Vec<VirtualFunction> =
        (1..=shape.rdma.vfs).map(|vf| VirtualFunction { minor: -1, bus_id: address(bus, vf) }).collect();
    let groups = VirtualFunctionGroup { vfs, ..VirtualFunctionGroup::default() };
    DeviceInfo {
        device_type: DeviceType::Rdma,
        id: topology.bus_id.clone().unwrap_or_default(),
        minor: i32::try_from(minor).ok(),
        health: true,
        resources: ResourceList::from([(RDMA.to_owned(), Quantity::from_value(100, Family::DecimalSi))]),
        topology: Some(topology),
        vf_groups: if shape.rdma.vfs == 0 { Vec::new() } else { vec![groups] },
        ..DeviceInfo::default()
    }
}

/// Where among its like a device sits.
#[derive(Clone, Copy)]
struct Slot {
    numa: u32,
    /// Number among the devices of its kind on that NUMA node.
    nth: u32,
}

impl Slot {
    /// Devices come in order over the NUMA nodes, as even as their number allows.
    fn of(shape: &Shape, count: u32, minor: u32) -> Slot {
        let per_node = count.div_ceil(shape.numa_nodes().max(1)).max(1);
        Slot { numa: minor / per_node, nth: minor % per_node }
    }

    /// The PCIe switch; network cards share those of the GPUs.
    fn switch(self, shape: &Shape) -> u32 {
        let switches = switches_per_node(shape);
        let local = match shape.gpus.count {
            0 => self.nth % switches,
            _ => (self.nth / GPUS_PER_SWITCH).min(switches - 1),
        };
        self.numa * switches + local
    }
}

fn switches_per_node(shape: &Shape) -> u32 {
    let count = shape.gpus.count.max(shape.rdma.count);
    count.div_ceil(shape.numa_nodes().max(1)).div_ceil(GPUS_PER_SWITCH).max(1)
}

/// The number of a bus: cards of kind 1 on the buses after those of kind 0.
fn bus(shape: &Shape, slot: Slot, kind: u32) -> u32 {
    let per_node = switches_per_node(shape) * GPUS_PER_SWITCH;
    0x10 + (slot.numa * per_node + slot.nth) * 2 + kind
}

/// The address of a function; eight functions make a device, 32 devices a bus.
fn address(bus: u32, function: u32) -> String {
    // Past 255 the domain changes, as in machines with many buses.
    format!("{:04x}:{:02x}:{:02x}.{}", bus >> 8, bus & 0xff, function / FUNCTIONS, function % FUNCTIONS)
}

fn place(shape: &Shape, slot: Slot, kind: u32) -> DeviceTopology {
    let switch = slot.switch(shape);
    DeviceTopology {
        // As koordlet writes it: a card's socket is not known to it.
        socket_id: -1,
        node_id: i32::try_from(slot.numa).unwrap_or(-1),
        pcie_id: format!("pci{:04x}:{:02x}", switch >> 8, switch & 0xff),
        bus_id: Some(address(bus(shape, slot, kind), 0)),
    }
}

/// The object as koordlet writes it.
pub(crate) fn object(shape: &Shape, node: &str, node_uid: &str) -> Value {
    let mut labels = Map::new();
    if shape.gpus.count > 0 {
        labels.insert(GPU_VENDOR.to_owned(), Value::from("nvidia"));
        labels.insert(GPU_MODEL.to_owned(), Value::from(shape.gpus.model.as_str()));
        labels.insert(GPU_DRIVER_VERSION.to_owned(), Value::from(shape.gpus.driver.as_str()));
    }
    json!({
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device",
        "metadata": {"name": node, "labels": labels, "ownerReferences": super::objects::owner(node, node_uid)},
        "spec": {"devices": devices(shape, node)},
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::nodes::shape::{Gpus, Rdma};

    #[test]
    fn eight_gpus_and_four_cards_on_two_numa_nodes() {
        let shape = Shape {
            sockets: 2,
            gpus: Gpus { count: 8, ..Gpus::default() },
            rdma: Rdma { count: 4, vfs: 9 },
            ..Shape::default()
        };
        let list = devices(&shape, "n");
        let numa: Vec<i32> = list.iter().map(|d| d.topology.as_ref().unwrap().node_id).collect();
        assert_eq!(numa, [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1]);
        let switches: Vec<&str> =
            list.iter().map(|d| d.topology.as_ref().unwrap().pcie_id.as_str()).collect();
        assert_eq!(
            switches,
            [
                "pci0000:00",
                "pci0000:00",
                "pci0000:01",
                "pci0000:01",
                "pci0000:02",
                "pci0000:02",
                "pci0000:03",
                "pci0000:03",
                "pci0000:00",
                "pci0000:00",
                "pci0000:02",
                "pci0000:02",
            ]
        );
        let buses = list.iter().filter_map(|d| d.topology.as_ref()?.bus_id.clone());
        let functions = list.iter().flat_map(|d| &d.vf_groups).flat_map(|g| &g.vfs).map(|v| v.bus_id.clone());
        let all: Vec<String> = buses.chain(functions).collect();
        assert_eq!(all.len(), 12 + 4 * 9);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "addresses differ");
        let card = &list[8];
        assert_eq!(card.id, card.topology.as_ref().unwrap().bus_id.clone().unwrap());
        assert_eq!(card.vf_groups[0].vfs[8].bus_id, "0000:11:01.1");
        assert_eq!(list[0].resources[GPU_MEMORY].to_string(), "80Gi");
        assert!(list[0].id.starts_with("GPU-") && list[0].id.len() == 40);
    }

    #[test]
    fn labels_only_of_gpus() {
        let cards = Shape { rdma: Rdma { count: 1, vfs: 0 }, ..Shape::default() };
        let object = object(&cards, "n", "u");
        assert_eq!(object["metadata"]["labels"], json!({}));
        assert_eq!(object["spec"]["devices"][0].get("vfGroups"), None);
        assert_eq!(object["spec"]["devices"][0]["topology"]["nodeID"], 0);
    }
}
