//! What decisions are made from: a node, its CPUs, its pods and what was measured, as plain values.
//!
//! Objects are read once, when they arrive (`Pod::read`, `Node::read`, `Layout::read`); nothing here looks at
//! an object later. A malformed annotation is kept as its error, and each reader does what the specification
//! says. Spec: koordlet-enforce 1.1.

mod pod;

pub use pod::{Container, Phase, Pod, Read, Volume};

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1;
use koord_api::annotation::node::SystemQosResource;
use koord_api::annotation::node_reservation::NodeReservation;
use koord_api::annotation::node_topology::{
    BeCpuSharedPools, CpuSharedPool, CpuSharedPools, KubeletCpuManagerPolicy,
};
use koord_api::annotation::ratio::CpuNormalizationRatio;
use koord_api::annotation::{Annotations, read};
use koord_api::cpuset::CpuSet;
use koord_api::keys::resource::{BATCH_CPU, CPU, MEMORY};
use koord_api::pod::resource_list;
use koord_api::quantity::ResourceList;
use koord_api::topology::CpuTopology;

/// What a Node object says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub capacity: ResourceList,
    pub allocatable: ResourceList,
    /// CPU that the reservation annotation keeps away from pods.
    pub annotated_reserved_milli: i64,
    pub cpu_normalization: Option<Result<CpuNormalizationRatio, String>>,
}

impl Node {
    pub fn read(node: &v1::Node) -> Node {
        let status = node.status.as_ref();
        let annotations = node.metadata.annotations.as_ref();
        let reservation: Option<NodeReservation> = read(annotations).unwrap_or_default();
        let ratio = read::<CpuNormalizationRatio>(annotations).map_err(|error| error.reason()).transpose();
        Node {
            capacity: resource_list(status.and_then(|status| status.capacity.as_ref())),
            allocatable: resource_list(status.and_then(|status| status.allocatable.as_ref())),
            annotated_reserved_milli: reservation.as_ref().map_or(0, reserved_milli),
            cpu_normalization: ratio,
        }
    }

    pub fn cpu_capacity_milli(&self) -> i64 {
        milli(&self.capacity, CPU).unwrap_or(0)
    }

    pub fn memory_capacity(&self) -> i64 {
        whole(&self.capacity, MEMORY).unwrap_or(0)
    }

    pub fn memory_allocatable(&self) -> i64 {
        whole(&self.allocatable, MEMORY).unwrap_or(0)
    }

    pub fn batch_cpu_allocatable_milli(&self) -> Option<i64> {
        whole(&self.allocatable, BATCH_CPU)
    }

    /// CPU that is not for pods: the larger of what kubelet and what the annotation keep.
    pub fn cpu_reserved_milli(&self) -> i64 {
        let kubelet = match milli(&self.allocatable, CPU) {
            Some(allocatable) => self.cpu_capacity_milli().saturating_sub(allocatable).max(0),
            None => 0,
        };
        kubelet.max(self.annotated_reserved_milli)
    }
}

/// A list of CPUs counts in place of the amount; one that cannot be read cancels the reservation.
fn reserved_milli(reservation: &NodeReservation) -> i64 {
    if reservation.reserved_cpus.is_empty() {
        return milli(&reservation.resources, CPU).unwrap_or(0);
    }
    match reservation.reserved_cpus.parse::<CpuSet>() {
        Ok(cpus) => i64::try_from(cpus.len()).unwrap_or(i64::MAX).saturating_mul(1000),
        Err(_) => 0,
    }
}

/// Thousandths of a resource, such as milli-cores of `cpu`.
pub fn milli(list: &ResourceList, name: &str) -> Option<i64> {
    list.get(name).map(|amount| amount.milli_value())
}

/// Whole units of a resource: bytes, or milli-cores where the name counts those.
pub fn whole(list: &ResourceList, name: &str) -> Option<i64> {
    list.get(name).map(|amount| amount.value())
}

/// How the CPUs of the node hang together and who may use them: a NodeResourceTopology as the node knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    pub topology: CpuTopology,
    /// Kept for things that are not pods.
    pub reserved: CpuSet,
    /// For pods of class SYSTEM.
    pub system: CpuSet,
    /// Whether nobody else may use those.
    pub is_system_exclusive: bool,
    /// Whether kubelet pins Guaranteed pods itself.
    pub is_kubelet_static: bool,
    pub ls_pools: Vec<CpuSharedPool>,
    pub be_pools: Vec<CpuSharedPool>,
}

