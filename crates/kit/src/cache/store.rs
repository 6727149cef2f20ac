//! What a watch cache holds, and how each piece of news changes it. Pure.
//!
//! An object is identified by its UID and aged by its resourceVersion, never by the order in which news arrives:
//! duplicates and late events change nothing, an object that was deleted and made again under the same name is two
//! objects, and a full list is the truth about everything, including what is no longer there.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many deletions are remembered to recognise late news of what is gone. A server that keeps order needs none.
const GRAVES_MAX: usize = 1024;

/// Where an object lives; the namespace is empty for kinds without one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// Which object under a key, and how old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) uid: Uid,
    pub(crate) resource_version: u64,
}

/// A UID in 16 bytes: a UUID's own bits, or a hash of whatever else a server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(u128);

impl Uid {
    pub fn of(text: &str) -> Uid {
        let mut bits: u128 = 0;
        let mut digits = 0;
        for c in text.chars() {
            match (c.to_digit(16), c) {
                (Some(digit), _) if digits < 32 => {
                    bits = bits << 4 | u128::from(digit);
                    digits += 1;
                }
                (None, '-') => {}
                _ => return Uid(hashed(text)),
            }
        }
        if digits == 32 { Uid(bits) } else { Uid(hashed(text)) }
    }
}

fn hashed(text: &str) -> u128 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
    }
}

/// A change of the cache's contents, in the order in which it happened.
///
/// Replaying all deltas of a subscription gives exactly what the cache holds.
#[derive(Debug)]
pub enum Delta<V> {
    Added(Arc<V>),
    Updated {
        old: Arc<V>,
        new: Arc<V>,
    },
    /// Carries the last state that was handed out before, also when the deletion itself was missed.
    Deleted(Arc<V>),
    /// A full list was taken in: everything delivered so far is the complete state as of some moment.
    Synced,
}

impl<V> Clone for Delta<V> {
    fn clone(&self) -> Delta<V> {
        match self {
            Delta::Added(new) => Delta::Added(new.clone()),
            Delta::Updated { old, new } => Delta::Updated { old: old.clone(), new: new.clone() },
            Delta::Deleted(old) => Delta::Deleted(old.clone()),
            Delta::Synced => Delta::Synced,
        }
    }
}

/// What a piece of news did.
#[derive(Debug)]
pub(crate) enum Outcome<V> {
    /// Nothing: it told what was known or outdated.
    Stale,
    Changed(Delta<V>),
    /// The object was replaced by another of the same name.
    Replaced(Delta<V>, Delta<V>),
}

impl<V> Outcome<V> {
    pub(crate) fn into_deltas(self) -> impl Iterator<Item = Delta<V>> {
        let (first, second) = match self {
            Outcome::Stale => (None, None),
            Outcome::Changed(delta) => (Some(delta), None),
            Outcome::Replaced(first, second) => (Some(first), Some(second)),
        };
        first.into_iter().chain(second)
    }
}

#[derive(Debug)]
struct Entry<V> {
    version: Version,
    /// The full list that last mentioned the object.
    list: u32,
    value: Arc<V>,
}

/// The contents of a watch cache.
#[derive(Debug)]
pub(crate) struct Store<V> {
    /// By namespace, then name: a lookup needs no key to be built, and a namespace can be walked.
    namespaces: HashMap<Arc<str>, HashMap<Arc<str>, Entry<V>>>,
    len: usize,
    list: u32,
    graves: VecDeque<Version>,
}

impl<V> Default for Store<V> {
    fn default() -> Store<V> {
        Store { namespaces: HashMap::new(), len: 0, list: 0, graves: VecDeque::new() }
    }
}

impl<V> Store<V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<V>> {
        self.namespaces.get(namespace)?.get(name).map(|entry| &entry.value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &Arc<V>)> {
        self.namespaces.iter().flat_map(|(namespace, names)| {
            names.iter().map(move |(name, entry)| (namespace, name, &entry.value))
        })
    }

    pub(crate) fn iter_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<V>> {
        self.namespaces.get(namespace).into_iter().flat_map(|names| names.values().map(|entry| &entry.value))
    }

    /// A watch says that the object now looks like this.
    pub(crate) fn apply(&mut self, key: ObjectKey, version: Version, value: V) -> Outcome<V> {
        if self.get(&key.namespace, &key.name).is_none() && self.is_buried(version) {
            return Outcome::Stale;
        }
        self.put(key, version, value, |old, new| new.resource_version > old.resource_version)
    }

    /// A full list says so, and a list is believed whatever the versions say.
    pub(crate) fn apply_listed(&mut self, key: ObjectKey, version: Version, value: V) -> Outcome<V> {
        self.put(key, version, value, |_, _| true)
    }

    fn put(
        &mut self,
        key: ObjectKey,
        version: Version,
        value: V,
        is_news: impl Fn(Version, Version) -> bool,
    ) -> Outcome<V> {
        let list = self.list;
        let names = self.namespaces.entry(key.namespace).or_default();
        let value = Arc::new(value);
        match names.entry(key.name) {
            MapEntry::Vacant(slot) => {
                slot.insert(Entry { version, list, value: value.clone() });
                self.len += 1;
                Outcome::Changed(Delta::Added(value))
            }
            MapEntry::Occupied(mut slot) => {
                let entry = slot.get_mut();
                entry.list = list;
                if entry.version == version || !is_news(entry.version, version) {
                    return Outcome::Stale;
                }
                let is_same = entry.version.uid == version.uid;
                let old = std::mem::replace(entry, Entry { version, list, value: value.clone() }).value;
                if is_same {
                    Outcome::Changed(Delta::Updated { old, new: value })
                } else {
                    Outcome::Replaced(Delta::Deleted(old), Delta::Added(value))
                }
            }
        }
    }

