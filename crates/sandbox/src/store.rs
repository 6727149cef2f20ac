//! Objects in memory with versions, history and watches.
//!
//! One table per resource, one revision counter for all. An object at rest is finished JSON, framed
//! as the watch event it caused, so lists and watches send it without another look. Writes are
//! compare-and-swap: callers prepare a `Draft` outside any lock and commit it against the revision
//! they read. Past states live in a bounded history; what has left it is `Expired`.
//!
//! Synchronous but for `Watch::changed`. Change the bytes in `encode`, the past in `history`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

mod encode;
mod history;
mod select;
mod watch;

pub use encode::{Draft, Stored, key};
pub use history::{Change, Event, Expired, Limits};
pub use select::{Filter, Selection};
pub use watch::Watch;

use history::History;

/// All tables and the revision they share.
pub struct Store {
    limits: Limits,
    revision: Arc<AtomicU64>,
    /// By group and plural. Guards the set of tables, not their content.
    tables: RwLock<HashMap<(String, String), Arc<Table>>>,
}

/// The objects of one resource.
pub struct Table {
    limits: Limits,
    revision: Arc<AtomicU64>,
    /// Guards objects and history together: a reader sees both of the same moment.
    state: RwLock<State>,
    /// Tells watches the latest revision of this table.
    wake: tokio::sync::watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// By `namespace/name`, or name alone: Kubernetes' own order.
    objects: BTreeMap<Box<str>, Arc<Stored>>,
    history: History,
}

/// Why a commit did not happen: the object is not as the caller read it.
#[derive(Clone, Debug)]
pub enum Lost {
    /// Somebody wrote it since; this is what it is now.
    Changed(Arc<Stored>),
    Gone,
}

/// Which objects to list, from where, as of when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    /// All namespaces when None.
    pub namespace: Option<&'a str>,
    /// Only keys after this one.
    pub after: Option<&'a str>,
    /// The state at this revision; now when None.
    pub at: Option<u64>,
    /// Stop after this many; no limit when None.
    pub limit: Option<usize>,
}

/// Part of a list.
#[derive(Debug)]
pub struct Page {
    pub items: Vec<Arc<Stored>>,
    /// The revision the items are of.
    pub revision: u64,
    /// Objects left after the last item, matching or not; 0 at the end.
    pub remaining: usize,
}

impl Store {
    pub fn new(limits: Limits) -> Store {
        let tables = RwLock::new(HashMap::new());
        Store { limits, revision: Arc::new(AtomicU64::new(1)), tables }
    }

    /// The table of a resource, made at first use.
    pub fn table(&self, group: &str, plural: &str) -> Arc<Table> {
        let key = (group.to_owned(), plural.to_owned());
        let known = self.tables.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(table) = known {
            return table;
        }
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let table = tables.entry(key).or_insert_with(|| {
            Arc::new(Table {
                limits: self.limits,
                revision: self.revision.clone(),
                state: RwLock::default(),
                wake: tokio::sync::watch::Sender::new(0),
            })
        });
        table.clone()
    }

    /// Every table made so far.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The latest revision of anything.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }
}

impl Table {
    pub fn get(&self, key: &str) -> Option<Arc<Stored>> {
        self.read().objects.get(key).cloned()
    }

    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Commits a new object; the one in the way if there is one.
    pub fn create(&self, draft: Draft) -> Result<Arc<Stored>, Arc<Stored>> {
        let mut state = self.write();
        if let Some(existing) = state.objects.get(draft.key()) {
            return Err(existing.clone());
        }
        Ok(self.commit(&mut state, draft, None))
    }

    /// Commits a new state over the one of revision `expected`.
    pub fn replace(&self, draft: Draft, expected: u64) -> Result<Arc<Stored>, Lost> {
        let mut state = self.write();
        let current = unchanged(&state, draft.key(), expected)?;
        Ok(self.commit(&mut state, draft, Some(current)))
    }

    /// Removes the object of revision `expected`: its last state, at the revision of its removal.
    pub fn remove(&self, key: &str, expected: u64) -> Result<Arc<Stored>, Lost> {
        let mut state = self.write();
        let current = unchanged(&state, key, expected)?;
        state.objects.remove(key);
        Ok(self.forget(&mut state, current))
    }

    /// Removes every object, each as a change of its own.
    pub fn clear(&self) {
        let mut state = self.write();
        for (_, current) in std::mem::take(&mut state.objects) {
            self.forget(&mut state, current);
        }
    }

