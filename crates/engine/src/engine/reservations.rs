//! What becomes of a Reservation that the API tells of, and what is written of it. Spec:
//! scheduler-reservation-loadaware A4.1, A9.
//!
//! Its pod takes the way of every pod (`pods`, the queue, `step`, `binding`); here stands only what is different:
//! phases in place of a node's name, and ends that are final. `keeper` knows what each object's status should say;
//! `keep_reservations` asks it whenever the engine acts, so that only the one who leads writes.

use std::collections::BTreeSet;
use std::sync::Arc;

use koord_api::crd::reservation::{InvalidReservation, Reservation, validate};
use koord_api::keys::pod::annotation::RESERVATION_ALLOCATED;
use koord_api::resource::ResourceVector;

mod explain;
mod keeper;
mod report;
mod view;

pub(super) use keeper::Keeper;
pub(crate) use report::reservations_message;
pub use view::{ReservationGauge, ReservationView};

use super::command::{Note, ReservationChange, ReservationWrite, Subject, Unmark};
use super::{Command, Engine};
use crate::cluster::reservations::{Entry, ReservationNews};
use crate::cluster::{Life, Phase, Reserved};
use crate::framework::Change;
use crate::framework::event::{Action, Event, Resource};
use crate::pod::Pod;
use crate::pod::reservation::Policy;
use crate::queue::{PodUid, QueuedPod};
use crate::time::Time;
use keeper::Seen;

/// The plugin that speaks for reservations.
const PLUGIN: &str = "Reservation";
/// What plugins are told of Reservations under.
const KIND: &str = "reservations.v1alpha1.scheduling.koordinator.sh";
/// What a pod that must use a reservation hears when there is none.
const NO_MATCH: &str = "node(s) no reservations match reservation affinity";

impl Engine {
    /// A Reservation as it is now.
    pub(super) fn reservation_is(&mut self, now: Time, object: &Reservation) {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        if uid.is_empty() {
            self.warn(format!("reservation {name} has no uid and is not looked at"));
            return;
        }
        if self.keeper.get(uid).is_some_and(|known| known.is_finished()) && !object.is_finished() {
            let text = format!("reservation {name} has ended and cannot become {} again", object.phase());
            self.warn(text);
            return;
        }
        let namesake = self.keeper.uid_of(name).filter(|known| *known != uid).map(str::to_owned);
        if let Some(namesake) = namesake {
            self.reservation_is_gone(now, &namesake);
        }
        let is_new = self.keeper.get(uid).is_none();
        let fault = fault(object);
        if !self.keeper.note(uid, object, fault.clone()) {
            return;
        }
        if let Some(fault) = fault {
            self.warn(format!("reservation {name} is not looked at: {fault}"));
            return;
        }
        let before = self.promised_beside(uid);
        let ReservationNews { old, new: record } = self.world.cluster.set_reservation(object);
        let is_relieved = before.is_some_and(|before| self.is_less_promised_beside(uid, &before));
        match Standing::of(&record) {
            Standing::Over => self.reservation_ends(now, uid),
            Standing::Placed => self.reservation_is_placed(now, &record),
            Standing::Waits => self.reservation_waits(now, &record),
            Standing::Neither => {}
        }
        if is_relieved {
            self.room_is_free(now, record.pod.clone());
        }
        self.tell_plugins(now, name, if is_new { Action::ADD } else { Action::UPDATE });
        if old.is_none_or(|old| record.offers_more_than(&old)) {
            self.call_owners(now, uid);
        }
    }

    /// Pods that a reservation is for are tried again, whatever refused them: it may have what they lacked.
    // Differs: upstream leaves a pod that was refused for lack of room to wait, though a reservation is made for it.
    pub(super) fn call_owners(&mut self, now: Time, uid: &str) {
        let cluster = &self.world.cluster;
        let Some(entry) = cluster.reservations().get(uid).filter(|entry| entry.is_matchable) else { return };
        let pooled = self.queue.pooled().map(|queued| &queued.pod);
        // Whoever ignores reservations takes what they hold, too.
        let is_ignoring = |pod: &Pod| pod.class.wants.as_ref().is_some_and(|wants| wants.is_ignoring);
        let called: BTreeSet<PodUid> = pooled
            .filter(|queued| is_ignoring(&queued.content) || entry.is_for(&queued.content, &cluster.names))
            .map(|queued| queued.uid.clone())
            .collect();
        if called.is_empty() {
            return;
        }
        let is_called = |queued: &QueuedPod<Arc<Pod>>| called.contains(&queued.pod.uid);
        let event = Event::reservation_available();
        self.queue.move_all(&mut self.world, &event, &Change::None, is_called, now);
    }

    /// All that is promised on the node of a reservation.
    fn promised_beside(&self, uid: &str) -> Option<ResourceVector> {
        let row = self.world.cluster.reservations().get(uid)?.row?;
        Some(self.world.cluster.requested(row))
    }

    /// A reservation that takes in pods that run there already gives back what they use.
    fn is_less_promised_beside(&self, uid: &str, before: &ResourceVector) -> bool {
        let now = self.promised_beside(uid).unwrap_or_default();
        before.iter().any(|(id, units)| now.get(id) < units)
    }

