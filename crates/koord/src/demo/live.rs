//! The cluster that a demonstration runs on: looking at it and changing it, a real one or a sandbox.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use http::{Method, Request};
use koord_kit::client::{ClientConnection, ClientOptions, connect};
use koord_sandbox::cluster::Wanted;
use koord_sandbox::server::control::PREFIX;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::scenario::{ObjectRef, PatchKind};
use super::world::{CORDONED_BY, Node, Pod, Preempted};

/// Marks what a scenario made outside of namespaces, and its namespaces; the value is the scenario's name.
const MARK: &str = "demo.koord.sh/scenario";

/// Who writes, in managed fields.
const MANAGER: &str = "koord-demo";

/// A server's caches trail its store: an object may be refused for lack of a namespace, a service account or a
/// priority class that has just been made.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

/// A cluster, on behalf of one scenario.
pub(super) struct Live {
    client: Client,
    /// Where it was found, for messages.
    kubeconfig: String,
    scenario: String,
    scheduler_name: Option<String>,
    kinds: BTreeMap<(String, String), (ApiResource, Scope)>,
}

impl Live {
    pub(super) async fn connect(
        kubeconfig: &str,
        scenario: &str,
        scheduler_name: Option<String>,
    ) -> Result<Live> {
        let connection =
            ClientConnection { kubeconfig: kubeconfig.to_owned(), qps: -1.0, ..ClientConnection::default() };
        let client = connect(&ClientOptions::new(MANAGER, connection)).await?;
        let kubeconfig = match kubeconfig {
            "" => "KUBECONFIG".to_owned(),
            file => file.to_owned(),
        };
        Ok(Live { client, kubeconfig, scenario: scenario.to_owned(), scheduler_name, kinds: BTreeMap::new() })
    }

    /// The server's version; whoever answers is there.
    pub(super) async fn version(&self) -> Result<String> {
        let silent = || format!("the cluster of {} does not answer", self.kubeconfig);
        let answer = self.ask(Method::GET, "/version", Vec::new()).await.with_context(silent)?;
        Ok(answer["gitVersion"].as_str().unwrap_or_default().to_owned())
    }

    pub(super) async fn pods(&self, namespace: &str) -> Result<Vec<Pod>> {
        let items = self.list(&format!("/api/v1/namespaces/{namespace}/pods")).await?;
        Ok(items.iter().map(Pod::from_json).collect())
    }

    pub(super) async fn nodes(&self) -> Result<Vec<Node>> {
        let items = self.list("/api/v1/nodes").await?;
        Ok(items.iter().map(Node::from_json).collect())
    }

