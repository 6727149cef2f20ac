//! How long a container may run above its limit: a bucket of tokens for each. Spec: koordlet-enforce 6.4.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use koord_api::crd::node_slo::CpuBurstStrategy;
use koord_api::number::{nearest, truncated};

/// Use, in percent of the limit, below which tokens come back.
const SAVING_BELOW_PERCENT: i64 = 60;

/// The buckets of all containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    by_container: BTreeMap<Arc<str>, Bucket>,
}

/// Percent-seconds above the limit that are left. Below zero is debt: never more than a full bucket of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    pub tokens: i64,
    pub capacity: i64,
    period: Duration,
    last: Duration,
}

impl Buckets {
    /// Whether a container that uses so many percent of its limit may go on. Its bucket pays or earns for the
    /// time since it was last asked.
    pub fn ask(
        &mut self,
        container: &Arc<str>,
        now: Duration,
        strategy: &CpuBurstStrategy,
        used_percent: f64,
        luck: &mut dyn FnMut() -> f64,
    ) -> bool {
        let Some(period) = strategy.cfs_quota_burst_period_seconds.and_then(|s| u64::try_from(s).ok()) else {
            return true;
        };
        let Some(percent) = strategy.cfs_quota_burst_percent.filter(|percent| *percent >= 100) else {
            return false;
        };
        let capacity = i64::try_from(period).unwrap_or(i64::MAX).saturating_mul(percent - 100);
        let fresh = |luck: &mut dyn FnMut() -> f64| Bucket {
            tokens: truncated(nearest(capacity) * luck().clamp(0.0, 0.5)).min(capacity),
            capacity,
            period: Duration::from_secs(period),
            last: now,
        };
        let bucket = self.by_container.entry(container.clone()).or_insert_with(|| fresh(luck));
        if bucket.capacity != capacity {
            *bucket = fresh(luck);
        }
        bucket.run(now, truncated(used_percent));
        bucket.tokens > 0
    }

    pub fn len(&self) -> usize {
        self.by_container.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_container.is_empty()
    }

    pub fn get(&self, container: &str) -> Option<&Bucket> {
        self.by_container.get(container)
    }

    /// Forgets containers that were not asked about for two periods.
    pub fn sweep(&mut self, now: Duration) {
        self.by_container
            .retain(|_, bucket| now.saturating_sub(bucket.last) <= bucket.period.saturating_mul(2));
    }
}

impl Bucket {
    /// Whole seconds count; a clock that went back counts nothing.
    fn run(&mut self, now: Duration, used_percent: i64) {
        let seconds = i64::try_from(now.saturating_sub(self.last).as_secs()).unwrap_or(i64::MAX);
        self.last = now;
        let gain = match used_percent {
            ..SAVING_BELOW_PERCENT => 100_i64.saturating_sub(used_percent).saturating_mul(seconds),
            100.. => (100 - used_percent).saturating_mul(seconds),
            _ => 0,
        };
        self.tokens = self.tokens.saturating_add(gain).clamp(-self.capacity, self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strategy(period: i64, percent: i64) -> CpuBurstStrategy {
        CpuBurstStrategy {
            cfs_quota_burst_percent: Some(percent),
            cfs_quota_burst_period_seconds: Some(period),
            ..CpuBurstStrategy::default()
        }
    }

    /// A bucket for period 300 and percent 200 with so many tokens.
    fn filled(tokens: i64) -> Buckets {
        let bucket =
            Bucket { tokens, capacity: 30_000, period: Duration::from_secs(300), last: Duration::ZERO };
        Buckets { by_container: BTreeMap::from([(Arc::from("c"), bucket)]) }
    }

    fn ask(buckets: &mut Buckets, seconds: f64, strategy: &CpuBurstStrategy, percent: f64) -> (bool, i64) {
        let now = Duration::from_secs_f64(seconds);
        let is_allowed = buckets.ask(&Arc::from("c"), now, strategy, percent, &mut || 0.25);
        (is_allowed, buckets.get("c").map_or(0, |bucket| bucket.tokens))
    }

    #[test]
    fn worked_examples() {
        let usual = strategy(300, 200);
        let mut buckets = filled(1000);
        assert_eq!(ask(&mut buckets, 10.0, &usual, 150.0), (true, 500), "koordlet-enforce#18.38");
        assert_eq!(ask(&mut buckets, 20.0, &usual, 180.0), (false, -300), "koordlet-enforce#18.39");
        assert_eq!(ask(&mut buckets, 120.0, &usual, 30.0), (true, 6700), "koordlet-enforce#18.40");
        assert_eq!(ask(&mut buckets, 130.0, &usual, 80.0), (true, 6700), "koordlet-enforce#18.41");
        let mut buckets = filled(7110);
        assert_eq!(ask(&mut buckets, 0.9, &usual, 200.0), (true, 7110), "koordlet-enforce#18.136");
        assert_eq!(ask(&mut buckets, 2.8, &usual, 200.0), (true, 7010), "koordlet-enforce#18.136");
        assert_eq!(ask(&mut filled(500), 10.0, &usual, 150.0), (false, 0), "koordlet-enforce#18.137");
    }

    #[test]
    fn edges() {
        assert_eq!(ask(&mut Buckets::default(), 0.0, &strategy(-1, 200), 500.0), (true, 0));
        assert_eq!(ask(&mut Buckets::default(), 0.0, &strategy(300, 99), 10.0), (false, 0));
        assert_eq!(ask(&mut Buckets::default(), 0.0, &strategy(0, 300), 10.0), (false, 0));
        assert_eq!(ask(&mut Buckets::default(), 0.0, &strategy(300, 200), 10.0), (true, 7500));
        let mut buckets = filled(1000);
        assert_eq!(ask(&mut buckets, 0.0, &strategy(600, 150), 80.0), (true, 1000), "the same product");
        assert_eq!(ask(&mut buckets, 0.0, &strategy(600, 200), 80.0), (true, 15_000), "another one");
        let mut buckets = filled(1);
        buckets.sweep(Duration::from_secs(600));
        assert!(buckets.get("c").is_some());
        buckets.sweep(Duration::from_secs(601));
        assert!(buckets.get("c").is_none());
    }

    proptest! {
        /// Neither credit nor debt exceeds a full bucket, whatever the clock and the load do.
        #[test]
        fn never_beyond_its_capacity(
            period in 0_i64..1000, percent in 100_i64..1000, luck in 0.0_f64..0.5,
            steps in prop::collection::vec((0_u64..5000, 0.0_f64..1e6), 1..20),
        ) {
            let mut buckets = Buckets::default();
            let capacity = period * (percent - 100);
            for (seconds, used) in steps {
                let now = Duration::from_secs(seconds);
                let is_allowed = buckets.ask(&Arc::from("c"), now, &strategy(period, percent), used, &mut || luck);
                let tokens = buckets.get("c").unwrap().tokens;
                prop_assert!((-capacity..=capacity).contains(&tokens));
                prop_assert_eq!(is_allowed, tokens > 0);
            }
        }
    }
}
