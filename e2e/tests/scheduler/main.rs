//! koord-scheduler as the only scheduler of a cluster: of the sandbox, and of a real API server.

mod cluster;
mod load;
mod ours;
mod reservation;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use koord_scheduler::record::Verdict;
use koord_scheduler::run::Ending;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use cluster::{Place, eventually};
use ours::Ours;

/// Nodes of 4 CPUs, each of which takes so many pods.
const NODES: usize = 20;
const PODS: usize = 300;

/// Everything a scheduler must do, on one cluster.
async fn check_all(place: &Place) -> Result<()> {
    everything_is_bound(place).await.context("everything is bound")?;
    what_cannot_fit_is_told(place).await.context("what cannot fit is told")?;
    victims_make_room(place).await.context("victims make room")?;
    a_restart_loses_nothing(place).await.context("a restart loses nothing")?;
    another_takes_over(place).await.context("another takes over")?;
    whoever_loses_the_lease_ends(place).await.context("whoever loses the lease ends")?;
    load::busy_nodes_are_avoided(place).await.context("busy nodes are avoided")?;
    reservation::check_all(place).await.context("reservations")
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_sandbox() -> Result<()> {
    let sandbox = cluster::sandbox().await?;
    check_all(&sandbox).await?;
    sandbox.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_api_server() -> Result<()> {
    match cluster::real().await? {
        Some(real) => check_all(&real).await,
        None => Ok(()),
    }
}

async fn make_nodes(place: &Place, prefix: &str, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(place.client.clone());
    for number in 0..count {
        let node = json!({"metadata": {"name": format!("{prefix}-{number}"), "labels": {"test": prefix}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
        let node: Node = serde_json::from_value(node)?;
        let made = nodes.create(&PostParams::default(), &node).await?;
        // A node's status is its own; and nobody says here that it is ready, so nothing may taint it.
        let patch = json!({"status": node.status, "spec": {"taints": null}});
        let name = made.metadata.name.context("a name")?;
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        nodes
            .patch(&name, &PatchParams::default(), &Patch::Merge(&json!({"spec": {"taints": null}})))
            .await?;
    }
    Ok(())
}

fn pod(name: &str, test: &str, scheduler: &str, cpu: &str, priority: Option<&str>) -> Result<Pod> {
    let mut pod = json!({"metadata": {"name": name, "labels": {"test": test}},
        "spec": {"schedulerName": scheduler, "nodeSelector": {"test": test},
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}});
    if let Some(class) = priority {
        pod["spec"]["priorityClassName"] = class.into();
    }
    Ok(serde_json::from_value(pod)?)
}

async fn create(place: &Place, pods: impl IntoIterator<Item = Result<Pod>>) -> Result<()> {
    let api: Api<Pod> = place.pods();
    for pod in pods {
        api.create(&PostParams::default(), &pod?).await?;
    }
    Ok(())
}

/// The node of every pod of a test.
async fn placed(place: &Place, test: &str) -> Result<BTreeMap<String, Option<String>>> {
    let listed = place.pods().list(&ListParams::default().labels(&format!("test={test}"))).await?;
    let row = |pod: Pod| (pod.metadata.name.unwrap_or_default(), pod.spec.and_then(|spec| spec.node_name));
    Ok(listed.into_iter().map(row).collect())
}

async fn all_placed(place: &Place, test: &str, count: usize) -> Result<BTreeMap<String, usize>> {
    let by_pod = eventually(&format!("{count} pods of {test} have nodes"), async || {
        let by_pod = placed(place, test).await?;
        let is_done = by_pod.len() == count && by_pod.values().all(Option::is_some);
        Ok(is_done.then_some(by_pod))
    })
    .await?;
    let mut by_node: BTreeMap<String, usize> = BTreeMap::new();
    for node in by_pod.into_values().flatten() {
        *by_node.entry(node).or_default() += 1;
    }
    Ok(by_node)
}

async fn events(place: &Place, pod: &str, reason: &str) -> Result<Vec<Event>> {
    let api: Api<Event> = Api::namespaced(place.client.clone(), "default");
    let listed = api.list(&ListParams::default()).await?;
    let is_it = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(pod)
    };
    Ok(listed.into_iter().filter(is_it).collect())
}

async fn everything_is_bound(place: &Place) -> Result<()> {
    make_nodes(place, "many", NODES).await?;
    let folder = tempfile::tempdir()?;
    let recording = folder.path().join("recording");
    let flag = format!("--record={}", recording.display());
    let ours = Ours::start_with(place, "many", "lease-many", "{}", &[flag]).await?;
    create(place, (0..PODS).map(|number| pod(&format!("many-{number}"), "many", "many", "200m", None)))
        .await?;
    let by_node = all_placed(place, "many", PODS).await?;
    ensure!(by_node.len() == NODES, "{by_node:?}");
    // 20 pods fill a node; none may have more.
    ensure!(by_node.values().all(|count| *count <= 20), "{by_node:?}");
    ours.stop().await;
    replays_the_same(place, &recording).await.context("the recording")?;
    // None is lost, though they trail behind the bindings.
    let api: Api<Event> = Api::namespaced(place.client.clone(), "default");
    let listed = api.list(&ListParams::default()).await?;
    let told = listed.iter().filter(|event| {
        event.reason.as_deref() == Some("Scheduled") && event.reporting_controller.as_deref() == Some("many")
    });
    let told: Vec<&Event> = told.collect();
    ensure!(told.len() == PODS, "{} events", told.len());
    let note = told[0].note.as_deref().unwrap_or_default();
    ensure!(note.starts_with("Successfully assigned default/many-"), "{note}");
    ensure!(told[0].action.as_deref() == Some("Binding"), "{:?}", told[0]);
    Ok(())
}

/// What a scheduler recorded while it worked gives the same decisions again.
async fn replays_the_same(place: &Place, recording: &std::path::Path) -> Result<()> {
    let mut again = BTreeMap::new();
    let played = koord_scheduler::record::replay(recording, |decision| {
        if let Verdict::Placed { node } = decision.verdict {
            again.insert(decision.pod, Some(node));
        }
    })?;
    ensure!(played.is_same() && played.cut.is_none() && played.verified > 0, "{played:?}");
    let live = placed(place, "many").await?;
    let live: BTreeMap<String, Option<String>> =
        live.into_iter().map(|(name, node)| (format!("default/{name}"), node)).collect();
    ensure!(again == live, "{again:?}\nand live\n{live:?}");
    Ok(())
}

async fn what_cannot_fit_is_told(place: &Place) -> Result<()> {
    make_nodes(place, "full", 2).await?;
    let ours = Ours::start(place, "full", "lease-full").await?;
    create(place, [pod("too-big", "full", "full", "5", None)]).await?;
    let condition = eventually("the condition says why", async || {
        let pod = place.pods().get("too-big").await?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.into_iter().find(|condition| condition.type_ == "PodScheduled"))
    })
    .await?;
    let message = condition.message.clone().unwrap_or_default();
    ensure!(
        (condition.status.as_str(), condition.reason.as_deref()) == ("False", Some("Unschedulable")),
        "{condition:?}"
    );
    ensure!(condition.last_transition_time.is_some(), "{condition:?}");
    ensure!(message.contains("nodes are available: 2 Insufficient cpu, "), "{message}");
    let told = eventually("the event says why", async || {
        Ok(events(place, "too-big", "FailedScheduling").await?.into_iter().next())
    })
    .await?;
    ensure!(told.note.as_deref() == Some(message.as_str()), "{:?} and {message}", told.note);
    ensure!(
        told.type_.as_deref() == Some("Warning") && told.action.as_deref() == Some("Scheduling"),
        "{told:?}"
    );
    // Room comes, and it goes there.
    let nodes: Api<Node> = Api::all(place.client.clone());
    let patch = json!({"status": {"allocatable": {"cpu": "6"}, "capacity": {"cpu": "6"}}});
    nodes.patch_status("full-1", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let by_node = all_placed(place, "full", 1).await?;
    ensure!(by_node.contains_key("full-1"), "{by_node:?}");
    ours.stop().await;
    Ok(())
}

async fn victims_make_room(place: &Place) -> Result<()> {
    make_nodes(place, "small", 1).await?;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "urgent"}, "value": 1000});
    let class: k8s_openapi::api::scheduling::v1::PriorityClass = serde_json::from_value(class)?;
    Api::all(place.client.clone()).create(&PostParams::default(), &class).await?;
    let ours = Ours::start(place, "small", "lease-small").await?;
    create(place, (0..4).map(|number| pod(&format!("low-{number}"), "small", "small", "1", None))).await?;
    all_placed(place, "small", 4).await?;
    create(place, [pod("urgent", "small", "small", "2", Some("urgent"))]).await?;
    let left = eventually("the urgent pod has taken the place of two", async || {
        // Without a kubelet somebody else has to let go of what is being deleted.
        place.bury("small").await?;
        let by_pod = placed(place, "small").await?;
        let is_done = by_pod.get("urgent").is_some_and(Option::is_some);
        Ok(is_done.then_some(by_pod))
    })
    .await?;
    ensure!(left.len() == 3, "{left:?}");
    let gone = (0..4).map(|number| format!("low-{number}")).find(|name| !left.contains_key(name));
    let victim = gone.context("a victim")?;
    let told = eventually("the victim's event", async || {
        Ok(events(place, &victim, "Preempted").await?.into_iter().next())
    })
    .await?;
    let uid = place.pods().get("urgent").await?.metadata.uid.unwrap_or_default();
    let want = format!("Preempted by pod {uid} on node small-0");
    ensure!(told.note.as_deref() == Some(want.as_str()), "{told:?}");
    ours.stop().await;
    Ok(())
}

async fn a_restart_loses_nothing(place: &Place) -> Result<()> {
    make_nodes(place, "again", NODES).await?;
    let first = Ours::start(place, "again", "lease-again").await?;
    create(place, (0..PODS).map(|number| pod(&format!("again-{number}"), "again", "again", "200m", None)))
        .await?;
    eventually("some have nodes", async || {
        let by_pod = placed(place, "again").await?;
        Ok(by_pod.values().any(Option::is_some).then_some(()))
    })
    .await?;
    // As a crash would: no outcome is waited for, no event is sent, and the lease is not given back.
    first.crash();
    place.end_lease("lease-again").await?;
    let second = Ours::start(place, "again", "lease-again").await?;
    let by_node = all_placed(place, "again", PODS).await?;
    ensure!(by_node.values().all(|count| *count <= 20), "{by_node:?}");
    second.stop().await;
    Ok(())
}

async fn another_takes_over(place: &Place) -> Result<()> {
    make_nodes(place, "two", 2).await?;
    let first = Ours::start(place, "two", "lease-two").await?;
    first.leads().await?;
    let second = Ours::start(place, "two", "lease-two").await?;
    let queue = second.get("/apis/v1/queue").await?;
    ensure!(queue == json!({"message": "the instance is not leader"}), "{queue}");
    create(place, [pod("before", "two", "two", "1", None)]).await?;
    all_placed(place, "two", 1).await?;
    first.stop().await;
    create(place, [pod("after", "two", "two", "1", None)]).await?;
    all_placed(place, "two", 2).await?;
    second.leads().await?;
    let node: Value = second.get("/apis/v1/nodes/two-0").await?;
    ensure!(node["allocatable"]["MilliCPU"] == 4000, "{node}");
    second.stop().await;
    place
        .pods()
        .delete_collection(&DeleteParams::default(), &ListParams::default().labels("test=two"))
        .await?;
    Ok(())
}

async fn whoever_loses_the_lease_ends(place: &Place) -> Result<()> {
    let ours = Ours::start(place, "lost", "lease-lost").await?;
    ours.leads().await?;
    place.take_lease("lease-lost").await?;
    let ending = ours.ended().await?;
    ensure!(matches!(ending, Ending::LostLease(_)), "{ending:?}");
    Ok(())
}
