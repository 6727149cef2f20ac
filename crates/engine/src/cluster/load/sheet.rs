//! What a look at a node needs of a book, side by side: nodes are looked at far more often than they change.

use super::super::Row;

/// One line for each resource of each row.
#[derive(Debug)]
pub(super) struct Sheet {
    resources: usize,
    lines: Vec<Line>,
}

/// One resource of one node, pods in flight included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// What scores are parts of; nothing where nobody knows what is used.
    pub(super) whole: i64,
    /// What scores count as used: of all pods, and of prod pods alone.
    pub(super) used: i64,
    pub(super) prod_used: i64,
    /// What a pod may add and the node is still plainly below its level: any pod, and a prod pod where these have levels
    /// of their own.
    pub(super) room: i64,
    pub(super) prod_room: i64,
}

impl Sheet {
    pub(super) fn new(resources: usize, rows: usize) -> Sheet {
        let mut sheet = Sheet { resources, lines: Vec::new() };
        (0..rows).for_each(|_| sheet.grow());
        sheet
    }

    /// A row of which nothing is known: it takes every pod.
    pub(super) fn grow(&mut self) {
        let unknown = Line { room: i64::MAX, prod_room: i64::MAX, ..Line::default() };
        self.lines.resize(self.lines.len() + self.resources, unknown);
    }

    /// Those of a row, one for each resource; none for rows that are not there.
    pub(super) fn lines(&self, row: Row) -> &[Line] {
        let start = row.index() * self.resources;
        self.lines.get(start..start + self.resources).unwrap_or_default()
    }

    pub(super) fn lines_mut(&mut self, row: Row) -> &mut [Line] {
        let start = row.index() * self.resources;
        self.lines.get_mut(start..start + self.resources).unwrap_or_default()
    }
}
