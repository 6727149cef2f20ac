//! What becomes of a pod that the API tells of. Spec: scheduler-core 1.3 and 2.5.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::world::{self, Waiting, queue_key, queue_uid};
use super::{Command, Engine};
use crate::framework::event::{Action, Event, Resource};
use crate::framework::{Change, changes};
use crate::pod::Pod;
use crate::queue::{NodeName, PodUpdate, ProfileId};
use crate::time::Time;

impl Engine {
    /// A pod as it is now.
    pub(super) fn pod_is(&mut self, now: Time, object: &core::Pod) {
        let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            self.pod_is_gone(now, object.metadata.uid.as_deref().unwrap_or_default());
            return;
        }
        let pod = Arc::new(self.world.cluster.compile(object));
        if pod.uid.is_empty() {
            let warning = format!("pod {} has no uid and is not looked at", pod.key);
            self.commands.push(Command::Warn(warning));
            return;
        }
        self.complain_of_pod(object, &pod);
        match pod.node.is_empty() {
            false => self.pod_is_placed(now, pod),
            true => self.pod_waits(now, pod),
        }
    }

    /// A pod that has a node.
    pub(super) fn pod_is_placed(&mut self, now: Time, pod: Arc<Pod>) {
        let uid = pod.uid.clone();
        self.world.others.remove(&uid);
        let was_waiting = self.world.waiting.remove(&uid).is_some();
        let old = self.world.cluster.held(&uid).map(|held| held.pod.clone());
        self.notice_use(old.as_deref(), Some(&pod));
        let is_news =
            !self.world.cluster.held(&uid).is_some_and(|held| held.life == crate::cluster::Life::Confirmed);
        let was_offered = self.is_offered(&uid);
        if let Some(conflict) = self.world.cluster.confirm(pod.clone()) {
            self.commands.push(Command::Warn(conflict.to_string()));
        }
        if was_waiting {
            self.queue.delete(&self.world, &queue_key(&pod), &queue_uid(&uid));
        }
        if pod.operates.is_some() && !was_offered {
            self.call_owners(now, &uid);
        }
        let events = match (&old, is_news) {
            (Some(old), false) if old.revision == pod.revision => return,
            (Some(old), false) => changes::pod_events(old, &pod, true),
            _ => vec![Event::new(Resource::AssignedPod, Action::ADD)],
        };
        let old = old.filter(|_| !is_news);
        for event in events {
            let change = Change::Pod { old: old.clone(), new: Some(pod.clone()) };
            self.queue.move_all(&mut self.world, &event, &change, |_| true, now);
        }
    }

    /// Whether a pod stands for a reservation that others may use.
    fn is_offered(&self, uid: &str) -> bool {
        self.world.cluster.reservations().get(uid).is_some_and(|entry| entry.is_matchable)
    }

    /// A pod without a node: ours to place, somebody else's, or one that we have a place for already.
    pub(super) fn pod_waits(&mut self, now: Time, pod: Arc<Pod>) {
        let Some(profile) = self.world.profile_of(&pod) else {
            if self.world.waiting.contains_key(&pod.uid) {
                self.stops_waiting(now, &pod.uid.clone());
            }
            self.world.others.insert(pod.uid.clone(), pod);
            return;
        };
        self.world.others.remove(&pod.uid);
        let old = self.world.waiting.get(&pod.uid).map(|waiting| waiting.pod.clone());
        if old.as_ref().is_some_and(|old| !pod.revision.is_empty() && old.revision == pod.revision) {
            return;
        }
        if self.world.cluster.held(&pod.uid).is_some() {
            self.placed_pod_changes(now, pod, profile);
            return;
        }
        self.remember(&pod, profile);
        match old {
            None => {
                self.queue.add(&mut self.world, world::queued(&pod, profile), now);
            }
            Some(old) => self.waiting_pod_changes(now, &old, &pod, profile),
        }
    }

    fn remember(&mut self, pod: &Arc<Pod>, profile: ProfileId) {
        match self.world.waiting.get_mut(&pod.uid) {
            Some(waiting) => (waiting.pod, waiting.profile) = (pod.clone(), profile),
            None => {
                let waiting =
                    Waiting { pod: pod.clone(), profile, written: None, told_at: None, nominated: None };
                self.world.waiting.insert(pod.uid.clone(), waiting);
            }
        }
    }

    fn waiting_pod_changes(&mut self, now: Time, old: &Arc<Pod>, pod: &Arc<Pod>, profile: ProfileId) {
        let events = changes::pod_events(old, pod, false);
        let update = PodUpdate {
            pod: world::queued(pod, profile),
            was_nominated: (!old.nominated.is_empty()).then(|| NodeName::from(&*old.nominated)),
            events: &events,
            change: Change::Pod { old: Some(old.clone()), new: Some(pod.clone()) },
            is_relevant: !Arc::ptr_eq(&old.class, &pod.class),
        };
        self.queue.update(&mut self.world, update, now);
        if !old.nominated.is_empty() && old.nominated != pod.nominated {
            self.promise_is_gone(now, old);
        }
    }

    /// Room that was promised to a pod is free again for those that do not come before it.
    pub(super) fn promise_is_gone(&mut self, now: Time, pod: &Arc<Pod>) {
        let event = Event::new(Resource::AssignedPod, Action::DELETE);
        let change = Change::Pod { old: Some(pod.clone()), new: None };
        let (priority, uid) = (pod.class.priority, queue_uid(&pod.uid));
        let may_gain = |other: &crate::queue::QueuedPod<Arc<Pod>>| {
            other.pod.priority <= priority && other.pod.uid != uid
        };
        self.queue.move_all(&mut self.world, &event, &change, may_gain, now);
    }

    /// A pod that we have a place for is not in the queue; only its deletion concerns us.
    fn placed_pod_changes(&mut self, now: Time, pod: Arc<Pod>, profile: ProfileId) {
        let was_deleting = self.world.waiting.get(&pod.uid).is_some_and(|waiting| waiting.pod.is_deleting);
        self.remember(&pod, profile);
        // The server binds no pod that is being deleted. A reservation it does place: its room is taken until we know.
        let may_come = pod.class.reserve.is_some() && self.is_being_bound(&pod.uid);
        if pod.is_deleting && !was_deleting && !may_come {
            self.give_place_back(now, &pod.uid.clone());
        }
    }

    /// A pod was deleted or has finished.
    pub(super) fn pod_is_gone(&mut self, now: Time, uid: &str) {
        self.stop_complaining(uid);
        self.world.others.remove(uid);
        self.world.cluster.promise_reservation(uid, None);
        if self.world.waiting.contains_key(uid) {
            self.stops_waiting(now, uid);
        }
        if self.world.cluster.is_assumed(uid) {
            self.give_place_back(now, uid);
            return;
        }
        let Some(pod) = self.world.cluster.held(uid).map(|held| held.pod.clone()) else { return };
        self.world.cluster.release(uid);
        self.notice_use(Some(&pod), None);
        self.room_is_free(now, pod);
    }

    /// The record of a pod with the node that we chose for it: in events it counts as placed.
    pub(super) fn with_place(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let cluster = &self.world.cluster;
        match cluster.held(&pod.uid).map(|held| &cluster.node(held.row).name) {
            Some(node) if pod.node.is_empty() => Arc::new(Pod { node: node.clone(), ..(**pod).clone() }),
            _ => pod.clone(),
        }
    }

    /// A pod on a node is gone: others may fit now.
    pub(super) fn room_is_free(&mut self, now: Time, pod: Arc<Pod>) {
        self.keeper.touch_waiting(&pod.node);
        let event = Event::new(Resource::AssignedPod, Action::DELETE);
        let change = Change::Pod { old: Some(pod), new: None };
        self.queue.move_all(&mut self.world, &event, &change, |_| true, now);
    }

    fn stops_waiting(&mut self, now: Time, uid: &str) {
        let Some(waiting) = self.world.waiting.remove(uid) else { return };
        let was_promised = self.queue.nominated_node(&queue_uid(uid)).is_some();
        self.queue.delete(&self.world, &queue_key(&waiting.pod), &queue_uid(uid));
        if was_promised {
            self.promise_is_gone(now, &waiting.pod);
        }
    }
}
