//! Reservations and who uses them: the ledger behind the plugin and the life cycle.
//!
//! A Reservation object is compiled into a `Reserved` (`record`) when it comes; its pod, once placed, is a pod in the
//! cluster's columns like any other, but counts only for its *rest*: what its owners have not taken yet. Owners count in
//! full, so that a node's sums are what is really promised, for everyone who has nothing to do with reservations. Who
//! uses what is known by UIDs, whether or not the reservation has been seen yet, so that the order of events does not
//! matter. Everything is idempotent by key; `recount` builds it again from the pods. Who may use what is found by
//! `owners`. Spec: scheduler-reservation-loadaware A5, A19.

use std::collections::BTreeMap;
use std::sync::Arc;

use koord_api::crd::reservation::Reservation;
use koord_api::resource::{ResourceId, ResourceVector};

use super::{Cluster, Life, Row};
use crate::hash::UidMap;
use crate::intern::Names;
use crate::pod::{Class, Pod};
use crate::profile;
use crate::requests::Requests;

mod entries;
mod owners;
pub mod record;
pub mod selector;

use entries::Entries;
pub use owners::Owned;
pub use record::{Phase, Reserved, Source};
pub use selector::SelectorIndex;

/// A reservation's number. A later one is higher, and none is given twice; one whose owners change gets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(u32);

/// A reservation that the ledger knows, and what is used of it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub id: ReservationId,
    pub record: Arc<Reserved>,
    /// Where its pod is counted, assumed or for sure.
    pub row: Option<Row>,
    /// Those who use it there, ascending by UID; assumed ones are among them (`Cluster::is_assumed`).
    pub owners: Vec<Owner>,
    /// What they use, of the resources that count (`Reserved::names`). Not cut: owners may take more than is held.
    pub allocated: ResourceVector,
    /// Usable by new owners: Available, owners readable, and not with its one owner already.
    pub is_matchable: bool,
}

/// A pod that uses a reservation.
#[derive(Clone, Debug)]
pub struct Owner {
    pub pod: Arc<Pod>,
    pub row: Row,
}

/// What became of a Reservation object that was handed in.
#[derive(Clone, Debug)]
pub struct ReservationNews {
    pub old: Option<Arc<Reserved>>,
    pub new: Arc<Reserved>,
}

/// What a pod counts for in its node's sums, one pod aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub amounts: ResourceVector,
    pub nonzero_cpu_milli: i64,
    pub nonzero_memory: i64,
    /// What scoring takes off the sums beside it: what owners of a reservation use beyond what it holds.
    pub overdrawn: Overdrawn,
}

/// Amounts of cpu and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overdrawn {
    pub cpu_milli: i64,
    pub memory: i64,
}

impl Overdrawn {
    pub fn of(self, id: ResourceId) -> i64 {
        match id {
            ResourceId::CPU => self.cpu_milli,
            ResourceId::MEMORY => self.memory,
            _ => 0,
        }
    }
}

/// All reservations.
#[derive(Debug, Default)]
pub struct Reservations {
    entries: Entries,
    last: u32,
    by_uid: UidMap<ReservationId>,
    by_name: BTreeMap<Box<str>, ReservationId>,
    /// By row, as far as there are any; ascending by name.
    by_row: Vec<Vec<ReservationId>>,
    /// What pods of reservations count for, by UID.
    counted: UidMap<Counted>,
    /// Pods that use a reservation, by its UID and ascending by theirs; it need not be known.
    users: UidMap<Vec<Owner>>,
    /// The reservation's UID by the pod's.
    used: UidMap<Box<str>>,
    /// Pods that a promise of a node comes with one of a reservation, by UID: the reservation's.
    promised: UidMap<ReservationId>,
    owners: owners::Owners,
    selectors: SelectorIndex,
    /// How many of them want to be used in an order.
    ordered: usize,
}

impl Reservations {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn entry(&self, id: ReservationId) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub fn get(&self, uid: &str) -> Option<&Entry> {
        self.entry(*self.by_uid.get(uid)?)
    }

    pub fn by_name(&self, name: &str) -> Option<&Entry> {
        self.entry(*self.by_name.get(name)?)
    }

    /// Those whose pods are counted on a row, ascending by name.
    pub fn on(&self, row: Row) -> impl Iterator<Item = &Entry> {
        self.by_row.get(row.index()).into_iter().flatten().filter_map(|id| self.entry(*id))
    }

