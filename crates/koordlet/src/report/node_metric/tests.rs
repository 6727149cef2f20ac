//! The worked examples of NodeMetric reports.

use koord_api::crd::node_metric::{AggregatePolicy, MetricCollectPolicy};
use koord_api::crd::node_slo::{HostApplicationSpec, NodeSloSpec};
use koord_api::slo::Effective;
use koord_linux::cgroup::Driver;
use serde_json::{Value, json};

use super::*;
use crate::decide::sketch::{PodSketch, pod};
use crate::predict::Settings;
use crate::state::MetricPace;
use crate::store::{Batch, Key, Limits, Property};

const NOW: i64 = 1_714_550_400_000;
const SECOND: i64 = 1000;

/// A store, a snapshot and what else a report needs.
struct Scene {
    /// When, which series, how much.
    samples: Vec<(i64, Key, f64)>,
    snapshot: Snapshot,
    predictor: Predictor,
    gpus: Vec<Gpu>,
    has_page_cache: bool,
    has_cold_pages: bool,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            samples: Vec::new(),
            snapshot: Snapshot::default(),
            predictor: Predictor::new(Settings::default()),
            gpus: Vec::new(),
            has_page_cache: false,
            has_cold_pages: false,
        }
    }

    /// The same value every ten seconds, the last one now.
    fn over(mut self, seconds: i64, kind: Kind, values: &[(Property, &str)], value: f64) -> Scene {
        let key = kind.key(values).unwrap();
        let times = (0..=seconds / 10).map(|back| NOW - back * 10 * SECOND);
        self.samples.extend(times.map(|at_ms| (at_ms, key.clone(), value)));
        self
    }

    fn store(&self) -> Store {
        let mut samples = self.samples.clone();
        samples.sort_by_key(|(at_ms, _, _)| *at_ms);
        let mut store = Store::new(&Limits::default());
        for (at_ms, key, value) in samples {
            let mut batch = Batch::default();
            batch.add(store.find(key), at_ms, value);
            store.commit(at_ms, &mut batch).unwrap();
        }
        store
    }

    fn sample(self, kind: Kind, values: &[(Property, &str)], value: f64) -> Scene {
        self.over(0, kind, values, value)
    }

    fn pods(mut self, pods: &[PodSketch]) -> Scene {
        let states = pods.iter().map(|pod| Arc::new(PodState::read(pod.object(), Driver::Systemd)));
        self.snapshot.pods = states.collect();
        self
    }

    fn measured(mut self, pods: &[PodSketch]) -> Scene {
        for pod in pods {
            let uid = pod.object().metadata.uid.clone().unwrap();
            let uid = [(Property::PodUid, uid.as_str())];
            self = self.sample(Kind::PodCpuUsage, &uid, 0.5).sample(Kind::PodMemoryUsage, &uid, 1024.0);
        }
        self.pods(pods)
    }

    fn policy(mut self, policy: MetricCollectPolicy) -> Scene {
        self.snapshot.metric_policy = Arc::new(MetricPolicy::new(Some(&policy), &MetricPace::default()));
        self
    }

    fn report(&self) -> Report {
        let store = self.store();
        let sources = Sources {
            store: &store,
            snapshot: &self.snapshot,
            predictor: &self.predictor,
            gpus: &self.gpus,
            has_page_cache: self.has_page_cache,
            has_cold_pages: self.has_cold_pages,
        };
        measure(sources, NOW)
    }

    fn json(&self) -> Value {
        serde_json::to_value(self.report().status).unwrap()
    }
}

fn node(scene: Scene, cores: f64, bytes: f64) -> Scene {
    scene.sample(Kind::NodeCpuUsage, &[], cores).sample(Kind::NodeMemoryUsage, &[], bytes)
}

