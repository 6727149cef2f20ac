//! Mid resources: what prod pods are predicted not to need, and a part of what nobody has requested. Spec: manager 7.

use koord_api::keys::resource::{MID_CPU, MID_MEMORY};
use koord_api::number::{nearest, truncated};
use koord_api::priority::PriorityClass;
use koord_api::quantity::{Family, Quantity};

use super::base::{Base, is_fresh};
use super::item::{Item, NodeResource};
use super::plan::any_moved;
use super::plugin::{Input, NodeMemory, Plugin, PluginError};
use super::settings::MidMode;
use super::view::NodeView;
use crate::amounts::{Amounts, factor};
use crate::pods::PodBrief;

pub const NAMES: [&str; 2] = [MID_CPU, MID_MEMORY];

pub struct MidResource;

impl Plugin for MidResource {
    fn name(&self) -> &'static str {
        "MidResource"
    }

    fn calculate(&self, input: &Input<'_>, _memory: &mut NodeMemory) -> Result<Vec<Item>, PluginError> {
        if input.node.allocatable.is_none() {
            return Err(PluginError("the node's status has no allocatable".to_owned()));
        }
        let Some(worked) = work_out(input) else { return Ok(self.reset()) };
        let cpu = Quantity::from_value(worked.result.cpu_milli, Family::DecimalSi);
        Ok(vec![
            Item::quantity(MID_CPU, cpu),
            Item::quantity(MID_MEMORY, Quantity::bytes(worked.result.bytes)),
        ])
    }

    fn reset(&self) -> Vec<Item> {
        NAMES.map(Item::reset).into()
    }

    fn prepare(&self, node: &mut NodeView, resource: &NodeResource) -> Result<(), PluginError> {
        for name in NAMES {
            node.set_resource(name, resource.quantity(name));
        }
        Ok(())
    }

    fn needs_status(&self, threshold: f64, old: &NodeView, new: &NodeView) -> Option<bool> {
        Some(any_moved(&NAMES, threshold, old, new))
    }

    /// Reports are all it goes by, and others follow them.
    fn sets_up(&self) -> bool {
        false
    }
}

/// Thousandths of a core, and bytes: the whole numbers that mid resources are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    pub cpu_milli: i64,
    pub bytes: i64,
}

impl Units {
    /// Rounded up.
    fn of(amounts: Amounts) -> Units {
        Units { cpu_milli: amounts.cpu.milli_value(), bytes: amounts.memory.value() }
    }

    /// A part of each, without the fraction.
    fn part_trunc(self, cpu_percent: i64, memory_percent: i64) -> Units {
        let part = |all: i64, percent| truncated(nearest(all) * factor(percent));
        Units { cpu_milli: part(self.cpu_milli, cpu_percent), bytes: part(self.bytes, memory_percent) }
    }

    fn min(self, other: Units) -> Units {
        Units { cpu_milli: self.cpu_milli.min(other.cpu_milli), bytes: self.bytes.min(other.bytes) }
    }

    fn floor_zero(self) -> Units {
        Units { cpu_milli: self.cpu_milli.max(0), bytes: self.bytes.max(0) }
    }

    fn plus(self, other: Units) -> Units {
        Units {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// The numbers behind a node's mid resources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worked {
    pub capacity: Units,
    pub source: Source,
    pub cap: Units,
    pub result: Units,
}

/// Where they come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    Dynamic {
        /// What prod pods are predicted not to need.
        reclaimable: Units,
        /// What the node does not use; 0 when the report does not tell.
        unused: Units,
        /// The larger of what the system uses and what is reserved.
        reserved: Units,
        /// Of prod pods.
        requested: Units,
        unallocated: Units,
        /// The part of it that is lent.
        unallocated_part: Units,
    },
    Static(Units),
}

/// Nothing when there is no report to trust: mid resources are then taken off the node.
pub fn work_out(input: &Input<'_>) -> Option<Worked> {
    let settings = input.settings;
    let metric = input.metric.filter(|metric| is_fresh(metric, input.now, settings.degrade_after))?;
    let base = Base::of(input.node);
    let capacity = Units::of(base.capacity);
    let (source, offered) = match settings.mid_mode {
        MidMode::Static { cpu_percent, memory_percent } => {
            let offered = capacity.part_trunc(cpu_percent, memory_percent);
            (Source::Static(offered), offered)
        }
        MidMode::Dynamic { unallocated_percent } => {
            // Differs: a report that lacks the node is no report; upstream crashes (DB-18).
            let node = metric.node?;
            let reclaimable = Units::of(metric.prod_reclaimable);
            let unused = node.used.map(|used| Units::of(base.capacity - used)).unwrap_or_default();
            let reserved = (node.system + metric.host_apps_above(PriorityClass::Mid)).max(base.reserved);
            let requested: Amounts = input
                .pods
                .iter()
                .filter(|pod| pod.is_active() && is_prod(pod))
                .map(|pod| pod.requests.native)
                .sum();
            let unallocated = Units::of((base.capacity - reserved - requested).max(Amounts::ZERO));
            let unallocated_part = unallocated.part_trunc(unallocated_percent, unallocated_percent);
            let offered = reclaimable.min(unused).floor_zero().plus(unallocated_part);
            let (reserved, requested) = (Units::of(reserved), Units::of(requested));
            let source =
                Source::Dynamic { reclaimable, unused, reserved, requested, unallocated, unallocated_part };
            (source, offered)
        }
    };
    let cap = capacity.part_trunc(settings.mid_cpu_cap_percent, settings.mid_memory_cap_percent);
    Some(Worked { capacity, source, cap, result: offered.min(cap) })
}

/// Whether mid resources are what such pods leave over. A pod without a class counts.
fn is_prod(pod: &PodBrief) -> bool {
    matches!(pod.class, None | Some(PriorityClass::Prod))
}

#[cfg(test)]
mod tests;
