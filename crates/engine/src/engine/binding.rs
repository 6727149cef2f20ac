//! From a place taken to a pod bound: wait at Permit, writes that come first, the bind. Spec: scheduler-core 3.4 and 4.

use std::time::Duration;

use koord_api::duration::GoDuration;
use koord_api::keys::pod::annotation::RESERVATION_ALLOCATED;

use super::command::{self, BindPlan, Note, StatusPatch, Subject, Unmark};
use super::failure::Refusal;
use super::input::Outcome;
use super::step::Record;
use super::{Command, Engine};
use crate::cluster::{Life, Row, Wish};
use crate::explain::{BindStep, PermitWait, State};
use crate::extender;
use crate::framework::timing::word;
use crate::framework::{Code, Nominating, PluginName, Slots, Status};
use crate::pod::Pod;
use crate::queue::{self, ProfileId};
use crate::time::Time;

/// Longer waits at Permit are cut to this, but for our own plugins.
const PERMIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Plugins that get the time they ask for.
// Differs: upstream cuts them too, so that gangs cannot wait longer than 15 minutes.
const PATIENT: &[PluginName] = &["Coscheduling"];

/// A pod that has a place and is not bound yet.
pub(super) struct Binding {
    pub(super) record: Record,
    pub(super) row: Row,
    slots: Slots,
    stage: Stage,
    /// What must not stay written if the bind fails.
    marks: Vec<Unmark>,
    /// Since when it has the place.
    since: Time,
}

enum Stage {
    /// Plugins at Permit want to wait.
    Waiting {
        timers: Vec<Timer>,
    },
    /// Writes are on their way.
    Preparing {
        settles_until: Option<Time>,
    },
    /// They are done and have to take effect.
    Settling {
        until: Option<Time>,
    },
    Binding,
}

/// How long a plugin waits at Permit.
pub(super) struct Timer {
    plugin: PluginName,
    patience: Duration,
    ends: Time,
}

impl Timer {
    pub(super) fn new(plugin: PluginName, asked: Duration, now: Time) -> Timer {
        let patience = if PATIENT.contains(&plugin) { asked } else { asked.min(PERMIT_MAX) };
        Timer { plugin, patience, ends: now + patience }
    }
}

impl Binding {
    /// The clock was set back: what is left of every wait stays as long as it was.
    fn set_back(&mut self, by: Duration) {
        self.since = self.since - by;
        match &mut self.stage {
            Stage::Waiting { timers } => timers.iter_mut().for_each(|timer| timer.ends = timer.ends - by),
            Stage::Preparing { settles_until: Some(until) } | Stage::Settling { until: Some(until) } => {
                *until = *until - by;
            }
            Stage::Preparing { settles_until: None } | Stage::Settling { until: None } | Stage::Binding => {}
        }
    }

    /// Whether it waits at Permit.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. })
    }

    pub(super) fn row(&self) -> Row {
        self.row
    }

    /// For people.
    pub(super) fn state(&self, node: String) -> State {
        let since = self.since;
        let step = match &self.stage {
            Stage::Waiting { timers } => {
                let wait = |timer: &Timer| PermitWait { plugin: timer.plugin.to_owned(), until: timer.ends };
                let waits_for = timers.iter().map(wait).collect();
                return State::WaitingAtPermit { since, node, waits_for };
            }
            Stage::Preparing { .. } => BindStep::Preparing,
            Stage::Settling { .. } => BindStep::Settling,
            Stage::Binding => BindStep::Binding,
        };
        State::Binding { since, node, step }
    }

    /// When something has to happen though nothing else does.
    fn ends(&self) -> Option<Time> {
        match &self.stage {
            Stage::Waiting { timers } => timers.iter().map(|timer| timer.ends).min(),
            Stage::Settling { until } => *until,
            Stage::Preparing { .. } | Stage::Binding => None,
        }
    }
}

impl Engine {
    /// Notes the time, and moves deadlines with a clock that was set back. The queue does the same with its own.
    pub(super) fn observe(&mut self, now: Time) {
        let back = self.latest.since(now);
        if back > queue::JITTER {
            self.bindings.values_mut().for_each(|binding| binding.set_back(back));
            self.latest = now;
        }
        self.latest = self.latest.max(now);
    }

