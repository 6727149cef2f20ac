//! The cluster that koordlet talks to: an API server with the node's objects, and a kubelet that answers over TLS.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use http::StatusCode;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use koord_api::crd::node_slo::NodeSLO;
use koord_kit::http::{Router, TlsFiles, json, serve};
use koord_sandbox::cluster::{Cluster, Options};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) const NODE: &str = "passenger";

/// What kubelet tells.
struct Kubelet {
    pods: Vec<Value>,
    config: Value,
}

/// The API server and the kubelet.
pub(crate) struct World {
    cluster: Cluster,
    pub(crate) client: Client,
    kubelet: Arc<Mutex<Kubelet>>,
    stop: CancellationToken,
}

/// A pod to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodPlan<'a> {
    pub(crate) name: &'a str,
    /// `LS` and so on.
    pub(crate) qos: &'a str,
    /// `Burstable` and so on.
    pub(crate) kube_qos: &'a str,
    pub(crate) requests: &'a [(&'a str, &'a str)],
    pub(crate) limits: &'a [(&'a str, &'a str)],
}

/// A pod that kubelet runs.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Of its one container.
    pub(crate) id: String,
}

impl World {
    pub(crate) async fn new() -> Result<World> {
        println!("an API server starts");
        // Nothing here needs controllers, and an emulated machine is slow.
        let options = Options { with_controllers: false, ..Options::default() };
        let cluster = Cluster::start(options, &mut |step| println!("{step:?}")).await?;
        let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let config = json!({ "cpuManagerPolicy": "none" });
        let kubelet = Arc::new(Mutex::new(Kubelet { pods: Vec::new(), config }));
        let world = World { cluster, client, kubelet, stop: CancellationToken::new() };
        let port = world.serve_kubelet().await?;
        world.make_objects(port).await?;
        println!("it knows the node");
        Ok(world)
    }

    pub(crate) fn kubeconfig(&self) -> &str {
        self.cluster.kubeconfig()
    }

    fn kubelet(&self) -> std::sync::MutexGuard<'_, Kubelet> {
        self.kubelet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve_kubelet(&self) -> Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let tls = TlsFiles::in_memory(&signed.cert.pem(), &signed.signing_key.serialize_pem())?;
        let answer = |kubelet: &Arc<Mutex<Kubelet>>, of: fn(&Kubelet) -> Value| {
            let kubelet = kubelet.lock().unwrap_or_else(PoisonError::into_inner);
            json(StatusCode::OK, &of(&kubelet))
        };
        let (pods, config) = (self.kubelet.clone(), self.kubelet.clone());
        let router = Router::bare()
            .page("/pods/", move |_| {
                let list = |kubelet: &Kubelet| json!({ "kind": "PodList", "items": kubelet.pods });
                std::future::ready(answer(&pods, list))
            })
            .page("/configz", move |_| {
                std::future::ready(answer(&config, |kubelet| json!({ "kubeletconfig": kubelet.config })))
            });
        tokio::spawn(serve(listener, router, Some(tls), self.stop.clone()));
        Ok(port)
    }

    async fn make_objects(&self, kubelet: u16) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = serde_json::from_value(json!({ "metadata": { "name": NODE } }))?;
        nodes.create(&PostParams::default(), &node).await?;
        let cpus = std::thread::available_parallelism()?.get().to_string();
        let amounts = json!({ "cpu": cpus, "memory": format!("{}Ki", memory_kib("MemTotal")?) });
        let status = json!({ "status": {
            "capacity": amounts, "allocatable": amounts,
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet } } } });
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let slos: Api<NodeSLO> = Api::all(self.client.clone());
        let slo =
            serde_json::from_value(json!({ "apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO",
            "metadata": { "name": NODE }, "spec": {} }))?;
        slos.create(&PostParams::default(), &slo).await?;
        Ok(())
    }

    /// Changes the NodeSLO.
    pub(crate) async fn order(&self, spec: Value) -> Result<()> {
        let slos: Api<NodeSLO> = Api::all(self.client.clone());
        slos.patch(NODE, &PatchParams::default(), &Patch::Merge(&json!({ "spec": spec }))).await?;
        Ok(())
    }

    /// Annotates the Node, or takes the annotation off.
    pub(crate) async fn annotate_node(&self, key: &str, value: Option<&str>) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let annotations = json!({ "metadata": { "annotations": { key: value } } });
        nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&annotations)).await?;
        Ok(())
    }

    /// A pod of the API server that kubelet does not know yet. The number makes its container's id.
    pub(crate) async fn make_pod(&self, plan: PodPlan<'_>, number: usize) -> Result<(Running, Value)> {
        let list = |amounts: &[(&str, &str)]| -> Value {
            amounts.iter().map(|(name, amount)| ((*name).to_owned(), json!(amount))).collect()
        };
        let resources = json!({ "requests": list(plan.requests), "limits": list(plan.limits) });
        let object = json!({
            "metadata": { "name": plan.name, "namespace": "default", "labels": { "koordinator.sh/qosClass": plan.qos } },
            "spec": { "nodeName": NODE, "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "main", "image": "main", "resources": resources }] } });
        let api = self.pods();
        let made = api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let running = Running {
            name: plan.name.to_owned(),
            uid: made.uid().context("a pod without uid")?,
            id: format!("{number:064x}"),
        };
        let mut told = serde_json::to_value(&made)?;
        told["status"] = json!({ "phase": "Running", "qosClass": plan.kube_qos, "containerStatuses": [{
            "name": "main", "containerID": format!("containerd://{}", running.id), "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "state": { "running": {} } }] });
        Ok((running, told))
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Kubelet tells of a pod from now on.
    pub(crate) fn tell(&self, pod: Value) {
        self.kubelet().pods.push(pod);
    }

    /// Kubelet tells something else of a pod from now on.
    pub(crate) fn retell(&self, uid: &str, change: impl Fn(&mut Value)) {
        self.kubelet().pods.iter_mut().filter(|pod| pod["metadata"]["uid"] == uid).for_each(change);
    }

    /// Kubelet tells of a pod with an annotation, or without it.
    pub(crate) fn annotate_pod(&self, uid: &str, key: &str, value: Option<&str>) {
        self.retell(uid, |pod| match (value, &mut pod["metadata"]["annotations"]) {
            (Some(value), annotations) => annotations[key] = json!(value),
            (None, Value::Object(annotations)) => drop(annotations.remove(key)),
            (None, _) => {}
        });
    }

    /// Kubelet tells of a pod no longer.
    pub(crate) fn forget(&self, uid: &str) {
        self.kubelet().pods.retain(|pod| pod["metadata"]["uid"] != uid);
    }

    /// What kubelet says of its configuration.
    pub(crate) fn configure(&self, config: Value) {
        self.kubelet().config = config;
    }

    /// Reasons of the events about a pod.
    pub(crate) async fn reasons(&self, pod: &str) -> Result<Vec<String>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let events = events.list(&ListParams::default()).await?;
        let about =
            events.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(pod));
        Ok(about.filter_map(|event| event.reason).collect())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A row of `/proc/meminfo`.
pub(crate) fn memory_kib(row: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()).context("no such row")?;
    Ok(number.parse()?)
}
