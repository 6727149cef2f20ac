//! What there is in the cluster at one moment, as far as expectations look at it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use koord_api::quantity::ResourceList;
use serde_json::Value;

use super::scenario::{ObjectRef, Pods, Which};

/// The annotation on a node that says which scenario cordoned it.
pub(super) const CORDONED_BY: &str = "demo.koord.sh/cordoned-by";

/// One moment.
#[derive(Debug, Default)]
pub(super) struct World {
    /// Those of the scenario's namespaces.
    pub(super) pods: Vec<Pod>,
    pub(super) nodes: Vec<Node>,
    /// Objects that an expectation asks for; absent ones are None.
    pub(super) objects: BTreeMap<ObjectRef, Option<Value>>,
    /// Pods that had to make room since the scenario began.
    pub(super) preempted: Vec<Preempted>,
    /// What pods use, by namespace and name, where an expectation asks for it.
    pub(super) used: BTreeMap<String, ResourceList>,
    /// Every pod seen since the scenario began, by UID.
    pub(super) seen: BTreeMap<String, Pod>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) node: Option<String>,
    pub(super) phase: String,
    pub(super) is_ready: bool,
    pub(super) is_terminating: bool,
    pub(super) unscheduled: Option<Unscheduled>,
    /// All that the server says of it.
    pub(super) object: Arc<Value>,
}

/// What a scheduler said of a pod that it could not place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unscheduled {
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) allocatable: ResourceList,
    pub(super) is_ready: bool,
    pub(super) is_cordoned: bool,
    /// Only pods that say so come here.
    pub(super) is_tainted: bool,
    /// The scenario that did it.
    pub(super) cordoned_by: Option<String>,
}

/// An event that says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Preempted {
    pub(super) pod_uid: String,
    /// Names the UID of the pod that took the place.
    pub(super) note: String,
}

impl Pod {
    /// Why one that has a node does not run there; none for those that do, have ended well, or have no node yet.
    pub(super) fn trouble(&self) -> Option<String> {
        let node = self.node.as_ref()?;
        if self.phase == "Succeeded" || (self.phase == "Running" && self.is_ready && !self.is_terminating) {
            return None;
        }
        let word = if self.is_terminating { " and is being deleted" } else { "" };
        let status = &self.object["status"];
        let said: Vec<&str> =
            [&status["reason"], &status["message"]].into_iter().filter_map(Value::as_str).collect();
        let why = if said.is_empty() { String::new() } else { format!(": {}", said.join(": ")) };
        Some(format!("{} is {} on {node}{word}{why}", self.key(), self.phase))
    }

    /// Fields that are missing read as empty: a half-written pod is not yet in any state.
    pub(super) fn from_json(pod: &Value) -> Pod {
        let condition = |kind: &str| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().find(|condition| condition["type"] == kind)
        };
        let unscheduled = condition("PodScheduled").filter(|it| it["status"] == "False");
        Pod {
            namespace: text(&pod["metadata"]["namespace"]),
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            labels: labels(pod),
            node: pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
            phase: text(&pod["status"]["phase"]),
            is_ready: condition("Ready").is_some_and(|it| it["status"] == "True"),
            is_terminating: pod["metadata"]["deletionTimestamp"].is_string(),
            unscheduled: unscheduled
                .map(|it| Unscheduled { reason: text(&it["reason"]), message: text(&it["message"]) }),
            object: Arc::new(pod.clone()),
        }
    }

    pub(super) fn is_one_of(&self, pods: &Pods) -> bool {
        self.namespace == pods.namespace
            && match &pods.which {
                Which::Named(name) => self.name == *name,
                Which::Selected(labelled) => labelled.selector.matches(&self.labels),
            }
    }

    /// Whether it still waits for a node.
    pub(super) fn is_waiting(&self) -> bool {
        self.node.is_none() && !self.is_terminating && !matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Node {
    pub(super) fn from_json(node: &Value) -> Node {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.into_iter().filter(|condition| condition["type"] == "Ready");
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        Node {
            name: text(&node["metadata"]["name"]),
            labels: labels(node),
            allocatable: serde_json::from_value(node["status"]["allocatable"].clone()).unwrap_or_default(),
            is_ready: ready.any(|condition| condition["status"] == "True"),
            is_cordoned: node["spec"]["unschedulable"] == true,
            is_tainted: taints.into_iter().any(|taint| taint["effect"] != "PreferNoSchedule"),
            cordoned_by: node["metadata"]["annotations"][CORDONED_BY].as_str().map(str::to_owned),
        }
    }

    /// Whether any new pod may come.
    pub(super) fn takes_pods(&self) -> bool {
        self.is_ready && !self.is_cordoned && !self.is_tainted
    }
}

impl Preempted {
    pub(super) fn from_json(event: &Value) -> Preempted {
        Preempted { pod_uid: text(&event["involvedObject"]["uid"]), note: text(&event["message"]) }
    }
}

/// Pods that wait for the same reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Waiting<'w> {
    pub(super) pods: Vec<&'w Pod>,
    pub(super) message: &'w str,
}

impl World {
    /// The pods that wait for a node, grouped by what the scheduler said of them, the largest group first.
    pub(super) fn waiting(&self) -> Vec<Waiting<'_>> {
        let mut groups: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| pod.is_waiting()) {
            let message = pod.unscheduled.as_ref().map_or("", |said| said.message.as_str());
            groups.entry(message).or_default().push(pod);
        }
        let mut groups: Vec<Waiting<'_>> =
            groups.into_iter().map(|(message, pods)| Waiting { pods, message }).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.pods.len()));
        groups
    }
}

/// What a NodeMetric says of each pod: its `namespace/name`, and what it uses.
pub(super) fn used(metric: &Value) -> impl Iterator<Item = (String, ResourceList)> + '_ {
    let pods = metric["status"]["podsMetric"].as_array().into_iter().flatten();
    pods.map(|pod| {
        let resources = serde_json::from_value(pod["podUsage"]["resources"].clone()).unwrap_or_default();
        (format!("{}/{}", text(&pod["namespace"]), text(&pod["name"])), resources)
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    let entries = object["metadata"]["labels"].as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), text(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_in_trouble_say_why() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        for (status, want) in [
            (json!({"phase": "Running", "conditions": ready}), None),
            (json!({"phase": "Succeeded"}), None),
            (json!({"phase": "Running"}), Some("shop/web is Running on n1")),
            (
                json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}),
                Some("shop/web is Failed on n1: OutOfcpu: Pod was rejected"),
            ),
        ] {
            let mut pod =
                json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"nodeName": "n1"}});
            pod["status"] = status;
            assert_eq!(Pod::from_json(&pod).trouble().as_deref(), want, "{pod}");
            pod["spec"] = json!({});
            assert_eq!(Pod::from_json(&pod).trouble(), None, "whoever has no node waits for one");
        }
    }
}
