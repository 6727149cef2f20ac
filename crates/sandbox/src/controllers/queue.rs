//! The work queue: each key once, never twice at the same time, later when asked.
//!
//! Keys wait in order of arrival. A key that comes again while it is worked on is queued again
//! afterwards, a little later, so that a burst of changes costs one more pass and not hundreds.
//! Faults back off. `at` is the cluster's own time, which tests may turn; pauses are real time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Between two passes over one key that keeps changing.
const PAUSE: Duration = Duration::from_millis(5);
/// A pass that took long is not repeated at once: one key gets a fifth of a worker at most.
const PAUSE_SHARE: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// After the first fault; doubled for each one more.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// How often the cluster's clock is looked at while something waits for it.
const TICK: Duration = Duration::from_millis(50);

pub(crate) struct Queue<K> {
    /// Guards everything; held for a few lines only.
    state: Mutex<State<K>>,
    wake: Notify,
}

struct State<K> {
    ready: VecDeque<K>,
    /// In `ready`.
    queued: HashSet<K>,
    /// Being worked on; true when it must be looked at again.
    busy: HashMap<K, bool>,
    faults: HashMap<K, u32>,
    /// Paused in real time.
    paused: BTreeMap<Instant, Vec<K>>,
    /// Due by the cluster's clock, and the due time of each key.
    due: BTreeSet<(Timestamp, K)>,
    due_of: HashMap<K, Timestamp>,
    is_closed: bool,
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    pub(crate) fn new() -> Queue<K> {
        let state = State {
            ready: VecDeque::new(),
            queued: HashSet::new(),
            busy: HashMap::new(),
            faults: HashMap::new(),
            paused: BTreeMap::new(),
            due: BTreeSet::new(),
            due_of: HashMap::new(),
            is_closed: false,
        };
        Queue { state: Mutex::new(state), wake: Notify::new() }
    }

    pub(crate) fn add(&self, key: K) {
        self.lock().add(key);
        self.wake.notify_one();
    }

    pub(crate) fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        let mut state = self.lock();
        for key in keys {
            state.add(key);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Looks at the key again at `at`, or earlier if an earlier time was asked for.
    pub(crate) fn add_at(&self, key: K, at: Timestamp) {
        let mut state = self.lock();
        match state.due_of.get(&key).copied() {
            Some(earlier) if earlier <= at => return,
            Some(later) => {
                state.due.remove(&(later, key.clone()));
            }
            None => {}
        }
        state.due_of.insert(key.clone(), at);
        state.due.insert((at, key));
        drop(state);
        self.wake.notify_one();
    }

    /// The next key; None when the queue is closed.
    pub(crate) async fn next(&self, now: impl Fn() -> Timestamp) -> Option<K> {
        loop {
            let woken = self.wake.notified();
            let pause = {
                let mut state = self.lock();
                if state.is_closed {
                    return None;
                }
                state.ripen(now());
                if let Some(key) = state.take() {
                    if !state.ready.is_empty() {
                        self.wake.notify_one();
                    }
                    return Some(key);
                }
                state.pause()
            };
            match pause {
                Some(pause) => {
                    let _ = tokio::time::timeout(pause, woken).await;
                }
                None => woken.await,
            }
        }
    }

    /// The work on a key is over, and how long it took.
    pub(crate) fn done(&self, key: &K, is_fault: bool, took: Duration) {
        let mut state = self.lock();
        let is_dirty = state.busy.remove(key).unwrap_or(false);
        if is_fault {
            let faults = state.faults.entry(key.clone()).or_insert(0);
            *faults = faults.saturating_add(1);
            let delay = BACKOFF_MIN
                .saturating_mul(1u32.checked_shl(*faults - 1).unwrap_or(u32::MAX))
                .min(BACKOFF_MAX);
            state.pause_key(key.clone(), delay);
        } else {
            state.faults.remove(key);
            if is_dirty {
                state.pause_key(key.clone(), (took * PAUSE_SHARE).clamp(PAUSE, PAUSE_MAX));
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    fn add(&mut self, key: K) {
        if let Some(is_dirty) = self.busy.get_mut(&key) {
            *is_dirty = true;
            return;
        }
        if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn pause_key(&mut self, key: K, delay: Duration) {
        self.paused.entry(Instant::now() + delay).or_default().push(key);
    }

    /// Moves what is due to the ready ones.
    fn ripen(&mut self, now: Timestamp) {
        let real = Instant::now();
        while let Some(entry) = self.paused.first_entry() {
            if *entry.key() > real {
                break;
            }
            for key in entry.remove() {
                self.add(key);
            }
        }
        while let Some((at, key)) = self.due.pop_first() {
            if at > now {
                self.due.insert((at, key));
                break;
            }
            self.due_of.remove(&key);
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.busy.insert(key.clone(), false);
        Some(key)
    }

    /// How long to wait at most when nothing is ready.
    fn pause(&self) -> Option<Duration> {
        let paused = self.paused.keys().next().map(|at| at.saturating_duration_since(Instant::now()));
        let due = (!self.due.is_empty()).then_some(TICK);
        paused.into_iter().chain(due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[tokio::test]
    async fn a_key_is_worked_on_once_at_a_time() {
        let queue = Queue::new();
        queue.add_all([1, 2, 1]);
        let now = || at(0);
        assert_eq!(queue.next(now).await, Some(1));
        queue.add(1);
        assert_eq!(queue.next(now).await, Some(2));
        assert!(queue.lock().ready.is_empty(), "1 waits until it is done");
        queue.done(&1, false, Duration::ZERO);
        assert_eq!(queue.next(now).await, Some(1));
        queue.done(&1, false, Duration::ZERO);
        queue.close();
        assert_eq!(queue.next(now).await, None);
    }

    #[tokio::test]
    async fn faults_come_back_and_times_go_by_the_clusters_clock() {
        let queue = Queue::new();
        queue.add(1);
        assert_eq!(queue.next(|| at(0)).await, Some(1));
        queue.done(&1, true, Duration::ZERO);
        queue.add_at(2, at(50));
        queue.add_at(2, at(100));
        assert_eq!(queue.next(|| at(49)).await, Some(1), "2 is not due");
        queue.done(&1, false, Duration::ZERO);
        let looks = std::sync::atomic::AtomicI64::new(47);
        let clock = || at(looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        assert_eq!(queue.next(clock).await, Some(2));
        assert!(queue.lock().due.is_empty(), "the earlier time counts");
    }
}
