//! Node life: nodes that fall silent, and the taints their conditions call for.
//!
//! Pure but for `sync`. A node is heard through its lease or its status, by our own clock: when it
//! was last seen to change counts, not what it says.
//!
//! Differs: zones are not looked at; kube-controller-manager slows evictions down where most nodes of
//! a zone are lost.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde_json::{Value, json};

use super::recorder::about;
use super::shell::{Next, Shell, time};
use super::view::{LabelSet, Meta, read};
use super::world::Heartbeat;
use crate::server::Part;
use crate::store::Stored;

const COMPONENT: &str = "node-controller";
const RESOURCE: (&str, &str) = ("", "nodes");

pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// Condition, its status, and the taint that follows.
const CONDITION_TAINTS: &[(&str, &str, &str)] = &[
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
/// What a silent kubelet no longer vouches for.
const REPORTED: &[&str] = &["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// A node as the cache keeps it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) meta: Meta,
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_unschedulable: bool,
    pub(crate) is_ready: Option<bool>,
    pub(crate) heartbeat: Heartbeat,
}

impl Node {
    pub(crate) fn read(stored: &Stored) -> Option<Node> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Wire {
            metadata: Meta,
            spec: Spec,
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            taints: Vec<Taint>,
            unschedulable: bool,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            conditions: Vec<Condition>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Condition {
            r#type: Box<str>,
            status: Box<str>,
            last_heartbeat_time: Option<Box<str>>,
        }
        let wire: Wire = read(stored)?;
        let ready = wire.status.conditions.into_iter().find(|c| *c.r#type == *"Ready");
        let is_ready = ready.as_ref().map(|c| *c.status == *"True");
        let text = ready.and_then(|c| c.last_heartbeat_time).unwrap_or_default();
        let mut meta = wire.metadata;
        // Large, and of no use here.
        meta.annotations = LabelSet::default();
        Some(Node {
            meta,
            taints: wire.spec.taints,
            is_unschedulable: wire.spec.unschedulable,
            is_ready,
            heartbeat: Heartbeat { text, seen: Timestamp::UNIX_EPOCH },
        })
    }

    /// Has a taint that drives pods away.
    pub(crate) fn drives_out(&self) -> bool {
        self.taints.iter().any(|taint| taint.effect == NO_EXECUTE)
    }

    /// The same to a scheduler.
    pub(crate) fn is_same_place(&self, other: &Node) -> bool {
        self.meta.uid == other.meta.uid
            && self.meta.labels == other.meta.labels
            && self.taints == other.taints
            && self.is_unschedulable == other.is_unschedulable
    }
}

pub(super) async fn sync(shell: &Shell, name: &str) -> Next {
    let Some(stored) = shell.get("", "nodes", name) else {
        say_goodbye(shell, name).await;
        return Ok(None);
    };
    let seen = shell.look(|world| {
        let node = world.nodes.get(name)?;
        let lease = world.leases.get(name).map(|lease| lease.seen);
        let is_first =
            world.registered.insert(name.into(), node.meta.uid.clone()) != Some(node.meta.uid.clone());
        Some((node.clone(), lease.into_iter().chain([node.heartbeat.seen]).max(), is_first))
    });
    let Some((node, Some(seen), is_first)) = seen else { return Ok(None) };
    if is_first {
        let text = format!("Node {name} event: Registered Node {name} in Controller");
        shell.tell(COMPONENT, &node_about(&node.meta), "RegisteredNode", text).await;
    }
    let now = shell.api.now();
    let grace = match node.is_ready {
        Some(_) => shell.options.node_monitor_grace_period,
        None => shell.options.node_startup_grace_period,
    };
    let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
    let due = seen.checked_add(grace).unwrap_or(Timestamp::MAX);
    let mut object = stored.value();
    if now > due && silence(&mut object, now) {
        let change = |object: &mut Value| {
            silence(object, now);
        };
        shell.edit(RESOURCE, name, &node.meta.uid, Part::Status, &change).await?;
    }
    if taint(&mut object, now) {
        let conditions = object["status"]["conditions"].clone();
        let change = |object: &mut Value| {
            // By what was seen, or, where the node spoke since, by what it said.
            if !object["status"]["conditions"].is_array() {
                object["status"]["conditions"] = conditions.clone();
            }
            taint(object, now);
        };
        shell.edit(RESOURCE, name, &node.meta.uid, Part::Main, &change).await?;
    }
    if is_not_ready(&object) {
        mark_pods(shell, &node.meta, now).await?;
    } else {
        shell.look(|world| world.silent.remove(name));
    }
    // A second later, for times in objects are whole seconds.
    Ok((now <= due).then(|| due + SignedDuration::from_secs(1)))
}

async fn say_goodbye(shell: &Shell, name: &str) {
    if let Some(uid) = shell.look(|world| world.registered.remove(name)) {
        let text = format!("Node {name} event: Removing Node {name} from Controller");
        let meta = Meta { name: name.into(), uid, ..Meta::default() };
        shell.tell(COMPONENT, &node_about(&meta), "RemovingNode", text).await;
    }
}

fn node_about(meta: &Meta) -> k8s_openapi::api::core::v1::ObjectReference {
    about("v1", "Node", meta)
}

fn is_not_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] != "True")
}

