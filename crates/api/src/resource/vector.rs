//! Amounts of several resources, added and compared as one.

use std::ops::{AddAssign, SubAssign};

use super::{ResourceId, ResourceTable};
use crate::quantity::{Quantity, ResourceList};

/// An amount of each resource in the units of [`ResourceId::units`]; zero where none is named.
///
/// Sums stay at the limits of `i64` instead of wrapping; `checked_add` and `checked_sub` tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceVector {
    common: [i64; ResourceId::COMMON_COUNT],
    /// Ascending by id; no amount is zero, so that equal vectors look the same.
    rare: Vec<(ResourceId, i64)>,
}

impl ResourceVector {
    pub fn new() -> ResourceVector {
        ResourceVector::default()
    }

    /// Reads a list, interning names that are new.
    pub fn from_list(list: &ResourceList, table: &mut ResourceTable) -> ResourceVector {
        ResourceVector::from_amounts(list.iter().map(|(name, amount)| (name.as_str(), *amount)), table)
    }

    /// As `from_list`, for any source of names and amounts; the amounts of one name add up.
    pub fn from_amounts<'a>(
        amounts: impl IntoIterator<Item = (&'a str, Quantity)>,
        table: &mut ResourceTable,
    ) -> ResourceVector {
        let mut vector = ResourceVector::new();
        for (name, amount) in amounts {
            let id = table.intern(name);
            vector.set(id, vector.get(id).saturating_add(id.units(amount)));
        }
        vector
    }

    /// The amounts that are not zero, by name.
    pub fn to_list(&self, table: &ResourceTable) -> ResourceList {
        self.iter().map(|(id, units)| (table.name(id).to_owned(), table.quantity(id, units))).collect()
    }

    pub fn get(&self, id: ResourceId) -> i64 {
        match id.slot() {
            Some(slot) => self.common[slot],
            None => self.find(id).map_or(0, |at| self.rare[at].1),
        }
    }

    pub fn set(&mut self, id: ResourceId, units: i64) {
        if let Some(slot) = id.slot() {
            self.common[slot] = units;
            return;
        }
        match (self.find(id), units) {
            (Ok(at), 0) => {
                self.rare.remove(at);
            }
            (Ok(at), _) => self.rare[at].1 = units,
            (Err(_), 0) => {}
            (Err(at), _) => self.rare.insert(at, (id, units)),
        }
    }

    /// The amounts that are not zero, ascending by id.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, i64)> + '_ {
        let common = self.common.iter().enumerate().map(|(slot, units)| (ResourceId::of_slot(slot), *units));
        common.filter(|(_, units)| *units != 0).chain(self.rare.iter().copied())
    }

    pub fn is_zero(&self) -> bool {
        self.common == [0; ResourceId::COMMON_COUNT] && self.rare.is_empty()
    }

    /// Whether `free` has room for every amount asked for here. What is not asked for fits always,
    /// even where `free` is below zero.
    pub fn fits(&self, free: &ResourceVector) -> bool {
        self.common.iter().zip(&free.common).all(|(asked, free)| *asked <= 0 || asked <= free)
            && self.rare.iter().all(|(id, asked)| *asked <= 0 || *asked <= free.get(*id))
    }

    /// The resources that `free` has too little of, ascending by id.
    pub fn lacking<'a>(&'a self, free: &'a ResourceVector) -> impl Iterator<Item = ResourceId> + 'a {
        self.iter().filter(|(id, asked)| *asked > 0 && *asked > free.get(*id)).map(|(id, _)| id)
    }

    /// The sum; none when an amount would leave the range of `i64`.
    pub fn checked_add(&self, other: &ResourceVector) -> Option<ResourceVector> {
        let mut sum = self.clone();
        sum.combine(other, i64::checked_add).then_some(sum)
    }

    /// The difference; none when an amount would leave the range of `i64`.
    pub fn checked_sub(&self, other: &ResourceVector) -> Option<ResourceVector> {
        let mut difference = self.clone();
        difference.combine(other, i64::checked_sub).then_some(difference)
    }

    /// Raises each amount to that of `other` where it is lower.
    pub fn max_assign(&mut self, other: &ResourceVector) {
        self.combine(other, |ours, theirs| Some(ours.max(theirs)));
        // Resources that only we name meet a zero.
        self.rare.retain(|(id, units)| *units > 0 || other.get(*id) != 0);
    }

    /// Raises amounts below zero to zero.
    pub fn clamp_to_zero(&mut self) {
        self.max_assign(&ResourceVector::new());
    }

    /// Applies `op` to the common amounts and to the rare ones that `other` names. False when `op`
    /// fails, and then our amounts are of no use.
    fn combine(&mut self, other: &ResourceVector, op: impl Fn(i64, i64) -> Option<i64>) -> bool {
        for (ours, theirs) in self.common.iter_mut().zip(&other.common) {
            let Some(units) = op(*ours, *theirs) else { return false };
            *ours = units;
        }
        for (id, theirs) in &other.rare {
            let Some(units) = op(self.get(*id), *theirs) else { return false };
            self.set(*id, units);
        }
        true
    }

    fn find(&self, id: ResourceId) -> Result<usize, usize> {
        self.rare.binary_search_by_key(&id, |(id, _)| *id)
    }
}

impl AddAssign<&ResourceVector> for ResourceVector {
    fn add_assign(&mut self, other: &ResourceVector) {
        self.combine(other, |ours, theirs| Some(ours.saturating_add(theirs)));
    }
}

impl SubAssign<&ResourceVector> for ResourceVector {
    fn sub_assign(&mut self, other: &ResourceVector) {
        self.combine(other, |ours, theirs| Some(ours.saturating_sub(theirs)));
    }
}

#[cfg(test)]
mod tests;
