//! What happened, as far back as the bounds allow.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Stored;

/// How much past a table keeps; older watches and pages must start over.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub events: usize,
    pub bytes: usize,
}

impl Default for Limits {
    /// Two seconds of a table under the fastest writer we know, and a bound on what that may cost.
    fn default() -> Limits {
        Limits { events: 64 * 1024, bytes: 64 << 20 }
    }
}

/// Kept whatever their size, so that a table of huge objects can still be watched.
const EVENTS_MIN: usize = 64;

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub fn text(self) -> &'static str {
        match self {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        }
    }
}

/// One commit: the object after it (for a removal: its last state at the new revision), and before.
#[derive(Clone, Debug)]
pub struct Event {
    pub change: Change,
    pub object: Arc<Stored>,
    pub previous: Option<Arc<Stored>>,
}

impl Event {
    pub fn revision(&self) -> u64 {
        self.object.revision()
    }
}

/// The revision asked for has left the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    pub asked: u64,
    pub oldest: u64,
}

#[derive(Default)]
pub(super) struct History {
    /// Ascending by revision.
    events: VecDeque<Event>,
    bytes: usize,
    /// Revision of the last event dropped: the past is whole after it.
    dropped: u64,
}

impl History {
    pub(super) fn push(&mut self, event: Event, limits: &Limits) {
        self.bytes += event.object.size();
        self.events.push_back(event);
        let over = |h: &History| h.events.len() > limits.events || h.bytes > limits.bytes;
        while self.events.len() > EVENTS_MIN.min(limits.events) && over(self) {
            if let Some(event) = self.events.pop_front() {
                self.bytes -= event.object.size();
                self.dropped = event.revision();
            }
        }
    }

    /// Up to `max` events after `revision`.
    pub(super) fn after(&self, revision: u64, max: usize) -> Result<Vec<Event>, Expired> {
        let start = self.start(revision)?;
        Ok(self.events.range(start..).take(max).cloned().collect())
    }

    /// What keys held at `revision`, for those that changed since.
    pub(super) fn rewind(&self, revision: u64) -> Result<BTreeMap<Box<str>, Option<Arc<Stored>>>, Expired> {
        let start = self.start(revision)?;
        let mut past = BTreeMap::new();
        for event in self.events.range(start..) {
            past.entry(event.object.key().into()).or_insert_with(|| event.previous.clone());
        }
        Ok(past)
    }

    pub(super) fn check(&self, revision: u64) -> Result<(), Expired> {
        self.start(revision).map(|_| ())
    }

    fn start(&self, revision: u64) -> Result<usize, Expired> {
        if revision < self.dropped {
            return Err(Expired { asked: revision, oldest: self.dropped });
        }
        Ok(self.events.partition_point(|event| event.revision() <= revision))
    }
}
