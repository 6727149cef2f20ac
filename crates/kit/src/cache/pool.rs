//! Equal values kept once. Pods of one template share their labels and spec; namespaces, nodes and keys recur.
//!
//! A pool holds one `Arc` of each value and lets go of those that nobody else holds, at its own pace: when it has
//! doubled since it last looked.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

/// Smaller pools are not worth looking through.
const SWEEP_MIN: usize = 1024;

/// A set of shared values.
#[derive(Debug)]
pub struct Pool<T: ?Sized> {
    /// Locked for one lookup at a time; taken while decoding, never while reading a cache.
    slots: Mutex<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T: ?Sized> {
    by_hash: HashMap<u64, Slot<T>>,
    len: usize,
    sweep_at: usize,
}

/// Values of one hash: nearly always one.
#[derive(Debug)]
enum Slot<T: ?Sized> {
    One(Arc<T>),
    Many(Vec<Arc<T>>),
}

impl<T: ?Sized> Slot<T> {
    fn as_slice(&self) -> &[Arc<T>] {
        match self {
            Slot::One(value) => std::slice::from_ref(value),
            Slot::Many(values) => values,
        }
    }
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Pool<T> {
        let slots = Slots { by_hash: HashMap::new(), len: 0, sweep_at: SWEEP_MIN };
        Pool { slots: Mutex::new(slots) }
    }
}

impl Pool<str> {
    /// The shared copy of a text.
    pub fn text(&self, text: &str) -> Arc<str> {
        self.share_with(hash_of(text), |known| known == text, || Arc::from(text))
    }
}

impl<T: Hash + Eq> Pool<T> {
    /// The shared copy of a value.
    pub fn share(&self, value: T) -> Arc<T> {
        let hash = hash_of(&value);
        self.share_if_equal(hash, value)
    }
}

impl<T: PartialEq> Pool<T> {
    /// The shared copy of a value whose type has no `Hash`; equal values must be given equal hashes.
    pub fn share_hashed(&self, hash: u64, value: T) -> Arc<T> {
        self.share_if_equal(hash, value)
    }

    fn share_if_equal(&self, hash: u64, value: T) -> Arc<T> {
        let mut slots = self.lock();
        if let Some(known) = slots.find(hash, |known| *known == value) {
            return known;
        }
        slots.insert(hash, Arc::new(value))
    }
}

impl<T: ?Sized> Pool<T> {
    fn share_with(&self, hash: u64, is_it: impl Fn(&T) -> bool, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut slots = self.lock();
        match slots.find(hash, is_it) {
            Some(known) => known,
            None => slots.insert(hash, make()),
        }
    }

    /// How many values are held.
    pub fn len(&self) -> usize {
        self.lock().len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets go of the values that nobody else holds.
    pub fn sweep(&self) {
        self.lock().sweep();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T: ?Sized> Slots<T> {
    fn find(&self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.by_hash.get(&hash)?.as_slice().iter().find(|known| is_it(known)).cloned()
    }

    fn insert(&mut self, hash: u64, value: Arc<T>) -> Arc<T> {
        if self.len >= self.sweep_at {
            self.sweep();
        }
        match self.by_hash.entry(hash) {
            Entry::Vacant(slot) => _ = slot.insert(Slot::One(value.clone())),
            Entry::Occupied(mut slot) => {
                let mut values = slot.get().as_slice().to_vec();
                values.push(value.clone());
                slot.insert(Slot::Many(values));
            }
        }
        self.len += 1;
        value
    }

    fn sweep(&mut self) {
        self.by_hash.retain(|_, slot| match slot {
            Slot::One(value) => Arc::strong_count(value) > 1,
            Slot::Many(values) => {
                values.retain(|value| Arc::strong_count(value) > 1);
                !values.is_empty()
            }
        });
        self.len = self.by_hash.values().map(|slot| slot.as_slice().len()).sum();
        self.sweep_at = (self.len * 2).max(SWEEP_MIN);
    }
}

fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one() {
        let pool = Pool::default();
        let (a, b) = (pool.text("web"), pool.text("web"));
        assert!(Arc::ptr_eq(&a, &b));
        assert!(!Arc::ptr_eq(&a, &pool.text("db")));
        let lists = Pool::default();
        let (a, b) = (lists.share(vec![1, 2]), lists.share(vec![1, 2]));
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn colliding_hashes_do_not_confuse() {
        let pool = Pool::default();
        let (a, b) = (pool.share_hashed(1, "a".to_owned()), pool.share_hashed(1, "b".to_owned()));
        assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
        assert!(Arc::ptr_eq(&a, &pool.share_hashed(1, "a".to_owned())));
    }

    #[test]
    fn unused_values_leave() {
        let pool = Pool::default();
        let kept = pool.text("kept");
        for number in 0..10 * SWEEP_MIN {
            pool.text(&number.to_string());
        }
        assert!(pool.len() <= SWEEP_MIN + 1, "{}", pool.len());
        pool.sweep();
        assert_eq!(pool.len(), 1);
        assert!(Arc::ptr_eq(&kept, &pool.text("kept")));
    }
}
