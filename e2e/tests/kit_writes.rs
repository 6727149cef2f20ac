//! Writes on a real API server: updates that lose nothing, and events as users see them.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use koord_api::patch::diff::Change;
use koord_kit::client::{ClientConnection, ClientOptions, connect};
use koord_kit::conditions;
use koord_kit::events::{EventType, Flavour, Note, recorder, reference};
use koord_kit::metrics::KitMetrics;
use koord_kit::write::{Part, Place, Written, merge_patch, send_steps, update_with};
use koord_testkit::{ControlPlane, shared, wait_until};
use kube::Api;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(60);

async fn cluster() -> Result<Option<(&'static ControlPlane, kube::Client)>> {
    let Some(cluster) = tokio::task::block_in_place(shared) else { return Ok(None) };
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let connection = ClientConnection { kubeconfig, qps: -1.0, ..ClientConnection::default() };
    Ok(Some((cluster, connect(&ClientOptions::new("koord-e2e", connection)).await?)))
}

fn count(map: &ConfigMap) -> u32 {
    map.data.as_ref().and_then(|data| data.get("count")?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_writers_loses_no_increment() -> Result<()> {
    const WRITERS: u32 = 8;
    const EACH: u32 = 25;
    let Some((_, client)) = cluster().await? else { return Ok(()) };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let fresh: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "counter"}}))?;
    maps.create(&PostParams::default(), &fresh).await?;
    let place = Place { namespace: Some("default"), name: "counter" };
    let writers = (0..WRITERS).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..EACH {
                let change = |map: &mut ConfigMap| {
                    let next = count(map) + 1;
                    map.data.get_or_insert_default().insert("count".to_owned(), next.to_string());
                };
                update_with(&client, place, Part::Object, change).await?;
            }
            Ok::<_, koord_kit::write::WriteError>(())
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await??;
    }
    let end = maps.get("counter").await?;
    assert_eq!(count(&end), WRITERS * EACH);

    // Nothing changed: nothing is sent.
    let same = update_with::<ConfigMap>(&client, place, Part::Object, |_| {}).await?;
    assert!(matches!(same, Written::Unchanged(_)));
    assert!(!merge_patch(&client, place, Part::Object, &end, &end, true).await?);
    assert_eq!(maps.get("counter").await?.metadata.resource_version, end.metadata.resource_version);

    // A guarded patch of an outdated state is refused, a fresh one is taken.
    let mut wanted = end.clone();
    wanted.metadata.labels.get_or_insert_default().insert("a".to_owned(), "b".to_owned());
    assert!(merge_patch(&client, place, Part::Object, &end, &wanted, true).await?);
    assert_eq!(maps.get("counter").await?.metadata.labels, wanted.metadata.labels);
    wanted.metadata.labels.get_or_insert_default().insert("c".to_owned(), "d".to_owned());
    assert!(merge_patch(&client, place, Part::Object, &end, &wanted, true).await.is_err());

    let missing = Place { namespace: Some("default"), name: "nobody" };
    let error = update_with::<ConfigMap>(&client, missing, Part::Object, |_| {}).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(error.to_string(), "cannot write ConfigMap default/nobody");
    Ok(())
}

/// A node of which we know next to nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SmallNode {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SmallSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SmallSpec {
    #[serde(default)]
    unschedulable: bool,
}

impl k8s_openapi::Resource for SmallNode {
    type Scope = k8s_openapi::ClusterResourceScope;
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Node";
    const URL_PATH_SEGMENT: &'static str = "nodes";
    const VERSION: &'static str = "v1";
}

