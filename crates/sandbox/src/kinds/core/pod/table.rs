//! A pod as a row: ready containers, the reason it is where it is, restarts.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::super::cell::{NONE, age, name, or_none};
use super::super::super::meta;
use super::super::super::tree::{flag, has, int, list, part, text};

/// Why a pod is shown when its node has gone.
const NODE_LOST: &str = "NodeLost";

pub(super) fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let mut view = View::new(pod);
    let is_initializing = view.count_init(spec, status);
    if !is_initializing || condition(status, "Initialized") {
        view.count_containers(status);
    }
    let phase = text(status, "phase");
    if meta::is_deleting(pod) {
        if text(status, "reason") == NODE_LOST {
            view.reason = "Unknown".to_owned();
        } else if !["Succeeded", "Failed"].contains(&phase) {
            view.reason = "Terminating".to_owned();
        }
    }
    let sidecars = list(spec, "initContainers").iter().filter(|c| is_sidecar(c)).count();
    let total = list(spec, "containers").len() + sidecars;
    let restarts = match (view.restarts, view.last_restart) {
        (count, Some(last)) if count != 0 => format!("{count} ({} ago)", meta::format_age(now, last)),
        (count, _) => count.to_string(),
    };
    let ip = list(status, "podIPs").first().map_or("", |ip| text(ip, "ip"));
    vec![
        name(pod),
        format!("{}/{total}", view.ready).into(),
        view.reason.into(),
        restarts.into(),
        age(pod, now),
        or_none(ip),
        or_none(text(spec, "nodeName")),
        or_none(text(status, "nominatedNodeName")),
        gates(spec, status),
    ]
}

/// Pods that have ended are marked, so that they can be left out.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(&pod["status"], "phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// What the containers add up to.
struct View {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    sidecar_restarts: i64,
    sidecar_last: Option<Timestamp>,
}

impl View {
    fn new(pod: &Value) -> View {
        let status = &pod["status"];
        let shown = match text(status, "reason") {
            "" => text(status, "phase"),
            reason => reason,
        };
        let is_gated =
            |c: &Value| text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated";
        let gated = list(status, "conditions").iter().any(is_gated);
        let reason = if gated { "SchedulingGated" } else { shown }.to_owned();
        View { reason, ready: 0, restarts: 0, last_restart: None, sidecar_restarts: 0, sidecar_last: None }
    }

    /// True when init containers are not done.
    fn count_init(&mut self, spec: &Value, status: &Value) -> bool {
        let declared = list(spec, "initContainers");
        for (i, container) in list(status, "initContainerStatuses").iter().enumerate() {
            let count = int(container, "restartCount").unwrap_or(0);
            self.restarts += count;
            self.last_restart = self.last_restart.max(last_end(container));
            let is_sidecar =
                declared.iter().rfind(|c| c["name"] == container["name"]).is_some_and(is_sidecar);
            if is_sidecar {
                self.sidecar_restarts += count;
                self.sidecar_last = self.sidecar_last.max(last_end(container));
            }
            let (ended, waiting) = (part(&container["state"], "terminated"), &container["state"]["waiting"]);
            if ended.is_some_and(|e| int(e, "exitCode").unwrap_or(0) == 0) {
                continue;
            }
            if is_sidecar && flag(container, "started") {
                self.ready += usize::from(flag(container, "ready"));
                continue;
            }
            self.reason = match (ended, text(waiting, "reason")) {
                (Some(ended), _) => format!("Init:{}", ending(ended)),
                (None, "" | "PodInitializing") => format!("Init:{i}/{}", declared.len()),
                (None, reason) => format!("Init:{reason}"),
            };
            return true;
        }
        false
    }

