//! What becomes of a pod that could not be placed. Spec: scheduler-core 4.1.

use std::sync::Arc;

use super::command::{Condition, Note, PreemptOrder, ReservationChange, StatusPatch, Subject};
use super::handlers::{Failed, Handlers};
use super::reservations::{must_reserve, reservations_message};
use super::step::Record;
use super::world::queue_uid;
use super::{Command, Engine, Verdict};
use crate::framework::plugin_set::PluginSet;
use crate::framework::{Nominating, Preemption};
use crate::pod::Pod;
use crate::queue::{self, NodeName};
use crate::time::Time;

/// Bytes that an event's note may have.
const NOTE_MAX: usize = 1024;
/// What stands for the rest of a longer one.
const NOTE_CUT: &str = " ...";

/// Why a pod was not placed.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// A verdict of plugins, as opposed to a failure of ours.
    pub(super) is_rejected: bool,
    pub(super) message: String,
    pub(super) plugins: PluginSet,
    pub(super) pending: PluginSet,
    pub(super) nominating: Nominating,
}

impl Refusal {
    /// Something went wrong.
    pub(super) fn error(message: String) -> Refusal {
        Refusal { is_rejected: false, nominating: Nominating::Clear, ..Refusal::without_plugins(message) }
    }

    /// A verdict that no plugin gave.
    pub(super) fn without_plugins(message: String) -> Refusal {
        Refusal {
            is_rejected: true,
            message,
            plugins: PluginSet::EMPTY,
            pending: PluginSet::EMPTY,
            nominating: Nominating::Keep,
        }
    }

    fn verdict(self) -> Verdict {
        match self.is_rejected {
            true => Verdict::Unschedulable { message: self.message },
            false => Verdict::Error { message: self.message },
        }
    }

    fn reason(&self) -> &'static str {
        if self.is_rejected { "Unschedulable" } else { "SchedulerError" }
    }
}

impl Engine {
    /// Gives an assumed place back, then handles the failure.
    pub(super) fn take_back(&mut self, now: Time, record: Record, refusal: Refusal) -> Verdict {
        let pod = self.with_place(&record.pod.content);
        // Gone already if the pod was deleted meanwhile.
        if self.world.cluster.forget(&pod.uid).is_err() {
            self.queue.done(&record.pod.uid);
            return Verdict::Skipped;
        }
        let is_rejected = refusal.is_rejected;
        if !is_rejected {
            self.room_is_free(now, pod.clone());
        }
        let verdict = self.handle_failure(now, record, refusal);
        if is_rejected {
            self.others_may_fit(now, pod);
        }
        verdict
    }

    /// The place that a pod had for a moment is free for others.
    fn others_may_fit(&mut self, now: Time, pod: Arc<Pod>) {
        use crate::framework::Change;
        use crate::framework::event::{Action, Event, Resource};
        let uid = queue_uid(&pod.uid);
        let event = Event::new(Resource::AssignedPod, Action::DELETE);
        let change = Change::Pod { old: Some(pod), new: None };
        self.queue.move_all(&mut self.world, &event, &change, |other| other.pod.uid != uid, now);
    }

    /// Lets handlers and the default one do what a failure needs.
    pub(super) fn handle_failure(&mut self, now: Time, record: Record, refusal: Refusal) -> Verdict {
        let pod = record.pod.content.clone();
        let message = refusal.message.clone();
        let failed = Failed { pod: &pod, message: &message, is_rejected: refusal.is_rejected };
        let verdict = match Handlers::ask(&self.handlers.before, &failed) {
            Some(commands) => {
                self.queue.done(&record.pod.uid);
                self.commands.extend(commands);
                refusal.verdict()
            }
            None => self.requeue(now, record, refusal),
        };
        self.commands.extend(Handlers::ask(&self.handlers.after, &failed).into_iter().flatten());
        verdict
    }

