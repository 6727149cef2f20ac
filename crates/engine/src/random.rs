//! Randomness from a seed: the same seed, the same choices.

/// SplitMix64: small, quick, and even enough to break ties.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, each as likely as any other; 0 when there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next_u64()) * u128::try_from(bound).unwrap_or(0);
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_repeat_and_choices_are_even() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..3000).map(|_| random.below(3)).collect::<Vec<usize>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        for choice in 0..3 {
            let count = draw(7).iter().filter(|drawn| **drawn == choice).count();
            assert!((900..1100).contains(&count), "{choice}: {count}");
        }
        assert_eq!(Random::new(1).below(0), 0);
    }
}
