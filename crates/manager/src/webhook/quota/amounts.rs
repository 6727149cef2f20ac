//! Resource lists added and compared key by key. Spec: manager 5.5.

use koord_api::quantity::{Quantity, ResourceList};

/// Adds each amount; a missing one is 0.
pub(super) fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += *amount;
    }
}

/// The larger of each amount; where only one side has it, that one.
pub(super) fn larger(mut a: ResourceList, b: &ResourceList) -> ResourceList {
    for (name, amount) in b {
        a.entry(name.clone()).and_modify(|had| *had = (*had).max(*amount)).or_insert(*amount);
    }
    a
}

/// Whether no amount of `a` is above that of `b`; a missing one is 0 on both sides.
pub(super) fn is_within(a: &ResourceList, b: &ResourceList) -> bool {
    let of = |list: &ResourceList, name: &str| list.get(name).copied().unwrap_or(Quantity::ZERO);
    a.keys().chain(b.keys()).all(|name| of(a, name) <= of(b, name))
}

/// Whether every resource of `part` is one of `whole`'s.
pub(super) fn has_all_keys(whole: &ResourceList, part: &ResourceList) -> bool {
    part.keys().all(|name| whole.contains_key(name))
}
