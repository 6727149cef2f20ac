//! Waiting for something outside this process, with a bound.

use std::time::{Duration, Instant};

use crate::Error;

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Asks `ready` again and again, ever more slowly, until it has an answer or `limit` has passed.
pub fn wait_until<T>(limit: Duration, what: &str, mut ready: impl FnMut() -> Option<T>) -> Result<T, Error> {
    let start = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(answer) = ready() {
            return Ok(answer);
        }
        if start.elapsed() >= limit {
            return Err(Error::Timeout { what: what.to_string(), seconds: limit.as_secs() });
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(PAUSE_MAX);
    }
}
