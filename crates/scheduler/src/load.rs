//! How much is on its way to the API server, and whether there is room for more.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How much may be on its way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands other than events: each holds a pod whose place is only assumed.
    pub writes: usize,
    /// Events, which trail behind. Each takes a few hundred bytes.
    pub notes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { writes: 512, notes: 32_768 }
    }
}

/// Counts of what is on its way. Shared by the engine's thread, the pipeline and the sender of events.
#[derive(Debug, Default)]
pub struct Load {
    limits: Limits,
    writes: AtomicUsize,
    notes: AtomicUsize,
    /// Rung whenever a count falls below its limit, or to nothing.
    room: Notify,
}

impl Load {
    pub fn new(limits: Limits) -> Load {
        Load { limits, ..Load::default() }
    }

    /// Whether another pod may be tried.
    pub fn has_room(&self) -> bool {
        self.writes() < self.limits.writes && self.notes() < self.limits.notes
    }

    /// Waits until one of the counts may have fallen far enough.
    pub async fn room(&self) {
        self.room.notified().await;
    }

    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Acquire)
    }

    pub fn notes(&self) -> usize {
        self.notes.load(Ordering::Acquire)
    }

    /// So full that events can wait no longer for quieter times.
    pub fn is_pressed_by_notes(&self) -> bool {
        self.notes() >= self.limits.notes / 2
    }

    pub(crate) fn begin_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_write(&self) {
        let before = self.writes.fetch_sub(1, Ordering::AcqRel);
        self.ring(before, self.limits.writes);
    }

    pub(crate) fn begin_note(&self) {
        self.notes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_note(&self) {
        let before = self.notes.fetch_sub(1, Ordering::AcqRel);
        self.ring(before, self.limits.notes);
    }

    fn ring(&self, before: usize, limit: usize) {
        if before == limit || before == 1 {
            self.room.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_is_told_when_a_limit_is_left() {
        let load = Load::new(Limits { writes: 2, notes: 4 });
        load.begin_write();
        assert!(load.has_room());
        load.begin_write();
        assert!(!load.has_room());
        load.end_write();
        load.room().await;
        assert!(load.has_room());
        for _ in 0..4 {
            load.begin_note();
        }
        assert!(!load.has_room() && load.is_pressed_by_notes());
        load.end_note();
        load.room().await;
        assert!(load.has_room());
        assert_eq!((load.writes(), load.notes()), (1, 3));
    }
}
