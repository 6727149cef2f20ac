//! What making room on one node would take, when room is all that matters: sums instead of filters.
//!
//! The outcome is that of `dry_run`; a property test compares them on random clusters.

use koord_api::resource::ResourceId;

use super::dry_run::reprieve;
use super::shortlist::Victims;
use crate::cluster::budgets::Guard;
use crate::cluster::{Cluster, Node, Row};
use crate::framework::{Cycle, Demand, Filter, NodeView, PostFilterInput};
use crate::schedule::{Lack, Room};

/// Tries nodes by sums.
pub(super) struct Sums<'a> {
    cluster: &'a Cluster,
    room: Room<'a>,
    /// Filters that nobody's leaving would change.
    fixed: Vec<&'a dyn Filter>,
    wanted: Vec<ResourceId>,
    /// What would be left of each of `wanted`, with the pod in its place.
    left: Vec<i64>,
    pods_left: i64,
}

impl<'a> Sums<'a> {
    /// None when a filter looks at more than room.
    pub(super) fn of(input: &PostFilterInput<'a>) -> Option<Sums<'a>> {
        let room = Room::of(input.framework, input.prepared, input.cycle, input.nominated)?;
        let wanted = room.ids().collect();
        let asked = input.framework.filters.iter().filter(|hooks| input.prepared.is_asked(hooks.name));
        let filters = asked.filter_map(|hooks| hooks.filter.as_deref());
        let fixed = filters.filter(|filter| filter.demand(input.cycle) == Demand::Fixed).collect();
        Some(Sums { cluster: input.cycle.cluster, room, fixed, wanted, left: Vec::new(), pods_left: 0 })
    }

    /// Whether the node is refused whoever leaves.
    pub(super) fn is_hopeless(&self, cycle: &Cycle<'_>, row: Row) -> bool {
        let node = NodeView::of(self.cluster, row);
        self.fixed.iter().any(|filter| filter.check(cycle, &node).is_err())
    }

    /// Whether `run` is known to fail on a row without looking at the pods there.
    pub(super) fn is_beyond_hope(&self, row: Row) -> bool {
        self.room.is_beyond_hope(row)
    }

    /// As `dry_run::run`.
    pub(super) fn run(
        &mut self,
        row: Row,
        lower: usize,
        guard: &mut Guard<'_>,
        victims: &mut Victims,
    ) -> Result<(), Lack> {
        let node = self.cluster.node(row);
        let count = node.pods.all.len() - lower;
        self.clear(row, node, lower);
        let lack = Lack::of(self.pods_left, &self.left);
        if lack != Lack(0) {
            return Err(lack);
        }
        let breaks_budget = guard.violations(&node.pods.all[lower..]);
        reprieve(&breaks_budget, count, lower, victims, |at| self.take(node, lower + at));
        Ok(())
    }

    /// Counts what would be left if all pods from `lower` on went and the pod came.
    fn clear(&mut self, row: Row, node: &Node, lower: usize) {
        let removed = node.pods.all.len() - lower;
        self.pods_left = self.room.left(row, &mut self.left) + i64::try_from(removed).unwrap_or(0);
        for (left, id) in self.left.iter_mut().zip(&self.wanted) {
            let removed = (lower..node.pods.all.len()).map(|at| amount(node, at, *id));
            *left = left.saturating_add(removed.fold(0i64, i64::saturating_add));
        }
    }

    /// Puts one pod back if there is room for it too.
    fn take(&mut self, node: &Node, at: usize) -> bool {
        let mut each = self.left.iter().zip(&self.wanted);
        let fits = self.pods_left >= 1 && each.all(|(left, id)| amount(node, at, *id) <= *left);
        if fits {
            self.pods_left -= 1;
            for (left, id) in self.left.iter_mut().zip(&self.wanted) {
                *left = left.saturating_sub(amount(node, at, *id));
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
        id => node.pods.all[at].class.requests.amounts.get(id),
    }
}
