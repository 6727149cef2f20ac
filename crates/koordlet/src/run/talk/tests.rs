//! What is asked of whom, by flags and gates, and what is shown of the answers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use koord_kit::events::{Flavour, recorder};
use koord_kit::metrics::{Format, KitMetrics};
use koord_linux::cgroup::{Cgroups, Driver, Version};
use koord_linux::root::Root;
use koord_testkit::node_tree::{Cgroup, NodeTree};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::audit::Auditor;
use crate::fake::{FakeApi, Seen};
use crate::flags;
use crate::records::{Recorders, Records};
use crate::state::fake_kubelet::{FakeKubelet, TOKEN};
use crate::state::{NodeState, Snapshot, Synced};

/// koordlet-observe 1.4, 6.
#[test]
fn devices_follow_gates_and_flags() {
    for (line, is_accelerators_on, is_rdma_on) in [
        ("", false, false),
        ("--feature-gates=Accelerators=true", true, false),
        ("--feature-gates=RDMADevices=true", false, true),
        ("--feature-gates=Accelerators=true,RDMADevices=true", true, true),
    ] {
        let found = device_options(&flags::of_line(line));
        let want = devices::Options { is_accelerators_on, is_rdma_on, ..devices::Options::default() };
        assert_eq!(found, want, "{line}");
        assert_eq!(found.is_any_on(), is_accelerators_on || is_rdma_on, "{line}");
    }
    let line = "--xpu-device-infos-dir=/x --xpu-enforce-collect-from-device-infos --collect-res-used-interval=2s \
                --node-topology-sync-interval=5s --gpu-ignored-xids=79";
    let want = devices::Options {
        is_accelerators_on: false,
        is_rdma_on: false,
        xpu_dir: PathBuf::from("/x"),
        is_xpu_only: true,
        measure_interval: Some(Duration::from_secs(2)),
        scan_interval: Duration::from_secs(5),
        ignored_xids: BTreeSet::from([79]),
    };
    assert_eq!(device_options(&flags::of_line(line)), want);
    let never = device_options(&flags::of_line("--node-topology-sync-interval=0"));
    assert_eq!(never.scan_interval, LAYOUT_EVERY, "decisions need what is there all the same");
    // koordlet-observe 1.3
    for interval in ["0", "999ms"] {
        let unmeasured = device_options(&flags::of_line(&format!("--collect-res-used-interval={interval}")));
        assert_eq!(unmeasured.measure_interval, None, "{interval}");
    }
}

/// A cluster with nothing in it: lists are empty, watches are refused, what is written is taken.
fn nothing(seen: &Seen) -> (u16, Value) {
    match seen.line.split_once(' ') {
        Some(("GET", path)) if path.contains("watch=") => (500, json!({})),
        Some(("GET", _)) => (200, json!({ "metadata": { "resourceVersion": "5" }, "items": [] })),
        _ => (201, seen.body.clone()),
    }
}

fn base(dir: &Path, line: &str, client: kube::Client) -> Base {
    NodeTree::make(dir, Cgroup::V1, 1).unwrap();
    let options = Options { root: Root::host(dir), ..flags::of_line(line) };
    let metrics = KoordletMetrics::new("n1");
    metrics.node_seen();
    let kit = KitMetrics::new(metrics.internal());
    let cgroups = Arc::new(Cgroups::new(&options.root, Version::V1, Driver::Systemd));
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let recorder = || recorder(client.clone(), "koordlet", Flavour::Core, &kit).0;
    let recorders = Recorders { strategies: recorder(), hooks: recorder() };
    let records = Records::only(Auditor::off());
    Base { options, client, kit, recorders, metrics, records, cgroups, tasks, stop }
}

/// The Node is known, and that it has no pods.
fn state() -> State {
    let node = NodeState { name: "n1".to_owned(), uid: "u1".to_owned(), ..NodeState::default() };
    let synced = Synced { pods: true, ..Synced::default() };
    State::new(Snapshot { node: Some(Arc::new(node)), synced, ..Snapshot::default() })
}

#[tokio::test]
async fn gates_decide_what_is_watched_and_written() {
    const TOPOLOGIES: &str = "noderesourcetopologies";
    for (gate, is_reported, waits_for_claims) in [
        ("NodeTopologyReport=true", true, false),
        // koordlet-observe#13.6.F42
        ("NodeTopologyReport=false", false, false),
        ("NodeTopologyReport=false,BlkIOReconcile=true", false, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (api, state) = (FakeApi::default(), state());
        let line = format!(
            "--feature-gates={gate} --node-topology-sync-interval=5ms \
             --disable-query-kubelet-config --enable-node-metric-report=false --kubelet-sync-interval=0"
        );
        let base = base(dir.path(), &line, api.client(nothing));
        let cluster = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        start(&base, &state, &cluster, Asker::of_nobody(), None);
        assert_eq!(
            state.load().synced.claims,
            !waits_for_claims,
            "{gate}: nobody waits for what nobody asks for"
        );
        // The node itself hears in any case.
        let layout = state.wait_for(|snapshot| snapshot.layout.is_some());
        tokio::time::timeout(Duration::from_secs(60), layout).await.unwrap();
        let mut lines = api.lines();
        let is_written = |lines: &[String]| {
            lines.iter().any(|line| line.starts_with("POST ") && line.contains(TOPOLOGIES))
        };
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while is_reported && !is_written(&lines) && std::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
            lines.extend(api.lines());
        }
        // Some rounds later still.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        lines.extend(api.lines());
        assert_eq!(is_written(&lines), is_reported, "{gate}: {lines:?}");
        assert_eq!(lines.iter().any(|line| line.contains(TOPOLOGIES)), is_reported, "{gate}: {lines:?}");
        base.stop.cancel();
        base.tasks.close();
        base.tasks.wait().await;
    }
}

