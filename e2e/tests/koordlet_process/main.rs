//! koordlet as a whole, on a node of plain files: an API server, a kubelet, strategies that act, and their undoing.

mod account;
mod hooks;
mod node;
mod troubles;

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Event;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::crd::node_slo::NodeSLO;
use koordlet::run::{clean_up, start};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use node::{NODE, Tree, cluster, kubelet, objects, page, pod, stop, until};

#[tokio::test]
async fn a_node_is_watched_and_governed_and_left_as_it_was() -> Result<()> {
    let tree = Tree::new()?;
    let (cluster, config, client) = cluster().await?;
    objects(&client).await?;
    let end = CancellationToken::new();
    let pods = vec![pod("web", "LS", "Burstable", "1a"), pod("batch", "BE", "BestEffort", "2b")];
    let port = kubelet(Arc::new(Mutex::new(Some(pods))), end.clone()).await?;
    let gates = "-feature-gates=AuditEvents=true,AuditEventsHTTPHandler=true";
    let running = start(tree.options(port, gates)?, config.clone()).await?;

    let topologies: Api<NodeResourceTopology> = Api::all(client.clone());
    until("the topology is reported", || async {
        Ok(topologies.get_opt(NODE).await?.is_some_and(|object| !object.annotations().is_empty()))
    })
    .await?;
    // 65 % of eight CPUs, and nothing is used: six CPUs.
    until("best-effort pods are suppressed", || async { Ok(tree.best_effort_cpus("/podbatch/2b")? == 6) })
        .await?;
    assert_eq!(tree.best_effort_cpus("")?, 6);
    until("it is ready", || async { Ok(page(&running, "/readyz").await.is_ok()) }).await?;
    let metrics = page(&running, "/metrics").await?;
    let line = format!("koordlet_be_suppress_cpu_cores{{node=\"{NODE}\",type=\"cpuset\"}} 6.0");
    assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    let records = page(&running, "/events?size=50").await?;
    assert!(records.contains("\"reason\":\"AdjustBEByNodeCPUUsage\""), "{records}");
    let told = page(&running, &format!("/apis/v1/explain/node/{NODE}")).await?;
    assert!(told.contains("\"suppressMilli\":5200"), "{told}");
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let told = || async {
        let of = ListParams::default().fields("involvedObject.name=batch,reason=AdjustBEByNodeCPUUsage");
        Ok::<_, anyhow::Error>(events.list(&of).await?.items)
    };
    until("the pod that has fewer CPUs is told", || async { Ok(!told().await?.is_empty()) }).await?;
    let told = told().await?;
    let text = told[0].message.clone().unwrap_or_default();
    assert!(text.contains("update BE group to cpuset: ") && text.contains("65 % of 8000m"), "{text}");
    assert_eq!(told[0].involved_object.uid.as_deref(), Some("batch"));

    let slos: Api<NodeSLO> = Api::all(client.clone());
    let off = json!({ "spec": { "resourceUsedThresholdWithBE": { "enable": false } } });
    slos.patch(NODE, &PatchParams::default(), &Patch::Merge(&off)).await?;
    until("suppression is given up", || async { Ok(tree.best_effort_cpus("/podbatch/2b")? == 8) }).await?;
    let on = json!({ "spec": { "resourceUsedThresholdWithBE": { "enable": true } } });
    slos.patch(NODE, &PatchParams::default(), &Patch::Merge(&on)).await?;
    until("suppression is back", || async { Ok(tree.best_effort_cpus("/podbatch/2b")? == 6) }).await?;
    stop(running).await?;

    // A run without the feature gives back what the run before it took.
    let running = start(tree.options(port, "-feature-gates=BECPUSuppress=false")?, config.clone()).await?;
    until("the next run gives back", || async { Ok(tree.best_effort_cpus("/podbatch/2b")? == 8) }).await?;
    stop(running).await?;
    let running = start(tree.options(port, "")?, config).await?;
    until("suppression starts anew", || async { Ok(tree.best_effort_cpus("")? == 6) }).await?;
    stop(running).await?;
    clean_up(&tree.options(port, "")?).context("clean-up")?;
    for group in ["", "/podbatch", "/podbatch/2b"] {
        assert_eq!(tree.best_effort_cpus(group)?, 8, "{group}");
    }
    end.cancel();
    cluster.stop().await;
    Ok(())
}
