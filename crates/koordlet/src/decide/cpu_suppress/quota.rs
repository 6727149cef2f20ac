//! Which quota best-effort pods get for a budget. Spec: koordlet-enforce 5.5.

use crate::decide::convert::{CFS_PERIOD_US, UNLIMITED};

/// The quota that best-effort pods keep whatever happens.
const QUOTA_MIN_US: i64 = 2000;

/// The chosen quota and how it came about. Microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// None when the change is too small to be worth a write.
    pub quota: Option<i64>,
    /// What the budget is worth, at least the minimum.
    pub wanted: i64,
    /// -1 is none.
    pub before: i64,
    /// Changes below this are not written.
    pub dead_band: i64,
    /// How much they may gain at once.
    pub step: i64,
}

/// Chooses the quota worth a budget: shrinking at once, growing by a tenth of the machine.
///
/// Differs: the dead band does not count against "no limit", where upstream leaves best-effort pods unlimited
/// (item 25).
pub fn choose(suppress_milli: i64, capacity_milli: i64, before: i64) -> Choice {
    let capacity_cores = capacity_milli.max(0).saturating_add(999) / 1000;
    let dead_band = capacity_cores.saturating_mul(CFS_PERIOD_US / 100);
    let step = capacity_cores.saturating_mul(CFS_PERIOD_US / 10);
    let wanted = suppress_milli.saturating_mul(CFS_PERIOD_US / 1000).max(QUOTA_MIN_US);
    let is_unlimited = before == UNLIMITED;
    let delta = wanted.saturating_sub(before);
    let is_small = delta.saturating_abs() < dead_band && wanted != QUOTA_MIN_US && !is_unlimited;
    let limited = if delta > step && !is_unlimited { before.saturating_add(step) } else { wanted };
    Choice { quota: (!is_small).then_some(limited), wanted, before, dead_band, step }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn worked_examples() {
        for (key, suppress, capacity, before, want) in [
            ("koordlet-enforce#18.23", 5000, 20_000, -1, Some(500_000)),
            ("koordlet-enforce#18.24", 5000, 20_000, 490_000, None),
            ("koordlet-enforce#18.25", 8000, 20_000, 300_000, Some(500_000)),
            ("koordlet-enforce#18.26", 10, 20_000, 1_500_000, Some(2000)),
            ("koordlet-enforce#18.27", 10, 20_000, 3000, Some(2000)),
            ("koordlet-enforce#18.28", 3000, 20_000, 800_000, Some(300_000)),
            ("koordlet-enforce#18.121", 5000, 20_000, 480_000, Some(500_000)),
            ("koordlet-enforce#18.122", 100, 20_000, -1, Some(10_000)),
            ("koordlet-enforce#18.123", 7000, 7900, 100_000, Some(180_000)),
            ("koordlet-enforce#18.124", 1079, 7900, 100_000, None),
            ("koordlet-enforce#18.124", 1080, 7900, 100_000, Some(108_000)),
        ] {
            assert_eq!(choose(suppress, capacity, before).quota, want, "{key}");
        }
        assert_eq!(choose(5000, 20_000, -1).dead_band, 20_000);
        assert_eq!(choose(5000, 20_000, -1).step, 200_000);
    }

    proptest! {
        /// Never below the minimum, never more than a step above what was.
        #[test]
        fn within_bounds(suppress in any::<i64>(), capacity in 0_i64..1_000_000, before in -1_i64..100_000_000) {
            let choice = choose(suppress, capacity, before);
            if let Some(quota) = choice.quota {
                prop_assert!(quota >= QUOTA_MIN_US.min(before.saturating_add(choice.step)));
                prop_assert!(before == UNLIMITED || quota <= before.max(0).saturating_add(choice.step).max(QUOTA_MIN_US));
            }
        }
    }
}
