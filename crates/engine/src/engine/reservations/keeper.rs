//! What the status of each Reservation should say, and when to look again. Spec: scheduler-reservation-loadaware A9.
//!
//! Pure over what it is told: objects (`note`), facts of the cluster (`Seen`), the time. It remembers what was written
//! and not seen yet, so that nothing is written twice, and begins only when the engine acts: a follower just listens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use koord_api::crd::ConditionStatus;
use koord_api::crd::reservation::{Reservation, ReservationConditionType, ReservationPhase, reason};
use koord_api::duration::GoDuration;
use koord_api::quantity::{Quantity, ResourceList};

use crate::engine::command::{ReservationChange, Subject};
use crate::hash::UidMap;
use crate::profile::args::ReservationArgs;
use crate::time::Time;

/// A reservation that can expire is looked at again when it does, but no sooner and no later than this.
const AGAIN_MIN: Duration = Duration::from_secs(3);
const AGAIN_MAX: Duration = Duration::from_secs(15);

/// The time of the last failed attempt is written no more often than this when nothing else changed.
// Differs: upstream writes it after every attempt.
const PROBED_EVERY: Duration = Duration::from_secs(60);

/// What is known of all Reservations as objects.
#[derive(Debug)]
pub(in crate::engine) struct Keeper {
    /// How long one that has ended is kept; none keeps it for good.
    gc_after: Option<Duration>,
    gc_every: Duration,
    /// Gate CleanExpiredReservationAllocated: pods lose the mark of a reservation that is no more.
    cleans_marks: bool,
    /// Reservations that are no more and may have left marks.
    orphaned: BTreeSet<Box<str>>,
    known: UidMap<Known>,
    names: BTreeMap<Box<str>, Box<str>>,
    /// Those that wait for room on their node.
    waiting: BTreeSet<Box<str>>,
    /// Those that something happened to.
    touched: BTreeSet<Box<str>>,
    timers: BTreeSet<(Time, Box<str>)>,
    /// Before it has begun, nothing is due.
    has_begun: bool,
    /// When to look for those that have ended long ago.
    next_gc: Time,
}

/// One Reservation, as its object last said.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Known {
    pub(in crate::engine) name: Box<str>,
    pub(in crate::engine) phase: ReservationPhase,
    /// Empty before it has one.
    pub(in crate::engine) node: Box<str>,
    pub(in crate::engine) allocatable: ResourceList,
    pub(in crate::engine) allocated: ResourceList,
    /// Why it is not looked at.
    pub(in crate::engine) fault: Option<String>,
    /// What users were told while it waits for a node.
    told: Option<Box<str>>,
    /// When they were last told.
    probed: Option<Time>,
    pub(in crate::engine) is_once: bool,
    revision: Box<str>,
    /// UIDs of `status.currentOwners`.
    owners: Vec<Box<str>>,
    expires_at: Option<Time>,
    /// What the next look is timed by.
    looked_at: Option<Time>,
    /// Since when it has ended.
    ended: Option<Time>,
    written: Option<Written>,
    timer: Option<Time>,
}

/// A change that was sent off.
#[derive(Clone, Debug)]
struct Written {
    change: ReservationChange,
    at: Time,
}

/// What the cluster says of one reservation now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::engine) struct Seen {
    pub(in crate::engine) is_node_there: bool,
    /// Its node has room for it, beside everything that is promised there.
    pub(in crate::engine) has_room: bool,
    /// Pods on its node that are marked as its own, ascending by UID.
    pub(in crate::engine) owners: Vec<Subject>,
    /// The sum of what they ask for, of the resources that it holds.
    pub(in crate::engine) allocated: ResourceList,
}

impl Keeper {
    pub(in crate::engine) fn new(args: Option<&ReservationArgs>) -> Keeper {
        let default = ReservationArgs::default();
        let args = args.unwrap_or(&default);
        let duration = |duration: GoDuration| duration.to_std().unwrap_or(Duration::MAX);
        Keeper {
            gc_after: (!args.disable_garbage_collection).then(|| duration(args.gc_duration)),
            gc_every: duration(args.gc_interval),
            cleans_marks: args.clean_allocated,
            orphaned: BTreeSet::new(),
            known: UidMap::default(),
            names: BTreeMap::new(),
            waiting: BTreeSet::new(),
            touched: BTreeSet::new(),
            timers: BTreeSet::new(),
            has_begun: false,
            next_gc: Time::MIN,
        }
    }

