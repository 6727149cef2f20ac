//! What the original reported of a generated node: NodeMetric, NodeResourceTopology and Device.
//!
//! Measurements go into the store as the recording has them, so what is compared is what follows from them. Numbers of
//! NodeMetric are compared with the room that sampling needs; everything else must be equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use koord_api::crd::device::Device;
use koord_api::crd::node_metric::MetricCollectPolicy;
use koord_api::quantity::Quantity;
use koord_linux::cgroup::Driver;
use koord_linux::cpu_info::CpuInfo;
use koord_linux::stat::MemInfo;
use koord_linux::topology::{Cpu, NumaNode};
use koordlet::devices::{self, Inventory};
use koordlet::predict::{Predictor, Settings, measure::training};
use koordlet::report::node_metric::{self, measure};
use koordlet::report::topology::kubelet::KubeletConfig;
use koordlet::report::topology::{self, compute};
use koordlet::state::{Hardware, MetricPace, MetricPolicy, NodeState, PodState, Snapshot};
use koordlet::store::{Batch, Key, Kind, Limits, Store};
use serde_json::{Map, Value, json};

use crate::rig::Rig;

const NOW_MS: i64 = 1_714_550_400_000;
/// The recording ends with the first report.
const MEASURED_SECONDS: i64 = 30;
/// The original was told to learn so often.
const TRAINED_EVERY_SECONDS: i64 = 10;
const MIB: f64 = 1_048_576.0;
/// In each group, beside the containers: the sandbox's memory.
const SANDBOX_MIB: f64 = 1.0;

#[test]
fn reports() {
    let mut rig = Rig::open("node-report-1");
    let phase = rig.next_phase().unwrap();
    let snapshot = snapshot(&rig);
    let milli = rig.usage().node.unwrap() * 1000.0;
    let usage = |path: &str, ours: &str, recorded: &str| is_near(path, ours, recorded, milli);
    let exactly = |_: &str, _: &str, _: &str| false;
    let mut compared = compare(&node_metric(&rig, &snapshot), &phase.objects["NodeMetric"], usage);
    compared += compare(&topology(&rig, &snapshot), &phase.objects["NodeResourceTopology"], exactly);
    compared += compare(&device(&rig), &phase.objects["Device"], exactly);
    assert!(compared > 250, "only {compared} values");
}

fn snapshot(rig: &Rig) -> Snapshot {
    let policy: MetricCollectPolicy =
        serde_json::from_value(rig.run()["nodeMetric"]["metricCollectPolicy"].clone()).unwrap();
    let pods = rig.pod_objects().map(|(recorded, mut object)| {
        let age = SignedDuration::from_hours(recorded["ageHours"].as_i64().unwrap());
        object.metadata.creation_timestamp = Some(Time(now() - age));
        Arc::new(PodState::read(&object, Driver::Systemd))
    });
    Snapshot {
        node: Some(Arc::new(NodeState::read(&rig.node_object()))),
        slo: Some(Arc::new(rig.slo())),
        pods: pods.collect(),
        metric_policy: Arc::new(MetricPolicy::new(Some(&policy), &MetricPace::default())),
        ..Snapshot::default()
    }
}

fn now() -> Timestamp {
    Timestamp::from_millisecond(NOW_MS).unwrap()
}

fn node_metric(rig: &Rig, snapshot: &Snapshot) -> Value {
    let measured = measured(rig);
    let mut store = Store::new(&Limits::default());
    let mut predictor = Predictor::new(Settings::default());
    for second in (0..=MEASURED_SECONDS).rev() {
        let at_ms = NOW_MS - second * 1000;
        let mut batch = Batch::default();
        for (key, value) in &measured {
            batch.add(store.find(key.clone()), at_ms, *value);
        }
        store.commit(at_ms, &mut batch).unwrap();
        if second % TRAINED_EVERY_SECONDS == 0 {
            predictor.train(&training(&store, snapshot, TRAINED_EVERY_SECONDS * 1000, at_ms), at_ms);
        }
    }
    let sources = node_metric::Sources {
        store: &store,
        snapshot,
        predictor: &predictor,
        gpus: &[],
        has_page_cache: false,
        has_cold_pages: false,
    };
    let mut status = serde_json::to_value(measure(sources, NOW_MS).status).unwrap();
    assert!(status.as_object_mut().unwrap().remove("updateTime").is_some());
    status
}

