//! What goes wrong around koordlet: nobody knows the node, kubelet is away, pods that nobody measures.

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use koordlet::run::start;
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
