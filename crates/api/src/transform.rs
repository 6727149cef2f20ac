//! What readers change in objects that come from a watch, in memory only, never written back.
//!
//! Old resource names become today's, and switched-on rules fill in priority, preemption policy and
//! scheduler. The scheduler does all of it, the descheduler what concerns pods. Spec: api 3.3.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

use crate::annotation::device::DeviceAllocations;
use crate::annotation::node_reservation::NodeReservation;
use crate::annotation::node_side::ReplaceResources;
use crate::annotation::{AnnotationError, OrAbsent, read, write};
use crate::crd::device::Device;
use crate::crd::elastic_quota::ElasticQuota;
use crate::crd::reservation::Reservation;
use crate::gate::Gates;
use crate::keys::pod::annotation::{DEVICE_ALLOCATED, ORIGINAL_SCHEDULER_NAME};
use crate::keys::pod::label::{PREEMPTION_POLICY, SCHEDULER_NAME};
use crate::keys::resource::{CPU, OLD_BATCH_NAMES, OLD_DEVICE_NAMES};
use crate::pod::{annotation, label, resource_list};
use crate::priority;
use crate::quantity::{Family, Quantity, ResourceList};

/// Which of the optional changes are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodTransform {
    pub replace_resources: bool,
    pub priority: bool,
    pub preemption_policy: bool,
}

impl PodTransform {
    pub fn new(gates: &Gates) -> PodTransform {
        PodTransform {
            replace_resources: gates.is_on("ReplaceResourcesTransformer"),
            priority: gates.is_on("PriorityTransformer"),
            preemption_policy: gates.is_on("PreemptionPolicyTransformer"),
        }
    }

    /// Whether `apply` would change anything. Most pods stay as they are, and need no copy.
    pub fn concerns(self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return true };
        self != PodTransform::default()
            || label(pod, SCHEDULER_NAME).is_some_and(|name| !name.is_empty())
            || annotation(pod, DEVICE_ALLOCATED).is_some()
            || lists(spec).any(has_old_names)
    }

    /// Changes a pod. Annotations that cannot be read are reported and left as they are.
    pub fn apply(self, pod: &mut Pod, mut report: impl FnMut(&AnnotationError)) {
        let spec = pod.spec.get_or_insert_default();
        for_each_list(spec, |list| rename_old(list, &[&OLD_BATCH_NAMES, &OLD_DEVICE_NAMES]));
        rename_allocated(pod, &mut report);
        if self.replace_resources {
            replace_resources(pod, &mut report);
        }
        if self.priority {
            let value = priority::value_with_default(pod);
            pod.spec.get_or_insert_default().priority = Some(value);
        }
        if self.preemption_policy {
            let policy = match label(pod, PREEMPTION_POLICY) {
                Some("PreemptLowerPriority") => "PreemptLowerPriority",
                _ => "Never",
            };
            pod.spec.get_or_insert_default().preemption_policy = Some(policy.to_string());
        }
        rename_scheduler(pod);
    }
}

/// What a node has to offer to pods: today's names, without what it reserves for others. A reservation that cannot
/// be read counts as none.
///
/// Differs: upstream takes the reservation off first and then no longer translates the old batch names.
/// Spec: scheduler-core 9.2 and 9.9.
pub fn allocatable(node: &Node) -> ResourceList {
    let mut list = resource_list(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
    rename_old(&mut list, &[&OLD_BATCH_NAMES, &OLD_DEVICE_NAMES]);
    if let Ok(Some(reservation)) = read::<NodeReservation>(node.metadata.annotations.as_ref()) {
        reservation.lessen(&mut list);
    }
    list
}

/// Changes a node.
pub fn node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        for list in [&mut status.allocatable, &mut status.capacity].into_iter().flatten() {
            rename_old(list, &[&OLD_BATCH_NAMES, &OLD_DEVICE_NAMES]);
        }
    }
}

/// Changes a Device.
pub fn device(device: &mut Device) {
    for info in device.spec.iter_mut().flat_map(|spec| &mut spec.devices) {
        rename_old(&mut info.resources, &[&OLD_DEVICE_NAMES]);
    }
}

/// Changes an ElasticQuota.
pub fn elastic_quota(quota: &mut ElasticQuota) {
    if let Some(spec) = &mut quota.spec {
        rename_old(&mut spec.min, &[&OLD_BATCH_NAMES]);
        rename_old(&mut spec.max, &[&OLD_BATCH_NAMES]);
    }
}

