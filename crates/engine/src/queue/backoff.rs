//! How long a refused pod waits: doubled with every failure, up to a limit.
//!
//! Spec: scheduler-core 1.2, "Backoff".

use std::time::Duration;

use super::host::Options;
use super::record::QueuedPod;
use crate::time::Time;

impl Options {
    /// When the pod's backoff ends; none when it has none.
    pub(super) fn backoff_ends<P>(&self, record: &QueuedPod<P>) -> Option<Time> {
        let count = match record.consecutive_errors {
            0 => record.unschedulable_count,
            errors => errors,
        };
        if count == 0 || self.max_backoff.is_zero() {
            return None;
        }
        Some(self.align(record.timestamp + self.backoff(count)))
    }

    /// Whether the pod has to wait still. A second in which backoff ends counts in full.
    pub(super) fn is_backing_off<P>(&self, record: &QueuedPod<P>, now: Time) -> bool {
        record.backoff_ends.is_some_and(|ends| ends >= self.align(now))
    }

    /// The backoff after so many failures.
    fn backoff(&self, count: u32) -> Duration {
        if self.initial_backoff.is_zero() {
            return Duration::ZERO;
        }
        let mut duration = self.initial_backoff;
        for _ in 1..count {
            if duration >= self.max_backoff {
                break;
            }
            duration = duration.saturating_mul(2);
        }
        duration.min(self.max_backoff)
    }

    /// Pods that can be popped early are ordered within whole seconds, so their backoff ends at one.
    fn align(&self, time: Time) -> Time {
        if self.pops_from_backoff { time.floor_second() } else { time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_up_to_the_limit() {
        let seconds = Duration::from_secs;
        for (name, initial, max, count, want) in [
            ("scheduler-core#10.S20 count 1", seconds(1), seconds(10), 1, seconds(1)),
            ("scheduler-core#10.S20 count 2", seconds(1), seconds(10), 2, seconds(2)),
            ("scheduler-core#10.S20 count 3", seconds(1), seconds(10), 3, seconds(4)),
            ("scheduler-core#10.S20 count 4", seconds(1), seconds(10), 4, seconds(8)),
            ("scheduler-core#10.S20 count 5", seconds(1), seconds(10), 5, seconds(10)),
            ("scheduler-core#10.S20 count 6", seconds(1), seconds(10), 6, seconds(10)),
            ("overflow", seconds(1), Duration::MAX, u32::MAX, Duration::MAX),
            ("above the limit from the start", seconds(20), seconds(10), 1, seconds(10)),
            ("nothing", Duration::ZERO, seconds(10), u32::MAX, Duration::ZERO),
        ] {
            let options = Options { initial_backoff: initial, max_backoff: max, ..Options::default() };
            assert_eq!(options.backoff(count), want, "{name}");
        }
    }
}
