//! Nodes: registered, alive, silent, gone.

use koord_sandbox::nodes::{FleetError, NodeHealth, Options};
use koord_sandbox::server::Part;
use serde_json::{Value, json};

use crate::support::{Cluster, api, condition, pool};

const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");

#[tokio::test(start_paused = true)]
async fn nodes_register_with_their_leases() {
    let cluster = Cluster::start(vec![pool("web", 3), pool("db", 1)]).await;
    let rows = cluster.fleet.list().await.unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["db-0", "web-0", "web-1", "web-2"]);
    assert!(rows.iter().all(|row| row.health == NodeHealth::Ready && row.cpus == 4));
    let node = cluster.node("web-1");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "web-1");
    assert_eq!(node["status"]["capacity"]["cpu"], "4");
    assert_eq!(condition(&node, "Ready")["status"], "True");
    assert_eq!(node["status"]["nodeInfo"]["osImage"], "koord-sandbox");
    let address = |name: &str| cluster.node(name)["status"]["addresses"][0]["address"].clone();
    assert_ne!(address("web-0"), address("web-1"));
    let lease = cluster.try_get(LEASES, "kube-node-lease", "web-1").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "web-1");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    cluster.fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_beats_until_it_fails() {
    let cluster = Cluster::start(vec![pool("n", 2)]).await;
    let renewed =
        |c: &Cluster| c.try_get(LEASES, "kube-node-lease", "n-0").unwrap()["spec"]["renewTime"].clone();
    let beaten = |c: &Cluster| condition(&c.node("n-0"), "Ready")["lastHeartbeatTime"].clone();
    let (first_renewal, first_beat) = (renewed(&cluster), beaten(&cluster));
    cluster.pass(11).await;
    assert_ne!(renewed(&cluster), first_renewal, "the lease is renewed every ten seconds");
    cluster.until("a heartbeat", |c| beaten(c) != first_beat).await;
    let failed = cluster.fleet.fail("n-0").await.unwrap();
    assert_eq!(failed, ["n-0"]);
    let (last_renewal, last_beat) = (renewed(&cluster), beaten(&cluster));
    cluster.pass(3600).await;
    assert_eq!((renewed(&cluster), beaten(&cluster)), (last_renewal.clone(), last_beat), "silence");
    // As a controller does meanwhile.
    cluster
        .edit("nodes", "", "n-0", Part::Status, |node| {
            for condition in node["status"]["conditions"].as_array_mut().unwrap() {
                condition["status"] = json!("Unknown");
            }
        })
        .await;
    cluster.fleet.revive("n-0").await.unwrap();
    cluster.until("ready again", |c| condition(&c.node("n-0"), "Ready")["status"] == "True").await;
    cluster.until("a lease", |c| renewed(c) != last_renewal).await;
    assert_eq!(condition(&cluster.node("n-0"), "MemoryPressure")["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_said_to_be_down_objects() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    cluster
        .edit("nodes", "", "n-0", Part::Status, |node| {
            for condition in node["status"]["conditions"].as_array_mut().unwrap() {
                condition["status"] = json!("Unknown");
            }
        })
        .await;
    assert_eq!(condition(&cluster.node("n-0"), "Ready")["status"], "Unknown");
    cluster.pass(15).await;
    assert_eq!(condition(&cluster.node("n-0"), "Ready")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn nodes_come_and_go_while_running() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    assert_eq!(cluster.fleet.add(pool("n", 2)).await.unwrap(), ["n-1", "n-2"]);
    assert_eq!(cluster.fleet.add(pool("m", 1)).await.unwrap(), ["m-0"]);
    cluster.fleet.cordon("n").await.unwrap();
    assert_eq!(cluster.node("n-2")["spec"]["unschedulable"], true);
    assert_eq!(cluster.node("m-0")["spec"].get("unschedulable"), None);
    cluster.fleet.uncordon("n-2").await.unwrap();
    assert_eq!(cluster.node("n-2")["spec"].get("unschedulable"), None);
    assert_eq!(cluster.fleet.remove("n").await.unwrap(), ["n-0", "n-1", "n-2"]);
    assert_eq!(cluster.try_get(("", "nodes"), "", "n-1"), None);
    assert_eq!(cluster.try_get(LEASES, "kube-node-lease", "n-1"), None);
    let unknown = cluster.fleet.fail("n-1").await.unwrap_err();
    assert!(matches!(unknown, FleetError::Unknown { .. }), "{unknown}");
    assert_eq!(unknown.to_string(), "no simulated node or pool is called \"n-1\"");
    cluster.pass(60).await;
    assert_eq!(cluster.try_get(LEASES, "kube-node-lease", "n-1"), None, "a removed node stays away");
    assert_eq!(cluster.fleet.list().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_deletes_is_forgotten() {
    let cluster = Cluster::start(vec![pool("n", 2)]).await;
    let kind = cluster.api.kind("", "nodes").unwrap();
    cluster.api.delete(&kind, ("", "n-0"), &Default::default()).await.unwrap();
    cluster.pass(30).await;
    assert_eq!(cluster.fleet.list().await.unwrap().len(), 1);
    assert_eq!(cluster.try_get(("", "nodes"), "", "n-0"), None, "as kubelet, it does not register again");
}

#[tokio::test(start_paused = true)]
async fn a_second_fleet_goes_on_where_the_first_stopped() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    cluster.bind("web", "n-0", json!({}), json!({})).await;
    cluster.until("running", |c| c.phase("web") == "Running").await;
    let (node, pod) = (cluster.node("n-0"), cluster.pod("web"));
    cluster.fleet.stop().await;
    let options = Options { pools: vec![pool("n", 1)], ..Options::default() };
    let cluster = Cluster::with(cluster.api, options).await;
    cluster.pass(5).await;
    assert_eq!(cluster.node("n-0")["metadata"]["uid"], node["metadata"]["uid"]);
    assert_eq!(cluster.node("n-0")["status"]["addresses"], node["status"]["addresses"]);
    assert_eq!(cluster.pod("web")["status"], pod["status"]);
    cluster.delete("web", None).await;
    cluster.until("gone", |c| c.try_pod("web").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_made_elsewhere_come_to_life() {
    let api = api();
    let kind = api.kind("", "nodes").unwrap();
    let node = json!({"metadata": {"name": "theirs", "labels": {"a": "b"}}});
    let options = koord_sandbox::server::WriteOptions::by("test");
    api.create(&kind, "", node, &options).await.unwrap();
    let change = |node: &mut Value| {
        node["status"] = json!({"capacity": {"cpu": "96", "memory": "1Ti", "pods": "500"},
            "allocatable": {"cpu": "90", "memory": "1000Gi", "pods": "500"}});
        Ok(true)
    };
    api.edit(&kind, ("", "theirs"), Part::Status, &options, &change).await.unwrap();
    let options = Options { pools: vec![pool("n", 1)], adopt: true, ..Options::default() };
    let cluster = Cluster::with(api, options).await;
    let rows = cluster.fleet.list().await.unwrap();
    assert_eq!((rows[0].name.as_str(), rows[0].cpus), ("theirs", 96));
    let node = cluster.node("theirs");
    assert_eq!(node["status"]["allocatable"]["cpu"], "90", "its amounts are its own");
    assert_eq!(condition(&node, "Ready")["status"], "True");
    cluster.bind("big", "theirs", json!({}), json!({})).await;
    cluster.until("running", |c| c.phase("big") == "Running").await;
}
