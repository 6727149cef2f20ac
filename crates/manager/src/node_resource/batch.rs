//! Batch resources: what high-priority pods, the system and a margin leave over. Spec: manager 6.
//!
//! [`work_out`] has the numbers of a node and of its zones, for the plugin and for people. Who claims what is in
//! [`claims`], the zones of the NodeResourceTopology in [`zones`], the steadier strategy in [`steady`].

pub mod claims;
pub mod steady;
pub mod zones;

use koord_api::annotation::node::{OriginExtendedAllocatable, ThirdPartyAllocations};
use koord_api::annotation::{OrAbsent, read, write};
use koord_api::keys::node::annotation::CPU_NORMALIZATION_RATIO;
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY};
use koord_api::priority::PriorityClass;
use koord_api::quantity::{Family, Quantity, ResourceList};
use koord_api::slo::colocation::CalculatePolicy;

use super::base::{Base, is_fresh};
use super::item::{Item, NodeResource};
use super::plan::any_moved;
use super::plugin::{Input, NodeMemory, Plugin, PluginError};
use super::settings::Settings;
use super::view::NodeView;
use crate::amounts::{Amounts, factor, scale_milli_trunc, scale_trunc};
use claims::{Claims, Tenants};
use steady::Steady;

pub const NAMES: [&str; 2] = [BATCH_CPU, BATCH_MEMORY];

pub struct BatchResource;

impl Plugin for BatchResource {
    fn name(&self) -> &'static str {
        "BatchResource"
    }

    fn calculate(&self, input: &Input<'_>, memory: &mut NodeMemory) -> Result<Vec<Item>, PluginError> {
        let Some(worked) = work_out(input, memory) else { return Ok(self.reset()) };
        let mut items = NAMES.map(|name| Item { name, ..Item::default() });
        let [cpu, bytes] = &mut items;
        cpu.quantity = Some(worked.node.cpu_milli());
        bytes.quantity = Some(worked.node.result.memory);
        for (zone, math) in worked.zones {
            cpu.zones.insert(zone.clone(), math.cpu_milli());
            bytes.zones.insert(zone, math.result.memory);
        }
        Ok(items.into())
    }

    fn reset(&self) -> Vec<Item> {
        NAMES.map(Item::reset).into()
    }

    fn prepare(&self, node: &mut NodeView, resource: &NodeResource) -> Result<(), PluginError> {
        for name in NAMES {
            node.set_resource(name, published(resource, name));
        }
        let origin = remember_origin(node);
        let [Some(cpu), Some(memory)] = origin else { return Ok(()) };
        let others = taken_by_others(node)?;
        for (name, amount) in [(BATCH_CPU, cpu), (BATCH_MEMORY, memory)] {
            if let Some(taken) = others.get(name) {
                let left = Quantity::from_value((amount - *taken).value(), amount.family());
                node.set_resource(name, Some(left.max(Quantity::ZERO)));
            }
        }
        Ok(())
    }

    fn needs_status(&self, threshold: f64, old: &NodeView, new: &NodeView) -> Option<bool> {
        Some(any_moved(&NAMES, threshold, old, new))
    }
}

/// The numbers behind a node's batch resources.
#[derive(Clone, Debug, PartialEq)]
pub struct Worked {
    pub base: Base,
    /// As reported.
    pub system_usage: Amounts,
    /// Of host applications of higher classes than batch.
    pub host_apps: Amounts,
    pub counts: claims::Counts,
    pub node: Math,
    /// In the order of the NodeResourceTopology.
    pub zones: Vec<(String, Math)>,
    /// Whether the report is older than it should be, and the steadier strategy bridges the gap.
    pub is_bridged: bool,
}

/// The formula of a node or of a zone, term by term.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Math {
    pub capacity: Amounts,
    /// Kept free; negative when more than all is reclaimed.
    pub margin: Amounts,
    pub reserved: Amounts,
    /// The larger of what the system uses and what is reserved.
    pub system: Amounts,
    pub claims: Claims,
    /// What the policies count as taken now.
    pub taken: Amounts,
    /// What counts as taken; the same unless the steadier strategy holds on to an earlier demand.
    pub held: Amounts,
    pub cpu_cap: Option<Quantity>,
    pub memory_cap: Option<Quantity>,
    pub result: Amounts,
}

/// Nothing when there is no report to trust: batch resources are then taken off the node.
pub fn work_out(input: &Input<'_>, memory: &mut NodeMemory) -> Option<Worked> {
    let settings = input.settings;
    if settings.stabilization.is_none() {
        memory.steady = None;
    }
    let fresh = input.metric.filter(|metric| {
        // Differs: a report that lacks the node is no report; upstream crashes (DB-18).
        metric.node.is_some() && is_fresh(metric, input.now, settings.degrade_after)
    });
    let mut steady = settings.stabilization.map(|window| {
        let steady = memory.steady.get_or_insert_default();
        steady.turn(input.now, window, settings);
        &mut **steady
    });
    let (metric, is_bridged) = match (fresh, &steady) {
        (Some(metric), _) => (metric.clone(), false),
        (None, Some(steady)) => (steady.bridge(input)?, true),
        (None, None) => return None,
    };
    let tenants = Tenants::of(input, &metric, steady.as_deref(), is_bridged);
    if let Some(steady) = &mut steady {
        steady.remember(&metric, &tenants);
    }
    let base = Base::of(input.node);
    let system_usage = metric.node.map(|node| node.system).unwrap_or_default();
    let host_apps = metric.host_apps_above(PriorityClass::Batch);
    let mut node =
        Math::new(settings, base.capacity, base.reserved, system_usage + host_apps, tenants.claims());
    hold(&mut steady, 0, &mut node, input);
    node.finish();
    let mut zones = zones::work_out(input, &base, system_usage + host_apps, &tenants);
    for (place, (_, math)) in zones.iter_mut().enumerate() {
        hold(&mut steady, place + 1, math, input);
        math.finish();
    }
    let counts = tenants.counts();
    Some(Worked { base, system_usage, host_apps, counts, node, zones, is_bridged })
}

