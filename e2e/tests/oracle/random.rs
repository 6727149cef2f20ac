//! Small random texts from a seed.

/// A SplitMix64 generator: the same seed gives the same cases everywhere.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("a small limit");
        usize::try_from(self.next() % limit).expect("below the limit")
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// Up to `most` characters of an alphabet, short ones more often.
    pub(crate) fn word(&mut self, alphabet: &str, most: usize) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        let most = self.below(most + 1);
        let length = self.below(most + 1);
        (0..length).map(|_| letters[self.below(letters.len())]).collect()
    }

    /// Now and then puts in, takes out or repeats a character.
    pub(crate) fn spoil(&mut self, text: String, alphabet: &str) -> String {
        if !self.once_in(6) {
            return text;
        }
        let letters: Vec<char> = alphabet.chars().collect();
        let mut chars: Vec<char> = text.chars().collect();
        let at = self.below(chars.len() + 1);
        match self.below(3) {
            0 => chars.insert(at, letters[self.below(letters.len())]),
            1 if at < chars.len() => {
                chars.remove(at);
            }
            _ if at < chars.len() => chars.insert(at, chars[at]),
            _ => {}
        }
        chars.into_iter().collect()
    }
}