impl Layout {
    /// Annotations that cannot be read count as absent.
    pub fn read(topology: CpuTopology, annotations: &Annotations) -> Layout {
        let reservation: NodeReservation = read(annotations).unwrap_or_default().unwrap_or_default();
        let system: SystemQosResource = read(annotations).unwrap_or_default().unwrap_or_default();
        let kubelet: KubeletCpuManagerPolicy = read(annotations).unwrap_or_default().unwrap_or_default();
        let CpuSharedPools(ls_pools) = read(annotations).unwrap_or_default().unwrap_or_default();
        let BeCpuSharedPools(be_pools) = read(annotations).unwrap_or_default().unwrap_or_default();
        Layout {
            topology,
            reserved: reservation.reserved_cpus.parse().unwrap_or_default(),
            system: system.cpus().unwrap_or_default(),
            is_system_exclusive: system.is_exclusive(),
            is_kubelet_static: kubelet.is_static(),
            ls_pools,
            be_pools,
        }
    }

    /// All CPUs but those reserved and those that only SYSTEM pods may use.
    pub fn open_cpus(&self) -> CpuSet {
        let open = self.topology.all() - &self.reserved;
        if self.is_system_exclusive { &open - &self.system } else { open }
    }
}

/// CPU in use, in cores. What has no sample is not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUsage {
    pub node: Option<f64>,
    /// By uid. May name pods that the pod list does not have.
    pub pods: BTreeMap<Arc<str>, f64>,
    /// Host applications by name.
    pub applications: BTreeMap<String, f64>,
}

/// Memory in use, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    pub node: Option<f64>,
    pub pods: BTreeMap<Arc<str>, f64>,
}

/// A best-effort group found on disk and the CPUs it has now.
#[derive(Clone, Debug, PartialEq)]
pub struct BestEffortGroup {
    pub place: super::wish::Place,
    pub level: Level,
    /// The pod that it is of, or lies below; none when nobody knows it.
    pub pod: Option<Arc<str>>,
}

/// How deep a group lies below the group of all best-effort pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Pod,
    Container,
}

#[cfg(test)]
mod tests {
    use koord_api::quantity::Quantity;

    use super::*;
    use crate::decide::sketch::{node, pod};

    #[test]
    fn reserved_cpu() {
        let reservation = |text: &str| node(&[("cpu", "20")], &[("cpu", "20")]).annotated(RESERVATION, text);
        const RESERVATION: &str = "node.koordinator.sh/reservation";
        for (name, node, want) in [
            ("none", node(&[("cpu", "20")], &[("cpu", "20")]), 0),
            ("kubelet", node(&[("cpu", "20")], &[("cpu", "17")]), 3000),
            ("more allocatable than there is", node(&[("cpu", "20")], &[("cpu", "30")]), 0),
            ("amount", reservation(r#"{"resources":{"cpu":"2"}}"#), 2000),
            ("list", reservation(r#"{"resources":{"cpu":"2"},"reservedCPUs":"0-5"}"#), 6000),
            ("bad list", reservation(r#"{"resources":{"cpu":"2"},"reservedCPUs":"a-b"}"#), 0),
            ("no JSON", reservation("{"), 0),
        ] {
            assert_eq!(node.read().cpu_reserved_milli(), want, "{name}");
        }
    }

    #[test]
    fn pods_are_read_once() {
        let sidecar = pod("a").qos("LS").container("main", &[("cpu", "1")], &[("cpu", "2")]).sidecar("log");
        let sidecar = sidecar.running();
        let read = sidecar.read();
        assert_eq!(read.containers.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["main", "log"]);
        assert_eq!(milli(&read.containers[0].limits, CPU), Some(2000));
        assert!(read.is_active() && !read.is_pinned());
        assert_eq!(read.requests[CPU], Quantity::cores_milli(1000));
        let setup = sidecar.initializing("setup", &[], &[]).read();
        assert_eq!(setup.containers, read.containers, "an init container counts for nothing");
        let names: Vec<&str> = setup.with_init_containers().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["main", "log", "setup"], "koordlet-enforce 14.5");
    }
}
