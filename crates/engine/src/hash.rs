//! A quick hash for small keys of our own: numbers, rows, addresses, UIDs. Never for texts that users write.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by small keys. Its order is no order: never iterate it into a decision.
pub type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// A map by UID. The API server makes these at random, so nobody can make them collide.
pub type UidMap<V> = HashMap<Box<str>, V, BuildHasherDefault<Quick>>;

/// Multiplies and folds each word; our keys are numbered by ourselves, so nobody can make them collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quick(u64);

/// Odd, with its bits well mixed: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Quick {
    fn word(&mut self, word: u64) {
        let wide = u128::from(self.0.rotate_left(5) ^ word).wrapping_mul(u128::from(FACTOR));
        let (low, high) = (wide & u128::from(u64::MAX), wide >> 64);
        // Both halves fit.
        self.0 = u64::try_from(low ^ high).unwrap_or_default();
    }
}

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if rest.is_empty() {
            return;
        }
        // The end is read together with what is before it: one load instead of a copy.
        let last = bytes.last_chunk().copied().unwrap_or_else(|| {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            word
        });
        self.word(u64::from_le_bytes(last));
    }

    fn write_u8(&mut self, number: u8) {
        self.word(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.word(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }

    fn write_i64(&mut self, number: i64) {
        self.word(number.cast_unsigned());
    }

    fn write_usize(&mut self, number: usize) {
        self.word(u64::try_from(number).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, BuildHasherDefault};

    #[test]
    fn neighbours_fall_apart() {
        let build = BuildHasherDefault::<Quick>::default();
        let low: std::collections::BTreeSet<u64> =
            (0..1000u64).map(|n| build.hash_one(n << 6) & 1023).collect();
        assert!(low.len() > 550, "{} of 1024 slots", low.len());
        assert_ne!(build.hash_one([1i64, 2]), build.hash_one([2i64, 1]));
    }
}
