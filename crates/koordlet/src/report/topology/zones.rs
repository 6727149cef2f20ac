//! One zone for each NUMA node: its CPUs, memory and huge pages. Spec: koordlet-observe 8.4.

use koord_api::crd::node_resource_topology::{ZONE_TYPE_NODE, Zone, ZoneResource, sort_zones};
use koord_api::keys::node_topology::label::ENABLE_NUMA_RESERVATION;
use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::quantity::{Family, Quantity};
use koord_api::topology::CpuTopology;
use koord_linux::stat::MemInfo;
use koord_linux::topology::NumaNode;

use crate::decide::snapshot::milli;
use crate::state::{Hardware, NodeState};

pub(super) const HUGE_1GI: &str = "hugepages-1Gi";
pub(super) const HUGE_2MI: &str = "hugepages-2Mi";
const MIB_2: i64 = 2 << 20;
const GIB: i64 = 1 << 30;

/// The zones in order. A NUMA node without CPUs is a zone with memory alone, and a kernel that knows no NUMA nodes has one
/// of everything. None when CPUs are on a node whose memory is not known.
///
/// Differs: upstream reports nothing at all on a machine with memory-only NUMA nodes, or on a kernel without NUMA.
pub(super) fn zones(
    topology: &CpuTopology,
    hardware: &Hardware,
    node: &NodeState,
    reports_huge_pages: bool,
) -> Option<Vec<Zone>> {
    let only;
    let numa_nodes = match hardware.numa_nodes.as_slice() {
        [] => {
            only = [whole_machine(node)];
            &only
        }
        several => several,
    };
    let is_known = |id: u32| numa_nodes.iter().any(|numa| numa.id == id);
    if !topology.nodes().all(|(id, _)| is_known(id)) {
        return None;
    }
    let reserved = Reserved::of(node, numa_nodes.len());
    let zone = |numa: &NumaNode| {
        let cpus = topology.node(numa.id).map_or(0, koord_api::cpuset::CpuSet::len);
        let huge = |pages: u64, size: i64| {
            let pages = if reports_huge_pages { signed(pages) } else { 0 };
            pages.saturating_mul(size)
        };
        let (huge_1gi, huge_2mi) = (huge(numa.huge_pages_1gi, GIB), huge(numa.huge_pages_2mi, MIB_2));
        let total = signed(numa.memory.total_kib).saturating_mul(1024);
        let memory = total.saturating_sub(huge_1gi).saturating_sub(huge_2mi).max(0);
        let cpus = i64::try_from(cpus).unwrap_or(i64::MAX);
        let bytes = |amount: i64| Quantity::bytes(amount);
        Zone {
            name: Zone::name_of(numa.id),
            zone_type: ZONE_TYPE_NODE.to_owned(),
            resources: vec![
                resource(CPU, Quantity::from_value(cpus, Family::DecimalSi), reserved.cpu_milli),
                resource(HUGE_1GI, bytes(huge_1gi), 0),
                resource(HUGE_2MI, bytes(huge_2mi), 0),
                resource(MEMORY, bytes(memory), reserved.memory_milli),
            ],
            ..Zone::default()
        }
    };
    let mut zones: Vec<Zone> = numa_nodes.iter().map(zone).collect();
    sort_zones(&mut zones);
    Some(zones)
}

/// The machine as one NUMA node: its memory is what kubelet found in `/proc/meminfo`.
fn whole_machine(node: &NodeState) -> NumaNode {
    let bytes = |name: &str| {
        let value = node.node.capacity.get(name).map_or(0, |quantity| quantity.value());
        u64::try_from(value).unwrap_or(0)
    };
    NumaNode {
        id: 0,
        memory: MemInfo { total_kib: bytes(MEMORY) / 1024, ..MemInfo::default() },
        huge_pages_2mi: bytes(HUGE_2MI) / MIB_2.unsigned_abs(),
        huge_pages_1gi: bytes(HUGE_1GI) / GIB.unsigned_abs(),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Capacity, and what is left when so many thousandths are reserved.
fn resource(name: &str, capacity: Quantity, reserved_milli: i64) -> ZoneResource {
    let left = if reserved_milli == 0 {
        capacity
    } else {
        let milli = capacity.milli_value().saturating_sub(reserved_milli).max(0);
        // Part of a byte has no binary form.
        let family = if milli % 1000 == 0 { capacity.family() } else { Family::DecimalSi };
        Quantity::from_milli(milli, family)
    };
    ZoneResource { name: name.to_owned(), capacity, allocatable: left, available: left }
}

/// What the kubelet keeps of each NUMA node, in thousandths.
#[derive(Default)]
struct Reserved {
    cpu_milli: i64,
    memory_milli: i64,
}

impl Reserved {
    /// An equal part of what lies between capacity and allocatable, where the node's label asks for it.
    fn of(node: &NodeState, numa_nodes: usize) -> Reserved {
        if node.labels.get(ENABLE_NUMA_RESERVATION).map(String::as_str) != Some("true") {
            return Reserved::default();
        }
        let numa_nodes = i64::try_from(numa_nodes).unwrap_or(1).max(1);
        let part = |name: &str| {
            let capacity = milli(&node.node.capacity, name);
            let reserved = capacity.zip(milli(&node.node.allocatable, name));
            let reserved = reserved.map_or(0, |(all, left)| all.saturating_sub(left)).max(0);
            reserved / numa_nodes + i64::from(reserved % numa_nodes > 0)
        };
        Reserved { cpu_milli: part(CPU), memory_milli: part(MEMORY) }
    }
}