#[test]
fn policies() {
    let seconds = |aggregate: i64, report: i64| {
        let policy = MetricCollectPolicy {
            aggregate_duration_seconds: Some(aggregate),
            report_interval_seconds: Some(report),
            ..MetricCollectPolicy::default()
        };
        let policy = MetricPolicy::new(Some(&policy), &MetricPace::default());
        (policy.aggregate_seconds, policy.report_interval_seconds)
    };
    // koordlet-observe#13.5.E1 koordlet-observe#13.5.E2 koordlet-observe#13.5.E16
    assert_eq!(seconds(30, 10), (60, 30));
    assert_eq!(seconds(0, 0), (60, 30));
    assert_eq!(seconds(90, 40), (90, 40));
    // koordlet-observe#13.5.E15
    let windows = |durations: &[&str]| {
        let durations = durations.iter().map(|text| text.parse().unwrap()).collect();
        let node_aggregate_policy = Some(AggregatePolicy { durations });
        let policy = MetricCollectPolicy { node_aggregate_policy, ..MetricCollectPolicy::default() };
        MetricPolicy::new(Some(&policy), &MetricPace::default())
            .windows
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(windows(&["1m"]), ["1m0s"]);
    assert_eq!(windows(&[]), ["5m0s", "10m0s", "30m0s"]);
    assert_eq!(MetricPolicy::new(None, &MetricPace::default()).aggregate_seconds, 300);
}

#[test]
fn numbers() {
    // koordlet-observe#13.5.E5 koordlet-observe#13.5.E14 koordlet-observe#13.5.E30
    for (cores, want) in
        [(1.2345, "1234m"), (0.0009, "0"), (1.9999, "1999m"), (2.0, "2"), (1.001, "1"), (1.005, "1004m")]
    {
        assert_eq!(usage(cores, 0.0).resources[CPU].to_string(), want, "{cores}");
    }
    for (bytes, want) in [
        (1536.0, "1536"),
        (1_073_742_848.0, "1048577Ki"),
        (1_099_511_627_776.0, "1Ti"),
        (536_870_912.0, "512Mi"),
        (1_261_646_644.9, "1261646644"),
    ] {
        assert_eq!(usage(0.0, bytes).resources[MEMORY].to_string(), want, "{bytes}");
    }
}

/// Which of the windows have values, for a node that was measured for so long.
fn warm(seconds: i64, cpu: Kind, memory: Kind) -> Vec<bool> {
    let scene = Scene::new().over(seconds, cpu, &[], 1.0).over(seconds, memory, &[], 1.0);
    let info = scene.report().status.node_metric.unwrap();
    let blocks = match cpu {
        Kind::SysCpuUsage => info.aggregated_system_usages,
        _ => info.aggregated_node_usages,
    };
    blocks
        .iter()
        .map(|block| {
            let filled = block.usage.values().filter(|map| !map.resources.is_empty()).count();
            assert_eq!((block.usage.len(), filled % 5), (5, 0), "all five or none");
            filled == 5
        })
        .collect()
}

#[test]
fn a_window_is_reported_once_half_of_it_was_measured() {
    let (cpu, memory) = (Kind::NodeCpuUsage, Kind::NodeMemoryUsage);
    // koordlet-observe#13.5.E3
    assert_eq!(warm(150, cpu, memory), [true, false, false]);
    // koordlet-observe#13.5.E4
    assert_eq!(warm(300, cpu, memory), [true, true, false]);
    assert_eq!(warm(900, cpu, memory), [true, true, true]);
    // koordlet-observe#13.5.E12
    assert_eq!(warm(150, Kind::SysCpuUsage, Kind::SysMemoryUsage), [true, false, false]);
}

#[test]
fn memory_by_policy() {
    let scene = |policy: Value, has_cold_pages: bool| {
        let policy: MetricCollectPolicy =
            serde_json::from_value(json!({ "nodeMemoryCollectPolicy": policy })).unwrap();
        let mut scene = node(Scene::new(), 1.0, 1024.0)
            .sample(Kind::NodeMemoryWithHotPageUsage, &[], 2048.0)
            .measured(&[pod("a")])
            .policy(policy);
        scene.has_cold_pages = has_cold_pages;
        let status = scene.report().status;
        let memory = status.node_metric.unwrap().node_usage.resources.get(MEMORY).map(ToString::to_string);
        (memory, status.pods_metric.len())
    };
    let without = (Some("1Ki".to_owned()), 1);
    // koordlet-observe#13.5.E6
    assert_eq!(scene(json!("usageWithHotPageCache"), false), without);
    assert_eq!(scene(json!("usageWithHotPageCache"), true), (Some("2Ki".to_owned()), 0));
    assert_eq!(scene(json!("usageWithPageCache"), false), (None, 0));
    // koordlet-observe#13.5.E18
    assert_eq!(scene(json!("bogus"), false), without);
    assert_eq!(scene(Value::Null, false), without);
    // koordlet-observe#13.5.E17: without memory there is no CPU either.
    let policy = serde_json::from_value(json!({ "nodeMemoryCollectPolicy": "usageWithPageCache" })).unwrap();
    let told = node(Scene::new(), 1.0, 1024.0).measured(&[pod("a")]).policy(policy).json();
    assert_eq!(told["nodeMetric"]["nodeUsage"], json!({}));
    assert!(told.get("podsMetric").is_none());
}

/// Nothing else would tell an operator why the use of the node is empty.
#[test]
fn a_policy_that_needs_what_is_not_measured_is_told() {
    let fault = |policy: &str, has_page_cache: bool, has_cold_pages: bool| {
        let policy = serde_json::from_value(json!({ "nodeMemoryCollectPolicy": policy })).unwrap();
        let scene = Scene { has_page_cache, has_cold_pages, ..Scene::new().policy(policy) };
        scene.report().memory_fault
    };
    for (policy, has_page_cache, has_cold_pages, want) in [
        ("usageWithPageCache", false, true, Some("usageWithPageCache needs --enable-pagecache-collector;")),
        ("usageWithPageCache", true, false, None),
        (
            "usageWithHotPageCache",
            true,
            false,
            Some("usageWithHotPageCache needs the gate ColdPageCollector "),
        ),
        ("usageWithHotPageCache", false, true, None),
        ("usageWithoutPageCache", false, false, None),
        ("bogus", false, false, None),
    ] {
        let told = fault(policy, has_page_cache, has_cold_pages);
        let is_meant = match (told, want) {
            (Some(told), Some(want)) => told.starts_with(want),
            (told, want) => told == want,
        };
        assert!(is_meant, "{policy}: {told:?}");
    }
}

#[test]
fn pods_in_order() {
    let named = |namespace: &str, name: &str| pod(&format!("{namespace}-{name}")).named(namespace, name);
    let scene = Scene::new().measured(&[named("b", "x"), named("a", "z"), named("a", "y")]);
    let names: Vec<String> = scene
        .report()
        .status
        .pods_metric
        .iter()
        .map(|pod| format!("{}/{}", pod.namespace, pod.name))
        .collect();
    // koordlet-observe#13.5.E7
    assert_eq!(names, ["a/y", "a/z", "b/x"]);
    // koordlet-observe#13.5.E13
    let half =
        Scene::new().sample(Kind::PodCpuUsage, &[(Property::PodUid, "half")], 1.0).pods(&[pod("half")]);
    let report = half.report();
    assert!(report.status.pods_metric.is_empty());
    assert_eq!(report.left_out, ["default/half"]);
}

#[test]
fn classes_of_pods() {
    use koord_api::keys::pod::label::PRIORITY_CLASS;
    let burstable = || pod("p").kube_qos("Burstable");
    let best_effort = || pod("p").kube_qos("BestEffort");
    let guaranteed = || pod("p").kube_qos("Guaranteed");
    for (key, pod, qos, priority) in [
        ("koordlet-observe#13.5.E8", burstable(), "LS", "koord-prod"),
        ("koordlet-observe#13.5.E9", best_effort(), "BE", "koord-batch"),
        (
            "koordlet-observe#13.5.E9b",
            burstable().qos("LS").label(PRIORITY_CLASS, "foo").priority(5500),
            "LS",
            "koord-prod",
        ),
        ("koordlet-observe#13.5.E22", guaranteed(), "LSR", "koord-prod"),
        ("koordlet-observe#13.5.E24", burstable().priority(10_000), "LS", "koord-prod"),
        ("koordlet-observe#13.5.E24", burstable().priority(8999), "LS", "koord-prod"),
        ("koordlet-observe#13.5.E24", best_effort().priority(2999), "BE", "koord-batch"),
        ("koordlet-observe#13.5.E25", best_effort().priority(9999), "BE", "koord-prod"),
        ("koordlet-observe#13.5.E25", best_effort().priority(7000), "BE", "koord-mid"),
        ("koordlet-observe#13.5.E25", best_effort().priority(5000), "BE", "koord-batch"),
        ("koordlet-observe#13.5.E25", best_effort().priority(3000), "BE", "koord-free"),
        ("koordlet-observe#13.5.E26", guaranteed().qos("foo"), "LSR", "koord-prod"),
        ("koordlet-observe#13.5.E26", best_effort().qos("SYSTEM"), "SYSTEM", "koord-prod"),
    ] {
        let status = Scene::new().measured(&[pod]).report().status;
        let told = &status.pods_metric[0];
        assert_eq!((told.qos.as_str(), told.priority.as_str()), (qos, priority), "{key}");
    }
}

#[test]
fn gpus() {
    let gpu = |minor: i32| Gpu {
        minor,
        uuid: format!("GPU-{minor}").into(),
        memory_total: 16_000,
        is_healthy: true,
    };
    let of = |minor: &'static str, uuid: &'static str| {
        [(Property::GpuMinor, minor), (Property::GpuDeviceUuid, uuid)]
    };
    let first = of("0", "GPU-0");
    let of_pod = [(Property::PodUid, "a"), first[0], first[1]];
    let mut scene = node(Scene::new(), 1.0, 1.0)
        .sample(Kind::NodeGpuCoreUsage, &first, 35.9)
        .sample(Kind::NodeGpuMemoryUsage, &first, 8000.0)
        .sample(Kind::PodGpuCoreUsage, &of_pod, 20.0)
        .sample(Kind::PodGpuMemoryUsage, &of_pod, 2048.0)
        .measured(&[pod("a")]);
    scene.gpus = vec![gpu(0), gpu(1)];
    let told = scene.json();
    let device = |core: &str, memory: &str, ratio: &str| {
        json!([{ "id": "GPU-0", "minor": 0, "type": "gpu", "health": true, "resources": {
            GPU_CORE: core, GPU_MEMORY: memory, GPU_MEMORY_RATIO: ratio } }])
    };
    // koordlet-observe#13.5.E19
    assert_eq!(told["nodeMetric"]["nodeUsage"]["devices"], device("35", "8000", "50"));
    assert_eq!(told["podsMetric"][0]["podUsage"]["devices"], device("20", "2Ki", "12"));
    // koordlet-observe#13.4.D6
    let mut scene = node(Scene::new(), 1.0, 1.0).sample(Kind::NodeGpuCoreUsage, &first, 35.0).sample(
        Kind::NodeGpuMemoryUsage,
        &first,
        4000.0,
    );
    scene.gpus = vec![gpu(0)];
    assert_eq!(scene.json()["nodeMetric"]["nodeUsage"]["devices"], device("35", "4000", "25"));
}

#[test]
fn a_report_without_samples() {
    let told = Scene::new().json();
    // koordlet-observe#13.5.E29
    let cold = json!({ "avg": {}, "p50": {}, "p90": {}, "p95": {}, "p99": {} });
    let blocks: Vec<Value> = ["5m0s", "10m0s", "30m0s"]
        .iter()
        .map(|duration| json!({ "usage": cold, "duration": duration }))
        .collect();
    assert_eq!(
        told["nodeMetric"],
        json!({
            "nodeUsage": {},
            "systemUsage": {},
            "aggregatedNodeUsages": blocks,
            "aggregatedSystemUsages": blocks,
        })
    );
    // koordlet-observe#13.5.E20
    assert_eq!(told["prodReclaimableMetric"], json!({ "resource": {} }));
    assert!(told.get("prodPeakMetric").is_none());
    // koordlet-observe#13.5.E23
    assert!(told.get("podsMetric").is_none() && told.get("hostApplicationMetric").is_none());
    assert_eq!(told["updateTime"], "2024-05-01T08:00:00Z");
}

#[test]
fn numa_nodes() {
    let of = |id: &'static str| [(Property::NumaNodeId, id)];
    let scene = Scene::new()
        .sample(Kind::NodeNumaCpuUsage, &of("0"), 1.0)
        .sample(Kind::NodeNumaCpuUsage, &of("2"), 2.0)
        .sample(Kind::NodeNumaMemoryUsage, &of("2"), 2048.0)
        .sample(Kind::SysNumaCpuUsage, &of("2"), 0.25)
        .sample(Kind::SysNumaMemoryUsage, &of("2"), 100.0)
        .sample(Kind::NodeNumaCpuUsage, &of("1"), 1.5)
        .sample(Kind::NodeNumaMemoryUsage, &of("1"), 1024.0);
    // koordlet-observe#13.5.E27
    assert_eq!(
        scene.json()["nodeMetric"]["numaUsages"],
        json!([
            { "numaNodeID": 1, "nodeUsage": { "resources": { "cpu": "1500m", "memory": "1Ki" } }, "systemUsage": {} },
            { "numaNodeID": 2, "nodeUsage": { "resources": { "cpu": "2", "memory": "2Ki" } },
              "systemUsage": { "resources": { "cpu": "250m", "memory": "100" } } },
        ])
    );
}

#[test]
fn applications_beside_the_pods() {
    let application = |name: &str| HostApplicationSpec {
        name: name.to_owned(),
        priority: "koord-prod".to_owned(),
        qos: "LS".to_owned(),
        ..HostApplicationSpec::default()
    };
    let mut scene = Scene::new();
    for (name, cores) in [("nginx", 0.09), ("agent", 0.5)] {
        let name = [(Property::HostAppName, name)];
        scene = scene.sample(Kind::HostApplicationCpuUsage, &name, cores).sample(
            Kind::HostApplicationMemoryUsage,
            &name,
            67_108_864.0,
        );
    }
    let spec = NodeSloSpec {
        host_applications: vec![application("nginx"), application("idle"), application("agent")],
        ..NodeSloSpec::default()
    };
    scene.snapshot.slo = Some(Arc::new(Effective::new(&spec, &[])));
    let told = scene.json();
    let names: Vec<&str> = told["hostApplicationMetric"]
        .as_array()
        .unwrap()
        .iter()
        .map(|application| application["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["agent", "nginx"]);
    assert_eq!(
        told["hostApplicationMetric"][1],
        json!({ "name": "nginx", "priority": "koord-prod", "qos": "LS",
                "usage": { "resources": { "cpu": "90m", "memory": "64Mi" } } })
    );
}