    /// Whether any pod of a reservation is counted on a row.
    pub fn are_on(&self, row: Row) -> bool {
        self.by_row.get(row.index()).is_some_and(|ids| !ids.is_empty())
    }

    /// All of them, in the order they came.
    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The UID of the reservation that a pod uses.
    pub fn used_by(&self, pod_uid: &str) -> Option<&str> {
        self.used.get(pod_uid).map(|uid| &**uid)
    }

    /// Pods that use a reservation, whether it is known or not, ascending by UID.
    pub fn users_of(&self, uid: &str) -> &[Owner] {
        self.users.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The reservation that a pod uses, where it is one that gives back what the pod leaves.
    pub fn sharer(&self, pod: &Pod, row: Row) -> Option<&Entry> {
        let entry = self.get(self.used.get(&pod.uid)?)?;
        (entry.row == Some(row) && entry.is_matchable).then_some(entry)
    }

    /// The reservation that a pod is promised together with its node.
    pub fn promised_to(&self, pod_uid: &str) -> Option<&Entry> {
        self.entry(*self.promised.get(pod_uid)?)
    }

    /// Which of them a pod may use, as far as owners decide. Its class must have been attended to.
    pub fn owned_by(&self, pod: &Pod, names: &Names) -> Owned<'_> {
        self.owners.owned_by(pod, &self.entries, names)
    }

    pub(super) fn attend(&mut self, class: &Arc<Class>, names: &Names) {
        if !self.entries.is_empty() {
            self.owners.attend(class, ReservationId(self.last), &self.entries, names);
        }
    }

    pub(super) fn set_selector_index(&mut self, args: &profile::args::SelectorIndex) {
        self.selectors = SelectorIndex::new(args);
        for entry in self.entries.values().filter(|entry| entry.row.is_some()) {
            self.selectors.set(entry.id, Some(&entry.record.labels));
        }
    }

    /// The same for all pods of a class alike.
    pub fn owned_by_class(&self, class: &Arc<Class>) -> &[ReservationId] {
        self.owners.owned_by_class(class)
    }

    /// Whether any of them wants to be used before or after others.
    pub fn are_ordered(&self) -> bool {
        self.ordered > 0
    }

    pub fn selectors(&self) -> &SelectorIndex {
        &self.selectors
    }

    /// What the pod of a reservation counts for now; none for other pods.
    pub fn counted(&self, pod: &Pod) -> Option<&Counted> {
        pod.class.reserve.as_ref().and_then(|_| self.counted.get(&pod.uid))
    }

    fn insert(&mut self, record: Arc<Reserved>, row: Option<Row>) -> ReservationId {
        self.last += 1;
        let id = ReservationId(self.last);
        self.by_uid.insert(record.uid.clone(), id);
        self.by_name.insert(record.name.clone(), id);
        self.ordered += usize::from(record.order.is_some());
        let allocated = ResourceVector::new();
        let entry = Entry { id, record, row: None, owners: Vec::new(), allocated, is_matchable: false };
        self.entries.push(entry);
        self.move_to(id, row);
        id
    }

    fn remove(&mut self, id: ReservationId) -> Option<Entry> {
        self.move_to(id, None);
        let entry = self.entries.remove(id)?;
        self.ordered -= usize::from(entry.record.order.is_some());
        self.by_uid.remove(&entry.record.uid);
        if self.by_name.get(&entry.record.name) == Some(&id) {
            self.by_name.remove(&entry.record.name);
        }
        self.promised.retain(|_, promised| *promised != id);
        Some(entry)
    }

