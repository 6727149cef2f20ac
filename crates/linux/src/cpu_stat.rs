//! CPU time, throttling, quota and shares of a group. Spec: koordlet-observe 2.3.

use std::time::Duration;

use crate::cgroup::Version;
use crate::error::Malformed;
use crate::resource::shares_of_weight;
use crate::text::{number, pairs, shown, signed, trimmed, unsigned, words};

/// CPU time in nanoseconds, from `cpuacct.usage` or v2's `cpu.stat`.
pub fn usage_ns(version: Version, content: &[u8]) -> Result<u64, Malformed> {
    match version {
        Version::V1 => unsigned(content),
        Version::V2 => Ok(field(content, "usage_usec")?.saturating_mul(1000)),
    }
}

/// Cores in use between two readings of [`usage_ns`]. None when the counter went back, as that of a group made anew
/// does, or no time passed: then there is no sample.
pub fn cores(before_ns: u64, now_ns: u64, elapsed: Duration) -> Option<f64> {
    let used = Duration::from_nanos(now_ns.checked_sub(before_ns)?);
    (!elapsed.is_zero()).then(|| used.as_secs_f64() / elapsed.as_secs_f64())
}

/// How often a group met its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    pub periods: u64,
    pub throttled: u64,
    pub throttled_ns: u64,
}

impl Throttling {
    /// Which part of the periods since `before` was cut short; 0 when none passed or the group is another one.
    pub fn ratio_since(&self, before: &Throttling) -> f64 {
        let periods = self.periods.saturating_sub(before.periods);
        if periods == 0 {
            return 0.0;
        }
        precise(self.throttled.saturating_sub(before.throttled)) / precise(periods)
    }
}

/// Counters stay far below the 2^53 that a float tells apart.
fn precise(count: u64) -> f64 {
    koord_api::number::nearest(i64::try_from(count).unwrap_or(i64::MAX))
}

/// From `cpu.stat`; every key is required.
pub fn throttling(version: Version, content: &[u8]) -> Result<Throttling, Malformed> {
    let throttled_ns = match version {
        Version::V1 => field(content, "throttled_time"),
        Version::V2 => field(content, "throttled_usec").map(|micros| micros.saturating_mul(1000)),
    };
    let periods = field(content, "nr_periods")?;
    let throttled = field(content, "nr_throttled")?;
    Ok(Throttling { periods, throttled, throttled_ns: throttled_ns? })
}

fn field(content: &[u8], key: &str) -> Result<u64, Malformed> {
    let value = pairs(content).find(|(name, _)| *name == key.as_bytes()).and_then(|(_, value)| number(value));
    value.ok_or_else(|| Malformed(format!("parse cpu.stat failed, err: missing field {key}")))
}

/// Microseconds per period, from `cpu.cfs_quota_us` or `cpu.max`; no limit is -1.
pub fn quota_us(version: Version, content: &[u8]) -> Result<i64, Malformed> {
    match version {
        Version::V1 => signed(content),
        Version::V2 => signed(fields_of_max(content)?.0),
    }
}

/// From `cpu.cfs_period_us` or `cpu.max`.
pub fn period_us(version: Version, content: &[u8]) -> Result<i64, Malformed> {
    match version {
        Version::V1 => signed(content),
        Version::V2 => signed(fields_of_max(content)?.1),
    }
}

fn fields_of_max(content: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut fields = words(content);
    match (fields.next(), fields.next(), fields.next()) {
        (Some(quota), Some(period), None) => Ok((quota, period)),
        _ => {
            let raw = shown(trimmed(content));
            Err(Malformed(format!("parse cpu.max failed, raw content: {raw}, err: invalid pattern")))
        }
    }
}

