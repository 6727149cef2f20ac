//! All queued pods, each in a slot of its own, and which part of the queue has it.

use std::collections::HashMap;

use super::record::{PodKey, QueuedPod};

/// A queued pod; valid until it leaves the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Slot(u32);

impl Slot {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    #[cfg(test)]
    pub(super) const fn from_index(index: u32) -> Slot {
        Slot(index)
    }
}

/// Which part of the queue has a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On its way; only inside an operation.
    Nowhere,
    Active,
    Backoff,
    /// Backoff after an attempt that failed without a verdict.
    ErrorBackoff,
    /// The unschedulable pool, gated pods included.
    Pool,
}

#[derive(Debug)]
struct Cell<P> {
    record: QueuedPod<P>,
    place: Place,
}

#[derive(Debug)]
pub(super) struct Store<P> {
    cells: Vec<Option<Cell<P>>>,
    free: Vec<Slot>,
    /// Never iterated into a result.
    slots: HashMap<PodKey, Slot>,
}

impl<P> Store<P> {
    pub(super) fn new() -> Store<P> {
        Store { cells: Vec::new(), free: Vec::new(), slots: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(&self, key: &PodKey) -> Option<Slot> {
        self.slots.get(key).copied()
    }

    /// The pod's key must not be in use.
    pub(super) fn insert(&mut self, record: QueuedPod<P>) -> Slot {
        let key = record.pod.key.clone();
        let cell = Some(Cell { record, place: Place::Nowhere });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.cells[slot.index()] = cell;
                slot
            }
            None => {
                self.cells.push(cell);
                Slot(u32::try_from(self.cells.len() - 1).expect("fewer than 2^32 pods wait"))
            }
        };
        let before = self.slots.insert(key, slot);
        debug_assert!(before.is_none(), "a pod is queued once");
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> QueuedPod<P> {
        let cell = self.cells[slot.index()].take().expect("slots are given up once");
        self.slots.remove(&cell.record.pod.key);
        self.free.push(slot);
        cell.record
    }

    pub(super) fn get(&self, slot: Slot) -> &QueuedPod<P> {
        &self.cell(slot).record
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut QueuedPod<P> {
        &mut self.cell_mut(slot).record
    }

    pub(super) fn place(&self, slot: Slot) -> Place {
        self.cell(slot).place
    }

    pub(super) fn set_place(&mut self, slot: Slot, place: Place) {
        self.cell_mut(slot).place = place;
    }

    /// In the order of slots, which is arbitrary but defined.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &QueuedPod<P>)> {
        self.cells.iter().flatten().map(|cell| (cell.place, &cell.record))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueuedPod<P>> {
        self.cells.iter_mut().flatten().map(|cell| &mut cell.record)
    }

    fn cell(&self, slot: Slot) -> &Cell<P> {
        self.cells[slot.index()].as_ref().expect("slots are valid while their pod is queued")
    }

    fn cell_mut(&mut self, slot: Slot) -> &mut Cell<P> {
        self.cells[slot.index()].as_mut().expect("slots are valid while their pod is queued")
    }
}
