//! koord-manager on the sandbox: NodeMetrics and NodeSLOs follow nodes and strategies, one replica acts at a time, every
//! replica explains, and batch pods run on what services leave.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::header::ACCEPT;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod};
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::node_slo::NodeSLO;
use koord_api::quantity::Quantity;
use koord_manager::flags::{self, Request};
use koord_manager::run::{Ending, Running, Setup, start};
use koord_manager::webhook::paths::{self, Side};
use koord_manager::webhook::settings::Settings;
use koord_sandbox::cluster::{Cluster, Options};
use koord_sandbox::nodes::{Pool, Shape};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Far more than it takes; only a machine that is badly overloaded gets there.
const LIMIT: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "koordinator-system";
const CONFIG: &str = "slo-controller-config";
/// Kubernetes' own plugins are enough: batch resources are resources.
const SCHEDULER: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {qps: -1}
profiles: [{schedulerName: default-scheduler}, {schedulerName: koord-scheduler}]
";

/// A sandbox, and a client of it.
struct Stage {
    cluster: Cluster,
    config: Config,
    client: Client,
}

impl Stage {
    async fn new(nodes: u32) -> Result<Stage> {
        Stage::with(nodes, Shape::default()).await
    }

    async fn with(nodes: u32, shape: Shape) -> Result<Stage> {
        let pool = Pool { name: "node".to_owned(), count: nodes, shape };
        let options = Options { pools: vec![pool], ..Options::default() };
        let cluster = Cluster::start(options, &mut |_| {}).await?;
        let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config.clone())?;
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(Stage { cluster, config, client })
    }

    /// A manager without webhooks.
    async fn manager(&self, flags: &[&str]) -> Result<Manager> {
        let flags: Vec<&str> =
            flags.iter().copied().chain(["--feature-gates=WebhookFramework=false"]).collect();
        self.manager_in(&flags, None).await
    }

    /// A manager that the API server calls, with its certificates in a folder of its own.
    async fn admitting_manager(&self, certificates: &Path) -> Result<Manager> {
        self.manager_in(&[], Some(certificates)).await
    }

    async fn manager_in(&self, flags: &[&str], certificates: Option<&Path>) -> Result<Manager> {
        let always = ["--metrics-addr=127.0.0.1:0", "--health-probe-addr=0"];
        let variable = |name: &str| match name {
            "WEBHOOK_HOST" => Some("127.0.0.1".to_owned()),
            "WEBHOOK_PORT" => Some("0".to_owned()),
            "WEBHOOK_CERT_DIR" => Some(certificates?.display().to_string()),
            _ => None,
        };
        let Request::Run(options) = flags::parse(flags.iter().copied().chain(always), variable)? else {
            bail!("these flags do not start it")
        };
        let stop = CancellationToken::new();
        let setup = Setup { options: *options, cluster: self.config.clone() };
        Ok(Manager { running: start(setup, stop.clone()).await?, stop })
    }

    /// A koord-scheduler, until the token is cancelled.
    async fn scheduler(&self) -> Result<(koord_scheduler::run::Running, CancellationToken)> {
        use koord_scheduler::{config, flags, run};
        let flags::Request::Run(options) = flags::parse(["--secure-port=0", "--port=0"])? else {
            bail!("these flags do not start it")
        };
        let config = config::parse(Path::new("test"), SCHEDULER, &options.overrides, &options.gates)?;
        let stop = CancellationToken::new();
        let setup = run::Setup { options: *options, config, cluster: self.config.clone(), log: None };
        Ok((run::start(setup, stop.clone()).await?, stop))
    }

    /// Makes an object of any kind.
    async fn make(&self, object: Value) -> Result<DynamicObject> {
        self.post(object, &PostParams::default()).await
    }

    async fn post(&self, object: Value, params: &PostParams) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().context("an object to make has a kind")?;
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = match types.kind.as_str() {
            "Pod" | "Deployment" => Api::namespaced_with(self.client.clone(), "default", &kind),
            _ => Api::all_with(self.client.clone(), &kind),
        };
        api.create(params, &object).await.with_context(|| format!("cannot make a {}", types.kind))
    }

    /// What the chart brings for admission and priorities.
    async fn install(&self) -> Result<()> {
        let settings = Settings::new(|_| None)?;
        for side in Side::ALL {
            let name = settings.configuration_name(side);
            self.make(paths::installed(side, name, NAMESPACE, &settings.service_name)).await?;
        }
        for (name, value) in [("koord-prod", 9000), ("koord-batch", 5000)] {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value});
            self.make(class).await?;
        }
        self.set_config(json!({"colocation-config": r#"{"enable":true}"#})).await
    }

    /// Waits until every node lends CPU within these bounds, in thousandths.
    async fn until_lent(&self, least: i64, most: i64) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let look = async || {
            let nodes = api.list(&ListParams::default()).await.ok()?;
            let lent = |node: &Node| -> Option<i64> {
                let amount = node.status.as_ref()?.allocatable.as_ref()?.get("kubernetes.io/batch-cpu")?;
                Some(amount.0.parse::<Quantity>().ok()?.value())
            };
            nodes
                .iter()
                .all(|node| lent(node).is_some_and(|lent| (least..=most).contains(&lent)))
                .then_some(())
        };
        until(&format!("moment with {least} to {most} batch-cpu on each node"), look).await
    }

    /// Waits until a pod made now would become a batch pod.
    async fn until_admission(&self) -> Result<()> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let look = async || {
            let made = self.post(batch_pod("probe"), &params).await.ok()?;
            is_batch(&made).then_some(())
        };
        until("pod that the profile changes", look).await
    }

    async fn until_pod(&self, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let look = async || {
            let pod = json!(api.get(name).await.ok()?);
            is_so(&pod).then_some(pod)
        };
        until(&format!("pod {name} that {what}"), look).await
    }

    /// From now on the services use this share of what they ask for.
    async fn services_use(&self, share: &str) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let patch = json!({"metadata": {"annotations": {"sandbox.koord.sh/cpu-usage": share}}});
        for pod in api.list(&ListParams::default().labels("app=web")).await? {
            api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Ok(())
    }

    async fn set_config(&self, data: Value) -> Result<()> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG}, "data": data});
        let params = PatchParams::apply("test").force();
        api.patch(CONFIG, &params, &Patch::Apply(map)).await?;
        Ok(())
    }

    async fn patch_node(&self, name: &str, metadata: Value) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"metadata": metadata}))).await?;
        Ok(())
    }

    async fn slo(&self, name: &str) -> Option<NodeSLO> {
        Api::<NodeSLO>::all(self.client.clone()).get_opt(name).await.ok().flatten()
    }

    async fn metric(&self, name: &str) -> Option<NodeMetric> {
        Api::<NodeMetric>::all(self.client.clone()).get_opt(name).await.ok().flatten()
    }

    /// Waits until the NodeSLO of a node has this at a path of its spec.
    async fn until_slo(&self, name: &str, path: &str, want: Value) -> Result<NodeSLO> {
        let look = async || {
            let slo = self.slo(name).await?;
            (json!(slo.spec).pointer(path) == Some(&want)).then_some(slo)
        };
        let shown = format!("NodeSLO {name} with {path} = {want}");
        until(&shown, look).await
    }

    /// Waits for an event about an object.
    async fn until_event(&self, namespace: &str, object: &str, reason: &str) -> Result<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let look = async || {
            let events = api.list(&ListParams::default()).await.ok()?;
            let is_it = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event.involved_object.name.as_deref() == Some(object)
            };
            events.into_iter().find(is_it)
        };
        until(&format!("event {reason} about {object}"), look).await
    }
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> Result<T> {
    let wait = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.with_context(|| format!("there never was a {what}"))
}

