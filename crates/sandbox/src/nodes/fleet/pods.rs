//! The pods of the fleet, a few hundred bytes each. The rest of a pod is in the store.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use koord_api::priority::PriorityClass;
use koord_api::qos::Qos;
use koord_api::resource::ResourceId;

use crate::nodes::admit::HostPort;
use crate::nodes::topology::Pinned;
use crate::nodes::usage::Load;

/// What is remembered of a pod.
#[derive(Debug)]
pub(super) struct PodState {
    /// `namespace/name`
    pub(super) key: Arc<str>,
    /// A hash of its UID: tells it from another pod of the same name.
    pub(super) identity: u64,
    /// The slot of its node.
    pub(super) node: u32,
    pub(super) address: u32,
    pub(super) asked: Box<[(ResourceId, i64)]>,
    pub(super) ports: Box<[HostPort]>,
    pub(super) load: Load,
    /// Since when it uses anything.
    pub(super) since: Option<Timestamp>,
    /// When to look at it again, in milliseconds since 1970.
    pub(super) wake: Option<i64>,
    /// The last state of it that is taken into account.
    pub(super) revision: u64,
    /// What the watch told while the pod was being written.
    pub(super) seen: Seen,
    pub(super) extras: Option<Box<Extras>>,
    pub(super) priority: Option<PriorityClass>,
    pub(super) qos: Option<Qos>,
    pub(super) work: Work,
    /// Whether it is among what its node has taken on: not when it was turned away, nor when it has ended.
    pub(super) is_counted: bool,
}

/// What few pods have.
#[derive(Debug, Default)]
pub(super) struct Extras {
    /// Reason and message, when the node does not take it.
    pub(super) rejected: Option<(String, String)>,
    pub(super) pinned: Option<Pinned>,
    pub(super) gpus: Vec<GpuShare>,
}

/// A share of a GPU that the pod was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GpuShare {
    pub(super) minor: u32,
    /// Hundredths of its cores.
    pub(super) core: i64,
    /// Bytes.
    pub(super) memory: i64,
}

/// States of a pod that the watch told while it was being written: our own among them, or others' too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Seen {
    #[default]
    Nothing,
    /// One, of this revision.
    One(u64),
    Several,
}

impl Seen {
    pub(super) fn note(&mut self, revision: u64) {
        *self = if *self == Seen::Nothing { Seen::One(revision) } else { Seen::Several };
    }
}

/// Where a pod is on its way through the writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Work {
    #[default]
    Idle,
    Queued,
    Writing,
    /// Being written, and to be looked at once more after that.
    WritingAndQueued,
}

/// Pods by slot and by key.
#[derive(Debug, Default)]
pub(super) struct Pods {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_key: HashMap<Arc<str>, u32>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Counts the pods that were here, so that a late answer does not meet the wrong one.
    generation: u32,
    pod: Option<PodState>,
}

impl Pods {
    pub(super) fn find(&self, key: &str) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    pub(super) fn get(&self, slot: u32) -> Option<&PodState> {
        self.slots.get(place(slot))?.pod.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut PodState> {
        self.slots.get_mut(place(slot))?.pod.as_mut()
    }

    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.slots.get(place(slot)).map_or(0, |slot| slot.generation)
    }

    pub(super) fn insert(&mut self, pod: PodState) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("memory ends before 2^32 pods")
        });
        self.by_key.insert(pod.key.clone(), slot);
        let entry = &mut self.slots[place(slot)];
        entry.generation = entry.generation.wrapping_add(1);
        entry.pod = Some(pod);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<PodState> {
        let pod = self.slots.get_mut(place(slot))?.pod.take()?;
        self.by_key.remove(&pod.key);
        self.free.push(slot);
        Some(pod)
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_key.values().copied()
    }
}

pub(super) fn place(slot: u32) -> usize {
    usize::try_from(slot).expect("at least 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_pods_fit() {
        // Keys, requests and the index add about a hundred bytes.
        assert!(size_of::<Slot>() <= 248, "{} bytes", size_of::<Slot>());
    }
}
