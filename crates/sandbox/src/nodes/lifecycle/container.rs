//! One container: its state as its status tells it, and where it goes next.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use koord_api::duration::GoDuration;
use serde_json::{Value, json};

use super::{View, chance, hex_digest, time};
use crate::kinds::meta;

/// Waits between restarts: the first restart comes at once, then ten seconds, doubled each time.
const BACKOFF_FIRST: i64 = 10;
const BACKOFF_MAX: i64 = 300;
/// A container that ran so long is not looping.
const BACKOFF_FORGOTTEN: i64 = 600;
/// A run that fails by chance and has no end of its own fails within this time.
const FAILURE_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Init,
    /// An init container that keeps running.
    Sidecar,
    Main,
    Ephemeral,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Waiting { reason: String, message: String },
    Running { since: Timestamp },
    Exited(Exit),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exit {
    pub(super) code: u8,
    reason: String,
    message: String,
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
    id: String,
}

#[derive(Clone, Debug)]
pub(super) struct Container<'a> {
    spec: &'a Value,
    pub(super) role: Role,
    pub(super) state: State,
    last: Option<Exit>,
    restarts: i64,
    /// Empty when it never ran.
    id: String,
    pub(super) is_ready: bool,
    pub(super) is_started: bool,
}

impl<'a> Container<'a> {
    /// The container as its status tells it.
    pub(super) fn read(spec: &'a Value, statuses: &Value, role: Role, has_init: bool) -> Container<'a> {
        let status = statuses.as_array().and_then(|list| list.iter().find(|s| s["name"] == spec["name"]));
        let status = status.unwrap_or(&Value::Null);
        let is_sidecar = role == Role::Init && spec["restartPolicy"] == "Always";
        let waiting = || State::Waiting {
            reason: if has_init { "PodInitializing" } else { "ContainerCreating" }.to_owned(),
            message: String::new(),
        };
        Container {
            spec,
            role: if is_sidecar { Role::Sidecar } else { role },
            state: State::read(&status["state"]).unwrap_or_else(waiting),
            last: Exit::read(&status["lastState"]["terminated"]),
            restarts: status["restartCount"].as_i64().unwrap_or(0),
            id: status["containerID"].as_str().unwrap_or_default().to_owned(),
            is_ready: status["ready"].as_bool().unwrap_or(false),
            is_started: status["started"].as_bool().unwrap_or(false),
        }
    }

    pub(super) fn name(&self) -> &'a str {
        self.spec["name"].as_str().unwrap_or_default()
    }

    pub(super) fn never_ran(&self) -> bool {
        self.last.is_none() && matches!(self.state, State::Waiting { .. })
    }

    pub(super) fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// How its last run ended, also while it waits to run again.
    pub(super) fn last_exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            State::Waiting { .. } => self.last.as_ref(),
            State::Running { .. } => None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    pub(super) fn running_since(&self) -> Option<Timestamp> {
        match self.state {
            State::Running { since } => Some(since),
            _ => None,
        }
    }

    /// A first or another run begins.
    pub(super) fn start(&mut self, now: Timestamp, uid: &str) {
        let has_run = self.last_exit().is_some();
        if let State::Exited(exit) = &self.state {
            self.last = Some(exit.clone());
        }
        self.restarts += i64::from(has_run);
        self.id = format!("containerd://{}", hex_digest(&[uid, self.name(), &self.restarts.to_string()]));
        self.state = State::Running { since: now };
        self.is_started = true;
        self.is_ready = false;
    }

    /// The run ends, if there is one.
    pub(super) fn stop(&mut self, now: Timestamp, code: u8) {
        let State::Running { since } = self.state else { return };
        let reason = if code == 0 { "Completed" } else { "Error" };
        let exit = Exit {
            code,
            reason: reason.to_owned(),
            message: String::new(),
            started: Some(since),
            finished: Some(now),
            id: self.id.clone(),
        };
        self.state = State::Exited(exit);
        self.is_started = false;
        self.is_ready = self.role == Role::Init && code == 0;
    }

    /// What kubelet says of a container that it cannot find.
    pub(super) fn lose(&mut self) {
        self.state = State::Exited(Exit {
            code: super::KILLED,
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The container could not be located when the pod was terminated".to_owned(),
            started: None,
            finished: None,
            id: String::new(),
        });
        self.is_started = false;
        self.is_ready = false;
    }

    /// Seconds of a probe's initial delay.
    fn probe_delay(&self, probe: &str) -> SignedDuration {
        SignedDuration::from_secs(self.spec[probe]["initialDelaySeconds"].as_i64().unwrap_or(0).max(0))
    }