    /// A Reservation was deleted.
    pub(super) fn reservation_is_gone(&mut self, now: Time, uid: &str) {
        let name = self.keeper.get(uid).map(|known| known.name.clone());
        self.keeper.forget(uid);
        self.reservation_ends(now, uid);
        self.world.cluster.remove_reservation(uid);
        if let Some(name) = name {
            self.tell_plugins(now, &name, Action::DELETE);
        }
    }

    /// It has a node, by us or by another.
    fn reservation_is_placed(&mut self, now: Time, record: &Arc<Reserved>) {
        let uid = &record.uid;
        let cluster = &self.world.cluster;
        let held = cluster.held(uid).filter(|held| held.life == Life::Confirmed);
        let has_moved = held.is_some_and(|held| cluster.node(held.row).name != record.pod.node);
        if has_moved {
            self.leave_node(now, uid);
        }
        self.pod_is_placed(now, record.pod.clone());
        self.reject(now, uid, PLUGIN, "the reservation has a node already");
    }

    /// It has no node, or no longer.
    fn reservation_waits(&mut self, now: Time, record: &Arc<Reserved>) {
        let is_placed = self.world.cluster.held(&record.uid).is_some_and(|held| held.life == Life::Confirmed);
        if is_placed {
            self.leave_node(now, &record.uid);
        }
        self.pod_waits(now, record.pod.clone());
    }

    /// It holds nothing any more. Pods that are to use it and wait at Permit cannot; those that need none go on, for they
    /// are counted in full themselves.
    fn reservation_ends(&mut self, now: Time, uid: &str) {
        let entry = self.world.cluster.reservations().get(uid);
        let owners = entry.into_iter().flat_map(|entry| &entry.owners).map(|owner| &owner.pod);
        let stranded: Vec<Box<str>> =
            owners.filter(|pod| must_reserve(pod)).map(|pod| pod.uid.clone()).collect();
        for pod in stranded {
            self.reject(now, &pod, PLUGIN, NO_MATCH);
        }
        self.pod_is_gone(now, uid);
    }

    /// A placed one gives its node back.
    fn leave_node(&mut self, now: Time, uid: &str) {
        let Some(pod) = self.world.cluster.held(uid).map(|held| held.pod.clone()) else { return };
        self.world.cluster.release(uid);
        self.keeper.touch_waiting(&pod.node);
        self.room_is_free(now, pod);
    }

    /// Plugins may let pods go that wait for a reservation.
    fn tell_plugins(&mut self, now: Time, name: &str, action: Action) {
        let event = Event::new(Resource::Custom(KIND.into()), action);
        let change = Change::Object { namespace: "".into(), name: name.into() };
        self.queue.move_all(&mut self.world, &event, &change, |_| true, now);
    }

    fn warn(&mut self, text: String) {
        self.commands.push(Command::Warn(text));
    }

    /// A pod with a node came, changed or went: whoever it uses may have other owners now.
    pub(super) fn notice_use(&mut self, old: Option<&Pod>, new: Option<&Pod>) {
        for used in old.into_iter().chain(new).filter_map(|pod| pod.uses.as_ref()) {
            self.keeper.touch(&used.uid);
        }
        if let (Some(old), None) = (old, new) {
            self.keeper.touch_waiting(&old.node);
            self.tell_lost_owner(old);
        }
    }

    /// The one owner of a reservation is gone before it began: the reservation is spent all the same.
    fn tell_lost_owner(&mut self, pod: &Pod) {
        let Some(used) = pod.uses.as_ref().filter(|_| pod.started.is_none()) else { return };
        let Some(known) = self.keeper.get(&used.uid).filter(|known| known.is_once && known.is_finished())
        else {
            return;
        };
        let key = crate::pod::PodKey { namespace: "".into(), name: known.name.clone() };
        let about = Subject { key, uid: used.uid.clone(), reserves: Some(known.name.as_ref().into()) };
        self.commands.push(Command::Tell(Box::new(Note {
            about,
            related: Some(Subject::of(pod)),
            scheduler: pod.class.scheduler.as_ref().into(),
            is_warning: true,
            reason: "OwnerLost",
            action: "Allocating",
            note: format!("Pod {} was deleted before it started; the reservation stays consumed", pod.key),
        })));
    }

    /// Looks at what happened to reservations and at the time; writes what their objects do not say yet.
    pub(super) fn keep_reservations(&mut self, now: Time) {
        for uid in self.keeper.due(now) {
            let seen = self.seen(&uid);
            let Some(change) = self.keeper.judge(now, &uid, seen) else { continue };
            self.write_reservation(&uid, change);
        }
        self.clean_marks();
        let cluster = &self.world.cluster;
        let is_real = |name: &str| cluster.row(name).is_some_and(|row| cluster.node(row).is_real);
        for (name, uid) in self.keeper.collect(now, is_real) {
            self.commands.push(Command::DeleteReservation { name, uid });
        }
    }