    pub(super) fn begin_binding(
        &mut self,
        now: Time,
        record: Record,
        row: Row,
        slots: Slots,
        timers: Vec<Timer>,
    ) {
        let uid = record.pod.content.uid.clone();
        let waits = !timers.is_empty();
        if waits {
            self.announce(&record.pod.content.clone(), row);
        }
        self.bindings.insert(
            uid.clone(),
            Binding { record, row, slots, stage: Stage::Waiting { timers }, marks: Vec::new(), since: now },
        );
        if !waits {
            self.prepare_binding(now, &uid);
        }
    }

    /// Tells the API where the pod will go, while that takes its time.
    fn announce(&mut self, pod: &Pod, row: Row) {
        // A Reservation has no field for it.
        if pod.reserves.is_some() {
            return;
        }
        let node = self.world.cluster.node(row).name.clone();
        if let Some(waiting) = self.world.waiting.get_mut(&pod.uid) {
            waiting.nominated = Some(node.clone());
        }
        let patch = StatusPatch { pod: Subject::of(pod), condition: None, nominated: Some(node) };
        self.commands.push(Command::PatchStatus(Box::new(patch)));
    }

    /// Permit is over; plugins say what has to be written first.
    fn prepare_binding(&mut self, now: Time, uid: &str) {
        if self.is_anothers(uid) {
            return self.fail_binding(now, uid, Refusal::error("schedulerName unmatched".to_owned()));
        }
        let Some(binding) = self.bindings.get_mut(uid) else { return };
        let pod = binding.record.pod.content.clone();
        self.queue.done(&binding.record.pod.uid);
        let framework = &self.world.frameworks[usize::from(binding.record.pod.profile.0)];
        let mut plan = BindPlan::default();
        // What has no pod is written to the Reservation, which is a point of its own.
        let point = if pod.reserves.is_some() { "PreBindReservation" } else { "PreBind" };
        let mut verdict = Ok(());
        for hooks in &framework.pre_binds {
            let Some(plugin) = &hooks.pre_bind else { continue };
            let begun = framework.timing.begin_plugin();
            verdict = plugin.plan(&self.world.cluster, &binding.slots, &pod, binding.row, now, &mut plan);
            framework.timing.end_plugin(begun, point, hooks.name, word(&verdict));
            if verdict.is_err() {
                break;
            }
        }
        if let Err(status) = verdict {
            self.fail_binding(now, uid, pre_bind_refusal(&status));
        } else if plan.is_empty() {
            self.post_binding(uid);
        } else {
            plan.pod = Some(Subject::of(&pod));
            plan.node = self.world.cluster.node(binding.row).name.clone();
            plan.nominates = pod.reserves.is_none();
            binding.marks = marks(&plan);
            if let Some(waiting) = self.world.waiting.get_mut(uid) {
                waiting.nominated = Some(plan.node.clone());
            }
            binding.stage = Stage::Preparing { settles_until: plan.settles_until };
            self.commands.push(Command::Prepare(Box::new(plan)));
        }
    }

    /// Whether a pod asks for another profile than the one that found its place: a label can change while it waits.
    /// Spec: scheduler-core 9.3.
    fn is_anothers(&self, uid: &str) -> bool {
        if !self.checks_scheduler {
            return false;
        }
        let profile = self.bindings.get(uid).map(|binding| binding.record.pod.profile);
        let asked = self.world.waiting.get(uid).map(|waiting| waiting.profile);
        self.world.others.contains_key(uid) || (asked.is_some() && asked != profile)
    }

    fn post_binding(&mut self, uid: &str) {
        let Some(binding) = self.bindings.get_mut(uid) else { return };
        binding.stage = Stage::Binding;
        let (pod, row) = (binding.record.pod.content.clone(), binding.row);
        let profile = binding.record.pod.profile;
        let extender = self.binder(&pod);
        let waits_for_room = self.waits_for_room(&pod, row);
        self.commands.push(Command::Bind(command::Binding {
            pod: Subject::of(&pod),
            node: self.world.cluster.node(row).name.clone(),
            scheduler: self.world.framework(profile).scheduler.clone(),
            extender,
            waits_for_room,
        }));
    }

