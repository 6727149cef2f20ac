//! One pod from the queue to its place, or back with the reasons. Spec: scheduler-core 3.2.

use std::sync::Arc;

use super::command::{Note, Subject};
use super::failure::Refusal;
use super::handlers::nominating_after;
use super::{Attempted, Command, Engine, Verdict};
use crate::cluster::Row;
use crate::framework::timing::word;
use crate::framework::{Code, Permission, Status};
use crate::pod::Pod;
use crate::queue::{NominationChange, QueuedPod};
use crate::schedule::{Attempt, Choice, Failure};
use crate::time::Time;

/// A pod out of the queue.
pub(super) type Record = QueuedPod<Arc<Pod>>;

impl Engine {
    /// Tries the pod whose turn it is; none when nothing is ready.
    pub fn step(&mut self, now: Time) -> Option<Attempted> {
        self.observe(now);
        self.pass_time(now);
        self.keep_reservations(now);
        self.follow_nominations();
        let record = self.queue.pop(&self.world, now)?;
        let profile = usize::from(record.pod.profile.0);
        self.world.frameworks[profile].timing.open();
        let attempted = self.attempt(now, record);
        self.world.frameworks[profile].timing.close();
        self.fulfil_wishes(now);
        self.follow_nominations();
        Some(attempted)
    }

    fn attempt(&mut self, now: Time, record: Record) -> Attempted {
        let pod = record.pod.content.clone();
        let mut attempted = Attempted {
            pod: Subject::of(&pod),
            scheduler: self.world.framework(record.pod.profile).scheduler.clone(),
            attempts: record.attempts,
            since: record.initial_attempt,
            evaluated: 0,
            feasible: Vec::new(),
            feasible_count: 0,
            verdict: Verdict::Skipped,
            dumped: None,
        };
        if pod.is_deleting || self.world.cluster.held(&pod.uid).is_some() {
            self.queue.done(&record.pod.uid);
            if pod.is_deleting {
                self.tell_skipped(&attempted);
            }
            return attempted;
        }
        let found = self.search(now, &record, &pod);
        attempted.dumped = self.dump(record.pod.profile, &pod, &found);
        match found {
            Ok(choice) => {
                attempted.evaluated = choice.evaluated;
                attempted.feasible.clone_from(&choice.feasible);
                attempted.feasible_count = choice.feasible_count;
                attempted.verdict = self.place(now, record, &pod, choice);
            }
            Err(failure) => attempted.verdict = self.refuse(now, record, failure),
        }
        attempted
    }

    fn tell_skipped(&mut self, attempted: &Attempted) {
        self.commands.push(Command::Tell(Box::new(Note {
            about: attempted.pod.clone(),
            related: None,
            scheduler: attempted.scheduler.clone(),
            is_warning: true,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: format!("skip schedule deleting pod: {}", attempted.pod.name()),
        })));
    }

    fn search(&mut self, now: Time, record: &Record, pod: &Arc<Pod>) -> Result<Choice, Failure> {
        self.world.cluster.tidy();
        self.world.cluster.attend(&pod.class);
        self.world.cluster.visiting_order();
        let cluster = &self.world.cluster;
        let promised = self.queue.nominated_node(&record.pod.uid).map(|node| node.as_str());
        let promised = promised.or((!pod.nominated.is_empty()).then_some(&*pod.nominated));
        let attempt = Attempt {
            framework: &self.world.frameworks[usize::from(record.pod.profile.0)],
            nominated: &self.nominated,
            order: cluster.visited(),
            start: &mut self.search_start,
            random: &mut self.random,
            nominated_row: promised.and_then(|node| cluster.row(node)),
            now,
            // Dumps tell of every node, which memory does not.
            memory: self.memories.get_mut(usize::from(record.pod.profile.0)).filter(|_| !self.dumps.are_on()),
            // Nobody else knows the pod of a Reservation.
            extenders: if pod.reserves.is_some() { &mut [] } else { &mut self.extenders },
        };
        attempt.run(cluster, pod)
    }

    /// Promises as the queue has them now. Done whenever they may have changed, so that what is remembered of nodes does
    /// not depend on who asks in between.
    pub(super) fn follow_nominations(&mut self) {
        let changes = self.queue.take_nomination_changes();
        if std::mem::take(&mut self.is_renominating) {
            self.nominated.clear();
            for (node, pods) in self.queue.nominations() {
                let Some(row) = self.world.cluster.row(node.as_str()) else { continue };
                for pod in pods {
                    if let Some(waiting) = self.world.waiting.get(pod.uid.as_str()) {
                        self.nominated.insert(row, waiting.pod.clone());
                    }
                }
            }
            return;
        }
        for change in changes {
            match change {
                NominationChange::Made { node, uid } => {
                    let row = self.world.cluster.row(node.as_str());
                    if let (Some(row), Some(waiting)) = (row, self.world.waiting.get(uid.as_str())) {
                        self.nominated.insert(row, waiting.pod.clone());
                    }
                }
                NominationChange::Gone { node, uid } => {
                    if let Some(row) = self.world.cluster.row(node.as_str()) {
                        self.nominated.remove(row, uid.as_str());
                    }
                }
            }
        }
    }

