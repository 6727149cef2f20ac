//! GPUs of a node as countable resources, and labels that say what they are. Spec: manager 10.

use std::collections::BTreeMap;

use koord_api::crd::device::{Device, DeviceInfo, DeviceType};
use koord_api::keys::node::label::{
    GPU_DRIVER_VERSION, GPU_MODEL, GPU_VENDOR, KUBERNETES_GPU_DRIVER, KUBERNETES_GPU_MODEL,
};
use koord_api::keys::resource::{
    GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, HUAWEI_NPU_CORE, HUAWEI_NPU_CPU,
    HUAWEI_NPU_DVPP, OLD_DEVICE_NAMES,
};
use koord_api::quantity::{Family, Quantity};

use super::plan::any_moved;
use super::{Input, Item, NodeMemory, NodeResource, NodeView, Plugin, PluginError};

/// What is written to a Node, and taken off when no GPU works.
const RESOURCES: [&str; 8] = [
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HUAWEI_NPU_CORE,
    HUAWEI_NPU_CPU,
    HUAWEI_NPU_DVPP,
];

/// Labels of a Node, and the label of its Device that each copies. The last two are the keys of v1.0.
const LABELS: [(&str, &str); 5] = [
    (GPU_VENDOR, GPU_VENDOR),
    (GPU_MODEL, GPU_MODEL),
    (GPU_DRIVER_VERSION, GPU_DRIVER_VERSION),
    (KUBERNETES_GPU_MODEL, GPU_MODEL),
    (KUBERNETES_GPU_DRIVER, GPU_DRIVER_VERSION),
];

/// The vendor whose cores also count as `koordinator.sh/gpu`; an unnamed one's do, too.
const NVIDIA: &str = "nvidia";

pub struct GpuDeviceResource;

impl Plugin for GpuDeviceResource {
    fn name(&self) -> &'static str {
        "GPUDeviceResource"
    }

    fn calculate(&self, input: &Input<'_>, _: &mut NodeMemory) -> Result<Vec<Item>, PluginError> {
        let working = |info: &&DeviceInfo| info.device_type == DeviceType::Gpu && info.health;
        let devices = input.device.and_then(|device| device.spec.as_ref()).map(|spec| &spec.devices);
        let gpus: Vec<&DeviceInfo> = devices.into_iter().flatten().filter(working).collect();
        let Some(device) = input.device.filter(|_| !gpus.is_empty()) else {
            return Ok(RESOURCES.map(Item::reset).into());
        };
        let mut totals = totals(&gpus);
        if label(device, GPU_VENDOR).is_none_or(|vendor| vendor.is_empty() || vendor == NVIDIA) {
            let cores = totals.get(GPU_CORE).copied().unwrap_or_default();
            totals.insert(GPU, cores.with_family(Family::DecimalSi));
        }
        if input.options.sync_gpu_shared {
            let percent = i64::try_from(gpus.len()).unwrap_or(i64::MAX).saturating_mul(100);
            totals.insert(GPU_SHARED, Quantity::from_value(percent, Family::DecimalSi));
        }
        let mut items: Vec<Item> =
            totals.into_iter().map(|(name, amount)| Item::quantity(name, amount)).collect();
        let copied = |(own, from): (&str, &str)| Some((own.to_owned(), label(device, from)?.to_owned()));
        let labels = LABELS.into_iter().filter_map(copied).collect();
        items.push(Item { name: self.name(), labels, ..Item::default() });
        Ok(items)
    }

    fn reset(&self) -> Vec<Item> {
        Vec::new()
    }

    /// GPUs are there whether or not their node is colocated (DB-3).
    fn ignores_switch(&self) -> bool {
        true
    }

    /// A resource without a value in this round stays, and so do labels.
    fn prepare(&self, node: &mut NodeView, resource: &NodeResource) -> Result<(), PluginError> {
        set_resources(&RESOURCES, node, resource);
        for (key, _) in LABELS {
            if let Some(value) = resource.labels.get(key) {
                node.labels.insert(key.to_owned(), value.clone());
            }
        }
        Ok(())
    }

    fn needs_status(&self, threshold: f64, old: &NodeView, new: &NodeView) -> Option<bool> {
        Some(any_moved(&RESOURCES, threshold, old, new))
    }

    fn needs_meta(&self, old: &NodeView, new: &NodeView) -> Option<bool> {
        Some(LABELS.into_iter().any(|(key, _)| old.labels.get(key) != new.labels.get(key)))
    }
}

/// Sets those of the resources that have a value and takes off those that are reset.
pub(super) fn set_resources(names: &[&str], node: &mut NodeView, resource: &NodeResource) {
    for name in names {
        let amount = resource.quantity(name);
        if amount.is_some() || resource.resets.contains(*name) {
            node.set_resource(name, amount);
        }
    }
}

fn totals(gpus: &[&DeviceInfo]) -> BTreeMap<&'static str, Quantity> {
    let mut totals = BTreeMap::new();
    for (name, amount) in gpus.iter().flat_map(|info| &info.resources) {
        let name = todays_name(name);
        if let Some(name) = RESOURCES.iter().find(|known| **known == name) {
            *totals.entry(*name).or_default() += *amount;
        }
    }
    totals
}

fn todays_name(name: &str) -> &str {
    OLD_DEVICE_NAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, today)| today)
}

fn label<'d>(device: &'d Device, key: &str) -> Option<&'d str> {
    device.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests;
