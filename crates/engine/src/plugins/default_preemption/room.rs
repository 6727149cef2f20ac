//! What making room on one node would take, when room is all that matters: sums instead of filters.
//!
//! The outcome is that of `dry_run`; a property test compares them on random clusters.

use koord_api::resource::ResourceId;

use super::dry_run::reprieve;
use super::shortlist::Victims;
use crate::cluster::budgets::Guard;
use crate::cluster::columns::Amounts;
use crate::cluster::{Node, Row};
use crate::framework::{Demand, PostFilterInput};
use crate::pod::Pod;

/// What the pod needs, and what nodes have of it.
pub(super) struct Room<'a> {
    input: &'a PostFilterInput<'a>,
    wanted: Vec<Wanted<'a>>,
    /// What would be left of each of `wanted`, with the pod in its place.
    left: Vec<i64>,
    pods_left: i64,
}

struct Wanted<'a> {
    id: ResourceId,
    units: i64,
    amounts: Option<&'a Amounts>,
}

/// Wanted resources that a bit each of `Lack` can name.
const WANTED_MAX: usize = 63;

/// Which of the wanted is short even without the pods of lower priority, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lack(u64);

impl<'a> Room<'a> {
    /// None when a filter looks at more than room.
    pub(super) fn of(input: &'a PostFilterInput<'a>) -> Option<Room<'a>> {
        let mut room = Room { input, wanted: Vec::new(), left: Vec::new(), pods_left: 0 };
        let mut counts_pods = false;
        let asked = input.framework.filters.iter().filter(|hooks| input.prepared.is_asked(hooks.name));
        for filter in asked.filter_map(|hooks| hooks.filter.as_ref()) {
            match filter.demand(input.cycle) {
                Demand::Nothing => {}
                // Two who want room may count it differently.
                Demand::Room(_) if counts_pods => return None,
                Demand::Room(wanted) => {
                    counts_pods = true;
                    room.wanted = wanted.into_iter().map(|(id, units)| room.wanted(id, units)).collect();
                }
                Demand::Anything => return None,
            }
        }
        (counts_pods && room.wanted.len() <= WANTED_MAX).then_some(room)
    }

    fn wanted(&self, id: ResourceId, units: i64) -> Wanted<'a> {
        Wanted { id, units, amounts: self.input.cycle.cluster.columns.amounts(id) }
    }

    /// As `dry_run::run`.
    pub(super) fn run(
        &mut self,
        row: Row,
        lower: usize,
        guard: &mut Guard<'_>,
        victims: &mut Victims,
    ) -> Result<(), Lack> {
        let node = self.input.cycle.cluster.node(row);
        let count = node.pods.all.len() - lower;
        self.clear(row, node, lower);
        let lack = self.lack();
        if lack != Lack(0) {
            return Err(lack);
        }
        let breaks_budget = guard.violations(&node.pods.all[lower..]);
        reprieve(&breaks_budget, count, lower, victims, |at| self.take(node, lower + at));
        Ok(())
    }

    /// Counts what would be left if all pods from `lower` on went and the pod came, beside those promised the node.
    fn clear(&mut self, row: Row, node: &Node, lower: usize) {
        let columns = &self.input.cycle.cluster.columns;
        let removed = node.pods.all.len() - lower;
        self.pods_left = columns.pods.free(row) - 1 + i64::try_from(removed).unwrap_or(0);
        self.left.clear();
        for wanted in &self.wanted {
            let free = wanted.amounts.map_or(0, |amounts| amounts.free(row));
            let removed = (lower..node.pods.all.len()).map(|at| amount(node, at, wanted.id));
            let freed = removed.fold(0i64, i64::saturating_add);
            self.left.push(free.saturating_add(freed).saturating_sub(wanted.units));
        }
        if self.input.nominated.is_empty() {
            return;
        }
        for promised in self.input.nominated.before(self.input.cycle.pod, row) {
            self.pods_left -= 1;
            for (left, wanted) in self.left.iter_mut().zip(&self.wanted) {
                *left = left.saturating_sub(amount_of(promised, wanted.id));
            }
        }
    }

    fn lack(&self) -> Lack {
        let short = self.left.iter().map(|left| u64::from(*left < 0));
        let bits = short.enumerate().fold(0, |bits, (at, is_short)| bits | is_short << at);
        Lack(bits << 1 | u64::from(self.pods_left < 0))
    }

    /// Puts one pod back if there is room for it too.
    fn take(&mut self, node: &Node, at: usize) -> bool {
        let fits = self.pods_left >= 1
            && self.left.iter().zip(&self.wanted).all(|(left, wanted)| amount(node, at, wanted.id) <= *left);
        if fits {
            self.pods_left -= 1;
            for (left, wanted) in self.left.iter_mut().zip(&self.wanted) {
                *left = left.saturating_sub(amount(node, at, wanted.id));
            }
        }
        fits
    }
}

/// What a pod on a node asks of a resource.
fn amount(node: &Node, at: usize, id: ResourceId) -> i64 {
    match id {
        ResourceId::CPU => node.pods.standings()[at].cpu_milli,
        ResourceId::MEMORY => node.pods.standings()[at].memory,
        id => amount_of(&node.pods.all[at], id),
    }
}

fn amount_of(pod: &Pod, id: ResourceId) -> i64 {
    pod.class.requests.amounts.get(id)
}
