//! All that decides about one node, gathered from the caches at one instant, and what is remembered of nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use koord_api::crd::device::Device;

use super::super::{Ground, Key};
use crate::node_resource::news::{OwnWrite, changed_view};
use crate::node_resource::view::{MetricEntry, TopologyView};
use crate::node_resource::{Input, NodeMemory, NodeView, Options, Settings};
use crate::pods::PodBrief;
use crate::strategies::Standing;

/// What is remembered of nodes. Cheap to clone.
///
/// A turn works on a copy (`begin` to `end`); what others say of the node meanwhile stands
/// beside it, so that the end of the turn does not undo it.
#[derive(Clone, Default)]
pub struct Memories(Arc<Mutex<HashMap<Key, Remembered>>>);

#[derive(Default)]
struct Remembered {
    memory: NodeMemory,
    /// The write whose event has not been seen yet.
    own_write: Option<OwnWrite>,
    /// Whether the last write was to be forgotten since the turn began that is under way.
    is_sync_forgotten: bool,
}

impl Memories {
    /// A copy of what is remembered of one node; nothing of one that has not had a turn.
    pub(crate) fn of(&self, node: &Key) -> NodeMemory {
        self.lock().get(node).map(|known| known.memory.clone()).unwrap_or_default()
    }

    /// What a turn begins with. Who asks meanwhile is told what was known before it.
    ///
    /// Whatever an earlier turn has written, this one has seen it or will hear of it: a turn too many, at worst.
    pub(super) fn begin(&self, node: &Key) -> NodeMemory {
        let mut all = self.lock();
        let known = all.entry(node.clone()).or_default();
        known.own_write = None;
        known.is_sync_forgotten = false;
        known.memory.clone()
    }

    /// What a turn leaves behind.
    pub(super) fn end(&self, node: &Key, mut memory: NodeMemory) {
        let mut all = self.lock();
        let known = all.entry(node.clone()).or_default();
        if known.is_sync_forgotten {
            memory.node_synced = None;
        }
        known.memory = memory;
    }

    pub(super) fn forget(&self, node: &Key) {
        self.lock().remove(node);
    }

    /// The node is due, however short ago it was written.
    pub(super) fn forget_sync(&self, node: &Key) {
        if let Some(known) = self.lock().get_mut(node) {
            known.memory.node_synced = None;
            known.is_sync_forgotten = true;
        }
    }

    /// Notes a write that is about to be sent; none takes back the note of one that failed.
    pub(super) fn expect(&self, node: &Key, write: Option<OwnWrite>) {
        self.lock().entry(node.clone()).or_default().own_write = write;
    }

    /// Whether a change of a node asks for a turn. Our own write is no news, once.
    pub(super) fn is_news(&self, node: &Key, old: &Node, new: &Node) -> bool {
        let Some(view) = changed_view(old, new) else { return false };
        let mut all = self.lock();
        let expected = all.get_mut(node).map(|known| &mut known.own_write);
        expected.and_then(|expected| expected.take_if(|write| write.made(old, &view))).is_none()
    }

    /// Locked to copy one or to put it back, never for longer.
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Remembered>> {
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
