//! All that decides about one node, gathered from the caches at one instant, and what is remembered of nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use koord_api::crd::device::Device;

use super::super::{Ground, Key};
use crate::node_resource::view::{MetricEntry, TopologyView};
use crate::node_resource::{Input, NodeMemory, NodeView, Options, Settings};
use crate::pods::PodBrief;
use crate::strategies::Standing;

/// What is remembered of nodes. Cheap to clone.
#[derive(Clone, Default)]
pub struct Memories(Arc<Mutex<HashMap<Key, NodeMemory>>>);

impl Memories {
    /// A copy of what is remembered of one node; nothing of one that has not had a turn.
    pub(crate) fn of(&self, node: &Key) -> NodeMemory {
        self.lock().get(node).cloned().unwrap_or_default()
    }

    /// Notes what a node will look like once a turn has written it.
    pub(super) fn expect(&self, key: &Key, memory: &mut NodeMemory, view: &NodeView) {
        memory.expected = Some(view.mark());
        self.lock().entry(key.clone()).or_default().expected = memory.expected;
    }

    /// Whether this is what our own write made of a node: no news.
    pub(super) fn expects(&self, key: &Key, view: &NodeView) -> bool {
        let expected = self.lock().get(key).and_then(|memory| memory.expected);
        expected.is_some_and(|expected| expected == view.mark())
    }

    /// Locked to copy one or to put it back, never for longer.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Key, NodeMemory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An [`Input`] that owns its parts.
pub(crate) struct Snapshot {
    pub(crate) view: NodeView,
    now: Timestamp,
    standing: Arc<Standing>,
    settings: Settings,
    metric: Option<Arc<MetricEntry>>,
    pods: Vec<Arc<PodBrief>>,
    pub(crate) topology: Option<Arc<TopologyView>>,
    device: Option<Arc<Device>>,
    options: Options,
}

impl Snapshot {
    /// None while there is no configuration.
    pub(crate) fn take(ground: &Ground, node: &Node) -> Option<Snapshot> {
        let world = &ground.world;
        let standing = ground.strategies.now();
        let view = NodeView::of(node);
        let strategy = standing.config.colocation_strategy(view.facts())?;
        Some(Snapshot {
            now: Timestamp::now(),
            settings: Settings::from(&strategy.value),
            metric: world.node_metrics.get("", &view.name),
            pods: world.pods_by_node.get(&view.name),
            topology: world.topologies.get("", &view.name),
            device: world.devices.get("", &view.name),
            options: Options { sync_gpu_shared: ground.options.gates.is_on("EnableSyncGPUSharedResource") },
            view,
            standing,
        })
    }

    pub(crate) fn input(&self) -> Input<'_> {
        Input {
            now: self.now,
            node: &self.view,
            config: &self.standing.config,
            settings: &self.settings,
            metric: self.metric.as_ref().map(|entry| &entry.view),
            pods: &self.pods,
            topology: self.topology.as_deref(),
            device: self.device.as_deref(),
            options: self.options,
        }
    }
}
