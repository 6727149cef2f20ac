//! The pages of one series, oldest first, each pointing to the next.

use super::page::{Cursor, Page, Pool, Refusal, unit_of};
use super::points::Window;

/// A page with so few samples is written anew rather than left behind when its unit does not do.
const REWRITTEN_MAX: u16 = 8;

/// Samples of one series. Its pages lie in the pool, and belong to nobody else.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The first and the last page.
    ends: Option<(u32, u32)>,
    /// Where the last page goes on; None after a restart, when the next sample begins a new page.
    cursor: Option<Cursor>,
    newest: Option<(i64, f64)>,
}

impl Chain {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    pub(super) fn has_several_pages(&self) -> bool {
        self.ends.is_some_and(|(first, last)| first != last)
    }

    pub(super) fn newest(&self) -> Option<(i64, f64)> {
        self.newest
    }

    /// When the first page begins and ends.
    pub(super) fn first_page(&self, pool: &Pool) -> Option<(i64, i64)> {
        let page = pool.get(self.ends?.0);
        Some((page.first_ms, page.last_ms))
    }

    /// Adds a sample at its place in time; where there is one already, that stays. False when the pool is exhausted.
    pub(super) fn add(
        &mut self,
        pool: &mut Pool,
        scratch: &mut Vec<(i64, f64)>,
        at_ms: i64,
        value: f64,
    ) -> bool {
        if self.newest.is_some_and(|(newest_ms, _)| at_ms <= newest_ms) {
            return self.insert(pool, scratch, at_ms, value);
        }
        if !self.add_newest(pool, scratch, at_ms, value) {
            return false;
        }
        self.newest = Some((at_ms, value));
        true
    }

    fn add_newest(&mut self, pool: &mut Pool, scratch: &mut Vec<(i64, f64)>, at_ms: i64, value: f64) -> bool {
        let mut unit = unit_of(&[(at_ms, value)]);
        if let Some(((_, last), cursor)) = self.ends.zip(self.cursor.as_mut()) {
            let page = pool.get_mut(last);
            match page.push(cursor, at_ms, value) {
                Ok(()) => return true,
                Err(Refusal::Unit) if page.count() <= REWRITTEN_MAX => {
                    scratch.clear();
                    scratch.extend(page.samples());
                    scratch.push((at_ms, value));
                    return self.rewrite(pool, last, scratch);
                }
                Err(_) => unit = page.unit(),
            }
        }
        let Some(id) = pool.take() else { return false };
        let page = pool.get_mut(id);
        self.cursor = Some(page.begin(unit, at_ms, value));
        self.link(pool, id);
        true
    }

    /// Makes a page the last one.
    fn link(&mut self, pool: &mut Pool, id: u32) {
        self.ends = match self.ends {
            Some((first, last)) => {
                pool.get_mut(last).next = Some(id);
                Some((first, id))
            }
            None => Some((id, id)),
        };
    }

    /// Puts a sample between others: its page is written anew.
    fn insert(&mut self, pool: &mut Pool, scratch: &mut Vec<(i64, f64)>, at_ms: i64, value: f64) -> bool {
        let Some((first, _)) = self.ends else { return false };
        let begins_later = |id: u32| pool.get(id).first_ms > at_ms;
        let mut id = first;
        while let Some(next) = pool.get(id).next.filter(|next| !begins_later(*next)) {
            id = next;
        }
        scratch.clear();
        scratch.extend(pool.get(id).samples());
        match scratch.binary_search_by_key(&at_ms, |(at, _)| *at) {
            Ok(_) => return true,
            Err(at) => scratch.insert(at, (at_ms, value)),
        }
        self.rewrite(pool, id, scratch)
    }

