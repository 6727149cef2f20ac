//! From a verdict to one of the queues: PreEnqueue, backoff, and what events meanwhile change about it.
//!
//! Spec: scheduler-core 1.2 and 1.3.

use std::cmp::Reverse;

use super::heap::Entry;
use super::in_flight::{Recorded, Since};
use super::store::{Place, Slot};
use super::{Cause, Gate, Host, Nominating, PodKey, PodUid, Queue, QueueName, QueuedPod, order};
use crate::framework::event::Event;
use crate::framework::hint::Hint;
use crate::time::Time;

/// A pod that came back is in a queue already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Pod {key} is already present in the {queue} queue")]
pub struct AlreadyQueued {
    pub key: PodKey,
    pub queue: QueueName,
}

/// What is to become of a pod that was refused. The stronger, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strategy {
    /// Nothing that happened helps it.
    Skip,
    /// It may fit; tried again when its backoff is over.
    AfterBackoff,
    /// What it was pending on has happened.
    Immediately,
}

/// Something that may wake pods.
pub(super) enum Stimulus<'a, C> {
    Change(&'a Event, &'a C),
    /// For everybody.
    Wildcard,
    /// For one pod only.
    Force(&'a PodUid),
}

impl<C> Recorded<C> {
    fn stimulus(&self) -> Stimulus<'_, C> {
        match self {
            Recorded::Change { event, change } => Stimulus::Change(event, change),
            Recorded::ForceActivate { uid } => Stimulus::Force(uid),
            Recorded::Wildcard { .. } => Stimulus::Wildcard,
        }
    }
}

impl<H: Host> Queue<H> {
    /// Takes back a pod that could not be placed, with the plugins that refused it in its record; none of
    /// them means that the attempt failed without a verdict. The pod is not in flight afterwards, even when
    /// it is not taken because it is queued already.
    pub fn add_unschedulable(
        &mut self,
        host: &mut H,
        record: QueuedPod<H::Content>,
        now: Time,
    ) -> Result<QueueName, AlreadyQueued> {
        let now = self.observe(now);
        let uid = record.pod.uid.clone();
        let answer = match self.store.find(&record.pod.key) {
            Some(slot) => Err(AlreadyQueued { key: record.pod.key, queue: self.queue_of(slot).part() }),
            None => Ok(self.take_back(host, record, now)),
        };
        self.in_flight.done(&uid);
        answer
    }

    fn take_back(&mut self, host: &mut H, mut record: QueuedPod<H::Content>, now: Time) -> QueueName {
        if record.rejectors().is_empty() {
            record.consecutive_errors = record.consecutive_errors.saturating_add(1);
        } else {
            record.unschedulable_count = record.unschedulable_count.saturating_add(1);
            record.consecutive_errors = 0;
        }
        record.gate = None;
        record.timestamp = now;
        record.backoff_ends = self.options.backoff_ends(&record);
        let strategy = self.strategy_since_pop(host, &record);
        self.counts.hold(record.pod.profile, record.rejectors());
        let slot = self.store.insert(record);
        let cause = Cause::ScheduleAttemptFailure;
        if self.options.uses_hints || strategy == Strategy::Skip {
            self.requeue(host, slot, strategy, &cause, now)
        } else {
            // Without hints it goes to backoff even if that is over already.
            self.move_to_backoff(host, slot, &cause, now)
        }
    }

    /// What the events since the pod was taken out mean for it.
    fn strategy_since_pop(&self, host: &mut H, record: &QueuedPod<H::Content>) -> Strategy {
        if record.rejectors().is_empty() {
            return Strategy::AfterBackoff;
        }
        if !self.options.uses_hints {
            let was_moved = self.move_cycle.is_some_and(|cycle| cycle >= record.cycle);
            return if was_moved { Strategy::AfterBackoff } else { Strategy::Skip };
        }
        let events = match self.in_flight.since(&record.pod.uid) {
            Since::Unknown => return Strategy::AfterBackoff,
            Since::Events(events) => events,
        };
        let strongest = strongest(record);
        let mut strategy = Strategy::Skip;
        for event in events {
            strategy = strategy.max(self.strategy(host, record, &event.stimulus()));
            if strategy >= strongest {
                break;
            }
        }
        strategy
    }

