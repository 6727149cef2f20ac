//! The series store: what was measured on this node, in memory for an hour, or for as long as somebody asks for more, and
//! on disk for restarts.
//!
//! Questions are answered from memory alone: who asks stands on the node's thread, which must never wait for a disk.
//! One owner: the thread that collects also answers queries, so that nobody sees half a batch and nothing is locked.
//! Time is an argument. Writers find a series by key once and then by [`Id`]; a sample costs no allocation.
//! Spec: koordlet-observe 4.

mod chain;
mod disk;
mod kind;
mod page;
mod points;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use kind::{Key, KeyError, Kind, Property, Selector};
pub use points::{Aggregate, AggregateError, Points, Window};

use chain::Chain;
use disk::Disk;
use page::Pool;

/// New series may begin this far behind the newest sample of the store: half of upstream's block.
const NEW_BEHIND_MS: i64 = 5 * 60 * 1000;
/// Samples out of order may be this far behind the newest sample of the store.
const LATE_BEHIND_MS: i64 = 60 * 1000;
/// A sample this far ahead of the clock is a mistake, and a clock this far behind the samples was set back.
const AHEAD_MS: i64 = 60 * 1000;
/// Where the disk has them, samples of containers leave memory so soon: they are most of all, and everybody asks for
/// their last seconds only.
const CONTAINERS_MS: i64 = 10 * 60 * 1000;
/// A window that nobody asked for in so long is forgotten, at the latest after twice that.
const ASKED_MS: i64 = 24 * 60 * 60 * 1000;
/// Every series is looked after once in so many calls of [`Store::tend`].
const TENDS_PER_ROUND: usize = 60;

/// How much is kept. The flags `tsdb-*` decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long samples stay in memory: twice the longest window that is usual. Kinds that are asked for over a longer
    /// window stay for that, but no longer than on disk.
    pub memory_retention: Duration,
    /// The most that samples may take of memory. Then the oldest go: first what only longer windows keep, then those of
    /// containers.
    pub memory_bytes: usize,
    /// Where samples survive a restart; None keeps them in memory only.
    pub path: Option<PathBuf>,
    pub disk_retention: Duration,
    pub disk_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_retention: Duration::from_secs(3600),
            // An hour of 2,500 samples a second, the most that the specification expects, takes 27 MiB.
            memory_bytes: 40 << 20,
            path: None,
            disk_retention: Duration::from_secs(12 * 3600),
            disk_bytes: 100 << 20,
        }
    }
}

/// The place of a series, valid until the series ends. The default is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    slot: u32,
    generation: u32,
}

impl Default for Id {
    fn default() -> Id {
        Id { slot: u32::MAX, generation: 0 }
    }
}

/// Samples that are stored together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    samples: Vec<(Id, i64, f64)>,
}

impl Batch {
    pub fn add(&mut self, series: Id, at_ms: i64, value: f64) {
        self.samples.push((series, at_ms, value));
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

/// Why a batch was not stored. Upstream's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("append error {0}, rollback error <nil>")]
pub struct AppendError(pub Fault);

/// What is wrong with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("too old sample")]
    TooOld,
    #[error("duplicate sample for timestamp")]
    Duplicate,
    #[error("sample is ahead of the clock")]
    Ahead,
    #[error("series has ended")]
    Ended,
}

/// How the store is doing, for its metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub series: usize,
    /// Pages of samples in memory.
    pub chunks: usize,
    pub memory_bytes: usize,
    pub appended_total: u64,
    pub out_of_order_total: u64,
    /// Pages dropped before their time, for want of memory.
    pub shed_total: u64,
    /// Files on disk, and their size.
    pub blocks: usize,
    pub blocks_bytes: u64,
}

struct Series {
    /// None when the slot is free.
    key: Option<Key>,
    generation: u32,
    chain: Chain,
}

/// The series of one node.
pub struct Store {
    pool: Pool,
    series: Vec<Series>,
    free: Vec<u32>,
    by_key: BTreeMap<Key, u32>,
    newest_ms: Option<i64>,
    retention_ms: i64,
    /// The longest that samples are kept for those who ask.
    retention_max_ms: i64,
    /// By kind, how far back questions went that want more than is kept anyway: since `asked_since_ms`, and before.
    asked: RefCell<BTreeMap<Kind, [i64; 2]>>,
    asked_since_ms: i64,
    /// Where the round of [`Store::tend`] stands.
    tended: usize,
    disk: Option<Disk>,
    scratch: Vec<(i64, f64)>,
    appended_total: u64,
    out_of_order_total: u64,
    shed_total: u64,
}

