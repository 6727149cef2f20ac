//! The volumes of one class, so that the smallest one for a claim and a node is found without looking at all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::namespaced::Namespaced;
use super::volume::{ClaimRef, Size, Volume};

/// Free volumes by the label that pins them to nodes and by size; volumes that are somebody's by that claim.
///
/// Thousands of local volumes each fit one node: a node looks only at those that its own labels allow.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shelf {
    /// By label key, then by label value.
    pinned: BTreeMap<Box<str>, HashMap<Box<str>, Sizes>>,
    /// Volumes that name no label, or none that all of their terms want.
    anywhere: Sizes,
    /// Names ascending; no list is empty.
    taken: Namespaced<Vec<Arc<str>>>,
}

type Sizes = BTreeMap<Size, BTreeSet<Arc<str>>>;

impl Shelf {
    /// Enters a volume that belongs to `claim`, or to nobody.
    pub(super) fn put(&mut self, volume: &Volume, claim: Option<&ClaimRef>) {
        if let Some(claim) = claim {
            let names = self.taken.entry(&claim.namespace, &claim.name);
            if let Err(at) = names.binary_search(&volume.name) {
                names.insert(at, volume.name.clone());
            }
            return;
        }
        if !volume.is_free() {
            return;
        }
        match &volume.pin {
            None => add(&mut self.anywhere, volume),
            // No node has a label without a value of it.
            Some(pin) if pin.values.is_empty() => {}
            Some(pin) => {
                let by_value = self.pinned.entry(pin.key.clone()).or_default();
                pin.values.iter().for_each(|value| add(by_value.entry(value.clone()).or_default(), volume));
            }
        }
    }

    /// Takes out what `put` entered for the same arguments.
    pub(super) fn take(&mut self, volume: &Volume, claim: Option<&ClaimRef>) {
        if let Some(claim) = claim {
            let names = self.taken.entry(&claim.namespace, &claim.name);
            names.retain(|name| *name != volume.name);
            if names.is_empty() {
                self.taken.remove(&claim.namespace, &claim.name);
            }
            return;
        }
        let Some(pin) = &volume.pin else { return drop(&mut self.anywhere, volume) };
        let Some(by_value) = self.pinned.get_mut(&pin.key) else { return };
        for value in &pin.values {
            if let Some(sizes) = by_value.get_mut(value) {
                drop(sizes, volume);
                if sizes.is_empty() {
                    by_value.remove(value);
                }
            }
        }
        if by_value.is_empty() {
            self.pinned.remove(&pin.key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pinned.is_empty() && self.anywhere.is_empty() && self.taken.is_empty()
    }

    /// Volumes that are meant for a claim of this name.
    pub(super) fn of_claim(&self, namespace: &str, name: &str) -> &[Arc<str>] {
        self.taken.get(namespace, name).map_or(&[], Vec::as_slice)
    }

    /// The smallest free volume that is large enough, may be reached from these labels, and fits otherwise. Of
    /// equal ones the first by name.
    pub(super) fn smallest(
        &self,
        labels: &BTreeMap<String, String>,
        at_least: Size,
        is_fit: impl Fn(&Arc<str>) -> bool,
    ) -> Option<&Arc<str>> {
        let here =
            self.pinned.iter().filter_map(|(key, by_value)| by_value.get(labels.get(&**key)?.as_str()));
        let first = |sizes| named(sizes, at_least).find(|(_, name)| is_fit(name));
        here.chain([&self.anywhere]).filter_map(first).min().map(|(_, name)| name)
    }
}

fn named(sizes: &Sizes, at_least: Size) -> impl Iterator<Item = (Size, &Arc<str>)> {
    sizes.range(at_least..).flat_map(|(size, names)| names.iter().map(|name| (*size, name)))
}

fn add(sizes: &mut Sizes, volume: &Volume) {
    sizes.entry(volume.size).or_default().insert(volume.name.clone());
}

fn drop(sizes: &mut Sizes, volume: &Volume) {
    if let Some(names) = sizes.get_mut(&volume.size) {
        names.remove(&volume.name);
        if names.is_empty() {
            sizes.remove(&volume.size);
        }
    }
}
