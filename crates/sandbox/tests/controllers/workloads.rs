//! Deployments, ReplicaSets, DaemonSets, StatefulSets and Jobs.

use serde_json::{Value, json};

use crate::support::{Cluster, condition, template, text};

fn deployment(replicas: i64, image: &str) -> Value {
    json!({"metadata": {"name": "web", "annotations": {"note": "kept"}}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", image),
        "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
    }})
}

fn is_rolled_out(replicas: i64) -> impl Fn(&Value) -> bool {
    move |d| {
        let status = &d["status"];
        ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|f| status[f] == replicas)
            && status["observedGeneration"] == d["metadata"]["generation"]
            && condition(d, "Progressing")["reason"] == "NewReplicaSetAvailable"
            && condition(d, "Available")["status"] == "True"
    }
}

fn revision(object: &Value) -> &str {
    text(&object["metadata"]["annotations"]["deployment.kubernetes.io/revision"])
}

#[tokio::test]
async fn a_deployment_rolls_out_on_and_back() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster.create("deployments.apps", deployment(4, "one")).await;
    cluster.until_one("deployments.apps", "web", "the first rollout", is_rolled_out(4)).await;
    let d = cluster.get("deployments.apps", "web").unwrap();
    assert_eq!(revision(&d), "1");
    let sets = cluster.list("replicasets.apps");
    assert_eq!(sets.len(), 1);
    let hash = text(&sets[0]["metadata"]["labels"]["pod-template-hash"]);
    assert_eq!(text(&sets[0]["metadata"]["name"]), format!("web-{hash}"));
    assert_eq!(text(&sets[0]["spec"]["selector"]["matchLabels"]["pod-template-hash"]), hash);
    assert_eq!(text(&sets[0]["metadata"]["annotations"]["note"]), "kept");
    assert_eq!(sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"], "5");
    for pod in cluster.list("pods") {
        assert!(text(&pod["metadata"]["name"]).starts_with(&format!("web-{hash}-")));
        assert_eq!(text(&pod["metadata"]["ownerReferences"][0]["kind"]), "ReplicaSet");
    }

    cluster
        .edit("deployments.apps", "web", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] = json!("two")
        })
        .await;
    cluster
        .until_one("deployments.apps", "web", "the second", |d| revision(d) == "2" && is_rolled_out(4)(d))
        .await;
    assert_eq!(cluster.list("replicasets.apps").len(), 2);

    // What `kubectl rollout undo` does: the old template again.
    cluster
        .edit("deployments.apps", "web", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] = json!("one")
        })
        .await;
    cluster
        .until_one("deployments.apps", "web", "the way back", |d| revision(d) == "3" && is_rolled_out(4)(d))
        .await;
    let sets = cluster.list("replicasets.apps");
    assert_eq!(sets.len(), 2, "the old ReplicaSet is used again");
    let current = sets.iter().find(|s| revision(s) == "3").unwrap();
    assert_eq!(current["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    let events = cluster.events("web");
    assert!(
        events.iter().any(|e| e.starts_with("ScalingReplicaSet: Scaled up replica set web-")),
        "{events:?}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_deployment_scales_pauses_and_reports_a_stuck_rollout() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster.create("deployments.apps", deployment(2, "one")).await;
    cluster.until_one("deployments.apps", "web", "the rollout", is_rolled_out(2)).await;
    cluster.edit("deployments.apps", "web", |d| d["spec"]["replicas"] = json!(5)).await;
    cluster.until_one("deployments.apps", "web", "five", is_rolled_out(5)).await;
    cluster
        .edit("deployments.apps", "web", |d| {
            d["spec"]["paused"] = json!(true);
            d["spec"]["template"]["spec"]["containers"][0]["image"] = json!("stuck");
        })
        .await;
    cluster
        .until_one("deployments.apps", "web", "the pause", |d| {
            condition(d, "Progressing")["reason"] == "DeploymentPaused"
                && d["status"]["observedGeneration"] == d["metadata"]["generation"]
        })
        .await;
    assert_eq!(cluster.list("replicasets.apps").len(), 1, "a paused Deployment does not roll");
    cluster.edit("deployments.apps", "web", |d| d["spec"]["paused"] = json!(false)).await;
    cluster
        .until("replicasets.apps", "the new one to be as large as it may", |sets| {
            // Five wanted, 25% up makes seven; 25% down makes four that must be there.
            let sizes: Vec<i64> = sets.iter().filter_map(|s| s["spec"]["replicas"].as_i64()).collect();
            sizes.len() == 2 && sizes.contains(&4) && sizes.contains(&3)
        })
        .await;
    cluster
        .until_one("deployments.apps", "web", "the rollout to be stuck", |d| {
            d["status"]["replicas"] == 7
                && d["status"]["updatedReplicas"] == 3
                && d["status"]["availableReplicas"] == 4
        })
        .await;
    cluster.advance(700);
    cluster
        .until_one("deployments.apps", "web", "the deadline", |d| {
            condition(d, "Progressing")["reason"] == "ProgressDeadlineExceeded"
                && condition(d, "Progressing")["status"] == "False"
                && condition(d, "Available")["status"] == "True"
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_recreated_deployment_waits_for_the_last_old_pod() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let mut d = deployment(3, "one");
    d["spec"]["strategy"] = json!({"type": "Recreate"});
    d["spec"]["revisionHistoryLimit"] = json!(0);
    cluster.create("deployments.apps", d).await;
    cluster.until_one("deployments.apps", "web", "the rollout", is_rolled_out(3)).await;
    cluster
        .edit("deployments.apps", "web", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] = json!("two")
        })
        .await;
    cluster
        .until_one("deployments.apps", "web", "the second", |d| revision(d) == "2" && is_rolled_out(3)(d))
        .await;
    cluster.until("replicasets.apps", "no history", |sets| sets.len() == 1).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_replicaset_adopts_releases_and_replaces() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let pod = json!({"metadata": {"name": "stray", "labels": {"app": "db"}},
        "spec": {"containers": [{"name": "c", "image": "one"}]}});
    cluster.create("pods", pod).await;
    let set = json!({"metadata": {"name": "db"}, "spec": {"replicas": 3,
        "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "one")}});
    cluster.create("replicasets.apps", set).await;
    let ready = |n: i64| move |s: &Value| s["status"]["readyReplicas"] == n && s["status"]["replicas"] == n;
    cluster.until_one("replicasets.apps", "db", "three", ready(3)).await;
    let stray = cluster.get("pods", "stray").unwrap();
    assert_eq!(stray["metadata"]["ownerReferences"][0]["name"], "db", "adopted");
    assert_eq!(cluster.list("pods").len(), 3);
    cluster.edit("pods", "stray", |pod| pod["metadata"]["labels"]["app"] = json!("other")).await;
    cluster.until_one("pods", "stray", "release", |p| p["metadata"]["ownerReferences"].is_null()).await;
    cluster.until("pods", "a replacement", |pods| pods.len() == 4).await;
    cluster.edit("replicasets.apps", "db", |s| s["spec"]["replicas"] = json!(1)).await;
    cluster
        .until_one("replicasets.apps", "db", "one", |s| {
            ready(1)(s) && s["status"]["observedGeneration"] == 2 && s["status"]["terminatingReplicas"] == 0
        })
        .await;
    let events = cluster.events("db");
    assert!(events.iter().any(|e| e.starts_with("SuccessfulCreate: Created pod: db-")), "{events:?}");
    assert!(events.iter().any(|e| e.starts_with("SuccessfulDelete: Deleted pod: ")), "{events:?}");
    cluster.stop().await;
}

#[tokio::test]
async fn a_large_replicaset_is_made_whole() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let set = json!({"metadata": {"name": "many"}, "spec": {"replicas": 1200,
        "selector": {"matchLabels": {"app": "many"}}, "template": template("many", "one")}});
    cluster.create("replicasets.apps", set).await;
    cluster
        .until_one("replicasets.apps", "many", "all ready", |s| s["status"]["readyReplicas"] == 1200)
        .await;
    assert_eq!(cluster.list("pods").len(), 1200, "not one too many");
    assert!(cluster.events("many").len() <= 25, "events are held back");
    cluster.stop().await;
}