impl Store {
    /// A store in memory, with nothing in it.
    pub fn new(limits: &Limits) -> Store {
        let ms = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Store {
            pool: Pool::new(limits.memory_bytes),
            series: Vec::new(),
            free: Vec::new(),
            by_key: BTreeMap::new(),
            newest_ms: None,
            retention_ms: ms(limits.memory_retention),
            retention_max_ms: ms(limits.disk_retention),
            asked: RefCell::default(),
            asked_since_ms: 0,
            tended: 0,
            disk: None,
            scratch: Vec::new(),
            appended_total: 0,
            out_of_order_total: 0,
            shed_total: 0,
        }
    }

    /// A store that begins with what its directory has of the last hour, and saves what comes. A directory that cannot
    /// be used is logged; the store then lives in memory alone. What was saved while the clock was ahead is not read: with
    /// it all the rest would look old.
    pub fn open(limits: &Limits, now_ms: i64) -> Store {
        let mut store = Store::new(limits);
        if let Some(path) = &limits.path {
            let oldest_ms = now_ms.saturating_sub(store.retention_ms);
            let window = Window { start_ms: oldest_ms, end_ms: now_ms.saturating_add(AHEAD_MS) };
            disk::read(path, window, |key, page| {
                let is_short = key.kind.is_of_containers();
                let is_recent = !is_short || page.last_ms >= now_ms.saturating_sub(CONTAINERS_MS);
                if is_recent && page.last_ms <= window.end_ms {
                    store.restore(key, page);
                }
            });
            store.disk = Disk::open(path, limits.disk_retention, limits.disk_bytes, now_ms);
        }
        store
    }

    /// How long samples of a kind stay in memory.
    fn retention_of(&self, kind: Kind) -> i64 {
        let asked = self.asked.borrow().get(&kind).map_or(0, |[now, before]| *now.max(before));
        self.plain_retention_of(kind).max(asked)
    }

    /// The same when nobody asks for more.
    fn plain_retention_of(&self, kind: Kind) -> i64 {
        if kind.is_of_containers() && self.disk.is_some() {
            return self.retention_ms.min(CONTAINERS_MS);
        }
        self.retention_ms
    }

    /// Notes a question that goes back farther than samples stay: they stay for the next one like it. What memory does not
    /// have yet is not fetched.
    ///
    /// Differs: upstream reads what is too old for memory from disk, for every question.
    fn note(&self, kind: Kind, window: Window) {
        let Some(newest_ms) = self.newest_ms else { return };
        let back_ms = newest_ms.saturating_sub(window.start_ms).min(self.retention_max_ms);
        if back_ms > self.plain_retention_of(kind) {
            let mut asked = self.asked.borrow_mut();
            let [longest_ms, _] = asked.entry(kind).or_default();
            *longest_ms = back_ms.max(*longest_ms);
        }
    }

    /// Forgets what was asked for one day and not on the next.
    fn forget_questions(&mut self, now_ms: i64) {
        if now_ms.abs_diff(self.asked_since_ms) < ASKED_MS.unsigned_abs() {
            return;
        }
        self.asked_since_ms = now_ms;
        self.asked.get_mut().retain(|_, [longest_ms, before_ms]| {
            *before_ms = std::mem::take(longest_ms);
            *before_ms > 0
        });
    }

    /// The series of a key, made when there is none.
    pub fn find(&mut self, key: Key) -> Id {
        let slot = match self.by_key.get(&key) {
            Some(slot) => *slot,
            None => self.make(key),
        };
        Id { slot, generation: self.at(slot).generation }
    }

    /// The series of a key, when there is one.
    pub fn known(&self, key: &Key) -> Option<Id> {
        let slot = *self.by_key.get(key)?;
        Some(Id { slot, generation: self.at(slot).generation })
    }

    /// Makes `id` the series of `key`, which is asked for only when the series is not known yet or has ended.
    pub fn place(&mut self, id: &mut Id, key: impl FnOnce() -> Key) -> Id {
        if self.get(*id).is_none() {
            *id = self.find(key());
        }
        *id
    }

    fn make(&mut self, key: Key) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.series.push(Series { key: None, generation: 0, chain: Chain::default() });
                u32::try_from(self.series.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.at_mut(slot).key = Some(key.clone());
        self.by_key.insert(key, slot);
        slot
    }