    pub(in crate::engine) fn get(&self, uid: &str) -> Option<&Known> {
        self.known.get(uid)
    }

    /// The UID of the object that has a name now.
    pub(in crate::engine) fn uid_of(&self, name: &str) -> Option<&str> {
        self.names.get(name).map(|uid| &**uid)
    }

    /// All of them, ascending by UID.
    pub(in crate::engine) fn all(&self) -> impl Iterator<Item = (&str, &Known)> {
        let mut all: Vec<(&str, &Known)> = self.known.iter().map(|(uid, known)| (&**uid, known)).collect();
        all.sort_unstable_by_key(|(uid, _)| *uid);
        all.into_iter()
    }

    /// Takes an object in, with the fault for which it is not looked at. False when this version is known.
    pub(in crate::engine) fn note(&mut self, uid: &str, object: &Reservation, fault: Option<String>) -> bool {
        let old = self.known.get(uid);
        let mut known = Known { fault, ..Known::read(object) };
        if old.is_some_and(|old| !known.revision.is_empty() && old.revision == known.revision) {
            return false;
        }
        if let Some(old) = old {
            known.timer = old.timer;
            if known.told == old.told {
                known.probed = known.probed.max(old.probed);
            }
            // What was written shows now, or something else does and it is to be written anew.
            known.written = old.written.clone().filter(|written| !known.shows(&written.change));
        }
        match known.phase {
            ReservationPhase::Waiting => self.waiting.insert(uid.into()),
            _ => self.waiting.remove(uid),
        };
        self.names.insert(known.name.clone(), uid.into());
        self.touched.insert(uid.into());
        self.known.insert(uid.into(), known);
        true
    }

    pub(in crate::engine) fn forget(&mut self, uid: &str) {
        let Some(known) = self.known.remove(uid) else { return };
        if self.cleans_marks {
            self.orphaned.insert(uid.into());
        }
        if self.uid_of(&known.name) == Some(uid) {
            self.names.remove(&known.name);
        }
        if let Some(at) = known.timer {
            self.timers.remove(&(at, uid.into()));
        }
        self.waiting.remove(uid);
        self.touched.remove(uid);
    }

    /// Something happened to one: a pod that uses it came, changed or went.
    pub(in crate::engine) fn touch(&mut self, uid: &str) {
        if self.known.contains_key(uid) {
            self.touched.insert(uid.into());
        } else if self.cleans_marks {
            self.orphaned.insert(uid.into());
        }
    }

    /// Reservations that are no more and whose marks have to go; each is told of once.
    pub(in crate::engine) fn take_orphaned(&mut self) -> Vec<Box<str>> {
        let orphaned = std::mem::take(&mut self.orphaned).into_iter();
        orphaned.filter(|uid| !self.known.contains_key(uid)).collect()
    }

    /// Whether one that found no node has to say so: it says something else, or nothing for a while.
    pub(in crate::engine) fn probe(&mut self, now: Time, uid: &str, message: &str) -> bool {
        let Some(known) = self.known.get_mut(uid) else { return false };
        let is_news = known.told.as_deref() != Some(message);
        if !is_news && known.probed.is_some_and(|at| now.since(at) < PROBED_EVERY) {
            return false;
        }
        (known.told, known.probed) = (Some(message.into()), Some(now));
        true
    }

    /// Room was freed on a node.
    pub(in crate::engine) fn touch_waiting(&mut self, node: &str) {
        if self.waiting.is_empty() {
            return;
        }
        let is_there = |uid: &str| self.known.get(uid).is_some_and(|known| *known.node == *node);
        let there: Vec<Box<str>> = self.waiting.iter().filter(|uid| is_there(uid)).cloned().collect();
        self.touched.extend(there);
    }

    /// A node is gone.
    pub(in crate::engine) fn touch_all_on(&mut self, node: &str) {
        let there = self.known.iter().filter(|(_, known)| *known.node == *node);
        self.touched.extend(there.map(|(uid, _)| uid.clone()));
    }