    /// A full list mentions an object that could not be read: what is known of it stays.
    pub(crate) fn keep_listed(&mut self, namespace: &str, name: &str, uid: Uid) {
        let list = self.list;
        let entry = self.namespaces.get_mut(namespace).and_then(|names| names.get_mut(name));
        if let Some(entry) = entry.filter(|entry| entry.version.uid == uid) {
            entry.list = list;
        }
    }

    /// A watch says that the object is gone.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str, version: Version) -> Outcome<V> {
        let Some(names) = self.namespaces.get_mut(namespace) else { return Outcome::Stale };
        match names.get(name) {
            Some(entry) if version.resource_version >= entry.version.resource_version => {}
            _ => return Outcome::Stale,
        }
        let Some(entry) = names.remove(name) else { return Outcome::Stale };
        if names.is_empty() {
            self.namespaces.remove(namespace);
        }
        self.len -= 1;
        self.bury(version);
        Outcome::Changed(Delta::Deleted(entry.value))
    }

    /// Begins a full list: [`Store::apply_listed`] and [`Store::keep_listed`] follow, then [`Store::finish_list`].
    pub(crate) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
        self.graves.clear();
    }

    /// Ends a full list: what it did not mention is gone, and was deleted while nobody looked.
    pub(crate) fn finish_list(&mut self) -> Vec<Delta<V>> {
        let list = self.list;
        let mut deltas = Vec::new();
        for names in self.namespaces.values_mut() {
            names.retain(|_, entry| {
                let stays = entry.list == list;
                if !stays {
                    deltas.push(Delta::Deleted(entry.value.clone()));
                }
                stays
            });
        }
        self.namespaces.retain(|_, names| !names.is_empty());
        self.len -= deltas.len();
        deltas
    }

    fn bury(&mut self, version: Version) {
        if self.graves.len() == GRAVES_MAX {
            self.graves.pop_front();
        }
        self.graves.push_back(version);
    }

    /// An object that left may come back under its UID when a selector matches it again, but only newer.
    fn is_buried(&self, version: Version) -> bool {
        let is_older =
            |grave: &Version| grave.uid == version.uid && version.resource_version <= grave.resource_version;
        self.graves.iter().rev().any(is_older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "ns".into(), name: name.into() }
    }

    fn version(uid: &str, resource_version: u64) -> Version {
        Version { uid: Uid::of(uid), resource_version }
    }

    /// Deltas as short words.
    fn told(outcome: Outcome<u32>) -> String {
        outcome.into_deltas().map(|delta| word(&delta)).collect::<Vec<_>>().join(" ")
    }

    fn word(delta: &Delta<u32>) -> String {
        match delta {
            Delta::Added(new) => format!("+{new}"),
            Delta::Updated { old, new } => format!("{old}>{new}"),
            Delta::Deleted(old) => format!("-{old}"),
            Delta::Synced => "synced".to_owned(),
        }
    }

    #[test]
    fn news_is_judged_by_uid_and_version() {
        let mut store = Store::default();
        for (name, news, want) in [
            ("new", ("a", 10, Some(1)), "+1"),
            ("duplicate", ("a", 10, Some(9)), ""),
            ("change", ("a", 12, Some(2)), "1>2"),
            ("late", ("a", 11, Some(9)), ""),
            ("recreated while away", ("b", 20, Some(3)), "-2 +3"),
            ("late news of the former", ("a", 13, Some(9)), ""),
            ("late deletion of the former", ("a", 15, None), ""),
            ("deleted", ("b", 21, None), "-3"),
            ("deleted twice", ("b", 21, None), ""),
            ("late news of the dead", ("b", 20, Some(9)), ""),
            ("back in the selector", ("b", 25, Some(4)), "+4"),
            ("deletion of an unseen successor", ("c", 30, None), "-4"),
        ] {
            let (uid, resource_version, value) = news;
            let outcome = match value {
                Some(value) => store.apply(key("x"), version(uid, resource_version), value),
                None => store.remove("ns", "x", version(uid, resource_version)),
            };
            assert_eq!(told(outcome), want, "{name}");
        }
        assert_eq!(store.len(), 0);
        assert!(store.namespaces.is_empty());
    }

    #[test]
    fn a_list_is_the_truth() {
        let mut store = Store::default();
        for (name, value) in [("kept", 1), ("changed", 2), ("recreated", 3), ("gone", 4), ("broken", 5)] {
            store.apply(key(name), version(name, 10), value);
        }
        store.begin_list();
        assert_eq!(told(store.apply_listed(key("kept"), version("kept", 10), 1)), "");
        // An older version can only mean that the server was restored from a backup.
        assert_eq!(told(store.apply_listed(key("changed"), version("changed", 7), 22)), "2>22");
        assert_eq!(told(store.apply_listed(key("recreated"), version("other", 30), 33)), "-3 +33");
        store.keep_listed("ns", "broken", Uid::of("broken"));
        let gone: Vec<String> = store.finish_list().iter().map(word).collect();
        assert_eq!(gone, ["-4"]);
        assert_eq!(store.len(), 4);
    }

    #[test]
    fn uids_keep_their_bits() {
        let text = "0f8fad5b-d9cb-469f-a165-70867728950e";
        assert_eq!(Uid::of(text).to_string(), text);
        assert_ne!(Uid::of("web-1"), Uid::of("web-2"));
        assert_eq!(Uid::of("web-1"), Uid::of("web-1"));
    }
}
