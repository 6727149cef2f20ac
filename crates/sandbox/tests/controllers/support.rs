//! A cluster with controllers and a kubelet that does as it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use koord_sandbox::controllers::{Controllers, Options};
use koord_sandbox::kinds::Kind;
use koord_sandbox::server::{Api, DeleteOptions, Part, WriteOptions};
use koord_sandbox::store::{Limits, Selection, Stored};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Long enough for a machine that is busy elsewhere.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    pub(crate) api: Arc<Api>,
    controllers: Option<Controllers>,
    kubelet: JoinHandle<()>,
    seconds: Arc<AtomicI64>,
}

impl Cluster {
    /// With a kubelet that runs every pod with a node; pods get one from a makeshift scheduler.
    pub(crate) async fn start() -> Cluster {
        // Nodes here report once; that is not what most tests are about.
        let node_monitor_grace_period = Duration::from_secs(86_400);
        Cluster::with_options(Options { node_monitor_grace_period, ..Options::default() }).await
    }

    pub(crate) async fn with_options(options: Options) -> Cluster {
        let seconds = Arc::new(AtomicI64::new(1_700_000_000));
        let clock = seconds.clone();
        let now = move || Timestamp::from_second(clock.load(Ordering::SeqCst)).unwrap();
        let api = Api::with_clock(Limits::default(), Box::new(now));
        let controllers = Some(Controllers::start(api.clone(), options));
        let kubelet = tokio::spawn(kubelet(api.clone()));
        Cluster { api, controllers, kubelet, seconds }
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    pub(crate) async fn stop(mut self) {
        if let Some(controllers) = self.controllers.take() {
            controllers.stop().await;
        }
        self.kubelet.abort();
    }

    pub(crate) fn kind(&self, group: &str, plural: &str) -> Arc<Kind> {
        self.api.kind(group, plural).unwrap()
    }

    /// `deployments.apps`, `pods`.
    fn named(&self, resource: &str) -> Arc<Kind> {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        self.kind(group, plural)
    }

    pub(crate) async fn create(&self, resource: &str, object: Value) -> Value {
        let kind = self.named(resource);
        let namespace = if kind.namespaced { "default" } else { "" };
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned();
        let written = self.api.create(&kind, &namespace, object, &user()).await;
        written.unwrap_or_else(|error| panic!("create {resource}: {error}")).value()
    }

    pub(crate) async fn edit(&self, resource: &str, name: &str, change: impl Fn(&mut Value) + Send + Sync) {
        self.edit_part(resource, name, Part::Main, change).await;
    }

    pub(crate) async fn edit_part(
        &self,
        resource: &str,
        name: &str,
        part: Part,
        change: impl Fn(&mut Value) + Send + Sync,
    ) {
        let kind = self.named(resource);
        let namespace = if kind.namespaced { "default" } else { "" };
        let change = |object: &mut Value| {
            change(object);
            Ok(true)
        };
        self.api.edit(&kind, (namespace, name), part, &user(), &change).await.unwrap();
    }

    pub(crate) async fn delete(&self, resource: &str, name: &str, propagation: Option<&str>) {
        let kind = self.named(resource);
        let namespace = if kind.namespaced { "default" } else { "" };
        let options = DeleteOptions {
            write: user(),
            propagation: propagation.map(str::to_owned),
            ..DeleteOptions::default()
        };
        self.api.delete(&kind, (namespace, name), &options).await.unwrap();
    }

    pub(crate) fn get(&self, resource: &str, name: &str) -> Option<Value> {
        let kind = self.named(resource);
        let namespace = if kind.namespaced { "default" } else { "" };
        self.api.get(&kind, namespace, name).ok().map(|stored| stored.value())
    }

    pub(crate) fn list(&self, resource: &str) -> Vec<Value> {
        self.api.list(&self.named(resource), &Selection::default()).iter().map(|o| o.value()).collect()
    }

    /// Waits until the objects of a resource are as wanted.
    pub(crate) async fn until(&self, resource: &str, what: &str, is: impl Fn(&[Value]) -> bool) {
        let kind = self.named(resource);
        let wait = async {
            let (items, mut watch) = self.api.list_and_watch(&kind);
            drop(items);
            loop {
                if is(&self.list(resource)) {
                    return;
                }
                watch.changed().await;
                let _ = watch.take(usize::MAX);
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            let mut found = self.list(resource);
            for object in &mut found {
                object["metadata"]["managedFields"].take();
            }
            let found = serde_json::to_string_pretty(&found).unwrap();
            panic!("waited in vain for {what}; {resource} are {found}");
        }
    }

    /// Waits until one object is as wanted.
    pub(crate) async fn until_one(
        &self,
        resource: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) {
        let named = |o: &&Value| o["metadata"]["name"] == name;
        self.until(resource, what, |all| all.iter().find(named).is_some_and(&is)).await;
    }

    pub(crate) async fn until_gone(&self, resource: &str, name: &str) {
        let is_gone = |all: &[Value]| !all.iter().any(|o| o["metadata"]["name"] == name);
        self.until(resource, &format!("{name} to be gone"), is_gone).await;
    }

    /// `reason: message` of the events about an object.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let all = self.list("events");
        let about = all.iter().filter(|e| e["involvedObject"]["name"] == name);
        about.map(|e| format!("{}: {}", text(&e["reason"]), text(&e["message"]))).collect()
    }

    /// A node that is ready.
    pub(crate) async fn node(&self, name: &str) {
        let node =
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}});
        self.create("nodes", node).await;
        let now = self.api.now().to_string();
        self.edit_part("nodes", name, Part::Status, |node| {
            node["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now}]);
        })
        .await;
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn user() -> WriteOptions {
    WriteOptions::by("tester")
}

/// `{"metadata": {"labels": {"app": app}}, "spec": …}` with one container.
pub(crate) fn template(app: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let list = object["status"]["conditions"].as_array();
    list.and_then(|l| l.iter().find(|c| c["type"] == type_)).unwrap_or(&Value::Null)
}

/// Runs what has a node, ends what is being deleted. The image says how:
/// `done` succeeds, `bad` fails, `stuck` never gets ready.
async fn kubelet(api: Arc<Api>) {
    let kind = api.kind("", "pods").unwrap();
    let (items, mut watch) = api.list_and_watch(&kind);
    let mut todo: Vec<Arc<Stored>> = items;
    loop {
        for pod in todo.drain(..) {
            run(&api, &kind, &pod).await;
        }
        watch.changed().await;
        let events = watch.take(usize::MAX).unwrap();
        todo.extend(events.into_iter().map(|event| event.object));
    }
}

async fn run(api: &Api, kind: &Arc<Kind>, pod: &Stored) {
    let key = (pod.namespace(), pod.name());
    let object = pod.value();
    let phase = text(&object["status"]["phase"]);
    if !object["metadata"]["deletionTimestamp"].is_null() {
        let options = DeleteOptions {
            write: user(),
            grace_seconds: Some(0),
            uid: Some(pod.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let _ = api.delete(kind, key, &options).await;
        return;
    }
    if text(&object["spec"]["nodeName"]).is_empty() {
        let terms =
            &object["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let wanted = text(&terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]).to_owned();
        let nodes = api.list(&api.kind("", "nodes").unwrap(), &Selection::default());
        let first = nodes.first().map(|node| node.name().to_owned()).unwrap_or_default();
        let node = if wanted.is_empty() { first } else { wanted };
        if !node.is_empty() {
            let binding = json!({"metadata": {"name": pod.name()}, "target": {"kind": "Node", "name": node}});
            let _ = api.bind(key, &binding, &user()).await;
        }
        return;
    }
    if phase != "Pending" {
        return;
    }
    let image = text(&object["spec"]["containers"][0]["image"]).to_owned();
    let now = api.now().to_string();
    let change = |pod: &mut Value| {
        let (phase, ready) = match image.as_str() {
            "done" => ("Succeeded", "False"),
            "bad" => ("Failed", "False"),
            "stuck" => ("Running", "False"),
            _ => ("Running", "True"),
        };
        pod["status"]["phase"] = json!(phase);
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": ready, "lastTransitionTime": now}]);
        Ok(true)
    };
    let _ = api.edit(kind, key, Part::Status, &user(), &change).await;
}
