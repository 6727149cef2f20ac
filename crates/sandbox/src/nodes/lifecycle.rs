//! What becomes of a pod on its node: one look at it gives its next status and when to look again.
//!
//! Pure. All that is remembered stands in the pod's own status, so a hollow kubelet that begins anew
//! goes on where another stopped. Containers move in `lifecycle/container.rs`, phase and conditions
//! follow from them in `lifecycle/status.rs`; both are kubelet's rules.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::behaviour::{self, Behaviour};
use crate::kinds::meta;

mod container;
mod status;

use container::{Container, Role};

/// What is the same for all pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habits {
    /// From taking a pod to its first container running.
    pub start_delay: Duration,
    /// How long init containers run.
    pub init_time: Duration,
    /// How long containers run in a pod that is not always restarted.
    pub run_time: Duration,
    /// How long containers take to end.
    pub stop_delay: Duration,
    /// How many seconds pass for pods while one passes outside.
    pub speed: f64,
    /// What chance depends on.
    pub seed: u64,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            start_delay: Duration::from_secs(1),
            init_time: Duration::from_secs(1),
            run_time: Duration::from_secs(10),
            stop_delay: Duration::from_millis(500),
            speed: 1.0,
            seed: 0,
        }
    }
}

impl Habits {
    /// With a speed that time can be divided by.
    pub(super) fn sound(self) -> Habits {
        let speed = if self.speed.is_nan() { 1.0 } else { self.speed.clamp(SPEED_MIN, SPEED_MAX) };
        Habits { speed, ..self }
    }
}

/// A second in a quarter of an hour.
const SPEED_MIN: f64 = 0.001;
/// Eleven days in a second.
const SPEED_MAX: f64 = 1_000_000.0;

/// Whether the node takes a pod it has not seen before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Admitted,
    Rejected { reason: String, message: String },
}

/// The node's side of a step.
#[derive(Clone, Copy, Debug)]
pub struct Kubelet<'a> {
    pub habits: &'a Habits,
    pub host_ip: &'a str,
    /// For pods with a network of their own.
    pub pod_ip: &'a str,
    pub verdict: &'a Verdict,
    pub now: Timestamp,
}

/// What one look at a pod decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The status to write, when it is not the one there is.
    pub status: Option<Value>,
    /// When to look again; None to wait for a change from outside.
    pub wake: Option<Timestamp>,
    /// The pod has ended and may go: delete it without grace.
    pub remove: bool,
    /// Since when the pod's containers use anything.
    pub running_since: Option<Timestamp>,
    /// Succeeded or Failed.
    pub is_over: bool,
    /// Containers that are in back-off since this step.
    pub backed_off: Vec<String>,
}

/// Reason and message of a pod past its deadline.
const DEADLINE: (&str, &str) =
    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
/// Exit code of a process killed by SIGKILL.
const KILLED: u8 = 137;

/// Looks at a pod on this node.
pub fn step(pod: &Value, kubelet: &Kubelet<'_>) -> Step {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let is_over = ["Succeeded", "Failed"].contains(&phase);
    if is_over {
        let is_deleting = meta::is_deleting(pod);
        let is_done = pod["metadata"]["deletionGracePeriodSeconds"].as_i64() == Some(0);
        return Step { remove: is_deleting && !is_done, is_over, ..Step::default() };
    }
    if let Verdict::Rejected { reason, message } = kubelet.verdict {
        return reject(pod, kubelet, reason, message);
    }
    let mut view = View::read(pod, kubelet);
    if meta::is_deleting(pod) {
        return view.terminate();
    }
    match view.deadline() {
        Some(deadline) if deadline <= kubelet.now => view.expire(),
        deadline => {
            view.advance();
            view.wake(deadline);
            view.finish()
        }
    }
}

