//! A reader's place in a table's history.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Event, Expired, Table};

/// Follows one table. Holds no events itself, so a slow reader costs nothing but its place; one that
/// falls out of the history is told `Expired` and must list again.
pub struct Watch {
    table: Arc<Table>,
    seen: u64,
    wake: tokio::sync::watch::Receiver<u64>,
}

impl Watch {
    pub(super) fn new(table: Arc<Table>, from: u64) -> Result<Watch, Expired> {
        table.read().history.check(from)?;
        let mut wake = table.wake.subscribe();
        // There may be events already; the first wait must not miss them.
        wake.mark_changed();
        Ok(Watch { table, seen: from, wake })
    }

    /// The next events, at most `max`, without waiting.
    pub fn take(&mut self, max: usize) -> Result<Vec<Event>, Expired> {
        self.wake.borrow_and_update();
        let state = self.table.read();
        let events = state.history.after(self.seen, max)?;
        match events.last() {
            Some(last) => self.seen = last.revision(),
            // Nothing new in this table up to now; other tables may have moved the revision on.
            None => self.seen = self.seen.max(self.table.revision.load(Ordering::SeqCst)),
        }
        Ok(events)
    }

    /// Everything up to this revision has been taken.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Waits until `take` may have more. Safe to drop halfway.
    pub async fn changed(&mut self) {
        // An error means that the table is gone, which our own Arc prevents.
        let _ = self.wake.changed().await;
    }
}
