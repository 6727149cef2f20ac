//! The least a cluster needs for pods to run: two nodes, somebody who binds, and somebody who says they run.
//!
//! Both sides get the same, so that what differs is the server's doing.

use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Pods go to the first, unless their node selector names another by the label `pin`.
const NODES: [&str; 2] = ["node-a", "node-b"];
const PIN: &str = "pin";

/// As often as kubelet renews its lease.
const BEAT: Duration = Duration::from_secs(10);

/// What is true of a pod that runs.
const CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Makes the nodes and runs the kubelet until dropped.
pub(crate) async fn start(client: Client) -> Result<DropGuard> {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in NODES {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, PIN: name}}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&node_status())).await?;
    }
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    tokio::spawn(async move {
        let both = async { tokio::join!(kubelet(client), beat(leases)) };
        stopped.run_until_cancelled(both).await
    });
    Ok(stop.drop_guard())
}

fn node_status() -> Value {
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": reason,
            "lastHeartbeatTime": "2024-01-01T00:00:00Z", "lastTransitionTime": "2024-01-01T00:00:00Z"})
    };
    json!({"status": {
        "capacity": room, "allocatable": room,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.35.4", "osImage": "hollow", "kernelVersion": "1", "bootID": "b",
            "containerRuntimeVersion": "hollow://1", "architecture": "amd64", "operatingSystem": "linux",
            "machineID": "m", "systemUUID": "s", "kubeProxyVersion": ""},
    }})
}

/// Says again and again that the nodes are alive.
async fn beat(leases: Api<Lease>) {
    let params = PatchParams::apply("kubelet").force();
    loop {
        for name in NODES {
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}});
            // The next beat is the next try.
            let _ = leases.patch(name, &params, &Patch::Apply(lease)).await;
        }
        tokio::time::sleep(BEAT).await;
    }
}

/// Looks at every pod that changes. What fails is tried again at the pod's next change, or when the watch begins anew.
async fn kubelet(client: Client) {
    let all: Api<Pod> = Api::all(client.clone());
    let mut pods = watcher(all, watcher::Config::default()).default_backoff().touched_objects().boxed();
    while let Some(pod) = pods.next().await {
        let Ok(pod) = pod else { continue };
        let client = client.clone();
        tokio::spawn(async move {
            // Once more, for writes of others come between.
            for _ in 0..3 {
                if attend(&client, &pod).await.is_ok() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
}

async fn attend(client: &Client, pod: &Pod) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let Some(pod) = pods.get_opt(&name).await? else { return Ok(()) };
    let spec = pod.spec.clone().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        let preconditions = Some(Preconditions { uid: pod.uid(), ..Preconditions::default() });
        let now = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
        return pods.delete(&name, &now).await.map(drop).map_err(Into::into);
    }
    let Some(_) = &spec.node_name else {
        let selector = spec.node_selector.unwrap_or_default();
        let node = selector.get(PIN).map_or(NODES[0], String::as_str);
        let nodes: Api<Node> = Api::all(client.clone());
        let is_closed = nodes.get(node).await?.spec.is_some_and(|spec| spec.unschedulable == Some(true));
        if is_closed {
            return Ok(());
        }
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let path = format!("/api/v1/namespaces/{}/pods/{name}/binding", pod.namespace().unwrap_or_default());
        let request = http::Request::post(path).header("content-type", "application/json");
        client.request::<Value>(request.body(serde_json::to_vec(&binding)?)?).await?;
        return Ok(());
    };
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    if phase == "Pending" {
        let status = running(&pod);
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
    }
    Ok(())
}

/// The status of a pod that came up.
fn running(pod: &Pod) -> Value {
    let now = pod.metadata.creation_timestamp.clone();
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": now});
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        json!({"name": container.name, "image": container.image, "imageID": "hollow", "ready": true, "started": true,
            "restartCount": 0, "containerID": "hollow://1", "state": {"running": {"startedAt": now}}})
    });
    json!({"status": {
        "phase": "Running", "startTime": now, "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}],
        "conditions": CONDITIONS.map(condition),
        "containerStatuses": containers.collect::<Vec<_>>(),
    }})
}