/// Every series of the recorded node, with the value that the recording keeps up.
fn measured(rig: &Rig) -> Vec<(Key, f64)> {
    let (run, usage) = (rig.run(), rig.usage());
    let number = |value: &Value| value.as_f64().unwrap();
    let mut all = Vec::new();
    let (mut pods_cores, mut pods_bytes, mut apps_bytes) = (0.0, 0.0, 0.0);
    for (recorded, _) in rig.pod_objects() {
        let uid: Arc<str> = recorded["uid"].as_str().unwrap().into();
        let containers = recorded["containers"].as_array().unwrap();
        let mib: f64 = containers.iter().map(|container| number(&container["memMi"])).sum();
        let (cores, bytes) = (usage.pods[&*uid], (mib + SANDBOX_MIB) * MIB);
        (pods_cores, pods_bytes) = (pods_cores + cores, pods_bytes + bytes);
        all.extend([(Kind::PodCpuUsage.of([&uid]), cores), (Kind::PodMemoryUsage.of([&uid]), bytes)]);
    }
    for app in run["hostApps"].as_array().unwrap() {
        let name: Arc<str> = app["name"].as_str().unwrap().into();
        let bytes = number(&app["memMi"]) * MIB;
        apps_bytes += bytes;
        all.push((Kind::HostApplicationCpuUsage.of([&name]), usage.applications[&*name]));
        all.push((Kind::HostApplicationMemoryUsage.of([&name]), bytes));
    }
    let (node_cores, node_bytes) = (usage.node.unwrap(), number(&run["node"]["usedMi"]) * MIB);
    all.push((Kind::NodeCpuUsage.of([]), node_cores));
    all.push((Kind::NodeMemoryUsage.of([]), node_bytes));
    all.push((Kind::SysCpuUsage.of([]), number(&run["sysMilli"]) / 1000.0));
    all.push((Kind::SysMemoryUsage.of([]), node_bytes - pods_bytes - apps_bytes));
    let numa_nodes = hardware(rig).numa_nodes;
    let count = f64::from(u32::try_from(numa_nodes.len()).unwrap());
    for numa in &numa_nodes {
        let id: Arc<str> = numa.id.to_string().into();
        let bytes = number(&json!(numa.memory.numa_used_bytes()));
        // Of NUMA nodes the system's use is what pods leave of it. There memory of pods counts with page cache, which is a
        // quarter more in the recording, and applications are not counted.
        all.push((Kind::NodeNumaCpuUsage.of([&id]), node_cores / count));
        all.push((Kind::NodeNumaMemoryUsage.of([&id]), bytes));
        let sys_cores = number(&run["sysMilli"]) / 1000.0 / count;
        all.push((Kind::SysNumaCpuUsage.of([&id]), sys_cores));
        all.push((Kind::SysNumaMemoryUsage.of([&id]), bytes - pods_bytes * 1.25 / count));
    }
    all
}

/// The machine that the recording was made on. Its kernel files are plain files of a tree.
fn hardware(rig: &Rig) -> Hardware {
    let node = &rig.run()["node"];
    let count = |name: &str| u32::try_from(node[name].as_u64().unwrap()).unwrap();
    assert_eq!(count("threads"), 1, "CPUs that share a core are numbered in other ways");
    let mut info = CpuInfo::default();
    let text = |name: &str| node[name].as_str().unwrap().to_owned();
    (info.model, info.vendor, info.l3_mask) = (text("model"), text("vendor"), text("cbm"));
    let (per_numa, per_socket) = (count("coresPerNuma"), count("coresPerNuma") * count("numaPerSocket"));
    let cpu = |id: u32| Cpu {
        id,
        core: id,
        socket: id / per_socket,
        node: id / per_numa,
        l1: id,
        l3: id / per_numa,
    };
    let total_kib = u64::from(count("numaMemMi")) * 1024;
    let memory = MemInfo {
        total_kib,
        free_kib: total_kib / 2,
        active_file_kib: total_kib / 20,
        inactive_file_kib: total_kib / 20,
        reclaimable_slab_kib: total_kib / 50,
        ..MemInfo::default()
    };
    let huge_pages_2mi = u64::from(count("huge2M"));
    let numa = |id: u32| NumaNode { id, memory, huge_pages_2mi, huge_pages_1gi: 0 };
    Hardware {
        info,
        cpus: (0..per_socket * count("sockets")).map(cpu).collect(),
        numa_nodes: (0..count("numaPerSocket") * count("sockets")).map(numa).collect(),
    }
}

