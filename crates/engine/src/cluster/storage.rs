//! Volumes, claims and what drivers say of them, kept as small as plugins can do with.
//!
//! What the API says stands in immutable records; what we are about to write (a volume's claim, a claim's node)
//! lies over them until the API tells of a newer version (`assumed`). `shelf` finds free volumes. Spec:
//! scheduler-core 6.11.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use self::assumed::Assumed;
use self::shelf::Shelf;
use super::Row;
use crate::engine::input::{self, StorageKind};
use crate::pod::{Class, Volume as PodVolume};

mod assumed;
mod change;
mod claim;
mod driver;
pub mod migration;
mod namespaced;
mod shelf;
mod volume;

pub use change::{Gain, StorageChange, Turn};
pub use claim::Claim;
pub use driver::{Attachment, BindingMode, Capacity, CsiNode, StorageClass};
pub use namespaced::Namespaced;
pub use volume::{AccessModes, ClaimRef, Size, Volume, Zones};

/// Everything that volume plugins look at.
#[derive(Debug, Default)]
pub struct Storage {
    volumes: HashMap<Arc<str>, Arc<Volume>>,
    /// By class; none is empty.
    shelves: HashMap<Arc<str>, Shelf>,
    claims: Namespaced<Arc<Claim>>,
    classes: HashMap<Box<str>, StorageClass>,
    nodes: HashMap<Box<str>, CsiNode>,
    drivers: HashMap<Box<str>, Driver>,
    capacities: Capacities,
    attachments: Attachments,
    /// How often pods on a row mount a claim.
    uses: Namespaced<Vec<(Row, u32)>>,
    assumed: Assumed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Driver {
    revision: Box<str>,
    tracks_capacity: bool,
}

#[derive(Debug, Default)]
struct Capacities {
    classes: Namespaced<Arc<str>>,
    by_class: HashMap<Arc<str>, Namespaced<Capacity>>,
}

#[derive(Debug, Default)]
struct Attachments {
    nodes: HashMap<Box<str>, Arc<str>>,
    by_node: HashMap<Arc<str>, BTreeMap<Box<str>, Attachment>>,
}

impl Storage {
    pub fn volume(&self, name: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<Claim>> {
        self.claims.get(namespace, name)
    }

    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes.get(name)
    }

    pub fn csi_node(&self, node: &str) -> Option<&CsiNode> {
        self.nodes.get(node)
    }

    /// Whether a driver tells how much room it has.
    pub fn tracks_capacity(&self, driver: &str) -> bool {
        self.drivers.get(driver).is_some_and(|driver| driver.tracks_capacity)
    }

    /// What is known of the room for volumes of a class, in no order.
    pub fn capacities(&self, class: &str) -> impl Iterator<Item = &Capacity> {
        self.capacities.by_class.get(class).into_iter().flat_map(|all| all.iter().map(|(_, _, one)| one))
    }

    pub fn attachments(&self, node: &str) -> impl ExactSizeIterator<Item = &Attachment> {
        static NONE: BTreeMap<Box<str>, Attachment> = BTreeMap::new();
        self.attachments.by_node.get(node).unwrap_or(&NONE).values()
    }

    /// How often pods mount a claim, by row. Ghosts are among them.
    pub fn uses(&self, namespace: &str, claim: &str) -> &[(Row, u32)] {
        self.uses.get(namespace, claim).map_or(&[], Vec::as_slice)
    }

    /// Volumes of a class that are meant for a claim, in the order of their names.
    pub fn meant_for<'a>(&'a self, class: &str, claim: &'a Claim) -> impl Iterator<Item = &'a Arc<Volume>> {
        let shelf = self.shelves.get(class);
        let names = shelf.map_or(&[][..], |shelf| shelf.of_claim(&claim.namespace, &claim.name));
        let volumes = names.iter().filter_map(|name| self.volumes.get(name));
        volumes.filter(|volume| self.claim_of(volume).is_some_and(|reference| reference.means(claim)))
    }

    /// The smallest free volume of a class that is large enough, may be reached from these labels, and fits.
    pub fn smallest_free(
        &self,
        class: &str,
        labels: &BTreeMap<String, String>,
        at_least: Size,
        is_fit: impl Fn(&Volume) -> bool,
    ) -> Option<&Arc<Volume>> {
        let is_named_fit = |name: &Arc<str>| self.volumes.get(name).is_some_and(|volume| is_fit(volume));
        let name = self.shelves.get(class)?.smallest(labels, at_least, is_named_fit)?;
        self.volumes.get(name)
    }

