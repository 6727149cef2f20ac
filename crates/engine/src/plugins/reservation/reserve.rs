//! A place is taken: the reservation that goes with it too, and the pod is marked with it.
//! Spec: scheduler-reservation-loadaware A7.8.

use std::sync::Arc;

use koord_api::annotation::Annotation as _;
use koord_api::annotation::reservation::ReservationAllocated;

use super::seek::Seeker;
use super::{NAME, Reserving, reason};
use crate::cluster::reservations::{Entry, Reserved};
use crate::cluster::{Cluster, Row};
use crate::engine::command::{BindPlan, Marked, Subject};
use crate::framework::{Cycle, NodeView, PreBind, Preemption, Reserve, Slots, Status};
use crate::pod::Pod;
use crate::time::Time;

impl Reserving {
    /// The reservation that a pod which has just been placed on a row would use.
    fn nominate_placed(&self, cluster: &Cluster, pod: &Arc<Pod>, row: Row) -> Option<Arc<Reserved>> {
        let cycle = Cycle::new(cluster, pod);
        if let Some(entry) = self.only_reservation(&cycle, row, true) {
            return Some(entry.record.clone());
        }
        let mut seen = self.seen(&cycle, row);
        // The pod is there already; it must not be in its own way.
        seen.remove(cluster, row, pod);
        let found: Option<&Entry> = self.nominate(&cycle, &NodeView::supposing(cluster, row, &seen));
        found.map(|entry| entry.record.clone())
    }
}

impl Reserve for Reserving {
    fn reserve(
        &self,
        cluster: &mut Cluster,
        _slots: &mut Slots,
        pod: &Arc<Pod>,
        row: Row,
    ) -> Result<(), Status> {
        if pod.class.reserve.is_some() {
            return self.take_in(cluster, pod, row);
        }
        let has_affinity = {
            let seeker = Seeker::new(cluster, pod, &self.settings);
            if seeker.is_ignoring() || !seeker.is_concerned() && seeker.affinity().is_none() {
                return Ok(());
            }
            seeker.affinity().is_some()
        };
        match self.nominate_placed(cluster, pod, row) {
            Some(record) if record.is_deleting => Err(Status::error(NAME, reason::TERMINATING)),
            Some(record) => {
                cluster.use_reservation(&pod.uid, &record.uid);
                cluster.promise_reservation(&pod.uid, None);
                Ok(())
            }
            None if has_affinity => Err(Status::unschedulable(NAME, reason::NO_MATCH)),
            None => Ok(()),
        }
    }

    fn promise(&self, cluster: &mut Cluster, pod: &Arc<Pod>, room: Option<&Preemption>) {
        if pod.class.reserve.is_some() || cluster.reservations().is_empty() {
            return;
        }
        let promised = room.and_then(|room| {
            let cycle = Cycle::new(cluster, pod);
            let mut seen = self.seen(&cycle, room.row);
            room.victims.iter().for_each(|victim| seen.remove(cluster, room.row, victim));
            Some(self.nominate(&cycle, &NodeView::supposing(cluster, room.row, &seen))?.id)
        });
        cluster.promise_reservation(&pod.uid, promised);
    }

    fn unreserve(&self, cluster: &mut Cluster, _slots: &mut Slots, pod: &Arc<Pod>, _row: Row) {
        if pod.class.reserve.is_some() {
            self.let_go(cluster, pod);
        } else if cluster.held(&pod.uid).is_none() || cluster.is_assumed(&pod.uid) {
            // One that the API has bound all the same uses what its annotation says.
            cluster.leave_reservation(&pod.uid);
        }
    }
}

/// The mark of a reservation, as an annotation of one who uses it.
fn mark(record: &Reserved) -> (String, Option<String>) {
    (ReservationAllocated::KEY.to_owned(), Some(record.mark.to_string()))
}

impl PreBind for Reserving {
    fn plan(
        &self,
        cluster: &Cluster,
        _slots: &Slots,
        pod: &Arc<Pod>,
        _row: Row,
        _now: Time,
        plan: &mut BindPlan,
    ) -> Result<(), Status> {
        let reservations = cluster.reservations();
        if pod.class.reserve.is_some() {
            let Some(entry) = reservations.get(&pod.uid) else { return Ok(()) };
            let taken_in = entry.owners.iter().filter(|owner| owner.pod.uses.is_none());
            plan.others.extend(taken_in.map(|owner| Marked {
                pod: Subject::of(&owner.pod),
                annotations: [mark(&entry.record)].into(),
            }));
            return Ok(());
        }
        let Some(uid) = reservations.used_by(&pod.uid) else {
            // Differs: upstream lets a mark stand that an earlier attempt left, which makes the pod an owner all the same.
            if pod.uses.is_some() {
                plan.annotations.insert(ReservationAllocated::KEY.to_owned(), None);
            }
            return Ok(());
        };
        let Some(entry) = reservations.get(uid) else {
            return Err(Status::error(NAME, reason::UNKNOWN));
        };
        let (key, value) = mark(&entry.record);
        plan.annotations.insert(key, value);
        Ok(())
    }
}