    fn count_containers(&mut self, status: &Value) {
        self.restarts = self.sidecar_restarts;
        self.last_restart = self.sidecar_last;
        let mut is_running = false;
        let mut failure = None;
        for container in list(status, "containerStatuses").iter().rev() {
            self.restarts += int(container, "restartCount").unwrap_or(0);
            self.last_restart = self.last_restart.max(last_end(container));
            let state = &container["state"];
            let waiting = text(&state["waiting"], "reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = part(state, "terminated") {
                self.reason = ending(ended);
                if int(ended, "exitCode").unwrap_or(0) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if flag(container, "ready") && has(state, "running") {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if is_running && condition(status, "Ready") {
                self.reason = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if is_running {
                self.reason = "NotReady".to_owned();
            }
        }
    }
}

/// Why a container ended, in one word.
fn ending(ended: &Value) -> String {
    match (text(ended, "reason"), int(ended, "signal").unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", int(ended, "exitCode").unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn last_end(container: &Value) -> Option<Timestamp> {
    text(&container["lastState"]["terminated"], "finishedAt").parse().ok()
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// Whether the first condition of this type is true.
fn condition(status: &Value, kind: &str) -> bool {
    let found = list(status, "conditions").iter().find(|c| text(c, "type") == kind);
    found.is_some_and(|c| text(c, "status") == "True")
}

fn gates(spec: &Value, status: &Value) -> Value {
    let gates = list(spec, "readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let open = gates.iter().filter(|gate| condition(status, text(gate, "conditionType"))).count();
    format!("{open}/{}", gates.len()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pod: &Value) -> (String, String, String) {
        let now = "2024-01-01T01:00:00Z".parse().unwrap();
        let cells = row(pod, now);
        let text = |i: usize| cells[i].as_str().unwrap().to_owned();
        (text(1), text(2), text(3))
    }

    #[test]
    fn a_row_tells_where_a_pod_stands() {
        let running = json!({"name": "c", "ready": true, "state": {"running": {}}, "restartCount": 2,
            "lastState": {"terminated": {"finishedAt": "2024-01-01T00:58:00Z"}}});
        let done = json!({"name": "c", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let killed = json!({"name": "c", "state": {"terminated": {"exitCode": 137, "signal": 9}}});
        let waiting = json!({"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}});
        for (status, want) in [
            (json!({"phase": "Pending"}), ("0/1", "Pending", "0")),
            (json!({"phase": "Running", "containerStatuses": [running]}), ("1/1", "Running", "2 (2m ago)")),
            (json!({"phase": "Succeeded", "containerStatuses": [done]}), ("0/1", "Completed", "0")),
            (json!({"phase": "Failed", "containerStatuses": [killed]}), ("0/1", "Signal:9", "0")),
            (json!({"phase": "Pending", "containerStatuses": [waiting]}), ("0/1", "ImagePullBackOff", "0")),
            (json!({"phase": "Failed", "reason": "Evicted"}), ("0/1", "Evicted", "0")),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
                ("0/1", "SchedulingGated", "0"),
            ),
        ] {
            let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
            pod["status"] = status.clone();
            let (ready, reason, restarts) = shown(&pod);
            assert_eq!((ready.as_str(), reason.as_str(), restarts.as_str()), want, "{status}");
            pod["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            let is_over = ["Succeeded", "Failed"].contains(&status["phase"].as_str().unwrap());
            assert_eq!(shown(&pod).1, if is_over { want.1 } else { "Terminating" }, "{status}");
        }
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({"containers": [{"name": "c"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
        let sidecar = json!({"name": "s", "started": true, "ready": true, "state": {"running": {}}});
        for (init, want) in [
            (json!([{"name": "i", "state": {"running": {}}}]), ("0/2", "Init:0/2")),
            (
                json!([{"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]),
                ("0/2", "Init:CrashLoopBackOff"),
            ),
            (json!([{"name": "i", "state": {"terminated": {"exitCode": 3}}}]), ("0/2", "Init:ExitCode:3")),
            (json!([{"name": "i", "state": {"terminated": {"exitCode": 0}}}, sidecar]), ("1/2", "Pending")),
        ] {
            let pod = json!({"metadata": {"name": "p"}, "spec": spec,
                "status": {"phase": "Pending", "initContainerStatuses": init}});
            let (ready, reason, _) = shown(&pod);
            assert_eq!((ready.as_str(), reason.as_str()), want, "{init}");
        }
    }
}
