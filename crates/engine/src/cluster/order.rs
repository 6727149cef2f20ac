//! The order nodes are visited in: round robin over zones. Spec: scheduler-core 2.2.

use super::Row;

/// Nodes by zone, zones in the order they were first seen.
#[derive(Debug, Default)]
pub struct Order {
    zones: Vec<(Box<str>, Vec<Row>)>,
    /// The order, rebuilt only when nodes come or go: a node that changes its zone keeps its place until then.
    rows: Vec<Row>,
    is_stale: bool,
    len: usize,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn add(&mut self, row: Row, zone: &str) {
        self.insert(row, zone);
        self.len += 1;
        self.is_stale = true;
    }

    pub(super) fn remove(&mut self, row: Row, zone: &str) {
        self.take(row, zone);
        self.len -= 1;
        self.is_stale = true;
    }

    pub(super) fn move_to(&mut self, row: Row, old: &str, new: &str) {
        self.take(row, old);
        self.insert(row, new);
    }

    fn insert(&mut self, row: Row, zone: &str) {
        match self.zones.iter_mut().find(|(name, _)| **name == *zone) {
            Some((_, rows)) => rows.push(row),
            None => self.zones.push((zone.into(), vec![row])),
        }
    }

    fn take(&mut self, row: Row, zone: &str) {
        let Some(at) = self.zones.iter().position(|(name, _)| **name == *zone) else { return };
        self.zones[at].1.retain(|known| *known != row);
        if self.zones[at].1.is_empty() {
            self.zones.remove(at);
        }
    }

    /// As they were last asked for.
    pub(super) fn last_rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn rows(&mut self) -> &[Row] {
        if self.is_stale {
            self.rows = self.fresh();
            self.is_stale = false;
        }
        &self.rows
    }

    /// What `rows` would give now, left for it to remember.
    pub(super) fn upcoming(&self) -> Vec<Row> {
        if self.is_stale { self.fresh() } else { self.rows.clone() }
    }

    fn fresh(&self) -> Vec<Row> {
        let longest = self.zones.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0);
        (0..longest)
            .flat_map(|i| self.zones.iter().filter_map(move |(_, rows)| rows.get(i)).copied())
            .collect()
    }
}
