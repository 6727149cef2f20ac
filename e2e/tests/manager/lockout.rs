//! No manager runs, and its webhooks are in place: what Kubernetes and Koord need to start can be created.

use anyhow::{Result, ensure};
use http::Method;
use koord_manager::webhook::paths::Side;
use serde_json::{Value, json};

use crate::place::{HOME, NODES, Place, configuration, eventually};
use crate::replica::Replica;
use crate::webhooks::pod;

pub(crate) async fn the_cluster_starts_without_us(place: &Place, replicas: [Replica; 2]) -> Result<()> {
    // One is asked to stop, the other has no time for farewells.
    let [first, second] = replicas;
    first.stop(place).await?;
    second.kill(place)?;
    for (namespace, name, app) in
        [("kube-system", "kube-proxy", "job"), (HOME, "koord-manager", "job"), (HOME, "koordlet", "web")]
    {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let made = place.post(&path, &pod(name, app)).await?;
        ensure!(made["metadata"]["labels"] == json!({"app": app}), "{}", made["metadata"]);
        // And what runs there can be changed and ended.
        let path = format!("{path}/{name}");
        place.patch(&path, &json!({"metadata": {"labels": {"changed": "yes"}}})).await?;
        place.delete(&path).await?;
    }
    // Everything that is no pod and no quota: nodes, their heartbeats, configuration, workloads.
    place.make_node("lonely", &json!({})).await?;
    place.patch(&format!("{NODES}/lonely"), &json!({"spec": {"unschedulable": true}})).await?;
    place.delete(&format!("{NODES}/lonely")).await?;
    let map = json!({"metadata": {"name": "stranger"}, "data": {"cpu-burst-config": "{bad"}});
    place.post("/api/v1/namespaces/shop/configmaps", &map).await?;
    let template = json!({"metadata": {"labels": {"app": "job"}}, "spec": pod("x", "job")["spec"]});
    let workload = json!({"metadata": {"name": "koord-manager"},
        "spec": {"selector": {"matchLabels": {"app": "job"}}, "replicas": 1, "template": template}});
    place.post(&format!("/apis/apps/v1/namespaces/{HOME}/deployments"), &workload).await?;
    eventually("its pods are made", async || {
        let pods = place.get(&format!("/api/v1/namespaces/{HOME}/pods?labelSelector=app=job")).await?;
        Ok(pods["items"].as_array().is_some_and(|pods| !pods.is_empty()).then_some(()))
    })
    .await?;
    place.delete(&format!("/apis/apps/v1/namespaces/{HOME}/deployments/koord-manager")).await?;
    // Elsewhere it is as whoever installed it wants: these entries fail …
    let pods = "/api/v1/namespaces/shop/pods";
    let refusal = place.refused(Method::POST, pods, &pod("web", "web")).await?;
    ensure!(refusal.text.contains("failed calling webhook"), "{refusal:?}");
    // … and as we install them they do not.
    for side in Side::ALL {
        let (collection, name) = configuration(side);
        let path = format!("{collection}/{name}");
        let mut found = place.get(&path).await?;
        for entry in found["webhooks"].as_array_mut().into_iter().flatten() {
            entry["failurePolicy"] = json!("Ignore");
        }
        place.put(&path, &found).await?;
    }
    eventually("pods are created without us", async || {
        Ok(place.ask(Method::POST, pods, Some(&pod("web", "web"))).await?.ok())
    })
    .await?;
    place.delete(&format!("{pods}/web")).await?;
    // Back again, it puts things in order and answers.
    let back = Replica::start(place, "back").await?;
    eventually("profiles are applied again", async || {
        let path = "/api/v1/namespaces/jobs/pods?dryRun=All";
        let made: Option<Value> = place.ask(Method::POST, path, Some(&pod("job", "job"))).await?.ok();
        Ok(made.filter(|made| made["metadata"]["labels"]["touched"] == "yes"))
    })
    .await?;
    back.stop(place).await
}
