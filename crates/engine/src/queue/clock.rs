//! What the passing of time does: backoff ends, and nothing stays in the pool for ever.
//!
//! The queue never asks for the time. Whoever owns it calls `tick` no later than `next_wake`; calling it more
//! often changes nothing. Spec: scheduler-core 0 and 1.2.

use std::time::Duration;

use super::heap::Heap;
use super::{Cause, Host, Queue};
use crate::time::Time;

/// How often the pool is searched for pods that stayed too long.
const POOL_PERIOD: Duration = Duration::from_secs(30);
/// A clock that goes back by no more than this is taken to stand still.
pub(crate) const JITTER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The latest time seen; none before the first.
    latest: Option<Time>,
    /// When the pool is searched next.
    pool_due: Time,
}

impl<H: Host> Queue<H> {
    /// Moves on the pods whose wait is over.
    pub fn tick(&mut self, host: &mut H, now: Time) {
        let now = self.observe(now);
        self.flush_backoff(host, now);
        if now >= self.clock.pool_due {
            let missed = now.since(self.clock.pool_due).as_secs() / POOL_PERIOD.as_secs();
            let periods = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
            self.clock.pool_due = self.clock.pool_due + POOL_PERIOD.saturating_mul(periods);
            self.flush_pool(host, now);
        }
    }

    /// When `tick` has something to do next; none when nothing waits for the time.
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        let backoff = [&self.backoff, &self.error_backoff].into_iter().filter_map(Heap::peek);
        let released = backoff.map(|entry| entry.ends.next_second());
        let searched = (self.pool.unschedulable() > 0).then_some(self.clock.pool_due);
        released.chain(searched).min().map(|time| time.max(now))
    }

    /// When the pool is searched for pods that stayed too long, the first time after `time`.
    pub(super) fn pool_search_after(&self, time: Time) -> Time {
        let due = self.clock.pool_due;
        if due > time {
            return due;
        }
        let periods = time.since(due).as_secs() / POOL_PERIOD.as_secs() + 1;
        due + POOL_PERIOD.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX))
    }

    /// Moves pods to the active queue whose backoff ended in a second that is over.
    fn flush_backoff(&mut self, host: &mut H, now: Time) {
        let second = now.floor_second();
        let cause = Cause::BackoffComplete;
        while let Some(slot) = self.backoff.peek().filter(|entry| entry.ends < second).map(|entry| entry.slot)
        {
            self.move_to_active(host, slot, &cause, now);
        }
        while let Some(slot) =
            self.error_backoff.peek().filter(|entry| entry.ends < second).map(|entry| entry.slot)
        {
            self.move_to_active(host, slot, &cause, now);
        }
    }

    /// Notes the time. When the clock was set back, all that is remembered moves with it, so that waits keep
    /// their length and no pod is stuck until the old time comes again.
    pub(super) fn observe(&mut self, now: Time) -> Time {
        let Some(latest) = self.clock.latest else {
            self.clock = Clock { latest: Some(now), pool_due: now };
            return now;
        };
        let back = latest.since(now);
        if back <= JITTER {
            let now = now.max(latest);
            self.clock.latest = Some(now);
            return now;
        }
        // Differs: upstream's pods wait until the old time comes again.
        // Whole seconds keep the ends of backoffs at whole seconds.
        let shift = Duration::from_secs(back.as_secs() + u64::from(back.subsec_nanos() > 0));
        for record in self.store.iter_mut() {
            record.timestamp = record.timestamp - shift;
            record.since = record.since - shift;
            record.initial_attempt = record.initial_attempt.map(|time| time - shift);
            record.backoff_ends = record.backoff_ends.map(|time| time - shift);
        }
        // All keys move alike, so the heaps stay heaps.
        for heap in [&mut self.active, &mut self.backoff, &mut self.error_backoff] {
            heap.rekey(|entry| {
                // `MIN` stands for "none" and stays, since subtraction saturates.
                entry.ends = entry.ends - shift;
                entry.timestamp = entry.timestamp - shift;
            });
        }
        self.clock = Clock { latest: Some(now), pool_due: self.clock.pool_due - shift };
        now
    }
}