    /// As an entry of `containerStatuses`.
    pub(super) fn write(&self) -> Value {
        let image = self.spec["image"].as_str().unwrap_or_default();
        let mut out = json!({
            "name": self.name(), "image": image, "imageID": "", "restartCount": self.restarts,
            "ready": self.is_ready, "started": self.is_started,
            "state": self.state.write(),
            "lastState": self.last.as_ref().map_or(json!({}), |exit| json!({"terminated": exit.write()})),
        });
        if !self.id.is_empty() {
            out["containerID"] = Value::from(self.id.as_str());
            out["imageID"] = Value::from(image_id(image));
            out["resources"] = match &self.spec["resources"] {
                Value::Object(resources) => Value::Object(resources.clone()),
                _ => json!({}),
            };
            if let Some(requests) = self.spec["resources"].get("requests") {
                out["allocatedResources"] = requests.clone();
            }
        }
        let mounts = self.spec["volumeMounts"].as_array().into_iter().flatten();
        let mounts: Vec<Value> = mounts.map(mount).collect();
        if !mounts.is_empty() {
            out["volumeMounts"] = Value::from(mounts);
        }
        out
    }
}

fn mount(mount: &Value) -> Value {
    let mut out = json!({"name": mount["name"], "mountPath": mount["mountPath"]});
    if mount["readOnly"] == true {
        out["readOnly"] = Value::from(true);
        out["recursiveReadOnly"] = Value::from("Disabled");
    }
    out
}

/// A digest stands for what a registry would have served.
fn image_id(image: &str) -> String {
    let tag = image.rfind(':').filter(|at| !image[*at..].contains('/'));
    let name = &image[..tag.unwrap_or(image.len())];
    let name = name.split('@').next().unwrap_or(name);
    format!("{name}@sha256:{}", hex_digest(&[image]))
}

impl State {
    fn read(state: &Value) -> Option<State> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(since) = time(&state["running"]["startedAt"]) {
            return Some(State::Running { since });
        }
        if let Some(exit) = Exit::read(&state["terminated"]) {
            return Some(State::Exited(exit));
        }
        let waiting = state.get("waiting")?;
        Some(State::Waiting { reason: text(&waiting["reason"]), message: text(&waiting["message"]) })
    }

    fn write(&self) -> Value {
        match self {
            State::Waiting { reason, message } if message.is_empty() => {
                json!({"waiting": {"reason": reason}})
            }
            State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            State::Running { since } => json!({"running": {"startedAt": meta::format_time(*since)}}),
            State::Exited(exit) => json!({"terminated": exit.write()}),
        }
    }
}

impl Exit {
    fn read(state: &Value) -> Option<Exit> {
        let text = |field: &str| state[field].as_str().unwrap_or_default().to_owned();
        // Codes above come from signals and other runtimes; what counts is that they are not 0.
        let code = state.get("exitCode")?.as_i64()?;
        Some(Exit {
            code: u8::try_from(code).unwrap_or(u8::MAX),
            reason: text("reason"),
            message: text("message"),
            started: time(&state["startedAt"]),
            finished: time(&state["finishedAt"]),
            id: text("containerID"),
        })
    }

    fn write(&self) -> Value {
        let time =
            |time: Option<Timestamp>| time.map_or(Value::Null, |time| Value::from(meta::format_time(time)));
        let mut out = json!({"exitCode": self.code, "startedAt": time(self.started),
            "finishedAt": time(self.finished)});
        for (field, text) in [("reason", &self.reason), ("message", &self.message), ("containerID", &self.id)]
        {
            if !text.is_empty() {
                out[field] = Value::from(text.as_str());
            }
        }
        out
    }
}