    /// Where the pod of a reservation is counted.
    fn move_to(&mut self, id: ReservationId, row: Option<Row>) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let (old, name) = (std::mem::replace(&mut entry.row, row), entry.record.name.clone());
        if let Some(list) = old.and_then(|old| self.by_row.get_mut(old.index())) {
            list.retain(|known| *known != id);
        }
        if let Some(row) = row {
            let entries = &self.entries;
            if self.by_row.len() <= row.index() {
                self.by_row.resize_with(row.index() + 1, Vec::new);
            }
            let list = &mut self.by_row[row.index()];
            let at = list.partition_point(|known| {
                entries.get(*known).is_some_and(|known| (&*known.record.name, known.id) < (&*name, id))
            });
            list.insert(at, id);
        }
    }

    /// Counts owners again.
    fn add_up(&mut self, id: ReservationId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let users = self.users.get(&entry.record.uid).map_or(&[][..], Vec::as_slice);
        entry.owners = users.iter().filter(|owner| Some(owner.row) == entry.row).cloned().collect();
        entry.allocated = ResourceVector::new();
        for owner in &entry.owners {
            let requests = &owner.pod.class.requests.amounts;
            for name in &entry.record.names {
                let sum = entry.allocated.get(*name).saturating_add(requests.get(*name));
                entry.allocated.set(*name, sum);
            }
        }
        let record = &entry.record;
        let is_spent = record.is_once && (!entry.owners.is_empty() || record.is_taken);
        entry.is_matchable =
            entry.row.is_some() && record.phase == Phase::Available && record.owners.is_ok() && !is_spent;
    }

    fn forget_user(&mut self, pod_uid: &str) -> Option<Box<str>> {
        let uid = self.used.remove(pod_uid)?;
        if let Some(users) = self.users.get_mut(&uid) {
            users.retain(|owner| *owner.pod.uid != *pod_uid);
            if users.is_empty() {
                self.users.remove(&uid);
            }
        }
        Some(uid)
    }

    fn add_user(&mut self, pod: &Arc<Pod>, row: Row, uid: &str) {
        let users = self.users.entry(uid.into()).or_default();
        let at = users.partition_point(|owner| owner.pod.uid < pod.uid);
        users.insert(at, Owner { pod: pod.clone(), row });
        self.used.insert(pod.uid.clone(), uid.into());
    }
}

impl Entry {
    /// Whether a pod may use it, as far as owners decide.
    pub fn is_for(&self, pod: &Pod, names: &Names) -> bool {
        let owners = self.record.owners.as_ref().ok();
        owners.is_some_and(|owners| owners::owns(owners, &pod.class, &pod.key.name, &pod.uid, names))
    }

    /// What is left for owners of one resource: never more than is held, nor what is kept back.
    pub fn available(&self, id: ResourceId) -> i64 {
        self.left(id, self.allocated.get(id)).saturating_sub(self.record.inner.get(id)).max(0)
    }

    /// What is held and not used, when owners use so much.
    pub fn left(&self, id: ResourceId, allocated: i64) -> i64 {
        let held = self.record.allocatable.get(id);
        held.saturating_sub(allocated.clamp(0, held.max(0)))
    }

    /// What its pod counts for: all that it asks for but what owners took of it. One that nobody can use any more or yet
    /// gives nothing back. `allocated` and the amounts that scoring assumes are what owners use.
    pub fn rest(&self, allocated: &ResourceVector, nonzero: (i64, i64)) -> Counted {
        let requests = &self.record.pod.class.requests;
        let mut counted = Counted::of(requests);
        if !self.is_matchable {
            return counted;
        }
        for id in &self.record.names {
            counted.amounts.set(*id, self.rest_of(*id, allocated.get(*id)));
        }
        // Nodes are scored as upstream does, which gives all back that owners use. Whether a pod fits must not be decided
        // by that: the node would have to have more than it has.
        let over = |id: ResourceId| allocated.get(id).saturating_sub(self.record.allocatable.get(id)).max(0);
        if self.record.counts(ResourceId::CPU) {
            counted.nonzero_cpu_milli = counted.nonzero_cpu_milli.saturating_sub(nonzero.0);
            counted.overdrawn.cpu_milli = over(ResourceId::CPU);
        }
        if self.record.counts(ResourceId::MEMORY) {
            counted.nonzero_memory = counted.nonzero_memory.saturating_sub(nonzero.1);
            counted.overdrawn.memory = over(ResourceId::MEMORY);
        }
        counted
    }

    /// What its pod counts for of one resource, when owners use so much of it.
    pub fn rest_of(&self, id: ResourceId, allocated: i64) -> i64 {
        let asked = self.record.pod.class.requests.amounts.get(id);
        if !self.is_matchable || !self.record.counts(id) {
            return asked;
        }
        let held = self.record.allocatable.get(id).min(asked).max(0);
        asked.saturating_sub(allocated.clamp(0, held))
    }

    /// What owners use as scoring counts it: cpu and memory.
    pub fn nonzero(&self) -> (i64, i64) {
        self.owners.iter().fold((0, 0), |(cpu, memory), owner| {
            let requests = &owner.pod.class.requests;
            let cpu = requests.nonzero_cpu_milli.saturating_add(cpu);
            (cpu, requests.nonzero_memory.saturating_add(memory))
        })
    }
}