impl k8s_openapi::Metadata for SmallNode {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_our_type_does_not_know_stays() -> Result<()> {
    let Some((cluster, client)) = cluster().await? else { return Ok(()) };
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "keeps"},
        "spec": {"providerID": "fake://keeps", "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let place = Place { namespace: None, name: "keeps" };
    update_with::<SmallNode>(&client, place, Part::Object, |node| node.spec.unschedulable = true).await?;
    let spec = nodes.get("keeps").await?.spec.unwrap_or_default();
    assert_eq!(spec.unschedulable, Some(true));
    assert_eq!(spec.provider_id.as_deref(), Some("fake://keeps"));
    assert!(spec.taints.unwrap_or_default().iter().any(|taint| taint.key == "a"));

    // The status has its own door.
    let ready = NodeCondition {
        type_: "KoordReady".to_owned(),
        status: "True".to_owned(),
        reason: Some("Tested".to_owned()),
        ..NodeCondition::default()
    };
    let change = |node: &mut Node| {
        let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions::set(conditions, ready.clone(), "2024-01-01T00:00:00Z".parse().unwrap());
    };
    update_with(&client, place, Part::Status, change).await?;
    let path = "-o=jsonpath={.status.conditions[?(@.type=='KoordReady')].lastTransitionTime}";
    let time = tokio::task::block_in_place(|| cluster.kubectl_ok(["get", "node", "keeps", path]))?;
    assert_eq!(time, "2024-01-01T00:00:00Z");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_inside_lists_are_for_one_version() -> Result<()> {
    let Some((_, client)) = cluster().await? else { return Ok(()) };
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "steps"}, "spec": {"taints": [
        {"key": "a", "value": "a", "effect": "NoSchedule"}, {"key": "b", "value": "b", "effect": "NoSchedule"}]}}))?;
    let node = nodes.create(&PostParams::default(), &node).await?;
    // The API server's own taint may stand among ours.
    let taints = |node: &Node| node.spec.clone().unwrap_or_default().taints.unwrap_or_default();
    let at = taints(&node).iter().position(|taint| taint.key == "b").expect("it was made so");
    let place = Place { namespace: None, name: "steps" };
    let version = node.metadata.resource_version.clone().unwrap_or_default();
    let send = || {
        let step = Change::Replace { path: format!("/spec/taints/{at}/value"), value: json!("other") };
        send_steps::<Node>(&client, place, &version, vec![step])
    };
    send().await?;
    let taint = taints(&nodes.get("steps").await?).swap_remove(at);
    assert_eq!((taint.key.as_str(), taint.value.as_deref()), ("b", Some("other")));
    assert_eq!(taint.effect, "NoSchedule", "what is not named stays");

    // Outdated, whether or not the places are still there.
    let error = send().await.unwrap_err();
    assert!(error.is_conflict() && error.is_outdated(), "{error:?}");
    let none = |node: &mut Node| node.spec.get_or_insert_default().taints = None;
    update_with(&client, place, Part::Object, none).await?;
    let error = send().await.unwrap_err();
    assert!(error.is_outdated(), "{error:?}");
    Ok(())
}

fn note(about: &ConfigMap, text: &str) -> Note {
    Note {
        regarding: reference(about),
        related: None,
        kind: EventType::Warning,
        reason: "Tested".to_owned(),
        action: "Testing".to_owned(),
        text: text.to_owned(),
    }
}

/// The events about an object, as `kubectl` has them.
fn events(cluster: &ControlPlane, name: &str) -> Result<Vec<Value>> {
    let selector = format!("--field-selector=involvedObject.name={name}");
    let text = cluster.kubectl_ok(["get", "events", &selector, "-o=json"])?;
    let list: Value = serde_json::from_str(&text)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_counted_and_combined() -> Result<()> {
    let Some((cluster, client)) = cluster().await? else { return Ok(()) };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "eventful"}}))?;
    let map = maps.create(&PostParams::default(), &map).await?;
    let (recorder, worker) = recorder(client, "koord-test", Flavour::Core, &KitMetrics::unregistered());
    let stop = CancellationToken::new();
    let task = tokio::spawn(worker.run(stop.clone()));
    for _ in 0..3 {
        recorder.event(note(&map, "the same"));
    }
    for number in 0..12 {
        recorder.event(note(&map, &format!("similar {number}")));
    }
    let counts = tokio::task::block_in_place(|| {
        wait_until(LIMIT, "all events", || {
            let mut counts: Vec<(String, i64)> = events(cluster, "eventful")
                .ok()?
                .iter()
                .map(|event| {
                    (
                        event["message"].as_str().unwrap_or_default().to_owned(),
                        event["count"].as_i64().unwrap_or(0),
                    )
                })
                .collect();
            counts.sort();
            counts.iter().any(|(message, _)| message.ends_with("similar 11")).then_some(counts)
        })
    })?;
    // Nine texts are told one by one, "the same" among them; the rest as one.
    assert_eq!(counts[0], ("(combined from similar events): similar 11".to_owned(), 4));
    assert_eq!(counts.len(), 10, "{counts:?}");
    assert!(counts.contains(&("the same".to_owned(), 3)), "{counts:?}");
    let table = tokio::task::block_in_place(|| {
        cluster.kubectl_ok(["get", "events", "--field-selector=involvedObject.name=eventful,type=Warning"])
    })?;
    assert!(
        table.lines().any(|line| line.contains("Warning")
            && line.contains("Tested")
            && line.contains("configmap/eventful")),
        "{table}"
    );
    stop.cancel();
    task.await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_become_a_series() -> Result<()> {
    let Some((cluster, client)) = cluster().await? else { return Ok(()) };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "serial"}}))?;
    let map = maps.create(&PostParams::default(), &map).await?;
    let (recorder, worker) = recorder(client, "koord-test", Flavour::Series, &KitMetrics::unregistered());
    let stop = CancellationToken::new();
    let task = tokio::spawn(worker.run(stop.clone()));
    recorder.event(note(&map, "once"));
    recorder.event(note(&map, "twice"));
    let event = tokio::task::block_in_place(|| {
        wait_until(LIMIT, "the series", || {
            events(cluster, "serial").ok()?.into_iter().find(|event| event["series"]["count"] == 2)
        })
    })?;
    assert_eq!(event["message"], "once");
    assert_eq!(event["action"], "Testing");
    assert_eq!(event["reportingComponent"], "koord-test");
    assert_eq!(tokio::task::block_in_place(|| events(cluster, "serial"))?.len(), 1);
    stop.cancel();
    task.await?;
    Ok(())
}
