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

#[tokio::test]
async fn a_daemonset_follows_the_nodes_and_updates() {
    let cluster = Cluster::start().await;
    for node in ["n1", "n2", "n3"] {
        cluster.node(node).await;
    }
    cluster
        .edit("nodes", "n3", |node| {
            node["spec"]["taints"] = json!([{"key": "x.io/keep-off", "effect": "NoSchedule"}])
        })
        .await;
    let set = json!({"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": {"app": "agent"}},
        "template": template("agent", "one")}});
    cluster.create("daemonsets.apps", set).await;
    let settled = |n: i64| {
        move |s: &Value| {
            let status = &s["status"];
            [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ]
            .iter()
            .all(|field| status[field] == n)
                && status["observedGeneration"] == s["metadata"]["generation"]
                && status["numberUnavailable"].is_null()
        }
    };
    cluster.until_one("daemonsets.apps", "agent", "two pods", settled(2)).await;
    let pods = cluster.list("pods");
    assert_eq!(pods.len(), 2);
    let tolerations = pods[0]["spec"]["tolerations"].as_array().unwrap();
    assert!(
        tolerations
            .iter()
            .any(|t| t["key"] == "node.kubernetes.io/unschedulable" && t["operator"] == "Exists")
    );
    cluster.edit("nodes", "n3", |node| node["spec"]["taints"] = json!([])).await;
    cluster.until_one("daemonsets.apps", "agent", "the third", settled(3)).await;
    cluster
        .edit("daemonsets.apps", "agent", |s| {
            s["spec"]["template"]["spec"]["containers"][0]["image"] = json!("two")
        })
        .await;
    cluster.until_one("daemonsets.apps", "agent", "the update", settled(3)).await;
    cluster
        .until("pods", "new pods only", |pods| {
            pods.len() == 3 && pods.iter().all(|p| p["spec"]["containers"][0]["image"] == "two")
        })
        .await;
    let revisions = cluster.list("controllerrevisions.apps");
    assert_eq!(revisions.iter().map(|r| r["revision"].as_i64().unwrap()).max(), Some(2));
    cluster.delete("nodes", "n2", None).await;
    cluster.until_one("daemonsets.apps", "agent", "two again", settled(2)).await;
    cluster.stop().await;
}

fn job(name: &str, image: &str, spec: Value) -> Value {
    let mut template = template(name, image);
    template["spec"]["restartPolicy"] = json!("Never");
    let mut job = json!({"metadata": {"name": name}, "spec": {"template": template}});
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

#[tokio::test]
async fn a_job_completes_and_expires() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let spec = json!({"parallelism": 2, "completions": 5, "ttlSecondsAfterFinished": 30});
    cluster.create("jobs.batch", job("sum", "done", spec)).await;
    cluster
        .until_one("jobs.batch", "sum", "completion", |job| condition(job, "Complete")["status"] == "True")
        .await;
    let done = cluster.get("jobs.batch", "sum").unwrap();
    let status = &done["status"];
    assert_eq!(
        (status["succeeded"].as_i64(), status["failed"].as_i64(), status["ready"].as_i64()),
        (Some(5), None, Some(0))
    );
    assert_eq!(condition(&done, "SuccessCriteriaMet")["reason"], "CompletionsReached");
    assert!(!status["startTime"].is_null() && !status["completionTime"].is_null());
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    let pods = cluster.list("pods");
    assert_eq!(pods.len(), 5);
    for pod in &pods {
        assert!(pod["metadata"]["finalizers"].is_null(), "let go");
        assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], "sum");
    }
    cluster.until("events", "word of it", |events| events.iter().any(|e| e["reason"] == "Completed")).await;
    cluster.advance(31);
    cluster.until_gone("jobs.batch", "sum").await;
    assert!(cluster.list("pods").is_empty(), "the pods went first");
    cluster.stop().await;
}

