//! Pods on simulated nodes.

use koord_sandbox::nodes::Options;
use koord_sandbox::server::Part;
use koord_sandbox::store::Event;
use serde_json::{Value, json};

use crate::support::{Cluster, condition, pool};

fn requests(cpu: &str) -> Value {
    json!({"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}]})
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_and_ends_in_peace() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    cluster.bind("web", "n-0", json!({}), json!({})).await;
    cluster.until("taken", |c| c.pod("web")["status"]["startTime"].is_string()).await;
    assert_eq!(cluster.phase("web"), "Pending");
    cluster.until("running", |c| c.phase("web") == "Running").await;
    let pod = cluster.pod("web");
    assert_eq!(condition(&pod, "Ready")["status"], "True");
    assert_eq!(pod["status"]["hostIP"], cluster.node("n-0")["status"]["addresses"][0]["address"]);
    assert!(pod["status"]["podIP"].as_str().unwrap().starts_with("10.128."));
    let writes = pod["metadata"]["resourceVersion"].clone();
    cluster.pass(3600).await;
    assert_eq!(cluster.pod("web")["metadata"]["resourceVersion"], writes, "nothing changes by itself");
    cluster.delete("web", Some(30)).await;
    assert!(cluster.try_pod("web").is_some(), "grace has begun");
    cluster.until("gone", |c| c.try_pod("web").is_none()).await;
    assert_eq!(cluster.fleet.list().await.unwrap()[0].pods, 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_succeeds_and_a_broken_one_loops() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    let annotations = json!({"sandbox.koord.sh/run-time": "20s"});
    cluster.bind("job", "n-0", annotations, json!({"restartPolicy": "Never"})).await;
    cluster.bind("broken", "n-0", json!({"sandbox.koord.sh/fail-after": "1s"}), json!({})).await;
    cluster.until("success", |c| c.phase("job") == "Succeeded").await;
    let restarts = |c: &Cluster| c.pod("broken")["status"]["containerStatuses"][0]["restartCount"].as_i64();
    cluster.until("three restarts", |c| restarts(c) == Some(3)).await;
    let is_waiting = |c: &Cluster| {
        c.pod("broken")["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    cluster.until("back-off", is_waiting).await;
    let back_offs = || cluster.events().into_iter().filter(|(reason, _)| reason == "BackOff").count();
    cluster.until("events", |_| back_offs() >= 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_is_rejected() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    cluster.bind("first", "n-0", json!({}), requests("3")).await;
    cluster.until("running", |c| c.phase("first") == "Running").await;
    cluster.bind("second", "n-0", json!({}), requests("2")).await;
    cluster.until("rejected", |c| c.phase("second") == "Failed").await;
    let status = cluster.pod("second")["status"].clone();
    assert_eq!(status["reason"], "OutOfcpu");
    let message = "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000";
    assert_eq!(status["message"], format!("Pod was rejected: {message}"));
    cluster.until("an event", |c| c.events().contains(&("OutOfcpu".to_owned(), message.to_owned()))).await;
    cluster.delete("first", None).await;
    cluster.until("gone", |c| c.try_pod("first").is_none()).await;
    cluster.bind("third", "n-0", json!({}), requests("4")).await;
    cluster.until("room again", |c| c.phase("third") == "Running").await;
    cluster.bind("fourth", "n-0", json!({}), json!({"nodeSelector": {"disk": "ssd"}})).await;
    cluster.until("rejected", |c| c.pod("fourth")["status"]["reason"] == "NodeAffinity").await;
}

/// A scheduler gives its place away at once; whoever comes must not be turned away because the old one is not gone yet.
/// In real time, for between a pod's end and its removal there is hardly a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_has_ended_takes_no_room() {
    let quick = || json!({"sandbox.koord.sh/start-delay": "1ms", "sandbox.koord.sh/ready-delay": "1ms", "sandbox.koord.sh/stop-delay": "1ms"});
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    let pods = cluster.api.kind("", "pods").unwrap();
    let (_, mut watch) = cluster.api.list_and_watch(&pods);
    let mut until = async |name: String, phases: [&str; 2]| {
        let is_it = |event: &Event| {
            let phase = event.object.field("status.phase");
            assert!(phase != "Failed" || phases.contains(&phase), "{name} was turned away");
            event.object.name() == name && phases.contains(&phase)
        };
        while !watch.take(100).unwrap().iter().any(is_it) {
            tokio::task::yield_now().await;
        }
    };
    cluster.bind("p0", "n-0", quick(), requests("4")).await;
    for number in 0..100 {
        let (old, new) = (format!("p{number}"), format!("p{}", number + 1));
        until(old.clone(), ["Running"; 2]).await;
        cluster.delete(&old, Some(1)).await;
        until(old, ["Succeeded", "Failed"]).await;
        cluster.bind(&new, "n-0", quick(), requests("4")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_silent_and_unknown_nodes_stay_as_they_are() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    cluster.bind("web", "n-0", json!({}), json!({})).await;
    cluster.until("running", |c| c.phase("web") == "Running").await;
    cluster.fleet.fail("n-0").await.unwrap();
    cluster.delete("web", Some(5)).await;
    cluster.bind("late", "n-0", json!({}), json!({})).await;
    cluster.bind("lost", "nowhere", json!({}), json!({})).await;
    cluster.pass(600).await;
    assert_eq!(cluster.phase("web"), "Running");
    assert_eq!(cluster.pod("late")["status"].get("startTime"), None);
    cluster.fleet.revive("n-0").await.unwrap();
    cluster.until("finished", |c| c.try_pod("web").is_none()).await;
    cluster.until("caught up", |c| c.phase("late") == "Running").await;
    assert_eq!(cluster.pod("lost")["status"].get("startTime"), None);
    let mut nowhere = pool("nowhere", 1);
    nowhere.name = "nowhere".to_owned();
    cluster.fleet.add(nowhere).await.unwrap();
    cluster.bind("found", "nowhere-0", json!({}), json!({})).await;
    cluster.until("running", |c| c.phase("found") == "Running").await;
}

#[tokio::test(start_paused = true)]
async fn pods_bound_before_their_node_comes_are_met() {
    let cluster = Cluster::start(Vec::new()).await;
    cluster.bind("early", "n-0", json!({}), json!({})).await;
    cluster.pass(60).await;
    cluster.fleet.add(pool("n", 1)).await.unwrap();
    cluster.until("running", |c| c.phase("early") == "Running").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_name_is_another_pod() {
    let cluster = Cluster::start(vec![pool("n", 2)]).await;
    cluster.bind("web", "n-0", json!({}), json!({})).await;
    cluster.until("running", |c| c.phase("web") == "Running").await;
    let first = cluster.pod("web");
    cluster.delete("web", Some(0)).await;
    cluster.bind("web", "n-1", json!({}), json!({})).await;
    cluster.until("running", |c| c.phase("web") == "Running").await;
    let second = cluster.pod("web");
    assert_ne!(first["status"]["hostIP"], second["status"]["hostIP"]);
    assert_ne!(
        first["status"]["containerStatuses"][0]["containerID"],
        second["status"]["containerStatuses"][0]["containerID"]
    );
}

#[tokio::test(start_paused = true)]
async fn annotations_that_make_no_sense_are_told_once() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    let annotations =
        json!({"sandbox.koord.sh/run-time": "soon", "sandbox.koord.sh/cpu-usage": "trace:no/no"});
    cluster.bind("web", "n-0", annotations, json!({})).await;
    cluster.until("running all the same", |c| c.phase("web") == "Running").await;
    cluster
        .edit("pods", "default", "web", Part::Main, |pod| pod["metadata"]["labels"]["x"] = json!("y"))
        .await;
    cluster.pass(60).await;
    let events = cluster.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].0, "InvalidSandboxAnnotation");
    assert!(events[0].1.contains("sandbox.koord.sh/run-time: \"soon\" is not accepted"), "{}", events[0].1);
    assert!(events[0].1.contains("default/no is not found"), "{}", events[0].1);
}

#[tokio::test(start_paused = true)]
async fn readiness_gates_are_looked_at_again() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    cluster.bind("web", "n-0", json!({}), json!({"readinessGates": [{"conditionType": "x/y"}]})).await;
    cluster.until("running", |c| c.phase("web") == "Running").await;
    assert_eq!(condition(&cluster.pod("web"), "Ready")["reason"], "ReadinessGatesNotReady");
    cluster
        .edit("pods", "default", "web", Part::Status, |pod| {
            let gate = json!({"type": "x/y", "status": "True"});
            pod["status"]["conditions"].as_array_mut().unwrap().push(gate);
        })
        .await;
    cluster.until("ready", |c| condition(&c.pod("web"), "Ready")["status"] == "True").await;
}

#[tokio::test(start_paused = true)]
async fn finalizers_keep_a_pod_that_has_ended() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    cluster.bind("web", "n-0", json!({}), json!({})).await;
    cluster.until("running", |c| c.phase("web") == "Running").await;
    cluster
        .edit("pods", "default", "web", Part::Main, |pod| {
            pod["metadata"]["finalizers"] = json!(["x.io/wait"])
        })
        .await;
    cluster.delete("web", None).await;
    cluster.until("ended", |c| c.phase("web") == "Succeeded").await;
    let version = cluster.pod("web")["metadata"]["resourceVersion"].clone();
    cluster.pass(600).await;
    let settled = cluster.pod("web");
    assert_eq!(settled["metadata"]["deletionGracePeriodSeconds"], 0);
    cluster.pass(600).await;
    assert_eq!(cluster.pod("web")["metadata"]["resourceVersion"], settled["metadata"]["resourceVersion"]);
    assert_ne!(version, json!(null));
    cluster.edit("pods", "default", "web", Part::Main, |pod| pod["metadata"]["finalizers"] = json!([])).await;
    cluster.until("gone", |c| c.try_pod("web").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn many_pods_at_once() {
    let cluster =
        Cluster::with(crate::support::api(), Options { pools: vec![pool("n", 6)], ..Options::default() })
            .await;
    for i in 0..120 {
        cluster.bind(&format!("p-{i}"), &format!("n-{}", i % 6), json!({}), json!({})).await;
    }
    let all_are =
        |phase: &'static str| move |c: &Cluster| (0..120).all(|i| c.phase(&format!("p-{i}")) == phase);
    cluster.until("all running", all_are("Running")).await;
    let addresses: std::collections::HashSet<String> = (0..120)
        .map(|i| cluster.pod(&format!("p-{i}"))["status"]["podIP"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(addresses.len(), 120);
    for i in 0..120 {
        cluster.delete(&format!("p-{i}"), None).await;
    }
    cluster.until("all gone", |c| (0..120).all(|i| c.try_pod(&format!("p-{i}")).is_none())).await;
    assert!(cluster.fleet.list().await.unwrap().iter().all(|row| row.pods == 0));
}