/// Changes a Reservation.
///
/// Differs: upstream leaves old names in reservations, which then hold what no pod asks for.
pub fn reservation(reservation: &mut Reservation) {
    let names: [&[(&str, &str)]; 2] = [&OLD_BATCH_NAMES, &OLD_DEVICE_NAMES];
    let template = reservation.spec.as_mut().and_then(|spec| spec.template.as_mut());
    if let Some(spec) = template.and_then(|template| template.spec.as_mut()) {
        for_each_list(spec, |list| rename_old(list, &names));
    }
    if let Some(status) = &mut reservation.status {
        rename_old(&mut status.allocatable, &names);
        rename_old(&mut status.allocated, &names);
    }
}

/// An amount that can be counted in thousandths.
trait Amount: Sized {
    /// The amount in milli units as an integer; none when it is no quantity.
    fn milli_units(&self) -> Option<Self>;
}

impl Amount for Quantity {
    fn milli_units(&self) -> Option<Quantity> {
        Some(Quantity::from_value(self.milli_value(), Family::DecimalSi))
    }
}

impl Amount for WireQuantity {
    fn milli_units(&self) -> Option<WireQuantity> {
        Quantity::try_from(self).ok()?.milli_units().map(WireQuantity::from)
    }
}

/// Every resource list of a pod that names are read in.
fn lists(spec: &PodSpec) -> impl Iterator<Item = &BTreeMap<String, WireQuantity>> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let resources = containers.filter_map(|container| container.resources.as_ref());
    resources.flat_map(|of| [&of.requests, &of.limits]).chain([&spec.overhead]).flatten()
}

fn has_old_names(list: &BTreeMap<String, WireQuantity>) -> bool {
    OLD_BATCH_NAMES.iter().chain(&OLD_DEVICE_NAMES).any(|(old, _)| list.contains_key(*old))
}

/// Every resource list of a pod that names are changed in.
fn for_each_list(spec: &mut PodSpec, mut f: impl FnMut(&mut BTreeMap<String, WireQuantity>)) {
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(resources) = &mut container.resources {
            [&mut resources.requests, &mut resources.limits].into_iter().flatten().for_each(&mut f);
        }
    }
    spec.overhead.iter_mut().for_each(f);
}

fn rename_old<A: Amount>(list: &mut BTreeMap<String, A>, tables: &[&[(&str, &str)]]) {
    for (old, new) in tables.iter().copied().flatten() {
        rename(list, old, new);
    }
}

/// Moves an amount to another name unless that is taken. Cpu becomes integer milli units.
fn rename<A: Amount>(list: &mut BTreeMap<String, A>, from: &str, to: &str) {
    if list.contains_key(to) {
        return;
    }
    let Some(amount) = list.get(from) else { return };
    let milli = if from == CPU { amount.milli_units() } else { None };
    if let Some(amount) = list.remove(from) {
        list.insert(to.to_string(), milli.unwrap_or(amount));
    }
}

fn rename_allocated(pod: &mut Pod, report: impl FnMut(&AnnotationError)) {
    let Some(annotations) = &mut pod.metadata.annotations else { return };
    let Some(before) = read::<DeviceAllocations>(&*annotations).or_absent(report) else { return };
    let mut after = before.clone();
    for allocation in after.0.values_mut().flatten() {
        rename_old(&mut allocation.resources, &[&OLD_DEVICE_NAMES]);
    }
    if after != before {
        write(annotations, &after);
    }
}

fn replace_resources(pod: &mut Pod, report: impl FnMut(&AnnotationError)) {
    let Some(wanted) = read::<ReplaceResources>(pod.metadata.annotations.as_ref()).or_absent(report) else {
        return;
    };
    for_each_list(pod.spec.get_or_insert_default(), |list| {
        for name in &wanted.erase {
            list.remove(name);
        }
        for (from, to) in &wanted.replace {
            rename(list, from, to);
        }
    });
}

/// The label names another scheduler.
///
/// Differs: upstream takes an empty label too, and then nobody schedules the pod. Spec: scheduler-core 9.3.
fn rename_scheduler(pod: &mut Pod) {
    let name = label(pod, SCHEDULER_NAME).filter(|name| !name.is_empty());
    let Some(name) = name.map(str::to_string) else { return };
    let spec = pod.spec.get_or_insert_default();
    let before = spec.scheduler_name.replace(name.clone()).unwrap_or_default();
    if before != name {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(ORIGINAL_SCHEDULER_NAME.to_string(), before);
    }
}

#[cfg(test)]
mod tests;