impl View<'_> {
    /// Moves an init container on; says whether the next one may begin.
    pub(super) fn advance_init(&mut self, container: &mut Container<'_>) -> bool {
        if container.role == Role::Sidecar {
            self.advance_main(container);
            return container.is_started || self.main.iter().any(|c| !c.never_ran());
        }
        if container.never_ran() {
            container.start(self.kubelet.now, self.uid());
        }
        let State::Running { since } = container.state else {
            return container.exit().is_some_and(|exit| exit.code == 0);
        };
        let length = self.behaviour.init_time.unwrap_or(self.kubelet.habits.init_time);
        let end = self.after(since, length);
        if self.kubelet.now < end {
            self.wake(Some(end));
            return false;
        }
        container.stop(end, 0);
        true
    }

    /// Moves a container that may run again on: at most one exit and one start.
    pub(super) fn advance_main(&mut self, container: &mut Container<'_>) {
        if container.never_ran() {
            container.start(self.kubelet.now, self.uid());
        }
        if let State::Running { since } = container.state
            && let Some((length, code)) = self.plan(container)
        {
            let end = self.after(since, length);
            match self.kubelet.now < end {
                true => self.wake(Some(end)),
                false => container.stop(end, code),
            }
        }
        self.restart(container);
        self.probe(container);
    }

    /// Runs an ended container again: at once, or after its back-off.
    fn restart(&mut self, container: &mut Container<'_>) {
        let Some(exit) = container.last_exit() else { return };
        if !self.restarts(container, exit.code) {
            return;
        }
        let seconds = backoff_seconds(container.restarts, exit);
        let finished = exit.finished.unwrap_or(self.kubelet.now);
        let due = finished.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        if due <= self.kubelet.now {
            container.start(self.kubelet.now, self.uid());
            if let Some((length, _)) = self.plan(container) {
                self.wake(Some(self.after(self.kubelet.now, length)));
            }
            return;
        }
        self.wake(Some(due));
        let State::Exited(exit) = &container.state else { return };
        container.last = Some(exit.clone());
        container.state = State::Waiting {
            reason: "CrashLoopBackOff".to_owned(),
            message: format!(
                "back-off {} restarting failed container={} pod={}_{}({})",
                GoDuration::from_seconds(seconds),
                container.name(),
                meta::name(self.pod),
                meta::namespace(self.pod),
                self.uid(),
            ),
        };
        self.backed_off.push(container.name().to_owned());
    }

    /// Started and ready, once its probes and its own delay allow.
    fn probe(&mut self, container: &mut Container<'_>) {
        let State::Running { since } = container.state else { return };
        let later = |delay: SignedDuration| since.checked_add(delay).unwrap_or(Timestamp::MAX);
        let startup = container.probe_delay("startupProbe");
        let readiness = startup.max(container.probe_delay("readinessProbe"));
        let started = later(startup);
        let own = self.behaviour.ready_delay.unwrap_or_default();
        let ready = self.after(later(readiness), own);
        container.is_started = started <= self.kubelet.now;
        container.is_ready = container.is_started && ready <= self.kubelet.now;
        for at in [started, ready] {
            self.wake(Some(at).filter(|at| *at > self.kubelet.now));
        }
    }

    /// When and how the present run of a container ends; never, when None.
    fn plan(&self, container: &Container<'_>) -> Option<(Duration, u8)> {
        if container.role != Role::Main {
            return None;
        }
        let asked = &self.behaviour;
        let by_itself = (!self.is_always_restarted())
            .then(|| self.kubelet.habits.run_time.max(asked.fail_after.unwrap_or_default()));
        let length = asked.run_time.or(by_itself);
        let (seed, run) = (self.kubelet.habits.seed.to_string(), container.restarts.to_string());
        let roll = |what: &str| chance(&[&seed, self.uid(), container.name(), &run, what]);
        let fails = asked.failure_rate.map_or(asked.fail_after.is_some(), |rate| roll("fails") < rate);
        if fails {
            let at = || length.unwrap_or(FAILURE_WITHIN).mul_f64(roll("when"));
            let at = asked.fail_after.unwrap_or_else(at);
            if length.is_none_or(|length| at <= length) {
                return Some((at, asked.exit_code.filter(|code| *code != 0).unwrap_or(1)));
            }
        }
        // With chance involved, the code is that of failures.
        let code = asked.exit_code.filter(|_| asked.failure_rate.is_none()).unwrap_or(0);
        length.map(|length| (length, code))
    }

    /// Whether a container that ended with `code` runs again: its own rules, its own policy, the pod's.
    pub(super) fn restarts(&self, container: &Container<'_>, code: u8) -> bool {
        if container.role == Role::Sidecar {
            return true;
        }
        if container.role == Role::Ephemeral {
            return false;
        }
        for rule in container.spec["restartPolicyRules"].as_array().into_iter().flatten() {
            let codes = &rule["exitCodes"];
            let is_in = codes["values"].as_array().is_some_and(|list| list.contains(&json!(code)));
            if is_in == (codes["operator"] == "In") {
                return rule["action"] == "Restart";
            }
        }
        let own = container.spec["restartPolicy"].as_str();
        let policy = own.or(self.pod["spec"]["restartPolicy"].as_str()).unwrap_or("Always");
        match policy {
            "Never" => false,
            "OnFailure" => code != 0,
            // An init container that succeeded is done, whatever the policy.
            _ => container.role != Role::Init || code != 0,
        }
    }
}

/// Seconds between the end of a run and the next one.
fn backoff_seconds(restarts: i64, exit: &Exit) -> i64 {
    let ran = match (exit.started, exit.finished) {
        (Some(started), Some(finished)) => finished.as_second() - started.as_second(),
        _ => 0,
    };
    match restarts {
        ..=0 => 0,
        _ if ran >= BACKOFF_FORGOTTEN => 0,
        // Six doublings reach the longest.
        n => BACKOFF_FIRST.saturating_mul(1 << (n - 1).min(6)).min(BACKOFF_MAX),
    }
}
