//! What batch and mid resources both start from: what a node has, what it keeps, and how fresh its report is.

use jiff::{SignedDuration, Timestamp};
use koord_api::annotation::node::RawAllocatable;
use koord_api::annotation::node_reservation::NodeReservation;
use koord_api::annotation::{OrAbsent, read};
use koord_api::cpuset::CpuSet;
use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::quantity::Quantity;

use super::view::{MetricView, NodeView};
use crate::amounts::Amounts;

/// What a node has and keeps for itself. Spec: manager 6.3.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Base {
    pub capacity: Amounts,
    /// What the kubelet keeps: capacity less allocatable.
    pub kubelet_reserved: Amounts,
    /// What the annotation keeps.
    pub annotation_reserved: Amounts,
    /// The larger of the two.
    pub reserved: Amounts,
}

impl Base {
    pub fn of(node: &NodeView) -> Base {
        let capacity = node.capacity.as_ref().map(Amounts::of).unwrap_or_default();
        let kubelet_reserved = (capacity - kubelet_allocatable(node)).max(Amounts::ZERO);
        let annotation_reserved = annotation_reserved(node);
        let reserved = kubelet_reserved.max(annotation_reserved);
        Base { capacity, kubelet_reserved, annotation_reserved, reserved }
    }
}

/// What the kubelet offers to pods.
///
/// Differs: on an amplified node what it was before; upstream takes the amplified amount, and with it nothing as
/// reserved (DB-10).
fn kubelet_allocatable(node: &NodeView) -> Amounts {
    let mut allocatable = node.allocatable.as_ref().map(Amounts::of).unwrap_or_default();
    if let Some(raw) = read::<RawAllocatable>(&node.annotations).or_absent(|_| ()) {
        allocatable.cpu = raw.0.get(CPU).copied().unwrap_or(allocatable.cpu);
        allocatable.memory = raw.0.get(MEMORY).copied().unwrap_or(allocatable.memory);
    }
    allocatable
}

/// A list of CPUs counts in place of the cpu amount. What cannot be read reserves nothing.
fn annotation_reserved(node: &NodeView) -> Amounts {
    let Some(reservation) = read::<NodeReservation>(&node.annotations).or_absent(|_| ()) else {
        return Amounts::ZERO;
    };
    let mut reserved = Amounts::of(&reservation.resources);
    if !reservation.reserved_cpus.is_empty() {
        let Ok(cpus) = reservation.reserved_cpus.parse::<CpuSet>() else { return Amounts::ZERO };
        let milli = i64::try_from(cpus.len()).unwrap_or(i64::MAX).saturating_mul(1000);
        reserved.cpu = Quantity::cores_milli(milli);
    }
    reserved
}

/// Whether a report is young enough to be believed.
pub fn is_fresh(metric: &MetricView, now: Timestamp, degrade_after: SignedDuration) -> bool {
    metric.update_time.is_some_and(|reported| now.duration_since(reported) <= degrade_after)
}
