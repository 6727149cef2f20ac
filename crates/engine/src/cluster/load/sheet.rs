//! What a look at a node needs of a book, side by side: nodes are looked at far more often than they change.

use super::super::Row;

/// One line for each resource of each row.
#[derive(Debug)]
pub(super) struct Sheet {
    resources: usize,
    states: Vec<State>,
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) has_metric: bool,
    /// The metric tells of the node itself.
    pub(super) is_measured: bool,
    pub(super) is_expired: bool,
    pub(super) has_own_limits: bool,
}

/// One resource of one node: what there is, and what counts as used, pods in flight included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) allocatable: i64,
    pub(super) filtered: i64,
    pub(super) scored: i64,
    pub(super) prod: i64,
}

impl Sheet {
    pub(super) fn new(resources: usize, rows: usize) -> Sheet {
        Sheet {
            resources,
            states: vec![State::default(); rows],
            lines: vec![Line::default(); rows * resources],
        }
    }

    pub(super) fn grow(&mut self) {
        self.states.push(State::default());
        self.lines.resize(self.lines.len() + self.resources, Line::default());
    }

    pub(super) fn state(&self, row: Row) -> Option<State> {
        self.states.get(row.index()).copied()
    }

    pub(super) fn lines(&self, row: Row) -> &[Line] {
        let start = row.index() * self.resources;
        self.lines.get(start..start + self.resources).unwrap_or_default()
    }

    pub(super) fn set(&mut self, row: Row, state: State, lines: impl Iterator<Item = Line>) {
        self.states[row.index()] = state;
        let start = row.index() * self.resources;
        self.lines[start..start + self.resources].iter_mut().zip(lines).for_each(|(old, new)| *old = new);
    }
}