    /// Puts the pod back into the queue and tells why.
    fn requeue(&mut self, now: Time, mut record: Record, refusal: Refusal) -> Verdict {
        let uid = record.pod.content.uid.clone();
        let latest = self.world.waiting.get(&uid).map(|waiting| (waiting.pod.clone(), waiting.profile));
        let Some((pod, profile)) = latest else {
            // Deleted or placed meanwhile.
            self.queue.done(&record.pod.uid);
            return Verdict::Skipped;
        };
        record.pod = super::world::queued(&pod, profile);
        record.unschedulable_plugins = refusal.plugins;
        record.pending_plugins = refusal.pending;
        if let Err(error) = self.queue.add_unschedulable(&mut self.world, record, now) {
            self.commands.push(Command::Warn(error.to_string()));
        }
        self.renominate(&pod, profile, refusal.nominating);
        self.tell_failure(now, &pod, profile, &refusal);
        if let Some(waiting) = self.world.waiting.get_mut(&uid) {
            waiting.told_at = Some(now);
        }
        refusal.verdict()
    }

    fn renominate(&mut self, pod: &Arc<Pod>, profile: queue::ProfileId, nominating: Nominating) {
        if nominating == Nominating::Clear {
            self.promise(profile, pod, None);
        }
        let nominating = match nominating {
            Nominating::Keep => match self.queue.nominated_node(&queue_uid(&pod.uid)).cloned() {
                Some(node) => queue::Nominating::Override(Some(node)),
                None => queue::Nominating::Noop,
            },
            Nominating::Clear => queue::Nominating::Override(None),
            Nominating::Node(row) => {
                let name = &self.world.cluster.node(row).name;
                queue::Nominating::Override(Some(NodeName::from(&**name)))
            }
        };
        self.queue.nominate(&self.world, &super::world::queued(pod, profile), nominating);
    }

    /// What goes with the promise of a node is promised too, or no longer.
    fn promise(&mut self, profile: queue::ProfileId, pod: &Arc<Pod>, room: Option<&Preemption>) {
        let framework = &self.world.frameworks[usize::from(profile.0)];
        for plugin in framework.reserves.iter().filter_map(|hooks| hooks.reserve.as_ref()) {
            plugin.promise(&mut self.world.cluster, pod, room);
        }
    }

    /// Event and status, both only as far as they say something new.
    fn tell_failure(&mut self, now: Time, pod: &Arc<Pod>, profile: queue::ProfileId, refusal: &Refusal) {
        self.tell_event(pod, profile, "FailedScheduling", &refusal.message);
        if must_reserve(pod)
            && let Some(message) = reservations_message(&refusal.message)
        {
            self.tell_event(pod, profile, "FailedScheduling-Reservation", &message);
        }
        if pod.reserves.is_some() {
            self.tell_unplaced_reservation(now, pod, refusal);
            return;
        }
        let promised = match refusal.nominating {
            Nominating::Keep => None,
            Nominating::Clear => Some(Box::<str>::default()),
            Nominating::Node(row) => Some(self.world.cluster.node(row).name.clone()),
        };
        let Some(waiting) = self.world.waiting.get_mut(&pod.uid) else { return };
        let known = waiting.nominated.as_deref().unwrap_or(&waiting.pod.nominated);
        let nominated = promised.filter(|node| **node != *known);
        let written = (refusal.reason(), refusal.message.clone(), pod.generation);
        let is_news = waiting.written.as_ref().map_or_else(
            || !pod.is_told(refusal.reason(), &refusal.message, pod.generation),
            |known| *known != written,
        );
        let condition = is_news.then(|| Condition {
            reason: refusal.reason(),
            message: refusal.message.clone(),
            observed_generation: pod.generation,
            is_new: pod.condition.is_none() && waiting.written.is_none(),
        });
        if condition.is_none() && nominated.is_none() {
            return;
        }
        waiting.written = Some(written);
        if nominated.is_some() {
            waiting.nominated.clone_from(&nominated);
        }
        let patch = StatusPatch { pod: Subject::of(pod), condition, nominated };
        self.commands.push(Command::PatchStatus(Box::new(patch)));
    }

