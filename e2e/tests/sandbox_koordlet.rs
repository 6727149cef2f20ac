//! A real koordlet on a node of the sandbox: what it measures is what pods do, and what it writes holds them back.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use koord_api::cpuset::CpuSet;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::keys::resource::BATCH_CPU;
use koord_manager::flags as manager_flags;
use koord_manager::run as manager_run;
use koord_sandbox::cluster::{Cluster, Options};
use koord_sandbox::nodes::{Koordlet, Pool, Shape};
use koordlet::flags::{self, Request};
use koordlet::run::{Running, start};
use koordlet::state::MetricPace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Far more than it takes; only a machine that is badly overloaded gets there.
const PATIENCE: Duration = Duration::from_secs(120);
const NODE: &str = "edge-0";
const NAMESPACE: &str = "koordinator-system";

/// A sandbox with one node of eight CPUs that waits for its koordlet.
struct Stage {
    cluster: Cluster,
    config: Config,
    client: Client,
    nodes: PathBuf,
}

impl Stage {
    async fn new(dir: &Path) -> Result<Stage> {
        let pace = r#"{"metricReportIntervalSeconds":1,"metricAggregateDurationSeconds":3}"#;
        let strategy = (koord_api::keys::node::annotation::COLOCATION_STRATEGY.to_owned(), pace.to_owned());
        let shape = Shape {
            cores: 8,
            memory: 16 << 30,
            koordlet: Koordlet::Real,
            annotations: [strategy].into(),
            ..Shape::default()
        };
        let pool = Pool { name: "edge".to_owned(), count: 1, shape };
        let nodes = dir.join("nodes");
        let options = Options { pools: vec![pool], hosts_dir: Some(nodes.clone()), ..Options::default() };
        let cluster = Cluster::start(options, &mut |_| {}).await?;
        let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config.clone())?;
        let post = PostParams::default();
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::<Namespace>::all(client.clone()).create(&post, &namespace).await?;
        let strategies =
            serde_json::from_value(json!({"metadata": {"name": "slo-controller-config"}, "data": {
                "colocation-config": r#"{"enable":true}"#,
                "resource-threshold-config": r#"{"clusterStrategy":{"enable":true}}"#,
            }}))?;
        Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE).create(&post, &strategies).await?;
        Ok(Stage { cluster, config, client, nodes })
    }

    fn dir(&self) -> PathBuf {
        self.nodes.join(NODE)
    }

    fn group(&self, controller: &str, group: &str) -> PathBuf {
        self.dir().join("sys/fs/cgroup").join(controller).join(group)
    }

    /// How many CPUs a group may use.
    fn width(&self, group: &str) -> Result<usize> {
        let text = std::fs::read_to_string(self.group("cpuset", group).join("cpuset.cpus"))?;
        Ok(text.trim().parse::<CpuSet>()?.len())
    }

    /// As `koord sandbox up` starts it, with flags only.
    async fn koordlet(&self) -> Result<Running> {
        let dir = self.dir();
        let dir = dir.display();
        let line = format!(
            "-addr=127.0.0.1:0 -cgroup-root-dir={dir}/sys/fs/cgroup -proc-root-dir={dir}/proc -sys-root-dir={dir}/sys \
             -sys-fs-root-dir={dir}/sys/fs -var-run-root-dir={dir}/run -run-root-dir={dir}/run \
             -var-lib-kubelet-dir={dir}/kubelet -kubelet-ca-file={dir}/kubelet/pki/ca.crt -tsdb-path={dir}/data/series \
             -audit-log-dir={dir}/data/audit -prediction-checkpoint-filepath={dir}/data -only-evict-by-api=true \
             -kubelet-sync-interval=1s -node-topology-sync-interval=1s -kube-api-qps=100 -kube-api-burst=200"
        );
        let variable = |name: &str| match name {
            "NODE_NAME" => Some(NODE.to_owned()),
            "agent_mode" => Some("hostMode".to_owned()),
            _ => None,
        };
        let Request::Run(mut options) = flags::parse(line.split_whitespace(), variable)? else {
            bail!("these flags do not start it")
        };
        options.reports.pace = MetricPace::hurried();
        Ok(start(*options, self.config.clone()).await?)
    }

    async fn manager(&self) -> Result<(manager_run::Running, CancellationToken)> {
        let words = [
            "--feature-gates=WebhookFramework=false",
            "--metrics-addr=127.0.0.1:0",
            "--health-probe-addr=0",
            "--enable-leader-election=false",
        ];
        let manager_flags::Request::Run(options) = manager_flags::parse(words, |_| None)? else {
            bail!("these flags do not start it")
        };
        let stop = CancellationToken::new();
        let setup = manager_run::Setup { options: *options, cluster: self.config.clone() };
        Ok((manager_run::start(setup, stop.clone()).await?, stop))
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A pod on the node that would use so much CPU; its group once it runs.
    async fn run(&self, name: &str, qos: &str, request: Value, usage: &str) -> Result<String> {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": qos},
                "annotations": {"sandbox.koord.sh/cpu-usage": usage}},
            "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "example.com/main:1", "resources": {"requests": request}}]},
        }))?;
        let made = self.pods().create(&PostParams::default(), &pod).await?;
        let uid = made.metadata.uid.context("a pod has a uid")?;
        let class = if qos == "BE" { "besteffort" } else { "burstable" };
        Ok(format!("kubepods/{class}/pod{uid}"))
    }

    async fn use_more(&self, name: &str, usage: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"sandbox.koord.sh/cpu-usage": usage}}});
        self.pods().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Thousandths of a core that the node's agent says a pod uses.
    async fn used(&self, name: &str) -> Result<Option<i64>> {
        let metric = Api::<NodeMetric>::all(self.client.clone()).get_opt(NODE).await?;
        let pods = metric.and_then(|metric| metric.status).map(|status| status.pods_metric);
        let pod = pods.into_iter().flatten().find(|pod| pod.name == name);
        Ok(pod.and_then(|pod| Some(pod.pod_usage.resources.get("cpu")?.milli_value())))
    }

    async fn until_used(&self, name: &str, range: std::ops::RangeInclusive<i64>) -> Result<()> {
        until(&format!("{name} uses {range:?}"), || async {
            Ok(self.used(name).await?.is_some_and(|used| range.contains(&used)))
        })
        .await
    }

    async fn batch_cpu(&self) -> Result<i64> {
        let node = Api::<Node>::all(self.client.clone()).get(NODE).await?;
        let amounts = node.status.and_then(|status| status.allocatable).unwrap_or_default();
        let Some(amount) = amounts.get(BATCH_CPU) else { return Ok(0) };
        Ok(amount.0.parse::<koord_api::quantity::Quantity>()?.value())
    }
}

