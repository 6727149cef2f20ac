//! Batch resources of NUMA zones, and how they get into a NodeResourceTopology. Spec: manager 6.5.

use koord_api::crd::node_resource_topology::{Zone, ZoneResource};
use koord_api::keys::resource::{BATCH_CPU, CPU, MEMORY};
use koord_api::patch::diff::{Change, diff};
use koord_api::quantity::Quantity;
use serde_json::json;

use super::claims::Tenants;
use super::{Math, NAMES, in_whole};
use crate::amounts::Amounts;
use crate::node_resource::base::Base;
use crate::node_resource::item::NodeResource;
use crate::node_resource::plan::moved;
use crate::node_resource::plugin::Input;

/// The formula for each zone, not yet finished. Zone i is NUMA node i. What nobody tells apart is spread evenly.
pub(super) fn work_out(
    input: &Input<'_>,
    base: &Base,
    system_usage: Amounts,
    tenants: &Tenants<'_>,
) -> Vec<(String, Math)> {
    let zones = input.topology.map(|topology| topology.zones.as_slice()).unwrap_or_default();
    if !has_native(zones) {
        return Vec::new();
    }
    let (reserved, system) = (base.reserved.share_ceil(zones.len()), system_usage.share_ceil(zones.len()));
    let claims = tenants.claims_by_zone(zones.len());
    let math = |(zone, claims): (&Zone, _)| {
        (zone.name.clone(), Math::new(input.settings, allocatable(zone), reserved, system, claims))
    };
    zones.iter().zip(claims).map(math).collect()
}

/// Whether any zone tells of its cpu or memory.
pub fn has_native(zones: &[Zone]) -> bool {
    let is_native = |resource: &ZoneResource| resource.name == CPU || resource.name == MEMORY;
    zones.iter().any(|zone| zone.resources.iter().any(is_native))
}

/// Of native cpu and memory.
pub fn allocatable(zone: &Zone) -> Amounts {
    let amount = |name| zone.resources.iter().find(|resource| resource.name == name);
    let amount = |name| amount(name).map(|resource| resource.allocatable).unwrap_or_default();
    Amounts { cpu: amount(CPU), memory: amount(MEMORY) }
}

/// How closely zones follow what was worked out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Closeness {
    /// Only amounts that are off by more than this fraction are set.
    Within(f64),
    Exact,
}

/// Sets what was worked out, and says whether anything changed.
///
/// Differs: zones of a node that lends nothing any more are set to 0, where upstream leaves the old amounts (DB-2).
pub fn apply(zones: &mut [Zone], resource: &NodeResource, closeness: Closeness) -> bool {
    let mut has_changed = false;
    let is_reset = resource.resets.contains(BATCH_CPU);
    if !has_native(zones) && !is_reset {
        return false;
    }
    for zone in zones {
        match resource.zones.get(&zone.name) {
            Some(amounts) => {
                for name in NAMES {
                    if let Some(amount) = amounts.get(name) {
                        has_changed |= set(zone, name, in_whole(resource, name, *amount), closeness);
                    }
                }
            }
            None if is_reset => has_changed |= empty(zone),
            None => {}
        }
    }
    has_changed
}

/// The steps of a JSON patch of an object from zones before to the same zones after.
pub fn steps(before: &[Zone], after: &[Zone]) -> Vec<Change> {
    let names = |zones: &[Zone]| -> Vec<Vec<String>> {
        let names = |zone: &Zone| zone.resources.iter().map(|resource| resource.name.clone()).collect();
        zones.iter().map(names).collect()
    };
    if names(before) != names(after) {
        return diff(&json!({"zones": before}), &json!({"zones": after}));
    }
    // The same without a tree of all of it, which is most writes there are.
    let zones = before.iter().zip(after).enumerate();
    zones.flat_map(|(place, (old, new))| amount_steps(place, &old.resources, &new.resources)).collect()
}

fn amount_steps<'z>(
    zone: usize,
    old: &'z [ZoneResource],
    new: &'z [ZoneResource],
) -> impl Iterator<Item = Change> + 'z {
    let amounts = |resource: &ZoneResource| {
        [
            ("capacity", resource.capacity),
            ("allocatable", resource.allocatable),
            ("available", resource.available),
        ]
    };
    let pairs = old.iter().zip(new).enumerate();
    let pairs = pairs.flat_map(move |(place, (old, new))| {
        amounts(old).into_iter().zip(amounts(new)).map(move |(old, new)| (place, old, new))
    });
    pairs.filter(|(_, old, new)| old != new).map(move |(place, _, (field, amount))| Change::Replace {
        path: format!("/zones/{zone}/resources/{place}/{field}"),
        value: json!(amount),
    })
}

fn set(zone: &mut Zone, name: &str, amount: Quantity, closeness: Closeness) -> bool {
    let Some(found) = zone.resources.iter_mut().find(|resource| resource.name == name) else {
        let name = name.to_owned();
        zone.resources.push(ZoneResource { name, capacity: amount, allocatable: amount, available: amount });
        zone.resources.sort_by(|a, b| a.name.cmp(&b.name));
        return true;
    };
    let mut has_changed = false;
    for field in [&mut found.capacity, &mut found.allocatable, &mut found.available] {
        let is_off = match closeness {
            Closeness::Within(threshold) => moved(Some(*field), Some(amount), threshold),
            Closeness::Exact => *field != amount,
        };
        if is_off {
            *field = amount;
            has_changed = true;
        }
    }
    has_changed
}

fn empty(zone: &mut Zone) -> bool {
    let mut has_changed = false;
    for resource in zone.resources.iter_mut().filter(|resource| NAMES.contains(&resource.name.as_str())) {
        for field in [&mut resource.capacity, &mut resource.allocatable, &mut resource.available] {
            has_changed |= !field.is_zero();
            *field = Quantity::from_value(0, field.family());
        }
    }
    has_changed
}

#[cfg(test)]
mod tests;
