//! Who depends on whom: the owner references of all objects, turned round.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;

use super::Resource;
use crate::controllers::view::Owner;
use crate::kinds::meta::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::store::Stored;

/// What ties an object to others.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Links {
    pub(crate) uid: Box<str>,
    pub(crate) owner_references: Vec<Owner>,
    finalizers: Vec<Box<str>>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Links {
    pub(crate) fn read(stored: &Stored) -> Links {
        serde_json::from_slice(stored.json_metadata()).unwrap_or_default()
    }

    /// On its way out once its dependents are dealt with.
    pub(crate) fn is_waiting(&self) -> bool {
        let waits = |f: &str| f == FINALIZER_FOREGROUND || f == FINALIZER_ORPHAN;
        self.deletion_timestamp.is_some() && self.finalizers.iter().any(|f| waits(f))
    }
}

/// An object by table and key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) resource: Arc<Resource>,
    pub(crate) key: Arc<str>,
}

#[derive(Default)]
pub(crate) struct Graph {
    /// By UID of the owner: the dependents, and whether each blocks the owner's deletion.
    dependents: HashMap<Box<str>, BTreeMap<ObjectId, bool>>,
    /// Owners that wait for their dependents, by UID.
    waiting: HashMap<Box<str>, ObjectId>,
}

impl Graph {
    pub(crate) fn add(&mut self, id: &ObjectId, owners: &[Owner]) {
        for owner in owners {
            let dependents = self.dependents.entry(owner.uid.clone()).or_default();
            dependents.insert(id.clone(), owner.block_owner_deletion);
        }
    }

    pub(crate) fn remove(&mut self, id: &ObjectId, owners: &[Owner]) {
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(id);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = (&ObjectId, bool)> {
        self.dependents.get(uid).into_iter().flatten().map(|(id, blocks)| (id, *blocks))
    }

    /// Notes whether the object waits for its dependents.
    pub(crate) fn note_waiting(&mut self, id: &ObjectId, links: &Links) {
        match links.is_waiting() {
            true => self.waiting.insert(links.uid.clone(), id.clone()),
            false => self.waiting.remove(&links.uid),
        };
    }

    pub(crate) fn forget_waiting(&mut self, uid: &str) {
        self.waiting.remove(uid);
    }

    pub(crate) fn is_waiting(&self, id: &ObjectId) -> bool {
        self.waiting.values().any(|waiting| waiting == id)
    }

    /// The owner, if it waits.
    pub(crate) fn waiting(&self, uid: &str) -> Option<&ObjectId> {
        self.waiting.get(uid)
    }

    /// Everything that has an owner.
    pub(crate) fn all(&self) -> HashSet<ObjectId> {
        self.dependents.values().flat_map(BTreeMap::keys).cloned().collect()
    }

    /// Keys in one table of what has an owner.
    pub(crate) fn of(&self, resource: &Resource) -> Vec<Arc<str>> {
        let all = self.dependents.values().flat_map(BTreeMap::keys);
        all.filter(|id| *id.resource == *resource).map(|id| id.key.clone()).collect()
    }

    /// Takes an object out whose last state is not known.
    pub(crate) fn forget(&mut self, id: &ObjectId) {
        self.dependents.retain(|_, dependents| {
            dependents.remove(id);
            !dependents.is_empty()
        });
    }
}
