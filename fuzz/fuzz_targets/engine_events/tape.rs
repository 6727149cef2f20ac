//! Bytes as decisions, one after the other; zero when they end.

pub(crate) struct Tape<'a> {
    rest: &'a [u8],
}

impl<'a> Tape<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Tape<'a> {
        Tape { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// Below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    /// One time in so many; never when the bytes have ended.
    pub(crate) fn chance(&mut self, one_in: u8) -> bool {
        self.byte() % one_in == one_in - 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}
