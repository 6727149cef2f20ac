//! The scheduling queue: which pod is tried next, which wait, and what wakes them.
//!
//! A plain state machine: no clock, no lock, no randomness; every operation is told the time and who to ask
//! about pods and plugins (`Host`). Pods are known by `namespace/name` while queued and by UID while in
//! flight. Spec: scheduler-core 1.
//!
//! - `placing`: from a verdict to one of the queues (PreEnqueue, backoff, requeue strategy);
//! - `moves`: what events, activations and updates do to waiting pods;
//! - `clock`: what the passing of time does;
//! - `explain`: where a pod is, since when, why, and what would wake it.

mod backoff;
mod clock;
mod counts;
mod explain;
mod heap;
mod host;
mod in_flight;
mod moves;
mod nominator;
mod placing;
mod pool;
mod record;
mod store;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use heap::Heap;
use in_flight::InFlight;
use nominator::Nominator;
use pool::Pool;
use store::{Place, Slot, Store};

use crate::framework::event::Event;
use crate::framework::plugin_set::PluginId;
use crate::time::Time;

pub(crate) use clock::JITTER;
pub use counts::{Cause, Pending, QueueName};
pub use explain::{Waiting, Whereabouts};
pub use host::{Host, Options, Profile, Sort, priority_sort};
pub use in_flight::Flying;
pub use moves::PodUpdate;
pub use nominator::{Nominated, Nominating, NominationChange};
pub use placing::AlreadyQueued;
pub use record::{Gate, NodeName, Pod, PodKey, PodUid, ProfileId, QueuedPod};

/// Pods that wait to be scheduled, and those that are being scheduled.
///
/// A queued pod is in exactly one place: a heap or the pool. `store` has its record and says which.
#[derive(Debug)]
pub struct Queue<H: Host> {
    options: Options,
    profiles: Vec<Profile<H::HintFn>>,
    store: Store<H::Content>,
    active: Heap,
    backoff: Heap,
    error_backoff: Heap,
    pool: Pool,
    in_flight: InFlight<H::Change>,
    nominator: Nominator,
    counts: counts::Counts,
    /// How many pods were taken out to be tried.
    cycle: u64,
    /// The cycle in which something last tried to wake pods; asked for only without hints.
    move_cycle: Option<u64>,
    next_sequence: u64,
    clock: clock::Clock,
    is_closed: bool,
    /// Slots to look at, kept for its memory.
    scratch: Vec<Slot>,
}

impl<H: Host> Queue<H> {
    /// An empty queue. A pod's `ProfileId` is a place in `profiles`.
    pub fn new(options: Options, profiles: Vec<Profile<H::HintFn>>) -> Queue<H> {
        Queue {
            options,
            profiles,
            store: Store::new(),
            active: Heap::default(),
            backoff: Heap::default(),
            error_backoff: Heap::default(),
            pool: Pool::default(),
            in_flight: InFlight::new(),
            nominator: Nominator::default(),
            counts: counts::Counts::default(),
            cycle: 0,
            move_cycle: None,
            next_sequence: 0,
            clock: clock::Clock::default(),
            is_closed: false,
            scratch: Vec::new(),
        }
    }

    /// A new pod without a node. Returns the queue that has it now.
    ///
    /// One that is queued already stays where it is and only gets its new content; one of the same name but
    /// another UID takes the other's place.
    // Differs: upstream starts a fresh record, so that a duplicate event undoes attempts and backoff.
    pub fn add(&mut self, host: &mut H, pod: Pod<H::Content>, now: Time) -> QueueName {
        let now = self.observe(now);
        self.counts.heard(&Event::unscheduled_pod_add());
        if let Some(slot) = self.store.find(&pod.key) {
            if self.store.get(slot).pod.uid == pod.uid {
                self.replace_content(host, slot, pod);
                return self.queue_of(slot);
            }
            self.forget(host, slot);
        }
        self.insert_new(host, pod, Event::unscheduled_pod_add(), now)
    }

