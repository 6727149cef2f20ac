//! Samples in little memory: pages of fixed size, each readable on its own, in a pool that reuses them.
//!
//! A sample is one byte for its time and the length of its value, then the change of its value. Values are kept
//! exactly: as whole numbers of the widest unit that loses nothing, or as the bits of a double.

use koord_api::number::{nearest, truncated};

/// Bytes of samples in a page; with its head a page fills 512.
const DATA_BYTES: usize = 480;
/// Pages that the pool takes from the system at once.
const PAGES_PER_SLAB: usize = 64;
/// What most samples are apart, so that the first step of a page costs nothing.
const USUAL_STEP_MS: i64 = 1000;
/// The code of a change of step that does not fit beside the length.
const LONG_STEP: u8 = 31;

/// In which unit a page counts. Later ones take more values and more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// 4096 bytes: memory is given out in these.
    Block,
    One,
    /// CPU is measured no finer.
    Millionth,
    /// The bits of the double.
    Bits,
}

impl Unit {
    const ALL: [Unit; 4] = [Unit::Block, Unit::One, Unit::Millionth, Unit::Bits];

    /// The first that loses nothing of any value.
    fn of_all(values: impl Iterator<Item = f64> + Clone) -> Unit {
        let fits = |unit: &Unit| values.clone().all(|value| unit.word(value).is_some());
        Unit::ALL.into_iter().find(fits).unwrap_or(Unit::Bits)
    }

    /// None when something would be lost.
    fn word(self, value: f64) -> Option<i64> {
        let word = match self {
            Unit::Block => truncated(value / 4096.0),
            Unit::One => truncated(value),
            Unit::Millionth => truncated((value * 1e6).round()),
            Unit::Bits => value.to_bits().cast_signed(),
        };
        (self.value(word).to_bits() == value.to_bits()).then_some(word)
    }

    fn value(self, word: i64) -> f64 {
        match self {
            Unit::Block => nearest(word) * 4096.0,
            Unit::One => nearest(word),
            Unit::Millionth => nearest(word) / 1e6,
            Unit::Bits => f64::from_bits(word.cast_unsigned()),
        }
    }

    /// What turns one word into the next; small for values that are close.
    fn change(self, before: i64, word: i64) -> u64 {
        match self {
            Unit::Bits => (before ^ word).cast_unsigned(),
            _ => zigzag(word.wrapping_sub(before)),
        }
    }

    fn changed(self, before: i64, change: u64) -> i64 {
        match self {
            Unit::Bits => before ^ change.cast_signed(),
            _ => before.wrapping_add(unzigzag(change)),
        }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Unit::Block => 0,
            Unit::One => 1,
            Unit::Millionth => 2,
            Unit::Bits => 3,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.code() == code)
    }
}

/// Small numbers of either sign become small numbers.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(code: u64) -> i64 {
    (code >> 1).cast_signed() ^ -(code & 1).cast_signed()
}

/// Where a page stands after its last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) at_ms: i64,
    step_ms: i64,
    word: i64,
}

/// Why a page takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    /// Its unit would lose something of the value.
    Unit,
}

/// Samples in order of time.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    /// The page after this one, of the series or of those that are free.
    pub(super) next: Option<u32>,
    count: u16,
    used: u16,
    unit: Unit,
    /// Whether the disk has it.
    pub(super) is_saved: bool,
    data: [u8; DATA_BYTES],
}

impl Page {
    const EMPTY: Page = Page {
        first_ms: 0,
        last_ms: 0,
        next: None,
        count: 0,
        used: 0,
        unit: Unit::Bits,
        is_saved: false,
        data: [0; DATA_BYTES],
    };

