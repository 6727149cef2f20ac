//! RDMA network cards of a node as a countable resource. Spec: manager 11.

use koord_api::crd::device::{DeviceInfo, DeviceType};
use koord_api::keys::resource::RDMA;
use koord_api::quantity::{Family, Quantity};

use super::gpu::set_resources;
use super::plan::any_moved;
use super::{Input, Item, NodeMemory, NodeResource, NodeView, Plugin, PluginError};

pub struct RdmaDeviceResource;

impl Plugin for RdmaDeviceResource {
    fn name(&self) -> &'static str {
        "RDMADeviceResource"
    }

    /// 100 for each card that works.
    fn calculate(&self, input: &Input<'_>, _: &mut NodeMemory) -> Result<Vec<Item>, PluginError> {
        let working = |info: &&DeviceInfo| info.device_type == DeviceType::Rdma && info.health;
        let devices = input.device.and_then(|device| device.spec.as_ref()).map(|spec| &spec.devices);
        let count = devices.into_iter().flatten().filter(working).count();
        if count == 0 {
            return Ok(vec![Item::reset(RDMA)]);
        }
        let percent = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(100);
        Ok(vec![Item::quantity(RDMA, Quantity::from_value(percent, Family::DecimalSi))])
    }

    fn reset(&self) -> Vec<Item> {
        Vec::new()
    }

    /// Cards are there whether or not their node is colocated (DB-3).
    fn ignores_switch(&self) -> bool {
        true
    }

    fn prepare(&self, node: &mut NodeView, resource: &NodeResource) -> Result<(), PluginError> {
        set_resources(&[RDMA], node, resource);
        Ok(())
    }

    fn needs_status(&self, threshold: f64, old: &NodeView, new: &NodeView) -> Option<bool> {
        Some(any_moved(&[RDMA], threshold, old, new))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Turn, device, turn};
    use super::*;

    #[test]
    fn cards_that_work_are_counted() {
        let rdma = |health: bool| (DeviceType::Rdma, health, vec![]);
        let gpu = || (DeviceType::Gpu, true, vec![]);
        for (key, devices, before, want) in [
            ("G6", Some(vec![rdma(true), rdma(true), rdma(true), rdma(false), gpu()]), None, Some("300")),
            ("one fails", Some(vec![rdma(true), rdma(false)]), Some("200"), Some("100")),
            ("all fail", Some(vec![rdma(false), gpu()]), Some("200"), None),
            ("no Device", None, Some("200"), None),
            ("never any", None, None, None),
        ] {
            for is_colocated in [true, false] {
                let device = devices.clone().map(|devices| device(devices, &[]));
                let mut turn_in = Turn { is_colocated, device, ..Turn::default() };
                turn_in.node.set_resource(RDMA, before.map(|text| text.parse().unwrap()));
                let plan = turn(&[&RdmaDeviceResource], &turn_in);
                let got = plan.prepared.allocatable(RDMA).map(|amount| amount.to_string());
                assert_eq!(got.as_deref(), want, "{key}");
                assert_eq!(plan.prepared.capacity, plan.prepared.allocatable, "{key}");
                assert_eq!(plan.needs_status, before != want, "{key}");
                assert!(!plan.needs_meta, "{key}");
            }
        }
    }
}
