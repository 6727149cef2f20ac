//! A cluster in tokio's paused time, with a fleet.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use koord_sandbox::nodes::{Fleet, Options, Pool, Shape};
use koord_sandbox::server::{Api, DeleteOptions, Part, WriteOptions};
use koord_sandbox::store::Limits;
use serde_json::{Value, json};

/// What never happens in this time does not happen.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);

pub(crate) struct Cluster {
    pub(crate) api: Arc<Api>,
    pub(crate) fleet: Fleet,
}

/// An API whose clock is tokio's.
pub(crate) fn api() -> Arc<Api> {
    let base: Timestamp = "2024-05-01T08:00:00Z".parse().unwrap();
    let start = tokio::time::Instant::now();
    let clock = move || base + SignedDuration::try_from(start.elapsed()).unwrap();
    Api::with_clock(Limits::default(), Box::new(clock))
}

/// Nodes `NAME-0`, `NAME-1`, … of four cores and 8 GiB.
pub(crate) fn pool(name: &str, count: u32) -> Pool {
    let shape = Shape { cores: 4, memory: 8 << 30, ..Shape::default() };
    Pool { name: name.to_owned(), count, shape }
}

pub(crate) async fn install_crds(api: &Arc<Api>) {
    let kind = api.kind("apiextensions.k8s.io", "customresourcedefinitions").unwrap();
    for manifest in koord_api::crd::generate::manifests() {
        api.create(&kind, "", manifest.content, &WriteOptions::by("test")).await.unwrap();
    }
}

impl Cluster {
    /// A cluster with these nodes, registered.
    pub(crate) async fn start(pools: Vec<Pool>) -> Cluster {
        Cluster::with(api(), Options { pools, ..Options::default() }).await
    }

    pub(crate) async fn with(api: Arc<Api>, options: Options) -> Cluster {
        let fleet = Fleet::start(api.clone(), options).unwrap();
        fleet.ready().await.unwrap();
        Cluster { api, fleet }
    }

    pub(crate) fn try_get(
        &self,
        (group, plural): (&str, &str),
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let kind = self.api.kind(group, plural).ok()?;
        self.api.get(&kind, namespace, name).ok().map(|stored| stored.value())
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        self.try_get(("", "nodes"), "", name).unwrap()
    }

    pub(crate) fn try_pod(&self, name: &str) -> Option<Value> {
        self.try_get(("", "pods"), "default", name)
    }

    pub(crate) fn pod(&self, name: &str) -> Value {
        self.try_pod(name).unwrap()
    }

    pub(crate) fn phase(&self, name: &str) -> String {
        self.pod(name)["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn create(&self, (group, plural): (&str, &str), namespace: &str, object: Value) {
        let kind = self.api.kind(group, plural).unwrap();
        self.api.create(&kind, namespace, object, &WriteOptions::by("test")).await.unwrap();
    }

    /// A pod bound to a node, with these annotations and this in its spec.
    pub(crate) async fn bind(&self, name: &str, node: &str, annotations: Value, spec: Value) {
        let mut spec = spec;
        spec["nodeName"] = json!(node);
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "main", "image": "example.com/web:1"}]);
        }
        let pod = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
        self.create(("", "pods"), "default", pod).await;
    }

    pub(crate) async fn delete(&self, name: &str, grace_seconds: Option<i64>) {
        let kind = self.api.kind("", "pods").unwrap();
        let options = DeleteOptions { grace_seconds, ..DeleteOptions::default() };
        self.api.delete(&kind, ("default", name), &options).await.unwrap();
    }

    pub(crate) async fn edit(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        part: Part,
        change: fn(&mut Value),
    ) {
        let kind = self.api.kind("", plural).unwrap();
        let change = |object: &mut Value| {
            change(object);
            Ok(true)
        };
        let options = WriteOptions::by("test");
        self.api.edit(&kind, (namespace, name), part, &options, &change).await.unwrap();
    }

    /// Lets time pass until something is so.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Cluster) -> bool) -> impl Future<Output = ()> {
        let what = what.to_owned();
        async move {
            let waited = async {
                let mut pause = Duration::from_millis(100);
                while !is_so(self) {
                    tokio::time::sleep(pause).await;
                    pause = pause.mul_f64(1.1).min(Duration::from_secs(5));
                }
            };
            assert!(tokio::time::timeout(PATIENCE, waited).await.is_ok(), "never: {what}");
        }
    }

    /// Lets exactly this much time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let kind = self.api.kind("", "events").unwrap();
        let all = self.api.list(&kind, &koord_sandbox::store::Selection::default());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter().map(|e| e.value()).map(|e| (text(&e["reason"]), text(&e["message"]))).collect()
    }
}

/// The state of a condition.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let list = object["status"]["conditions"].as_array().unwrap();
    list.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}
