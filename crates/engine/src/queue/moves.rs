//! What wakes waiting pods: events of the cluster, activation, updates of the pods themselves.
//!
//! Spec: scheduler-core 1.2 and 1.3.

use super::in_flight::Recorded;
use super::placing::{Stimulus, Strategy};
use super::pool::Group;
use super::store::{Place, Slot};
use super::{Cause, Host, NodeName, Pod, PodKey, PodUid, Queue, QueueName, QueuedPod};
use crate::framework::event::Event;
use crate::framework::plugin_set::PluginSet;
use crate::time::Time;

/// An update of a pod that has no node.
#[derive(Clone, Debug)]
pub struct PodUpdate<'a, P, C> {
    /// As it is now.
    pub pod: Pod<P>,
    /// `status.nominatedNodeName` as it was before.
    pub was_nominated: Option<NodeName>,
    /// What changed, as specific as can be; a plain update if it is nothing of that.
    pub events: &'a [Event],
    pub change: C,
    /// Whether anything but status and bookkeeping changed. Asked for only without hints.
    pub is_relevant: bool,
}

impl<H: Host> Queue<H> {
    /// Something changed in the cluster: wakes the pods of the pool that it may help and that pass
    /// `pre_check`, and is remembered for the pods in flight.
    pub fn move_all(
        &mut self,
        host: &mut H,
        event: &Event,
        change: &H::Change,
        pre_check: impl Fn(&QueuedPod<H::Content>) -> bool,
        now: Time,
    ) {
        let now = self.observe(now);
        self.counts.heard(event);
        let of_profile = |profile: &super::Profile<H::HintFn>| profile.registrations.interested(event);
        let interested: Vec<PluginSet> = self.profiles.iter().map(of_profile).collect();
        let is_wildcard = event.is_wildcard();
        if !is_wildcard && interested.iter().all(|plugins| plugins.is_empty()) {
            return;
        }
        let mut slots = std::mem::take(&mut self.scratch);
        for (group, members) in self.pool.groups().filter(|(group, _)| group.is_concerned(event, &interested))
        {
            debug_assert!(group.gate.is_none() || !is_wildcard, "wildcards open no gate");
            slots.extend(members.iter().copied().filter(|slot| pre_check(self.store.get(*slot))));
        }
        let stimulus = if is_wildcard { Stimulus::Wildcard } else { Stimulus::Change(event, change) };
        self.wake(host, &mut slots, event, &stimulus, now);
        self.scratch = slots;
        if self.options.uses_hints {
            self.in_flight.record(match stimulus {
                Stimulus::Change(..) => Recorded::Change { event: event.clone(), change: change.clone() },
                _ => Recorded::Wildcard { event: event.clone() },
            });
        }
    }

    /// Moves the pods that were in the pool for too long.
    pub(super) fn flush_pool(&mut self, host: &mut H, now: Time) {
        let event = Event::unschedulable_timeout();
        let mut slots = std::mem::take(&mut self.scratch);
        let longest = self.options.max_in_unschedulable;
        for (_, members) in self.pool.groups().filter(|(group, _)| group.gate.is_none()) {
            let is_due = |slot: &Slot| now.since(self.store.get(*slot).timestamp) > longest;
            slots.extend(members.iter().copied().filter(is_due));
        }
        if !slots.is_empty() {
            self.wake(host, &mut slots, &event, &Stimulus::Wildcard, now);
            if self.options.uses_hints {
                self.in_flight.record(Recorded::Wildcard { event });
            }
        }
        self.scratch = slots;
    }

