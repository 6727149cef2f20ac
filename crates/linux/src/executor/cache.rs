//! What was written lately, so that a value that is there is neither written nor read again every second.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Target, Update, part_of};

/// Entries nobody asks for leave after this.
const LIFE: Duration = Duration::from_secs(120);
/// How often they are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// Values as they were asked for, by what they were written to.
#[derive(Debug)]
pub(super) struct Cache {
    entries: HashMap<Target, Vec<Entry>>,
    force_after: Duration,
    swept: Option<Instant>,
    edition: u64,
}

#[derive(Debug)]
struct Entry {
    /// A file of many parts has an entry for each.
    part: Option<String>,
    value: String,
    at: Instant,
}

impl Cache {
    pub(super) fn new(force_after: Duration) -> Cache {
        Cache { entries: HashMap::new(), force_after, swept: None, edition: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the update is new, another value, or known for too long.
    pub(super) fn needs(&self, now: Instant, update: &Update) -> bool {
        self.known_until(update).is_none_or(|until| now > until)
    }

    /// Until when this value is taken to be there; none when another is, or none is known.
    pub(super) fn known_until(&self, update: &Update) -> Option<Instant> {
        let mut entries = self.entries.get(&update.target).into_iter().flatten();
        let known = entries.find(|entry| entry.part.as_deref() == part_of(update))?;
        (known.value == update.value).then(|| known.at + self.force_after)
    }

    pub(super) fn force_after(&self) -> Duration {
        self.force_after
    }

    pub(super) fn edition(&self) -> u64 {
        self.edition
    }

    /// The same for a short time.
    pub(super) fn remember_for(&mut self, now: Instant, update: &Update, time: Duration) {
        let age = self.force_after.saturating_sub(time);
        // A machine that has not run for so long is looked at again later than it might be.
        self.remember(now.checked_sub(age).unwrap_or(now), update);
    }

    pub(super) fn remember(&mut self, now: Instant, update: &Update) {
        let part = part_of(update).map(str::to_owned);
        let entries = self.entries.entry(update.target.clone()).or_default();
        if let Some(known) = entries.iter_mut().find(|entry| entry.part == part) {
            known.at = now;
            if known.value != update.value {
                known.value.clone_from(&update.value);
                self.edition += 1;
            }
            return;
        }
        entries.push(Entry { part, value: update.value.clone(), at: now });
        self.edition += 1;
    }

    pub(super) fn forget(&mut self, target: &Target) {
        if self.entries.remove(target).is_some() {
            self.edition += 1;
        }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now.saturating_duration_since(swept) < SWEEP) {
            return;
        }
        self.swept = Some(now);
        let before = self.entries.len();
        self.entries.retain(|_, entries| {
            entries.retain(|entry| now.saturating_duration_since(entry.at) <= LIFE);
            !entries.is_empty()
        });
        self.edition += u64::from(self.entries.len() != before);
    }
}