impl Counted {
    /// A pod in full.
    pub fn of(requests: &Requests) -> Counted {
        Counted {
            amounts: requests.amounts.clone(),
            nonzero_cpu_milli: requests.nonzero_cpu_milli,
            nonzero_memory: requests.nonzero_memory,
            overdrawn: Overdrawn::default(),
        }
    }

    /// Adds the other one so many times.
    pub fn shift(&mut self, other: &Counted, times: i64) {
        match times {
            1 => self.amounts += &other.amounts,
            -1 => self.amounts -= &other.amounts,
            times => {
                for (id, units) in other.amounts.iter() {
                    let sum = self.amounts.get(id).saturating_add(units.saturating_mul(times));
                    self.amounts.set(id, sum);
                }
            }
        }
        let add = |sum: &mut i64, by: i64| *sum = sum.saturating_add(by.saturating_mul(times));
        add(&mut self.nonzero_cpu_milli, other.nonzero_cpu_milli);
        add(&mut self.nonzero_memory, other.nonzero_memory);
        add(&mut self.overdrawn.cpu_milli, other.overdrawn.cpu_milli);
        add(&mut self.overdrawn.memory, other.overdrawn.memory);
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
        let record = Reserved::of_object(object, &mut self.compiler, &mut self.names, &mut self.resources);
        self.set_record(Arc::new(record))
    }

    fn set_record(&mut self, record: Arc<Reserved>) -> ReservationNews {
        let known = self.reservations.by_uid.get(&record.uid).copied();
        let old = known.and_then(|id| self.reservations.entry(id)).map(|entry| entry.record.clone());
        let row = known.and_then(|id| self.reservations.entry(id)).and_then(|entry| entry.row);
        let row = row.or_else(|| self.held(&record.uid).map(|held| held.row));
        let id = match (known, &old) {
            // Who may use it is known for good by its number.
            (Some(id), Some(old)) if owners::are_alike(&old.owners, &record.owners) => {
                self.reservations.ordered -= usize::from(old.order.is_some());
                self.reservations.ordered += usize::from(record.order.is_some());
                if let Some(entry) = self.reservations.entries.get_mut(id) {
                    entry.record = record.clone();
                }
                id
            }
            _ => {
                if let Some(id) = known {
                    self.remove_entry(id);
                }
                let id = self.reservations.insert(record.clone(), row);
                self.reservations.owners.enter(id, &record, &mut self.names);
                id
            }
        };
        let labels = (!record.pod.node.is_empty() || row.is_some()).then_some(&record.labels);
        self.reservations.selectors.set(id, labels);
        self.settle_reservation(id);
        ReservationNews { old, new: record }
    }

    /// A Reservation is gone: its pod is released if it still counts, and nobody can use it. Pods that used it stay
    /// where they are. None when nobody knew it.
    pub fn remove_reservation(&mut self, uid: &str) -> Option<Arc<Reserved>> {
        let id = *self.reservations.by_uid.get(uid)?;
        let record = self.reservations.entry(id)?.record.clone();
        if record.source == Source::Object {
            self.release(uid);
        }
        self.remove_entry(id);
        Some(record)
    }

    fn remove_entry(&mut self, id: ReservationId) {
        let Some(entry) = self.reservations.remove(id) else { return };
        self.reservations.owners.leave(id, &entry.record, &self.names);
        self.reservations.selectors.set(id, None);
        if let Some(row) = entry.row {
            self.touch(row);
        }
    }

    /// A pod that is counted uses a reservation from now on; one that used another moves. A pod that carries the
    /// annotation (`Pod::uses`) is entered when it is counted, so only Reserve needs this.
    pub fn use_reservation(&mut self, pod_uid: &str, reservation_uid: &str) {
        if self.reservations.used_by(pod_uid) == Some(reservation_uid) {
            return;
        }
        let Some(held) = self.held(pod_uid).cloned() else { return };
        self.leave_reservation(pod_uid);
        self.reservations.add_user(&held.pod, held.row, reservation_uid);
        self.settle_uid(reservation_uid);
    }

    /// A pod uses none any more. Done by itself when a pod is released.
    pub fn leave_reservation(&mut self, pod_uid: &str) {
        // Nearly no pod uses one.
        if self.reservations.used.is_empty() {
            return;
        }
        if let Some(uid) = self.reservations.forget_user(pod_uid) {
            self.settle_uid(&uid);
        }
    }

