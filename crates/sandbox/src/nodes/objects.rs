//! What kubelet writes about its node: the Node and its Lease.
//!
//! Pure. Texts and order of conditions are kubelet's own.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use koord_api::keys::resource::NVIDIA_GPU;
use koord_api::quantity::{Family, Quantity, ResourceList};
use serde_json::{Map, Value, json};

use super::shape::Shape;
use crate::kinds::meta;

/// What nodes run, as `nodeInfo` tells it.
pub(crate) const KUBELET_VERSION: &str = "v1.35.4";
pub(crate) const KUBELET_PORT: u16 = 10250;
/// Namespace of node leases.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: u32 = 40;

/// One node of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) name: &'a str,
    /// Number in its pool.
    pub(crate) index: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) kubelet_port: u16,
}

/// The Node as kubelet registers it, status included.
pub(crate) fn node(shape: &Shape, identity: &Identity<'_>, now: Timestamp) -> Value {
    let mut labels = Map::new();
    for (key, value) in [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/hostname", identity.name),
    ] {
        labels.insert(key.to_owned(), Value::from(value));
    }
    if let Some(zone) = shape.zone(identity.index) {
        labels.insert("topology.kubernetes.io/zone".to_owned(), Value::from(zone));
        labels.insert("topology.kubernetes.io/region".to_owned(), Value::from(shape.region.as_str()));
    }
    labels.extend(shape.labels.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))));
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": identity.name, "labels": labels},
        "spec": {},
        "status": status(shape, identity, now),
    });
    if !shape.annotations.is_empty() {
        node["metadata"]["annotations"] = json!(shape.annotations);
    }
    if !shape.taints.is_empty() {
        node["spec"]["taints"] = shape.taints.iter().map(taint).collect();
    }
    node
}

fn taint(taint: &super::shape::Taint) -> Value {
    let mut out = json!({"key": taint.key, "effect": taint.effect});
    if !taint.value.is_empty() {
        out["value"] = Value::from(taint.value.as_str());
    }
    out
}

fn status(shape: &Shape, identity: &Identity<'_>, now: Timestamp) -> Value {
    let (boot, machine) = (digest(&[identity.name, "boot"]), digest(&[identity.name, "machine"]));
    json!({
        "addresses": [
            {"type": "InternalIP", "address": identity.address.to_string()},
            {"type": "Hostname", "address": identity.name},
        ],
        "allocatable": amounts(&allocatable(shape)),
        "capacity": amounts(&capacity(shape)),
        "conditions": conditions(&[], now),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": identity.kubelet_port}},
        "images": [],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": boot,
            "containerRuntimeVersion": "koord-sandbox://1",
            "kernelVersion": "koord-sandbox",
            "kubeProxyVersion": "",
            "kubeletVersion": KUBELET_VERSION,
            "machineID": machine.replace('-', ""),
            "operatingSystem": "linux",
            "osImage": "koord-sandbox",
            "systemUUID": machine,
        },
    })
}

/// An id that is always the same for the same words, in the form of a UUID.
fn digest(words: &[&str]) -> String {
    let hex = super::lifecycle::hex_digest(words);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
}

/// Everything the machine has.
pub(crate) fn capacity(shape: &Shape) -> ResourceList {
    let mut list = ResourceList::from([
        ("cpu".to_owned(), Quantity::from_value(i64::from(shape.cpus()), Family::DecimalSi)),
        ("ephemeral-storage".to_owned(), Quantity::bytes(shape.ephemeral_storage)),
        ("hugepages-1Gi".to_owned(), Quantity::ZERO),
        ("hugepages-2Mi".to_owned(), Quantity::ZERO),
        ("memory".to_owned(), Quantity::bytes(shape.memory)),
        ("pods".to_owned(), Quantity::from_value(i64::from(shape.pods), Family::DecimalSi)),
    ]);
    if shape.gpus.count > 0 {
        let count = Quantity::from_value(i64::from(shape.gpus.count), Family::DecimalSi);
        list.insert(NVIDIA_GPU.to_owned(), count);
    }
    list.extend(shape.resources.iter().map(|(name, amount)| (name.clone(), *amount)));
    list
}