    fn at(&self, slot: u32) -> &Series {
        &self.series[usize::try_from(slot).unwrap_or(usize::MAX)]
    }

    fn at_mut(&mut self, slot: u32) -> &mut Series {
        &mut self.series[usize::try_from(slot).unwrap_or(usize::MAX)]
    }

    fn get(&self, id: Id) -> Option<&Series> {
        let series = self.series.get(usize::try_from(id.slot).ok()?)?;
        (series.generation == id.generation && series.key.is_some()).then_some(series)
    }

    /// Stores a batch, all of it or nothing, and empties it. `now_ms` is the clock.
    pub fn commit(&mut self, now_ms: i64, batch: &mut Batch) -> Result<(), AppendError> {
        self.follow_clock(now_ms);
        let checked =
            batch.samples.iter().try_for_each(|(id, at_ms, value)| self.check(now_ms, *id, *at_ms, *value));
        if let Err(fault) = checked {
            batch.samples.clear();
            return Err(AppendError(fault));
        }
        for (id, at_ms, value) in batch.samples.drain(..) {
            self.append(id.slot, at_ms, value);
        }
        Ok(())
    }

    fn check(&self, now_ms: i64, id: Id, at_ms: i64, value: f64) -> Result<(), Fault> {
        let series = self.get(id).ok_or(Fault::Ended)?;
        // Differs: upstream takes a sample of the future, and then refuses those of the present as too old.
        if at_ms > now_ms.saturating_add(AHEAD_MS) {
            return Err(Fault::Ahead);
        }
        let Some(newest_ms) = self.newest_ms else { return Ok(()) };
        let behind = match series.chain.newest() {
            Some((last_ms, last)) if last_ms == at_ms => {
                let is_same = last.to_bits() == value.to_bits();
                return if is_same { Ok(()) } else { Err(Fault::Duplicate) };
            }
            Some((last_ms, _)) if last_ms > at_ms => LATE_BEHIND_MS,
            _ => NEW_BEHIND_MS,
        };
        if at_ms < newest_ms.saturating_sub(behind) { Err(Fault::TooOld) } else { Ok(()) }
    }

    fn append(&mut self, slot: u32, at_ms: i64, value: f64) {
        let newest = self.at(slot).chain.newest();
        let is_late = newest.is_some_and(|(newest_ms, _)| at_ms <= newest_ms);
        let is_stored = self.add(slot, at_ms, value) || (self.shed() && self.add(slot, at_ms, value));
        if is_stored {
            self.appended_total += 1;
            self.out_of_order_total += u64::from(is_late);
            self.newest_ms = self.newest_ms.max(Some(at_ms));
        }
    }

    /// False when there is no page left.
    fn add(&mut self, slot: u32, at_ms: i64, value: f64) -> bool {
        let Some(series) = usize::try_from(slot).ok().and_then(|slot| self.series.get_mut(slot)) else {
            return false;
        };
        series.chain.add(&mut self.pool, &mut self.scratch, at_ms, value)
    }

    /// Frees the oldest page that only long windows keep, or else of a container's series, or else of any; of several pages
    /// only, so that nothing vanishes whole. False when there is none.
    fn shed(&mut self) -> bool {
        let newest_ms = self.newest_ms.unwrap_or_default();
        let rank = |series: &Series| {
            let kind = series.key.as_ref()?.kind;
            let (start_ms, end_ms) =
                series.chain.first_page(&self.pool).filter(|_| series.chain.has_several_pages())?;
            let rank = match end_ms < newest_ms.saturating_sub(self.plain_retention_of(kind)) {
                true => 0,
                false if kind.is_of_containers() => 1,
                false => 2,
            };
            Some((rank, start_ms))
        };
        let ranked = self.series.iter().enumerate().filter_map(|(slot, series)| Some((rank(series)?, slot)));
        let Some((_, slot)) = ranked.min() else { return false };
        self.series[slot].chain.drop_first(&mut self.pool);
        self.shed_total += 1;
        true
    }

    /// After the clock was set back, all samples are as old as they were before.
    fn follow_clock(&mut self, now_ms: i64) {
        // Differs: upstream refuses everything until the clock has caught up.
        let Some(newest_ms) = self.newest_ms else { return };
        let ahead_ms = newest_ms.saturating_sub(now_ms);
        if ahead_ms <= AHEAD_MS {
            return;
        }
        for series in &mut self.series {
            series.chain.shift(&mut self.pool, ahead_ms.saturating_neg());
        }
        self.newest_ms = Some(now_ms);
    }