    fn tell_event(&mut self, pod: &Pod, profile: queue::ProfileId, reason: &'static str, message: &str) {
        self.commands.push(Command::Tell(Box::new(Note {
            about: Subject::of(pod),
            related: None,
            scheduler: self.world.framework(profile).scheduler.clone(),
            is_warning: true,
            reason,
            action: "Scheduling",
            note: cut(message),
        })));
    }

    /// A Reservation has a condition of its own, and no field for a nomination.
    fn tell_unplaced_reservation(&mut self, now: Time, pod: &Arc<Pod>, refusal: &Refusal) {
        if let Some(waiting) = self.world.waiting.get_mut(&pod.uid) {
            waiting.written = Some((refusal.reason(), refusal.message.clone(), pod.generation));
        }
        if self.keeper.probe(now, &pod.uid, &refusal.message) {
            let change = ReservationChange::Unschedulable { message: refusal.message.clone() };
            self.write_reservation(&pod.uid, change);
        }
    }

    /// Makes room on a node: victims go, and lesser pods lose their promise of it. Spec: scheduler-core 6.13.8.
    pub(super) fn preempt(&mut self, now: Time, record: &Record, preemption: &Preemption) {
        let pod = &record.pod.content;
        self.promise(record.pod.profile, pod, Some(preemption));
        let node = self.world.cluster.node(preemption.row).name.clone();
        let mut victims = Vec::new();
        for victim in preemption.calls() {
            match self.bindings.get(&victim.uid).is_some_and(|binding| binding.is_waiting()) {
                true => self.reject(now, &victim.uid, "", "preempted"),
                false => victims.push(Subject::of(victim)),
            }
        }
        let lesser: Vec<Box<str>> = self
            .queue
            .nominated_on(&NodeName::from(&*node))
            .iter()
            .filter(|other| other.priority < record.pod.priority)
            .map(|other| other.uid.as_str().into())
            .collect();
        for uid in lesser {
            self.queue.delete_nomination(&queue_uid(&uid));
            let Some(waiting) = self.world.waiting.get_mut(&uid) else { continue };
            if waiting.pod.reserves.is_some() {
                continue;
            }
            waiting.nominated = Some(Box::default());
            let patch = StatusPatch {
                pod: Subject::of(&waiting.pod),
                condition: None,
                nominated: Some(Box::default()),
            };
            self.commands.push(Command::PatchStatus(Box::new(patch)));
        }
        self.preemptions.attempts += 1;
        self.preemptions.victims.push(preemption.victims.len());
        if let Some(last) = victims.last() {
            self.world.cluster.begin_preempting(&pod.uid, &last.uid);
            self.commands.push(Command::Preempt(Box::new(PreemptOrder {
                preemptor: Subject::of(pod),
                scheduler: self.world.framework(record.pod.profile).scheduler.clone(),
                node,
                victims,
            })));
        }
    }
}

/// A note that events take. Spec: scheduler-core 4.1 step 5.
pub(super) fn cut(message: &str) -> String {
    if message.len() <= NOTE_MAX {
        return message.to_owned();
    }
    let mut end = NOTE_MAX - NOTE_CUT.len();
    // A character is not cut in two.
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{NOTE_CUT}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut() {
        for (key, length, want) in [
            ("scheduler-core#10.S28", 2000, 1024),
            ("scheduler-core#10.S64", 1024, 1024),
            ("scheduler-core#10.S64", 1025, 1024),
        ] {
            let note = cut(&"x".repeat(length));
            assert_eq!(note.len(), want, "{key}");
            assert_eq!(note.ends_with(NOTE_CUT), length > NOTE_MAX, "{key}");
        }
        let wide = "é".repeat(1000);
        assert!(cut(&wide).len() <= NOTE_MAX && cut(&wide).ends_with("é ..."));
    }
}
