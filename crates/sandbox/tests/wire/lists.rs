//! Lists and watches over HTTPS: pages, revisions, bookmarks, selections, tables.

use std::time::Duration;

use crate::support::Cluster;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use koord_sandbox::store::Limits;
use kube::Api;
use kube::runtime::watcher::{self, watcher};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, tier: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"tier": tier}}, "data": {"k": "v"}})
}

async fn fill(cluster: &Cluster, names: &[&str]) {
    for name in names {
        cluster.post(MAPS, map(name, "x")).await.expect(201);
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect()
}

fn kinds(events: &[Value]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|e| (e["type"].as_str().unwrap(), e["object"]["metadata"]["name"].as_str().unwrap_or("")))
        .collect()
}

#[tokio::test]
async fn pages_show_one_moment_until_it_expires() {
    let cluster = Cluster::with_limits(Limits { events: 8, bytes: 1 << 20 }).await;
    fill(&cluster, &["a", "b", "c", "d"]).await;
    let first = cluster.get(&format!("{MAPS}?limit=2")).await.expect(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    assert_eq!((&first["kind"], &first["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(first["items"][0].get("kind"), None, "items of built-in lists have no kind");
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    cluster.delete(&format!("{MAPS}/c"), Value::Null).await.expect(200);
    fill(&cluster, &["bb"]).await;
    let next = format!("{MAPS}?limit=2&continue={token}");
    let second = cluster.get(&next).await.expect(200);
    assert_eq!(names(&second), ["c", "d"], "as of the first page");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(second["metadata"].get("continue"), None);
    for i in 0..10 {
        fill(&cluster, &[&format!("x{i}")]).await;
    }
    let gone = cluster.get(&next).await;
    assert_eq!((gone.code, &gone.json["reason"]), (410, &json!("Expired")));
    let fresh = gone.json["metadata"]["continue"].as_str().unwrap();
    let rest = cluster.get(&format!("{MAPS}?limit=2&continue={fresh}")).await.expect(200);
    assert_eq!(names(&rest), ["bb", "d"], "what is there now");
    let old = cluster.get(&format!("{MAPS}?resourceVersion=2&resourceVersionMatch=Exact")).await;
    assert_eq!((old.code, old.message()), (410, "The resourceVersion for the provided list is too old."));
}

#[tokio::test]
async fn lists_select_by_labels_and_fields() {
    let cluster = Cluster::start().await;
    fill(&cluster, &["a", "b"]).await;
    cluster.post(MAPS, map("c", "y")).await.expect(201);
    for (query, want) in [
        ("labelSelector=tier%3Dy", vec!["c"]),
        ("labelSelector=tier+in+(x,y),tier!%3Dy", vec!["a", "b"]),
        ("labelSelector=!tier", vec![]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.namespace%3Dother", vec![]),
        ("labelSelector=tier%3Dx&limit=1", vec!["a"]),
    ] {
        let list = cluster.get(&format!("{MAPS}?{query}")).await.expect(200);
        assert_eq!(names(&list), want, "{query}");
    }
    let limited = cluster.get(&format!("{MAPS}?labelSelector=tier%3Dx&limit=1")).await.expect(200);
    assert_eq!(limited["metadata"].get("remainingItemCount"), None, "unknown with a selector");
    let all = cluster.get("/api/v1/configmaps").await.expect(200);
    assert_eq!(names(&all), ["a", "b", "c"]);
}

#[tokio::test]
async fn watches_begin_continue_and_end() {
    let cluster = Cluster::start().await;
    fill(&cluster, &["a"]).await;
    let from_start = cluster.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1")).await;
    assert_eq!(kinds(&from_start), [("ADDED", "a")]);
    let version = cluster.get(MAPS).await.version();
    fill(&cluster, &["b"]).await;
    let patch = json!({"metadata": {"labels": {"tier": "y"}}});
    cluster.patch(&format!("{MAPS}/a"), "merge-patch+json", patch).await.expect(200);
    cluster.delete(&format!("{MAPS}/b"), Value::Null).await.expect(200);
    let tail = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let later = cluster.watch(&tail).await;
    assert_eq!(kinds(&later), [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]);
    let versions: Vec<u64> = later
        .iter()
        .map(|e| e["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(versions.is_sorted(), "{versions:?}");
    let left = cluster.watch(&format!("{tail}&labelSelector=tier%3Dx")).await;
    assert_eq!(kinds(&left), [("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b")], "a leaves the selection");
    assert_eq!(left[1]["object"]["metadata"]["labels"]["tier"], "x", "in the last state it could see");
    let entered = cluster.watch(&format!("{tail}&labelSelector=tier%3Dy")).await;
    assert_eq!(kinds(&entered), [("ADDED", "a")]);
    let marked = cluster.watch(&format!("{tail}&allowWatchBookmarks=true")).await;
    assert_eq!(marked.last().unwrap()["type"], "BOOKMARK", "the last word before a timeout");
    let named =
        cluster.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da")).await;
    assert_eq!(kinds(&named), [("ADDED", "a")]);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let cluster = Cluster::start().await;
    fill(&cluster, &["a", "b"]).await;
    let query = "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = cluster.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(kinds(&events[..2]), [("ADDED", "a"), ("ADDED", "b")]);
    let bookmark = &events[2]["object"]["metadata"];
    assert_eq!(bookmark["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(bookmark["resourceVersion"], cluster.get(MAPS).await.json["metadata"]["resourceVersion"]);
    let quiet = "watch=1&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    assert_eq!(cluster.watch(&format!("{MAPS}?{quiet}")).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_watch_from_too_long_ago_is_told_so() {
    let cluster = Cluster::with_limits(Limits { events: 4, bytes: 1 << 20 }).await;
    fill(&cluster, &["a", "b", "c", "d", "e", "f"]).await;
    let events = cluster.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=1")).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["type"], "ERROR");
    assert_eq!(
        (&events[0]["object"]["code"], &events[0]["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
}

#[tokio::test]
async fn tables_and_metadata_on_request() {
    let cluster = Cluster::start().await;
    fill(&cluster, &["a"]).await;
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let list = cluster.send(Method::GET, MAPS, &table, "").await.expect(200);
    assert_eq!(list["kind"], "Table");
    assert_eq!(list["columnDefinitions"][0]["name"], "Name");
    assert_eq!(list["rows"][0]["cells"][0], "a");
    assert_eq!(list["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let bare = cluster.send(Method::GET, &format!("{MAPS}?includeObject=None"), &table, "").await.expect(200);
    assert_eq!(bare["rows"][0]["object"], Value::Null);
    let one = cluster.send(Method::GET, &format!("{MAPS}/a"), &table, "").await.expect(200);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let meta = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let list = cluster.send(Method::GET, MAPS, &meta, "").await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["labels"]["tier"], "x");
    assert_eq!(list["items"][0].get("data"), None);
    let yaml = cluster.send(Method::GET, &format!("{MAPS}/a"), &[("accept", "application/yaml")], "").await;
    assert!(yaml.text.contains("kind: ConfigMap"), "{}", yaml.text);
}

#[tokio::test]
async fn discovery_in_both_ways() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.get("/api").await.expect(200)["versions"], json!(["v1"]));
    let groups = cluster.get("/apis").await.expect(200);
    assert!(groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "apps"));
    let core = cluster.get("/api/v1").await.expect(200);
    let find = |name: &str| core["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned();
    assert_eq!(find("pods").unwrap()["shortNames"], json!(["po"]));
    assert_eq!(find("pods/eviction").unwrap()["kind"], "Eviction");
    let header =
        [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")];
    let all = cluster.send(Method::GET, "/apis", &header, "").await;
    assert_eq!(
        all.headers["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let apps =
        all.json["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "apps").unwrap();
    let resources = apps["versions"][0]["resources"].as_array().unwrap();
    let names: Vec<&str> = resources.iter().filter_map(|r| r["resource"].as_str()).collect();
    assert_eq!(names, ["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"]);
    let deployments = &resources[2];
    assert_eq!(deployments["responseKind"], json!({"group": "", "version": "", "kind": "Deployment"}));
    assert_eq!(deployments["subresources"][0]["subresource"], "scale");
    assert_eq!(
        deployments["subresources"][0]["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().filter_map(|g| g["name"].as_str()).collect();
    assert_eq!(names[..3], ["apps", "events.k8s.io", "authentication.k8s.io"]);
    assert_eq!(cluster.get("/apis/apps/v1").await.expect(200)["groupVersion"], "apps/v1");
    assert_eq!(cluster.get("/apis/none").await.code, 404);
    for probe in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(cluster.get(probe).await.text, "ok");
    }
}

#[tokio::test]
async fn a_reflector_sees_every_object_through_lost_history() {
    let cluster = Cluster::with_limits(Limits { events: 16, bytes: 1 << 20 }).await;
    let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    fill(&cluster, &["first"]).await;
    let mut events = watcher(api, watcher::Config::default()).boxed();
    let mut seen = std::collections::BTreeSet::new();
    let mut next = async |seen: &mut std::collections::BTreeSet<String>| {
        // Errors such as 410 are retried by the watcher itself.
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(o) | watcher::Event::InitApply(o))) => {
                seen.insert(o.metadata.name.unwrap());
            }
            Ok(Some(watcher::Event::Init)) => seen.clear(),
            Ok(Some(watcher::Event::Delete(o))) => {
                seen.remove(&o.metadata.name.unwrap());
            }
            _ => {}
        }
    };
    while !seen.contains("first") {
        next(&mut seen).await;
    }
    // Far more events than the history holds, while the reader sleeps.
    for i in 0..100 {
        fill(&cluster, &[&format!("m{i}")]).await;
    }
    cluster.delete(&format!("{MAPS}/first"), Value::Null).await.expect(200);
    let done = async {
        while seen.len() != 100 || seen.contains("first") {
            next(&mut seen).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), done).await.expect("the reflector catches up");
}

#[tokio::test]
async fn many_idle_watches_cost_little_and_all_wake() {
    let cluster = Cluster::start().await;
    let mut watches = Vec::new();
    for _ in 0..300 {
        let request = http::Request::get(format!("{MAPS}?watch=1&timeoutSeconds=60&resourceVersion=1"));
        let request = request.body(kube::client::Body::empty()).unwrap();
        // Each on its own connection where one connection's streams run out.
        let client = kube::Client::try_from(crate::support::client_config(&cluster.server).await).unwrap();
        watches.push(client.send(request).await.unwrap().into_body());
    }
    fill(&cluster, &["a"]).await;
    for mut body in watches {
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        let event: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    }
}
