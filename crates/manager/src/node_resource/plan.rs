//! One turn of a node: ask the plugins, lay their results over a copy, decide what is worth writing. Spec: manager 5.2, 5.4.

use jiff::{SignedDuration, Timestamp};
use koord_api::number::nearest;
use koord_api::quantity::Quantity;
use koord_api::slo::SloConfig;

use super::batch::zones::{Closeness, apply};
use super::item::NodeResource;
use super::plugin::{Input, NodeMemory, Plugin};
use super::view::NodeView;

/// What to do with a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub resource: NodeResource,
    /// The node as it should be.
    pub prepared: NodeView,
    /// Whether its status is worth a write, and with it all that changed.
    pub needs_status: bool,
    /// Whether its labels and annotations are.
    pub needs_meta: bool,
    /// Whether the zones of its NodeResourceTopology are, and how closely they are to follow.
    pub zones: ZonePlan,
    /// How each plugin fared.
    pub runs: Vec<Run>,
    /// When to look again even if nothing happens.
    ///
    /// Differs: a node agent that died takes no resources off by itself upstream (DB-22).
    pub again_at: Option<Timestamp>,
}

/// What to do with a NodeResourceTopology.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZonePlan {
    pub is_needed: bool,
    pub closeness: Closeness,
}

/// How a plugin fared at one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub plugin: &'static str,
    pub stage: Stage,
    pub error: Option<String>,
}

/// Named as in `slo_controller_node_resource_run_plugin_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Once, before all others.
    Setup,
    Calculate,
    Reset,
    /// What is written before the node: NUMA zones.
    PreUpdate,
    Prepare,
    StatusCheck,
    MetaCheck,
}

impl Stage {
    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Setup => "Setup",
            Stage::Calculate => "ResourceCalculate",
            Stage::Reset => "ResourceReset",
            Stage::PreUpdate => "NodePreUpdate",
            Stage::Prepare => "NodePrepare",
            Stage::StatusCheck => "NodeStatusCheck",
            Stage::MetaCheck => "NodeStatusCheckMeta",
        }
    }
}

/// Decides one turn of a node.
pub fn plan(plugins: &[&dyn Plugin], input: &Input<'_>, memory: &mut NodeMemory) -> Plan {
    let mut runs = Vec::new();
    let resource = calculate(plugins, input, memory, &mut runs);
    let mut prepared = input.node.clone();
    runs.extend(prepare(plugins, &mut prepared, &resource));
    let is_reported = prepared.capacity.is_some() && prepared.allocatable.is_some();
    // Nobody is asked about a node that is not written.
    let checked = if is_reported { plugins } else { &[] };
    let threshold = input.settings.diff_threshold;
    let moved = |plugin: &dyn Plugin| plugin.needs_status(threshold, input.node, &prepared);
    let has_moved = any_needs(checked, Stage::StatusCheck, moved, &mut runs);
    let marked = |plugin: &dyn Plugin| plugin.needs_meta(input.node, &prepared);
    let needs_meta = any_needs(checked, Stage::MetaCheck, marked, &mut runs);
    let is_due = is_due(memory.node_synced, input.now, input.settings.refresh_after);
    let needs_status = is_reported && (is_due || has_moved);
    let zones = plan_zones(input, &resource, memory);
    Plan { resource, prepared, needs_status, needs_meta, zones, runs, again_at: again_at(input) }
}

/// Asks one plugin after the other until one says yes.
fn any_needs(
    plugins: &[&dyn Plugin],
    stage: Stage,
    needs: impl Fn(&dyn Plugin) -> Option<bool>,
    runs: &mut Vec<Run>,
) -> bool {
    for plugin in plugins {
        if let Some(is_needed) = needs(*plugin) {
            runs.push(Run { plugin: plugin.name(), stage, error: None });
            if is_needed {
                return true;
            }
        }
    }
    false
}