    /// When to look though nothing happens. Nothing before the beginning.
    pub(in crate::engine) fn next(&self) -> Option<Time> {
        if !self.has_begun || self.known.is_empty() {
            return None;
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        self.gc_after.map(|_| self.next_gc).into_iter().chain(timer).min()
    }

    /// Those to look at now, in the order of their UIDs.
    pub(in crate::engine) fn due(&mut self, now: Time) -> Vec<Box<str>> {
        self.has_begun = true;
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, uid)) = self.timers.pop_first() else { break };
            if let Some(known) = self.known.get_mut(&uid) {
                known.timer = None;
            }
            self.touched.insert(uid);
        }
        std::mem::take(&mut self.touched).into_iter().collect()
    }

    /// What has to be written of one, if anything; and sets the time of the next look.
    pub(in crate::engine) fn judge(&mut self, now: Time, uid: &str, seen: Seen) -> Option<ReservationChange> {
        let known = self.known.get_mut(uid)?;
        let change = known.judge(now, seen);
        let change = change.filter(|change| {
            let known = known.written.as_ref();
            // One that was lost on its way is sent again after a while.
            known.is_none_or(|written| written.change != *change || now.since(written.at) >= AGAIN_MAX)
        });
        if let Some(change) = &change {
            known.written = Some(Written { change: change.clone(), at: now });
        }
        let again = match (&known.written, known.again(now)) {
            (Some(_), again) => Some(again.unwrap_or(now + AGAIN_MAX)),
            (None, again) => again,
        };
        self.set_timer(uid, again);
        change
    }

    /// A change could not be written.
    pub(in crate::engine) fn failed(&mut self, now: Time, uid: &str) {
        let Some(known) = self.known.get_mut(uid) else { return };
        known.written = None;
        self.set_timer(uid, Some(now + AGAIN_MIN));
    }

    fn set_timer(&mut self, uid: &str, at: Option<Time>) {
        let Some(known) = self.known.get_mut(uid) else { return };
        if let Some(old) = std::mem::replace(&mut known.timer, at) {
            self.timers.remove(&(old, uid.into()));
        }
        if let Some(at) = at {
            self.timers.insert((at, uid.into()));
        }
    }

    /// Those that have ended long ago, by name and UID; asked now and then.
    pub(in crate::engine) fn collect(
        &mut self,
        now: Time,
        is_node_there: impl Fn(&str) -> bool,
    ) -> Vec<(Box<str>, Box<str>)> {
        let Some(gc_after) = self.gc_after.filter(|_| self.next_gc <= now) else { return Vec::new() };
        self.next_gc = now + self.gc_every;
        let is_over = |known: &Known| {
            let is_old = known.ended.is_some_and(|ended| now.since(ended) > gc_after);
            let is_lost = !known.node.is_empty() && !is_node_there(&known.node);
            known.is_finished() && (is_old || is_lost)
        };
        let over = self.known.iter().filter(|(_, known)| is_over(known));
        let mut over: Vec<_> = over.map(|(uid, known)| (known.name.clone(), uid.clone())).collect();
        over.sort_unstable();
        over
    }
}

impl Known {
    fn read(object: &Reservation) -> Known {
        let status = object.status.clone().unwrap_or_default();
        let spec = object.spec.as_ref();
        let scheduled = status.condition(&ReservationConditionType::Scheduled);
        let told = scheduled.filter(|condition| condition.status == ConditionStatus::False);
        let is_endless = spec.and_then(|spec| spec.ttl) == Some(GoDuration::ZERO);
        let expires = spec.and_then(|spec| spec.expires);
        let expires_at = object.expires_at().map(|time| Time::from(time.0));
        Known {
            name: object.metadata.name.as_deref().unwrap_or_default().into(),
            phase: object.phase(),
            node: object.node_name().unwrap_or_default().into(),
            fault: None,
            told: told.map(|condition| condition.message.as_str().into()),
            probed: told.and_then(|condition| condition.last_probe_time).map(|time| Time::from(time.0)),
            is_once: object.is_allocate_once(),
            revision: object.metadata.resource_version.as_deref().unwrap_or_default().into(),
            owners: status.current_owners.iter().map(uid_of).collect(),
            expires_at,
            // As upstream: by `expires` where it is given, even if it has no effect.
            looked_at: match expires {
                Some(expires) => Some(Time::from(expires.0)),
                None if is_endless => None,
                None => expires_at,
            },
            ended: ended(object),
            allocatable: status.allocatable,
            allocated: status.allocated,
            written: None,
            timer: None,
        }
    }