    /// The extender that binds a pod, if one does.
    fn binder(&self, pod: &std::sync::Arc<Pod>) -> Option<usize> {
        let is_ours = pod.reserves.is_some();
        if is_ours { None } else { extender::binder(&self.extenders, &self.world.cluster, pod) }
    }

    /// An extender's own words stand alone, unless our binder was asked after it.
    fn bind_failure(&self, uid: &str, message: String) -> String {
        let pod = self.bindings.get(uid).map(|binding| &binding.record.pod.content);
        let binder = pod.and_then(|pod| self.binder(pod));
        let plugin =
            if pod.is_some_and(|pod| pod.reserves.is_some()) { "Reservation" } else { "DefaultBinder" };
        match binder.is_some_and(|at| !self.extenders[at].terms().is_ignorable) {
            true => message,
            false => format!("running Bind plugin \"{plugin}\": {message}"),
        }
    }

    /// What became of a command. One that nobody waits for any more is ignored.
    pub(super) fn outcome(&mut self, now: Time, uid: &str, outcome: Outcome) {
        match outcome {
            Outcome::Prepared => {
                let Some(binding) = self.bindings.get_mut(uid) else { return };
                if let Stage::Preparing { settles_until } = binding.stage {
                    binding.stage = Stage::Settling { until: settles_until };
                    self.settle(now, uid);
                }
            }
            Outcome::PrepareFailed { message } => self.fail_binding(now, uid, Refusal::error(message)),
            Outcome::Bound => self.is_bound(uid),
            Outcome::BindFailed { message } => {
                // The API may have bound it all the same, and the watch was quicker than the answer.
                if self.world.cluster.held(uid).is_some_and(|held| held.life == Life::Confirmed) {
                    self.is_bound(uid);
                    return;
                }
                let message = self.bind_failure(uid, message);
                self.fail_binding(now, uid, Refusal::error(message));
            }
            Outcome::Preempted => {
                self.world.cluster.end_preempting(uid);
            }
            Outcome::PreemptFailed { message } => {
                self.world.cluster.end_preempting(uid);
                let text = format!("preemption on behalf of pod {uid} did not succeed: {message}");
                self.commands.push(Command::Warn(text));
                self.activate(now, uid);
            }
            Outcome::Written => {}
            Outcome::WriteFailed { message } => {
                self.keeper.failed(now, uid);
                let text = format!("status of reservation {uid} could not be written: {message}");
                self.commands.push(Command::Warn(text));
            }
        }
    }

    fn is_bound(&mut self, uid: &str) {
        let Some(mut binding) = self.bindings.remove(uid) else { return };
        self.run_post_binds(&mut binding);
        let about = Subject::of(&binding.record.pod.content);
        let node = &self.world.cluster.node(binding.row).name;
        let note = format!("Successfully assigned {} to {node}", about.name());
        let told = Note {
            about,
            related: None,
            scheduler: self.world.framework(binding.record.pod.profile).scheduler.clone(),
            is_warning: false,
            reason: "Scheduled",
            action: "Binding",
            note,
        };
        let used = self.used_reservation(uid);
        let second = used.map(|name| Note {
            reason: "ReservationAllocated",
            note: format!("Allocated from reservation {name}"),
            ..told.clone()
        });
        self.commands.extend([told].into_iter().chain(second).map(|note| Command::Tell(Box::new(note))));
    }

    /// Plugins hear that a pod was bound.
    fn run_post_binds(&mut self, binding: &mut Binding) {
        let (pod, row) = (binding.record.pod.content.clone(), binding.row);
        let framework = &self.world.frameworks[usize::from(binding.record.pod.profile.0)];
        let timing = &framework.timing;
        timing.open();
        let begun = timing.begin();
        for hooks in &framework.post_binds {
            let Some(plugin) = &hooks.post_bind else { continue };
            let begun = timing.begin_plugin();
            plugin.bound(&mut self.world.cluster, &mut binding.slots, &pod, row);
            timing.end_plugin(begun, "PostBind", hooks.name, Code::Success.word());
        }
        timing.end(begun, "PostBind", Code::Success.word());
        timing.close();
    }

