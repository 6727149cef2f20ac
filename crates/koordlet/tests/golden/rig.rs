//! A recorded node: what stands in a recording as decisions see it, and the files that wishes leave behind.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1;
use koord_api::annotation::Annotations;
use koord_api::annotation::node_topology::CpuTopologyReport;
use koord_api::annotation::read;
use koord_api::cpuset::CpuSet;
use koord_api::crd::node_slo::NodeSloSpec;
use koord_api::qos::KubeQos;
use koord_api::slo::Effective;
use koord_api::topology::CpuTopology;
use koordlet::decide::cpu_burst::GroupSample;
use koordlet::decide::hooks::cpu_normalization::{container_quota, pod_quota};
use koordlet::decide::resctrl::{Platform, Vendor};
use koordlet::decide::snapshot::{BestEffortGroup, CpuUsage, Level, Node, Pod};
use koordlet::decide::wish::{File, Place, Wish};
use serde_json::{Map, Value, json};

/// Bytes of a page: the kernel rounds memory down to it.
const PAGE: i64 = 4096;

/// A recording, played up to some phase.
pub(crate) struct Rig {
    run: Value,
    phase: usize,
    pub(crate) note: String,
    annotations: Map<String, Value>,
    slo: Value,
    pods: Vec<Value>,
    milli: Map<String, Value>,
}

/// What a phase ended with.
pub(crate) struct Phase {
    pub(crate) note: String,
    pub(crate) seconds: u64,
    /// As `Tree` names them.
    pub(crate) files: BTreeMap<String, String>,
    /// Annotations of the node's topology report.
    pub(crate) topology: Annotations,
    /// What was reported, by kind.
    pub(crate) objects: Value,
}

impl Rig {
    pub(crate) fn open(name: &str) -> Rig {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/golden/{name}.json.gz"));
        let mut text = String::new();
        GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        let run: Value = serde_json::from_str(&text).unwrap();
        Rig {
            phase: 0,
            note: String::new(),
            annotations: run["node"]["annotations"].as_object().cloned().unwrap_or_default(),
            slo: run["nodeSLO"].clone(),
            pods: run["pods"].as_array().unwrap().clone(),
            milli: Map::new(),
            run,
        }
    }

    /// Plays the changes of the next phase.
    pub(crate) fn next_phase(&mut self) -> Option<Phase> {
        let phase = self.run["phases"].get(self.phase)?.clone();
        self.phase += 1;
        self.note = phase["note"].as_str().unwrap().to_string();
        if phase["nodeSLO"].is_object() {
            self.slo = phase["nodeSLO"].clone();
        }
        let gone = phase["del"].as_array().cloned().unwrap_or_default();
        self.pods.retain(|pod| !gone.contains(&pod["name"]));
        self.pods.extend(phase["add"].as_array().cloned().unwrap_or_default());
        self.annotations.extend(phase["anno"].as_object().cloned().unwrap_or_default());
        self.milli.extend(phase["milli"].as_object().cloned().unwrap_or_default());
        let topology = &phase["want"]["objects"]["NodeResourceTopology"]["annotations"];
        Some(Phase {
            note: self.note.clone(),
            seconds: phase["seconds"].as_u64().unwrap(),
            files: phase["want"]["files"].as_object().unwrap().iter().flat_map(recorded).collect(),
            topology: texts(topology.as_object().unwrap()),
            objects: phase["want"]["objects"].clone(),
        })
    }

    pub(crate) fn node(&self) -> Node {
        Node::read(&self.node_object())
    }

