//! A map of bounded size that forgets what was not used for longest.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map of at most `capacity` entries.
#[derive(Debug)]
pub struct Lru<K, V> {
    capacity: usize,
    entries: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    /// An empty map.
    pub fn new(capacity: usize) -> Lru<K, V> {
        Lru { capacity, entries: HashMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// The value under a key, made if absent, and now the most recently used.
    pub fn get_or_insert(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let uses = self.uses;
        let is_full = !self.entries.contains_key(key) && self.entries.len() >= self.capacity;
        if is_full && let Some((_, oldest)) = self.order.pop_first() {
            self.entries.remove(&oldest);
        }
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (uses, make()));
        self.order.remove(&entry.0);
        entry.0 = uses;
        self.order.insert(uses, key.clone());
        &mut entry.1
    }

    /// The value under a key, which is now the most recently used.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(key)?;
        self.uses += 1;
        self.order.remove(used);
        *used = self.uses;
        self.order.insert(self.uses, key.clone());
        Some(value)
    }

    /// Sets the value under a key, which is now the most recently used.
    pub fn insert(&mut self, key: &K, value: V) {
        let mut value = Some(value);
        let slot = self.get_or_insert(key, || value.take().expect("taken at most once"));
        if let Some(value) = value {
            *slot = value;
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.entries.remove(key)?;
        self.order.remove(&used);
        Some(value)
    }

    /// Keeps only the entries that the caller wants.
    pub fn retain(&mut self, mut wanted: impl FnMut(&K, &mut V) -> bool) {
        let order = &mut self.order;
        self.entries.retain(|key, (used, value)| {
            let stays = wanted(key, value);
            if !stays {
                order.remove(used);
            }
            stays
        });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.entries.len(), self.order.len());
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_leaves() {
        let mut lru = Lru::new(2);
        lru.insert(&"a", 1);
        lru.insert(&"b", 2);
        assert_eq!(lru.get_mut(&"a"), Some(&mut 1));
        lru.insert(&"c", 3);
        assert_eq!(lru.get_mut(&"a"), Some(&mut 1));
        assert_eq!(lru.len(), 2);
        assert_eq!(lru.get_mut(&"b"), None);
        lru.insert(&"a", 9);
        assert_eq!(lru.get_mut(&"a"), Some(&mut 9));
        lru.retain(|key, _| *key == "c");
        assert_eq!(lru.len(), 1);
        assert_eq!((lru.remove(&"c"), lru.remove(&"c")), (Some(3), None));
        assert_eq!(lru.len(), 0);
    }
}
