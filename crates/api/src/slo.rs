//! slo-controller-config: strategies, defaults, merging, admission. Spec: api 7.
//!
//! Pure: ConfigMap data and the labels and annotations of a node in, strategies and events out.
//! A document is read (`document`), merged over the built-in defaults once (`rules`), kept by key
//! (`config`) and picked for a node (`render`); koordlet merges again (`effective`). What a
//! strategy is, and how one lies over another, is in `strategy`.

pub mod admission;
pub mod colocation;
pub mod config;
pub mod cpu;
pub mod defaults;
pub mod document;
pub mod effective;
pub mod explain;
pub mod extension;
pub mod render;
pub mod rules;
pub mod strategy;

pub use colocation::ColocationStrategy;
pub use config::{ConfigEvent, Loaded, SloConfig};
pub use cpu::{CpuNormalizationStrategy, ResourceAmplificationStrategy};
pub use document::{Document, NodeItem};
pub use effective::Effective;
pub use explain::{Layer, Parameter};
pub use render::{Ignored, NodeFacts, Rendered};
pub use rules::Rules;
pub use strategy::{HostApplications, Strategy};

/// Where the ConfigMap lies unless flags say otherwise.
pub const CONFIG_NAMESPACE: &str = "koordinator-system";
/// The ConfigMap's name unless flags say otherwise.
pub const CONFIG_NAME: &str = "slo-controller-config";

/// The keys of the ConfigMap, each with a JSON document.
pub mod key {
    pub const COLOCATION: &str = "colocation-config";
    pub const RESOURCE_THRESHOLD: &str = "resource-threshold-config";
    pub const RESOURCE_QOS: &str = "resource-qos-config";
    pub const CPU_BURST: &str = "cpu-burst-config";
    pub const SYSTEM: &str = "system-config";
    pub const HOST_APPLICATION: &str = "host-application-config";
    pub const CPU_NORMALIZATION: &str = "cpu-normalization-config";
    pub const RESOURCE_AMPLIFICATION: &str = "resource-amplification-config";
}

#[cfg(test)]
mod tests;
