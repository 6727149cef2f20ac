//! koordlet's eyes and mouth on a real API server: the Node, its NodeSLO and its pods are seen, and what it reports is
//! taken by the server as the schema has it. The kubelet is a small TLS server that answers as one does.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::crd::node_slo::NodeSLO;
use koord_api::keys::node_topology::annotation::{CPU_SHARED_POOLS, RESERVATION};
use koord_kit::client::{self, ClientConnection, ClientOptions};
use koord_kit::events::{Flavour, recorder};
use koord_kit::http::{Router, TlsFiles, serve, text};
use koord_kit::metrics::KitMetrics;
use koord_linux::cgroup::Driver;
use koord_linux::root::Root;
use koord_testkit::{ControlPlane, shared};
use koordlet::predict::{Predictor, Settings};
use koordlet::report::node_metric::write::Writer;
use koordlet::report::node_metric::{Sources, measure};
use koordlet::report::topology::run::{Options, Remote, Reporter};
use koordlet::state::kubelet::{Kubelet, KubeletOptions};
use koordlet::state::objects::Watcher;
use koordlet::state::pods::{PodBook, PodSync};
use koordlet::state::{MetricPace, Snapshot, State};
use koordlet::store::{Batch, Kind, Limits, Store};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Far more than it takes; only a machine that is badly overloaded gets there.
const LIMIT: Duration = Duration::from_secs(120);
const NODE: &str = "watched-node";

/// What the kubelet tells of pods.
type Pods = Arc<Mutex<Value>>;

async fn kubelet(pods: Pods, stop: CancellationToken) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let tls = TlsFiles::in_memory(&signed.cert.pem(), &signed.signing_key.serialize_pem())?;
    let list = move |_| {
        let body =
            json!({ "kind": "PodList", "items": *pods.lock().expect("nobody panics while holding it") })
                .to_string();
        async move { text(StatusCode::OK, body) }
    };
    let config = |_| async {
        text(
            StatusCode::OK,
            r#"{"kubeletconfig":{"cpuManagerPolicy":"none","topologyManagerPolicy":"none"}}"#,
        )
    };
    let router = Router::bare().page("/pods/", list).page("/configz", config);
    tokio::spawn(serve(listener, router, Some(tls), stop));
    Ok(port)
}

/// A machine with four CPUs and a GiB, in a folder.
fn machine(folder: &Path) -> Result<Root> {
    let root = Root::host(folder);
    for (path, text) in [
        ("devices/system/cpu/online", "0-3\n"),
        ("devices/system/node/node0/cpulist", "0-3\n"),
        ("bus/node/devices/node0/meminfo", "Node 0 MemTotal: 1048576 kB\n"),
    ] {
        let path = root.sys.join(path);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(path, text)?;
    }
    Ok(root)
}

async fn objects(client: &kube::Client, port: u16) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({ "metadata": { "name": NODE } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
        "capacity": { "cpu": "4", "memory": "1Gi" },
        "allocatable": { "cpu": "4", "memory": "1Gi" },
    } });
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(status)).await?;
    let metrics: Api<NodeMetric> = Api::all(client.clone());
    let metric = json!({ "apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric",
        "metadata": { "name": NODE },
        "spec": { "metricCollectPolicy": { "aggregateDurationSeconds": 90, "reportIntervalSeconds": 40 } } });
    metrics.create(&PostParams::default(), &serde_json::from_value(metric)?).await?;
    let slos: Api<NodeSLO> = Api::all(client.clone());
    let slo = json!({ "apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO",
        "metadata": { "name": NODE }, "spec": { "resourceUsedThresholdWithBE": { "enable": true } } });
    slos.create(&PostParams::default(), &serde_json::from_value(slo)?).await?;
    Ok(())
}

async fn until(state: &State, what: &str, is_wanted: impl Fn(&Snapshot) -> bool) -> Result<Arc<Snapshot>> {
    tokio::time::timeout(LIMIT, state.wait_for(is_wanted)).await.with_context(|| what.to_owned())
}

