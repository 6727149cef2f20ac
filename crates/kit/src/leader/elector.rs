//! The election as a state machine. Pure: the caller brings the time, the chance and the server's answers.
//!
//! The caller asks [`Elector::next`] what to do, does it, hands the answer to [`Elector::reply`], and looks at
//! [`Elector::take_change`] after each step.

use std::time::Duration;

use jiff::Timestamp;

use super::{JITTER_FACTOR, Timing};

/// The election's record, kept in a Lease's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Empty when nobody holds the lease.
    pub holder: String,
    pub lease_seconds: i32,
    pub acquired: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    pub transitions: i32,
}

/// What the caller should do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing until this time on the caller's clock.
    Wait(Duration),
    /// Read the lease.
    Read,
    /// Create the lease with this record.
    Create(Record),
    /// Write this record over the version that was last read or written.
    Update { version: String, record: Record },
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Found {
        version: String,
        record: Record,
    },
    NotFound,
    /// The record was stored as this version.
    Written {
        version: String,
    },
    /// Someone else wrote first, or the lease is gone.
    Conflict,
    /// No answer, or an error that says nothing about the lease.
    Failed,
}

/// What the owner of the work should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Started,
    Lost(LostReason),
    /// Someone else was seen to lead.
    Leader(String),
}

/// Why leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostReason {
    #[error("the lease could not be renewed in time")]
    NotRenewed,
    #[error("the lease was taken by {0}")]
    Taken(String),
}

/// One candidate's view of an election.
#[derive(Clone, Debug)]
pub struct Elector {
    timing: Timing,
    identity: String,
    observed: Option<Observed>,
    /// While leading: when the last successful write was sent.
    confirmed: Option<Duration>,
    pending: Option<Pending>,
    /// The next try is not before this.
    try_at: Duration,
    /// The lease must be read before it is written.
    must_read: bool,
    reported: Option<String>,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Observed {
    version: String,
    record: Record,
    /// When this record was first seen here, by our clock. The times inside the record are not used: clocks differ.
    at: Duration,
}

#[derive(Clone, Debug)]
struct Pending {
    sent: Duration,
    record: Option<Record>,
}

impl Elector {
    pub fn new(timing: Timing, identity: impl Into<String>) -> Elector {
        Elector {
            timing,
            identity: identity.into(),
            observed: None,
            confirmed: None,
            pending: None,
            try_at: Duration::ZERO,
            must_read: true,
            reported: None,
            changes: Vec::new(),
        }
    }

    /// Until when this candidate leads, by its own clock, unless it renews. `None` while it does not lead.
    pub fn holds_until(&self) -> Option<Duration> {
        self.confirmed.map(|sent| sent + self.timing.give_up_after())
    }

    pub fn holds(&self, now: Duration) -> bool {
        self.holds_until().is_some_and(|until| now < until)
    }

    /// The oldest change that was not taken yet.
    pub fn take_change(&mut self) -> Option<Change> {
        if self.changes.is_empty() { None } else { Some(self.changes.remove(0)) }
    }

    /// What to do now. An action other than waiting must be answered by [`Elector::reply`] before the next call.
    pub fn next(&mut self, now: Duration, wall: Timestamp) -> Action {
        if self.holds_until().is_some_and(|until| now >= until) {
            self.lose(LostReason::NotRenewed);
        }
        if now < self.try_at {
            // A leader also wakes to notice that its time is over.
            return Action::Wait(self.holds_until().map_or(self.try_at, |until| self.try_at.min(until)));
        }
        match &self.observed {
            Some(seen) if self.holds(now) && !self.must_read => {
                let record = Record {
                    holder: self.identity.clone(),
                    lease_seconds: self.timing.lease_seconds(),
                    renewed: Some(wall),
                    ..seen.record.clone()
                };
                let version = seen.version.clone();
                self.write(now, record.clone(), Action::Update { version, record })
            }
            _ => {
                self.pending = Some(Pending { sent: now, record: None });
                Action::Read
            }
        }
    }