    /// Somebody wants these pods tried: they skip the rest of their wait. One that is in flight is tried once
    /// more when it comes back; unknown ones are ignored.
    pub fn activate<'a>(
        &mut self,
        host: &mut H,
        pods: impl IntoIterator<Item = (&'a PodKey, &'a PodUid)>,
        now: Time,
    ) {
        let now = self.observe(now);
        for (key, uid) in pods {
            match self.store.find(key) {
                Some(slot) if self.store.place(slot) != Place::Active => {
                    self.move_to_active(host, slot, &Cause::Event(Event::force_activate()), now);
                }
                Some(_) => {}
                None if self.in_flight.contains(uid) => {
                    self.move_cycle = Some(self.cycle);
                    if self.options.uses_hints {
                        self.in_flight.record(Recorded::ForceActivate { uid: uid.clone() });
                    }
                }
                None => {}
            }
        }
    }

    /// A pod without a node changed. One that nobody knows is added.
    pub fn update(&mut self, host: &mut H, update: PodUpdate<'_, H::Content, H::Change>, now: Time) {
        let now = self.observe(now);
        let PodUpdate { pod, was_nominated, events, change, is_relevant } = update;
        self.counts.heard(events.first().unwrap_or(&Event::unscheduled_pod_update()));
        if self.in_flight.contains(&pod.uid) {
            // Differs: without hints, upstream queues the pod a second time.
            self.move_cycle = Some(self.cycle);
            let events = events.iter().filter(|_| self.options.uses_hints);
            for event in events.cloned() {
                self.in_flight.record(Recorded::Change { event, change: change.clone() });
            }
            return;
        }
        let present = self.store.find(&pod.key);
        let (same, other) = match present {
            Some(slot) if self.store.get(slot).pod.uid == pod.uid => (present, None),
            _ => (None, present),
        };
        if let Some(slot) = other {
            self.forget(host, slot);
        }
        let Some(slot) = same else {
            self.insert_new(host, pod, Event::unscheduled_pod_update(), now);
            return;
        };
        self.nominator.update(was_nominated.as_ref(), &pod, host.is_waiting(&pod));
        self.replace_content(host, slot, pod);
        if self.store.place(slot) != Place::Pool {
            return;
        }
        if self.options.uses_hints {
            self.wake_updated(host, slot, events, &change, now);
        } else if is_relevant {
            let cause = Cause::Event(Event::unscheduled_pod_update());
            self.requeue(host, slot, Strategy::AfterBackoff, &cause, now);
        }
    }

    /// Asks for each change of a waiting pod whether it helps, until one does.
    fn wake_updated(&mut self, host: &mut H, slot: Slot, events: &[Event], change: &H::Change, now: Time) {
        for event in events {
            let strategy = self.strategy(host, self.store.get(slot), &Stimulus::Change(event, change));
            self.requeue(host, slot, strategy, &Cause::Event(event.clone()), now);
            // Differs: upstream goes on when the pod went to backoff and cannot be popped from there, and may
            // so put it into the pool as well.
            if self.store.place(slot) != Place::Pool {
                break;
            }
        }
    }

    /// The pod as it is now, in the record that it has.
    pub(super) fn replace_content(&mut self, host: &H, slot: Slot, pod: Pod<H::Content>) {
        let record = self.store.get_mut(slot);
        self.counts.release(record.pod.profile, record.rejectors());
        record.pod = pod;
        self.counts.hold(record.pod.profile, record.rejectors());
        self.rekey(host, slot);
    }

    /// Judges pods of the pool, in the order in which they came, and moves those that the stimulus helps.
    fn wake(
        &mut self,
        host: &mut H,
        slots: &mut Vec<Slot>,
        event: &Event,
        stimulus: &Stimulus<'_, H::Change>,
        now: Time,
    ) {
        slots.sort_unstable_by_key(|slot| self.store.get(*slot).sequence);
        let cause = Cause::Event(event.clone());
        for slot in slots.drain(..) {
            let strategy = self.strategy(host, self.store.get(slot), stimulus);
            if strategy == Strategy::Skip {
                continue;
            }
            self.requeue(host, slot, strategy, &cause, now);
            if self.store.place(slot) == Place::Pool {
                // A gate held it back; it counts as having come again.
                self.counts.came(QueueName::Unschedulable, &cause);
            }
        }
        self.move_cycle = Some(self.cycle);
    }
}

impl Group {
    /// Whether the event can move pods of this group. `interested` has the plugins of each profile that
    /// registered for it.
    fn is_concerned(&self, event: &Event, interested: &[PluginSet]) -> bool {
        let Some(interested) = interested.get(usize::from(self.profile.0)) else {
            return self.gate.is_none();
        };
        match self.gate {
            // Even a gate that registered for everything is not opened by a wildcard.
            Some(gate) => !event.is_wildcard() && interested.contains(gate),
            None => {
                event.is_wildcard() || self.rejectors.is_empty() || self.rejectors.intersects(*interested)
            }
        }
    }
}