    /// An object came or changed. None when that is no news.
    pub(super) fn set(&mut self, object: &input::Storage) -> Option<StorageChange> {
        let name = |name: &Option<String>| name.as_deref().unwrap_or_default().to_owned();
        match object {
            input::Storage::PersistentVolume(object) => self.set_volume(Volume::read(object)),
            input::Storage::PersistentVolumeClaim(object) => self.set_claim(Claim::read(object)),
            input::Storage::StorageClass(object) => {
                let new = StorageClass::read(object);
                let gain = |old: &StorageClass, new: &StorageClass| {
                    (old.topologies != new.topologies).then_some(Gain::Topology).into_iter().collect()
                };
                let name = name(&object.metadata.name);
                let turn = replace(&mut self.classes, &name, new, |class| &class.revision, gain)?;
                Some(change(StorageKind::StorageClass, name, turn))
            }
            input::Storage::CsiNode(object) => {
                let new = CsiNode::read(object);
                let gain = |old: &CsiNode, new: &CsiNode| {
                    let limit = new.has_grown(old).then_some(Gain::Limit);
                    let migration = (old.migrated != new.migrated).then_some(Gain::Migration);
                    limit.into_iter().chain(migration).collect()
                };
                let name = name(&object.metadata.name);
                let turn = replace(&mut self.nodes, &name, new, |node| &node.revision, gain)?;
                Some(change(StorageKind::CsiNode, name, turn))
            }
            input::Storage::CsiDriver(object) => {
                let new = Driver {
                    revision: name(&object.metadata.resource_version).into(),
                    tracks_capacity: object.spec.storage_capacity.unwrap_or(false),
                };
                let gain = |old: &Driver, new: &Driver| {
                    (old.tracks_capacity && !new.tracks_capacity)
                        .then_some(Gain::Untracked)
                        .into_iter()
                        .collect()
                };
                let name = name(&object.metadata.name);
                let turn = replace(&mut self.drivers, &name, new, |driver| &driver.revision, gain)?;
                Some(change(StorageKind::CsiDriver, name, turn))
            }
            input::Storage::CsiStorageCapacity(object) => {
                let (namespace, name) = (name(&object.metadata.namespace), name(&object.metadata.name));
                let turn = self.capacities.set(&namespace, &name, Capacity::read(object))?;
                let kind = StorageKind::CsiStorageCapacity;
                Some(StorageChange { kind, namespace: namespace.into(), name: name.into(), turn })
            }
            input::Storage::VolumeAttachment(object) => {
                let name = name(&object.metadata.name);
                let turn = self.attachments.set(&name, Attachment::read(object))?;
                Some(change(StorageKind::VolumeAttachment, name, turn))
            }
        }
    }

    /// An object went. None when nobody knew it.
    pub(super) fn remove(&mut self, kind: StorageKind, namespace: &str, name: &str) -> Option<StorageChange> {
        let mut driver: Box<str> = "".into();
        match kind {
            StorageKind::PersistentVolume => self.remove_volume(name)?,
            StorageKind::PersistentVolumeClaim => {
                self.claims.remove(namespace, name)?;
                self.assumed.forget_claim(namespace, name);
            }
            StorageKind::StorageClass => self.classes.remove(name).map(|_| ())?,
            StorageKind::CsiNode => self.nodes.remove(name).map(|_| ())?,
            StorageKind::CsiDriver => self.drivers.remove(name).map(|_| ())?,
            StorageKind::CsiStorageCapacity => self.capacities.remove(namespace, name).map(|_| ())?,
            StorageKind::VolumeAttachment => driver = self.attachments.remove(name)?.driver,
        }
        Some(StorageChange {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            turn: Turn::Removed { driver },
        })
    }

    /// A pod on a row mounts its claims, or no longer.
    pub(super) fn count_uses(&mut self, row: Row, class: &Class, is_there: bool) {
        for volume in &class.volumes {
            let PodVolume::Claim { claim, .. } = volume else { continue };
            let uses = self.uses.entry(&class.namespace, claim);
            let at = uses.iter().position(|(known, _)| *known == row);
            match (at, is_there) {
                (Some(at), true) => uses[at].1 += 1,
                (None, true) => uses.push((row, 1)),
                (Some(at), false) if uses[at].1 > 1 => uses[at].1 -= 1,
                (Some(at), false) => drop(uses.swap_remove(at)),
                (None, false) => {}
            }
            if uses.is_empty() {
                self.uses.remove(&class.namespace, claim);
            }
        }
    }

    fn set_volume(&mut self, mut new: Volume) -> Option<StorageChange> {
        // One text for all volumes of a class.
        if let Some((class, _)) = self.shelves.get_key_value(&*new.class) {
            new.class = class.clone();
        }
        let turn = match self.volumes.get(&*new.name) {
            None => Turn::Added,
            Some(old) if is_known(&old.revision, &new.revision) => return None,
            Some(old) => {
                Turn::Updated((old.zones != new.zones).then_some(Gain::Topology).into_iter().collect())
            }
        };
        self.remove_volume(&new.name.clone());
        let name = new.name.clone();
        self.shelve(&new, new.claim.as_ref());
        self.volumes.insert(name.clone(), Arc::new(new));
        Some(StorageChange { kind: StorageKind::PersistentVolume, namespace: "".into(), name, turn })
    }