/// As kubelet rejects a pod: nothing but phase, reason and message.
fn reject(pod: &Value, kubelet: &Kubelet<'_>, reason: &str, message: &str) -> Step {
    let mut status = json!({
        "phase": "Failed", "reason": reason, "message": format!("Pod was rejected: {message}"),
        "startTime": meta::format_time(kubelet.now), "observedGeneration": meta::generation(pod),
    });
    if let Some(class) = pod["status"].get("qosClass") {
        status["qosClass"] = class.clone();
    }
    let others = status::foreign_conditions(pod);
    if !others.is_empty() {
        status["conditions"] = Value::from(others);
    }
    let remove = meta::is_deleting(pod);
    Step { status: Some(status), is_over: true, remove, ..Step::default() }
}

/// A pod taken apart: its containers and what drives them.
struct View<'a> {
    pod: &'a Value,
    kubelet: &'a Kubelet<'a>,
    behaviour: Behaviour,
    started: Timestamp,
    init: Vec<Container<'a>>,
    main: Vec<Container<'a>>,
    ephemeral: Vec<Container<'a>>,
    wake: Option<Timestamp>,
    /// Its sandbox with its network is there.
    has_sandbox: bool,
    backed_off: Vec<String>,
}

impl<'a> View<'a> {
    fn read(pod: &'a Value, kubelet: &'a Kubelet<'a>) -> View<'a> {
        let annotations = meta::of(pod).and_then(|m| m.get("annotations")).and_then(Value::as_object);
        let status = &pod["status"];
        let has_init = pod["spec"]["initContainers"].as_array().is_some_and(|list| !list.is_empty());
        let list = |specs: &str, statuses: &str, role: Role| -> Vec<Container<'a>> {
            let specs = pod["spec"][specs].as_array().into_iter().flatten();
            specs.map(|spec| Container::read(spec, &status[statuses], role, has_init)).collect()
        };
        View {
            pod,
            kubelet,
            behaviour: behaviour::read(annotations),
            started: time(&status["startTime"]).unwrap_or(kubelet.now),
            init: list("initContainers", "initContainerStatuses", Role::Init),
            main: list("containers", "containerStatuses", Role::Main),
            ephemeral: list("ephemeralContainers", "ephemeralContainerStatuses", Role::Ephemeral),
            wake: None,
            has_sandbox: true,
            backed_off: Vec::new(),
        }
    }

