//! A heap that knows where each pod is in it, so that any pod can be changed or removed in O(log n).
//!
//! Entries carry their sort key: the usual order is decided without looking at a record.

use std::cmp::Reverse;

use super::store::Slot;
use crate::time::Time;

/// Children per entry. Four share two cache lines, and halve the depth.
const ARITY: usize = 4;
/// The position of what is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// A pod in a heap. The derived order is that of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// When backoff ends; the same for all in the active queue.
    pub(super) ends: Time,
    pub(super) priority: Reverse<i32>,
    pub(super) timestamp: Time,
    pub(super) sequence: u64,
    pub(super) slot: Slot,
}

#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
    /// By slot: where its entry is.
    positions: Vec<u32>,
}

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn peek(&self) -> Option<&Entry> {
        self.entries.first()
    }

    pub(super) fn entry(&self, slot: Slot) -> Option<&Entry> {
        self.position(slot).map(|position| &self.entries[position])
    }

    /// In no order that means anything.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn push(&mut self, entry: Entry, before: impl Fn(&Entry, &Entry) -> bool) {
        if self.positions.len() <= entry.slot.index() {
            self.positions.resize(entry.slot.index() + 1, NOWHERE);
        }
        debug_assert!(self.position(entry.slot).is_none(), "a pod is in a heap once");
        self.entries.push(entry);
        self.sift_up(self.entries.len() - 1, &before);
    }

    pub(super) fn pop(&mut self, before: impl Fn(&Entry, &Entry) -> bool) -> Option<Entry> {
        let first = *self.entries.first()?;
        self.take(0, &before);
        Some(first)
    }

    pub(super) fn remove(&mut self, slot: Slot, before: impl Fn(&Entry, &Entry) -> bool) -> bool {
        match self.position(slot) {
            Some(position) => {
                self.take(position, &before);
                true
            }
            None => false,
        }
    }

    /// Puts a new entry in the place of the pod's present one, and where it then belongs.
    pub(super) fn replace(&mut self, entry: Entry, before: impl Fn(&Entry, &Entry) -> bool) {
        if let Some(position) = self.position(entry.slot) {
            self.entries[position] = entry;
            let position = self.sift_up(position, &before);
            self.sift_down(position, &before);
        }
    }

    /// Sorts everything anew, for an order whose answers changed.
    pub(super) fn rebuild(&mut self, before: impl Fn(&Entry, &Entry) -> bool) {
        for position in (0..self.entries.len().div_ceil(ARITY)).rev() {
            self.sift_down(position, &before);
        }
    }

    /// Changes all keys in a way that keeps their order.
    pub(super) fn rekey(&mut self, change: impl Fn(&mut Entry)) {
        self.entries.iter_mut().for_each(change);
    }

    fn position(&self, slot: Slot) -> Option<usize> {
        let position = *self.positions.get(slot.index())?;
        (position != NOWHERE).then_some(position as usize)
    }

    fn take(&mut self, position: usize, before: &impl Fn(&Entry, &Entry) -> bool) {
        let removed = self.entries.swap_remove(position);
        self.positions[removed.slot.index()] = NOWHERE;
        if position < self.entries.len() {
            let position = self.sift_up(position, before);
            self.sift_down(position, before);
        }
    }

    fn put(&mut self, position: usize, entry: Entry) {
        self.entries[position] = entry;
        // A heap is never longer than the number of slots, and slots are u32.
        self.positions[entry.slot.index()] = u32::try_from(position).unwrap_or(NOWHERE);
    }

    fn sift_up(&mut self, mut position: usize, before: &impl Fn(&Entry, &Entry) -> bool) -> usize {
        let entry = self.entries[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if !before(&entry, &self.entries[parent]) {
                break;
            }
            self.put(position, self.entries[parent]);
            position = parent;
        }
        self.put(position, entry);
        position
    }

    fn sift_down(&mut self, mut position: usize, before: &impl Fn(&Entry, &Entry) -> bool) {
        let entry = self.entries[position];
        loop {
            let first = position * ARITY + 1;
            let last = (first + ARITY).min(self.entries.len());
            let Some(best) = (first..last).reduce(|best, child| {
                if before(&self.entries[child], &self.entries[best]) { child } else { best }
            }) else {
                break;
            };
            if !before(&self.entries[best], &entry) {
                break;
            }
            self.put(position, self.entries[best]);
            position = best;
        }
        self.put(position, entry);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(slot: u32, priority: i32) -> Entry {
        let (ends, timestamp) = (Time::MIN, Time::MIN);
        let sequence = u64::from(slot);
        Entry { ends, priority: Reverse(priority), timestamp, sequence, slot: Slot::from_index(slot) }
    }

    fn before(a: &Entry, b: &Entry) -> bool {
        a < b
    }

    proptest! {
        /// Pushed, changed and removed at random, the heap gives what a sorted list gives.
        #[test]
        fn like_a_sorted_list(steps in prop::collection::vec((0u32..24, -3i32..3, 0u8..4), 0..200)) {
            let mut heap = Heap::default();
            let mut list: Vec<Entry> = Vec::new();
            for (slot, priority, kind) in steps {
                let new = entry(slot, priority);
                let at = list.iter().position(|e| e.slot == new.slot);
                match (kind, at) {
                    (0, _) => {
                        prop_assert_eq!(heap.pop(before), list.first().copied());
                        list.drain(..list.len().min(1));
                    }
                    (1, at) => {
                        prop_assert_eq!(heap.remove(new.slot, before), at.is_some());
                        if let Some(at) = at {
                            list.remove(at);
                        }
                    }
                    (_, Some(at)) => {
                        heap.replace(new, before);
                        list[at] = new;
                    }
                    (_, None) => {
                        heap.push(new, before);
                        list.push(new);
                    }
                }
                list.sort();
                prop_assert_eq!(heap.peek(), list.first());
                prop_assert_eq!(heap.len(), list.len());
                prop_assert!(list.iter().all(|e| heap.entry(e.slot) == Some(e)));
            }
        }

        /// A new order takes hold of everything.
        #[test]
        fn rebuilt_for_another_order(priorities in prop::collection::vec(-9i32..9, 0..60)) {
            let mut heap = Heap::default();
            for (slot, priority) in (0..).zip(&priorities) {
                heap.push(entry(slot, *priority), before);
            }
            let reversed = |a: &Entry, b: &Entry| b < a;
            heap.rebuild(reversed);
            let mut got = Vec::new();
            while let Some(entry) = heap.pop(reversed) {
                got.push(entry);
            }
            prop_assert!(got.is_sorted_by(|a, b| a > b));
            prop_assert_eq!(got.len(), priorities.len());
        }
    }
}
