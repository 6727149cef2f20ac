//! The engine's time: nanoseconds since the Unix epoch, always given from outside.
//!
//! Nothing here reads a clock. Arithmetic saturates, so no timestamp of an object can overflow it.

use std::fmt;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;

/// An instant, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(i64);

impl Time {
    /// Before everything.
    pub const MIN: Time = Time(i64::MIN);

    pub const fn from_nanos(nanos: i64) -> Time {
        Time(nanos)
    }

    pub const fn from_seconds(seconds: i64) -> Time {
        Time(seconds.saturating_mul(SECOND))
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// The whole second at or before this instant.
    pub const fn floor_second(self) -> Time {
        Time(self.0.saturating_sub(self.0.rem_euclid(SECOND)))
    }

    /// The first whole second after this instant.
    pub const fn next_second(self) -> Time {
        Time(self.floor_second().0.saturating_add(SECOND))
    }

    /// How long ago `earlier` was; zero when it is not earlier.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(u64::try_from(i128::from(self.0) - i128::from(earlier.0)).unwrap_or(0))
    }
}

fn nanos_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(nanos_of(duration)))
    }
}

impl std::ops::Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(nanos_of(duration)))
    }
}

impl From<jiff::Timestamp> for Time {
    fn from(timestamp: jiff::Timestamp) -> Time {
        let limits = i128::from(i64::MIN)..=i128::from(i64::MAX);
        let nanos = timestamp.as_nanosecond().clamp(*limits.start(), *limits.end());
        Time(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}

impl From<Time> for jiff::Timestamp {
    fn from(time: Time) -> jiff::Timestamp {
        jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or(jiff::Timestamp::MAX)
    }
}

/// As text, in the form that Kubernetes writes times in.
impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse::<jiff::Timestamp>().map(Time::from).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        jiff::Timestamp::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_cut_downwards() {
        for (name, nanos, floor, next) in [
            ("zero", 0, 0, SECOND),
            ("half", SECOND / 2, 0, SECOND),
            ("just before", SECOND - 1, 0, SECOND),
            ("whole", 7 * SECOND, 7 * SECOND, 8 * SECOND),
            ("before the epoch", -1, -SECOND, 0),
        ] {
            let time = Time::from_nanos(nanos);
            assert_eq!(time.floor_second().nanos(), floor, "{name}");
            assert_eq!(time.next_second().nanos(), next, "{name}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let late = Time::from_nanos(i64::MAX);
        assert_eq!(late + Duration::MAX, late);
        assert_eq!(Time::MIN - Duration::MAX, Time::MIN);
        assert_eq!(Time::from_seconds(i64::MAX), late);
        assert_eq!(Time::from_seconds(3).since(Time::from_seconds(1)), Duration::from_secs(2));
        assert_eq!(Time::from_seconds(1).since(Time::from_seconds(3)), Duration::ZERO);
        assert_eq!(late.since(Time::MIN), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn timestamps_go_both_ways() {
        let stamp: jiff::Timestamp = "2024-02-29T12:00:00.000000001Z".parse().unwrap();
        assert_eq!(jiff::Timestamp::from(Time::from(stamp)), stamp);
        assert_eq!(Time::from(stamp).to_string(), "2024-02-29T12:00:00.000000001Z");
        assert_eq!(Time::from(jiff::Timestamp::MAX), Time::from_nanos(i64::MAX));
    }
}