    fn wake(&mut self, at: Option<Timestamp>) {
        self.wake = match (self.wake, at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.pod["spec"]["activeDeadlineSeconds"].as_i64()?;
        self.started.checked_add(SignedDuration::from_secs(seconds)).ok()
    }

    /// Moves the containers on as far as they get by now.
    fn advance(&mut self) {
        let delay = self.behaviour.start_delay.unwrap_or(self.kubelet.habits.start_delay);
        let start = self.after(self.started, delay);
        if !self.has_begun() && self.kubelet.now < start {
            self.has_sandbox = false;
            return self.wake(Some(start));
        }
        let mut containers = std::mem::take(&mut self.init);
        let is_initialized = containers.iter_mut().all(|container| self.advance_init(container));
        self.init = containers;
        if !is_initialized {
            return;
        }
        let mut containers = std::mem::take(&mut self.main);
        for container in &mut containers {
            self.advance_main(container);
        }
        self.main = containers;
        let mut containers = std::mem::take(&mut self.ephemeral);
        for container in containers.iter_mut().filter(|c| c.never_ran()) {
            container.start(self.kubelet.now, self.uid());
        }
        self.ephemeral = containers;
        if self.main.iter().all(|c| c.exit().is_some_and(|exit| !self.restarts(c, exit.code))) {
            self.stop_all(0);
        }
    }

    fn has_begun(&self) -> bool {
        self.init.iter().chain(&self.main).any(|container| !container.never_ran())
    }

    /// Ends whatever still runs.
    fn stop_all(&mut self, code: u8) {
        let now = self.kubelet.now;
        let lists = [&mut self.init, &mut self.main, &mut self.ephemeral];
        for container in lists.into_iter().flatten() {
            container.stop(now, code);
        }
        self.has_sandbox = false;
    }

    /// A deleted pod: containers get their time to end, then all is over.
    fn terminate(mut self) -> Step {
        let grace = self.pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        let end = time(&self.pod["metadata"]["deletionTimestamp"]).unwrap_or(self.kubelet.now);
        let wanted = self.behaviour.stop_delay.unwrap_or(self.kubelet.habits.stop_delay);
        let wanted = wanted.div_f64(self.kubelet.habits.speed);
        let begun = end.checked_sub(signed(grace)).unwrap_or(end);
        let stopped = begun.checked_add(signed(wanted.min(grace))).unwrap_or(end);
        if self.has_begun() && self.kubelet.now < stopped {
            let running_since = self.running_since();
            return Step { wake: Some(stopped), running_since, ..Step::default() };
        }
        self.stop_all(if wanted <= grace { 0 } else { KILLED });
        self.lose_unstarted();
        let mut status = status::assemble(&self, true);
        let phase = status["phase"].as_str().unwrap_or_default();
        if !["Succeeded", "Failed"].contains(&phase) {
            status["phase"] = Value::from("Failed");
            status::settle(&mut status, &self);
        }
        Step { status: Some(status), remove: true, is_over: true, ..Step::default() }
    }

    /// Containers that never came to run count as failed, as when kubelet cannot find them: main ones
    /// unless the pod was still initialising, and of the init containers all that were tried.
    fn lose_unstarted(&mut self) {
        let ran = self.init.iter().rposition(|c| !c.never_ran());
        let is_initialized = match self.init.last() {
            None => true,
            Some(last) => {
                last.exit().is_some_and(|exit| exit.code == 0) || self.main.iter().any(|c| !c.never_ran())
            }
        };
        let tried = if self.init.is_empty() { 0 } else { ran.unwrap_or(0) + 1 };
        let main = if is_initialized { self.main.len() } else { 0 };
        let lost = self.init.iter_mut().take(tried).chain(self.main.iter_mut().take(main));
        lost.filter(|c| c.exit().is_none()).for_each(Container::lose);
    }

    /// A pod that has run longer than it may.
    fn expire(mut self) -> Step {
        self.stop_all(KILLED);
        self.lose_unstarted();
        let mut status = status::assemble(&self, true);
        status["phase"] = Value::from("Failed");
        status["reason"] = Value::from(DEADLINE.0);
        status["message"] = Value::from(DEADLINE.1);
        status::settle(&mut status, &self);
        Step { status: Some(status), is_over: true, ..Step::default() }
    }

    fn finish(self) -> Step {
        let status = status::assemble(&self, false);
        let phase = status["phase"].as_str().unwrap_or_default();
        let is_over = ["Succeeded", "Failed"].contains(&phase);
        Step {
            wake: self.wake.filter(|_| !is_over),
            running_since: self.running_since().filter(|_| !is_over),
            status: Some(status).filter(|status| *status != self.pod["status"]),
            is_over,
            remove: false,
            backed_off: self.backed_off,
        }
    }

    fn running_since(&self) -> Option<Timestamp> {
        self.init.iter().chain(&self.main).filter_map(Container::running_since).min()
    }

    /// A moment of the pod's own time after another.
    fn after(&self, start: Timestamp, wait: Duration) -> Timestamp {
        let wait = signed(wait.div_f64(self.kubelet.habits.speed));
        start.checked_add(wait).unwrap_or(Timestamp::MAX)
    }

    fn uid(&self) -> &'a str {
        meta::uid(self.pod)
    }

    fn is_always_restarted(&self) -> bool {
        matches!(self.pod["spec"]["restartPolicy"].as_str(), None | Some("Always" | ""))
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// A number that is always the same for the same words.
pub(crate) fn hash(words: &[&str]) -> u64 {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    for word in words {
        for byte in word.bytes().chain([0]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    mix(state)
}

fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 hexadecimal digits that are always the same for the same words.
pub(crate) fn hex_digest(words: &[&str]) -> String {
    let mut state = hash(words);
    let mut out = String::with_capacity(64);
    for _ in 0..4 {
        out.push_str(&format!("{state:016x}"));
        state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
    out
}

/// A number from 0 up to 1 that is always the same for the same words.
pub(crate) fn chance(words: &[&str]) -> f64 {
    let top = u32::try_from(hash(words) >> 32).unwrap_or(0);
    f64::from(top) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests;
