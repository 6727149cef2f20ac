//! The kernel's cookies: which group has which, who carries it, and what to do about one container.
//!
//! The ledger never calls the kernel. `step` looks at cookies that were read and names one step; the caller
//! takes it and tells the ledger what came of it (`done`). Spec: koordlet-enforce 15.5.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Want;

/// How long an entry stays without being confirmed.
const EXPIRY: Duration = Duration::from_secs(300);

/// The system's cookie.
const NONE: u64 = 0;

/// A group's cookie and the processes that carry it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub cookie: u64,
    pub pids: BTreeSet<u32>,
    seen: Duration,
}

/// All groups, and the group each container was last in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    groups: BTreeMap<String, Entry>,
    /// By `<pod uid>/<container id>`.
    containers: BTreeMap<String, (String, Duration)>,
}

/// A container's processes and the cookies that could be read, its siblings' too.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    pub pids: &'a [u32],
    pub cookies: &'a BTreeMap<u32, u64>,
}

/// What to do about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Everyone has the right cookie.
    Refresh {
        group: String,
    },
    /// Give these the cookie that `from` has.
    Assign {
        group: String,
        from: u32,
        pids: Vec<u32>,
    },
    /// Make a new cookie for the first and give it to the others.
    Create {
        group: String,
        first: u32,
        others: Vec<u32>,
    },
    /// Give these the system's cookie.
    Clear {
        pids: Vec<u32>,
    },
}

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The new cookie of a `Create`; none when it failed.
    pub cookie: Option<u64>,
    pub failed: BTreeSet<u32>,
}

impl Ledger {
    pub fn get(&self, group: &str) -> Option<&Entry> {
        self.groups.get(group)
    }

    /// The groups, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.groups.iter().map(|(group, entry)| (group.as_str(), entry))
    }

    /// Processes whose cookies must be read before a step for this group.
    pub fn siblings(&self, want: &Want) -> Vec<u32> {
        match want {
            Want::Group(group) => {
                self.groups.get(group).into_iter().flat_map(|e| e.pids.iter().copied()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Takes over a cookie found at start. The first that is seen for a group counts.
    pub fn adopt(&mut self, now: Duration, container: &str, group: &str, cookies: &BTreeMap<u32, u64>) {
        let Some(first) = cookies.values().copied().find(|cookie| *cookie != NONE) else { return };
        let entry = self.groups.entry(group.to_owned());
        let entry = entry.or_insert_with(|| Entry { cookie: first, pids: BTreeSet::new(), seen: now });
        entry.pids.extend(cookies.iter().filter(|(_, cookie)| **cookie == entry.cookie).map(|(pid, _)| *pid));
        self.containers.insert(container.to_owned(), (group.to_owned(), now));
    }

    /// What to do about a container.
    ///
    /// Differs: cookies are compared on every turn and a container that changes its group leaves the old one,
    /// where upstream trusts what it once wrote (rows 250, 252 of section 18).
    pub fn step(&mut self, now: Duration, container: &str, want: &Want, seen: Observed<'_>) -> Step {
        match want {
            Want::Untouched => Step::Nothing,
            Want::NoCookie { group } => self.clear_step(container, group, seen),
            Want::Group(group) if seen.pids.is_empty() => {
                self.refresh_container(now, container, group);
                Step::Nothing
            }
            Want::Group(group) => {
                self.leave_other(container, group, seen.pids);
                self.join_step(group, seen)
            }
        }
    }

    fn clear_step(&mut self, container: &str, group: &str, seen: Observed<'_>) -> Step {
        if !self.containers.contains_key(container) && !self.groups.contains_key(group) {
            return Step::Nothing;
        }
        let has_cookie = |pid: &&u32| seen.cookies.get(*pid).is_some_and(|cookie| *cookie != NONE);
        let pids: Vec<u32> = seen.pids.iter().filter(has_cookie).copied().collect();
        if pids.is_empty() {
            self.forget(seen.pids);
            self.containers.remove(container);
            return Step::Nothing;
        }
        Step::Clear { pids }
    }

    fn join_step(&mut self, group: &str, seen: Observed<'_>) -> Step {
        let name = group.to_owned();
        if let Some(entry) = self.groups.get_mut(group) {
            let has_target = |pid: &u32| seen.cookies.get(pid) == Some(&entry.cookie);
            let readable = seen.pids.iter().filter(|pid| seen.cookies.contains_key(pid));
            let wrong: Vec<u32> = readable.clone().filter(|pid| !has_target(pid)).copied().collect();
            if readable.count() == 0 {
                return Step::Nothing;
            }
            if wrong.is_empty() {
                return Step::Refresh { group: name };
            }
            // Who lost the cookie, or is gone, vouches for nobody.
            let valid: BTreeSet<u32> = entry.pids.iter().copied().filter(has_target).collect();
            entry.pids = valid;
            if let Some(from) = entry.pids.first().copied() {
                return Step::Assign { group: name, from, pids: wrong };
            }
            self.groups.remove(group);
        }
        match seen.pids.split_first() {
            Some((first, others)) => Step::Create { group: name, first: *first, others: others.to_vec() },
            None => Step::Nothing,
        }
    }

    /// Takes note of what came of a step.
    pub fn done(
        &mut self,
        now: Duration,
        container: &str,
        step: &Step,
        seen: Observed<'_>,
        outcome: &Outcome,
    ) {
        let is_good = |pid: &u32| !outcome.failed.contains(pid);
        match step {
            Step::Nothing => {}
            Step::Refresh { group } | Step::Assign { group, .. } => {
                if let Some(entry) = self.groups.get_mut(group) {
                    let readable = seen.pids.iter().filter(|pid| seen.cookies.contains_key(pid));
                    entry.pids.extend(readable.filter(|pid| is_good(pid)));
                    entry.seen = now;
                    self.refresh_container(now, container, group);
                }
            }
            Step::Create { group, first, others } => {
                let Some(cookie) = outcome.cookie else { return };
                let pids = std::iter::once(first).chain(others).copied().filter(is_good).collect();
                self.groups.insert(group.clone(), Entry { cookie, pids, seen: now });
                self.refresh_container(now, container, group);
            }
            Step::Clear { .. } => {
                let own: Vec<u32> = seen.pids.iter().copied().filter(is_good).collect();
                self.forget(&own);
                self.containers.remove(container);
            }
        }
    }

    /// Drops what was not confirmed for a while.
    pub fn sweep(&mut self, now: Duration) {
        let is_fresh = |seen: Duration| now.saturating_sub(seen) <= EXPIRY;
        self.groups.retain(|_, entry| is_fresh(entry.seen));
        self.containers.retain(|_, (_, seen)| is_fresh(*seen));
    }

    fn refresh_container(&mut self, now: Duration, container: &str, group: &str) {
        self.containers.insert(container.to_owned(), (group.to_owned(), now));
    }

    /// Takes a container's processes out of the group it was in before.
    fn leave_other(&mut self, container: &str, group: &str, pids: &[u32]) {
        if self.containers.get(container).is_some_and(|(before, _)| before != group) {
            self.forget(pids);
        }
    }

    /// Takes processes out of every group; a group without any is gone.
    fn forget(&mut self, pids: &[u32]) {
        for entry in self.groups.values_mut() {
            entry.pids.retain(|pid| !pids.contains(pid));
        }
        self.groups.retain(|_, entry| !entry.pids.is_empty());
    }
}
