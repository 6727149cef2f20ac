//! Sets of CPUs, and the lists the kernel and annotations write them in: `0-3,8`.
//!
//! Pure. Spec: api 1.3.

use std::fmt;
use std::ops::{BitAnd, BitOr, RangeInclusive, Sub};
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

/// A set of CPU ids.
///
/// ```
/// use koord_api::cpuset::CpuSet;
/// let cpus: CpuSet = "3,1,2,8".parse()?;
/// assert_eq!(cpus.to_string(), "1-3,8");
/// # Ok::<(), koord_api::cpuset::CpuListError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    /// Ascending by block, no block without a CPU. Blocks are sparse because a list may name any
    /// id up to 2^31.
    blocks: Vec<Block>,
}

/// 64 neighbouring CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Block {
    index: u32,
    bits: u64,
}

/// Why a text is no CPU list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// Upstream's text.
    #[error("invalid format: {part}")]
    Part { part: String },
    #[error("invalid CPU list {list:?}: {id:?} is no CPU id, expected a list such as 0-3,8")]
    Id { list: String, id: String },
    /// Upstream's text.
    #[error("end {end} exceed the maximum available CPU count: {RANGE_END_MAX}")]
    RangeEnd { end: i32 },
}

/// The last CPU a range may name, so that a short text cannot ask for a huge set.
const RANGE_END_MAX: i32 = 4096;

const BLOCK_BITS: u32 = 64;

impl CpuSet {
    pub const fn new() -> CpuSet {
        CpuSet { blocks: Vec::new() }
    }

    pub fn range(cpus: RangeInclusive<u32>) -> CpuSet {
        cpus.collect()
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.bits.count_ones() as usize).sum()
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.find(cpu / BLOCK_BITS).is_ok_and(|at| self.blocks[at].bits & bit(cpu) != 0)
    }

    /// Adds a CPU; says whether it was new.
    pub fn insert(&mut self, cpu: u32) -> bool {
        let index = cpu / BLOCK_BITS;
        match self.find(index) {
            Ok(at) => {
                let is_new = self.blocks[at].bits & bit(cpu) == 0;
                self.blocks[at].bits |= bit(cpu);
                is_new
            }
            Err(at) => {
                self.blocks.insert(at, Block { index, bits: bit(cpu) });
                true
            }
        }
    }

    /// Takes a CPU out; says whether it was there.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let Ok(at) = self.find(cpu / BLOCK_BITS) else { return false };
        let was_there = self.blocks[at].bits & bit(cpu) != 0;
        self.blocks[at].bits &= !bit(cpu);
        if self.blocks[at].bits == 0 {
            self.blocks.remove(at);
        }
        was_there
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().flat_map(|block| {
            let mut bits = block.bits;
            std::iter::from_fn(move || {
                let low = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(block.index * BLOCK_BITS + low)
            })
        })
    }

    pub fn first(&self) -> Option<u32> {
        self.blocks.first().map(|block| block.index * BLOCK_BITS + block.bits.trailing_zeros())
    }

    pub fn last(&self) -> Option<u32> {
        self.blocks.last().map(|block| block.index * BLOCK_BITS + block.bits.ilog2())
    }

    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.blocks.iter().all(|block| block.bits & !other.bits_of(block.index) == 0)
    }

    pub fn is_disjoint(&self, other: &CpuSet) -> bool {
        self.blocks.iter().all(|block| block.bits & other.bits_of(block.index) == 0)
    }

    fn find(&self, index: u32) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&index, |block| block.index)
    }

    fn bits_of(&self, index: u32) -> u64 {
        self.find(index).map_or(0, |at| self.blocks[at].bits)
    }
}

fn bit(cpu: u32) -> u64 {
    1 << (cpu % BLOCK_BITS)
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        set.extend(cpus);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

impl BitOr for &CpuSet {
    type Output = CpuSet;

    /// The CPUs of either.
    fn bitor(self, other: &CpuSet) -> CpuSet {
        let mut union = self.clone();
        for block in &other.blocks {
            match union.find(block.index) {
                Ok(at) => union.blocks[at].bits |= block.bits,
                Err(at) => union.blocks.insert(at, *block),
            }
        }
        union
    }
}

impl BitAnd for &CpuSet {
    type Output = CpuSet;

    /// The CPUs of both.
    fn bitand(self, other: &CpuSet) -> CpuSet {
        self.keep(|block| block.bits & other.bits_of(block.index))
    }
}

impl Sub for &CpuSet {
    type Output = CpuSet;

    /// The CPUs of the first that are not in the second.
    fn sub(self, other: &CpuSet) -> CpuSet {
        self.keep(|block| block.bits & !other.bits_of(block.index))
    }
}

impl CpuSet {
    fn keep(&self, bits: impl Fn(&Block) -> u64) -> CpuSet {
        let blocks = self.blocks.iter().map(|block| Block { index: block.index, bits: bits(block) });
        CpuSet { blocks: blocks.filter(|block| block.bits != 0).collect() }
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    fn from_str(list: &str) -> Result<CpuSet, CpuListError> {
        let mut set = CpuSet::new();
        if list.is_empty() {
            return Ok(set);
        }
        for part in list.split(',') {
            let mut ends = part.split('-');
            match (ends.next(), ends.next(), ends.next()) {
                (Some(id), None, _) => set.extend(u32::try_from(cpu_id(id, list)?)),
                (Some(first), Some(last), None) => {
                    let (first, end) = (cpu_id(first, list)?, cpu_id(last, list)?);
                    if end > RANGE_END_MAX {
                        return Err(CpuListError::RangeEnd { end });
                    }
                    // A reversed range is empty.
                    set.extend((first..=end).filter_map(|cpu| u32::try_from(cpu).ok()));
                }
                _ => return Err(CpuListError::Part { part: part.to_owned() }),
            }
        }
        Ok(set)
    }
}

/// Ids are 31 bits wide, as upstream's.
fn cpu_id(id: &str, list: &str) -> Result<i32, CpuListError> {
    id.parse().map_err(|_| CpuListError::Id { list: list.to_owned(), id: id.to_owned() })
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CpuSet, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = CpuSet;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a CPU list such as \"0-3,8\"")
            }

            fn visit_str<E: de::Error>(self, list: &str) -> Result<CpuSet, E> {
                list.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// A set with at least one CPU, as the kernel wants it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NonEmptyCpuSet(CpuSet);

impl NonEmptyCpuSet {
    /// None for an empty set.
    pub fn new(cpus: CpuSet) -> Option<NonEmptyCpuSet> {
        (!cpus.is_empty()).then_some(NonEmptyCpuSet(cpus))
    }

    pub fn as_set(&self) -> &CpuSet {
        &self.0
    }

    pub fn into_set(self) -> CpuSet {
        self.0
    }
}

impl fmt::Display for NonEmptyCpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
