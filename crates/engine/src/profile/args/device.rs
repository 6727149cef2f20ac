//! DeviceShare. Spec: scheduler-device 8.1.

use koord_api::keys::resource::{FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, HUAWEI_NPU_CORE, RDMA};

use super::{Allocation, ResourceWeight, Scoring};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceShareArgs {
    /// Without resources every node and device scores 0.
    pub scoring: Scoring,
    /// Devices take no part in NUMA hints.
    pub disable_device_numa_topology_alignment: bool,
    pub gpu_shared_resource_templates: GpuTemplates,
    /// Models that cannot be shared.
    pub gpu_share_unsupported_models: Vec<GpuModel>,
}

/// The ConfigMap of GPU slices, and the resources whose requests it rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuTemplates {
    pub namespace: String,
    pub name: String,
    pub matched_resources: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuModel {
    pub vendor: String,
    pub model: String,
}

impl Default for GpuTemplates {
    fn default() -> GpuTemplates {
        GpuTemplates {
            namespace: "koordinator-system".to_owned(),
            name: "gpu-shared-resource-templates".to_owned(),
            matched_resources: vec![HUAWEI_NPU_CORE.to_owned()],
        }
    }
}

impl Default for DeviceShareArgs {
    fn default() -> DeviceShareArgs {
        let names = [GPU_MEMORY_RATIO, GPU_MEMORY, RDMA, FPGA];
        let resources = names.into_iter().map(|name| ResourceWeight::new(name, 1)).collect();
        DeviceShareArgs {
            scoring: Scoring { strategy: Allocation::Least, resources },
            disable_device_numa_topology_alignment: false,
            gpu_shared_resource_templates: GpuTemplates::default(),
            gpu_share_unsupported_models: Vec::new(),
        }
    }
}
