//! The shell's clock: the engine's time, which never goes back.

use std::time::{Duration, Instant, SystemTime};

use koord_engine::time::Time;

/// Wall time at the start, and a monotonic clock since: a clock that is set while we run neither shortens a backoff
/// nor stops the queue.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_time: Time,
}

impl Clock {
    pub fn start() -> Clock {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), start_time: Time::from_nanos(0) + since_epoch }
    }

    pub fn now(&self) -> Time {
        self.start_time + self.start.elapsed()
    }

    /// How long until then; nothing when it has been.
    pub fn until(&self, then: Time) -> Duration {
        then.since(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back_and_is_near_the_wall_clock() {
        let clock = Clock::start();
        let (first, second) = (clock.now(), clock.now());
        assert!(first <= second);
        assert_eq!(clock.until(first), Duration::ZERO);
        let wall = Time::from(jiff::Timestamp::now());
        assert!(wall.since(first).max(first.since(wall)) < Duration::from_secs(60), "{first} {wall}");
    }
}
