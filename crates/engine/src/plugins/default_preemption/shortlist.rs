//! Which node is cheapest to make room on. Spec: scheduler-core 6.13.7.

use std::cmp::Reverse;

use crate::cluster::{Row, Standing};
use crate::time::Time;

/// What has to go on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Victims {
    /// Places in the node's list of pods, most important first.
    pub(super) places: Vec<usize>,
    /// How many of them break a disruption budget.
    pub(super) violations: usize,
}

/// A node where room can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) row: Row,
    pub(super) victims: Vec<usize>,
    pub(super) violations: usize,
}

/// What taking the victims costs; compared field by field, lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    violations: usize,
    highest_priority: i32,
    /// Of priorities raised above zero, so that fewer victims are cheaper.
    priorities: i64,
    victims: usize,
    /// When the oldest of the victims of highest priority started.
    oldest_started: Reverse<i64>,
}

/// Raises every priority above zero.
const PRIORITY_SHIFT: i64 = 1 << 31;

impl Cost {
    fn of(victims: &Victims, standings: &[Standing], now: Time) -> Cost {
        let standing = |at: &usize| standings.get(*at);
        let highest = victims.places.first().and_then(standing).map_or(i32::MIN, |first| first.priority);
        let mut cost = Cost {
            violations: victims.violations,
            highest_priority: highest,
            priorities: 0,
            victims: victims.places.len(),
            oldest_started: Reverse(i64::MAX),
        };
        for standing in victims.places.iter().filter_map(standing) {
            cost.priorities += i64::from(standing.priority) + PRIORITY_SHIFT;
            if standing.priority == highest {
                let started = standing.started.map_or(now, Time::from_seconds).nanos();
                cost.oldest_started = cost.oldest_started.max(Reverse(started));
            }
        }
        cost
    }
}

/// The best candidate so far, and how many there were.
#[derive(Debug)]
pub(super) struct Shortlist {
    wanted: usize,
    plain: usize,
    violating: usize,
    best: Option<(Cost, Candidate)>,
}

impl Shortlist {
    pub(super) fn new(wanted: usize) -> Shortlist {
        Shortlist { wanted, plain: 0, violating: 0, best: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.best.is_none()
    }

    /// Enough were found, and one of them breaks no budget.
    pub(super) fn is_full(&self) -> bool {
        self.plain > 0 && self.plain + self.violating >= self.wanted
    }

    /// One more candidate; `victims` is left in an unknown state.
    pub(super) fn offer(&mut self, row: Row, victims: &mut Victims, standings: &[Standing], now: Time) {
        match victims.violations {
            0 => self.plain += 1,
            // More of them would not be looked at.
            _ if self.violating == self.wanted => return,
            _ => self.violating += 1,
        }
        let cost = Cost::of(victims, standings, now);
        match &mut self.best {
            // The first of equals stays.
            Some((best, _)) if *best <= cost => {}
            Some((best, candidate)) => {
                *best = cost;
                (candidate.row, candidate.violations) = (row, victims.violations);
                std::mem::swap(&mut candidate.victims, &mut victims.places);
            }
            None => {
                let places = std::mem::take(&mut victims.places);
                self.best = Some((cost, Candidate { row, victims: places, violations: victims.violations }));
            }
        }
    }

    pub(super) fn into_best(self) -> Option<Candidate> {
        self.best.map(|(_, candidate)| candidate)
    }
}
