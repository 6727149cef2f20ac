//! Writes to every Node what it may lend, and to its NodeResourceTopology what its zones may. Spec: manager 5.1, 5.2.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use koord_api::crd::device::Device;
use koord_api::crd::node_resource_topology::Zone;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::slo::key;
use koord_kit::cache::Delta;
use koord_kit::write::{Part, Place, WriteError, send_merge_patch, send_steps, update_with};

use super::{Controller, Failure, Feeds, Ground, Key, Next, key_of, node_key, read_fresh};
use crate::flags::Options;
use crate::metrics::ManagerMetrics;
use crate::node_resource::batch::{BatchResource, zones};
use crate::node_resource::news::OwnWrite;
use crate::node_resource::plan::prepare;
use crate::node_resource::view::{MetricEntry, TopologyView};
use crate::node_resource::{NodeMemory, NodeView, PLUGINS, Plan, Plugin, Stage, plan};

mod snapshot;

pub use snapshot::Memories;
pub(crate) use snapshot::Snapshot;

pub(super) struct NodeResources {
    ground: Ground,
    writer: Writer,
}

/// The plugins that run here, in their order.
pub(crate) fn chosen_plugins(options: &Options) -> Vec<&'static dyn Plugin> {
    let chosen = &options.node_resource_plugins;
    PLUGINS.iter().filter(|plugin| chosen.is_on(plugin.name())).copied().collect()
}

impl NodeResources {
    pub(super) fn new(ground: &Ground) -> NodeResources {
        let writer = Writer {
            client: ground.client.clone(),
            plugins: chosen_plugins(&ground.options),
            metrics: ground.metrics.clone(),
            memories: ground.memories.clone(),
        };
        for plugin in writer.plugins.iter().filter(|plugin| plugin.sets_up()) {
            writer.metrics.count_plugin(plugin.name(), true, Stage::Setup.as_str());
        }
        NodeResources { ground: ground.clone(), writer }
    }

    /// What should become of a node; none while there is no configuration.
    fn plan(&self, node: &Node, memory: &mut NodeMemory) -> Option<(Snapshot, Plan)> {
        let snapshot = Snapshot::take(&self.ground, node)?;
        let plan = plan(&self.writer.plugins, &snapshot.input(), memory);
        self.report(&snapshot.view.name, &plan);
        Some((snapshot, plan))
    }

    fn report(&self, node: &str, plan: &Plan) {
        for run in &plan.runs {
            self.ground.metrics.count_plugin(run.plugin, run.error.is_none(), run.stage.as_str());
            if let Some(error) = &run.error {
                tracing::debug!(
                    node,
                    plugin = run.plugin,
                    stage = run.stage.as_str(),
                    error,
                    "plugin failed"
                );
            }
        }
        self.ground.metrics.show_extended(node, |name| plan.resource.quantity(name));
    }
}

/// Carries out plans.
struct Writer {
    client: kube::Client,
    plugins: Vec<&'static dyn Plugin>,
    metrics: ManagerMetrics,
    memories: Memories,
}

impl Writer {
    /// All writes are tried even if one fails.
    async fn write(
        &self,
        node: &Node,
        view: &NodeView,
        topology: Option<&TopologyView>,
        plan: &Plan,
        memory: &mut NodeMemory,
    ) -> Result<(), Failure> {
        let zones = match topology {
            Some(topology) if plan.zones.is_needed => self.write_zones(topology, plan, memory).await,
            _ => Ok(()),
        };
        self.count_zones(zones.is_ok());
        let node = if plan.needs_status {
            // The labels and annotations travel with it.
            self.write_status(node, view, plan, memory).await
        } else if plan.needs_meta {
            self.write_meta(view, plan).await
        } else {
            Ok(())
        };
        zones.and(node)
    }

    /// Zones are a step of their plugin, whether or not there was something to write.
    fn count_zones(&self, is_good: bool) {
        let batch = BatchResource.name();
        if self.plugins.iter().any(|plugin| plugin.name() == batch) {
            self.metrics.count_plugin(batch, is_good, Stage::PreUpdate.as_str());
        }
    }

    /// One request where nobody came in between, which says only what moved; else what is there now is read and replaced.
    ///
    /// Differs: upstream reads and replaces the whole topology each time.
    async fn write_zones(
        &self,
        topology: &TopologyView,
        plan: &Plan,
        memory: &mut NodeMemory,
    ) -> Result<(), Failure> {
        let (client, place) = (&self.client, place(&topology.name));
        let apply = |zones: &mut [Zone]| zones::apply(zones, &plan.resource, plan.zones.closeness);
        let mut zones = topology.zones.clone();
        apply(&mut zones);
        let steps = zones::steps(&topology.zones, &zones);
        let patched = send_steps::<NodeResourceTopology>(client, place, &topology.version, steps).await;
        let written = match patched {
            Err(error) if error.is_outdated() => {
                let change = |topology: &mut NodeResourceTopology| _ = apply(&mut topology.zones);
                update_with(client, place, Part::Object, change).await.map(drop)
            }
            other => other.map(drop),
        };
        self.metrics.node_resource_reconcile.of("updateNodeResourceTopology", gone_is_done(written))?;
        memory.zones_synced = Some(Timestamp::now());
        Ok(())
    }

