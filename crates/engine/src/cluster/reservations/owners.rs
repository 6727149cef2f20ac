//! Who may use which reservation, found without asking every one of them.
//!
//! What owners say is compared with a class of pods once and remembered; reservations that came since are looked at
//! when the class is attended to. Those that could match at all are found by a label, a reference or nothing in
//! particular that the owners ask for. Owners that name a pod are looked up by its name or UID, pod by pod.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use koord_api::crd::reservation::{OwnedPod, OwnerMark, OwnerMatcher};

use super::super::matching::ClassLabels;
use super::entries::Entries;
use super::{ReservationId, Reserved};
use crate::hash::QuickMap;
use crate::intern::{Names, Sym};
use crate::pod::{Class, Pod};

#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Ascending, like all lists here.
    by_mark: QuickMap<Mark, Vec<ReservationId>>,
    by_pod_name: HashMap<Box<str>, Vec<ReservationId>>,
    by_pod_uid: HashMap<Box<str>, Vec<ReservationId>>,
    /// By the address of the class, which nothing else gets as long as it is remembered.
    memos: QuickMap<usize, Memo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mark {
    Label(Sym, Sym),
    Reference(Sym),
    Any,
}

#[derive(Debug)]
struct Memo {
    class: Weak<Class>,
    /// The last reservation that was looked at.
    seen: ReservationId,
    owned: Vec<ReservationId>,
}

/// Classes remembered before those that are gone are looked for.
const MEMOS_SWEPT_FROM: usize = 1024;

/// The reservations that a pod may use, as far as owners decide. Some may be gone.
#[derive(Clone, Debug)]
pub struct Owned<'a> {
    /// By all pods of its class.
    class: &'a [ReservationId],
    /// By this pod alone; ascending.
    pod: Vec<ReservationId>,
}

impl Owned<'_> {
    pub fn is_empty(&self) -> bool {
        self.class.is_empty() && self.pod.is_empty()
    }

    /// Whether some are for this pod and not for all of its class.
    pub fn is_personal(&self) -> bool {
        !self.pod.is_empty()
    }

    pub fn contains(&self, id: ReservationId) -> bool {
        self.class.binary_search(&id).is_ok() || self.pod.binary_search(&id).is_ok()
    }

    pub fn iter(&self) -> impl Iterator<Item = ReservationId> + '_ {
        self.class.iter().chain(&self.pod).copied()
    }
}

/// Whether two lists of owners say the same.
pub(super) fn are_alike(a: &Result<OwnerMatcher, String>, b: &Result<OwnerMatcher, String>) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => a == b,
        (Err(_), Err(_)) => true,
        _ => false,
    }
}

fn insert(list: &mut Vec<ReservationId>, id: ReservationId) {
    if let Err(at) = list.binary_search(&id) {
        list.insert(at, id);
    }
}

fn remove<K: std::hash::Hash + Eq + Clone, S: std::hash::BuildHasher>(
    lists: &mut HashMap<K, Vec<ReservationId>, S>,
    key: &K,
    id: ReservationId,
) {
    let Some(list) = lists.get_mut(key) else { return };
    if let Ok(at) = list.binary_search(&id) {
        list.remove(at);
    }
    if list.is_empty() {
        lists.remove(key);
    }
}

impl Owners {
    pub(super) fn enter(&mut self, id: ReservationId, record: &Reserved, names: &mut Names) {
        let Ok(owners) = &record.owners else { return };
        for mark in owners.marks() {
            match mark {
                OwnerMark::Uid(uid) => insert(self.by_pod_uid.entry(uid.into()).or_default(), id),
                OwnerMark::Name(name) => insert(self.by_pod_name.entry(name.into()).or_default(), id),
                OwnerMark::Label(key, value) => {
                    let mark = Mark::Label(names.intern(key), names.intern(value));
                    insert(self.by_mark.entry(mark).or_default(), id);
                }
                OwnerMark::Reference(name) => {
                    let mark = Mark::Reference(names.intern(name));
                    insert(self.by_mark.entry(mark).or_default(), id);
                }
                OwnerMark::Any => insert(self.by_mark.entry(Mark::Any).or_default(), id),
            }
        }
    }

