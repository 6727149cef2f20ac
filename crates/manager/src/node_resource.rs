//! What a node may lend: batch and mid resources, and what else the manager writes to a Node. Pure. Spec: manager 5 to 11.
//!
//! A [`Plugin`] turns [`Input`] into [`Item`]s; they are folded into a [`NodeResource`], laid over a copy of the node,
//! and [`mod@plan`] says what is worth writing. [`settings`] is the strategy with nothing left open, [`view`] what is kept
//! of the objects, [`report`] what is read of NodeMetrics. A new plugin is one new file and one new row of [`PLUGINS`].

pub mod item;
pub mod news;
pub mod plan;
pub mod plugin;
pub mod report;
pub mod settings;
pub mod view;

pub mod base;
pub mod batch;
pub mod explain;
pub mod mid;

pub mod amplification;
pub mod cpu_normalization;
pub mod gpu;
pub mod rdma;

#[cfg(test)]
mod testing;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
pub(crate) use tests::fixture;

pub use explain::{NodeExplanation, explain};
pub use item::{Item, NodeResource};
pub use plan::{Plan, Run, Stage, ZonePlan, plan};
pub use plugin::{Input, NodeMemory, Options, Plugin, PluginError};
pub use settings::Settings;
pub use view::{MetricView, NodeView, TopologyView};

/// All plugins, in the order in which they run: earlier ones set what later ones multiply by.
pub const PLUGINS: &[&dyn Plugin] = &[
    &cpu_normalization::CpuNormalization,
    &amplification::ResourceAmplification,
    &mid::MidResource,
    &batch::BatchResource,
    &gpu::GpuDeviceResource,
    &rdma::RdmaDeviceResource,
];