    /// One request where nobody came in between, with the version that was decided about; else one more for what is
    /// there now.
    ///
    /// Differs: upstream reads and replaces the whole status each time.
    async fn write_status(
        &self,
        node: &Node,
        view: &NodeView,
        plan: &Plan,
        memory: &mut NodeMemory,
    ) -> Result<(), Failure> {
        if plan.prepared != *view {
            let (place, patch) = (place(&view.name), plan.prepared.patch(view));
            let version = node.metadata.resource_version.as_deref();
            // Before it is sent: its event may come before its answer.
            self.memories.expect(&node_key(&view.name), OwnWrite::of(node, view, &plan.prepared));
            let patched = send_merge_patch::<Node>(&self.client, place, Part::Status, patch, version).await;
            if patched.is_err() {
                self.memories.expect(&node_key(&view.name), None);
            }
            let written = match patched {
                Err(error) if error.is_conflict() => self.lay_over(plan, place).await,
                other => other,
            };
            self.count_write("updateNodeStatus", "updateNodeNotFound", written)?;
        }
        memory.node_synced = Some(Timestamp::now());
        Ok(())
    }

    /// Writes what was worked out over what is there now, whoever else writes meanwhile.
    async fn lay_over(&self, plan: &Plan, place: Place<'_>) -> Result<(), WriteError> {
        let before = NodeView::of(&read_fresh(&self.client, place).await?);
        let mut after = before.clone();
        prepare(&self.plugins, &mut after, &plan.resource);
        if after == before {
            return Ok(());
        }
        send_merge_patch::<Node>(&self.client, place, Part::Status, after.patch(&before), None).await
    }

    async fn write_meta(&self, view: &NodeView, plan: &Plan) -> Result<(), Failure> {
        let (place, patch) = (place(&view.name), plan.prepared.meta_patch(view));
        let patched = send_merge_patch::<Node>(&self.client, place, Part::Object, patch, None).await;
        self.count_write("patchNodeMeta", "updateNodeMetaNotFound", patched)
    }

    /// A node that is gone needs nothing.
    fn count_write(
        &self,
        reason: &'static str,
        gone: &'static str,
        written: Result<(), WriteError>,
    ) -> Result<(), Failure> {
        match written {
            Err(error) if error.is_not_found() => {
                self.metrics.node_resource_reconcile.count(false, gone);
                Ok(())
            }
            other => self.metrics.node_resource_reconcile.of(reason, other.map_err(Failure::from)),
        }
    }
}

impl Controller for NodeResources {
    const NAME: &'static str = "noderesource";

    /// A turn is spent waiting for the API server, and a new strategy is a turn of every node.
    const TURNS_AT_ONCE: usize = 8;

    fn listen(&self, feeds: &Feeds) {
        let world = &self.ground.world;
        let memories = self.ground.memories.clone();
        feeds.on_object(&world.nodes, move |old, new| memories.is_news(&key_of(new), old, new));
        let memories = self.ground.memories.clone();
        feeds.on(&world.node_metrics, move |delta: &Delta<MetricEntry>, queue| {
            let name =
                |entry: &MetricEntry| node_key(entry.object.metadata.name.as_deref().unwrap_or_default());
            match delta {
                Delta::Added(new) if new.view.update_time.is_some() => queue.add(name(new)),
                Delta::Updated { old, new } if old.view != new.view => queue.add(name(new)),
                Delta::Deleted(old) => {
                    memories.forget_sync(&name(old));
                    queue.add(name(old));
                }
                Delta::Added(_) | Delta::Updated { .. } | Delta::Synced => {}
            }
        });
        feeds.on(&world.topologies, |delta: &Delta<TopologyView>, queue| {
            let woken = match delta {
                Delta::Added(new) if zones::has_native(&new.zones) || new.cpu_basic_info.is_some() => {
                    Some(new)
                }
                Delta::Updated { old, new } if topology_differs(old, new) => Some(new),
                _ => None,
            };
            woken.into_iter().for_each(|topology| queue.add(node_key(&topology.name)));
        });
        let device_differs =
            |old: &Device, new: &Device| old.spec != new.spec || old.metadata.labels != new.metadata.labels;
        feeds.on_object(&world.devices, device_differs);
        feeds.on_strategies(&[key::COLOCATION, key::CPU_NORMALIZATION, key::RESOURCE_AMPLIFICATION]);
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(node) = self.ground.world.nodes.get("", &key.name) else {
            self.ground.metrics.node_resource_reconcile.count(false, "reconcileNodeNotFound");
            self.ground.metrics.show_extended(&key.name, |_| None);
            self.ground.memories.forget(key);
            return Ok(Next::Done);
        };
        let mut memory = self.ground.memories.begin(key);
        let planned = self.plan(&node, &mut memory);
        let written = match &planned {
            Some((known, plan)) => {
                let topology = known.topology.as_deref();
                self.writer.write(&node, &known.view, topology, plan, &mut memory).await
            }
            None => Ok(()),
        };
        self.ground.memories.end(key, memory);
        written?;
        let again = planned.and_then(|(_, plan)| plan.again_at);
        let wait = again.and_then(|again| Duration::try_from(again.duration_since(Timestamp::now())).ok());
        Ok(wait.map_or(Next::Done, Next::After))
    }
}

/// Whether what was worked out for a node may change with its topology.
fn topology_differs(old: &TopologyView, new: &TopologyView) -> bool {
    let native = |zone: &Zone| {
        let resources =
            zone.resources.iter().filter(|resource| resource.name == CPU || resource.name == MEMORY);
        let amounts =
            resources.map(|resource| (resource.name.clone(), resource.allocatable)).collect::<Vec<_>>();
        (zone.name.clone(), amounts)
    };
    let all = |topology: &TopologyView| topology.zones.iter().map(native).collect::<Vec<_>>();
    old.cpu_basic_info != new.cpu_basic_info || all(old) != all(new)
}

fn place(name: &str) -> Place<'_> {
    Place { namespace: None, name }
}

fn gone_is_done(written: Result<(), WriteError>) -> Result<(), Failure> {
    match written {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map_err(Failure::from),
    }
}

#[cfg(test)]
mod tests;
