//! Resource names at admission: batch and mid amounts, their record for the node, GPU shares.
//! Spec: api 3.4 a, b, c; manager 15.2, 15.3, 15.5.

use serde::Deserialize;
use serde_json::Value;

use super::tree::{Object, child, containers, containers_mut, texts};
use crate::annotation::node_side::{ExtendedResourceContainer, ExtendedResourceSpec};
use crate::annotation::{Annotation, AnnotationError, read_text};
use crate::keys::resource::{
    BATCH_CPU, BATCH_MEMORY, CPU, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, MEMORY, MID_CPU,
    MID_MEMORY,
};
use crate::priority::{PriorityClass, extended_name};
use crate::quantity::{Family, Quantity, ResourceList};

/// Moves cpu and memory of a pod to the extended resources of its class; only batch and mid have some.
/// Says whether anything moved.
pub fn translate(pod: &mut Value, class: PriorityClass) -> bool {
    if extended_name(class, CPU).is_none() {
        return false;
    }
    let mut changed = false;
    for list in ["initContainers", "containers"] {
        for container in containers_mut(pod, list) {
            let Some(Value::Object(resources)) = container.get_mut("resources") else { continue };
            for side in ["requests", "limits"] {
                changed |= resources.get_mut(side).is_some_and(|list| translate_list(list, class));
            }
            changed |= request_what_is_limited(resources, class);
        }
    }
    let overhead = pod.get_mut("spec").and_then(|spec| spec.get_mut("overhead"));
    changed |= overhead.is_some_and(|list| translate_list(list, class));
    changed
}

/// An amount that is already under the extended name is overwritten.
fn translate_list(list: &mut Value, class: PriorityClass) -> bool {
    let Value::Object(list) = list else { return false };
    let mut changed = false;
    for native in [CPU, MEMORY] {
        let (Some(name), Some(amount)) = (extended_name(class, native), amount(list, native)) else {
            continue;
        };
        let amount = match native {
            CPU => Quantity::from_value(amount.milli_value(), Family::DecimalSi),
            _ => amount,
        };
        list.remove(native);
        set(list, name, amount);
        changed = true;
    }
    changed
}

/// Kubernetes wants extended resources requested where they are limited.
fn request_what_is_limited(resources: &mut Object, class: PriorityClass) -> bool {
    let mut changed = false;
    for name in [CPU, MEMORY].into_iter().filter_map(|native| extended_name(class, native)) {
        let Some(limit) = resources.get("limits").and_then(|limits| limits.get(name)).cloned() else {
            continue;
        };
        let requests = child(resources, "requests");
        if !requests.contains_key(name) {
            requests.insert(name.to_owned(), limit);
            changed = true;
        }
    }
    changed
}

/// A record that is there and cannot be read, so that nobody knows whether it is stale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to get current extended resource spec, err: {}", .0.reason())]
pub struct BrokenRecord(pub AnnotationError);

/// Which amounts the record holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recorded {
    #[default]
    Batch,
    /// Gate ExtendedResourceSpecMid: as upstream writes it, with mid amounts beside the batch ones.
    BatchAndMid,
}

impl Recorded {
    fn names(self) -> &'static [&'static str] {
        match self {
            Recorded::Batch => &[BATCH_CPU, BATCH_MEMORY],
            Recorded::BatchAndMid => &[BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY],
        }
    }
}

/// Records the extended amounts of a pod's containers in an annotation. Says whether it changed.
///
/// A stale record on a pod without such amounts becomes the empty one; an absent one stays absent.
pub fn record_extended(pod: &mut Value, what: Recorded) -> Result<bool, BrokenRecord> {
    let wanted = extended_resource_spec(pod, what);
    let key = ExtendedResourceSpec::KEY;
    let stored =
        pod.pointer("/metadata/annotations").and_then(|texts| texts.get(key)).and_then(Value::as_str);
    let stored: Option<ExtendedResourceSpec> = match stored {
        Some(text) => read_text(key, text).map_err(BrokenRecord)?,
        None => None,
    };
    if stored.unwrap_or_default() == wanted {
        return Ok(false);
    }
    texts(pod, "annotations").insert(key.to_owned(), Value::String(wanted.text()));
    Ok(true)
}

/// The extended amounts of a pod's normal containers.
pub fn extended_resource_spec(pod: &Value, what: Recorded) -> ExtendedResourceSpec {
    let side = |container: &Object, side: &str| -> ResourceList {
        let list = container.get("resources").and_then(|resources| resources.get(side)?.as_object());
        let amounts = what.names().iter().filter_map(|name| Some(((*name).to_owned(), amount(list?, name)?)));
        amounts.collect()
    };
    let containers = containers(pod, "containers").filter_map(|container| {
        let record = ExtendedResourceContainer {
            limits: side(container, "limits"),
            requests: side(container, "requests"),
        };
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        (record != ExtendedResourceContainer::default()).then(|| (name.to_owned(), record))
    });
    ExtendedResourceSpec { containers: containers.collect() }
}

/// Spells out the GPU shorthand of normal containers and states on how many GPUs a share lies.
/// Says whether it changed anything.
pub fn spell_out_gpu(pod: &mut Value) -> bool {
    let mut changed = false;
    for container in containers_mut(pod, "containers") {
        if let Some(Value::Object(resources)) = container.get_mut("resources") {
            changed |= spell_out_container(resources);
        }
    }
    changed
}

/// Differs: amounts may stand in requests or limits alone, upstream panics there (api 11, item 22).
fn spell_out_container(resources: &mut Object) -> bool {
    let Some(side) = asking_side(resources) else { return false };
    let asked = |resources: &Object, name: &str| amount(resources.get(side)?.as_object()?, name);
    let mut changed = false;
    if let Some(gpu) = asked(resources, GPU) {
        let gpu = Quantity::from_value(gpu.value(), Family::DecimalSi);
        for side in ["requests", "limits"] {
            let list = child(resources, side);
            list.remove(GPU);
            set(list, GPU_CORE, gpu);
            set(list, GPU_MEMORY_RATIO, gpu);
        }
        changed = true;
    }
    if asked(resources, GPU_SHARED).is_none() {
        let percent = asked(resources, GPU_MEMORY_RATIO).or_else(|| asked(resources, GPU_CORE));
        let shared = percent.map_or(1, |percent| gpus_shared(percent.value()));
        for side in ["requests", "limits"] {
            set(child(resources, side), GPU_SHARED, Quantity::from_value(shared, Family::DecimalSi));
        }
        changed = true;
    }
    changed
}

/// A share of more than one GPU lies on as many as it has full hundreds; any other on one.
fn gpus_shared(percent: i64) -> i64 {
    if percent > 100 && percent % 100 == 0 { percent / 100 } else { 1 }
}

/// Where a container asks for a share of GPUs: in its requests, or in its limits if requests name nothing of it. The API
/// server fills requests from limits before it asks us; then limits alone do not occur.
fn asking_side(resources: &Object) -> Option<&'static str> {
    let known = [GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED];
    let asks = |side: &&str| {
        let list = resources.get(*side).and_then(Value::as_object);
        list.is_some_and(|list| known.iter().any(|name| amount(list, name).is_some()))
    };
    ["requests", "limits"].into_iter().find(asks)
}

/// An amount of a list; one that cannot be read is left alone, as if it were another resource.
fn amount(list: &Object, name: &str) -> Option<Quantity> {
    Quantity::deserialize(list.get(name)?).ok()
}

fn set(list: &mut Object, name: &str, amount: Quantity) {
    list.insert(name.to_owned(), Value::String(amount.to_string()));
}

#[cfg(test)]
mod tests;