    /// Puts samples in place of those of a page; what does not fit goes to pages after it. False, and nothing changed,
    /// when there is no page for that.
    fn rewrite(&mut self, pool: &mut Pool, id: u32, samples: &[(i64, f64)]) -> bool {
        let unit = unit_of(samples);
        // One page more is enough but for odd values; taken first, so that nothing is lost when there is none.
        let Some(mut spare) = pool.take() else { return false };
        let after = pool.get(id).next;
        let (mut current, mut is_spare_used) = (id, false);
        let mut cursor: Option<Cursor> = None;
        for (at_ms, value) in samples {
            let page = pool.get_mut(current);
            let Some(open) = &mut cursor else {
                cursor = Some(page.begin(unit, *at_ms, *value));
                continue;
            };
            if page.push(open, *at_ms, *value).is_ok() {
                continue;
            }
            if is_spare_used {
                // Wider units need a few more pages at most.
                let Some(more) = pool.take() else { break };
                spare = more;
            }
            is_spare_used = true;
            pool.get_mut(current).next = Some(spare);
            current = spare;
            cursor = Some(pool.get_mut(current).begin(unit, *at_ms, *value));
        }
        if !is_spare_used {
            pool.give_back(spare);
        }
        pool.get_mut(current).next = after;
        if after.is_none() {
            self.ends = self.ends.map(|(first, _)| (first, current));
            self.cursor = cursor;
        }
        true
    }

    /// Adds a page that came from disk. False when it is not newer than the rest, or there is no room.
    pub(super) fn attach(&mut self, pool: &mut Pool, page: Page) -> bool {
        let Some(newest) = page.samples().last() else { return false };
        if self.newest.is_some_and(|(newest_ms, _)| page.first_ms <= newest_ms) {
            return false;
        }
        let Some(id) = pool.take() else { return false };
        *pool.get_mut(id) = page;
        self.link(pool, id);
        (self.cursor, self.newest) = (None, Some(newest));
        true
    }

    /// Appends the samples of the window, oldest first.
    pub(super) fn collect(&self, pool: &Pool, window: Window, into: &mut Vec<(i64, f64)>) {
        // Most questions are about the last seconds, which the last page has alone.
        let last = self.ends.map(|(_, last)| last).filter(|last| pool.get(*last).first_ms <= window.start_ms);
        let first = last.or(self.ends.map(|(first, _)| first));
        for page in pages_from(first, pool).map(|id| pool.get(id)) {
            if page.first_ms > window.end_ms {
                return;
            }
            if page.last_ms >= window.start_ms {
                into.extend(page.samples().filter(|(at, _)| window.has(*at)));
            }
        }
    }

    /// Gives back the pages that end before a time.
    pub(super) fn drop_before(&mut self, pool: &mut Pool, oldest_ms: i64) {
        while let Some((first, _)) = self.ends {
            if pool.get(first).last_ms >= oldest_ms {
                return;
            }
            self.drop_first(pool);
        }
    }

    pub(super) fn drop_first(&mut self, pool: &mut Pool) {
        let Some((first, last)) = self.ends else { return };
        match pool.get(first).next {
            Some(next) => self.ends = Some((next, last)),
            None => *self = Chain::default(),
        }
        pool.give_back(first);
    }

    /// Moves all samples in time.
    pub(super) fn shift(&mut self, pool: &mut Pool, by_ms: i64) {
        let mut next = self.ends.map(|(first, _)| first);
        while let Some(id) = next {
            let page = pool.get_mut(id);
            page.first_ms = page.first_ms.saturating_add(by_ms);
            page.last_ms = page.last_ms.saturating_add(by_ms);
            next = page.next;
        }
        if let Some(cursor) = &mut self.cursor {
            cursor.at_ms = cursor.at_ms.saturating_add(by_ms);
        }
        if let Some((newest_ms, _)) = &mut self.newest {
            *newest_ms = newest_ms.saturating_add(by_ms);
        }
    }

    /// Hands over the pages before the last one that were not saved yet, until `save` refuses.
    pub(super) fn save_finished(&mut self, pool: &mut Pool, save: impl FnMut(&Page) -> bool) {
        let end = self.ends.map(|(_, last)| last);
        self.save_until(pool, end, save);
    }

    /// Hands over all pages that were not saved yet.
    pub(super) fn save_all(&mut self, pool: &mut Pool, save: impl FnMut(&Page) -> bool) {
        self.save_until(pool, None, save);
    }

    fn save_until(&self, pool: &mut Pool, end: Option<u32>, mut save: impl FnMut(&Page) -> bool) {
        let mut next = self.ends.map(|(first, _)| first);
        while let Some(id) = next.filter(|id| Some(*id) != end) {
            let page = pool.get_mut(id);
            if !page.is_saved {
                page.is_saved = save(page);
                if !page.is_saved {
                    return;
                }
            }
            next = page.next;
        }
    }
}

/// A page and those after it.
fn pages_from(first: Option<u32>, pool: &Pool) -> impl Iterator<Item = u32> {
    std::iter::successors(first, |id| pool.get(*id).next)
}