/// What is left for pods.
pub(crate) fn allocatable(shape: &Shape) -> ResourceList {
    let mut list = capacity(shape);
    let cpu = (i64::from(shape.cpus()) * 1000 - shape.reserved_cpu_milli).max(0);
    list.insert("cpu".to_owned(), Quantity::cores_milli(cpu));
    list.insert("memory".to_owned(), Quantity::bytes(shape.allocatable_memory()));
    list.insert(
        "ephemeral-storage".to_owned(),
        Quantity::from_value(shape.allocatable_storage(), Family::DecimalSi),
    );
    list
}

fn amounts(list: &ResourceList) -> Value {
    list.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect()
}

/// Kubelet's conditions: type, reason and message while all is well.
const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// The conditions of a node that is well: times of transition are kept where the status does not change,
/// conditions of others as they are.
pub(crate) fn conditions(before: &[Value], now: Timestamp) -> Vec<Value> {
    let now = meta::format_time(now);
    let mut after: Vec<Value> = Vec::with_capacity(before.len().max(CONDITIONS.len()));
    let ours = |kind: &Value| CONDITIONS.iter().any(|(name, ..)| kind == name);
    for (kind, status, reason, message) in CONDITIONS {
        let old = before.iter().find(|c| c["type"] == kind && c["status"] == status);
        let since = old.map_or(&Value::Null, |c| &c["lastTransitionTime"]);
        let since = since.as_str().unwrap_or(&now);
        after.push(json!({"type": kind, "status": status, "lastHeartbeatTime": now,
            "lastTransitionTime": since, "reason": reason, "message": message}));
    }
    // As strategic merge patches leave them: others first, where they stood.
    let others = before.iter().filter(|c| !ours(&c["type"])).cloned();
    others.chain(after).collect()
}

/// Renews a node's status in place: heartbeat, own amounts, addresses. Amounts of others stay.
pub(crate) fn renew(node: &mut Value, shape: &Shape, identity: &Identity<'_>, now: Timestamp) {
    let before = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let fresh = status(shape, identity, now);
    if !node["status"].is_object() {
        node["status"] = json!({});
    }
    for list in ["capacity", "allocatable"] {
        let Value::Object(amounts) = &fresh[list] else { continue };
        for (name, amount) in amounts {
            node["status"][list][name] = amount.clone();
        }
    }
    for field in ["addresses", "daemonEndpoints", "nodeInfo"] {
        node["status"][field] = fresh[field].clone();
    }
    node["status"]["conditions"] = Value::from(conditions(&before, now));
}

/// Beats the heart of a node whose amounts are not ours to say.
pub(crate) fn beat(node: &mut Value, now: Timestamp) {
    let before = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    node["status"]["conditions"] = Value::from(conditions(&before, now));
}

/// A node's lease, renewed now.
pub(crate) fn lease(name: &str, node_uid: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}],
        },
        "spec": {
            "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_time(now),
        },
    })
}

/// A time as leases write it: with microseconds.
pub(crate) fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The address of a Node object inside the cluster.
pub(crate) fn address_of(node: &Value) -> Option<Ipv4Addr> {
    let addresses = node["status"]["addresses"].as_array()?;
    let found = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    found["address"].as_str()?.parse().ok()
}

