//! Reservations by their labels, for pods that select them. Spec: scheduler-reservation-loadaware A14.
//!
//! Only labels of reservations are known here, not those of their nodes: whoever asks must know that.

use std::collections::{BTreeMap, BTreeSet};

use super::ReservationId;
use crate::profile::args;

/// An index by chosen keys and prefixes of keys. Without any it answers nothing.
#[derive(Debug, Default)]
pub struct SelectorIndex {
    prefixes: Vec<Box<str>>,
    keys: BTreeSet<Box<str>>,
    by_prefix: BTreeMap<Box<str>, BTreeSet<ReservationId>>,
    by_label: BTreeMap<(Box<str>, Box<str>), BTreeSet<ReservationId>>,
    /// Where each one stands.
    places: BTreeMap<ReservationId, Vec<Place>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Prefix(Box<str>),
    Label(Box<str>, Box<str>),
}

impl SelectorIndex {
    pub fn new(args: &args::SelectorIndex) -> SelectorIndex {
        if !args.enabled {
            return SelectorIndex::default();
        }
        let texts = |list: &[String]| -> Vec<Box<str>> {
            let mut texts: Vec<Box<str>> = Vec::new();
            for text in list.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
                if !texts.iter().any(|known| **known == *text) {
                    texts.push(text.into());
                }
            }
            texts
        };
        SelectorIndex {
            prefixes: texts(&args.key_prefixes),
            keys: texts(&args.keys).into_iter().collect(),
            ..SelectorIndex::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.keys.is_empty()
    }

    /// The prefixes and the keys that are indexed.
    pub fn settings(&self) -> (&[Box<str>], &BTreeSet<Box<str>>) {
        (&self.prefixes, &self.keys)
    }

    /// Every list, by what leads to it: a prefix and `*`, or a label.
    pub fn lists(&self) -> impl Iterator<Item = (String, &BTreeSet<ReservationId>)> {
        let by_prefix = self.by_prefix.iter().map(|(prefix, list)| (format!("{prefix}*"), list));
        by_prefix.chain(self.by_label.iter().map(|((key, value), list)| (format!("{key}={value}"), list)))
    }

    /// A key as it is indexed, if it is. An exact key wins over prefixes, of which the first counts.
    fn place(&self, key: &str, value: &str) -> Option<Place> {
        if self.keys.contains(key) {
            return Some(Place::Label(key.into(), value.into()));
        }
        self.prefixes.iter().find(|prefix| key.starts_with(&***prefix)).cloned().map(Place::Prefix)
    }

    /// A reservation has these labels now; none when it is gone or has no node.
    pub(super) fn set(&mut self, id: ReservationId, labels: Option<&BTreeMap<String, String>>) {
        if self.is_empty() {
            return;
        }
        for place in self.places.remove(&id).into_iter().flatten() {
            self.edit(&place, |bucket| bucket.remove(&id));
        }
        let places = labels.into_iter().flatten().filter_map(|(key, value)| self.place(key, value));
        let places: Vec<Place> = places.collect();
        for place in &places {
            self.edit(place, |bucket| bucket.insert(id));
        }
        if !places.is_empty() {
            self.places.insert(id, places);
        }
    }

    fn edit(&mut self, place: &Place, change: impl FnOnce(&mut BTreeSet<ReservationId>) -> bool) {
        match place {
            Place::Prefix(prefix) => {
                let bucket = self.by_prefix.entry(prefix.clone()).or_default();
                change(bucket);
                if bucket.is_empty() {
                    self.by_prefix.remove(prefix);
                }
            }
            Place::Label(key, value) => {
                let at = (key.clone(), value.clone());
                let bucket = self.by_label.entry(at.clone()).or_default();
                change(bucket);
                if bucket.is_empty() {
                    self.by_label.remove(&at);
                }
            }
        }
    }

    /// The reservations that a selector could mean: those of the smallest list it leads to, where lists of prefixes come
    /// first. None when no key of it is indexed.
    pub fn candidates(&self, selector: &BTreeMap<String, String>) -> Option<Vec<ReservationId>> {
        let places: Vec<Place> = selector.iter().filter_map(|(key, value)| self.place(key, value)).collect();
        let empty = BTreeSet::new();
        let bucket = |place: &Place| match place {
            Place::Prefix(prefix) => self.by_prefix.get(prefix),
            Place::Label(key, value) => self.by_label.get(&(key.clone(), value.clone())),
        };
        let is_prefix = |place: &&Place| matches!(place, Place::Prefix(_));
        let ordered = places.iter().filter(is_prefix).chain(places.iter().filter(|place| !is_prefix(place)));
        let smallest = ordered.map(|place| bucket(place).unwrap_or(&empty)).min_by_key(|bucket| bucket.len());
        smallest.map(|bucket| bucket.iter().copied().collect())
    }
}