    /// A pod that has the promise of a node has that of a reservation there too, or none any more.
    pub fn promise_reservation(&mut self, pod_uid: &str, reservation: Option<ReservationId>) {
        match reservation {
            Some(id) => drop(self.reservations.promised.insert(pod_uid.into(), id)),
            None => drop(self.reservations.promised.remove(pod_uid)),
        }
    }

    fn settle_uid(&mut self, uid: &str) {
        if let Some(id) = self.reservations.by_uid.get(uid).copied() {
            self.settle_reservation(id);
        }
    }

    /// Counts a reservation's owners again, and lets its pod count for what is left.
    fn settle_reservation(&mut self, id: ReservationId) {
        self.reservations.add_up(id);
        let Some(entry) = self.reservations.entries.get(id) else { return };
        let Some(row) = entry.row else { return };
        // The pod that is counted may be an earlier one than the record's; the next is on its way.
        let counted_pod = self.held(&entry.record.uid).map(|held| &held.pod);
        let rest = match counted_pod {
            Some(pod) if !Arc::ptr_eq(&pod.class, &entry.record.pod.class) => {
                Counted::of(&pod.class.requests)
            }
            _ => entry.rest(&entry.allocated, entry.nonzero()),
        };
        if let Some(counted) = self.reservations.counted.get_mut(&entry.record.uid)
            && *counted != rest
        {
            let was_saturated = self.columns.is_saturated(row);
            self.columns.count(row, counted, -1, &self.resources);
            self.columns.count(row, &rest, 1, &self.resources);
            *counted = rest;
            if was_saturated || self.columns.is_saturated(row) {
                self.recount_row(row);
            }
        }
        self.touch(row);
    }

    /// A pod is counted on a row: if it is a reservation's, or is one, or uses one, the ledger follows.
    pub(super) fn enter_reservations(&mut self, row: Row, pod: &Arc<Pod>, life: Life) {
        if pod.class.reserve.is_some()
            && let Some(id) = self.reservations.by_uid.get(&pod.uid).copied()
        {
            self.reservations.move_to(id, Some(row));
            let labels = self.reservations.entries.get(id).map(|entry| &entry.record.labels);
            self.reservations.selectors.set(id, labels);
            self.settle_reservation(id);
        }
        if let Some(record) = Reserved::of_pod(pod, &self.resources) {
            self.set_record(Arc::new(record));
        }
        // What one that is just being placed is marked with is left over from another attempt.
        if let Some(uses) = pod.uses.clone().filter(|_| life == Life::Confirmed) {
            self.leave_reservation(&pod.uid);
            self.reservations.add_user(pod, row, &uses.uid);
            self.settle_uid(&uses.uid);
        }
    }

    /// A pod is about to leave its row.
    pub(super) fn leave_reservations(&mut self, pod: &Arc<Pod>) {
        if pod.class.reserve.is_some()
            && let Some(id) = self.reservations.by_uid.get(&pod.uid).copied()
        {
            self.reservations.move_to(id, None);
            self.reservations.add_up(id);
        }
        if pod.operates.is_some() {
            self.remove_reservation(&pod.uid);
        }
        self.leave_reservation(&pod.uid);
    }

    /// Puts what a pod counts for on its row.
    pub(super) fn count_pod(&mut self, row: Row, pod: &Arc<Pod>) {
        self.columns.add(row, &pod.class.requests, 1, &self.resources);
        if pod.class.reserve.is_some() {
            self.reservations.counted.insert(pod.uid.clone(), Counted::of(&pod.class.requests));
        }
    }

    /// Takes off its row what a pod counts for.
    pub(super) fn discount_pod(&mut self, row: Row, pod: &Arc<Pod>) {
        self.columns.add(row, &pod.class.requests, -1, &self.resources);
        if pod.class.reserve.is_some()
            && let Some(counted) = self.reservations.counted.remove(&pod.uid)
        {
            // What its owners have taken was taken off before.
            self.columns.count(row, &Counted::of(&pod.class.requests), 1, &self.resources);
            self.columns.count(row, &counted, -1, &self.resources);
        }
    }

    /// Counts a row's pods anew.
    pub(super) fn recount_row(&mut self, row: Row) {
        let pods = self.nodes[row.index()].pods.all.iter();
        let counted = pods.map(|pod| {
            self.reservations.counted(pod).cloned().unwrap_or_else(|| Counted::of(&pod.class.requests))
        });
        self.columns.recount(row, counted, &self.resources);
    }
}

#[cfg(test)]
mod tests;
