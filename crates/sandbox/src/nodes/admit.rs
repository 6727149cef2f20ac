//! Whether a node takes a pod that was bound to it. The checks, their order and texts are kubelet's.
//!
//! Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Taint};
use koord_api::resource::{ResourceId, ResourceTable, ResourceVector};
use koord_api::selector::RequiredNodeAffinity;
use koord_api::toleration::find_untolerated;

use super::lifecycle::Verdict;

/// What admission looks at of a node object.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub allocatable: ResourceVector,
}

/// What is taken on the node.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    pub requested: ResourceVector,
    pub pods: i64,
    pub ports: Vec<HostPort>,
}

/// A port of the node's own that a container listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub protocol: String,
    /// Empty: every address.
    pub address: String,
    pub port: i32,
}

/// What a pod asks the node for.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub requests: ResourceVector,
    pub ports: Vec<HostPort>,
}

/// Judges a pod against a node and what is taken there.
pub fn admit(pod: &Pod, ask: &Ask, node: &NodeFacts, taken: &Taken, table: &ResourceTable) -> Verdict {
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return reject("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    if let Some((name, requested, used, capacity)) = lacking(ask, node, taken, table) {
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        return reject(&format!("OutOf{name}"), &message);
    }
    if !RequiredNodeAffinity::of(spec).matches(&node.labels, &node.name).unwrap_or(false) {
        return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    if ask.ports.iter().any(|port| taken.ports.iter().any(|other| port.conflicts_with(other))) {
        return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if find_untolerated(&node.taints, tolerations, |taint| taint.effect == "NoExecute").is_some() {
        return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    Verdict::Admitted
}

fn predicate(name: &str, why: &str) -> Verdict {
    reject(name, &format!("Predicate {name} failed: {why}"))
}

fn reject(reason: &str, message: &str) -> Verdict {
    Verdict::Rejected { reason: reason.to_owned(), message: message.to_owned() }
}

/// The first resource that is short: name, requested, used, capacity.
fn lacking(
    ask: &Ask,
    node: &NodeFacts,
    taken: &Taken,
    table: &ResourceTable,
) -> Option<(String, i64, i64, i64)> {
    let pods = node.allocatable.get(ResourceId::PODS);
    if taken.pods + 1 > pods {
        return Some(("pods".to_owned(), 1, taken.pods, pods));
    }
    let mut asked: Vec<(ResourceId, i64)> = ask.requests.iter().collect();
    // Named ones first, in kubelet's order, then all others by name.
    let named = [ResourceId::CPU, ResourceId::MEMORY, ResourceId::EPHEMERAL_STORAGE];
    let rank = |id: ResourceId| named.iter().position(|n| *n == id).unwrap_or(named.len());
    asked.sort_by(|a, b| rank(a.0).cmp(&rank(b.0)).then_with(|| table.name(a.0).cmp(table.name(b.0))));
    for (id, amount) in asked {
        let (capacity, used) = (node.allocatable.get(id), taken.requested.get(id));
        let name = table.name(id);
        // A resource of the cluster that nodes do not know is not kubelet's business.
        let is_unknown = is_extended(name) && capacity == 0;
        if amount > 0 && amount > capacity - used && !is_unknown {
            return Some((name.to_owned(), amount, used, capacity));
        }
    }
    None
}

fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

impl HostPort {
    fn conflicts_with(&self, other: &HostPort) -> bool {
        let is_any = |address: &str| address.is_empty() || address == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || is_any(&self.address) || is_any(&other.address))
    }
}

/// What a pod asks for, interning the names of resources.
pub fn ask(pod: &Pod, table: &mut ResourceTable) -> Ask {
    let requests = ResourceVector::from_list(&koord_api::pod::requests(pod), table);
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ports = containers.flat_map(|c| c.ports.iter().flatten());
    let ports = ports.filter_map(|port| {
        Some(HostPort {
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            address: port.host_ip.clone().unwrap_or_default(),
            port: port.host_port.filter(|port| *port > 0)?,
        })
    });
    Ask { requests, ports: ports.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn facts(table: &mut ResourceTable) -> NodeFacts {
        let amounts = [("cpu", "4"), ("memory", "8Gi"), ("pods", "3"), ("example.com/card", "2")];
        let amounts = amounts.map(|(name, amount)| (name, amount.parse().unwrap()));
        NodeFacts {
            name: "n1".to_owned(),
            labels: BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]),
            taints: vec![
                Taint { key: "k".into(), effect: "NoSchedule".into(), ..Taint::default() },
                Taint { key: "x".into(), effect: "NoExecute".into(), ..Taint::default() },
            ],
            allocatable: ResourceVector::from_amounts(amounts, table),
        }
    }

    fn pod(spec: &Value) -> Pod {
        let mut spec = spec.clone();
        spec["containers"] = json!([{"name": "c", "resources": {"requests": spec["requests"].take()},
            "ports": spec["ports"].take()}]);
        if spec["tolerations"].is_null() {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn as_kubelet_judges() {
        let not_enough = "Node didn't have enough resource: ";
        for (spec, used_cpu, pods, reason, message) in [
            (json!({"requests": {"cpu": "4"}}), 0, 0, "", ""),
            (json!({}), 0, 2, "", ""),
            (json!({}), 0, 3, "OutOfpods", "pods, requested: 1, used: 3, capacity: 3"),
            (
                json!({"requests": {"cpu": "1500m"}}),
                3000,
                1,
                "OutOfcpu",
                "cpu, requested: 1500, used: 3000, capacity: 4000",
            ),
            (
                json!({"requests": {"memory": "9Gi"}}),
                0,
                0,
                "OutOfmemory",
                "memory, requested: 9663676416, used: 0, capacity: 8589934592",
            ),
            (
                json!({"requests": {"example.com/card": "3"}}),
                0,
                0,
                "OutOfexample.com/card",
                "example.com/card, requested: 3, used: 0, capacity: 2",
            ),
            (json!({"requests": {"example.com/other": "3"}}), 0, 0, "", ""),
            (
                json!({"requests": {"kubernetes.io/batch-cpu": "3"}}),
                0,
                0,
                "OutOfkubernetes.io/batch-cpu",
                "kubernetes.io/batch-cpu, requested: 3, used: 0, capacity: 0",
            ),
            (json!({"nodeSelector": {"disk": "ssd"}}), 0, 0, "", ""),
            (json!({"nodeSelector": {"disk": "hdd"}}), 0, 0, "NodeAffinity", ""),
            (json!({"ports": [{"containerPort": 80, "hostPort": 80}]}), 0, 0, "NodePorts", ""),
            (json!({"ports": [{"containerPort": 80, "hostPort": 81}]}), 0, 0, "", ""),
            (json!({"tolerations": [{"key": "k", "operator": "Exists"}]}), 0, 0, "TaintToleration", ""),
            (json!({"tolerations": [{"key": "x", "operator": "Exists"}]}), 0, 0, "", ""),
            (json!({"os": {"name": "windows"}}), 0, 0, "PodOSNotSupported", ""),
        ] {
            let mut table = ResourceTable::new();
            let node = facts(&mut table);
            let mut taken = Taken { pods, ..Taken::default() };
            taken.requested.set(ResourceId::CPU, used_cpu);
            let port = HostPort { protocol: "TCP".into(), address: "10.0.0.1".into(), port: 80 };
            taken.ports.push(port);
            let pod = pod(&spec);
            let ask = ask(&pod, &mut table);
            match admit(&pod, &ask, &node, &taken, &table) {
                Verdict::Admitted => assert_eq!(reason, "", "{spec}"),
                Verdict::Rejected { reason: found, message: text } => {
                    assert_eq!(found, reason, "{spec}");
                    if !message.is_empty() {
                        assert_eq!(text, format!("{not_enough}{message}"), "{spec}");
                    }
                }
            }
        }
    }
}