fn with_crds(cluster: &ControlPlane) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    cluster.install_crds(&folder).map_err(|error| anyhow::anyhow!("{error:?}"))
}

/// Samples of the last minute for node and pod.
fn measured(now_ms: i64, uid: &Arc<str>) -> Result<Store> {
    let mut store = Store::new(&Limits::default());
    for (key, value) in [
        (Kind::NodeCpuUsage.of([]), 1.25),
        (Kind::NodeMemoryUsage.of([]), 536_870_912.0),
        (Kind::PodCpuUsage.of([uid]), 0.5),
        (Kind::PodMemoryUsage.of([uid]), 1_048_576.0),
    ] {
        let id = store.find(key);
        let mut batch = Batch::default();
        batch.add(id, now_ms, value);
        store.commit(now_ms, &mut batch)?;
    }
    Ok(store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_seen_and_told_about() -> Result<()> {
    let Some(cluster) = tokio::task::block_in_place(shared) else { return Ok(()) };
    tokio::task::block_in_place(|| with_crds(cluster))?;
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let connection = ClientConnection { kubeconfig: kubeconfig.clone(), qps: -1.0, ..Default::default() };
    let config = client::config(&kubeconfig).await?;
    let client = client::connect(&ClientOptions::new("koordlet", connection)).await?;
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let pods: Pods = Arc::new(Mutex::new(json!([{
        "metadata": { "name": "web", "namespace": "shop", "uid": "u-1", "labels": { "koordinator.sh/qosClass": "LS" } },
        "spec": { "containers": [] },
        "status": { "phase": "Running", "qosClass": "Burstable" },
    }])));
    objects(&client, kubelet(pods.clone(), stop.clone()).await?).await?;

    let state = State::default();
    let watcher =
        Watcher { client: client.clone(), node: NODE.to_owned(), metrics: KitMetrics::unregistered() };
    let (recorder, events) = recorder(client.clone(), "koordlet", Flavour::Core, &KitMetrics::unregistered());
    tokio::spawn(events.run(stop.clone()));
    tokio::spawn(watcher.clone().node(state.clone(), recorder, stop.clone()));
    tokio::spawn(watcher.clone().slo(state.clone(), &[], stop.clone()));
    tokio::spawn(watcher.clone().metric(state.clone(), MetricPace::default(), stop.clone()));
    let kubelet = Kubelet::new(state.clone(), config, KubeletOptions::default(), Arc::new(|_| {}));
    let sync = PodSync {
        state: state.clone(),
        kubelet: kubelet.clone(),
        book: PodBook::new(Driver::Systemd),
        interval: Duration::from_millis(200),
        news: Arc::new(Notify::new()),
        recorder: None,
    };
    tokio::spawn(sync.run(stop.clone()));
    let snapshot =
        until(&state, "objects and pods", |s| s.synced.pods && s.synced.metric && s.slo.is_some()).await?;
    assert_eq!(snapshot.slo.as_ref().map(|slo| slo.threshold.enable), Some(Some(true)));
    let policy = &snapshot.metric_policy;
    assert_eq!((policy.aggregate_seconds, policy.report_interval_seconds), (90, 40));
    assert_eq!(snapshot.pods.len(), 1);

    report_use(&client, &state).await?;
    let folder = tempfile::tempdir()?;
    let (objects, worker) = watcher.topology();
    tokio::spawn(worker.run(stop.clone()));
    let options = Options {
        interval: Duration::from_millis(200),
        reports_huge_pages: false,
        queries_kubelet: true,
        root: machine(folder.path())?,
    };
    let remote = Some(Remote { client: client.clone(), objects });
    tokio::spawn(Reporter::new(state.clone(), kubelet, remote, options).run(stop.clone()));
    follow_topology(&client, &state, &pods).await
}

/// The status is taken as it is, also after somebody else changed the object.
async fn report_use(client: &kube::Client, state: &State) -> Result<()> {
    let metrics: Api<NodeMetric> = Api::all(client.clone());
    let mut writer = Writer::new(client.clone(), NODE, MetricPace::default());
    let now_ms = 1_714_550_400_000;
    let predictor = Predictor::new(Settings::default());
    let snapshot = state.load();
    let store = measured(now_ms, &"u-1".into())?;
    let sources = Sources {
        store: &store,
        snapshot: &snapshot,
        predictor: &predictor,
        gpus: &[],
        has_page_cache: false,
        has_cold_pages: false,
    };
    let report = measure(sources, now_ms);
    assert!(writer.write(&report.status).await?);
    let spec = json!({ "spec": { "metricCollectPolicy": { "reportIntervalSeconds": 50 } } });
    metrics.patch(NODE, &PatchParams::default(), &Patch::Merge(spec)).await?;
    let mut second = report.status.clone();
    second.pods_metric[0].name = "renamed".to_owned();
    // The writer still holds the version before the change, and the limit leaves no room for a second attempt so soon.
    let error = writer.write(&second).await.expect_err("the limit").to_string();
    assert_eq!(error, "updating status is limited qps=0.1 burst=2");
    let stored = metrics.get(NODE).await?;
    assert_eq!(stored.status, Some(report.status), "taken whole, and nothing is lost on the way");
    assert!(Writer::new(client.clone(), NODE, MetricPace::default()).write(&second).await?);
    assert_eq!(metrics.get(NODE).await?.status, Some(second));
    let policy = stored.spec.and_then(|spec| spec.metric_collect_policy);
    assert_eq!(policy.and_then(|policy| policy.aggregate_duration_seconds), Some(90), "the spec is not ours");
    until(state, "the new interval", |s| s.metric_policy.report_interval_seconds == 50).await?;
    Ok(())
}

/// The object follows the node's annotation and the pods, and is not written without need.
async fn follow_topology(client: &kube::Client, state: &State, pods: &Pods) -> Result<()> {
    let api: Api<NodeResourceTopology> = Api::all(client.clone());
    let pool = |wanted: &'static str| {
        let api = api.clone();
        async move {
            loop {
                let object = api.get_opt(NODE).await?;
                let annotations = object.as_ref().and_then(|object| object.metadata.annotations.as_ref());
                if annotations.and_then(|a| a.get(CPU_SHARED_POOLS)).is_some_and(|text| text.contains(wanted))
                {
                    return Ok::<_, kube::Error>(object);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    let first =
        tokio::time::timeout(LIMIT, pool(r#""cpuset":"0-3""#)).await.context("the first report")??;
    let first = first.context("an object")?;
    assert_eq!(first.zones[0].resources[0].capacity.to_string(), "4");
    assert_eq!(first.metadata.owner_references.map(|owners| owners.len()), Some(1));
    let nodes: Api<Node> = Api::all(client.clone());
    let reserve = json!({ "metadata": { "annotations": { RESERVATION: r#"{"reservedCPUs":"0"}"# } } });
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(reserve)).await?;
    tokio::time::timeout(LIMIT, pool(r#""cpuset":"1-3""#)).await.context("the reservation")??;
    until(state, "the layout", |s| s.layout.as_ref().is_some_and(|l| l.reserved.to_string() == "0")).await?;
    pods.lock().expect("nobody panics while holding it")[0]["metadata"]["labels"] =
        json!({ "koordinator.sh/qosClass": "LSR" });
    pods.lock().expect("nobody panics while holding it")[0]["metadata"]["annotations"] =
        json!({ "scheduling.koordinator.sh/resource-status": r#"{"cpuset":"3"}"# });
    let last = tokio::time::timeout(LIMIT, pool(r#""cpuset":"1-2""#)).await.context("the pod")??;
    let version = last.context("an object")?.metadata.resource_version;
    let editions = state.load().editions;
    until(state, "more rounds", |s| s.editions.pods > editions.pods + 5).await?;
    assert_eq!(
        api.get(NODE).await?.metadata.resource_version,
        version,
        "nothing changed, nothing was written"
    );
    Ok(())
}
