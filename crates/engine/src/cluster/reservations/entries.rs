//! Reservations by their numbers, in the order they came. Found in one step: pods that look for one look at many.

use std::collections::VecDeque;

use super::{Entry, ReservationId};

/// Numbers only rise, so that a number's distance from the first one is its place.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// The number of the first place.
    first: u32,
    places: VecDeque<Option<Box<Entry>>>,
    len: usize,
}

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place(&self, id: ReservationId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(self.first)?).ok()
    }

    pub(super) fn get(&self, id: ReservationId) -> Option<&Entry> {
        self.places.get(self.place(id)?)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: ReservationId) -> Option<&mut Entry> {
        let place = self.place(id)?;
        self.places.get_mut(place)?.as_deref_mut()
    }

    /// Its number must be higher than all before.
    pub(super) fn push(&mut self, entry: Entry) {
        if self.places.is_empty() {
            self.first = entry.id.0;
        }
        let Some(place) = self.place(entry.id).filter(|place| *place >= self.places.len()) else { return };
        self.places.resize_with(place, || None);
        self.places.push_back(Some(Box::new(entry)));
        self.len += 1;
    }

    pub(super) fn remove(&mut self, id: ReservationId) -> Option<Entry> {
        let place = self.place(id)?;
        let entry = self.places.get_mut(place)?.take()?;
        self.len -= 1;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        Some(*entry)
    }

    /// In the order they came.
    pub(super) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.places.iter().flatten().map(|entry| &**entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;

    #[test]
    fn numbers_find_their_entries_whatever_left_before() {
        let mut entries = Entries::default();
        let object = serde_json::json!({"metadata": {"name": "r", "uid": "r"}, "spec": {"template": {}}});
        let record = Cluster::default().set_reservation(&serde_json::from_value(object).unwrap()).new;
        let entry = |number: u32| Entry {
            id: ReservationId(number),
            record: record.clone(),
            row: None,
            owners: Vec::new(),
            allocated: Default::default(),
            is_matchable: false,
        };
        [3, 4, 7].into_iter().for_each(|number| entries.push(entry(number)));
        let numbers = |entries: &Entries| entries.values().map(|entry| entry.id.0).collect::<Vec<_>>();
        assert_eq!(numbers(&entries), [3, 4, 7]);
        let found = |entries: &Entries, number| entries.get(ReservationId(number)).map(|entry| entry.id.0);
        assert_eq!(
            [2, 3, 5, 7, 8].map(|number| found(&entries, number)),
            [None, Some(3), None, Some(7), None]
        );
        assert_eq!(entries.remove(ReservationId(4)).map(|entry| entry.id.0), Some(4));
        assert!(entries.remove(ReservationId(4)).is_none());
        assert!(entries.remove(ReservationId(3)).is_some());
        assert_eq!((numbers(&entries), entries.places.len()), (vec![7], 1));
        assert!(entries.remove(ReservationId(7)).is_some() && entries.is_empty());
        entries.push(entry(9));
        assert_eq!((numbers(&entries), found(&entries, 7)), (vec![9], None));
    }
}