    /// Binds if all that was written has taken effect.
    fn settle(&mut self, now: Time, uid: &str) {
        let Some(binding) = self.bindings.get(uid) else { return };
        let Stage::Settling { until } = binding.stage else { return };
        let pod = &binding.record.pod.content;
        let framework = &self.world.frameworks[usize::from(binding.record.pod.profile.0)];
        for hooks in &framework.pre_binds {
            let Some(plugin) = &hooks.pre_bind else { continue };
            match plugin.is_settled(&self.world.cluster, &binding.slots, pod, binding.row) {
                Ok(true) => {}
                Ok(false) if until.is_none_or(|until| now < until) => return,
                Ok(false) => {
                    let text = format!(
                        "running PreBind plugin \"{}\": binding volumes: context deadline exceeded",
                        hooks.name
                    );
                    self.fail_binding(now, uid, Refusal::error(text));
                    return;
                }
                Err(status) => {
                    self.fail_binding(now, uid, pre_bind_refusal(&status));
                    return;
                }
            }
        }
        self.post_binding(uid);
    }

    /// Asks again for every pod that waits for its writes to take effect.
    pub(super) fn settle_all(&mut self, now: Time) {
        let mut settling: Vec<Box<str>> = self
            .bindings
            .iter()
            .filter(|(_, binding)| matches!(binding.stage, Stage::Settling { .. }))
            .map(|(uid, _)| uid.clone())
            .collect();
        settling.sort_unstable();
        for uid in settling {
            self.settle(now, &uid);
        }
    }

    fn fail_binding(&mut self, now: Time, uid: &str, refusal: Refusal) {
        let Some(mut binding) = self.bindings.remove(uid) else { return };
        let pod = binding.record.pod.content.clone();
        let marks = std::mem::take(&mut binding.marks).into_iter();
        self.commands.extend(marks.map(|mark| Command::Unmark(Box::new(mark))));
        self.unreserve(binding.record.pod.profile, &pod, binding.row, &mut binding.slots);
        self.take_back(now, binding.record, refusal);
    }

    /// Lets plugins give back what they took, in reverse order.
    pub(super) fn unreserve(
        &mut self,
        profile: ProfileId,
        pod: &std::sync::Arc<Pod>,
        row: Row,
        slots: &mut Slots,
    ) {
        let framework = &self.world.frameworks[usize::from(profile.0)];
        let begun = framework.timing.begin();
        for plugin in framework.reserves.iter().rev().filter_map(|hooks| hooks.reserve.as_ref()) {
            plugin.unreserve(&mut self.world.cluster, slots, pod, row);
        }
        framework.timing.end(begun, "Unreserve", Code::Success.word());
    }

    /// Whether a binding is on its way that nobody can call back.
    pub(super) fn is_being_bound(&self, uid: &str) -> bool {
        self.bindings.get(uid).is_some_and(|binding| matches!(binding.stage, Stage::Binding))
    }

    /// An assumed pod is being deleted: its place is free again. Spec: scheduler-core 2.5.
    pub(super) fn give_place_back(&mut self, now: Time, uid: &str) {
        match self.bindings.get(uid).map(|binding| &binding.stage) {
            Some(Stage::Waiting { .. }) => return self.reject(now, uid, "", "removed"),
            // Nothing is on its way whose outcome would end it.
            Some(Stage::Settling { .. }) => self.stop_settling(uid),
            Some(Stage::Preparing { .. } | Stage::Binding) | None => {}
        }
        let Some(pod) = self.world.cluster.held(uid).map(|held| held.pod.clone()) else { return };
        let pod = self.with_place(&pod);
        if self.world.cluster.forget(uid).is_ok() {
            self.room_is_free(now, pod);
        }
    }

    /// The writes of a pod are done, and what they were for is no longer wanted.
    fn stop_settling(&mut self, uid: &str) {
        let Some(mut binding) = self.bindings.remove(uid) else { return };
        let pod = binding.record.pod.content.clone();
        self.unreserve(binding.record.pod.profile, &pod, binding.row, &mut binding.slots);
    }

