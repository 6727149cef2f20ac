//! Which node is cheapest to make room on. Spec: scheduler-core 6.13.7.

use std::cmp::Reverse;

use crate::cluster::{Row, Standing};
use crate::framework::Preemption;
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
        let places = victims.places.iter().filter_map(|at| standings.get(*at));
        Cost::sum(victims.violations, places.map(|standing| (standing.priority, standing.started)), now)
    }

    /// Of victims by priority and start, the most important first.
    fn sum(violations: usize, victims: impl Iterator<Item = (i32, Option<i64>)> + Clone, now: Time) -> Cost {
        let highest = victims.clone().next().map_or(i32::MIN, |(priority, _)| priority);
        let mut cost = Cost {
            violations,
            highest_priority: highest,
            priorities: 0,
            victims: 0,
            oldest_started: Reverse(i64::MAX),
        };
        for (priority, started) in victims {
            cost.victims += 1;
            cost.priorities += i64::from(priority) + PRIORITY_SHIFT;
            if priority == highest {
                let started = started.map_or(now, Time::from_seconds).nanos();
                cost.oldest_started = cost.oldest_started.max(Reverse(started));
            }
        }
        cost
    }
}

/// The cheapest, the first of equals; none when there is none.
pub(super) fn cheapest(rooms: Vec<Preemption>, now: Time) -> Option<Preemption> {
    rooms.into_iter().min_by_key(|room| {
        let victims = room.victims.iter().map(|pod| (pod.class.priority, pod.started));
        Cost::sum(room.violations, victims, now)
    })
}

/// The best candidate so far, and how many there were.
#[derive(Debug)]
pub(super) struct Shortlist {
    wanted: usize,
    /// Every candidate, in the order they were found, if they are to be kept.
    all: Option<Vec<Candidate>>,
    plain: usize,
    violating: usize,
    best: Option<(Cost, Candidate)>,
}

impl Shortlist {
    /// One that keeps the best alone, or all of them.
    pub(super) fn new(wanted: usize, keeps_all: bool) -> Shortlist {
        Shortlist { wanted, all: keeps_all.then(Vec::new), plain: 0, violating: 0, best: None }
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
        if let Some(all) = &mut self.all {
            all.push(Candidate { row, victims: victims.places.clone(), violations: victims.violations });
            return;
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

    /// The best, or all that were kept.
    pub(super) fn into_candidates(self) -> Vec<Candidate> {
        self.all.unwrap_or_else(|| self.best.into_iter().map(|(_, candidate)| candidate).collect())
    }
}