    /// Takes the place that was found: assume, reserve, permit, and on to binding.
    fn place(&mut self, now: Time, record: Record, pod: &Arc<Pod>, choice: Choice) -> Verdict {
        let Choice { row, mut slots, .. } = choice;
        let node: Box<str> = self.world.cluster.node(row).name.clone();
        if let Err(conflict) = self.world.cluster.assume(pod.clone(), row) {
            let refusal = Refusal::error(conflict.to_string());
            return self.take_back(now, record, refusal);
        }
        self.queue.delete_nomination(&record.pod.uid);
        if let Err(status) = self.reserve(&record, pod, row, &mut slots) {
            let refusal = self.one_node(&status, "Reserve", row);
            return self.take_back(now, record, refusal);
        }
        let timers = match self.permit(now, &record, pod, row, &mut slots) {
            Ok(timers) => timers,
            Err(status) => {
                self.unreserve(record.pod.profile, pod, row, &mut slots);
                let refusal = self.one_node(&status, "Permit", row);
                return self.take_back(now, record, refusal);
            }
        };
        self.begin_binding(now, record, row, slots, timers);
        Verdict::Scheduled { node }
    }

    fn reserve(
        &mut self,
        record: &Record,
        pod: &Arc<Pod>,
        row: Row,
        slots: &mut crate::framework::Slots,
    ) -> Result<(), Status> {
        let cluster = &mut self.world.cluster;
        let framework = &self.world.frameworks[usize::from(record.pod.profile.0)];
        let begun = framework.timing.begin();
        let verdict = framework.reserves.iter().try_for_each(|hooks| {
            let Some(plugin) = &hooks.reserve else { return Ok(()) };
            let begun = framework.timing.begin_plugin();
            let verdict = plugin.reserve(cluster, slots, pod, row);
            framework.timing.end_plugin(begun, "Reserve", hooks.name, word(&verdict));
            verdict
        });
        framework.timing.end(begun, "Reserve", word(&verdict));
        if verdict.is_err() {
            self.unreserve(record.pod.profile, pod, row, slots);
        }
        verdict
    }

    /// Asks every plugin; those that want to wait are returned with when their patience ends.
    fn permit(
        &mut self,
        now: Time,
        record: &Record,
        pod: &Arc<Pod>,
        row: Row,
        slots: &mut crate::framework::Slots,
    ) -> Result<Vec<super::binding::Timer>, Status> {
        let cluster = &mut self.world.cluster;
        let framework = &self.world.frameworks[usize::from(record.pod.profile.0)];
        let begun = framework.timing.begin();
        let mut timers = Vec::new();
        let verdict = framework.permits.iter().try_for_each(|hooks| {
            let Some(plugin) = &hooks.permit else { return Ok(()) };
            let begun = framework.timing.begin_plugin();
            let permission = plugin.permit(cluster, slots, pod, row);
            framework.timing.end_plugin(begun, "Permit", hooks.name, permit_word(&permission));
            if let Permission::Wait(asked) = permission? {
                timers.push(super::binding::Timer::new(hooks.name, asked, now));
            }
            Ok(())
        });
        let permission = verdict.map(|()| timers);
        let waits = permission.as_ref().is_ok_and(|timers| !timers.is_empty());
        let status = if waits { Code::Wait.word() } else { word(&permission) };
        framework.timing.end(begun, "Permit", status);
        permission
    }

    /// The attempt failed before a place was taken.
    fn refuse(&mut self, now: Time, record: Record, failure: Failure) -> Verdict {
        let refusal = match failure {
            Failure::NoNodes => Refusal::without_plugins("no nodes available to schedule pods".to_owned()),
            Failure::Error(status) => Refusal::error(status.to_string()),
            Failure::Unfit(unfit) => {
                let mut refusal = Refusal::without_plugins(unfit.message());
                refusal.plugins = self.world.plugin_set(unfit.diagnosis.rejectors());
                refusal.pending = self.world.plugin_set(unfit.diagnosis.pending());
                refusal.nominating = unfit.nominating;
                if let Some(preemption) = &unfit.preemption {
                    self.preempt(now, &record, preemption);
                }
                refusal
            }
        };
        self.handle_failure(now, record, refusal)
    }

    /// A verdict on the chosen node reads as a cluster of one node would. Spec: scheduler-core 4.2.
    pub(super) fn one_node(&self, status: &Status, point: &str, row: Row) -> Refusal {
        if !status.code.is_rejected() {
            return Refusal::error(format!("running {point} plugin \"{}\": {status}", status.plugin));
        }
        let mut parts: Vec<String> =
            status.reasons.iter().map(|reason| format!("1 {}", reason.text)).collect();
        parts.sort();
        let mut refusal = Refusal::without_plugins(format!("0/1 nodes are available: {}.", parts.join(", ")));
        refusal.plugins = self.world.plugin_set([status.plugin]);
        if status.code == Code::Pending {
            refusal.pending = refusal.plugins;
        }
        refusal.nominating = nominating_after(status.plugin, row);
        refusal
    }
}

fn permit_word(permission: &Result<Permission, Status>) -> &'static str {
    match permission {
        Ok(Permission::Wait(_)) => Code::Wait.word(),
        other => word(other),
    }
}