    fn remove_volume(&mut self, name: &str) -> Option<()> {
        let old = self.volumes.remove(name)?;
        let assumed = self.assumed.forget_volume(name);
        self.unshelve(&old, assumed.as_ref().or(old.claim.as_ref()));
        Some(())
    }

    fn shelve(&mut self, volume: &Volume, claim: Option<&ClaimRef>) {
        let shelf = self.shelves.entry(volume.class.clone()).or_default();
        shelf.put(volume, claim);
        if shelf.is_empty() {
            self.shelves.remove(&volume.class);
        }
    }

    fn unshelve(&mut self, volume: &Volume, claim: Option<&ClaimRef>) {
        if let Some(shelf) = self.shelves.get_mut(&volume.class) {
            shelf.take(volume, claim);
            if shelf.is_empty() {
                self.shelves.remove(&volume.class);
            }
        }
    }

    fn set_claim(&mut self, mut new: Claim) -> Option<StorageChange> {
        let turn = match self.claims.get(&new.namespace, &new.name) {
            None => Turn::Added,
            Some(old) if is_known(&old.revision, &new.revision) => return None,
            Some(_) => Turn::Updated(Vec::new()),
        };
        if let Some((class, _)) = self.shelves.get_key_value(&*new.class) {
            new.class = class.clone();
        }
        let (namespace, name) = (new.namespace.clone(), new.name.clone());
        self.assumed.forget_claim(&namespace, &name);
        self.claims.insert(namespace.clone(), name.clone(), Arc::new(new));
        Some(StorageChange { kind: StorageKind::PersistentVolumeClaim, namespace, name, turn })
    }
}

/// Whether a version was seen before. Objects without one are always news.
fn is_known(old: &str, new: &str) -> bool {
    !new.is_empty() && old == new
}

fn change(kind: StorageKind, name: String, turn: Turn) -> StorageChange {
    StorageChange { kind, namespace: "".into(), name: name.into(), turn }
}

/// Puts a record in the place of an older one; none when it is the same version.
fn replace<T>(
    map: &mut HashMap<Box<str>, T>,
    name: &str,
    new: T,
    revision: impl Fn(&T) -> &Box<str>,
    gains: impl Fn(&T, &T) -> Vec<Gain>,
) -> Option<Turn> {
    let turn = match map.get(name) {
        None => Turn::Added,
        Some(old) if is_known(revision(old), revision(&new)) => return None,
        Some(old) => Turn::Updated(gains(old, &new)),
    };
    map.insert(name.into(), new);
    Some(turn)
}

impl Capacities {
    fn set(&mut self, namespace: &str, name: &str, new: Capacity) -> Option<Turn> {
        let old = self.remove(namespace, name);
        let turn = match &old {
            None => Turn::Added,
            Some(old) => Turn::Updated(new.has_grown(old).then_some(Gain::Limit).into_iter().collect()),
        };
        let is_news = old.is_none_or(|old| !is_known(&old.revision, &new.revision));
        let (namespace, name, class): (Arc<str>, Arc<str>, Arc<str>) =
            (namespace.into(), name.into(), (*new.class).into());
        self.classes.insert(namespace.clone(), name.clone(), class.clone());
        self.by_class.entry(class).or_default().insert(namespace, name, new);
        is_news.then_some(turn)
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<Capacity> {
        let class = self.classes.remove(namespace, name)?;
        let all = self.by_class.get_mut(&class)?;
        let removed = all.remove(namespace, name);
        if all.is_empty() {
            self.by_class.remove(&class);
        }
        removed
    }
}

impl Attachments {
    fn set(&mut self, name: &str, new: Attachment) -> Option<Turn> {
        let old = self.remove(name);
        let turn = if old.is_none() { Turn::Added } else { Turn::Updated(Vec::new()) };
        let is_news = old.is_none_or(|old| !is_known(&old.revision, &new.revision));
        let node: Arc<str> = (*new.node).into();
        self.nodes.insert(name.into(), node.clone());
        self.by_node.entry(node).or_default().insert(name.into(), new);
        is_news.then_some(turn)
    }

    fn remove(&mut self, name: &str) -> Option<Attachment> {
        let node = self.nodes.remove(name)?;
        let all = self.by_node.get_mut(&node)?;
        let removed = all.remove(name);
        if all.is_empty() {
            self.by_node.remove(&node);
        }
        removed
    }
}

#[cfg(test)]
mod tests;