    /// What was said of pods that had to make room.
    pub(super) async fn preempted(&self, namespace: &str) -> Result<Vec<Preempted>> {
        let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=reason%3DPreempted");
        Ok(self.list(&path).await?.iter().map(Preempted::from_json).collect())
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut answer = self.ask(Method::GET, path, Vec::new()).await?;
        match answer["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) async fn get(&mut self, object: &ObjectRef) -> Result<Option<Value>> {
        let (api, _) = self.api(object).await?;
        let found =
            api.get_opt(&object.name).await.with_context(|| format!("cannot get {}", tell(object)))?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    /// The same object, without a namespace where its kind has none.
    pub(super) async fn placed(&mut self, object: &ObjectRef) -> Result<ObjectRef> {
        let mut object = object.clone();
        if self.api(&object).await?.1 == Scope::Cluster {
            object.namespace.clear();
        }
        Ok(object)
    }

    async fn api(&mut self, object: &ObjectRef) -> Result<(Api<DynamicObject>, Scope)> {
        let key = (object.api_version.clone(), object.kind.clone());
        let (resource, scope) = match self.kinds.get(&key) {
            Some(known) => known.clone(),
            None => {
                let (group, version) =
                    object.api_version.split_once('/').unwrap_or(("", &object.api_version));
                let kind = GroupVersionKind::gvk(group, version, &object.kind);
                let unknown = || format!("the cluster has no {} {}", object.api_version, object.kind);
                let (resource, capabilities) =
                    pinned_kind(&self.client, &kind).await.with_context(unknown)?;
                self.kinds.insert(key, (resource.clone(), capabilities.scope.clone()));
                (resource, capabilities.scope)
            }
        };
        let api = match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), &object.namespace, &resource),
        };
        Ok((api, scope))
    }

    /// Makes an object or changes it. Outside of namespaces only what this scenario made is touched.
    pub(super) async fn apply(&mut self, object: &ObjectRef, manifest: &Value) -> Result<()> {
        let (api, scope) = self.api(object).await?;
        let mut manifest = manifest.clone();
        if scope == Scope::Cluster {
            let found = self.get(object).await?;
            if found.as_ref().is_some_and(|found| !self.is_ours(found)) {
                return Err(foreign(object));
            }
            if let Some(metadata) = manifest["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
            manifest["metadata"]["labels"][MARK] = self.scenario.clone().into();
        }
        if let Some(name) = &self.scheduler_name {
            choose_scheduler(&mut manifest, name);
        }
        apply(&api, object, &manifest).await
    }

    pub(super) async fn scale(&mut self, object: &ObjectRef, replicas: i32) -> Result<()> {
        let api = self.api_of_own(object).await?;
        let patch = json!({"spec": {"replicas": replicas}});
        let scaled = api.patch_scale(&object.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        scaled.map(drop).map_err(plain).with_context(|| format!("cannot scale {}", tell(object)))
    }

    pub(super) async fn patch(&mut self, object: &ObjectRef, patch: &Value, how: PatchKind) -> Result<()> {
        let api = self.api_of_own(object).await?;
        let patch = match how {
            PatchKind::Strategic => Patch::Strategic(patch.clone()),
            PatchKind::Merge => Patch::Merge(patch.clone()),
            PatchKind::Json => Patch::Json(serde_json::from_value(patch.clone()).with_context(|| {
                format!("the patch of {} is not a list of JSON patch operations", tell(object))
            })?),
        };
        let patched = api.patch(&object.name, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(plain).with_context(|| format!("cannot patch {}", tell(object)))
    }

    /// All objects of a kind, and of a namespace where it has one, with such labels.
    pub(super) async fn find(&mut self, objects: &ObjectRef, selector: &str) -> Result<Vec<ObjectRef>> {
        let (api, _) = self.api(objects).await?;
        let listed = api.list(&ListParams::default().labels(selector)).await;
        let listed = listed.map_err(plain).with_context(|| format!("cannot list {}", objects.kind))?;
        let named = |name: String| ObjectRef { name, ..objects.clone() };
        Ok(listed.items.into_iter().filter_map(|item| item.metadata.name).map(named).collect())
    }

    pub(super) async fn delete(&mut self, object: &ObjectRef) -> Result<()> {
        let api = self.api_of_own(object).await?;
        let deleted = api.delete(&object.name, &DeleteParams::background()).await;
        deleted.map(drop).map_err(plain).with_context(|| format!("cannot delete {}", tell(object)))
    }

    async fn api_of_own(&mut self, object: &ObjectRef) -> Result<Api<DynamicObject>> {
        let (api, scope) = self.api(object).await?;
        if scope == Scope::Cluster
            && let Some(found) = self.get(object).await?
            && !self.is_ours(&found)
        {
            return Err(foreign(object));
        }
        Ok(api)
    }

    fn is_ours(&self, object: &Value) -> bool {
        object["metadata"]["labels"][MARK] == self.scenario.as_str()
    }

    /// As `delete`, but an object that is gone already, or was never ours, is as good.
    pub(super) async fn remove(&mut self, object: &ObjectRef) -> Result<()> {
        match self.get(object).await? {
            Some(found) if self.is_ours(&found) => self.delete(object).await,
            _ => Ok(()),
        }
    }

    /// Whether this scenario cordoned the node, in this run or one that was killed.
    pub(super) fn has_cordoned(&self, node: &Node) -> bool {
        node.is_cordoned && node.cordoned_by.as_ref() == Some(&self.scenario)
    }

    pub(super) async fn set_cordoned(&self, node: &str, is_cordoned: bool) -> Result<()> {
        let mark = is_cordoned.then_some(&self.scenario);
        let annotations = json!({CORDONED_BY: mark});
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": is_cordoned}});
        let path = format!("/api/v1/nodes/{node}");
        let request = Request::patch(path).header("Content-Type", "application/merge-patch+json");
        let request = request.body(serde_json::to_vec(&patch)?)?;
        let word = if is_cordoned { "cordon" } else { "uncordon" };
        self.client
            .request::<Value>(request)
            .await
            .map_err(plain)
            .with_context(|| format!("cannot {word} node {node}"))?;
        Ok(())
    }

    /// A namespace: None where there is none, otherwise whether this scenario made it.
    pub(super) async fn namespace(&mut self, name: &str) -> Result<Option<bool>> {
        let found = self.get(&namespace(name)).await?;
        Ok(found.map(|found| self.is_ours(&found)))
    }

    pub(super) async fn make_namespace(&mut self, name: &str) -> Result<()> {
        let object = namespace(name);
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": name, "labels": {MARK: self.scenario}}});
        let (api, _) = self.api(&object).await?;
        apply(&api, &object, &manifest).await
    }

    /// Asks for the removal of a namespace; it is gone when [`Live::namespace`] says so.
    pub(super) async fn remove_namespace(&mut self, name: &str) -> Result<()> {
        self.remove(&namespace(name)).await
    }

    /// How many nodes each pool of a sandbox has; None where this is not a sandbox.
    pub(super) async fn pools(&self) -> Result<Option<BTreeMap<String, u32>>> {
        let answer = match self.ask(Method::GET, &format!("{PREFIX}nodes"), Vec::new()).await {
            Ok(answer) => answer,
            // Whoever knows of no such path, or lets nobody look there, is not a sandbox.
            Err(error) => match error.downcast_ref::<kube::Error>() {
                Some(kube::Error::Api(_)) => return Ok(None),
                _ => return Err(error),
            },
        };
        let mut pools = BTreeMap::new();
        for node in answer["nodes"].as_array().into_iter().flatten() {
            *pools.entry(node["pool"].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
        }
        Ok(Some(pools))
    }

    pub(super) async fn add_pool(&self, shape: &str) -> Result<()> {
        let wanted = Wanted { shapes: vec![shape.to_owned()], ..Wanted::default() };
        self.ask(Method::POST, &format!("{PREFIX}nodes"), serde_json::to_vec(&wanted)?).await?;
        Ok(())
    }

    pub(super) async fn remove_pool(&self, name: &str) -> Result<()> {
        self.ask(Method::POST, &format!("{PREFIX}nodes/{name}/remove"), b"{}".to_vec()).await?;
        Ok(())
    }

    async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Value> {
        Ok(self.client.request(Request::builder().method(method).uri(path).body(body)?).await?)
    }
}

/// `Deployment shop/web`, `PriorityClass urgent`.
pub(super) fn tell(object: &ObjectRef) -> String {
    let ObjectRef { kind, namespace, name, .. } = object;
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

fn namespace(name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

/// What the server said, without the whole answer around it.
fn plain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => anyhow!("{}", status.message),
        other => other.into(),
    }
}

fn foreign(object: &ObjectRef) -> anyhow::Error {
    anyhow!("{} {} exists and is not of this scenario; it is left alone", object.kind, object.name)
}

async fn apply(api: &Api<DynamicObject>, object: &ObjectRef, manifest: &Value) -> Result<()> {
    let params = PatchParams::apply(MANAGER).force();
    let begun = Instant::now();
    loop {
        let error = match api.patch(&object.name, &params, &Patch::Apply(manifest)).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let may_pass = match &error {
            kube::Error::Api(status) => matches!(status.code, 403 | 404 | 409 | 500..),
            _ => false,
        };
        if !may_pass || begun.elapsed() > PATIENCE {
            return Err(plain(error)).with_context(|| format!("cannot apply {}", tell(object)));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Names a scheduler in every pod template that names none.
fn choose_scheduler(manifest: &mut Value, name: &str) {
    for path in ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"] {
        if let Some(spec) = manifest.pointer_mut(path).filter(|spec| spec["containers"].is_array())
            && spec["schedulerName"].is_null()
        {
            spec["schedulerName"] = name.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_name_a_scheduler_keep_it() {
        for (manifest, want) in [
            (json!({"spec": {"containers": []}}), json!({"spec": {"containers": [], "schedulerName": "s"}})),
            (
                json!({"spec": {"schedulerName": "mine", "containers": []}}),
                json!({"spec": {"schedulerName": "mine", "containers": []}}),
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": []}}}}),
                json!({"spec": {"template": {"spec": {"containers": [], "schedulerName": "s"}}}}),
            ),
            (
                json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}}),
                json!({"spec": {"jobTemplate": {"spec": {"template": {"spec":
                    {"containers": [], "schedulerName": "s"}}}}}}),
            ),
            (json!({"data": {}}), json!({"data": {}})),
        ] {
            let mut manifest = manifest;
            choose_scheduler(&mut manifest, "s");
            assert_eq!(manifest, want);
        }
    }
}
