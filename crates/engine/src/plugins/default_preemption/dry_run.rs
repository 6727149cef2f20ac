//! What making room on one node would take, by asking the filters. Spec: scheduler-core 6.13.4.

use std::sync::Arc;

use super::shortlist::Victims;
use crate::cluster::Row;
use crate::cluster::budgets::Guard;
use crate::framework::{Cycle, Delta, PostFilterInput, Status};
use crate::pod::Pod;

/// A node without its pods of lower priority, to which they come back one by one.
struct Trial<'a> {
    input: &'a PostFilterInput<'a>,
    row: Row,
    cycle: Cycle<'a>,
    delta: Delta,
}

impl<'a> Trial<'a> {
    fn new(input: &'a PostFilterInput<'a>, row: Row, removed: &[Arc<Pod>]) -> Trial<'a> {
        let delta = input.framework.seen(input.cycle, row);
        let mut trial = Trial { input, row, cycle: input.cycle.clone(), delta };
        removed.iter().for_each(|pod| trial.remove(pod));
        trial
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        self.delta.remove(self.input.cycle.cluster, self.row, pod);
        self.input.framework.suppose_removed(self.input.prepared, &mut self.cycle, pod, self.row);
    }

    fn put_back(&mut self, pod: &Arc<Pod>) {
        self.delta.add(self.input.cycle.cluster, self.row, pod);
        self.input.framework.suppose_added(self.input.prepared, &mut self.cycle, pod, self.row);
    }

    fn check(&self) -> Result<(), Status> {
        let PostFilterInput { framework, nominated, prepared, .. } = self.input;
        framework.check_beside_nominated(nominated, prepared, &self.cycle, self.row, &self.delta)
    }
}

/// The pods that have to go, of those from `lower` on in the node's list that may; or why even all of them are not enough.
pub(super) fn run(
    input: &PostFilterInput<'_>,
    row: Row,
    (lower, may_go): (usize, &dyn Fn(&Pod) -> bool),
    guard: &mut Guard<'_>,
    victims: &mut Victims,
) -> Result<(), Status> {
    let all = &input.cycle.cluster.node(row).pods.all;
    let places: Vec<usize> = (lower..all.len()).filter(|at| may_go(&all[*at])).collect();
    let removed: Vec<Arc<Pod>> = places.iter().map(|at| all[*at].clone()).collect();
    let mut trial = Trial::new(input, row, &removed);
    trial.check()?;
    reprieve(&guard.violations(&removed), removed.len(), 0, victims, |at| {
        trial.put_back(&removed[at]);
        let fits = trial.check().is_ok();
        if !fits {
            trial.remove(&removed[at]);
        }
        fits
    });
    victims.places.iter_mut().for_each(|place| *place = places[*place]);
    Ok(())
}

/// Lets `stays` decide about each of `count` pods, most important first, but those whose going would break a budget
/// before all others; the rest are the victims.
pub(super) fn reprieve(
    breaks_budget: &[bool],
    count: usize,
    first: usize,
    victims: &mut Victims,
    mut stays: impl FnMut(usize) -> bool,
) {
    victims.places.clear();
    victims.violations = 0;
    if !breaks_budget.contains(&true) {
        victims.places.extend((0..count).filter(|at| !stays(*at)).map(|at| first + at));
        return;
    }
    for is_breaking in [true, false] {
        for at in (0..count).filter(|at| breaks_budget[*at] == is_breaking) {
            if !stays(at) {
                victims.places.push(first + at);
                victims.violations += usize::from(is_breaking);
            }
        }
    }
    // Back to importance, which is the order of the places.
    victims.places.sort_unstable();
}