    /// Takes out the pod to try next; none when nothing is ready.
    ///
    /// With `pops_from_backoff` an idle scheduler does not wait for backoff to end, except after errors.
    /// Each pod that is returned must be followed by exactly one `done` or `add_unschedulable`.
    pub fn pop(&mut self, host: &H, now: Time) -> Option<QueuedPod<H::Content>> {
        let now = self.observe(now);
        while !self.is_closed {
            let slot = self.pop_slot(host)?;
            let mut record = self.remove_record(slot);
            record.attempts = record.attempts.saturating_add(1);
            // The same pod twice: the one in flight will come back or be bound; this one goes.
            if !self.in_flight.start(&record.pod.key, &record.pod.uid, now) {
                continue;
            }
            self.cycle += 1;
            record.start_attempt(self.cycle);
            record.since = now;
            return Some(record);
        }
        None
    }

    /// Takes out a pod that NextPod named. Its nomination stays, and neither attempts nor cycles are counted:
    /// when it comes back refused, it is tried again after backoff. Spec: scheduler-core 9.7.
    pub fn take(&mut self, host: &H, key: &PodKey, now: Time) -> Option<QueuedPod<H::Content>> {
        let now = self.observe(now);
        let slot = self.store.find(key)?;
        self.leave(host, slot);
        let mut record = self.remove_record(slot);
        record.start_attempt(self.cycle);
        record.since = now;
        Some(record)
    }

    /// The pod is not being scheduled any more. Calling it again does nothing.
    pub fn done(&mut self, uid: &PodUid) {
        self.in_flight.done(uid);
    }

    /// The pod is gone or has a node. One of the same name but another UID stays.
    // Differs: upstream goes by the name alone, and a late deletion takes the new pod with it.
    pub fn delete(&mut self, host: &H, key: &PodKey, uid: &PodUid) {
        self.nominator.delete(uid);
        self.counts.heard(&Event::unscheduled_pod_delete());
        if let Some(slot) = self.store.find(key)
            && self.store.get(slot).pod.uid == *uid
        {
            self.leave(host, slot);
            self.remove_record(slot);
        }
    }

