//! Randomness for jitter and identities: nothing here is secret.
//!
//! The standard library seeds every `RandomState` from the operating system, which is all that jitter needs,
//! so no random-number crate is pulled in.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A fresh random number.
pub fn bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A number in `0.0..1.0`.
pub fn unit() -> f64 {
    // The top 32 bits are exact in an f64.
    let high = u32::try_from(bits() >> 32).unwrap_or(0);
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

/// `base` plus up to `factor` times `base`, as client-go's `wait.Jitter`.
pub fn jitter(base: Duration, factor: f64) -> Duration {
    base + base.mul_f64(factor * unit())
}

/// A random (version 4) UUID in its usual text form.
pub fn uuid() -> String {
    let high = (bits() & 0xffff_ffff_ffff_0fff) | 0x4000;
    let low = (bits() & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
    let (high, low) = (format!("{high:016x}"), format!("{low:016x}"));
    format!("{}-{}-{}-{}-{}", &high[..8], &high[8..12], &high[12..], &low[..4], &low[4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_has_its_shape_and_varies() {
        let (a, b) = (uuid(), uuid());
        assert_ne!(a, b);
        assert_eq!(a.len(), 36);
        assert_eq!(a.as_bytes()[14], b'4', "{a}");
        assert!(matches!(a.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{a}");
    }

    #[test]
    fn jitter_stays_in_its_range() {
        for _ in 0..1000 {
            let waited = jitter(Duration::from_secs(2), 1.2);
            assert!(waited >= Duration::from_secs(2) && waited < Duration::from_millis(4400), "{waited:?}");
        }
    }
}
