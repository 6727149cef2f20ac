//! Resource names and the small numbers that stand for them.

use std::collections::HashMap;

use crate::keys::resource::{
    BATCH_CPU, BATCH_MEMORY, CPU, EPHEMERAL_STORAGE, GPU_MEMORY, MEMORY, MID_MEMORY,
};
use crate::quantity::{Family, Quantity};

/// A resource name in one [`ResourceTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(u32);

/// Resources that nearly every pod or node counts; the same numbers in every table.
const COMMON: [&str; ResourceId::COMMON_COUNT] =
    [CPU, MEMORY, EPHEMERAL_STORAGE, "pods", BATCH_CPU, BATCH_MEMORY];

impl ResourceId {
    pub const CPU: ResourceId = ResourceId(0);
    pub const MEMORY: ResourceId = ResourceId(1);
    pub const EPHEMERAL_STORAGE: ResourceId = ResourceId(2);
    pub const PODS: ResourceId = ResourceId(3);
    pub const BATCH_CPU: ResourceId = ResourceId(4);
    pub const BATCH_MEMORY: ResourceId = ResourceId(5);

    pub(super) const COMMON_COUNT: usize = 6;

    /// The place among the common resources, if it is one of them.
    pub(super) fn slot(self) -> Option<usize> {
        usize::try_from(self.0).ok().filter(|slot| *slot < ResourceId::COMMON_COUNT)
    }

    pub(super) fn of_slot(slot: usize) -> ResourceId {
        ResourceId(u32::try_from(slot).expect("there are six slots"))
    }

    /// An amount in the integers we count in: thousandths of cpu, whole units of all else.
    pub fn units(self, amount: Quantity) -> i64 {
        if self == ResourceId::CPU { amount.milli_value() } else { amount.value() }
    }
}

/// The names seen so far. Its owner hands it to whoever meets a new name.
#[derive(Clone, Debug)]
pub struct ResourceTable {
    names: Vec<String>,
    ids: HashMap<String, ResourceId>,
}

impl Default for ResourceTable {
    fn default() -> ResourceTable {
        ResourceTable::new()
    }
}

impl ResourceTable {
    /// A table with the common resources.
    pub fn new() -> ResourceTable {
        let mut table = ResourceTable { names: Vec::new(), ids: HashMap::new() };
        for name in COMMON {
            table.intern(name);
        }
        table
    }

    /// The number of a name, new if it was not seen before.
    pub fn intern(&mut self, name: &str) -> ResourceId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = ResourceId(u32::try_from(self.names.len()).expect("fewer than 2^32 names fit in memory"));
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// The number of a name that was seen before.
    pub fn id(&self, name: &str) -> Option<ResourceId> {
        self.ids.get(name).copied()
    }

    /// The name behind a number of this table; empty for one of another table.
    pub fn name(&self, id: ResourceId) -> &str {
        usize::try_from(id.0).ok().and_then(|at| self.names.get(at)).map_or("", String::as_str)
    }

    /// The quantity that stands for an amount in our units: bytes in binary, all else in decimal.
    pub fn quantity(&self, id: ResourceId, units: i64) -> Quantity {
        if id == ResourceId::CPU {
            return Quantity::cores_milli(units);
        }
        let is_bytes = match self.name(id) {
            MEMORY | EPHEMERAL_STORAGE | BATCH_MEMORY | MID_MEMORY | GPU_MEMORY => true,
            name => name.starts_with("hugepages-"),
        };
        Quantity::from_value(units, if is_bytes { Family::BinarySi } else { Family::DecimalSi })
    }
}