/// In v1's measure, from `cpu.shares` or `cpu.weight`.
pub fn shares(version: Version, content: &[u8]) -> Result<i64, Malformed> {
    let value = signed(content)?;
    match version {
        Version::V1 => Ok(value),
        Version::V2 => shares_of_weight(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Version::{V1, V2};

    #[test]
    fn usage() {
        assert_eq!(usage_ns(V1, b"100000000\n"), Ok(100_000_000));
        assert_eq!(usage_ns(V2, b"usage_usec 100000\nuser_usec 5\n"), Ok(100_000_000));
        assert!(usage_ns(V1, b" 12\n").is_err());
        assert!(usage_ns(V2, b"user_usec 5\n").is_err());
    }

    #[test]
    fn cores_between_readings() {
        let between = |version, before: &str, now: &str, millis| {
            let read = |text: &str| usage_ns(version, text.as_bytes()).unwrap();
            cores(read(before), read(now), Duration::from_millis(millis))
        };
        // koordlet-observe#13.2.B5
        assert_eq!(between(V1, "100000000", "600000000", 1000), Some(0.5));
        // koordlet-observe#13.2.B6
        assert_eq!(between(V2, "usage_usec 100000", "usage_usec 350000", 500), Some(0.5));
        // A group that was made anew, and a clock that stands.
        assert_eq!(between(V1, "600000000", "100000000", 1000), None);
        assert_eq!(between(V1, "100000000", "600000000", 0), None);
    }

    #[test]
    fn throttling_needs_every_key() {
        let v1 = b"nr_periods 110\nnr_throttled 25\nthrottled_time 7\nodd\n";
        let want = Throttling { periods: 110, throttled: 25, throttled_ns: 7 };
        assert_eq!(throttling(V1, v1), Ok(want));
        let v2 = b"usage_usec 1\nnr_periods 110\nnr_throttled 25\nthrottled_usec 7\n";
        assert_eq!(throttling(V2, v2), Ok(Throttling { throttled_ns: 7000, ..want }));
        // koordlet-observe#13.2.B50
        assert_eq!(usage_ns(V2, b"usage_usec 5\n"), Ok(5000));
        let fault = throttling(V2, b"usage_usec 5\n").unwrap_err().to_string();
        assert_eq!(fault, "parse cpu.stat failed, err: missing field nr_periods");
    }

    #[test]
    fn throttled_ratio() {
        let at = |periods, throttled| Throttling { periods, throttled, throttled_ns: 0 };
        // koordlet-observe#13.2.B15
        assert_eq!(at(110, 25).ratio_since(&at(100, 20)), 0.5);
        assert_eq!(at(100, 25).ratio_since(&at(100, 20)), 0.0);
        // koordlet-observe#13.2.B45
        assert_eq!(at(10, 0).ratio_since(&at(110, 25)), 0.0);
    }

    #[test]
    fn quotas() {
        // koordlet-observe#13.2.B16 koordlet-enforce#18.80
        assert_eq!(quota_us(V2, b"max 100000\n"), Ok(-1));
        assert_eq!(quota_us(V2, b"50000 100000\n"), Ok(50_000));
        assert_eq!(period_us(V2, b"50000 100000\n"), Ok(100_000));
        // koordlet-enforce#18.189
        let fault = quota_us(V2, b"50000\n").unwrap_err().to_string();
        assert_eq!(fault, "parse cpu.max failed, raw content: 50000, err: invalid pattern");
        assert_eq!(quota_us(V1, b"-1\n"), Ok(-1));
        assert_eq!(quota_us(V1, b"max\n"), Ok(-1));
        assert_eq!(quota_us(V1, b"x").unwrap_err().to_string(), "cannot parse cgroup value x");
    }

    #[test]
    fn shares_of_either_version() {
        // koordlet-observe#13.2.B17
        for (weight, want) in [("39", 998), ("100", 2597), ("1", 2), ("10000", 262_144)] {
            assert_eq!(shares(V2, weight.as_bytes()), Ok(want));
        }
        assert_eq!(shares(V1, b"1024\n"), Ok(1024));
        let fault = shares(V2, b"0").unwrap_err().to_string();
        assert_eq!(fault, "invalid cpu.weight value, err: value 0 is not in [min:1, max:10000]");
    }
}
