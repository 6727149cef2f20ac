//! Owners, namespaces, budgets and nodes: what goes when something else goes.

use serde_json::{Value, json};

use koord_sandbox::controllers::Options;
use koord_sandbox::server::Part;

use crate::support::{Cluster, condition, template, text};

fn config(name: &str, owners: Value) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

fn owner(object: &Value, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": blocks})
}

#[tokio::test]
async fn dependents_follow_their_owner() {
    let cluster = Cluster::start().await;
    let root = cluster.create("configmaps", config("root", json!([]))).await;
    let leaf = cluster.create("configmaps", config("leaf", json!([owner(&root, false)]))).await;
    cluster.create("configmaps", config("leafs-leaf", json!([owner(&leaf, false)]))).await;
    let other = cluster.create("configmaps", config("other", json!([]))).await;
    cluster.create("configmaps", config("shared", json!([owner(&root, false), owner(&other, false)]))).await;
    cluster.delete("configmaps", "root", None).await;
    for gone in ["root", "leaf", "leafs-leaf"] {
        cluster.until_gone("configmaps", gone).await;
    }
    cluster
        .until_one("configmaps", "shared", "one owner", |s| {
            s["metadata"]["ownerReferences"].as_array().is_some_and(|o| o.len() == 1)
        })
        .await;
    // An owner that never was, and one that was replaced under its name.
    let mut ghost = other.clone();
    ghost["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    cluster.create("configmaps", config("misled", json!([owner(&ghost, false)]))).await;
    cluster.until_gone("configmaps", "misled").await;
    cluster.stop().await;
}

#[tokio::test]
async fn foreground_waits_and_orphan_lets_go() {
    let cluster = Cluster::start().await;
    let root = cluster.create("configmaps", config("root", json!([]))).await;
    let mut held = config("held", json!([owner(&root, true)]));
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    cluster.create("configmaps", held).await;
    cluster.delete("configmaps", "root", Some("Foreground")).await;
    cluster
        .until_one("configmaps", "held", "deletion", |h| !h["metadata"]["deletionTimestamp"].is_null())
        .await;
    assert!(cluster.get("configmaps", "root").is_some(), "the owner waits");
    cluster.edit("configmaps", "held", |h| h["metadata"]["finalizers"] = json!([])).await;
    cluster.until_gone("configmaps", "root").await;

    let root = cluster.create("configmaps", config("root", json!([]))).await;
    cluster.create("configmaps", config("leaf", json!([owner(&root, true)]))).await;
    cluster.delete("configmaps", "root", Some("Orphan")).await;
    cluster.until_gone("configmaps", "root").await;
    let leaf = cluster.get("configmaps", "leaf").unwrap();
    assert!(leaf["metadata"]["ownerReferences"].is_null(), "let go before its owner went");
    cluster.stop().await;
}

#[tokio::test]
async fn a_deleted_deployment_takes_everything_along() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let d = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "one")}});
    cluster.create("deployments.apps", d).await;
    cluster.until("pods", "three pods", |pods| pods.len() == 3).await;
    cluster.delete("deployments.apps", "web", Some("Foreground")).await;
    cluster.until_gone("deployments.apps", "web").await;
    assert!(cluster.list("pods").is_empty() && cluster.list("replicasets.apps").is_empty());
    cluster.stop().await;
}

#[tokio::test]
async fn a_namespace_goes_when_its_content_has_gone() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster.create("namespaces", json!({"metadata": {"name": "team"}})).await;
    cluster
        .create(
            "pods",
            json!({"metadata": {"name": "p", "namespace": "team"},
        "spec": {"containers": [{"name": "c", "image": "one"}]}}),
        )
        .await;
    cluster
        .create(
            "configmaps",
            json!({"metadata": {"name": "held", "namespace": "team",
        "finalizers": ["x.io/hold"]}}),
        )
        .await;
    cluster.delete("namespaces", "team", None).await;
    cluster
        .until_one("namespaces", "team", "a report", |ns| {
            text(&condition(ns, "NamespaceFinalizersRemaining")["message"])
                == "Some content in the namespace has finalizers remaining: x.io/hold in 1 resource instances"
                && text(&condition(ns, "NamespaceContentRemaining")["message"])
                    == "Some resources are remaining: configmaps. has 1 resource instances"
        })
        .await;
    let kind = cluster.kind("", "configmaps");
    let write = koord_sandbox::server::WriteOptions::by("tester");
    let change = |object: &mut Value| {
        object["metadata"]["finalizers"] = json!([]);
        Ok(true)
    };
    cluster.api.edit(&kind, ("team", "held"), Part::Main, &write, &change).await.unwrap();
    cluster.until_gone("namespaces", "team").await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_budget_counts_what_may_go() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let d = json!({"metadata": {"name": "web"}, "spec": {"replicas": 4,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "one")}});
    cluster.create("deployments.apps", d).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": "25%",
        "selector": {"matchLabels": {"app": "web"}}}});
    cluster.create("poddisruptionbudgets.policy", budget).await;
    let settled = |b: &Value| {
        let status = &b["status"];
        status["expectedPods"] == 4
            && status["currentHealthy"] == 4
            && status["desiredHealthy"] == 3
            && status["disruptionsAllowed"] == 1
            && condition(b, "DisruptionAllowed")["status"] == "True"
    };
    cluster.until_one("poddisruptionbudgets.policy", "web", "the count", settled).await;
    let pods = cluster.list("pods");
    let write = koord_sandbox::server::WriteOptions::by("tester");
    let evict = |i: usize| {
        let name = text(&pods[i]["metadata"]["name"]).to_owned();
        let (cluster, write) = (&cluster, &write);
        async move {
            let eviction = json!({"metadata": {"name": name}});
            cluster.api.evict(("default", &name), &eviction, write).await
        }
    };
    evict(0).await.unwrap();
    cluster
        .until_one("poddisruptionbudgets.policy", "web", "the next one", |b| {
            settled(b) && b["status"]["disruptedPods"].is_null()
        })
        .await;
    evict(1).await.unwrap();
    cluster.stop().await;
}

