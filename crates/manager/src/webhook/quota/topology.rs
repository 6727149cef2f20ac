//! What this replica knows of the quotas, and what it has just let through.
//!
//! The watch alone says what is there. An admitted change is kept as expected for a moment, so that two requests in quick
//! succession cannot each take the same room; it goes when the watch shows it, or when time is up because something else
//! refused the request. A dry run expects nothing. Differs: upstream writes into its cache when it admits, so that a
//! dry run or a request refused later leaves a quota that never existed. Spec: manager 17.3, 26 DB-13.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::info::{QuotaInfo, QuotaKey};
use super::ledger::Ledger;

/// How long an admitted change is expected: many times what a write and its watch event take, and short enough that
/// someone who mends what refused the request does not notice.
pub const EXPECTED_FOR: Duration = Duration::from_secs(10);

/// The tree of quotas, with what is expected to happen to it.
#[derive(Debug, Default)]
pub struct Topology {
    known: BTreeMap<QuotaKey, Arc<QuotaInfo>>,
    expected: BTreeMap<QuotaKey, Expected>,
    /// Always `recount` of the known quotas with the expected changes made.
    ledger: Ledger,
}

#[derive(Debug)]
struct Expected {
    /// None for a deletion.
    info: Option<Arc<QuotaInfo>>,
    until: Timestamp,
}

impl Topology {
    /// The tree to judge by.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The watch shows this quota.
    pub fn show(&mut self, info: QuotaInfo) {
        let info = Arc::new(info);
        let is_expected = self.expected.get(&info.key).is_some_and(|is| is.info.as_ref() == Some(&info));
        if is_expected {
            self.expected.remove(&info.key);
        }
        self.known.insert(info.key.clone(), info.clone());
        self.follow(&info.key);
    }

    /// The watch shows that this quota is gone.
    pub fn gone(&mut self, key: &QuotaKey) {
        if self.expected.get(key).is_some_and(|is| is.info.is_none()) {
            self.expected.remove(key);
        }
        self.known.remove(key);
        self.follow(key);
    }

    /// A list shows these quotas and no others. The watch may still tell of earlier times; it will come here, too.
    pub fn show_all(&mut self, infos: Vec<QuotaInfo>) {
        let gone: Vec<QuotaKey> =
            self.known.keys().filter(|key| !infos.iter().any(|info| info.key == **key)).cloned().collect();
        gone.iter().for_each(|key| self.gone(key));
        infos.into_iter().for_each(|info| self.show(info));
    }

    /// A quota was admitted as it is given here.
    pub fn expect(&mut self, info: QuotaInfo, now: Timestamp) {
        let key = info.key.clone();
        self.expect_change(key, Some(Arc::new(info)), now);
    }

    /// The deletion of a quota was admitted.
    pub fn expect_gone(&mut self, key: QuotaKey, now: Timestamp) {
        self.expect_change(key, None, now);
    }

    /// Forgets what was expected and did not come.
    pub fn expire(&mut self, now: Timestamp) {
        let late: Vec<QuotaKey> =
            self.expected.iter().filter(|(_, is)| is.until <= now).map(|(key, _)| key.clone()).collect();
        for key in late {
            self.expected.remove(&key);
            self.follow(&key);
        }
    }

    /// Whether the watch has shown a quota at this place. What is only expected may be asked for again.
    pub fn is_known(&self, key: &QuotaKey) -> bool {
        self.known.contains_key(key)
    }

    /// The quota at its own place, as someone who changes it sees it: an expected deletion has not happened yet.
    pub fn own(&self, key: &QuotaKey) -> Option<&QuotaInfo> {
        self.ledger.at(key).or_else(|| self.known.get(key).map(|info| &**info))
    }

    /// The ledger built anew, for comparison.
    pub fn recount(&self) -> Ledger {
        let mut quotas = self.known.clone();
        for (key, expected) in &self.expected {
            match &expected.info {
                Some(info) => quotas.insert(key.clone(), info.clone()),
                None => quotas.remove(key),
            };
        }
        Ledger::recount(quotas.values())
    }

    fn expect_change(&mut self, key: QuotaKey, info: Option<Arc<QuotaInfo>>, now: Timestamp) {
        let until = now.saturating_add(EXPECTED_FOR).unwrap_or(Timestamp::MAX);
        self.expected.insert(key.clone(), Expected { info, until });
        self.follow(&key);
    }

    /// Brings the ledger in line at one place.
    fn follow(&mut self, key: &QuotaKey) {
        let info = match self.expected.get(key) {
            Some(expected) => expected.info.as_ref(),
            None => self.known.get(key),
        };
        match info {
            Some(info) => self.ledger.put(info.clone()),
            None => self.ledger.remove(key),
        }
    }
}

#[cfg(test)]
mod tests;
