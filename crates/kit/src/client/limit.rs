//! The token bucket of `clientConnection`: `qps` tokens a second, at most `burst` saved up.
//!
//! [`TokenBucket`] is pure; [`RateLimiter`] waits by it. A caller takes its token at once and waits until it is due,
//! so waiting callers are served in order.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// client-go's values for a connection that says nothing.
const QPS_DEFAULT: f64 = 5.0;
const BURST_DEFAULT: f64 = 10.0;

/// A bucket of tokens that refills with time.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    /// When `tokens` was counted, on the caller's clock.
    counted: Duration,
}

impl TokenBucket {
    /// A full bucket at time `now`.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> TokenBucket {
        TokenBucket { per_second, burst, tokens: burst, counted: now }
    }

    /// Takes a token and says how long to wait until it is due.
    pub fn reserve(&mut self, now: Duration) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 || self.per_second <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(-self.tokens / self.per_second)
    }

    /// Takes a token if one is there.
    pub fn try_take(&mut self, now: Duration) -> bool {
        self.refill(now);
        let is_there = self.tokens >= 1.0;
        if is_there {
            self.tokens -= 1.0;
        }
        is_there
    }

    fn refill(&mut self, now: Duration) {
        // A clock that steps back gives nothing and takes nothing.
        let passed = now.saturating_sub(self.counted);
        self.counted = self.counted.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second).min(self.burst);
    }
}

/// Makes callers wait for their token.
#[derive(Debug)]
pub struct RateLimiter {
    start: Instant,
    /// Locked for the few instructions of a reservation. Absent means no limit.
    bucket: Option<Mutex<TokenBucket>>,
}

impl RateLimiter {
    /// As `clientConnection`: negative `qps` is no limit, 0 the default.
    pub fn new(qps: f32, burst: i32) -> RateLimiter {
        let per_second = if qps == 0.0 { QPS_DEFAULT } else { f64::from(qps) };
        let burst = if burst <= 0 { BURST_DEFAULT } else { f64::from(burst) };
        let bucket =
            (per_second > 0.0).then(|| Mutex::new(TokenBucket::new(per_second, burst, Duration::ZERO)));
        RateLimiter { start: Instant::now(), bucket }
    }

    /// Waits for a token; returns how long that took.
    pub async fn acquire(&self) -> Duration {
        let Some(bucket) = &self.bucket else { return Duration::ZERO };
        let now = self.start.elapsed();
        let wait = bucket.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).reserve(now);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    async fn seconds_for(requests: u32, qps: f32, burst: i32) -> f64 {
        let limiter = RateLimiter::new(qps, burst);
        let start = Instant::now();
        for _ in 0..requests {
            limiter.acquire().await;
        }
        start.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_the_rest_is_paced() {
        for (name, requests, qps, burst, want) in [
            ("within the burst", 100, 50.0, 100, 0.0),
            ("one over", 101, 50.0, 100, 0.02),
            ("well over", 600, 50.0, 100, 10.0),
            ("default", 15, 0.0, 0, 1.0),
            ("no limit", 100_000, -1.0, 1, 0.0),
        ] {
            let took = seconds_for(requests, qps, burst).await;
            // Tokio's timer rounds each wait up to a millisecond.
            assert!(took >= want - 1e-6 && took <= want + 0.002 * f64::from(requests), "{name}: {took}");
        }
    }

    proptest! {
        /// Never more than burst + qps * time requests, whenever they come.
        #[test]
        fn the_rate_is_never_exceeded(gaps in prop::collection::vec(0_u64..400, 1..300), qps in 1_u32..50, burst in 1_u32..20) {
            let mut bucket = TokenBucket::new(f64::from(qps), f64::from(burst), Duration::ZERO);
            let (mut now, mut due) = (Duration::ZERO, Vec::new());
            for gap in gaps {
                now += Duration::from_millis(gap);
                due.push(now + bucket.reserve(now));
            }
            due.sort();
            for (first, start) in due.iter().enumerate() {
                for (count, end) in due[first..].iter().enumerate() {
                    let allowed = f64::from(burst) + (*end - *start).as_secs_f64() * f64::from(qps) + 1e-6;
                    prop_assert!(count as f64 <= allowed, "{count} in {:?}", *end - *start);
                }
            }
        }
    }
}