/// Once per spell of silence: tells of it, and takes the node's pods for not ready.
async fn mark_pods(shell: &Shell, node: &Meta, now: Timestamp) -> Result<(), crate::status::ApiError> {
    let is_known = shell.look(|world| !world.silent.insert(node.name.clone()));
    if is_known {
        return Ok(());
    }
    let text = format!("Node {} status is now: NodeNotReady", node.name);
    shell.tell(COMPONENT, &node_about(node), "NodeNotReady", text).await;
    let pods: Vec<(String, Meta)> = shell.look(|world| {
        let pods = world.pods.on_node(&node.name).filter(|(_, pod)| pod.is_ready());
        let meta = pods.map(|(key, pod)| {
            let (name, namespace, uid) = (pod.name.clone(), pod.namespace.clone(), pod.uid.clone());
            (key.to_string(), Meta { name, namespace, uid, ..Meta::default() })
        });
        meta.collect()
    });
    let change = |pod: &mut Value| {
        let conditions = pod["status"]["conditions"].as_array_mut();
        for ready in conditions.into_iter().flatten().filter(|c| c["type"] == "Ready") {
            if ready["status"] != "False" {
                ready["status"] = json!("False");
                ready["lastTransitionTime"] = time(now);
            }
        }
    };
    for (key, pod) in pods {
        if shell.edit(("", "pods"), &key, &pod.uid, Part::Status, &change).await? {
            let about = about("v1", "Pod", &pod);
            shell.warn(COMPONENT, &about, "NodeNotReady", "Node is not ready".to_owned()).await;
        }
    }
    Ok(())
}

