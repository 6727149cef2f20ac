//! Milli-cores in the units of cgroup files. Spec: koordlet-enforce 2.5, 15.3.

use koord_api::annotation::ratio::Ratio;
use koord_api::number::{nearest, truncated};

/// Microseconds of the period that quotas are counted in.
pub const CFS_PERIOD_US: i64 = 100_000;
/// The least quota that the kernel takes.
pub const CFS_QUOTA_MIN_US: i64 = 1000;
/// What a quota without limit is called.
pub const UNLIMITED: i64 = -1;

const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;

/// cpu.shares of so many milli-cores.
pub fn shares(milli: i64) -> i64 {
    if milli <= 0 {
        return SHARES_MIN;
    }
    (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

/// cpu.cfs_quota_us of so many milli-cores; nothing is no limit.
pub fn quota(milli: i64) -> i64 {
    match milli.saturating_mul(CFS_PERIOD_US / 1000) {
        quota if quota <= 0 => UNLIMITED,
        quota => quota.max(CFS_QUOTA_MIN_US),
    }
}

/// A quota on a CPU that is faster by a ratio, rounded up. No ratio, or one not above 1, changes nothing.
///
/// Differs: never below what the kernel takes, where upstream's result is refused (item 29).
pub fn scaled_quota(quota: i64, ratio: Option<Ratio>) -> i64 {
    match ratio.map(Ratio::value) {
        Some(ratio) if quota > 0 && ratio > 1.0 => {
            truncated((nearest(quota) / ratio).ceil()).max(CFS_QUOTA_MIN_US)
        }
        _ => quota,
    }
}

/// Cores as whole milli-cores, without the fraction.
pub fn milli_trunc(cores: f64) -> i64 {
    truncated(cores * 1000.0)
}

/// So many percent of an amount, without the fraction.
pub fn percent_trunc(amount: i64, percent: i64) -> i64 {
    let part = i128::from(amount) * i128::from(percent) / 100;
    i64::try_from(part).unwrap_or(if part < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_milli() {
        let got = [0, 1, 100, 2500, 300_000].map(shares);
        assert_eq!(got, [2, 2, 102, 2560, 262_144], "koordlet-enforce#18.75");
        assert_eq!((shares(-5), shares(i64::MAX)), (2, 262_144));
    }

    #[test]
    fn quota_of_milli() {
        assert_eq!([0, 5, 1000].map(quota), [-1, 1000, 100_000], "koordlet-enforce#18.76");
        assert_eq!([1, 9, 10].map(quota), [1000, 1000, 1000], "koordlet-enforce#18.190");
        assert!(quota(i64::MAX) > 0);
    }

    #[test]
    fn quota_on_a_faster_cpu() {
        let ratio = Ratio::new;
        assert_eq!(scaled_quota(150_000, ratio(1.2)), 125_000);
        assert_eq!(scaled_quota(100_000, ratio(1.2)), 83_334);
        assert_eq!(scaled_quota(100_000, ratio(0.5)), 100_000);
        assert_eq!(scaled_quota(-1, ratio(2.0)), -1);
        assert_eq!(scaled_quota(1000, ratio(2.0)), 1000);
    }

    #[test]
    fn percents() {
        assert_eq!(percent_trunc(7900, 65), 5135);
        assert_eq!(percent_trunc(i64::MAX, 300), i64::MAX);
        assert_eq!(percent_trunc(-199, 1), -1);
    }
}
