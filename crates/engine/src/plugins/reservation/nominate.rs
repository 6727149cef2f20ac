//! Which of several reservations on a node a pod uses, and what that makes of the node's score.
//! Spec: scheduler-reservation-loadaware A7.6, A7.7.

use std::sync::Arc;

use koord_api::resource::{ResourceId, ResourceVector};

use super::fit::Fitting;
use super::seek::Seeker;
use super::{NAME, Reserving, reason};
use crate::cluster::Row;
use crate::cluster::reservations::Entry;
use crate::framework::parts::{Normal, ScorePart};
use crate::framework::{Cycle, InReservation, NodeView, Scope, Score, Status, hooks::normalize_by_max};
use crate::pod::Class;

/// The score of the node with the reservation that wants to be used first of all.
const FIRST_OF_ALL: i64 = 1000;

/// What the plugin itself says about the use of a reservation, beside those who hold more than amounts.
pub(super) struct OwnRules;

impl InReservation for OwnRules {
    fn check(&self, _cycle: &Cycle<'_>, node: &NodeView<'_>, reservation: &Entry) -> Result<(), Status> {
        match reservation.record.is_once && node.owners(reservation) > 0 {
            true => Err(Status::unschedulable(NAME, reason::SPENT)),
            false => Ok(()),
        }
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>, reservation: &Entry) -> i64 {
        most_allocated(reservation, |id| node.used(reservation, id), &cycle.pod.class.requests.amounts)
    }
}

/// How full a reservation would be, over all that it holds.
pub(super) fn most_allocated(entry: &Entry, used: impl Fn(ResourceId) -> i64, asked: &ResourceVector) -> i64 {
    let of = |(id, held): (ResourceId, i64)| {
        let asked = if id == ResourceId::PODS { 0 } else { asked.get(id) };
        let would_be = asked.saturating_add(used(id));
        if would_be > held { 0 } else { would_be.saturating_mul(100) / held }
    };
    let scores = entry.record.allocatable.iter().filter(|(_, held)| *held > 0).map(of);
    let (sum, count) = scores.fold((0, 0), |(sum, count), score| (sum + score, count + 1));
    if count > 0 { sum / count } else { 0 }
}

impl Reserving {
    /// The reservation that the pod would use on a node, which is seen without those it may use.
    pub(super) fn nominate<'a>(&self, cycle: &Cycle<'a>, node: &NodeView<'_>) -> Option<&'a Entry> {
        if !cycle.cluster.reservations().are_on(node.row) || cycle.pod.class.reserve.is_some() {
            return None;
        }
        let seeker = Seeker::new(cycle.cluster, cycle.pod, &self.settings);
        if seeker.is_ignoring() {
            return None;
        }
        let matched = seeker.matched_on(node.row);
        if let ([only], Some(_)) = (matched.as_slice(), seeker.affinity()) {
            return cycle.cluster.reservations().entry(only.id);
        }
        if matched.is_empty() {
            return None;
        }
        let fitting = Fitting::new(&seeker, cycle, node, &matched, &self.settings, &self.partners);
        if let [only] = matched.as_slice() {
            return cycle.cluster.reservations().entry(only.id).filter(|entry| fitting.takes(entry));
        }
        let open = matched.iter().filter(|entry| fitting.takes(entry));
        let rank = |entry: &&&Entry| {
            let record = &entry.record;
            let score: i64 = match record.order {
                Some(_) => 0,
                None => self.partners.iter().map(|partner| partner.score(cycle, node, entry)).sum(),
            };
            // Those with an order first, then the best use; of equals the oldest.
            (record.order.is_none(), record.order, -score, record.created, record.name.clone())
        };
        let best = open.min_by_key(rank)?.id;
        cycle.cluster.reservations().entry(best)
    }

    fn reservation_score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>, entry: &Entry) -> i64 {
        self.partners.iter().map(|partner| partner.score(cycle, node, entry)).sum()
    }
}

/// The node whose reservation comes first by its order.
#[derive(Clone, Copy)]
struct First(Option<Row>);

impl Score for Reserving {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Cluster
    }

    fn prepare(&self, cycle: &mut Cycle<'_>, rows: &[Row]) -> Result<bool, Status> {
        if let Some(reserve) = &cycle.pod.class.reserve {
            return Ok(reserve.pre_allocation.is_some() && !reserve.may_wait());
        }
        let seeker = Seeker::new(cycle.cluster, cycle.pod, &self.settings);
        if seeker.is_ignoring() || !seeker.is_concerned() {
            return Ok(false);
        }
        let mut first = None;
        if cycle.cluster.reservations().are_ordered() {
            // Differs: upstream takes the order of reservations that the pod does not fit into, too.
            let order = |row: &Row| {
                let seen = self.seen(cycle, *row);
                let node = NodeView::supposing(cycle.cluster, *row, &seen);
                let order = self.nominate(cycle, &node)?.record.order?;
                Some((order, *row))
            };
            // The first of equals in the order of nodes.
            let ordered = rows.iter().filter_map(order);
            first =
                ordered.reduce(|best, next| if next.0 < best.0 { next } else { best }).map(|(_, row)| row);
        }
        cycle.set(First(first));
        Ok(true)
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        if cycle.pod.class.reserve.is_some() {
            return self.pre_allocation_score(cycle, node);
        }
        match cycle.get::<First>() {
            Some(First(Some(row))) if *row == node.row => FIRST_OF_ALL,
            _ => self.nominate(cycle, node).map_or(0, |entry| self.reservation_score(cycle, node, entry)),
        }
    }

    fn normalize(&self, cycle: &Cycle<'_>, _rows: &[Row], scores: &mut [i64]) {
        if cycle.pod.class.reserve.is_none() {
            normalize_by_max(scores, false);
        }
    }

    fn part(&self, cluster: &crate::cluster::Cluster, class: &Arc<Class>) -> ScorePart {
        if let Some(reserve) = &class.reserve {
            let is_silent = reserve.pre_allocation.is_none() || reserve.may_wait();
            return if is_silent { ScorePart::Nothing } else { ScorePart::Opaque };
        }
        let is_ignoring = class.wants.as_ref().is_some_and(|wants| wants.is_ignoring);
        match is_ignoring || cluster.reservations().owned_by_class(class).is_empty() {
            true => ScorePart::Nothing,
            // Where an order decides, attempts are not remembered (`speaks_of_class`).
            false => ScorePart::Row(Normal::ByMax { is_reversed: false }),
        }
    }
}
