//! Resource names at admission: batch and mid amounts, their record for the node, GPU shares.
//! Spec: api 3.4 a, b, c.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

use crate::annotation::node_side::{ExtendedResourceContainer, ExtendedResourceSpec};
use crate::annotation::{AnnotationError, read, write};
use crate::keys::resource::{
    BATCH_CPU, BATCH_MEMORY, CPU, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, MEMORY,
};
use crate::pod::resource_list;
use crate::priority::{self, PriorityClass, extended_name};
use crate::quantity::{Family, Quantity, ResourceList};

type WireList = BTreeMap<String, WireQuantity>;

/// Moves cpu and memory of a batch or mid pod to the extended resources of its class. Says whether it did.
pub fn translate(pod: &mut Pod) -> bool {
    let Some(class) = priority::class_with_default(pod).filter(|class| extended_name(*class, CPU).is_some())
    else {
        return false;
    };
    let Some(spec) = &mut pod.spec else { return false };
    let mut changed = false;
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(resources) = &mut container.resources {
            for list in [&mut resources.requests, &mut resources.limits].into_iter().flatten() {
                changed |= translate_list(list, class);
            }
            changed |= request_what_is_limited(resources, class);
        }
    }
    if let Some(overhead) = &mut spec.overhead {
        changed |= translate_list(overhead, class);
    }
    changed
}

/// An amount that is already under the extended name is overwritten.
fn translate_list(list: &mut WireList, class: PriorityClass) -> bool {
    let mut changed = false;
    for native in [CPU, MEMORY] {
        let amount = list.get(native).and_then(|amount| Quantity::try_from(amount).ok());
        let (Some(name), Some(amount)) = (extended_name(class, native), amount) else { continue };
        let amount = match native {
            CPU => Quantity::from_value(amount.milli_value(), Family::DecimalSi),
            _ => amount,
        };
        list.remove(native);
        list.insert(name.to_string(), amount.into());
        changed = true;
    }
    changed
}

/// Kubernetes wants extended resources requested where they are limited.
fn request_what_is_limited(resources: &mut ResourceRequirements, class: PriorityClass) -> bool {
    let mut changed = false;
    for name in [CPU, MEMORY].into_iter().filter_map(|native| extended_name(class, native)) {
        let Some(limit) = resources.limits.as_ref().and_then(|limits| limits.get(name)).cloned() else {
            continue;
        };
        let requests = resources.requests.get_or_insert_default();
        if !requests.contains_key(name) {
            requests.insert(name.to_string(), limit);
            changed = true;
        }
    }
    changed
}

/// A record that is there and cannot be read, so that nobody knows whether it is stale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to get current extended resource spec, err: {}", .0.reason())]
pub struct BrokenRecord(pub AnnotationError);

/// Records the batch amounts of a pod's containers in an annotation. Says whether it changed.
///
/// A stale record on a pod without batch amounts becomes the empty one; an absent one stays absent.
pub fn record_extended(pod: &mut Pod) -> Result<bool, BrokenRecord> {
    let wanted = extended_resource_spec(pod);
    let stored: Option<ExtendedResourceSpec> =
        read(pod.metadata.annotations.as_ref()).map_err(BrokenRecord)?;
    if stored.unwrap_or_default() == wanted {
        return Ok(false);
    }
    write(pod.metadata.annotations.get_or_insert_default(), &wanted);
    Ok(true)
}

/// The batch amounts of a pod's normal containers.
pub fn extended_resource_spec(pod: &Pod) -> ExtendedResourceSpec {
    let batch = |list: Option<&WireList>| -> ResourceList {
        let mut list = resource_list(list);
        list.retain(|name, _| name == BATCH_CPU || name == BATCH_MEMORY);
        list
    };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|container| {
        let resources = container.resources.as_ref()?;
        let record = ExtendedResourceContainer {
            limits: batch(resources.limits.as_ref()),
            requests: batch(resources.requests.as_ref()),
        };
        (record != ExtendedResourceContainer::default()).then(|| (container.name.clone(), record))
    });
    ExtendedResourceSpec { containers: containers.collect() }
}

/// Spells out the GPU shorthand of normal containers and states on how many GPUs a share lies.
/// Says whether it changed anything.
pub fn spell_out_gpu(pod: &mut Pod) -> bool {
    let mut changed = false;
    for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        changed |= spell_out_container(container);
    }
    changed
}

/// Differs: amounts may stand in requests or limits alone, upstream panics there (api 11, item 22).
fn spell_out_container(container: &mut Container) -> bool {
    let Some(resources) = &mut container.resources else { return false };
    let known = [GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED];
    if !known.iter().any(|name| amount(resources, name).is_some()) {
        return false;
    }
    let mut changed = false;
    if let Some(gpu) = amount(resources, GPU) {
        let gpu = Quantity::from_value(gpu.value(), Family::DecimalSi);
        for list in both(resources) {
            list.remove(GPU);
            list.insert(GPU_CORE.to_string(), gpu.into());
            list.insert(GPU_MEMORY_RATIO.to_string(), gpu.into());
        }
        changed = true;
    }
    if amount(resources, GPU_SHARED).is_none() {
        let percent = amount(resources, GPU_MEMORY_RATIO).or_else(|| amount(resources, GPU_CORE));
        let shared = percent.map_or(1, |percent| gpus_shared(percent.value()));
        for list in both(resources) {
            list.insert(GPU_SHARED.to_string(), Quantity::from_value(shared, Family::DecimalSi).into());
        }
        changed = true;
    }
    changed
}

/// A share of more than one GPU lies on as many as it has full hundreds; any other on one.
fn gpus_shared(percent: i64) -> i64 {
    if percent > 100 && percent % 100 == 0 { percent / 100 } else { 1 }
}

/// The requested amount, else the limit.
fn amount(resources: &ResourceRequirements, name: &str) -> Option<Quantity> {
    let of = |list: &Option<WireList>| Quantity::try_from(list.as_ref()?.get(name)?).ok();
    of(&resources.requests).or_else(|| of(&resources.limits))
}

/// Requests and limits, made when missing.
fn both(resources: &mut ResourceRequirements) -> [&mut WireList; 2] {
    [resources.requests.get_or_insert_default(), resources.limits.get_or_insert_default()]
}

#[cfg(test)]
mod tests;
