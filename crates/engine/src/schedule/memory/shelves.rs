//! Blocks of states in order of how full their states are, so that states near each other lie in one block.
//!
//! A block that is full is split in two, as the leaves of a B-tree are; one that is empty is given to the next split.

use super::arithmetic::LANES;

/// Which block is for what.
#[derive(Default)]
pub(super) struct Shelves {
    /// The lowest fullness that each block is for, ascending, and the block. The first is for all below, too.
    used: Vec<(f64, usize)>,
    free: Vec<usize>,
    /// Blocks there have been at once.
    count: usize,
}

/// Blocks with fewer states than this on average are better filled anew.
const STATES_MIN: usize = LANES / 4;

impl Shelves {
    /// The block for states of a fullness.
    pub(super) fn find(&mut self, fullness: f64) -> usize {
        if self.used.is_empty() {
            let block = self.take_free();
            self.used.push((fullness, block));
        }
        let after = self.used.partition_point(|(lowest, _)| *lowest <= fullness);
        self.used[after.saturating_sub(1)].1
    }

    /// Another block, for what is from `lowest` on in this one.
    pub(super) fn split(&mut self, block: usize, lowest: f64) -> usize {
        let other = self.take_free();
        let at = self.used.iter().position(|(_, known)| *known == block).map_or(0, |at| at + 1);
        self.used.insert(at, (lowest, other));
        other
    }

    /// Nothing is in the block any more.
    pub(super) fn remove(&mut self, block: usize) {
        if let Some(at) = self.used.iter().position(|(_, known)| *known == block) {
            self.used.remove(at);
            self.free.push(block);
        }
    }

    /// Whether so many states lie in far more blocks than they need.
    pub(super) fn are_sparse(&self, states: usize) -> bool {
        self.used.len() > 8 + states / STATES_MIN
    }

    fn take_free(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_stay_in_order() {
        let mut shelves = Shelves::default();
        assert_eq!([0.5, 0.1, 0.9].map(|fullness| shelves.find(fullness)), [0, 0, 0]);
        assert_eq!(shelves.split(0, 0.4), 1);
        assert_eq!(shelves.split(1, 0.8), 2);
        assert_eq!(shelves.split(0, 0.2), 3);
        let found = |shelves: &mut Shelves| [0.0, 0.2, 0.3, 0.4, 0.7, 0.8, 2.0].map(|at| shelves.find(at));
        assert_eq!(found(&mut shelves), [0, 3, 3, 1, 1, 2, 2]);
        shelves.remove(1);
        assert_eq!(found(&mut shelves), [0, 3, 3, 3, 3, 2, 2], "the one before takes its part");
        shelves.remove(0);
        assert_eq!(found(&mut shelves), [3, 3, 3, 3, 3, 2, 2], "the first is for all below");
        assert_eq!(shelves.split(2, 1.0), 0, "free ones are used first");
        // States all alike in this are told apart by nobody; the newest block takes them.
        assert_eq!((shelves.split(0, 1.0), shelves.find(1.0)), (1, 1));
        [0, 1, 2, 3].into_iter().for_each(|block| shelves.remove(block));
        assert!((0..4).contains(&shelves.find(0.3)));
    }

    #[test]
    fn many_blocks_with_little_in_them_are_sparse() {
        let mut shelves = Shelves::default();
        shelves.find(0.0);
        for block in 0..20 {
            assert_eq!(shelves.split(block, 0.1), block + 1);
        }
        assert!(shelves.are_sparse(100) && !shelves.are_sparse(300));
    }
}
