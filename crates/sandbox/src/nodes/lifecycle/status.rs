//! A pod's status from its containers: phase, conditions, addresses. The rules are kubelet's.

use serde_json::{Map, Value, json};

use super::View;
use super::container::{Container, Role};
use crate::kinds::meta;

/// Conditions that kubelet owns, in the order in which it writes them.
const OWNED: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// The whole status; fields of others stay. `is_ending` says that no container will run again.
pub(super) fn assemble(view: &View<'_>, is_ending: bool) -> Value {
    let old = &view.pod["status"];
    let mut status = old.as_object().cloned().unwrap_or_default();
    let write = |list: &[Container<'_>]| -> Vec<Value> { list.iter().map(Container::write).collect() };
    let lists = [
        ("containerStatuses", write(&view.main)),
        ("initContainerStatuses", write(&view.init)),
        ("ephemeralContainerStatuses", write(&view.ephemeral)),
    ];
    for (field, mut list) in lists {
        if list.is_empty() {
            status.remove(field);
            continue;
        }
        if field != "initContainerStatuses" {
            list.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        }
        status.insert(field.to_owned(), Value::from(list));
    }
    status.insert("phase".to_owned(), Value::from(phase(view, is_ending)));
    status.insert("startTime".to_owned(), Value::from(meta::format_time(view.started)));
    status.insert("observedGeneration".to_owned(), Value::from(meta::generation(view.pod)));
    // The scheduler's wish has come true.
    status.remove("nominatedNodeName");
    addresses(view, &mut status);
    let mut status = Value::Object(status);
    settle(&mut status, view);
    status
}

/// Puts the conditions that follow from the phase and the containers.
pub(super) fn settle(status: &mut Value, view: &View<'_>) {
    let phase = status["phase"].as_str().unwrap_or_default().to_owned();
    let mut conditions = foreign_conditions(view.pod);
    let has_sandbox = Outcome::of(view.has_sandbox);
    let containers = containers_ready(view, &phase);
    let outcomes =
        [has_sandbox, initialized(view, &phase), ready(view, &containers), containers, Outcome::of(true)];
    let before = view.pod["status"]["conditions"].as_array();
    let now = meta::format_time(view.kubelet.now);
    for (kind, outcome) in OWNED.into_iter().zip(outcomes) {
        let state = if outcome.is_true { "True" } else { "False" };
        let old = before.and_then(|list| list.iter().find(|c| c["type"] == kind && c["status"] == state));
        let since = old.and_then(|old| old["lastTransitionTime"].as_str()).unwrap_or(&now);
        let mut condition = json!({"type": kind, "status": state, "lastProbeTime": null,
            "lastTransitionTime": since, "observedGeneration": meta::generation(view.pod)});
        for (field, text) in [("reason", outcome.reason), ("message", outcome.message)] {
            if !text.is_empty() {
                condition[field] = Value::from(text);
            }
        }
        conditions.push(condition);
    }
    status["conditions"] = Value::from(conditions);
}

/// Conditions that others wrote.
pub(super) fn foreign_conditions(pod: &Value) -> Vec<Value> {
    let list = pod["status"]["conditions"].as_array().into_iter().flatten();
    list.filter(|c| !OWNED.contains(&c["type"].as_str().unwrap_or_default())).cloned().collect()
}

/// What a condition says.
#[derive(Clone, Default)]
struct Outcome {
    is_true: bool,
    reason: String,
    message: String,
}

impl Outcome {
    fn of(is_true: bool) -> Outcome {
        Outcome { is_true, ..Outcome::default() }
    }

    fn no(reason: &str, message: String) -> Outcome {
        Outcome { is_true: false, reason: reason.to_owned(), message }
    }
}

fn initialized(view: &View<'_>, phase: &str) -> Outcome {
    if phase == "Succeeded" {
        return Outcome { is_true: true, reason: "PodCompleted".to_owned(), message: String::new() };
    }
    if view.main.iter().any(|c| !c.never_ran()) {
        return Outcome::of(true);
    }
    let is_done = |c: &&Container<'_>| match c.role {
        Role::Sidecar => c.is_started,
        _ => c.is_ready,
    };
    let open: Vec<&str> = view.init.iter().filter(|c| !is_done(c)).map(Container::name).collect();
    match open.is_empty() {
        true => Outcome::of(true),
        false => {
            let message = format!("containers with incomplete status: [{}]", open.join(" "));
            Outcome::no("ContainersNotInitialized", message)
        }
    }
}