fn topology(rig: &Rig, snapshot: &Snapshot) -> Value {
    let node = snapshot.node.as_ref().unwrap();
    let config = json!({ "kubeletconfig": rig.run()["node"]["kubelet"] }).to_string();
    let computed = compute(topology::Sources {
        node,
        hardware: &hardware(rig),
        pods: &snapshot.pods,
        kubelet: Some(&KubeletConfig::parse(config.as_bytes()).unwrap()),
        cpu_manager: None,
        reports_huge_pages: rig.run()["gates"].as_str().unwrap().contains("HugePageReport=true"),
    });
    let object = serde_json::to_value(computed.unwrap().new_object(node)).unwrap();
    let annotations = object["metadata"]["annotations"].as_object().unwrap();
    let annotations = annotations
        .iter()
        .map(|(key, text)| (key.clone(), serde_json::from_str(text.as_str().unwrap()).unwrap()));
    json!({
        "annotations": annotations.collect::<Map<String, Value>>(),
        "labels": object["metadata"]["labels"],
        "owner": object["metadata"]["ownerReferences"][0]["kind"],
        "topologyPolicies": object["topologyPolicies"],
        "zones": object["zones"],
    })
}

/// The owner is set when the object is made, which is the shell's.
fn device(rig: &Rig) -> Value {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in rig.run()["node"]["xpu"].as_object().unwrap() {
        std::fs::write(dir.path().join(name), text.as_str().unwrap()).unwrap();
    }
    let inventory = Inventory { xpus: devices::read_dir(dir.path()).unwrap(), ..Inventory::default() };
    let mut device = Device::default();
    devices::report(&inventory, true).apply(&mut device, now());
    let mut spec = serde_json::to_value(device.spec).unwrap();
    for entry in spec["devices"].as_array_mut().unwrap() {
        for condition in entry["conditions"].as_array_mut().unwrap() {
            assert!(condition.as_object_mut().unwrap().remove("lastTransitionTime").is_some());
        }
    }
    json!({
        "annotations": device.metadata.annotations.unwrap_or_default(),
        "labels": device.metadata.labels,
        "owner": "Node",
        "spec": spec,
    })
}

/// Compares every value; says how many there were. `is_near` decides about texts that are not the same.
fn compare(ours: &Value, recorded: &Value, is_near: impl Fn(&str, &str, &str) -> bool) -> usize {
    let (mut got, mut want) = (BTreeMap::new(), BTreeMap::new());
    flatten(String::new(), ours, &mut got);
    flatten(String::new(), recorded, &mut want);
    let paths: Vec<&String> = got.keys().chain(want.keys().filter(|path| !got.contains_key(*path))).collect();
    let mut faults = Vec::new();
    for path in &paths {
        let is_alike = match (got.get(*path), want.get(*path)) {
            (Some(ours), Some(recorded)) => ours == recorded || is_near(path, ours, recorded),
            _ => false,
        };
        if !is_alike {
            faults.push(format!("{path}: recorded {:?}, ours {:?}", want.get(*path), got.get(*path)));
        }
    }
    assert!(faults.is_empty(), "{} of {} differ:\n{}", faults.len(), paths.len(), faults.join("\n"));
    paths.len()
}

fn flatten(path: String, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| flatten(format!("{path}/{name}"), value, into));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(at, value)| flatten(format!("{path}/{at}"), value, into));
        }
        Value::String(text) => drop(into.insert(path, text.clone())),
        other => drop(into.insert(path, other.to_string())),
    }
}

/// How far a figure of NodeMetric may lie from the recorded one: percentiles see single samples, averages do not.
fn is_near(path: &str, ours: &str, recorded: &str, node_milli: f64) -> bool {
    let milli = |text: &str| text.parse::<Quantity>().ok().map(|quantity| quantity.milli_value());
    let (Some(ours), Some(recorded)) = (milli(ours), milli(recorded)) else { return false };
    let float = |milli: i64| json!(milli).as_f64().unwrap();
    let (apart, recorded) = (float(ours - recorded).abs(), float(recorded));
    let is_percentile = path.contains("/p50/") || path.contains("/p9");
    let is_system = path.to_lowercase().contains("systemusage");
    let room = match (path.starts_with("/prod"), path.ends_with("/cpu")) {
        // Histograms have steps of 5 percent.
        (true, true) => 0.12 * node_milli + 100.0,
        (true, false) => 0.06 * recorded,
        // The first sample of the original may miss some pods.
        (false, false) if is_system => 0.06 * recorded,
        (false, false) => 0.01 * recorded,
        (false, true) if is_system && is_percentile => 0.10 * node_milli + 80.0,
        (false, true) if is_system => 0.03 * node_milli + 40.0,
        (false, true) if is_percentile => 0.12 * recorded + 80.0,
        (false, true) => 0.04 * recorded + 30.0,
    };
    path.contains("/resources/") && apart <= room
}
