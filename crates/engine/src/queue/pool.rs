//! The unschedulable pool: pods that wait for an event, grouped by who refused them.
//!
//! An event looks only at the groups that it can concern; the others are not touched, however large.

use std::collections::BTreeMap;

use super::record::{ProfileId, QueuedPod};
use super::store::Slot;
use crate::framework::plugin_set::{PluginId, PluginSet};

/// What all pods of a group have in common, as far as events are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) profile: ProfileId,
    pub(super) rejectors: PluginSet,
    pub(super) gate: Option<PluginId>,
}

impl Group {
    fn of<P>(record: &QueuedPod<P>) -> Group {
        Group {
            profile: record.pod.profile,
            rejectors: record.rejectors(),
            gate: record.gate.as_ref().map(|gate| gate.plugin),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// No group is empty.
    groups: BTreeMap<Group, Vec<Slot>>,
    /// By slot: its group and place in it.
    places: Vec<Option<(Group, usize)>>,
    len: usize,
    gated: usize,
}

impl Pool {
    /// Pods that are not gated.
    pub(super) fn unschedulable(&self) -> usize {
        self.len - self.gated
    }

    pub(super) fn gated(&self) -> usize {
        self.gated
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (&Group, &[Slot])> {
        self.groups.iter().map(|(group, slots)| (group, slots.as_slice()))
    }

    pub(super) fn insert<P>(&mut self, slot: Slot, record: &QueuedPod<P>) {
        if self.places.len() <= slot.index() {
            self.places.resize(slot.index() + 1, None);
        }
        debug_assert!(self.places[slot.index()].is_none(), "a pod is in the pool once");
        let group = Group::of(record);
        let slots = self.groups.entry(group).or_default();
        self.places[slot.index()] = Some((group, slots.len()));
        slots.push(slot);
        self.len += 1;
        self.gated += usize::from(group.gate.is_some());
    }

    pub(super) fn remove(&mut self, slot: Slot) -> bool {
        let Some((group, position)) = self.places.get_mut(slot.index()).and_then(Option::take) else {
            return false;
        };
        if let Some(slots) = self.groups.get_mut(&group) {
            slots.swap_remove(position);
            if let Some(moved) = slots.get(position) {
                self.places[moved.index()] = Some((group, position));
            }
            if slots.is_empty() {
                self.groups.remove(&group);
            }
        }
        self.len -= 1;
        self.gated -= usize::from(group.gate.is_some());
        true
    }

    /// Notes that what the pod's group goes by may have changed.
    pub(super) fn refresh<P>(&mut self, slot: Slot, record: &QueuedPod<P>) {
        let present = self.places.get(slot.index()).copied().flatten();
        if present.is_some_and(|(group, _)| group != Group::of(record)) {
            self.remove(slot);
            self.insert(slot, record);
        }
    }
}