    /// Nothing is taken out any more.
    // Differs: upstream still gives out what is active.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.in_flight.clear();
    }

    /// Sorts everything anew, after `Host::order` changed its mind about queued pods.
    pub fn resort(&mut self, host: &H) {
        self.active.rebuild(order(self.options.sort, &self.store, host));
        self.backoff.rebuild(order(self.backoff_sort(), &self.store, host));
    }

    /// Promises the pod a node, or takes the promise back.
    pub fn nominate(&mut self, host: &H, pod: &Pod<H::Content>, nominating: Nominating) {
        self.nominator.add(pod, nominating, host.is_waiting(pod));
    }

    /// Takes a promise back, as when the pod is assumed.
    pub fn delete_nomination(&mut self, uid: &PodUid) {
        self.nominator.delete(uid);
    }

    pub fn nominated_node(&self, uid: &PodUid) -> Option<&NodeName> {
        self.nominator.node_of(uid)
    }

    /// The pods that are promised the node, in the order of nomination.
    pub fn nominated_on(&self, node: &NodeName) -> &[Nominated] {
        self.nominator.on_node(node)
    }

    /// All promises, by node name.
    pub fn nominations(&self) -> impl Iterator<Item = (&NodeName, &[Nominated])> {
        self.nominator.nodes()
    }

    /// What changed about promises since the last call, in order.
    pub fn take_nomination_changes(&mut self) -> Vec<NominationChange> {
        self.nominator.take_journal()
    }

    /// Grows whenever a promise is made or taken back.
    pub fn nominations_generation(&self) -> u64 {
        self.nominator.generation()
    }

    /// How many pods were taken out to be tried.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Whether `pop` would return something now, but for pods that are in flight as well.
    pub fn is_ready(&self) -> bool {
        let early = self.options.pops_from_backoff && !self.backoff.is_empty();
        !self.is_closed && (early || !self.active.is_empty())
    }

    /// Queued pods, in flight ones not counted.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A queued pod.
    pub fn get(&self, key: &PodKey) -> Option<&QueuedPod<H::Content>> {
        self.store.find(key).map(|slot| self.store.get(slot))
    }

    /// Gauge `pending_pods`.
    pub fn pending(&self) -> Pending {
        Pending {
            active: self.active.len(),
            backoff: self.backoff.len() + self.error_backoff.len(),
            unschedulable: self.pool.unschedulable(),
            gated: self.pool.gated(),
        }
    }

    /// Counter `queue_incoming_pods_total`.
    pub fn incoming(&self) -> &BTreeMap<(QueueName, Cause), u64> {
        self.counts.incoming()
    }

    /// Gauge `unschedulable_pods`: how many queued pods each plugin refused. A zero stays once it was more.
    pub fn unschedulable(&self) -> &BTreeMap<(ProfileId, PluginId), u64> {
        self.counts.unschedulable()
    }

    /// From now on `take_event` tells.
    pub fn remember_events(&mut self) {
        self.counts.remember_events();
    }

    /// The event that the queue was last told of since the last call.
    pub fn take_event(&mut self) -> Option<Event> {
        self.counts.take_event()
    }

    /// Gauge `inflight_events`, by label.
    pub fn in_flight_events(&self) -> BTreeMap<String, usize> {
        self.in_flight.counts()
    }

    fn pop_slot(&mut self, host: &H) -> Option<Slot> {
        if let Some(entry) = self.active.pop(order(self.options.sort, &self.store, host)) {
            return Some(entry.slot);
        }
        if !self.options.pops_from_backoff {
            return None;
        }
        let entry = self.backoff.pop(order(self.backoff_sort(), &self.store, host))?;
        self.counts.came(QueueName::Active, &Cause::PopFromBackoffQ);
        Some(entry.slot)
    }

    /// A first record for the pod, on the way to the active queue.
    fn insert_new(&mut self, host: &mut H, pod: Pod<H::Content>, event: Event, now: Time) -> QueueName {
        let slot = self.store.insert(QueuedPod::new(pod, now));
        self.move_to_active(host, slot, &Cause::Event(event), now)
    }

    /// Removes a record that is in no heap and not in the pool.
    fn remove_record(&mut self, slot: Slot) -> QueuedPod<H::Content> {
        let record = self.store.remove(slot);
        self.counts.release(record.pod.profile, record.rejectors());
        record
    }

    /// Removes all traces of a queued pod.
    fn forget(&mut self, host: &H, slot: Slot) {
        self.leave(host, slot);
        let record = self.remove_record(slot);
        self.nominator.delete(&record.pod.uid);
    }

    fn queue_of(&self, slot: Slot) -> QueueName {
        match self.store.place(slot) {
            Place::Active => QueueName::Active,
            Place::Backoff | Place::ErrorBackoff => QueueName::Backoff,
            Place::Pool if self.store.get(slot).is_gated() => QueueName::Gated,
            Place::Pool | Place::Nowhere => QueueName::Unschedulable,
        }
    }

    /// The normal backoff heap goes by the queue's order within a second only where it is popped from.
    fn backoff_sort(&self) -> Sort {
        if self.options.pops_from_backoff { self.options.sort } else { Sort::Priority }
    }
}

/// The order of a heap's entries: when backoff ends, then the QueueSort plugin, then first come, first served.
fn order<'a, H: Host>(
    sort: Sort,
    store: &'a Store<H::Content>,
    host: &'a H,
) -> impl Fn(&heap::Entry, &heap::Entry) -> bool + 'a {
    move |a, b| match sort {
        Sort::Priority => a < b,
        Sort::Host => {
            let by_host = || host.order(store.get(a.slot), store.get(b.slot));
            a.ends.cmp(&b.ends).then_with(by_host).then(a.sequence.cmp(&b.sequence)).is_lt()
        }
    }
}