    /// Takes in what came of the last action. May ask for a further one at once.
    pub fn reply(&mut self, now: Duration, wall: Timestamp, chance: f64, reply: Reply) -> Option<Action> {
        let pending = self.pending.take()?;
        match (reply, pending.record) {
            (Reply::Written { version }, Some(record)) => {
                self.win(now, pending.sent, version, record);
                None
            }
            (Reply::Found { version, record }, None) => self.judge(now, wall, chance, version, record),
            (Reply::NotFound, None) => {
                self.observed = None;
                let record = self.fresh_record(wall, 0);
                Some(self.write(now, record.clone(), Action::Create(record)))
            }
            (Reply::Conflict, Some(_)) if !self.must_read => {
                // Perhaps our own write of before, whose answer was lost: look.
                self.must_read = true;
                self.pending = Some(Pending { sent: now, record: None });
                Some(Action::Read)
            }
            _ => {
                self.fail(now, chance);
                None
            }
        }
    }

    fn judge(
        &mut self,
        now: Duration,
        wall: Timestamp,
        chance: f64,
        version: String,
        record: Record,
    ) -> Option<Action> {
        let at = match &self.observed {
            Some(seen) if seen.record == record => seen.at,
            _ => now,
        };
        let is_ours = record.holder == self.identity;
        let is_valid = now < at + Duration::from_secs(u64::try_from(record.lease_seconds).unwrap_or(0));
        self.observed = Some(Observed { version: version.clone(), record: record.clone(), at });
        self.report(&record.holder);
        if !is_ours && self.confirmed.is_some() {
            self.lose(LostReason::Taken(record.holder.clone()));
        }
        if !is_ours && !record.holder.is_empty() && is_valid {
            self.fail(now, chance);
            return None;
        }
        let record = if is_ours {
            Record { renewed: Some(wall), lease_seconds: self.timing.lease_seconds(), ..record }
        } else {
            self.fresh_record(wall, record.transitions.saturating_add(1))
        };
        Some(self.write(now, record.clone(), Action::Update { version, record }))
    }

    fn fresh_record(&self, wall: Timestamp, transitions: i32) -> Record {
        Record {
            holder: self.identity.clone(),
            lease_seconds: self.timing.lease_seconds(),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions,
        }
    }

    fn write(&mut self, now: Duration, record: Record, action: Action) -> Action {
        self.pending = Some(Pending { sent: now, record: Some(record) });
        action
    }

    fn win(&mut self, now: Duration, sent: Duration, version: String, record: Record) {
        self.observed = Some(Observed { version, record, at: sent });
        self.must_read = false;
        self.try_at = now + self.timing.retry;
        // An answer that took longer than the term is worth is no term.
        if now >= sent + self.timing.give_up_after() {
            self.must_read = true;
            if self.confirmed.is_some() {
                self.lose(LostReason::NotRenewed);
            }
            return;
        }
        let identity = self.identity.clone();
        if self.confirmed.replace(sent).is_none() {
            self.changes.push(Change::Started);
        }
        self.report(&identity);
    }

    fn fail(&mut self, now: Duration, chance: f64) {
        self.must_read = true;
        let spread = if self.confirmed.is_some() { 0.0 } else { JITTER_FACTOR * chance };
        self.try_at = now + self.timing.retry.mul_f64(1.0 + spread);
    }

    fn lose(&mut self, reason: LostReason) {
        self.confirmed = None;
        self.must_read = true;
        self.changes.push(Change::Lost(reason));
    }

    fn report(&mut self, holder: &str) {
        if holder.is_empty() || self.reported.as_deref() == Some(holder) {
            return;
        }
        self.reported = Some(holder.to_owned());
        if holder != self.identity {
            self.changes.push(Change::Leader(holder.to_owned()));
        }
    }

    /// The record that gives the lease up, if it is ours: free for anyone after a second, as client-go writes it.
    pub fn release(identity: &str, found: &Record, wall: Timestamp) -> Option<Record> {
        (found.holder == identity).then(|| Record {
            holder: String::new(),
            lease_seconds: 1,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: found.transitions,
        })
    }
}
