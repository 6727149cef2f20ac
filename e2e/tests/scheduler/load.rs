//! Load-aware scheduling: a hot node is avoided, and taken once it has cooled down.

use anyhow::{Context as _, Result, ensure};
use koord_api::crd::node_metric::NodeMetric;
use koord_engine::time::Time;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Place, eventually};
use crate::ours::Ours;
use crate::{all_placed, create, make_nodes, placed, pod};

const PLUGINS: &str = "{multiPoint: {enabled: [{name: LoadAwareScheduling, weight: 1}]}}";

/// Reports what a node uses, as koordlet does.
async fn measure(place: &Place, node: &str, cpu: &str) -> Result<()> {
    let metrics: Api<NodeMetric> = Api::all(place.client.clone());
    if metrics.get_opt(node).await?.is_none() {
        let object: NodeMetric = serde_json::from_value(json!({"metadata": {"name": node}, "spec": {}}))?;
        metrics.create(&PostParams::default(), &object).await?;
    }
    let usage = json!({"resources": {"cpu": cpu, "memory": "1Gi"}});
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let now = Time::from_seconds(i64::try_from(since_epoch)?);
    let status = json!({"status": {"updateTime": now.to_string(), "nodeMetric": {"nodeUsage": usage, "systemUsage": {}}}});
    metrics.patch_status(node, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// A pod for one node alone.
fn pinned(name: &str, node: &str) -> Result<k8s_openapi::api::core::v1::Pod> {
    let mut object = pod(name, "load", "load", "200m", None)?;
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [field]}]}}});
    object.spec.as_mut().context("a spec")?.affinity = serde_json::from_value(affinity)?;
    Ok(object)
}

pub(crate) async fn busy_nodes_are_avoided(place: &Place) -> Result<()> {
    make_nodes(place, "load", 2).await?;
    let ours = Ours::start_with(place, "load", "lease-load", PLUGINS, &[]).await?;
    measure(place, "load-0", "3900m").await?;
    measure(place, "load-1", "200m").await?;
    // What was told must have arrived before anything is placed.
    for node in ["load-0", "load-1"] {
        eventually("the scheduler has heard of it", async || {
            let page = ours.get(&format!("/apis/v1/plugins/LoadAwareScheduling/node/{node}")).await?;
            Ok(page.get("nodeDelta").is_some().then_some(()))
        })
        .await?;
    }
    create(place, (0..4).map(|number| pod(&format!("load-{number}"), "load", "load", "200m", None))).await?;
    let by_node = all_placed(place, "load", 4).await?;
    ensure!(by_node.get("load-1") == Some(&4), "{by_node:?}");
    create(place, [pinned("load-pinned", "load-0")]).await?;
    let condition = eventually("the condition says why", async || {
        let pod = place.pods().get("load-pinned").await?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.into_iter().find(|condition| condition.type_ == "PodScheduled"))
    })
    .await?;
    let message = condition.message.unwrap_or_default();
    ensure!(message.contains("1 node(s) cpu usage exceed threshold"), "{message}");
    let told: Value = ours.get("/apis/v1/explain/pod/default/load-pinned").await?;
    let reasons = told["reasons"].as_array().context("reasons")?;
    let busy =
        reasons.iter().find(|reason| reason["plugin"] == "LoadAwareScheduling").context("the plugin")?;
    ensure!(busy["closest"]["kind"] == "load" && busy["closest"]["usedPercent"] == 98, "{busy}");
    ensure!(busy["closest"]["thresholdPercent"] == 65, "{busy}");
    measure(place, "load-0", "300m").await?;
    eventually("the node has cooled down", async || {
        let by_pod = placed(place, "load").await?;
        Ok(by_pod.get("load-pinned").is_some_and(Option::is_some).then_some(()))
    })
    .await?;
    let page = ours.get("/apis/v1/plugins/LoadAwareScheduling/node/load-0").await?;
    ensure!(page["pods"][0]["pod"]["metadata"]["name"] == "load-pinned", "{page}");
    ensure!(page["nodeDeltaPods"] == json!(["default/load-pinned"]), "{page}");
    ours.stop().await;
    Ok(())
}