    /// What one event means for a pod that was refused. Whether it concerns a gate is asked elsewhere.
    pub(super) fn strategy(
        &self,
        host: &mut H,
        record: &QueuedPod<H::Content>,
        stimulus: &Stimulus<'_, H::Change>,
    ) -> Strategy {
        let rejectors = record.rejectors();
        if rejectors.is_empty() {
            return Strategy::AfterBackoff;
        }
        let (event, change) = match stimulus {
            Stimulus::Change(event, change) => (*event, *change),
            Stimulus::Wildcard => return Strategy::AfterBackoff,
            Stimulus::Force(uid) if **uid == record.pod.uid => return Strategy::AfterBackoff,
            Stimulus::Force(_) => return Strategy::Skip,
        };
        // A pod of a profile that is not there must not be stuck.
        let Some(profile) = self.profiles.get(usize::from(record.pod.profile.0)) else {
            return Strategy::AfterBackoff;
        };
        let mut strategy = Strategy::Skip;
        for plugin in rejectors.iter() {
            let is_pending = record.pending_plugins.contains(plugin);
            for registration in profile.registrations.of(plugin).iter().filter(|r| r.event.matches(event)) {
                let hint = match &registration.hint {
                    Some(function) if self.options.uses_hints => {
                        host.hint(plugin, function, record, event, change)
                    }
                    _ => Ok(Hint::Queue),
                };
                match hint {
                    Ok(Hint::Skip) => continue,
                    Ok(Hint::Queue) | Err(_) if is_pending => return Strategy::Immediately,
                    Ok(Hint::Queue) | Err(_) => strategy = Strategy::AfterBackoff,
                }
                if strategy >= strongest(record) {
                    return strategy;
                }
            }
        }
        strategy
    }

    /// Carries a strategy out. Returns the queue that has the pod then.
    pub(super) fn requeue(
        &mut self,
        host: &mut H,
        slot: Slot,
        strategy: Strategy,
        cause: &Cause,
        now: Time,
    ) -> QueueName {
        let is_backing_off = self.options.is_backing_off(self.store.get(slot), now);
        match strategy {
            Strategy::Skip => {
                self.move_to_pool(host, slot, cause, now);
                self.queue_of(slot)
            }
            Strategy::AfterBackoff if is_backing_off => self.move_to_backoff(host, slot, cause, now),
            Strategy::AfterBackoff | Strategy::Immediately => self.move_to_active(host, slot, cause, now),
        }
    }

    /// Into the active queue, or the pool if a PreEnqueue plugin holds it.
    pub(super) fn move_to_active(&mut self, host: &mut H, slot: Slot, cause: &Cause, now: Time) -> QueueName {
        let in_backoff = matches!(self.store.place(slot), Place::Backoff | Place::ErrorBackoff);
        // Pods that may be popped from backoff passed PreEnqueue on their way into it.
        if !(in_backoff && self.options.pops_from_backoff) {
            self.pre_enqueue(host, slot, now);
            if self.store.get(slot).is_gated() {
                return self.move_to_pool(host, slot, cause, now);
            }
        }
        self.leave(host, slot);
        self.arrive(slot, Place::Active, now);
        let record = self.store.get_mut(slot);
        record.initial_attempt.get_or_insert(now);
        let entry = sorted(record, slot, Time::MIN);
        self.active.push(entry, order(self.options.sort, &self.store, host));
        self.counts.came(QueueName::Active, cause);
        if is_own_event(cause) {
            let pod = &self.store.get(slot).pod;
            self.nominator.add(pod, Nominating::Noop, host.is_waiting(pod));
        }
        QueueName::Active
    }

    /// Into the backoff queue, or the pool if a PreEnqueue plugin holds it.
    pub(super) fn move_to_backoff(
        &mut self,
        host: &mut H,
        slot: Slot,
        cause: &Cause,
        now: Time,
    ) -> QueueName {
        if self.options.pops_from_backoff {
            self.pre_enqueue(host, slot, now);
            if self.store.get(slot).is_gated() {
                return self.move_to_pool(host, slot, cause, now);
            }
        }
        self.leave(host, slot);
        let is_error = self.store.get(slot).rejectors().is_empty();
        let place = if is_error { Place::ErrorBackoff } else { Place::Backoff };
        self.arrive(slot, place, now);
        let entry = self.backoff_entry(slot);
        match place {
            Place::ErrorBackoff => self.error_backoff.push(entry, |a, b| a < b),
            _ => self.backoff.push(entry, order(self.backoff_sort(), &self.store, host)),
        }
        self.counts.came(QueueName::Backoff, cause);
        QueueName::Backoff
    }

