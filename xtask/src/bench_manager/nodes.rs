//! A large cluster as objects: nodes of two NUMA nodes, each with as many pods.

use koord_api::keys::pod::label::QOS_CLASS;
use serde_json::{Value, json};

pub(super) const NODES: usize = 5_000;
pub(super) const PODS_PER_NODE: usize = 20;
/// Of those, pods that reclaimed capacity is what they leave over.
pub(super) const PROD_PER_NODE: usize = 14;
/// Of each node.
pub(super) const CPU_MILLI: i64 = 64_000;
pub(super) const MEMORY_BYTES: i64 = 256 << 30;
/// NUMA nodes of each node.
pub(super) const ZONES: i64 = 2;
/// Images that a node's status tells of.
const IMAGES: usize = 30;

pub(super) const NAMESPACES: usize = 20;

pub(super) fn name(node: usize) -> String {
    format!("node-{node}.cluster.example")
}

/// Namespace and name of a pod of a node.
pub(super) fn pod_name(node: usize, pod: usize) -> (String, String) {
    (
        format!("team-{}", (node + pod) % NAMESPACES),
        format!("service-{}-6d4cf56db6-{node:04x}{pod:02x}", pod * 7),
    )
}

pub(super) fn is_prod(pod: usize) -> bool {
    pod < PROD_PER_NODE
}

pub(super) fn node(number: usize) -> Value {
    let (name, zone) = (name(number), number % 3);
    let amounts = json!({"cpu": CPU_MILLI.to_string() + "m", "memory": MEMORY_BYTES.to_string(),
        "pods": "110", "ephemeral-storage": "1932735283200", "hugepages-1Gi": "0", "hugepages-2Mi": "0"});
    let condition = |kind: &str, is_true: bool| {
        json!({"type": kind, "status": if is_true { "True" } else { "False" }, "reason": "Kubelet",
            "message": "kubelet tells so", "lastHeartbeatTime": "2025-03-01T08:00:00Z", "lastTransitionTime": "2025-03-01T08:00:00Z"})
    };
    let image = |image: usize| {
        let digest = image * 7919 + number % 50;
        json!({"names": [format!("registry.example/team/service-{image}@sha256:{digest:064x}"),
            format!("registry.example/team/service-{image}:v1.4.2")], "sizeBytes": 100_000_000 + image})
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": format!("zone-{zone}"), "topology.kubernetes.io/region": "region-1",
                "node.kubernetes.io/instance-type": "c64m256", "node.example/pool": format!("pool-{}", number % 8),
                "node.example/rack": format!("rack-{}", number / 40)},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": format!("{{\"disk.csi.example\":\"{name}\"}}")}},
        "spec": {"podCIDR": format!("10.{}.{}.0/24", number / 256, number % 256), "providerID": format!("example://{name}")},
        "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [condition("MemoryPressure", false), condition("DiskPressure", false),
                condition("PIDPressure", false), condition("Ready", true)],
            "addresses": [{"type": "InternalIP", "address": format!("192.168.{}.{}", number / 256, number % 256)},
                {"type": "Hostname", "address": name}],
            "nodeInfo": {"architecture": "amd64", "bootID": format!("{number:08x}-boot"), "containerRuntimeVersion": "containerd://2.1.0",
                "kernelVersion": "6.8.0", "kubeProxyVersion": "", "kubeletVersion": "v1.35.4", "machineID": format!("{number:032x}"),
                "operatingSystem": "linux", "osImage": "Linux", "systemUUID": format!("{number:032x}")},
            "images": (0..IMAGES).map(image).collect::<Vec<_>>()},
    })
}

/// What its agent reports of its NUMA nodes.
pub(super) fn topology(number: usize) -> Value {
    let resource = |name: &str, amount: String| json!({"name": name, "capacity": amount, "allocatable": amount, "available": amount});
    let zone = |zone: i64| {
        json!({"name": format!("node-{zone}"), "type": "Node", "resources": [
            resource("cpu", format!("{}m", CPU_MILLI / ZONES)),
            resource("memory", (MEMORY_BYTES / ZONES).to_string())]})
    };
    json!({"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology",
        "metadata": {"name": name(number), "annotations": {
            "node.koordinator.sh/cpu-basic-info": json!({"cpuModel": "Xeon 8369B", "hyperThreadEnabled": true}).to_string(),
            "node.koordinator.sh/cpu-topology": cpu_topology(), "node.koordinator.sh/pod-cpu-allocs": "[]"}},
        "topologyPolicies": ["None"], "zones": (0..ZONES).map(zone).collect::<Vec<_>>()})
}

fn cpu_topology() -> String {
    let cpu = |id: i64| json!({"id": id, "core": id / 2, "socket": id / 32, "node": id / 32});
    json!({"detail": (0..CPU_MILLI / 1000).map(cpu).collect::<Vec<_>>()}).to_string()
}

/// A pod that runs on a node.
pub(super) fn pod(node: usize, pod: usize) -> Value {
    let (namespace, pod_name) = pod_name(node, pod);
    let app = format!("service-{}", pod * 7);
    let (qos, class, amounts) = if is_prod(pod) {
        ("LS", "koord-prod", json!({"cpu": "2", "memory": "8Gi"}))
    } else {
        ("BE", "koord-batch", json!({"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "4Gi"}))
    };
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod_name, "namespace": namespace,
            "labels": {"app.kubernetes.io/name": app, "pod-template-hash": "6d4cf56db6", QOS_CLASS: qos, "version": "v1.4.2"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}},
        "spec": {"nodeName": name(node), "priorityClassName": class, "schedulerName": "koord-scheduler",
            "containers": [{"name": "main", "image": format!("registry.example/team/{app}:v1.4.2"),
                "env": [{"name": "APP", "value": app}, {"name": "GOMAXPROCS", "value": "4"}],
                "ports": [{"containerPort": 8080, "name": "http"}], "livenessProbe": probe, "readinessProbe": probe,
                "resources": {"requests": amounts, "limits": amounts}}]},
    })
}
