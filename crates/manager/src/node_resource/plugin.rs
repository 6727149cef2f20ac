//! What a plugin is, what it is given and what is remembered between its turns.

use std::sync::Arc;

use jiff::Timestamp;
use koord_api::crd::device::Device;
use koord_api::slo::SloConfig;

use super::batch::steady::Steady;
use super::item::{Item, NodeResource};
use super::settings::Settings;
use super::view::{MetricView, NodeView, TopologyView};
use crate::pods::PodBrief;

/// Everything that decides about one node, taken at one instant.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub now: Timestamp,
    pub node: &'a NodeView,
    /// For plugins with a key of their own in the ConfigMap.
    pub config: &'a SloConfig,
    /// The node's colocation strategy.
    pub settings: &'a Settings,
    /// None while there is no NodeMetric.
    pub metric: Option<&'a Arc<MetricView>>,
    /// Those on the node, in any order and any phase.
    pub pods: &'a [Arc<PodBrief>],
    pub topology: Option<&'a TopologyView>,
    pub device: Option<&'a Device>,
    pub options: Options,
}

/// Feature gates that plugins look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `EnableSyncGPUSharedResource`
    pub sync_gpu_shared: bool,
}

/// What is remembered of a node from one turn to the next.
#[derive(Clone, Debug, Default)]
pub struct NodeMemory {
    /// When the Node last held what we wanted.
    pub node_synced: Option<Timestamp>,
    /// When the zones of its NodeResourceTopology did.
    pub zones_synced: Option<Timestamp>,
    /// Only while the steadier strategy is on.
    pub steady: Option<Box<Steady>>,
}

/// Works out one kind of resource or mark, and lays it over the node.
pub trait Plugin: Sync {
    /// As in `--noderesource-plugins` and in metrics.
    fn name(&self) -> &'static str;

    /// What the node should have. After an error the plugin has said nothing, and `prepare` acts on that.
    fn calculate(&self, input: &Input<'_>, memory: &mut NodeMemory) -> Result<Vec<Item>, PluginError>;

    /// What a node has on which colocation is switched off.
    fn reset(&self) -> Vec<Item>;

    /// Whether it works on nodes on which colocation is switched off, too.
    fn ignores_switch(&self) -> bool {
        false
    }

    /// Lays over the node what all plugins worked out, as far as it is this plugin's. Doing it twice changes nothing.
    fn prepare(&self, node: &mut NodeView, resource: &NodeResource) -> Result<(), PluginError>;

    /// Whether its resources moved by more than a fraction of `threshold`; none if it has none.
    fn needs_status(&self, _threshold: f64, _old: &NodeView, _new: &NodeView) -> Option<bool> {
        None
    }

    /// Whether its labels or annotations changed enough to be written for their own sake; none if it has none.
    fn needs_meta(&self, _old: &NodeView, _new: &NodeView) -> Option<bool> {
        None
    }

    /// Whether it follows objects or configuration of its own, and so has something to set up.
    fn sets_up(&self) -> bool {
        true
    }
}

/// Why a plugin could say nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginError(pub String);