#[tokio::test]
async fn a_silent_node_loses_its_pods_and_comes_back() {
    let cluster = Cluster::with_options(Options::default()).await;
    cluster.node("n1").await;
    let mut pod = json!({"metadata": {"name": "brief"}, "spec": {"containers": [{"name": "c", "image": "one"}],
        "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300}]}});
    cluster.create("pods", pod.clone()).await;
    pod["metadata"]["name"] = json!("steady");
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    cluster.create("pods", pod).await;
    cluster.until("pods", "both to run", |pods| pods.iter().all(|p| p["status"]["phase"] == "Running")).await;
    cluster
        .until("events", "a welcome", |events| events.iter().any(|e| e["reason"] == "RegisteredNode"))
        .await;
    cluster.advance(60);
    cluster
        .until_one("nodes", "n1", "silence", |node| {
            let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            condition(node, "Ready")["reason"] == "NodeStatusUnknown" && taints == 2
        })
        .await;
    cluster
        .until("pods", "pods not ready", |pods| {
            pods.iter().all(|p| condition(p, "Ready")["status"] == "False")
        })
        .await;
    assert!(cluster.get("pods", "brief").is_some(), "its five minutes are not over");
    cluster.advance(301);
    cluster.until_gone("pods", "brief").await;
    assert!(cluster.get("pods", "steady").is_some());
    let now = cluster.api.now().to_string();
    cluster.edit_part("nodes", "n1", Part::Status, |node| {
        node["status"]["conditions"][0] = json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now});
    }).await;
    cluster.until_one("nodes", "n1", "no taints", |node| node["spec"]["taints"].is_null()).await;
    cluster.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(true)).await;
    cluster
        .until_one("nodes", "n1", "the cordon", |node| {
            node["spec"]["taints"][0]["key"] == "node.kubernetes.io/unschedulable"
        })
        .await;
    cluster.delete("nodes", "n1", None).await;
    cluster
        .until("events", "a farewell", |events| events.iter().any(|e| e["reason"] == "RemovingNode"))
        .await;
    assert!(cluster.get("pods", "steady").is_some(), "the node may come back");
    cluster.advance(60);
    cluster.until_gone("pods", "steady").await;
    cluster.stop().await;
}

#[tokio::test]
async fn claims_find_volumes_or_have_them_made() {
    let cluster = Cluster::start().await;
    let class = |name: &str, mode: &str| json!({"metadata": {"name": name}, "provisioner": "koord.sh/sandbox", "volumeBindingMode": mode});
    cluster.create("storageclasses.storage.k8s.io", class("now", "Immediate")).await;
    cluster.create("storageclasses.storage.k8s.io", class("later", "WaitForFirstConsumer")).await;
    let claim = |name: &str, class: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let is_bound = |claim: &Value| {
        claim["status"]["phase"] == "Bound" && claim["status"]["capacity"]["storage"] == "1Gi"
    };
    cluster.create("persistentvolumeclaims", claim("a", "now")).await;
    cluster.until_one("persistentvolumeclaims", "a", "a volume", is_bound).await;
    let name = text(&cluster.get("persistentvolumeclaims", "a").unwrap()["spec"]["volumeName"]).to_owned();
    cluster
        .until_one("persistentvolumes", &name, "the other half", |v| v["status"]["phase"] == "Bound")
        .await;

    cluster.create("persistentvolumeclaims", claim("b", "later")).await;
    cluster
        .until("events", "word of waiting", |all| all.iter().any(|e| e["reason"] == "WaitForFirstConsumer"))
        .await;
    assert!(cluster.get("persistentvolumeclaims", "b").unwrap()["spec"]["volumeName"].is_null());
    cluster
        .edit("persistentvolumeclaims", "b", |claim| {
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n1");
        })
        .await;
    cluster.until_one("persistentvolumeclaims", "b", "a volume", is_bound).await;

    cluster.create("persistentvolumeclaims", claim("c", "by-hand")).await;
    let volume = json!({"metadata": {"name": "disk"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "by-hand", "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/disk"}}});
    cluster.create("persistentvolumes", volume).await;
    cluster.until_one("persistentvolumeclaims", "c", "the disk", is_bound).await;
    cluster.delete("persistentvolumeclaims", "c", None).await;
    cluster.until_one("persistentvolumes", "disk", "release", |v| v["status"]["phase"] == "Released").await;
    cluster.delete("persistentvolumeclaims", "a", None).await;
    cluster.until_gone("persistentvolumes", &name).await;
    cluster.stop().await;
}
