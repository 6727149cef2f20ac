//! Reservations and who uses them: the ledger behind the plugin and the life cycle.
//!
//! A Reservation object is compiled into a `Reserved` (`record`) when it comes; its pod, once placed, is a pod in the
//! cluster's columns like any other, but counts only for its *rest*: what its owners have not taken yet. Owners count in
//! full, so that a node's sums are what is really promised, for everyone who has nothing to do with reservations. Who
//! uses what is known by UIDs, whether or not the reservation has been seen yet, so that the order of events does not
//! matter. Everything is idempotent by key; `recount` builds it again from the pods. Spec: scheduler-reservation-loadaware
//! A5, A19.

use std::sync::Arc;

use koord_api::crd::reservation::Reservation;
use koord_api::resource::ResourceVector;

use super::{Cluster, Row};
use crate::pod::Pod;

pub mod record;

pub use record::{Phase, Reserved};

/// A reservation that the ledger knows, and what is used of it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub record: Arc<Reserved>,
    /// Where its pod is counted, assumed or for sure.
    pub row: Option<Row>,
    /// Those who use it, ascending by UID; assumed ones are among them (`Cluster::is_assumed`).
    pub owners: Vec<Owner>,
    /// What they use, of the resources that count (`Reserved::names`). Not cut: owners may take more than is held.
    pub allocated: ResourceVector,
}

/// A pod that uses a reservation.
#[derive(Clone, Debug)]
pub struct Owner {
    pub pod: Arc<Pod>,
}

/// What became of a Reservation object that was handed in.
#[derive(Clone, Debug)]
pub struct ReservationNews {
    pub old: Option<Arc<Reserved>>,
    pub new: Option<Arc<Reserved>>,
}

/// All reservations.
#[derive(Debug, Default)]
pub struct Reservations {}

impl Reservations {
    pub fn get(&self, uid: &str) -> Option<&Entry> {
        let _ = uid;
        None
    }

    pub fn by_name(&self, name: &str) -> Option<&Entry> {
        let _ = name;
        None
    }

    /// Those whose pods are counted on a row, ascending by name.
    pub fn on(&self, row: Row) -> impl Iterator<Item = &Entry> {
        let _ = row;
        [].iter()
    }

    /// All of them, ascending by name.
    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        [].iter()
    }

    /// The UID of the reservation that a pod uses.
    pub fn used_by(&self, pod_uid: &str) -> Option<&str> {
        let _ = pod_uid;
        None
    }
}

impl Entry {
    /// Usable by new owners: Available, owners readable, and not the one owner there already.
    pub fn is_matchable(&self) -> bool {
        self.row.is_some()
            && self.record.phase == Phase::Available
            && self.record.owners.is_ok()
            && !(self.record.is_once && !self.owners.is_empty())
    }
}

impl Cluster {
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// A Reservation came or changed, in any phase: its record is kept from now on, and what its pod counts for is
    /// adjusted if it is placed. The pod itself (`Reserved::pod`) is placed and taken away like every other, by
    /// `assume`, `confirm`, `forget` and `release`; that is the caller's business. An object that cannot be scheduled at
    /// all (`koord_api::crd::reservation::validate`) must not be handed in.
    pub fn set_reservation(&mut self, object: &Reservation) -> ReservationNews {
        let _ = object;
        ReservationNews { old: None, new: None }
    }

    /// A Reservation is gone: its pod is released if it still counts, and nobody can use it. Pods that used it stay
    /// where they are. None when nobody knew it.
    pub fn remove_reservation(&mut self, uid: &str) -> Option<Arc<Reserved>> {
        let _ = uid;
        None
    }

    /// A pod that is counted uses a reservation from now on; one that used another moves. A pod that carries the
    /// annotation (`Pod::uses`) is entered when it is counted, so only Reserve needs this.
    pub fn use_reservation(&mut self, pod_uid: &str, reservation_uid: &str) {
        let _ = (pod_uid, reservation_uid);
    }

    /// A pod uses none any more. Done by itself when a pod is released.
    pub fn leave_reservation(&mut self, pod_uid: &str) {
        let _ = pod_uid;
    }
}