/// Differs: the time of the last write counts, and zones that are due get the exact amounts; upstream notes the time
/// of every turn and sends the old amounts again (DB-37).
fn plan_zones(input: &Input<'_>, resource: &NodeResource, memory: &NodeMemory) -> ZonePlan {
    let settings = input.settings;
    let closeness = if is_due(memory.zones_synced, input.now, settings.refresh_after) {
        Closeness::Exact
    } else {
        Closeness::Within(settings.diff_threshold)
    };
    let mut zones = input.topology.map(|topology| topology.zones.clone()).unwrap_or_default();
    ZonePlan { is_needed: apply(&mut zones, resource, closeness), closeness }
}

/// When the report that we go by gets too old.
fn again_at(input: &Input<'_>) -> Option<Timestamp> {
    let reported = input.metric.and_then(|metric| metric.update_time).filter(|_| is_enabled(input))?;
    let trusted = input.settings.degrade_after;
    let bridged = input.settings.stabilization.map(|window| trusted.saturating_add(window));
    let ends = [Some(trusted), bridged].into_iter().flatten();
    // Strictly after it.
    let ends =
        ends.filter_map(|end| reported.checked_add(end.saturating_add(SignedDuration::from_secs(1))).ok());
    ends.filter(|end| *end > input.now).min()
}

/// Whether colocation is on for a node: in the cluster's strategy and in the node's own.
pub fn is_enabled(input: &Input<'_>) -> bool {
    cluster_is_enabled(input.config) && input.settings.is_enabled
}

fn cluster_is_enabled(config: &SloConfig) -> bool {
    config.colocation.rules().is_some_and(|rules| rules.cluster.enable == Some(true))
}

fn calculate(
    plugins: &[&dyn Plugin],
    input: &Input<'_>,
    memory: &mut NodeMemory,
    runs: &mut Vec<Run>,
) -> NodeResource {
    let is_enabled = is_enabled(input);
    let mut resource = NodeResource::default();
    for plugin in plugins {
        // Differs: devices are counted whether or not the node is colocated; upstream then leaves old totals (DB-3).
        let (stage, items) = if is_enabled || plugin.ignores_switch() {
            (Stage::Calculate, plugin.calculate(input, memory))
        } else {
            (Stage::Reset, Ok(plugin.reset()))
        };
        let error = items.map(|items| resource.extend(items)).err().map(|error| error.to_string());
        runs.push(Run { plugin: plugin.name(), stage, error });
    }
    resource
}

/// Lays what was worked out over a node, fresh or old.
pub fn prepare(plugins: &[&dyn Plugin], node: &mut NodeView, resource: &NodeResource) -> Vec<Run> {
    let run = |plugin: &&dyn Plugin| {
        let error = plugin.prepare(node, resource).err().map(|error| error.to_string());
        Run { plugin: plugin.name(), stage: Stage::Prepare, error }
    };
    plugins.iter().map(run).collect()
}

/// Whether what was last right so long ago is to be made exactly right now.
pub fn is_due(synced: Option<Timestamp>, now: Timestamp, refresh_after: SignedDuration) -> bool {
    synced.is_none_or(|synced| now.duration_since(synced) > refresh_after)
}

/// Whether an amount appeared, vanished or moved by more than a fraction of what it was.
pub fn moved(old: Option<Quantity>, new: Option<Quantity>, threshold: f64) -> bool {
    match (old, new) {
        (None, None) => false,
        (Some(old), Some(new)) => {
            let (old, new) = (old.milli_value(), new.milli_value());
            nearest(new.saturating_sub(old)).abs() > nearest(old) * threshold
        }
        _ => true,
    }
}

/// Whether any of these resources moved so in what a node can allocate.
pub fn any_moved(names: &[&str], threshold: f64, old: &NodeView, new: &NodeView) -> bool {
    names.iter().any(|name| moved(old.allocatable(name), new.allocatable(name), threshold))
}

#[cfg(test)]
mod tests;