#[tokio::test]
async fn a_failing_job_gives_up_and_an_indexed_one_keeps_count() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster.create("jobs.batch", job("bad", "bad", json!({"backoffLimit": 1}))).await;
    cluster.until_one("jobs.batch", "bad", "a failure", |job| job["status"]["failed"] == 1).await;
    assert!(condition(&cluster.get("jobs.batch", "bad").unwrap(), "Failed").is_null());
    cluster.advance(11);
    cluster
        .until_one("jobs.batch", "bad", "the end", |job| condition(job, "Failed")["status"] == "True")
        .await;
    let bad = cluster.get("jobs.batch", "bad").unwrap();
    assert_eq!(condition(&bad, "FailureTarget")["reason"], "BackoffLimitExceeded");
    assert_eq!(bad["status"]["failed"], 2);
    let spec = json!({"parallelism": 2, "completions": 3, "completionMode": "Indexed"});
    cluster.create("jobs.batch", job("array", "done", spec)).await;
    cluster
        .until_one("jobs.batch", "array", "completion", |job| condition(job, "Complete")["status"] == "True")
        .await;
    assert_eq!(cluster.get("jobs.batch", "array").unwrap()["status"]["completedIndexes"], "0-2");
    let pods = cluster.list("pods");
    assert!(pods.iter().any(|p| text(&p["metadata"]["name"]).starts_with("array-2-")));
    cluster.stop().await;
}

#[tokio::test]
async fn a_suspended_job_waits_and_a_deleted_one_frees_its_pods() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster.create("jobs.batch", job("slow", "one", json!({"parallelism": 2, "completions": 2}))).await;
    cluster
        .until_one("jobs.batch", "slow", "two at work", |job| {
            job["status"]["ready"] == 2 && job["status"]["active"] == 2
        })
        .await;
    cluster.edit("jobs.batch", "slow", |job| job["spec"]["suspend"] = json!(true)).await;
    cluster
        .until_one("jobs.batch", "slow", "suspension", |job| {
            condition(job, "Suspended")["status"] == "True"
                && job["status"]["active"].is_null()
                && job["status"]["terminating"] == 0
                && job["status"]["failed"].is_null()
        })
        .await;
    cluster.until("pods", "none", <[Value]>::is_empty).await;
    cluster.edit("jobs.batch", "slow", |job| job["spec"]["suspend"] = json!(false)).await;
    cluster
        .until_one("jobs.batch", "slow", "two again", |job| {
            job["status"]["ready"] == 2 && condition(job, "Suspended")["status"] == "False"
        })
        .await;
    cluster.delete("jobs.batch", "slow", Some("Background")).await;
    cluster.until("pods", "none to be left", <[Value]>::is_empty).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_statefulset_grows_updates_and_shrinks_in_order() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let set = json!({"metadata": {"name": "db"}, "spec": {"replicas": 3, "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "one")}});
    cluster.create("statefulsets.apps", set).await;
    let settled = |n: i64| {
        move |s: &Value| {
            let status = &s["status"];
            ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"]
                .iter()
                .all(|f| status[f] == n)
                && status["currentRevision"] == status["updateRevision"]
                && status["observedGeneration"] == s["metadata"]["generation"]
        }
    };
    cluster.until_one("statefulsets.apps", "db", "three", settled(3)).await;
    let pod = cluster.get("pods", "db-2").unwrap();
    assert_eq!(pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"], "db-2");
    assert_eq!((text(&pod["spec"]["hostname"]), text(&pod["spec"]["subdomain"])), ("db-2", "db"));
    cluster
        .edit("statefulsets.apps", "db", |s| {
            s["spec"]["template"]["spec"]["containers"][0]["image"] = json!("two")
        })
        .await;
    cluster.until_one("statefulsets.apps", "db", "the update", settled(3)).await;
    let images = cluster.list("pods");
    assert!(images.iter().all(|p| p["spec"]["containers"][0]["image"] == "two"));
    cluster.edit("statefulsets.apps", "db", |s| s["spec"]["replicas"] = json!(1)).await;
    cluster.until_one("statefulsets.apps", "db", "one", settled(1)).await;
    assert!(cluster.get("pods", "db-0").is_some());
    cluster.stop().await;
}