fn hold(steady: &mut Option<&mut Steady>, place: usize, math: &mut Math, input: &Input<'_>) {
    if let Some(steady) = steady {
        math.held = steady.hold(place, input.now, math.taken);
    }
}

impl Math {
    fn new(
        settings: &Settings,
        capacity: Amounts,
        reserved: Amounts,
        system_usage: Amounts,
        claims: Claims,
    ) -> Math {
        let keep = |reclaimed: i64| factor(100_i64.saturating_sub(reclaimed));
        let margin = Amounts {
            cpu: scale_milli_trunc(capacity.cpu, keep(settings.cpu_reclaim_percent)),
            memory: scale_trunc(capacity.memory, keep(settings.memory_reclaim_percent)),
        };
        let system = system_usage.max(reserved);
        let taken = Amounts {
            cpu: match settings.cpu_policy {
                CalculatePolicy::MaxUsageRequest => system.cpu + claims.max_used_request.cpu,
                // What is requested does not count for cpu alone.
                CalculatePolicy::Usage | CalculatePolicy::Request | CalculatePolicy::Other(_) => {
                    system.cpu + claims.used.cpu
                }
            },
            memory: match settings.memory_policy {
                CalculatePolicy::Request => reserved.memory + claims.request.memory,
                CalculatePolicy::MaxUsageRequest => system.memory + claims.max_used_request.memory,
                CalculatePolicy::Usage | CalculatePolicy::Other(_) => system.memory + claims.used.memory,
            },
        };
        let cpu_cap = settings.batch_cpu_cap_percent.map(|cap| scale_milli_trunc(capacity.cpu, factor(cap)));
        let memory_cap =
            settings.batch_memory_cap_percent.map(|cap| scale_trunc(capacity.memory, factor(cap)));
        let held = taken;
        let result = Amounts::ZERO;
        Math { capacity, margin, reserved, system, claims, taken, held, cpu_cap, memory_cap, result }
    }

    /// The result, once it is known what is held.
    fn finish(&mut self) {
        let left = (self.capacity - self.margin - self.held).max(Amounts::ZERO);
        self.result = Amounts {
            cpu: self.cpu_cap.map_or(left.cpu, |cap| left.cpu.min(cap)),
            memory: self.memory_cap.map_or(left.memory, |cap| left.memory.min(cap)),
        };
    }

    /// In the unit of the resource: thousandths of a core, rounded up.
    pub fn cpu_milli(&self) -> Quantity {
        Quantity::from_value(self.result.cpu.milli_value(), Family::DecimalSi)
    }
}

/// What is to stand on a node or zone for a resource: the multiple of a faster CPU, rounded up.
pub fn published(resource: &NodeResource, name: &str) -> Option<Quantity> {
    resource.quantity(name).map(|quantity| in_whole(resource, name, quantity))
}

/// The same for a zone.
pub fn published_in_zone(resource: &NodeResource, zone: &str, name: &str) -> Option<Quantity> {
    let quantity = resource.zones.get(zone)?.get(name)?;
    Some(in_whole(resource, name, *quantity))
}

/// Batch resources that schedulers of others have given away on a node.
pub fn taken_by_others(node: &NodeView) -> Result<ResourceList, PluginError> {
    let read = read::<ThirdPartyAllocations>(&node.annotations);
    let found = read.map_err(|error| PluginError(error.to_string()))?;
    Ok(found.unwrap_or_default().sum(PriorityClass::Batch))
}

/// By how much faster a CPU multiplies what is lent of it in this round, if it does.
pub fn multiplier(resource: &NodeResource) -> Option<f64> {
    let ratio = resource.annotations.get(CPU_NORMALIZATION_RATIO)?.parse::<f64>().ok()?;
    (ratio > 1.0).then_some(ratio)
}

/// Extended resources are whole numbers.
pub(super) fn in_whole(resource: &NodeResource, name: &str, quantity: Quantity) -> Quantity {
    let quantity = match multiplier(resource) {
        Some(ratio) if name == BATCH_CPU => scale_milli_trunc(quantity, ratio),
        _ => quantity,
    };
    Quantity::from_value(quantity.value(), quantity.family())
}

/// Notes what batch resources there are before others took their part, 0 for those that are taken off.
///
/// Differs: also on a node that had no annotation at all (DB-24), and over a text that cannot be read.
fn remember_origin(node: &mut NodeView) -> [Option<Quantity>; 2] {
    let found = NAMES.map(|name| node.allocatable(name));
    let mut origin =
        read::<OriginExtendedAllocatable>(&node.annotations).or_absent(|_| ()).unwrap_or_default();
    for ((name, family), amount) in
        [(BATCH_CPU, Family::DecimalSi), (BATCH_MEMORY, Family::BinarySi)].into_iter().zip(found)
    {
        let value = amount.map_or(0, |amount| amount.value().max(0));
        origin.resources.insert(name.to_owned(), Quantity::from_value(value, family));
    }
    write(&mut node.annotations, &origin);
    found
}

#[cfg(test)]
mod tests;