/// Sets what the kubelet reported to unknown; whether that changed anything.
fn silence(node: &mut Value, now: Timestamp) -> bool {
    let created = node["metadata"]["creationTimestamp"].clone();
    if !node["status"]["conditions"].is_array() {
        node["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = node["status"]["conditions"].as_array_mut() else { return false };
    let mut is_changed = false;
    for type_ in REPORTED {
        match conditions.iter_mut().find(|c| c["type"] == *type_) {
            Some(condition) if condition["status"] == "Unknown" => continue,
            Some(condition) => {
                condition["status"] = json!("Unknown");
                condition["reason"] = json!("NodeStatusUnknown");
                condition["message"] = json!("Kubelet stopped posting node status.");
                condition["lastTransitionTime"] = time(now);
            }
            None => conditions.push(json!({
                "type": type_, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": created, "lastTransitionTime": time(now),
            })),
        }
        is_changed = true;
    }
    is_changed
}

/// Brings the node's taints in line with its conditions; whether that changed anything.
fn taint(node: &mut Value, now: Timestamp) -> bool {
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let holds =
        |type_: &str, status: &str| conditions.iter().any(|c| c["type"] == type_ && c["status"] == status);
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (type_, status, key) in CONDITION_TAINTS {
        if holds(type_, status) {
            wanted.push((key, NO_SCHEDULE));
        }
    }
    if node["spec"]["unschedulable"] == true {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    // A node without a Ready condition keeps the taint it registered with.
    let is_known = conditions.iter().any(|c| c["type"] == "Ready");
    for (status, key) in [("False", NOT_READY), ("Unknown", UNREACHABLE)] {
        if holds("Ready", status) {
            wanted.push((key, NO_EXECUTE));
        }
    }
    let is_ours = |key: &str, effect: &str| match effect {
        NO_SCHEDULE => key == UNSCHEDULABLE || CONDITION_TAINTS.iter().any(|(_, _, k)| *k == key),
        NO_EXECUTE => is_known && (key == NOT_READY || key == UNREACHABLE),
        _ => false,
    };
    let text = |taint: &Value, field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    let old = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut new: Vec<Value> = old
        .iter()
        .filter(|taint| {
            let (key, effect) = (text(taint, "key"), text(taint, "effect"));
            !is_ours(&key, &effect) || wanted.contains(&(key.as_str(), effect.as_str()))
        })
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !new.iter().any(|taint| taint["key"] == key && taint["effect"] == effect) {
            new.push(json!({"key": key, "effect": effect, "timeAdded": time(now)}));
        }
    }
    if new == old {
        return false;
    }
    node["spec"]["taints"] = json!(new);
    if new.is_empty()
        && let Some(spec) = node["spec"].as_object_mut()
    {
        spec.remove("taints");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taints(node: &Value) -> Vec<String> {
        let list = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let text = |v: &Value| v.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        list.iter().map(|t| format!("{}:{}", text(&t["key"]), text(&t["effect"]))).collect()
    }

    #[test]
    fn taints_follow_conditions() {
        let own = json!({"key": "x.io/mine", "effect": "NoExecute"});
        for (name, conditions, unschedulable, want) in [
            ("ready", json!([{"type": "Ready", "status": "True"}]), false, vec!["mine:NoExecute"]),
            (
                "not ready",
                json!([{"type": "Ready", "status": "False"}]),
                false,
                vec!["mine:NoExecute", "not-ready:NoSchedule", "not-ready:NoExecute"],
            ),
            (
                "unknown",
                json!([{"type": "Ready", "status": "Unknown"}]),
                false,
                vec!["mine:NoExecute", "unreachable:NoSchedule", "unreachable:NoExecute"],
            ),
            (
                "pressure and cordon",
                json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]),
                true,
                vec!["mine:NoExecute", "disk-pressure:NoSchedule", "unschedulable:NoSchedule"],
            ),
        ] {
            let mut node = json!({
                "spec": {"taints": [own], "unschedulable": unschedulable}, "status": {"conditions": conditions},
            });
            taint(&mut node, Timestamp::UNIX_EPOCH);
            assert_eq!(taints(&node), want, "{name}");
            assert!(!taint(&mut node, Timestamp::UNIX_EPOCH), "{name}: settled");
            node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            node["spec"]["unschedulable"] = json!(false);
            taint(&mut node, Timestamp::UNIX_EPOCH);
            assert_eq!(taints(&node), ["mine:NoExecute"], "{name}: well again");
        }
    }

    #[test]
    fn silence_is_told_once() {
        let now = Timestamp::UNIX_EPOCH;
        let mut node = json!({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}});
        assert!(silence(&mut node, now));
        let conditions = node["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[0]["reason"], "NodeStatusUnknown");
        assert_eq!(conditions[1]["reason"], "NodeStatusNeverUpdated");
        assert!(!silence(&mut node, now));
    }
}
