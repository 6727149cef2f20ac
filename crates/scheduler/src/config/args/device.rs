//! DeviceShareArgs. Spec: scheduler-device 8.1.

use koord_api::gate::Gates;
use koord_api::keys::resource::{FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA};
use koord_engine::profile::args::{Args, DeviceShareArgs as Engine, GpuModel, GpuTemplates};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fit::{RawResource, RawScoring};
use super::{RawArgs, json, listed};
use crate::config::field::Fault;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeviceShareArgs {
    /// There is one allocator, whatever its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator: Option<String>,
    scoring_strategy: Option<RawScoring>,
    #[serde(rename = "disableDeviceNUMATopologyAlignment", skip_serializing_if = "Option::is_none")]
    disable_device_numa_topology_alignment: Option<bool>,
    gpu_shared_resource_templates_config: Option<RawTemplates>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_share_unsupported_models: Option<Vec<RawModel>>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct RawTemplates {
    config_map_namespace: Option<String>,
    config_map_name: Option<String>,
    matched_resources: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct RawModel {
    vendor: String,
    model: String,
}

impl RawArgs for DeviceShareArgs {
    fn set_defaults(&mut self, _: &Gates) {
        self.scoring_strategy.get_or_insert_with(|| {
            let names = [GPU_MEMORY_RATIO, GPU_MEMORY, RDMA, FPGA];
            RawScoring::least(names.into_iter().map(RawResource::new).collect())
        });
        let defaults = GpuTemplates::default();
        let templates = self.gpu_shared_resource_templates_config.get_or_insert_default();
        // Differs: upstream fills in all or nothing, and then looks for a ConfigMap without a namespace.
        templates.config_map_namespace.get_or_insert(defaults.namespace);
        templates.config_map_name.get_or_insert(defaults.name);
        templates.matched_resources.get_or_insert(defaults.matched_resources);
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let scoring = self.scoring_strategy.clone().unwrap_or_default();
        let scoring = match scoring.check(at, "scoringStrategy", "") {
            Ok(scoring) => scoring,
            Err(faults) => return faults,
        };
        let templates = self.gpu_shared_resource_templates_config.clone().unwrap_or_default();
        let model = |raw: &RawModel| GpuModel { vendor: raw.vendor.clone(), model: raw.model.clone() };
        out.device_share = Engine {
            scoring,
            disable_device_numa_topology_alignment: self
                .disable_device_numa_topology_alignment
                .unwrap_or_default(),
            gpu_shared_resource_templates: GpuTemplates {
                namespace: templates.config_map_namespace.unwrap_or_default(),
                name: templates.config_map_name.unwrap_or_default(),
                matched_resources: templates.matched_resources.unwrap_or_default(),
            },
            gpu_share_unsupported_models: listed(&self.gpu_share_unsupported_models)
                .iter()
                .map(model)
                .collect(),
        };
        Vec::new()
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