    /// Into the pool; one that is there already stays, in the group that it now belongs to.
    fn move_to_pool(&mut self, host: &H, slot: Slot, cause: &Cause, now: Time) -> QueueName {
        if self.store.place(slot) == Place::Pool {
            self.pool.refresh(slot, self.store.get(slot));
        } else {
            self.leave(host, slot);
            self.arrive(slot, Place::Pool, now);
            self.pool.insert(slot, self.store.get(slot));
            self.counts.came(QueueName::Unschedulable, cause);
        }
        self.queue_of(slot)
    }

    /// Out of whatever heap or pool has the pod.
    pub(super) fn leave(&mut self, host: &H, slot: Slot) {
        match self.store.place(slot) {
            Place::Nowhere => return,
            Place::Active => self.active.remove(slot, order(self.options.sort, &self.store, host)),
            Place::Backoff => self.backoff.remove(slot, order(self.backoff_sort(), &self.store, host)),
            Place::ErrorBackoff => self.error_backoff.remove(slot, |a, b| a < b),
            Place::Pool => self.pool.remove(slot),
        };
        self.store.set_place(slot, Place::Nowhere);
    }

    /// Puts the pod's present sort key in the place of its old one.
    pub(super) fn rekey(&mut self, host: &H, slot: Slot) {
        let record = self.store.get(slot);
        match self.store.place(slot) {
            Place::Active => {
                let entry = sorted(record, slot, Time::MIN);
                self.active.replace(entry, order(self.options.sort, &self.store, host));
            }
            Place::Backoff => {
                let entry = self.backoff_entry(slot);
                self.backoff.replace(entry, order(self.backoff_sort(), &self.store, host));
            }
            // The error heap goes by time only, which an update does not change.
            Place::ErrorBackoff | Place::Nowhere => {}
            Place::Pool => self.pool.refresh(slot, record),
        }
    }

    fn arrive(&mut self, slot: Slot, place: Place, now: Time) {
        self.store.set_place(slot, place);
        let record = self.store.get_mut(slot);
        record.since = now;
        record.sequence = self.next_sequence;
        self.next_sequence += 1;
    }

    fn backoff_entry(&self, slot: Slot) -> Entry {
        let record = self.store.get(slot);
        let ends = record.backoff_ends.unwrap_or(Time::MIN);
        if self.options.pops_from_backoff && self.store.place(slot) == Place::Backoff {
            return sorted(record, slot, ends);
        }
        Entry { ends, priority: Reverse(0), timestamp: Time::MIN, sequence: record.sequence, slot }
    }

    /// Asks the PreEnqueue plugins: the one that held the pod first, then the others as configured. The first
    /// that refuses becomes its gate.
    fn pre_enqueue(&mut self, host: &mut H, slot: Slot, now: Time) {
        let record = self.store.get(slot);
        let holder = record.gate.as_ref().map(|gate| gate.plugin);
        let configured =
            self.profiles.get(usize::from(record.pod.profile.0)).map(|p| p.pre_enqueue.as_slice());
        // Differs: upstream asks them in random order.
        let others = configured.unwrap_or_default().iter().copied().filter(|plugin| Some(*plugin) != holder);
        let gate = holder.into_iter().chain(others).find_map(|plugin| {
            let status = host.pre_enqueue(plugin, record).err()?;
            Some(Gate { plugin, status })
        });
        let record = self.store.get_mut(slot);
        if let Some(gate) = &gate {
            if !record.rejectors().contains(gate.plugin) {
                self.counts.hold(record.pod.profile, [gate.plugin].into_iter().collect());
            }
            record.unschedulable_plugins.insert(gate.plugin);
            if holder.is_none() {
                record.since = now;
            }
        }
        record.gate = gate.map(Box::new);
    }
}

/// The strongest strategy that events can bring about for the pod.
fn strongest<P>(record: &QueuedPod<P>) -> Strategy {
    if record.pending_plugins.is_empty() { Strategy::AfterBackoff } else { Strategy::Immediately }
}

/// An entry with PrioritySort's key.
fn sorted<P>(record: &QueuedPod<P>, slot: Slot, ends: Time) -> Entry {
    let (timestamp, sequence) = (record.timestamp, record.sequence);
    Entry { ends, priority: Reverse(record.pod.priority), timestamp, sequence, slot }
}

/// Whether the pod comes from the API, and so may bring a nomination.
fn is_own_event(cause: &Cause) -> bool {
    let Cause::Event(event) = cause else {
        return false;
    };
    *event == Event::unscheduled_pod_add() || *event == Event::unscheduled_pod_update()
}