    pub(crate) fn node_object(&self) -> v1::Node {
        let node = &self.run["node"];
        let count = |name: &str| node[name].as_u64().unwrap();
        let nodes = count("sockets") * count("numaPerSocket");
        let cpus = nodes * count("coresPerNuma") * count("threads");
        let memory = format!("{}Mi", nodes * count("numaMemMi"));
        let object = json!({
            "metadata": { "name": node["name"], "labels": node["labels"], "annotations": self.annotations },
            "status": {
                "capacity": { "cpu": cpus.to_string(), "memory": memory },
                "allocatable": node["allocatable"],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    /// The recording itself, for what only few look at.
    pub(crate) fn run(&self) -> &Value {
        &self.run
    }

    pub(crate) fn slo(&self) -> Effective {
        let spec: NodeSloSpec = serde_json::from_value(self.slo.clone()).unwrap();
        Effective::new(&spec, &[])
    }

    pub(crate) fn pods(&self) -> Vec<Pod> {
        self.pods.iter().map(|recorded| Pod::read(&pod_object(recorded))).collect()
    }

    /// The pods of the recording as kubelet tells them, each with what is recorded of it.
    pub(crate) fn pod_objects(&self) -> impl Iterator<Item = (&Value, v1::Pod)> {
        self.pods.iter().map(|recorded| (recorded, pod_object(recorded)))
    }

    pub(crate) fn sandbox(&self, pod: &Pod) -> Option<Place> {
        let recorded = self.pods.iter().find(|recorded| recorded["uid"] == *pod.id.uid)?;
        let id = format!("containerd://{}", recorded["sandbox"].as_str()?);
        Some(Place::Container(pod.id.clone(), id.into()))
    }

    /// The groups below a pod's.
    pub(crate) fn below(&self, pod: &Pod) -> Vec<Place> {
        let containers = pod.containers.iter().filter_map(|container| container.place(pod));
        containers.chain(self.sandbox(pod)).collect()
    }

    pub(crate) fn best_effort_groups(&self) -> Vec<BestEffortGroup> {
        let pods = self.pods();
        let best_effort = pods.iter().filter(|pod| pod.id.kube_qos == KubeQos::BestEffort);
        let groups = best_effort.flat_map(|pod| {
            let group = |place, level| BestEffortGroup { place, level, pod: Some(pod.id.uid.clone()) };
            let own = group(pod.place(), Level::Pod);
            let below = self.below(pod).into_iter();
            below.map(|place| group(place, Level::Container)).chain([own]).collect::<Vec<_>>()
        });
        groups.collect()
    }

    /// What the last seconds were like: the recording keeps the load steady.
    pub(crate) fn usage(&self) -> CpuUsage {
        let mut usage = CpuUsage::default();
        for pod in &self.pods {
            let used =
                pod["containers"].as_array().unwrap().iter().map(|container| self.used(pod, container));
            usage.pods.insert(pod["uid"].as_str().unwrap().into(), used.sum());
        }
        for app in self.run["hostApps"].as_array().into_iter().flatten() {
            let cores = app["milli"].as_f64().unwrap() / 1000.0;
            usage.applications.insert(app["name"].as_str().unwrap().to_string(), cores);
        }
        let system = self.milli.get("system").unwrap_or(&self.run["sysMilli"]).as_f64().unwrap() / 1000.0;
        let sum: f64 = usage.pods.values().chain(usage.applications.values()).sum();
        usage.node = Some(sum + system);
        usage
    }

    fn used(&self, pod: &Value, container: &Value) -> f64 {
        let name = format!("{}/{}", pod["name"].as_str().unwrap(), container["name"].as_str().unwrap());
        self.milli.get(&name).unwrap_or(&container["milli"]).as_f64().unwrap() / 1000.0
    }

    /// Quotas as the tree has them, and what makes them move.
    pub(crate) fn quota_groups(&self, tree: &Tree) -> BTreeMap<Place, GroupSample> {
        let mut groups = BTreeMap::new();
        let quota = |place: &Place| tree.get(&path(place, "cpu.cfs_quota_us"))?.parse().ok();
        for (pod, recorded) in self.pods().iter().zip(&self.pods) {
            groups.insert(pod.place(), GroupSample { quota: quota(&pod.place()), ..GroupSample::default() });
            for (container, recorded) in pod.containers.iter().zip(recorded["containers"].as_array().unwrap())
            {
                let place = container.place(pod).unwrap();
                let throttled = Some(recorded["throttled"].as_f64().unwrap_or(0.0));
                let used = Some(recorded["milli"].as_f64().unwrap() / 1000.0);
                groups.insert(place.clone(), GroupSample { quota: quota(&place), used, throttled });
            }
        }
        groups
    }

    /// Quotas as kubelet sets them when pods start.
    pub(crate) fn prepare_quotas(&self, tree: &mut Tree) {
        for pod in self.pods() {
            let mut set = |place: Place, quota: i64| {
                tree.files.entry(path(&place, "cpu.cfs_quota_us")).or_insert(quota.to_string());
            };
            set(pod.place(), pod_quota(&pod));
            for container in &pod.containers {
                set(container.place(&pod).unwrap(), container_quota(container));
            }
        }
    }

    pub(crate) fn topology(&self, reported: &Annotations) -> CpuTopology {
        read::<CpuTopologyReport>(reported).unwrap().unwrap().topology()
    }

    /// None on nodes without resctrl.
    pub(crate) fn resctrl(&self) -> Option<Platform> {
        let node = &self.run["node"];
        let count = u32::try_from(node["sockets"].as_u64().unwrap()).unwrap();
        Some(Platform {
            vendor: Vendor::of(node["vendor"].as_str().unwrap()),
            cbm: Platform::cbm_of(node["cbm"].as_str()?)?,
            cache_ids: (0..count).collect(),
            cache_count: node["sockets"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap(),
        })
    }
}

fn pod_object(recorded: &Value) -> v1::Pod {
    let containers = recorded["containers"].as_array().unwrap();
    let spec = containers.iter().map(|container| {
        let amounts = |name: &str| container.get(name).cloned().unwrap_or_else(|| json!({}));
        json!({ "name": container["name"], "resources": { "requests": amounts("req"), "limits": amounts("lim") } })
    });
    let statuses = containers.iter().map(|container| {
        let id = format!("containerd://{}", container["id"].as_str().unwrap());
        json!({ "name": container["name"], "containerID": id, "state": { "running": {} },
                "image": "", "imageID": "", "ready": true, "restartCount": 0 })
    });
    let object = json!({
        "metadata": {
            "name": recorded["name"], "namespace": "default", "uid": recorded["uid"],
            "labels": recorded["labels"], "annotations": recorded["annotations"],
        },
        "spec": { "containers": spec.collect::<Vec<_>>(), "priority": recorded["priority"] },
        "status": {
            "phase": "Running", "qosClass": recorded["kube"],
            "containerStatuses": statuses.collect::<Vec<_>>(),
        },
    });
    serde_json::from_value(object).unwrap()
}

/// Values that are no texts were read as JSON by whoever recorded them.
fn texts(annotations: &Map<String, Value>) -> Annotations {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    annotations.iter().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// The files of a node under one name each, whatever the version and controller.
#[derive(Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Writes in order, as the kernel would take it.
    pub(crate) fn write<'a>(&mut self, wishes: impl Iterator<Item = &'a Wish>) {
        for wish in wishes {
            let text = wish.value.to_string();
            if wish.file == File::ResctrlSchemata {
                let (resource, values) = text.trim_end().trim_end_matches(';').split_once(':').unwrap();
                self.files.insert(path(&wish.place, resource), values.to_string());
                continue;
            }
            let text = match wish.file {
                File::MemoryMin | File::MemoryLow | File::MemoryHigh | File::MemoryLimit => {
                    let bytes: i64 = text.parse().unwrap();
                    if bytes < 0 { text } else { (bytes / PAGE * PAGE).to_string() }
                }
                File::CpusetCpus => text.parse::<CpuSet>().unwrap().to_string(),
                _ => text,
            };
            self.files.insert(path(&wish.place, wish.file.name()), text);
        }
    }

    /// Compares the recorded files that a test looks at with ours; says how many there were.
    pub(crate) fn compare(&self, phase: &Phase, is_meant: impl Fn(&str) -> bool) -> usize {
        let mut count = 0;
        let mut faults = Vec::new();
        for (path, want) in phase.files.iter().filter(|(path, _)| is_meant(path)) {
            count += 1;
            let got = self.get(path);
            // Changes below a hundredth of the machine are not written: either side may lag behind so much.
            let is_near = |got: &str| {
                let (got, want): (i64, i64) = (got.parse().unwrap_or(0), want.parse().unwrap_or(i64::MIN));
                path == "kubepods/besteffort/cpu.cfs_quota_us" && got.abs_diff(want) < 24_000
            };
            if got != Some(want) && !got.is_some_and(is_near) {
                faults.push(format!("{path}: recorded {want}, ours {got:?}"));
            }
        }
        assert!(
            faults.is_empty(),
            "{}: {} of {count} differ:\n{}",
            phase.note,
            faults.len(),
            faults.join("\n")
        );
        count
    }
}

/// The one name of a file.
fn path(place: &Place, file: &str) -> String {
    let kube = |qos: &KubeQos| match qos {
        KubeQos::Guaranteed => "kubepods",
        KubeQos::Burstable => "kubepods/burstable",
        KubeQos::BestEffort => "kubepods/besteffort",
    };
    let dir = match place {
        Place::Kube(qos) => kube(qos).to_string(),
        Place::Pod(pod) => format!("{}/pod{}", kube(&pod.kube_qos), pod.uid),
        Place::Container(pod, id) => {
            let hash = id.split_once("://").unwrap().1;
            format!("{}/pod{}/{hash}", kube(&pod.kube_qos), pod.uid)
        }
        Place::HostApplication(host) => host.dir.clone(),
        Place::Host => "host".to_string(),
        Place::Resctrl(group) => format!("resctrl/{group}"),
        Place::CgroupRoot | Place::Dir(_) | Place::Process(_) => panic!("{place:?} is in no recording"),
    };
    format!("{dir}/{file}")
}

/// A recorded file under its one name, and in the form of v1.
fn recorded((path, value): (&String, &Value)) -> Vec<(String, String)> {
    let text = value.as_str().unwrap().trim();
    let (dir, file) = path.rsplit_once('/').unwrap();
    let parts: Vec<&str> = dir.split('/').collect();
    match parts.as_slice() {
        ["cgroup", _, rest @ ..] => vec![(format!("{}/{file}", rest.join("/")), text.to_string())],
        ["cg2", rest @ ..] if file == "cpu.max" => {
            let quota = text.split(' ').next().unwrap().replace("max", "-1");
            vec![(format!("{}/cpu.cfs_quota_us", rest.join("/")), quota)]
        }
        ["cg2", rest @ ..] => vec![(format!("{}/{file}", rest.join("/")), text.to_string())],
        ["sysfs", "resctrl", group] if file == "schemata" => {
            let line = |line: &str| {
                let (resource, values) = line.trim().split_once(':').unwrap();
                (format!("resctrl/{group}/{resource}"), values.to_string())
            };
            text.lines().map(line).collect()
        }
        ["sysfs", "resctrl", _] => Vec::new(),
        ["hookserver"] => Vec::new(),
        _ => vec![(format!("host/{file}"), text.to_string())],
    }
}
