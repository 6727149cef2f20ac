//! koordlet as the account that the chart gives it: a real API server refuses it nothing that it needs.

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Event, Node};
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_testkit::ControlPlane;
use koordlet::run::start;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::node::{NODE, Tree, kubelet, objects, page, pod, stop, until};

const HOME: &str = "koordinator-system";

/// Who is the administrator, and who is koordlet.
fn installed(cluster: &ControlPlane) -> Result<(Kubeconfig, Kubeconfig)> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    cluster.install_crds(&deploy.join("crds"))?;
    cluster.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {HOME}}}}}"))?;
    cluster.apply(&std::fs::read_to_string(deploy.join("koordlet/rbac.yaml"))?)?;
    let token = cluster.kubectl_ok(["create", "token", "koordlet", "--namespace", HOME])?;
    let account = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "koord",
        "clusters": [{ "name": "koord", "cluster": { "server": cluster.server(),
            "certificate-authority": cluster.dir().join("pki/ca.crt") } }],
        "users": [{ "name": "koordlet", "user": { "token": token.trim() } }],
        "contexts": [{ "name": "koord", "context": { "cluster": "koord", "user": "koordlet" } }],
    });
    Ok((Kubeconfig::read_from(cluster.kubeconfig())?, Kubeconfig::from_yaml(&account.to_string())?))
}

async fn config(kubeconfig: Kubeconfig) -> Result<Config> {
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chart_grants_is_enough() -> Result<()> {
    let Some(cluster) = tokio::task::block_in_place(koord_testkit::shared) else { return Ok(()) };
    let (admin, account) = tokio::task::block_in_place(|| installed(cluster))?;
    let client = Client::try_from(config(admin).await?)?;
    objects(&client).await?;

    let (tree, end) = (Tree::new()?, CancellationToken::new());
    let mut batch = pod("batch", "BE", "BestEffort", "2b");
    batch["metadata"]["annotations"] = json!({ "koordinator.sh/cpuQOS": "{" });
    let port = kubelet(Arc::new(Mutex::new(Some(vec![batch]))), end.clone()).await?;
    tree.put(
        "xpu/cards.json",
        &json!([{ "vendor": "huawei", "model": "910B", "uuid": "npu-0", "minor": "0",
            "resources": { "koordinator.sh/gpu-memory": "64Gi" }, "status": { "healthy": true } }])
        .to_string(),
    )?;
    let more = format!(
        "-feature-gates=Accelerators=true -xpu-enforce-collect-from-device-infos=true -xpu-device-infos-dir={}",
        tree.path("xpu").display()
    );
    let running = start(tree.options(port, &more)?, config(account).await?).await?;

    let topologies: Api<NodeResourceTopology> = Api::all(client.clone());
    until("the topology", || async {
        Ok(topologies.get_opt(NODE).await?.is_some_and(|object| !object.annotations().is_empty()))
    })
    .await?;
    // What CPUs services share follows a Node that keeps one of eight back.
    let reserved = json!({ "metadata": { "annotations": {
        "node.koordinator.sh/reservation": r#"{"reservedCPUs":"0"}"# } } });
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&reserved)).await?;
    until("the topology follows the Node", || async {
        let object = topologies.get(NODE).await?;
        let pools = object.annotations().get("node.koordinator.sh/cpu-shared-pools");
        Ok(pools.is_some_and(|pools| pools.contains("1-7")))
    })
    .await?;
    let devices: Api<koord_api::crd::device::Device> = Api::all(client.clone());
    until("the devices", || async { Ok(devices.get_opt(NODE).await?.is_some()) }).await?;
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let about = ListParams::default().fields("involvedObject.name=batch");
    until("an event", || async { Ok(!events.list(&about).await?.items.is_empty()) }).await?;
    until("it is ready", || async { Ok(page(&running, "/readyz").await.is_ok()) }).await?;

    let may = |verb: &str, what: &str| {
        let account = format!("system:serviceaccount:{HOME}:koordlet");
        let (kind, part) = what.split_once('/').unwrap_or((what, ""));
        let part = format!("--subresource={part}");
        // It says no by its exit status, too.
        cluster.kubectl_ok(["auth", "can-i", verb, kind, &part, "--as", &account]).is_ok()
    };
    // These wait for a kubelet with authentication, a pod to evict, a claim, and a minute of samples.
    let nodemetrics = "nodemetrics.slo.koordinator.sh/status";
    for (verb, what) in [
        ("get", "nodes/proxy"),
        ("create", "pods/eviction"),
        ("get", "persistentvolumeclaims"),
        ("update", nodemetrics),
        ("update", "devices.scheduling.koordinator.sh"),
    ] {
        assert!(may(verb, what), "{verb} {what}");
    }
    for (verb, what) in [("get", "secrets"), ("patch", "nodes"), ("delete", "pods"), ("list", "pods")] {
        assert!(!may(verb, what), "{verb} {what} is not needed");
    }
    stop(running).await?;
    end.cancel();
    Ok(())
}
