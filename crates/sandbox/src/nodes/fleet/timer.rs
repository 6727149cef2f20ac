//! One heap of timers for everything.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a timer is for: a slot of the table of pods or nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Pod(u32),
    Node(u32, Beat),
}

/// What a node does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Beat {
    Lease,
    Status,
    /// Measure what it uses.
    Sample,
    /// Report what it uses.
    Report,
}

impl Beat {
    pub(super) const ALL: [Beat; 4] = [Beat::Lease, Beat::Status, Beat::Sample, Beat::Report];

    pub(super) fn index(self) -> usize {
        match self {
            Beat::Lease => 0,
            Beat::Status => 1,
            Beat::Sample => 2,
            Beat::Report => 3,
        }
    }
}

/// Timers by time, in milliseconds since 1970. A timer that was set again is still here under its old
/// time; its owner knows the right one.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(i64, Timer)>>,
}

impl Timers {
    pub(super) fn set(&mut self, at: i64, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    pub(super) fn next(&self) -> Option<i64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The earliest timer that is due.
    pub(super) fn pop(&mut self, now: i64) -> Option<(i64, Timer)> {
        let due = self.next().is_some_and(|at| at <= now);
        if due { self.heap.pop().map(|Reverse(entry)| entry) } else { None }
    }
}
