//! What goes wrong around koordlet: nobody knows the node, kubelet is away, pods that nobody measures.

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::crd::node_slo::NodeSLO;
use koordlet::run::start;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::node::{NODE, Pods, Tree, cluster, kubelet, objects, page, pod, stop, until};

fn tell(pods: &Pods, told: Option<Vec<serde_json::Value>>) {
    *pods.lock().expect("nobody panics while holding it") = told;
}

/// Nothing is done before the node is known; then everything is, without a restart.
#[tokio::test]
async fn a_node_that_nobody_knows_is_waited_for() -> Result<()> {
    let tree = Tree::new()?;
    let (cluster, config, client) = cluster().await?;
    let end = CancellationToken::new();
    let pods: Pods = Arc::new(Mutex::new(Some(vec![pod("batch", "BE", "BestEffort", "2b")])));
    let port = kubelet(pods, end.clone()).await?;
    let running = start(tree.options(port, "")?, config).await?;
    until("it says whom it waits for", || async {
        let told = page(&running, "/readyz?verbose").await.err().map(|error| format!("{error:?}"));
        Ok(told.is_some_and(|told| told.contains("Node")))
    })
    .await?;
    ensure!(tree.best_effort_cpus("")? == 8, "something was done to a node that nobody knows");
    objects(&client).await?;
    until("best-effort pods are suppressed", || async { Ok(tree.best_effort_cpus("/podbatch/2b")? == 6) })
        .await?;
    stop(running).await?;
    end.cancel();
    cluster.stop().await;
    Ok(())
}

/// An annotation of the Node that cannot be read stops what follows from it, and nothing else.
#[tokio::test]
async fn a_faulty_annotation_of_the_node_stops_nothing_else() -> Result<()> {
    let tree = Tree::new()?;
    let (cluster, config, client) = cluster().await?;
    objects(&client).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let annotate = async |value: Option<&str>| {
        let patch =
            json!({ "metadata": { "annotations": { "node.koordinator.sh/system-qos-resource": value } } });
        nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    annotate(Some("{")).await?;
    let slos: Api<NodeSLO> = Api::all(client.clone());
    let policy = json!({ "spec": { "resourceUsedThresholdWithBE": { "cpuSuppressPolicy": "cfsQuota" } } });
    slos.patch(NODE, &PatchParams::default(), &Patch::Merge(&policy)).await?;
    let end = CancellationToken::new();
    let pods: Pods = Arc::new(Mutex::new(Some(vec![pod("batch", "BE", "BestEffort", "2b")])));
    let port = kubelet(pods, end.clone()).await?;
    let running = start(tree.options(port, "")?, config).await?;
    until("best-effort pods have a quota", || async {
        Ok(tree.get("sys/fs/cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us")? == "520000")
    })
    .await?;
    until("it is ready", || async { Ok(page(&running, "/readyz").await.is_ok()) }).await?;
    let topologies: Api<NodeResourceTopology> = Api::all(client.clone());
    ensure!(topologies.get_opt(NODE).await?.is_none(), "something was told that cannot be known");
    annotate(None).await?;
    until("the topology is told once it can be known", || async {
        Ok(topologies.get_opt(NODE).await?.is_some())
    })
    .await?;
    stop(running).await?;
    end.cancel();
    cluster.stop().await;
    Ok(())
}

/// While kubelet is away what it told last counts; a run that never heard of a pod does nothing. Pods without groups, and
/// so without metrics, disturb nobody.
#[tokio::test]
async fn kubelet_goes_away_and_pods_are_not_measured() -> Result<()> {
    let tree = Tree::new()?;
    let (cluster, config, client) = cluster().await?;
    objects(&client).await?;
    let end = CancellationToken::new();
    let pods: Pods = Arc::new(Mutex::new(None));
    let port = kubelet(pods.clone(), end.clone()).await?;
    let running = start(tree.options(port, "")?, config.clone()).await?;
    until("it says whom it waits for", || async {
        let told = page(&running, "/readyz?verbose").await.err().map(|error| format!("{error:?}"));
        Ok(told.is_some_and(|told| told.contains("pods")))
    })
    .await?;
    ensure!(tree.best_effort_cpus("")? == 8, "something was done before kubelet told of pods");

    let known = vec![pod("batch", "BE", "BestEffort", "2b"), pod("ghost", "LS", "Burstable", "9c")];
    tell(&pods, Some(known.clone()));
    until("best-effort pods are suppressed", || async { Ok(tree.best_effort_cpus("/podbatch/2b")? == 6) })
        .await?;
    tell(&pods, None);
    // A group that comes while kubelet is away is governed when it is back.
    tree.group("kubepods/besteffort/podbatch/7d")?;
    let metrics = page(&running, "/metrics").await?;
    let line = format!("koordlet_be_suppress_cpu_cores{{node=\"{NODE}\",type=\"cpuset\"}} 6.0");
    ensure!(metrics.contains(&line), "{metrics}");
    tell(&pods, Some(known));
    until("the new group is governed", || async { Ok(tree.best_effort_cpus("/podbatch/7d")? == 6) }).await?;
    let metrics = page(&running, "/metrics").await.context("it lives")?;
    let is_bad = |line: &str| line.contains("\"failed\"") && line.starts_with("koordlet_qos_strategy");
    ensure!(!metrics.lines().any(is_bad), "{metrics}");
    stop(running).await?;
    end.cancel();
    cluster.stop().await;
    Ok(())
}
