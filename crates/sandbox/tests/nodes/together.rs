//! A fleet and the controllers on one cluster.

use koord_sandbox::controllers::{self, Controllers};
use serde_json::{Value, json};

use crate::support::{Cluster, condition, pool};

fn has_taint(node: &Value, key: &str, effect: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|list| list.iter().any(|t| t["key"] == key && t["effect"] == effect))
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_silent_loses_its_pods_when_it_speaks_again() {
    const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
    let cluster = Cluster::start(vec![pool("n", 3)]).await;
    let controllers = Controllers::start(cluster.api.clone(), controllers::Options::default());
    let is_open =
        |c: &Cluster, node: &str| !has_taint(&c.node(node), "node.kubernetes.io/not-ready", "NoSchedule");
    cluster.until("open for pods", |c| (0..3).all(|i| is_open(c, &format!("n-{i}")))).await;
    let patient = json!({"tolerations": [{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 60}]});
    cluster.bind("web", "n-0", json!({}), patient).await;
    cluster.until("running", |c| c.phase("web") == "Running").await;
    cluster.fleet.fail("n-0").await.unwrap();
    cluster.until("unknown", |c| condition(&c.node("n-0"), "Ready")["status"] == "Unknown").await;
    cluster.until("tainted", |c| has_taint(&c.node("n-0"), UNREACHABLE, "NoExecute")).await;
    let is_deleted = |c: &Cluster| c.pod("web")["metadata"]["deletionTimestamp"].is_string();
    cluster.until("deleted", is_deleted).await;
    cluster.pass(120).await;
    assert!(is_deleted(&cluster), "nobody confirms that it has ended");
    cluster.fleet.revive("n-0").await.unwrap();
    cluster.until("gone", |c| c.try_pod("web").is_none()).await;
    cluster.until("open again", |c| !has_taint(&c.node("n-0"), UNREACHABLE, "NoExecute")).await;
    assert_eq!(condition(&cluster.node("n-0"), "Ready")["status"], "True");
    controllers.stop().await;
}