    /// A page of these samples that came from elsewhere. None when they cannot be a page's.
    pub(super) fn of_parts(first_ms: i64, last_ms: i64, count: u16, unit: u8, data: &[u8]) -> Option<Page> {
        let mut page = Page { first_ms, last_ms, count, unit: Unit::of_code(unit)?, ..Page::EMPTY };
        page.used = u16::try_from(data.len()).ok()?;
        page.data.get_mut(..data.len())?.copy_from_slice(data);
        page.is_saved = true;
        let is_whole = page.samples().count() == usize::from(count)
            && page.samples().last().is_some_and(|(at, _)| at == last_ms);
        is_whole.then_some(page)
    }

    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data[..usize::from(self.used)]
    }

    /// Forgets what it held and begins with one sample. The unit must take the value.
    pub(super) fn begin(&mut self, unit: Unit, at_ms: i64, value: f64) -> Cursor {
        let unit = if unit.word(value).is_some() { unit } else { Unit::of_all([value].into_iter()) };
        let word = unit.word(value).unwrap_or_default();
        (self.first_ms, self.last_ms, self.unit, self.is_saved) = (at_ms, at_ms, unit, false);
        (self.count, self.used) = (1, 8);
        self.data[..8].copy_from_slice(&word.to_le_bytes());
        Cursor { at_ms, step_ms: USUAL_STEP_MS, word }
    }

    /// Adds a sample that is newer than all it has.
    pub(super) fn push(&mut self, cursor: &mut Cursor, at_ms: i64, value: f64) -> Result<(), Refusal> {
        let word = self.unit.word(value).ok_or(Refusal::Unit)?;
        let change = self.unit.change(cursor.word, word).to_le_bytes();
        let length = 8 - change.iter().rev().take_while(|byte| **byte == 0).count();
        // Three bits tell the length; nothing is 7 bytes long.
        let (length, length_code) = match u8::try_from(length) {
            Ok(short) if short < 7 => (length, short),
            _ => (8, 7),
        };
        let step_ms = at_ms.saturating_sub(cursor.at_ms);
        let step_code = u8::try_from(zigzag(step_ms.wrapping_sub(cursor.step_ms))).unwrap_or(LONG_STEP);
        let step_code = step_code.min(LONG_STEP);
        let step_bytes = step_ms.to_le_bytes();
        let long: &[u8] = if step_code == LONG_STEP { &step_bytes } else { &[] };
        let start = usize::from(self.used);
        let end = start + 1 + long.len() + length;
        let Some(room) = self.data.get_mut(start..end) else { return Err(Refusal::Full) };
        room[0] = length_code | step_code << 3;
        room[1..1 + long.len()].copy_from_slice(long);
        room[1 + long.len()..].copy_from_slice(&change[..length]);
        self.used = u16::try_from(end).map_err(|_| Refusal::Full)?;
        self.count += 1;
        self.last_ms = at_ms;
        *cursor = Cursor { at_ms, step_ms, word };
        Ok(())
    }

    pub(super) fn samples(&self) -> Samples<'_> {
        Samples { page: self, at: 0, cursor: Cursor::default() }
    }
}

/// The samples of a page, oldest first.
pub(super) struct Samples<'p> {
    page: &'p Page,
    at: usize,
    cursor: Cursor,
}

impl Samples<'_> {
    fn bytes<const N: usize>(&mut self, length: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        bytes.get_mut(..length)?.copy_from_slice(self.page.data().get(self.at..self.at + length)?);
        self.at += length;
        Some(bytes)
    }
}

impl Iterator for Samples<'_> {
    type Item = (i64, f64);

    fn next(&mut self) -> Option<(i64, f64)> {
        if self.at == 0 {
            let word = i64::from_le_bytes(self.bytes(8)?);
            self.cursor = Cursor { at_ms: self.page.first_ms, step_ms: USUAL_STEP_MS, word };
        } else {
            let [head] = self.bytes(1)?;
            let step_ms = match head >> 3 {
                LONG_STEP => i64::from_le_bytes(self.bytes(8)?),
                code => self.cursor.step_ms.wrapping_add(unzigzag(u64::from(code))),
            };
            let length = if head & 7 == 7 { 8 } else { usize::from(head & 7) };
            let change = u64::from_le_bytes(self.bytes(length)?);
            self.cursor = Cursor {
                at_ms: self.cursor.at_ms.wrapping_add(step_ms),
                step_ms,
                word: self.page.unit.changed(self.cursor.word, change),
            };
        }
        Some((self.cursor.at_ms, self.page.unit.value(self.cursor.word)))
    }
}

/// The unit for these samples together.
pub(super) fn unit_of(samples: &[(i64, f64)]) -> Unit {
    Unit::of_all(samples.iter().map(|(_, value)| *value))
}

/// All pages. Those given back are used again, so that a store that is full asks the system for nothing.
#[derive(Debug)]
pub(super) struct Pool {
    slabs: Vec<Box<[Page]>>,
    free: Option<u32>,
    used: usize,
    pages_max: usize,
}

impl Pool {
    pub(super) fn new(bytes_max: usize) -> Pool {
        Pool { slabs: Vec::new(), free: None, used: 0, pages_max: bytes_max / size_of::<Page>() }
    }