/// The shape of a node that was made elsewhere, as far as its Node object tells it.
pub(crate) fn shape_of(node: &Value) -> Shape {
    let base = Shape::default();
    let capacity: ResourceList =
        serde_json::from_value(node["status"]["capacity"].clone()).unwrap_or_default();
    let amount = |name: &str| capacity.get(name).map(|amount| amount.value());
    let count = |name: &str, or: u32| amount(name).map_or(or, |n| u32::try_from(n).unwrap_or(or));
    let mut shape = Shape {
        cores: count("cpu", base.cores).max(1),
        memory: amount("memory").unwrap_or(base.memory),
        ephemeral_storage: amount("ephemeral-storage").unwrap_or(base.ephemeral_storage),
        pods: count("pods", base.pods),
        ..Shape::default()
    };
    shape.gpus.count = count(NVIDIA_GPU, 0);
    shape
}

/// What objects about a node name as their owner.
pub(crate) fn owner(name: &str, node_uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid,
        "controller": true, "blockOwnerDeletion": true}])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_node_as_kubelet_registers_it() {
        let shape = Shape {
            cores: 4,
            memory: 8 << 30,
            reserved_cpu_milli: 500,
            reserved_memory: 1 << 30,
            ephemeral_storage: 100 << 30,
            ..Shape::default()
        };
        let identity = Identity {
            name: "web-7",
            index: 7,
            address: Ipv4Addr::new(10, 0, 0, 7),
            kubelet_port: KUBELET_PORT,
        };
        let node = node(&shape, &identity, at(0));
        assert_eq!(
            node["metadata"]["labels"],
            json!({
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": "web-7",
                "topology.kubernetes.io/region": "sandbox", "topology.kubernetes.io/zone": "zone-1",
            })
        );
        let status = &node["status"];
        assert_eq!(
            status["capacity"],
            json!({"cpu": "4", "ephemeral-storage": "100Gi", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
                "memory": "8Gi", "pods": "110"})
        );
        assert_eq!(
            status["allocatable"],
            json!({"cpu": "3500m", "ephemeral-storage": "96636764160", "hugepages-1Gi": "0",
                "hugepages-2Mi": "0", "memory": "7068Mi", "pods": "110"})
        );
        let types: Vec<&Value> =
            status["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
        assert_eq!(types, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
        assert_eq!(status["nodeInfo"]["osImage"], "koord-sandbox");
        assert_eq!(status["nodeInfo"]["systemUUID"].as_str().unwrap().len(), 36);
    }

    #[test]
    fn a_heartbeat_keeps_what_others_wrote() {
        let shape = Shape::default();
        let identity =
            Identity { name: "n", index: 0, address: Ipv4Addr::new(10, 0, 0, 1), kubelet_port: KUBELET_PORT };
        let mut node = node(&shape, &identity, at(100));
        node["status"]["allocatable"]["kubernetes.io/batch-cpu"] = json!("9000");
        node["status"]["conditions"][3] = json!({"type": "Ready", "status": "Unknown",
            "lastHeartbeatTime": "1970-01-01T00:01:40Z", "lastTransitionTime": "1970-01-01T00:02:30Z"});
        let other = json!({"type": "Other", "status": "True"});
        node["status"]["conditions"].as_array_mut().unwrap().push(other.clone());
        renew(&mut node, &shape, &identity, at(200));
        assert_eq!(node["status"]["allocatable"]["kubernetes.io/batch-cpu"], "9000");
        let conditions = &node["status"]["conditions"];
        assert_eq!(conditions[0], other);
        assert_eq!(conditions[1]["lastTransitionTime"], "1970-01-01T00:01:40Z", "unchanged status");
        assert_eq!(conditions[1]["lastHeartbeatTime"], "1970-01-01T00:03:20Z");
        assert_eq!(conditions[4]["lastTransitionTime"], "1970-01-01T00:03:20Z", "Ready again");
        assert_eq!(conditions[4]["status"], "True");
    }

    #[test]
    fn a_lease_has_microseconds() {
        let lease = lease("n", "u", "2024-05-01T08:00:00.123456789Z".parse().unwrap());
        assert_eq!(lease["spec"]["renewTime"], "2024-05-01T08:00:00.123456Z");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    }
}