    pub(in crate::engine) fn is_finished(&self) -> bool {
        matches!(self.phase, ReservationPhase::Succeeded | ReservationPhase::Failed)
    }

    pub(in crate::engine) fn is_consumed(&self) -> bool {
        self.phase == ReservationPhase::Succeeded
    }

    pub(in crate::engine) fn is_waiting(&self) -> bool {
        self.phase == ReservationPhase::Waiting
    }

    fn is_placed(&self) -> bool {
        !self.node.is_empty() && matches!(self.phase, ReservationPhase::Available | ReservationPhase::Waiting)
    }

    /// The first thing that is not as it should be.
    fn judge(&self, now: Time, seen: Seen) -> Option<ReservationChange> {
        if self.is_finished() {
            return None;
        }
        // Differs: upstream looks at the time of placed ones only since v1.7, so that others stay for ever.
        let is_expired = self.expires_at.is_some_and(|end| now > end);
        let is_lost = self.is_placed() && !seen.is_node_there;
        if is_expired || is_lost {
            return Some(ReservationChange::Expired);
        }
        if !self.is_placed() {
            return None;
        }
        let owners = seen.owners.iter().map(|owner| &owner.uid);
        let is_same = owners.eq(&self.owners) && is_equal(&seen.allocated, &self.allocated);
        match is_same {
            true if self.phase == ReservationPhase::Waiting && seen.has_room => {
                Some(ReservationChange::Available)
            }
            true => None,
            false => Some(ReservationChange::Owners {
                owners: seen.owners,
                allocated: seen.allocated,
                is_consumed: self.is_once,
            }),
        }
    }

    /// Whether the object is as a change was to make it.
    fn shows(&self, change: &ReservationChange) -> bool {
        match change {
            ReservationChange::Unschedulable { message } => self.told.as_deref() == Some(message.as_str()),
            ReservationChange::Available => self.phase != ReservationPhase::Waiting,
            ReservationChange::Expired => self.is_finished(),
            ReservationChange::Owners { owners, allocated, .. } => {
                let is_same = owners.iter().map(|owner| &owner.uid).eq(&self.owners);
                self.is_finished() || (is_same && is_equal(allocated, &self.allocated))
            }
        }
    }

    fn again(&self, now: Time) -> Option<Time> {
        if self.is_finished() {
            return None;
        }
        let by_time = self.looked_at.map(|at| at.since(now));
        // One that waits is also looked at when nothing tells of room.
        let wait = match self.phase {
            ReservationPhase::Waiting => Some(by_time.unwrap_or(AGAIN_MAX)),
            _ => by_time,
        };
        wait.map(|wait| now + wait.clamp(AGAIN_MIN, AGAIN_MAX))
    }
}

/// Since when a reservation has ended.
// Differs: upstream never collects one that failed for another reason than its time.
fn ended(object: &Reservation) -> Option<Time> {
    if !object.is_finished() {
        return None;
    }
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut found = None;
    for condition in conditions {
        let (probe, transition) = (condition.last_probe_time, condition.last_transition_time);
        let time = match object.phase() {
            ReservationPhase::Succeeded => probe.or(transition),
            _ => transition.or(probe),
        };
        let is_telling = condition.reason == reason::EXPIRED
            || condition.condition_type == ReservationConditionType::Ready;
        if is_telling || found.is_none() {
            found = time.or(found);
        }
    }
    let created = object.metadata.creation_timestamp.as_ref().map(|time| Time::from(time.0));
    found.map(|time| Time::from(time.0)).or(created)
}

fn uid_of(owner: &k8s_openapi::api::core::v1::ObjectReference) -> Box<str> {
    owner.uid.as_deref().unwrap_or_default().into()
}

/// Amounts are equal by value; one that is not named is 0.
fn is_equal(a: &ResourceList, b: &ResourceList) -> bool {
    let covers = |a: &ResourceList, b: &ResourceList| {
        a.iter().all(|(name, amount)| {
            let other: Option<&Quantity> = b.get(name);
            other.map_or_else(|| amount.is_zero(), |other| other == amount)
        })
    };
    covers(a, b) && covers(b, a)
}

#[cfg(test)]
mod tests;
