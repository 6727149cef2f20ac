//! Pods that are being scheduled, and the events that happened meanwhile.
//!
//! A pod that comes back refused is judged by the events since it was taken out. Events that no pod in
//! flight is older than are dropped. Spec: scheduler-core 1.2.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use super::record::{PodKey, PodUid};
use crate::framework::event::Event;
use crate::time::Time;

/// How many events are kept at most. A pod can wait on Permit for many minutes in a busy cluster; one that
/// misses events because of this bound is simply tried again. Differs: upstream keeps all.
const EVENTS_MAX: usize = 1 << 16;

/// A pod that was taken out and is not done yet.
#[derive(Clone, Debug)]
pub struct Flying {
    pub key: PodKey,
    pub uid: PodUid,
    /// When it was taken out.
    pub since: Time,
    /// The number of the first event that it has not seen.
    start: u64,
}

/// An event that happened while some pod was in flight.
#[derive(Debug)]
pub(super) enum Recorded<C> {
    Change {
        event: Event,
        change: C,
    },
    /// Somebody wants this pod tried again.
    ForceActivate {
        uid: PodUid,
    },
    /// Everything may have changed.
    Wildcard {
        event: Event,
    },
}

impl<C> Recorded<C> {
    fn label(&self) -> String {
        match self {
            Recorded::Change { event, .. } | Recorded::Wildcard { event } => event.to_string(),
            Recorded::ForceActivate { .. } => Event::force_activate().to_string(),
        }
    }
}

/// What happened since a pod was taken out.
pub(super) enum Since<'a, C> {
    /// It was not taken out, or not everything is known any more.
    Unknown,
    Events(std::collections::vec_deque::Iter<'a, Recorded<C>>),
}

#[derive(Debug)]
pub(super) struct InFlight<C> {
    /// By the number of the take-out, so in its order.
    pods: BTreeMap<u64, Flying>,
    /// Never iterated.
    by_uid: HashMap<PodUid, u64>,
    next_pod: u64,
    events: VecDeque<Recorded<C>>,
    /// The number of the first event that is kept.
    first_event: u64,
    /// The number that the next event will get.
    next_event: u64,
}

impl<C> InFlight<C> {
    pub(super) fn new() -> InFlight<C> {
        InFlight {
            pods: BTreeMap::new(),
            by_uid: HashMap::new(),
            next_pod: 0,
            events: VecDeque::new(),
            first_event: 0,
            next_event: 0,
        }
    }

    pub(super) fn contains(&self, uid: &PodUid) -> bool {
        self.by_uid.contains_key(uid)
    }

    pub(super) fn find(&self, uid: &PodUid) -> Option<&Flying> {
        self.pods.get(self.by_uid.get(uid)?)
    }

    /// In the order in which they were taken out.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Flying> {
        self.pods.values()
    }

    /// A pod was taken out; false, and nothing is changed, when it is in flight already.
    pub(super) fn start(&mut self, key: &PodKey, uid: &PodUid, now: Time) -> bool {
        let Entry::Vacant(entry) = self.by_uid.entry(uid.clone()) else {
            return false;
        };
        entry.insert(self.next_pod);
        let flying = Flying { key: key.clone(), uid: uid.clone(), since: now, start: self.next_event };
        self.pods.insert(self.next_pod, flying);
        self.next_pod += 1;
        true
    }

    pub(super) fn done(&mut self, uid: &PodUid) -> bool {
        let Some(pod) = self.by_uid.remove(uid) else {
            return false;
        };
        self.pods.remove(&pod);
        let oldest = self.pods.first_key_value().map_or(self.next_event, |(_, flying)| flying.start);
        while self.first_event < oldest {
            self.drop_oldest();
        }
        true
    }

    /// Keeps the event for the pods in flight, if there are any.
    pub(super) fn record(&mut self, event: Recorded<C>) {
        if self.pods.is_empty() {
            return;
        }
        if self.events.len() == EVENTS_MAX {
            self.drop_oldest();
        }
        self.events.push_back(event);
        self.next_event += 1;
    }

    pub(super) fn since(&self, uid: &PodUid) -> Since<'_, C> {
        match self.find(uid).map(|flying| flying.start.checked_sub(self.first_event)) {
            Some(Some(skipped)) => {
                let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).min(self.events.len());
                Since::Events(self.events.range(skipped..))
            }
            Some(None) | None => Since::Unknown,
        }
    }

    /// How many entries there are, by metric label.
    pub(super) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for event in &self.events {
            *counts.entry(event.label()).or_default() += 1;
        }
        if !self.pods.is_empty() {
            counts.insert("PodPopped".to_owned(), self.pods.len());
        }
        counts
    }

    pub(super) fn clear(&mut self) {
        *self = InFlight::new();
    }

    fn drop_oldest(&mut self) {
        self.events.pop_front();
        self.first_event += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::event::{Action, Resource};

    fn change(number: usize) -> Recorded<usize> {
        Recorded::Change { event: Event::new(Resource::Node, Action::ADD), change: number }
    }

    fn seen(list: &InFlight<usize>, uid: &str) -> Option<Vec<usize>> {
        match list.since(&uid.into()) {
            Since::Unknown => None,
            Since::Events(events) => Some(
                events.map(|e| if let Recorded::Change { change, .. } = e { *change } else { 0 }).collect(),
            ),
        }
    }

    fn start(list: &mut InFlight<usize>, uid: &str) {
        assert!(list.start(&PodKey::new("ns", uid), &uid.into(), Time::default()));
    }

    #[test]
    fn each_pod_sees_what_came_after_it_and_nothing_older_is_kept() {
        let mut list = InFlight::new();
        list.record(change(0));
        assert!(list.events.is_empty(), "nobody was in flight");
        start(&mut list, "a");
        list.record(change(1));
        start(&mut list, "b");
        list.record(change(2));
        assert_eq!(seen(&list, "a"), Some(vec![1, 2]));
        assert_eq!(seen(&list, "b"), Some(vec![2]));
        assert_eq!(list.counts(), BTreeMap::from([("NodeAdd".to_owned(), 2), ("PodPopped".to_owned(), 2)]));

        start(&mut list, "c");
        list.record(change(3));
        assert!(list.done(&"b".into()));
        assert_eq!(seen(&list, "a"), Some(vec![1, 2, 3]), "a is older and keeps all");
        assert!(list.done(&"a".into()));
        assert_eq!(list.events.len(), 1, "only what c has not seen");
        assert_eq!(seen(&list, "c"), Some(vec![3]));
        assert_eq!(seen(&list, "a"), None);
        assert!(!list.done(&"a".into()));
        assert!(list.done(&"c".into()));
        assert!(list.events.is_empty());
    }

    #[test]
    fn the_number_of_events_is_bounded() {
        let mut list = InFlight::new();
        start(&mut list, "old");
        list.record(change(1));
        start(&mut list, "young");
        for number in 0..EVENTS_MAX {
            list.record(change(number));
        }
        assert_eq!(list.events.len(), EVENTS_MAX);
        assert_eq!(seen(&list, "old"), None, "it missed an event, and that is known");
        assert_eq!(seen(&list, "young").map(|events| events.len()), Some(EVENTS_MAX));
        list.done(&"old".into());
        list.done(&"young".into());
        assert!(list.events.is_empty());
        start(&mut list, "next");
        list.record(change(5));
        assert_eq!(seen(&list, "next"), Some(vec![5]));
    }
}
