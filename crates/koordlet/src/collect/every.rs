//! When a collector is due.

use std::time::{Duration, Instant};

/// Passes come a little early or late; this much early still counts.
const EARLY: Duration = Duration::from_millis(100);

/// At once, and then again after each interval.
#[derive(Debug)]
pub(super) struct Every {
    interval: Duration,
    last: Option<Instant>,
}

impl Every {
    pub(super) fn new(interval: Duration) -> Every {
        Every { interval, last: None }
    }

    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.last.is_none_or(|last| now.duration_since(last) + EARLY >= self.interval);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

/// A cgroup that cannot be read is tried again after 1, 2, 4, 8 and then every 16 rounds.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
    skip: u32,
}

impl Patience {
    const FAILURES_MAX: u32 = 4;

    /// Whether this round is to be left out.
    pub(super) fn waits(&mut self) -> bool {
        let waits = self.skip > 0;
        self.skip = self.skip.saturating_sub(1);
        waits
    }

    /// Notes a failure; true for the first of several.
    pub(super) fn failed(&mut self) -> bool {
        let is_first = self.failures == 0;
        self.skip = (1 << self.failures) - 1;
        self.failures = (self.failures + 1).min(Patience::FAILURES_MAX);
        is_first
    }

    pub(super) fn succeeded(&mut self) {
        *self = Patience::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        let start = Instant::now();
        let mut every = Every::new(Duration::from_secs(10));
        let due = [0, 1000, 9_950, 19_000, 19_960].map(|ms| every.is_due(start + Duration::from_millis(ms)));
        assert_eq!(due, [true, false, true, false, true]);
    }

    #[test]
    fn failures_are_tried_less_and_less_often() {
        let mut patience = Patience::default();
        let tried: Vec<u32> = (0..50)
            .filter(|_| {
                !patience.waits() && {
                    patience.failed();
                    true
                }
            })
            .collect();
        assert_eq!(tried, [0, 1, 3, 7, 15, 31, 47]);
        patience.succeeded();
        assert!(!patience.waits() && patience.failed());
    }
}