    pub(super) fn leave(&mut self, id: ReservationId, record: &Reserved, names: &Names) {
        let Ok(owners) = &record.owners else { return };
        for mark in owners.marks() {
            let mark = match mark {
                OwnerMark::Uid(uid) => {
                    remove(&mut self.by_pod_uid, &uid.into(), id);
                    continue;
                }
                OwnerMark::Name(name) => {
                    remove(&mut self.by_pod_name, &name.into(), id);
                    continue;
                }
                OwnerMark::Label(key, value) => {
                    names.find(key).zip(names.find(value)).map(|(key, value)| Mark::Label(key, value))
                }
                OwnerMark::Reference(name) => names.find(name).map(Mark::Reference),
                OwnerMark::Any => Some(Mark::Any),
            };
            if let Some(mark) = mark {
                remove(&mut self.by_mark, &mark, id);
            }
        }
        for memo in self.memos.values_mut().filter(|memo| !memo.owned.is_empty()) {
            if let Ok(at) = memo.owned.binary_search(&id) {
                memo.owned.remove(at);
            }
        }
    }

    /// Looks at the reservations that came since a class was last looked at; `last` is the newest of them.
    pub(super) fn attend(
        &mut self,
        class: &Arc<Class>,
        last: ReservationId,
        entries: &Entries,
        names: &Names,
    ) {
        let address = Arc::as_ptr(class).addr();
        if self.memos.get(&address).is_some_and(|memo| memo.seen >= last) {
            return;
        }
        if self.memos.len() >= MEMOS_SWEPT_FROM && self.memos.len().is_power_of_two() {
            self.memos.retain(|_, memo| memo.class.strong_count() > 0);
        }
        let memo = self.memos.entry(address).or_insert_with(|| Memo {
            class: Arc::downgrade(class),
            seen: ReservationId(0),
            owned: Vec::new(),
        });
        let labels = class.labels.iter().map(|(key, value)| Mark::Label(*key, *value));
        let references = class.references.iter().filter_map(|reference| names.find(&reference.name));
        let marks = labels.chain(references.map(Mark::Reference)).chain([Mark::Any]);
        for list in marks.filter_map(|mark| self.by_mark.get(&mark)) {
            let first = list.partition_point(|id| *id <= memo.seen);
            for id in &list[first..] {
                let owners = entries.get(*id).and_then(|entry| entry.record.owners.as_ref().ok());
                if owners.is_some_and(|owners| owns(owners, class, "", "", names)) {
                    insert(&mut memo.owned, *id);
                }
            }
        }
        memo.seen = last;
    }

    pub(super) fn owned_by_class(&self, class: &Arc<Class>) -> &[ReservationId] {
        self.memos.get(&Arc::as_ptr(class).addr()).map_or(&[], |memo| &memo.owned)
    }

    pub(super) fn owned_by(&self, pod: &Pod, entries: &Entries, names: &Names) -> Owned<'_> {
        let mut owned = Owned { class: self.owned_by_class(&pod.class), pod: Vec::new() };
        if self.by_pod_name.is_empty() && self.by_pod_uid.is_empty() {
            return owned;
        }
        let lists = [self.by_pod_name.get(&pod.key.name), self.by_pod_uid.get(&pod.uid)];
        for id in lists.into_iter().flatten().flatten() {
            let owners = entries.get(*id).and_then(|entry| entry.record.owners.as_ref().ok());
            let is_owned =
                owners.is_some_and(|owners| owns(owners, &pod.class, &pod.key.name, &pod.uid, names));
            if is_owned && !owned.contains(*id) {
                insert(&mut owned.pod, *id);
            }
        }
        owned
    }
}

pub(super) fn owns(owners: &OwnerMatcher, class: &Class, name: &str, uid: &str, names: &Names) -> bool {
    owners.owns(&OwnedPod {
        uid,
        name,
        namespace: &class.namespace,
        references: &class.references,
        labels: &ClassLabels { class, names },
    })
}