    /// Pods lose the marks of reservations that are no more.
    fn clean_marks(&mut self) {
        for uid in self.keeper.take_orphaned() {
            let users = self.world.cluster.reservations().users_of(&uid);
            let marked =
                users.iter().filter(|user| user.pod.uses.as_ref().is_some_and(|used| used.uid == uid));
            let marks = marked.map(|user| Unmark {
                pod: Subject::of(&user.pod),
                node: "".into(),
                annotations: vec![RESERVATION_ALLOCATED.to_owned()],
            });
            self.commands.extend(marks.map(|mark| Command::Unmark(Box::new(mark))));
        }
    }

    /// Sends a change off.
    pub(super) fn write_reservation(&mut self, uid: &str, change: ReservationChange) {
        let Some(name) = self.keeper.get(uid).map(|known| known.name.clone()) else { return };
        let write = ReservationWrite { name, uid: uid.into(), change };
        self.commands.push(Command::WriteReservation(Box::new(write)));
    }

    /// What the cluster says of a reservation.
    fn seen(&self, uid: &str) -> Seen {
        let cluster = &self.world.cluster;
        let Some(known) = self.keeper.get(uid) else { return Seen::default() };
        let row = cluster.row(&known.node).filter(|row| cluster.node(*row).is_real);
        let mut seen = Seen { is_node_there: row.is_some(), ..Seen::default() };
        let Some(entry) = cluster.reservations().get(uid) else { return seen };
        let is_there = |pod: &&Arc<Pod>| {
            let held = cluster.held(&pod.uid);
            let is_marked = pod.uses.as_ref().is_some_and(|used| *used.uid == *uid);
            is_marked && held.is_some_and(|held| held.life == Life::Confirmed && Some(held.row) == entry.row)
        };
        let mut sum = ResourceVector::default();
        for pod in entry.owners.iter().map(|owner| &owner.pod).filter(is_there) {
            sum += &pod.class.requests.amounts;
            seen.owners.push(Subject::of(pod));
        }
        seen.owners.sort_by(|a, b| a.uid.cmp(&b.uid));
        seen.allocated = sum.to_list(&cluster.resources);
        seen.allocated.retain(|name, _| known.allocatable.contains_key(name));
        seen.has_room = row.is_some_and(|row| self.has_room(entry, row));
        seen
    }

    /// Whether all that is promised on a node, the reservation with it, fits there, of what the reservation holds.
    pub(super) fn has_room(&self, entry: &Entry, row: crate::cluster::Row) -> bool {
        let cluster = &self.world.cluster;
        let (mut used, there) = (cluster.requested(row), &cluster.node(row).allocatable);
        let age = |entry: &Entry| (entry.record.created, entry.record.name.clone());
        let waits = |entry: &Entry| entry.record.phase == Phase::Waiting;
        // Of several that wait it is the oldest one's turn: they must not keep each other waiting.
        for other in cluster.reservations().on(row).filter(|other| waits(entry) && waits(other)) {
            if age(other) > age(entry) {
                used -= &other.record.pod.class.requests.amounts;
            }
        }
        entry.record.allocatable.iter().all(|(id, _)| used.get(id) <= there.get(id))
    }

    /// The name of the reservation that a pod uses.
    pub(super) fn used_reservation(&self, pod_uid: &str) -> Option<Box<str>> {
        let reservations = self.world.cluster.reservations();
        let entry = reservations.get(reservations.used_by(pod_uid)?)?;
        Some(entry.record.name.clone())
    }

    /// Whether a reservation goes to a node whose room is not free yet. A Restricted one has room in the pods that it takes
    /// in. Spec: A11.4.
    pub(super) fn waits_for_room(&self, pod: &Pod, row: crate::cluster::Row) -> bool {
        let entry = pod.class.reserve.as_ref().and_then(|_| self.world.cluster.reservations().get(&pod.uid));
        entry.is_some_and(|entry| {
            let record = &entry.record;
            record.pre_allocation.is_some()
                && record.policy != Policy::Restricted
                && !self.has_room(entry, row)
        })
    }
}

/// Why an object is not looked at. One that has ended needs nothing; and one with owners that cannot be read is placed
/// and held all the same, but matches nobody.
fn fault(object: &Reservation) -> Option<String> {
    match validate(Some(object)) {
        Ok(_) | Err(InvalidReservation::Owners(_)) => None,
        Err(_) if object.is_finished() => None,
        Err(fault) => Some(fault.to_string()),
    }
}

/// Whether a pod may not be placed outside of reservations.
pub(super) fn must_reserve(pod: &Pod) -> bool {
    pod.class.wants.as_ref().is_some_and(|wants| wants.affinity.is_some())
}

/// What an object means for the queue and the nodes.
enum Standing {
    Waits,
    Placed,
    Over,
    /// It contradicts itself: a node without a phase that has one.
    Neither,
}

impl Standing {
    fn of(record: &Reserved) -> Standing {
        match (record.phase, record.pod.node.is_empty()) {
            (Phase::Succeeded | Phase::Failed, _) => Standing::Over,
            (Phase::Available | Phase::Waiting, false) => Standing::Placed,
            (Phase::Pending, false) => Standing::Neither,
            (_, true) => Standing::Waits,
        }
    }
}