fn containers_ready(view: &View<'_>, phase: &str) -> Outcome {
    match phase {
        "Succeeded" => return Outcome::no("PodCompleted", String::new()),
        "Failed" => return Outcome::no("PodFailed", String::new()),
        _ => {}
    }
    let sidecars = view.init.iter().filter(|c| c.role == Role::Sidecar);
    let open = sidecars.chain(&view.main).filter(|c| !c.is_ready);
    let open: Vec<&str> = open.map(Container::name).collect();
    match open.is_empty() {
        true => Outcome::of(true),
        false => {
            let message = format!("containers with unready status: [{}]", open.join(" "));
            Outcome::no("ContainersNotReady", message)
        }
    }
}

fn ready(view: &View<'_>, containers: &Outcome) -> Outcome {
    if !containers.is_true {
        return containers.clone();
    }
    let conditions = view.pod["status"]["conditions"].as_array();
    let mut open = Vec::new();
    for gate in view.pod["spec"]["readinessGates"].as_array().into_iter().flatten() {
        let kind = gate["conditionType"].as_str().unwrap_or_default();
        let found = conditions.and_then(|list| list.iter().find(|c| c["type"] == kind));
        match found.map(|c| c["status"].as_str().unwrap_or_default()) {
            Some("True") => {}
            Some(state) => {
                open.push(format!(
                    "the status of pod readiness gate \"{kind}\" is not \"True\", but {state}"
                ));
            }
            None => {
                open.push(format!(
                    "corresponding condition of pod readiness gate \"{kind}\" does not exist."
                ));
            }
        }
    }
    if open.is_empty() { Outcome::of(true) } else { Outcome::no("ReadinessGatesNotReady", open.join(", ")) }
}

fn addresses(view: &View<'_>, status: &mut Map<String, Value>) {
    let host = view.kubelet.host_ip;
    status.insert("hostIP".to_owned(), Value::from(host));
    status.insert("hostIPs".to_owned(), json!([{"ip": host}]));
    let is_on_host = view.pod["spec"]["hostNetwork"] == true;
    let known = status.contains_key("podIP");
    let own = if is_on_host { host } else { view.kubelet.pod_ip };
    if !known && (is_on_host || view.has_sandbox) {
        status.insert("podIP".to_owned(), Value::from(own));
        status.insert("podIPs".to_owned(), json!([{"ip": own}]));
    }
}

/// How a pod's containers add up.
#[derive(Default)]
struct Count {
    pending_init: bool,
    failed_init: bool,
    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
}

fn phase(view: &View<'_>, is_ending: bool) -> &'static str {
    let count = count(view);
    if count.failed_init {
        return "Failed";
    }
    if count.pending_init || count.waiting > 0 {
        return "Pending";
    }
    if count.running > 0 {
        return "Running";
    }
    match count.stopped {
        0 => "Pending",
        stopped if !is_ending && stopped != count.stopped_for_good => "Running",
        stopped if stopped == count.succeeded => "Succeeded",
        _ => "Failed",
    }
}

fn count(view: &View<'_>) -> Count {
    let mut count = Count::default();
    let has_run = view.main.iter().any(|c| !c.never_ran());
    for container in &view.init {
        match (container.role, container.last_exit()) {
            (Role::Sidecar, _) if container.is_running() => {
                count.pending_init |= !container.is_started && !has_run;
                count.running += 1;
            }
            (Role::Sidecar, None) => {
                count.pending_init |= !has_run;
                count.waiting += 1;
            }
            (Role::Sidecar, Some(_)) => {}
            (_, Some(exit)) => count.failed_init |= exit.code != 0 && !view.restarts(container, exit.code),
            (_, None) => count.pending_init = true,
        }
    }
    for container in &view.main {
        match container.last_exit() {
            None if container.is_running() => count.running += 1,
            None => count.waiting += 1,
            Some(exit) => {
                count.stopped += 1;
                count.stopped_for_good += usize::from(!view.restarts(container, exit.code));
                count.succeeded += usize::from(container.exit().is_some_and(|exit| exit.code == 0));
            }
        }
    }
    count
}