async fn until<F: Future<Output = Result<bool>>>(what: &str, mut is_so: impl FnMut() -> F) -> Result<()> {
    let asked = tokio::time::Instant::now();
    while !is_so().await? {
        if asked.elapsed() > PATIENCE {
            bail!("{what}: not within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn stop(running: Running) -> Result<()> {
    let asked = CancellationToken::new();
    asked.cancel();
    ensure!(running.until(&asked).await, "it ended by itself");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_koordlet_watches_and_governs_a_node_of_the_sandbox() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let stage = Stage::new(dir.path()).await?;
    let node = Api::<Node>::all(stage.client.clone()).get(NODE).await?;
    let status = node.status.context("a node has a status")?;
    let port = status.daemon_endpoints.and_then(|it| it.kubelet_endpoint).map_or(0, |it| it.port);
    ensure!(port > 0 && port != 10_250, "its kubelet has a port of its own: {port}");
    let topologies = Api::<NodeResourceTopology>::all(stage.client.clone());
    let (manager, end_of_manager) = stage.manager().await?;
    let koordlet = stage.koordlet().await?;

    // Groups come with pods, and what these use is measured and reported.
    let web = stage.run("web", "LS", json!({"cpu": "4", "memory": "4Gi"}), "10%").await?;
    let batch = stage.run("batch", "BE", json!({}), "6").await?;
    for group in [&web, &batch] {
        until("groups come", || async { Ok(stage.group("cpu", group).join("cpu.shares").exists()) }).await?;
    }
    stage.until_used("web", 300..=500).await?;
    until("the topology is told", || async { Ok(topologies.get_opt(NODE).await?.is_some()) }).await?;

    // 65 % of 8 CPUs, less what the service and the system use: 5 CPUs, of the 6 that the batch pod would take.
    stage.until_used("batch", 4_200..=5_300).await?;
    until("it has five CPUs", || async { Ok(stage.width("kubepods/besteffort")? == 5) }).await?;
    until("what is idle is lent", || async { Ok(stage.batch_cpu().await? > 1_000) }).await?;

    // The service wakes: the batch pod gives way, in its group and in what it uses.
    stage.use_more("web", "90%").await?;
    until("its CPUs are taken back", || async { Ok(stage.width(&batch)? == 2) }).await?;
    stage.until_used("batch", 1_500..=2_200).await?;
    stage.until_used("web", 3_400..=3_800).await?;

    // A koordlet that ends leaves everything as it is, and the next one goes on from there.
    stop(koordlet).await?;
    ensure!(stage.width(&batch)? == 2);
    let koordlet = stage.koordlet().await?;
    stage.use_more("web", "10%").await?;
    stage.until_used("batch", 4_200..=5_300).await?;

    // A pod that is gone has no group and is not reported.
    stage.pods().delete("batch", &DeleteParams::default()).await?;
    for controller in ["cpu", "cpuset", "cpuacct", "memory"] {
        until("the group goes", || async { Ok(!stage.group(controller, &batch).exists()) }).await?;
    }
    until("it is not reported", || async { Ok(stage.used("batch").await?.is_none()) }).await?;
    stage.until_used("web", 300..=500).await?;

    stop(koordlet).await?;
    end_of_manager.cancel();
    manager.ended().await;
    let nodes = stage.nodes.clone();
    stage.cluster.stop().await;
    ensure!(!nodes.exists(), "nothing is left");
    Ok(())
}

/// Nobody gets at the kubelet without showing who he is, and only to see.
#[tokio::test]
async fn the_kubelet_answers_those_of_the_cluster() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let stage = Stage::new(dir.path()).await?;
    stage.run("web", "LS", json!({"cpu": "1"}), "10%").await?;
    let node = Api::<Node>::all(stage.client.clone()).get(NODE).await?;
    let status = node.status.context("a node has a status")?;
    let address = status.addresses.iter().flatten().find(|it| it.type_ == "InternalIP").map(|it| &it.address);
    ensure!(address.is_some_and(|address| address == "127.0.0.1"), "{address:?}");
    let port = status.daemon_endpoints.and_then(|it| it.kubelet_endpoint).map_or(0, |it| it.port);
    let mut known = stage.config.clone();
    known.cluster_url = format!("https://127.0.0.1:{port}").parse()?;
    let mut stranger = known.clone();
    stranger.auth_info = kube::config::AuthInfo::default();
    let get = async |config: &Config, path: &str| -> Result<(u16, Value)> {
        let request = http::Request::get(path).body(kube::client::Body::empty())?;
        let answer = Client::try_from(config.clone())?.send(request).await?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await?;
        Ok((code, serde_json::from_slice(&body).unwrap_or_default()))
    };
    let (code, pods) = get(&known, "/pods/").await?;
    ensure!(
        code == 200 && pods["items"][0]["metadata"]["name"] == "web" && pods["kind"] == "PodList",
        "{pods}"
    );
    ensure!(pods["items"][0]["status"]["qosClass"] == "Burstable", "{pods}");
    let (_, config) = get(&known, "/configz").await?;
    ensure!(config["kubeletconfig"]["cgroupDriver"] == "cgroupfs", "{config}");
    ensure!(get(&known, "/exec/").await?.0 == 404);
    ensure!(get(&stranger, "/pods/").await?.0 == 401);
    stage.cluster.stop().await;
    Ok(())
}
