//! NodeSLO: what one node may take back from best-effort pods, and how pods of each class share it.
//!
//! The manager renders `spec` from slo-controller-config; koordlet merges it over built-in
//! defaults. The strategies double as the contents of that ConfigMap. Spec: crds 5.

mod burst;
mod host;
mod qos;
mod system;
mod threshold;

pub use burst::{CpuBurstPolicy, CpuBurstStrategy};
pub use host::{CgroupBase, CgroupPath, HostApplicationSpec, HostApplicationStrategy};
pub use qos::{
    BlkioQos, BlockCfg, BlockType, CpuPolicy, CpuQos, IoCfg, MemoryQos, NetQosPolicy, NetworkQos, ResctrlQos,
    ResourceQos, ResourceQosPolicies, ResourceQosStrategy,
};
pub use system::SystemStrategy;
pub use threshold::{CpuEvictPolicy, CpuSuppressPolicy, ResourceThresholdStrategy};

use serde_json::{Map, Value};

use crate::crd::schema;
use crate::crd::wire::{object, wire};

object! {
    /// Strategies that hold on the node of the same name.
    pub struct NodeSLO = "slo.koordinator.sh" / "v1alpha1", "nodeslos", ClusterResourceScope {
        /// Rendered from slo-controller-config by koord-manager.
        pub spec: Option<NodeSloSpec>,
        /// Empty.
        pub status: Option<NodeSloStatus>,
    }
}

wire! {
    /// All strategies of one node. An absent one takes its built-in default.
    pub struct NodeSloSpec {
        /// When best-effort pods are suppressed or evicted.
        #[serde(rename = "resourceUsedThresholdWithBE")]
        pub resource_used_threshold_with_be: Option<ResourceThresholdStrategy>,
        /// Shares of CPU, memory, disk, cache and network by QoS class.
        #[serde(rename = "resourceQOSStrategy")]
        pub resource_qos_strategy: Option<ResourceQosStrategy>,
        /// How far containers may burst above their CPU limit.
        pub cpu_burst_strategy: Option<CpuBurstStrategy>,
        /// Kernel settings of the whole node.
        pub system_strategy: Option<SystemStrategy>,
        /// Applications that run beside the pods.
        pub host_applications: Vec<HostApplicationSpec>,
        /// Strategies of third parties, kept as they are. Upstream nests them under `Object`.
        #[schemars(schema_with = "schema::free_object")]
        pub extensions: Option<Map<String, Value>>,
    }

    /// Nothing yet.
    pub struct NodeSloStatus {}
}

/// The key that upstream's encoding puts around all extensions.
const EXTENSIONS_KEY: &str = "Object";

impl NodeSloSpec {
    /// The strategy that a third party stored under `name`, in upstream's encoding or without it.
    pub fn extension(&self, name: &str) -> Option<&Value> {
        let extensions = self.extensions.as_ref()?;
        let wrapped = extensions.get(EXTENSIONS_KEY).and_then(|inner| inner.get(name));
        wrapped.or_else(|| extensions.get(name))
    }

    /// Stores strategies of third parties in upstream's encoding, beside whatever else is there.
    pub fn set_extensions(&mut self, extensions: Map<String, Value>) {
        self.extensions.get_or_insert_default().insert(EXTENSIONS_KEY.to_owned(), Value::Object(extensions));
    }
}
