//! What a storage object's coming, change or going means to pods that wait.

use std::sync::Arc;

use crate::engine::input::StorageKind;
use crate::framework::event::{Action, Event, Resource};

/// An object that changed, and what there is to gain from it. Hints are made of it, as the old object is gone by
/// the time they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageChange {
    pub kind: StorageKind,
    /// Empty for kinds without one.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub turn: Turn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    Added,
    Updated(Vec<Gain>),
    /// The driver is that of an attachment, and empty for other kinds.
    Removed {
        driver: Box<str>,
    },
}

/// A difference between the old object and the new that can let a pod go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// The zones of a volume, or those that a class allows, are others.
    Topology,
    /// More or larger volumes than before.
    Limit,
    /// Other in-tree plugins go through drivers.
    Migration,
    /// The driver no longer says how much room it has, so any amount is believed.
    Untracked,
}

impl StorageChange {
    /// What the queue is told.
    pub fn event(&self) -> Event {
        let resource = match self.kind {
            StorageKind::PersistentVolume => Resource::PersistentVolume,
            StorageKind::PersistentVolumeClaim => Resource::PersistentVolumeClaim,
            StorageKind::StorageClass => Resource::StorageClass,
            StorageKind::CsiNode => Resource::CsiNode,
            StorageKind::CsiDriver => Resource::CsiDriver,
            StorageKind::CsiStorageCapacity => Resource::CsiStorageCapacity,
            StorageKind::VolumeAttachment => Resource::VolumeAttachment,
        };
        let action = match self.turn {
            Turn::Added => Action::ADD,
            Turn::Updated(_) => Action::UPDATE,
            Turn::Removed { .. } => Action::DELETE,
        };
        Event::new(resource, action)
    }

    /// Whether it is new, or changed in this way.
    pub fn is_new_or(&self, gain: Gain) -> bool {
        match &self.turn {
            Turn::Added => true,
            Turn::Updated(gains) => gains.contains(&gain),
            Turn::Removed { .. } => false,
        }
    }
}