struct Manager {
    running: Running,
    stop: CancellationToken,
}

impl Manager {
    /// What it says at a path: the status, and the text or JSON.
    async fn ask(&self, path: &str, accept: &str) -> Result<(u16, String)> {
        let address = self.running.metrics.context("it serves HTTP")?;
        let client = Client::try_from(Config::new(format!("http://{address}").parse()?))?;
        let request = http::Request::get(path).header(ACCEPT, accept).body(Body::empty())?;
        let response = client.send(request).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        Ok((status, String::from_utf8(bytes.to_vec())?))
    }

    /// Waits until it says something at a path.
    async fn until_says(&self, path: &str, want: &str) -> Result<String> {
        let look = async || {
            let (status, text) = self.ask(path, "text/plain").await.ok()?;
            (status == 200 && text.contains(want)).then_some(text)
        };
        until(&format!("answer at {path} with {want:?}"), look).await
    }

    async fn stop(self) -> Ending {
        self.stop.cancel();
        self.running.ended().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_follow_nodes_and_strategies() -> Result<()> {
    let stage = Stage::new(3).await?;
    stage
        .set_config(json!({"cpu-burst-config": r#"{"clusterStrategy":{"policy":"auto"}}"#,
        "colocation-config": r#"{"enable":true,"metricReportIntervalSeconds":30}"#}))
        .await?;
    let manager = stage.manager(&["--enable-leader-election=false"]).await?;
    for name in ["node-0", "node-1", "node-2"] {
        stage.until_slo(name, "/cpuBurstStrategy/policy", json!("auto")).await?;
        let look = async || {
            let metric = stage.metric(name).await?;
            let policy = metric.spec?.metric_collect_policy?;
            (policy.report_interval_seconds == Some(30)).then_some(())
        };
        until(&format!("NodeMetric {name} every 30 s"), look).await?;
    }
    // Someone else's change of ours is undone.
    let api: Api<NodeSLO> = Api::all(stage.client.clone());
    let tamper = json!({"spec": {"cpuBurstStrategy": {"policy": "none"}}});
    api.patch("node-0", &PatchParams::default(), &Patch::Merge(tamper)).await?;
    stage.until_slo("node-0", "/cpuBurstStrategy/policy", json!("auto")).await?;
    // A key that cannot be read keeps its last good value, is told, and holds up no other.
    stage
        .set_config(json!({"cpu-burst-config": "{bad",
        "colocation-config": r#"{"enable":true,"metricReportIntervalSeconds":30}"#,
        "resource-threshold-config": r#"{"clusterStrategy":{"enable":true}}"#}))
        .await?;
    let slo = stage.until_slo("node-1", "/resourceUsedThresholdWithBE/enable", json!(true)).await?;
    ensure!(json!(slo.spec).pointer("/cpuBurstStrategy/policy") == Some(&json!("auto")), "{slo:?}");
    let event = stage.until_event(NAMESPACE, CONFIG, "SLOCfgUnmarshalFailed").await?;
    ensure!(
        event.source.and_then(|source| source.component).as_deref() == Some("nodeslo-controller"),
        "its voice"
    );
    let text = event.message.unwrap_or_default();
    ensure!(text.starts_with("failed to unmarshal CPUBurstCfg, err: "), "{text}");
    // DB-19: without ConfigMap the defaults apply, but measuring goes on as it was.
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), NAMESPACE);
    maps.delete(CONFIG, &DeleteParams::default()).await?;
    stage.until_slo("node-2", "/cpuBurstStrategy/policy", json!("none")).await?;
    let metric = stage.metric("node-2").await.context("it is still there")?;
    let policy = metric.spec.and_then(|spec| spec.metric_collect_policy).unwrap_or_default();
    ensure!(policy.report_interval_seconds == Some(30), "{policy:?}");
    // What belongs to a node goes with it.
    Api::<Node>::all(stage.client.clone()).delete("node-2", &DeleteParams::default()).await?;
    let gone = async || {
        (stage.slo("node-2").await.is_none() && stage.metric("node-2").await.is_none()).then_some(())
    };
    until("end of node-2's objects", gone).await?;
    ensure!(manager.stop().await == Ending::Stopped, "asked to stop");
    stage.cluster.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_count_at_once_and_nothing_is_written_twice() -> Result<()> {
    let stage = Stage::new(2).await?;
    stage
        .set_config(json!({"system-config": r#"{"clusterStrategy":{"totalNetworkBandwidth":"600M"}}"#}))
        .await?;
    let manager = stage.manager(&["--enable-leader-election=false"]).await?;
    let before = stage.until_slo("node-0", "/systemStrategy/totalNetworkBandwidth", json!("600M")).await?;
    stage.until_slo("node-1", "/systemStrategy/totalNetworkBandwidth", json!("600M")).await?;
    // node-0 gets a turn that changes nothing, then node-1 one that changes something. One worker does both in order.
    stage.patch_node("node-0", json!({"labels": {"pool": "a"}})).await?;
    let bandwidth = |value: Value| json!({"annotations": {"node.koordinator.sh/network-bandwidth": value}});
    stage.patch_node("node-1", bandwidth(json!("1000M"))).await?;
    stage.until_slo("node-1", "/systemStrategy/totalNetworkBandwidth", json!("1G")).await?;
    let after = stage.slo("node-0").await.context("it is still there")?;
    ensure!(before.resource_version() == after.resource_version(), "DB-31: written without need");
    // DB-26: what is no bandwidth is told and left out.
    stage.patch_node("node-1", bandwidth(json!("oops"))).await?;
    stage.until_slo("node-1", "/systemStrategy/totalNetworkBandwidth", json!("600M")).await?;
    let event = stage.until_event("default", "node-1", "InvalidNodeSetting").await?;
    let text = event.message.unwrap_or_default();
    ensure!(text.contains("\"oops\" is ignored"), "{text}");
    ensure!(manager.stop().await == Ending::Stopped, "asked to stop");
    stage.cluster.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_acts_and_another_takes_over() -> Result<()> {
    let stage = Stage::new(1).await?;
    let first = stage.manager(&[]).await?;
    until("first leader", async || first.running.leads().then_some(())).await?;
    let second = stage.manager(&[]).await?;
    let leases: Api<Lease> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let holder = async || leases.get("koordinator-manager").await.ok()?.spec?.holder_identity;
    let held_by_first = holder().await;
    ensure!(held_by_first.is_some() && !second.running.leads(), "one at a time");
    ensure!(first.stop().await == Ending::Stopped, "asked to stop");
    until("second leader", async || second.running.leads().then_some(())).await?;
    ensure!(holder().await != held_by_first, "the lease has another holder");
    // Whoever finds the lease in other hands ends.
    let stolen = json!({"spec": {"holderIdentity": "someone-else"}});
    leases.patch("koordinator-manager", &PatchParams::default(), &Patch::Merge(stolen)).await?;
    let ending = tokio::time::timeout(LIMIT, second.running.ended()).await.context("it does not end")?;
    ensure!(matches!(ending, Ending::LostLease(_)), "{ending:?}");
    stage.cluster.stop().await;
    Ok(())
}

/// The co-location story of the v1.0 release note, with services that sleep, wake and sleep again, and managers that come
/// and go meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn batch_pods_run_on_what_services_leave() -> Result<()> {
    let often = ("node.koordinator.sh/colocation-strategy", r#"{"metricReportIntervalSeconds":1}"#);
    let annotations = [(often.0.to_owned(), often.1.to_owned())].into();
    let stage = Stage::with(3, Shape { cores: 8, memory: 32 << 30, annotations, ..Shape::default() }).await?;
    stage.install().await?;
    let (scheduler, stop_scheduler) = stage.scheduler().await?;
    let certificates = [tempfile::tempdir()?, tempfile::tempdir()?];
    let first = stage.admitting_manager(certificates[0].path()).await?;
    until("first leader", async || first.running.leads().then_some(())).await?;
    // It stands by; a configuration leads to one address, so only one of them admits.
    let second = stage.manager(&[]).await?;

    stage.make(services()).await?;
    stage.make(profile()).await?;
    // 60 % of 8 CPUs, less what the system uses and a tenth of 6 CPUs.
    stage.until_lent(3900, 4100).await?;
    stage.until_admission().await?;
    let landed = stage.make(batch_pod("early")).await?;
    ensure!(is_batch(&landed), "{landed:?}");
    let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
    stage.until_pod("early", "runs", is_running).await?;

    // The services wake: what is lent shrinks to nothing, who is there stays, and nobody else comes.
    stage.services_use("90%").await?;
    stage.until_lent(0, 0).await?;
    stage.make(batch_pod("late")).await?;
    let waits = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut texts = conditions.filter_map(|condition| condition["message"].as_str());
        texts.any(|text| text.contains("3 Insufficient kubernetes.io/batch-cpu"))
    };
    stage.until_pod("late", "fits nowhere", waits).await?;
    stage.until_pod("early", "still runs", is_running).await?;

    // Without anyone to ask, pods come as they are written, and the other manager goes on with the nodes.
    ensure!(first.stop().await == Ending::Stopped, "asked to stop");
    let unasked = stage.make(batch_pod("unasked")).await.context("an absent webhook blocks nothing")?;
    ensure!(!is_batch(&unasked), "{unasked:?}");
    until("second leader", async || second.running.leads().then_some(())).await?;
    stage.services_use("10%").await?;
    stage.until_lent(3900, 4100).await?;
    stage.until_pod("late", "runs", is_running).await?;

    // A new one at another address is found, without being the leader.
    let third = stage.admitting_manager(certificates[1].path()).await?;
    stage.until_admission().await?;
    ensure!(!third.running.leads() && second.running.leads(), "one at a time");
    for manager in [third, second] {
        ensure!(manager.stop().await == Ending::Stopped, "asked to stop");
    }
    stop_scheduler.cancel();
    scheduler.ended().await;
    stage.cluster.stop().await;
    Ok(())
}

/// One pod on each of the three nodes, which asks for much and uses little.
fn services() -> Value {
    let container = json!({"name": "main", "image": "example.com/web:1",
        "resources": {"requests": {"cpu": "6", "memory": "16Gi"}}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {
                "sandbox.koord.sh/cpu-usage": "10%", "sandbox.koord.sh/memory-usage": "10%"}},
            "spec": {"priorityClassName": "koord-prod", "containers": [container]}}}})
}

fn profile() -> Value {
    json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
        "metadata": {"name": "batch"}, "spec": {"selector": {"matchLabels": {"app": "batch"}},
            "qosClass": "BE", "priorityClassName": "koord-batch", "schedulerName": "koord-scheduler"}})
}

/// A pod of 3 CPUs that the profile selects.
fn batch_pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "batch"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/batch:1",
            "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]}})
}

/// Whether the profile has been applied, all of it.
fn is_batch(pod: &DynamicObject) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let requests = &pod.data["spec"]["containers"][0]["resources"]["requests"];
    labels.and_then(|labels| labels.get("koordinator.sh/qosClass")).is_some_and(|qos| qos == "BE")
        && pod.data["spec"]["priority"] == 5000
        && pod.data["spec"]["schedulerName"] == "koord-scheduler"
        && requests["kubernetes.io/batch-cpu"] == "3k"
        && requests["cpu"].is_null()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_explains_nodes_and_pods() -> Result<()> {
    let stage = Stage::new(2).await?;
    let document = json!({"enable": true, "metricReportIntervalSeconds": 30, "cpuReclaimThresholdPercent": 70,
        "nodeConfigs": [{"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}},
            "memoryReclaimThresholdPercent": 80}]});
    stage.set_config(json!({"colocation-config": document.to_string()})).await?;
    let strategy = json!({"node.koordinator.sh/colocation-strategy": r#"{"batchCPUThresholdPercent":50}"#});
    stage.patch_node("node-0", json!({"labels": {"pool": "a"}, "annotations": strategy})).await?;
    let leader = stage.manager(&[]).await?;
    until("leader", async || leader.running.leads().then_some(())).await?;
    let follower = stage.manager(&[]).await?;
    let path = "/apis/v1/explain/node/node-0";
    for manager in [&leader, &follower] {
        let text = manager.until_says(path, "  =  batch ").await?;
        for want in [
            "node node-0: colocation is on\n",
            "cpuReclaimThresholdPercent=70 (cluster), memoryReclaimThresholdPercent=80 (node item 0 \"a\") leave",
            "batchCPUThresholdPercent=50 (annotation node.koordinator.sh/colocation-strategy)",
            "cpuCalculatePolicy=\"usage\" (default)",
        ] {
            ensure!(text.contains(want), "{want:?} in {text}");
        }
        let (status, data) = manager.ask(path, "application/json").await?;
        let data: Value = serde_json::from_str(&data)?;
        ensure!(status == 200 && data["batch"]["lines"][0]["term"] == "capacity", "{data}");
        let follows = data["write"].as_str().is_some_and(|text| text.contains("does not lead"));
        ensure!(follows != manager.running.leads(), "{data}");
        let (status, text) = manager.ask("/apis/v1/explain/node/node-9", "text/plain").await?;
        let want = r#"{"message":"cannot find node node-9; there are node-0, node-1"}"#;
        ensure!((status, text.as_str()) == (404, want), "{status} {text}");
    }
    // What was worked out is what stands on the node, as soon as it is written.
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let written = async || {
        let node = nodes.get("node-0").await.ok()?.status?.allocatable?;
        node.get("kubernetes.io/batch-cpu").map(|amount| amount.0.clone())
    };
    let amount = until("node with batch-cpu", written).await?;
    leader.until_says(path, &format!(" {amount}\n")).await?;

    let profile: ClusterColocationProfile = serde_json::from_value(json!({"metadata": {"name": "spark"},
        "spec": {"selector": {"matchLabels": {"app": "spark"}}, "qosClass": "BE", "labels": {"team": "data"}}}))?;
    Api::all(stage.client.clone()).create(&PostParams::default(), &profile).await?;
    // As admission left it, and on a node since.
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "job", "labels":
        {"app": "spark", "team": "data", "koordinator.sh/qosClass": "BE"}}, "spec": {"nodeName": "node-1",
        "containers": [{"name": "main", "image": "job:1"}]}}))?;
    Api::<Pod>::namespaced(stage.client.clone(), "default").create(&PostParams::default(), &pod).await?;
    for manager in [&follower, &leader] {
        let text = manager.until_says("/apis/v1/explain/pod/default/job", "  spark: applied\n").await?;
        ensure!(text.contains("    metadata.labels[koordinator.sh/qosClass] = \"BE\"\n"), "{text}");
        let (status, text) = manager.ask("/apis/v1/explain/pod/default/nobody", "text/plain").await?;
        ensure!(status == 404 && text.contains("cannot find pod default/nobody"), "{status} {text}");
    }
    ensure!(follower.stop().await == Ending::Stopped, "asked to stop");
    ensure!(leader.stop().await == Ending::Stopped, "asked to stop");
    stage.cluster.stop().await;
    Ok(())
}