    /// Lists what `filter` lets through, as of one moment.
    pub fn page(&self, query: Query<'_>, filter: &dyn Fn(&Stored) -> bool) -> Result<Page, Expired> {
        let state = self.read();
        let now = self.revision.load(Ordering::SeqCst);
        let revision = query.at.unwrap_or(now).min(now);
        let (start, end) = bounds(query);
        let past = match query.at {
            Some(at) if at < now => state.history.rewind(at)?,
            _ => BTreeMap::new(),
        };
        let range = (start, end);
        let objects = state.objects.range::<str, _>((as_str(&range.0), as_str(&range.1)));
        let past_range = past.range::<str, _>((as_str(&range.0), as_str(&range.1)));
        let mut merged = Merge { now: objects.peekable(), past: past_range.peekable() };
        let mut items = Vec::new();
        let limit = query.limit.unwrap_or(usize::MAX);
        while items.len() < limit {
            let Some(object) = merged.next() else { break };
            if filter(object) {
                items.push(object.clone());
            }
        }
        let remaining = if query.limit.is_some() { merged.count() } else { 0 };
        Ok(Page { items, revision, remaining })
    }

    /// Follows the changes after revision `from`.
    pub fn watch(self: &Arc<Table>, from: u64) -> Result<Watch, Expired> {
        Watch::new(self.clone(), from)
    }

    /// Everything there is, and a watch that continues from it without a gap.
    pub fn snapshot(self: &Arc<Table>, filter: &dyn Fn(&Stored) -> bool) -> (Page, Watch) {
        loop {
            let page = self.page(Query::default(), filter);
            // Both fail only if the history is overrun in between; then look again.
            if let Ok(page) = page
                && let Ok(watch) = self.watch(page.revision)
            {
                return (page, watch);
            }
        }
    }

    fn commit(&self, state: &mut State, draft: Draft, previous: Option<Arc<Stored>>) -> Arc<Stored> {
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        let revision = self.next_revision();
        let object = Arc::new(draft.stamp(revision, change));
        state.objects.insert(object.key().into(), object.clone());
        let event = Event { change, object: object.clone(), previous };
        state.history.push(event, &self.limits);
        self.wake.send_replace(revision);
        object
    }

    /// Tells of an object that has been taken out.
    fn forget(&self, state: &mut State, current: Arc<Stored>) -> Arc<Stored> {
        let revision = self.next_revision();
        let object = Arc::new(current.at_revision(revision, Change::Deleted));
        let event = Event { change: Change::Deleted, object: object.clone(), previous: Some(current) };
        state.history.push(event, &self.limits);
        self.wake.send_replace(revision);
        object
    }

    /// Only under the write lock, so that a table's revisions come in the order of its commits.
    fn next_revision(&self) -> u64 {
        self.revision.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unchanged(state: &State, key: &str, expected: u64) -> Result<Arc<Stored>, Lost> {
    match state.objects.get(key) {
        None => Err(Lost::Gone),
        Some(current) if current.revision() == expected => Ok(current.clone()),
        Some(current) => Err(Lost::Changed(current.clone())),
    }
}

type KeyBound = Bound<String>;

fn bounds(query: Query<'_>) -> (KeyBound, KeyBound) {
    let (start, end) = match query.namespace {
        // '0' follows '/', so this spans exactly the keys that begin with `namespace/`.
        Some(namespace) => {
            (Bound::Included(format!("{namespace}/")), Bound::Excluded(format!("{namespace}0")))
        }
        None => (Bound::Unbounded, Bound::Unbounded),
    };
    let start = match (query.after, &start) {
        (None, _) => start,
        (Some(after), Bound::Included(first)) if after < first.as_str() => start,
        (Some(after), _) => Bound::Excluded(after.to_owned()),
    };
    match (&start, &end) {
        // A position past the end: an empty range, where BTreeMap would panic.
        (Bound::Excluded(s), Bound::Excluded(e)) if s >= e => {
            (Bound::Included(e.clone()), Bound::Excluded(e.clone()))
        }
        _ => (start, end),
    }
}

fn as_str(bound: &KeyBound) -> Bound<&str> {
    match bound {
        Bound::Included(key) => Bound::Included(key.as_str()),
        Bound::Excluded(key) => Bound::Excluded(key.as_str()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The objects of a past moment: those of now, except where `past` knows better.
struct Merge<'a, N, P>
where
    N: Iterator<Item = (&'a Box<str>, &'a Arc<Stored>)>,
    P: Iterator<Item = (&'a Box<str>, &'a Option<Arc<Stored>>)>,
{
    now: std::iter::Peekable<N>,
    past: std::iter::Peekable<P>,
}

impl<'a, N, P> Iterator for Merge<'a, N, P>
where
    N: Iterator<Item = (&'a Box<str>, &'a Arc<Stored>)>,
    P: Iterator<Item = (&'a Box<str>, &'a Option<Arc<Stored>>)>,
{
    type Item = &'a Arc<Stored>;

    fn next(&mut self) -> Option<&'a Arc<Stored>> {
        loop {
            let Some((key, was)) = self.past.peek() else { return self.now.next().map(|(_, o)| o) };
            match self.now.peek() {
                Some((now_key, _)) if now_key < key => return self.now.next().map(|(_, o)| o),
                Some((now_key, _)) if now_key == key => {
                    self.now.next();
                }
                _ => {}
            }
            let was = *was;
            self.past.next();
            if let Some(object) = was {
                return Some(object);
            }
        }
    }
}

#[cfg(test)]
mod tests;