    /// Drops what is too old and hands finished pages to the disk, for a part of the series. To be called once a second.
    pub fn tend(&mut self, now_ms: i64) {
        self.forget_questions(now_ms);
        let part = self.series.len() / TENDS_PER_ROUND + 1;
        for _ in 0..part.min(self.series.len()) {
            self.tended = (self.tended + 1) % self.series.len();
            self.tend_one(self.tended, now_ms);
        }
    }

    fn tend_one(&mut self, at: usize, now_ms: i64) {
        let Some(kind) = self.series[at].key.as_ref().map(|key| key.kind) else { return };
        let oldest_ms = now_ms.saturating_sub(self.retention_of(kind));
        let series = &mut self.series[at];
        let Some(key) = &series.key else { return };
        if let Some(disk) = &mut self.disk {
            series.chain.save_finished(&mut self.pool, |page| disk.save(now_ms, key, page));
        }
        series.chain.drop_before(&mut self.pool, oldest_ms);
        if series.chain.is_empty() {
            if let Some(key) = series.key.take() {
                self.by_key.remove(&key);
            }
            series.generation = series.generation.wrapping_add(1);
            self.free.extend(u32::try_from(at));
        }
    }

    /// Saves everything, the unfinished pages too. The end of a process.
    pub fn close(mut self) {
        let Some(mut disk) = self.disk.take() else { return };
        let now_ms = self.newest_ms.unwrap_or_default();
        for series in &mut self.series {
            if let Some(key) = &series.key {
                series.chain.save_all(&mut self.pool, |page| disk.save_patiently(now_ms, key, page));
            }
        }
        disk.close();
    }

    /// A page from disk. One that is not newer than what its series has is a repetition.
    fn restore(&mut self, key: Key, page: page::Page) {
        let id = self.find(key);
        let last_ms = page.last_ms;
        let series = usize::try_from(id.slot).ok().and_then(|slot| self.series.get_mut(slot));
        if series.is_some_and(|series| series.chain.attach(&mut self.pool, page)) {
            self.newest_ms = self.newest_ms.max(Some(last_ms));
        }
    }

    /// Points of every series that matches.
    pub fn query(&self, selector: &Selector, window: Window) -> Points {
        let mut points = Points::default();
        if let Some(key) = selector.key() {
            if let Some(slot) = self.by_key.get(&key) {
                self.at(*slot).chain.collect(&self.pool, window, &mut points.points);
            }
        } else {
            for (_, id) in self.series(selector.kind).filter(|(key, _)| selector.matches(key)) {
                self.at(id.slot).chain.collect(&self.pool, window, &mut points.points);
            }
        }
        self.note(selector.kind, window);
        points
    }

    /// Points of one series, put in place of what `into` held. For questions that are asked every second.
    pub fn read(&self, id: Id, window: Window, into: &mut Points) {
        into.points.clear();
        let Some(series) = self.get(id) else { return };
        series.chain.collect(&self.pool, window, &mut into.points);
        if let Some(key) = &series.key {
            self.note(key.kind, window);
        }
    }

    /// Every series of a kind, in the order of their properties.
    pub fn series(&self, kind: Kind) -> impl Iterator<Item = (&Key, Id)> {
        let first = Key { kind, values: Box::default() };
        let of_kind = self.by_key.range(first..).take_while(move |(key, _)| key.kind == kind);
        of_kind.map(|(key, slot)| (key, Id { slot: *slot, generation: self.at(*slot).generation }))
    }

    /// The newest sample of one series.
    pub fn newest(&self, id: Id) -> Option<(i64, f64)> {
        self.get(id)?.chain.newest()
    }

    /// The newest value of every series of a kind that has one in the window.
    pub fn newest_of_all(&self, kind: Kind, window: Window) -> impl Iterator<Item = (&Key, f64)> {
        self.series(kind).filter_map(move |(key, id)| {
            let (at_ms, value) = self.newest(id)?;
            window.has(at_ms).then_some((key, value))
        })
    }

    pub fn stats(&self) -> Stats {
        let (blocks, blocks_bytes) = self.disk.as_ref().map_or((0, 0), Disk::size);
        Stats {
            series: self.by_key.len(),
            chunks: self.pool.used(),
            memory_bytes: self.pool.bytes(),
            appended_total: self.appended_total,
            out_of_order_total: self.out_of_order_total,
            shed_total: self.shed_total,
            blocks,
            blocks_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