    /// A plugin lets a pod go on that waits for it at Permit.
    pub fn allow(&mut self, now: Time, uid: &str, plugin: PluginName) {
        let Some(binding) = self.bindings.get_mut(uid) else { return };
        let Stage::Waiting { timers } = &mut binding.stage else { return };
        timers.retain(|timer| timer.plugin != plugin);
        if timers.is_empty() {
            self.measuring.waited(Code::Success.word(), binding.since, now);
            self.prepare_binding(now, uid);
        }
    }

    /// Ends a pod's wait at Permit with a no.
    pub fn reject(&mut self, now: Time, uid: &str, plugin: PluginName, message: &str) {
        let Some(row) =
            self.bindings.get(uid).filter(|binding| binding.is_waiting()).map(|binding| binding.row)
        else {
            return;
        };
        if let Some(binding) = self.bindings.get(uid) {
            self.measuring.waited(Code::Unschedulable.word(), binding.since, now);
        }
        let refusal = self.one_node(&Status::unschedulable(plugin, message.to_owned()), "Permit", row);
        self.fail_binding(now, uid, refusal);
    }

    /// Ends waits whose time is up.
    pub(super) fn expire(&mut self, now: Time) {
        let is_due = |binding: &Binding| binding.ends().is_some_and(|ends| ends <= now);
        let mut late: Vec<Box<str>> =
            self.bindings.iter().filter(|(_, binding)| is_due(binding)).map(|(uid, _)| uid.clone()).collect();
        late.sort_unstable();
        for uid in late {
            let Some(binding) = self.bindings.get(&uid) else { continue };
            match &binding.stage {
                Stage::Waiting { timers } => {
                    let Some(timer) = timers.iter().min_by_key(|timer| timer.ends) else { continue };
                    let patience = GoDuration::try_from(timer.patience).unwrap_or_default();
                    let (plugin, message) = (
                        timer.plugin,
                        format!(
                            "rejected due to timeout after waiting {patience} at plugin {}",
                            timer.plugin
                        ),
                    );
                    self.reject(now, &uid, plugin, &message);
                }
                _ => self.settle(now, &uid),
            }
        }
    }

    /// When a wait ends next.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.bindings.values().filter_map(Binding::ends).min()
    }

    /// Does what plugins want done to other pods.
    pub(super) fn fulfil_wishes(&mut self, now: Time) {
        loop {
            let wishes = self.world.cluster.take_wishes();
            if wishes.is_empty() {
                return;
            }
            for wish in wishes {
                match wish {
                    Wish::Allow { uid, plugin } => self.allow(now, &uid, plugin),
                    Wish::Reject { uid, plugin, message } => self.reject(now, &uid, plugin, &message),
                    Wish::Activate { uid, .. } => self.activate(now, &uid),
                }
            }
        }
    }
}

/// What a plan marks pods with that must go again: the reservation that they use. A pod that is bound after all keeps
/// its own. Spec: scheduler-reservation-loadaware A7.8.
fn marks(plan: &BindPlan) -> Vec<Unmark> {
    let own = plan.pod.iter().map(|pod| (pod, &plan.annotations, &*plan.node));
    let others = plan.others.iter().map(|marked| (&marked.pod, &marked.annotations, ""));
    own.chain(others)
        .filter(|(_, annotations, _)| annotations.contains_key(RESERVATION_ALLOCATED))
        .map(|(pod, _, node)| Unmark {
            pod: pod.clone(),
            node: node.into(),
            annotations: vec![RESERVATION_ALLOCATED.to_owned()],
        })
        .collect()
}

/// Plugins that refuse before the bind speak for themselves. Spec: scheduler-core 4 step 3.
fn pre_bind_refusal(status: &Status) -> Refusal {
    match status.code.is_rejected() {
        true => Refusal { nominating: Nominating::Clear, ..Refusal::without_plugins(status.to_string()) },
        false => Refusal::error(format!("running PreBind plugin \"{}\": {status}", status.plugin)),
    }
}