/// koordlet-observe#13.9.I2
#[tokio::test]
async fn answers_of_kubelet_are_timed() {
    let fake = FakeKubelet::start(false).await;
    let metrics = KoordletMetrics::new("n1");
    let observe = observer(&metrics);
    let (_, state, _) = fake.client(TOKEN, KubeletOptions::default());
    let mut cluster = kube::Config::new("https://10.0.0.1:6443".parse().unwrap());
    cluster.auth_info.token = Some(TOKEN.to_owned().into());
    let patient = KubeletOptions { timeout: Duration::from_secs(60), ..KubeletOptions::default() };
    let kubelet = Kubelet::new(state, cluster, patient, observe.clone());
    const NAME: &str = "koordlet_kubelet_request_duration_seconds";
    let row = |page: &str, row: &str| page.lines().any(|line| line == format!("{NAME}_{row}"));
    let labels = "verb=\"get\",path=\"/pods/\",code=\"200\"";
    assert!(kubelet.pods().await.is_ok());
    let page = metrics.internal().render(Format::Prometheus);
    assert!(row(&page, &format!("count{{{labels}}} 1")), "{page}");
    // One that takes half a second, on a page of its own.
    let metrics = KoordletMetrics::new("n1");
    observer(&metrics)(Call { path: "/pods/", code: 200, seconds: 0.5 });
    let page = metrics.internal().render(Format::Prometheus);
    for (bound, count) in
        [("0.001", 0), ("0.004", 0), ("0.016", 0), ("0.064", 0), ("0.256", 0), ("1.024", 1), ("4.096", 1)]
    {
        assert!(row(&page, &format!("bucket{{le=\"{bound}\",{labels}}} {count}")), "{bound}: {page}");
    }
}

#[test]
fn what_was_predicted_is_shown() {
    let metrics = KoordletMetrics::new("n1");
    metrics.node_seen();
    let amount = |cpu_milli, memory| Ok(Amount { cpu_milli, memory });
    let peak = Outcome { by_pod: amount(250, 1), by_class: amount(3000, 2), total: amount(3000, 2) };
    let mut prediction = Prediction { peak, ..Prediction::default() };
    prediction.reclaimable =
        Outcome { by_pod: amount(900, 1024), by_class: amount(200, 2048), total: amount(200, 1024) };
    show(&metrics, &prediction);
    let rows = |page: &koord_kit::metrics::Metrics| -> Vec<String> {
        let page = page.render(Format::Prometheus);
        let rows = page.lines().filter_map(|line| line.strip_prefix("koordlet_node_"));
        let mut rows: Vec<String> = rows.map(|row| row.replace("node=\"n1\",", "")).collect();
        rows.sort_unstable();
        rows
    };
    let internal = |name: &str, predictor: &str, cpu: &str, memory: &str| {
        let row = |resource: &str, unit: &str, value: &str| {
            format!(
                "predicted_resource_{name}{{predictor=\"{predictor}\",resource=\"{resource}\",unit=\"{unit}\"}} {value}"
            )
        };
        [row("cpu", "core", cpu), row("memory", "byte", memory)]
    };
    let mut want: Vec<String> = [
        internal("peak", "minPredictor", "3.0", "2.0"),
        internal("peak", "podReclaimablePredictor", "0.25", "1.0"),
        internal("peak", "priorityReclaimablePredictor", "3.0", "2.0"),
        internal("reclaimable", "minPredictor", "0.2", "1024.0"),
        internal("reclaimable", "podReclaimablePredictor", "0.9", "1024.0"),
        internal("reclaimable", "priorityReclaimablePredictor", "0.2", "2048.0"),
    ]
    .concat();
    want.sort_unstable();
    assert_eq!(rows(metrics.internal()), want);
    let external = |cpu: &str, memory: &str, status: &str| {
        [
            format!(
                "priority_resource_reclaimable{{priority=\"koord-prod\",resource=\"cpu\",unit=\"core\"}} {cpu}"
            ),
            format!(
                "priority_resource_reclaimable{{priority=\"koord-prod\",resource=\"memory\",unit=\"byte\"}} {memory}"
            ),
            format!("resource_priority_reclaimable_status{{priority=\"koord-prod\"}} {status}"),
        ]
    };
    assert_eq!(rows(metrics.external()), external("0.2", "1024.0", "0.0"));
    // A prediction that failed: nothing, and the status says so.
    show(&metrics, &Prediction::default());
    assert_eq!(rows(metrics.external()), external("0.0", "0.0", "1.0"));
}
