//! Which key comes next, and when. Pure: the caller's clock is an argument.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use crate::client::limit::TokenBucket;

/// How soon what failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retries {
    /// The wait after the first failure; each further one doubles it.
    pub wait_min: Duration,
    pub wait_max: Duration,
    /// All keys together: tries per second over time, and how many at once after a quiet time.
    pub per_second: f64,
    pub burst: f64,
}

impl Default for Retries {
    /// controller-runtime's.
    fn default() -> Retries {
        Retries {
            wait_min: Duration::from_millis(5),
            wait_max: Duration::from_secs(1000),
            per_second: 10.0,
            burst: 100.0,
        }
    }
}

/// Keys that wait for their turn, each at most once.
///
/// A key is in one of these states: unknown, waiting for a time, waiting for its turn, at work, at work and wanted again.
#[derive(Debug)]
pub struct Queue<K> {
    ready: VecDeque<K>,
    /// Since when a key is wanted; it stands in `ready` unless it is at work.
    wanted: HashMap<K, Duration>,
    /// Since when a key is worked on.
    at_work: HashMap<K, Duration>,
    /// Keys that become wanted at a time; the number keeps the order of equal times.
    later: BTreeMap<(Duration, u64), K>,
    due: HashMap<K, (Duration, u64)>,
    serial: u64,
    failures: HashMap<K, u32>,
    retries: Retries,
    bucket: TokenBucket,
    /// Additions that nobody has asked about yet.
    added: u64,
}

/// A key whose turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn<K> {
    pub key: K,
    /// How long it stood in line.
    pub waited: Duration,
}

/// What is being worked on just now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Of all keys together.
    pub total: Duration,
    pub longest: Duration,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue at time `now`.
    pub fn new(retries: Retries, now: Duration) -> Queue<K> {
        Queue {
            ready: VecDeque::new(),
            wanted: HashMap::new(),
            at_work: HashMap::new(),
            later: BTreeMap::new(),
            due: HashMap::new(),
            serial: 0,
            failures: HashMap::new(),
            retries,
            bucket: TokenBucket::new(retries.per_second, retries.burst, now),
            added: 0,
        }
    }

    /// Wants a key. Says whether that is news; one that is at work gets another turn afterwards.
    pub fn add(&mut self, now: Duration, key: K) -> bool {
        if self.wanted.contains_key(&key) {
            return false;
        }
        self.added += 1;
        self.wanted.insert(key.clone(), now);
        if !self.at_work.contains_key(&key) {
            self.ready.push_back(key);
        }
        true
    }

    /// Wants a key in a while. Of several times the earliest counts.
    pub fn add_after(&mut self, now: Duration, key: K, delay: Duration) {
        let at = now.saturating_add(delay);
        match self.due.get(&key) {
            Some((known, _)) if *known <= at => return,
            Some(place) => _ = self.later.remove(place),
            None => {}
        }
        self.serial += 1;
        let place = (at, self.serial);
        self.later.insert(place, key.clone());
        self.due.insert(key, place);
    }

    /// Wants a key again after a failure: the wait doubles with each, and all retries share one bucket.
    pub fn retry(&mut self, now: Duration, key: K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let own = self.retries.wait_min.saturating_mul(1 << (*failures).min(31)).min(self.retries.wait_max);
        *failures = failures.saturating_add(1);
        let delay = own.max(self.bucket.reserve(now));
        self.add_after(now, key, delay);
        delay
    }

    /// A key went well: its next failure counts as the first.
    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// The next key whose time has come. It is at work until [`Queue::done`].
    pub fn take(&mut self, now: Duration) -> Option<Turn<K>> {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.due.remove(&key);
            self.add(now, key);
        }
        let key = self.ready.pop_front()?;
        let since = self.wanted.remove(&key).unwrap_or(now);
        self.at_work.insert(key.clone(), now);
        Some(Turn { key, waited: now.saturating_sub(since) })
    }

    /// Ends a key's turn; says how long it took.
    pub fn done(&mut self, now: Duration, key: &K) -> Duration {
        let since = self.at_work.remove(key).unwrap_or(now);
        if self.wanted.contains_key(key) {
            self.ready.push_back(key.clone());
        }
        now.saturating_sub(since)
    }

    /// When the next waiting key becomes wanted.
    pub fn next_due(&self) -> Option<Duration> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// How many keys wait for their turn.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// How many keys were wanted anew since the last time this was asked.
    pub fn count_added(&mut self) -> u64 {
        std::mem::take(&mut self.added)
    }

    pub fn unfinished(&self, now: Duration) -> Unfinished {
        let times = || self.at_work.values().map(|since| now.saturating_sub(*since));
        Unfinished { total: times().sum(), longest: times().max().unwrap_or_default() }
    }
}