    /// None when as many are in use as may be.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.used >= self.pages_max {
            return None;
        }
        if self.free.is_none() {
            self.grow();
        }
        let id = self.free?;
        self.free = self.get_mut(id).next.take();
        self.used += 1;
        Some(id)
    }

    pub(super) fn give_back(&mut self, id: u32) {
        let free = self.free;
        self.get_mut(id).next = free;
        self.free = Some(id);
        self.used -= 1;
    }

    fn grow(&mut self) {
        let first = self.slabs.len() * PAGES_PER_SLAB;
        self.slabs.push(vec![Page::EMPTY; PAGES_PER_SLAB].into_boxed_slice());
        for id in (first..first + PAGES_PER_SLAB).rev() {
            let Ok(id) = u32::try_from(id) else { return };
            let free = self.free;
            self.get_mut(id).next = free;
            self.free = Some(id);
        }
    }

    pub(super) fn get(&self, id: u32) -> &Page {
        let (slab, page) = place(id);
        &self.slabs[slab][page]
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Page {
        let (slab, page) = place(id);
        &mut self.slabs[slab][page]
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// What the pages take of memory, those that are free included.
    pub(super) fn bytes(&self) -> usize {
        self.slabs.len() * PAGES_PER_SLAB * size_of::<Page>()
    }
}

fn place(id: u32) -> (usize, usize) {
    let id = usize::try_from(id).unwrap_or(usize::MAX);
    (id / PAGES_PER_SLAB, id % PAGES_PER_SLAB)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(samples: &[(i64, f64)]) -> (Page, usize) {
        let mut page = Page::EMPTY;
        let mut cursor = page.begin(unit_of(samples), samples[0].0, samples[0].1);
        let pushed =
            samples[1..].iter().take_while(|(at, value)| page.push(&mut cursor, *at, *value).is_ok());
        let count = 1 + pushed.count();
        (page, count)
    }

    proptest! {
        /// What was pushed comes out, bit for bit.
        #[test]
        fn samples_come_back(
            start in -1_000_000_000_000_i64..2_000_000_000_000,
            steps in proptest::collection::vec((1_i64..5_000_000, any::<f64>(), 0..4_u8), 1..200),
        ) {
            let mut at = start;
            let samples: Vec<(i64, f64)> = steps.iter().map(|(step, value, shape)| {
                at += step;
                let value = match shape {
                    0 => *value,
                    1 => (value % 1e9).trunc(),
                    2 => (value % 1e9).trunc() * 4096.0,
                    _ => (value % 1e3 * 1e6).round() / 1e6,
                };
                (at, value)
            }).collect();
            let (page, count) = filled(&samples);
            let out: Vec<(i64, u64)> = page.samples().map(|(at, value)| (at, value.to_bits())).collect();
            let want: Vec<(i64, u64)> = samples[..count].iter().map(|(at, value)| (*at, value.to_bits())).collect();
            prop_assert_eq!(&out, &want);
            let copy = Page::of_parts(page.first_ms, page.last_ms, page.count(), page.unit().code(), page.data());
            prop_assert_eq!(copy.unwrap().samples().count(), count);
        }

        /// Bytes of a damaged file are refused or read, and nothing else happens.
        #[test]
        fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..500), count in any::<u16>(), unit in 0..6_u8) {
            let page = Page::of_parts(0, 1000, count, unit, &data);
            prop_assert!(page.is_none_or(|page| page.samples().count() == usize::from(count)));
        }
    }

    #[test]
    fn usual_samples_are_small() {
        let bytes_per_sample = |value: &dyn Fn(u32) -> f64| {
            let samples: Vec<(i64, f64)> =
                (0..1000_u32).map(|n| (i64::from(n) * 1000 + i64::from(n % 3), value(n))).collect();
            let (page, count) = filled(&samples);
            page.data().len() * 100 / count
        };
        // Hundredths of a byte: an idle pod, one that works unevenly, one that takes and gives memory.
        assert_eq!(bytes_per_sample(&|_| 0.0), 101);
        assert!(bytes_per_sample(&|n| f64::from(250_000 + n * 7919 % 10_000) / 1e6) < 310);
        assert!(bytes_per_sample(&|n| f64::from(n * 7919 % 100) * 4096.0 + 1_073_741_824.0) < 210);
        assert_eq!(size_of::<Page>(), 512);
    }

    #[test]
    fn the_pool_reuses_and_has_an_end() {
        let mut pool = Pool::new(512 * 100);
        let taken: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((taken.len(), pool.used()), (100, 100));
        let bytes = pool.bytes();
        pool.give_back(taken[7]);
        assert_eq!((pool.take(), pool.take(), pool.bytes()), (Some(taken[7]), None, bytes));
    }
}
