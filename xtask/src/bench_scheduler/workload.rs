//! Workloads as they stand in `bench/scheduler/*.yaml`, and the objects they are made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use koord_engine::engine::Input;
use koord_engine::profile::Profile;
use koord_engine::profile::expand::{Choice, PluginSets};
use koord_engine::time::Time;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::root;

/// A cluster, the pods that are there before, and those whose placing is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Workload {
    #[serde(skip)]
    pub(super) name: String,
    pub(super) nodes: Vec<Nodes>,
    /// Plugins beside the default ones, at every point they implement.
    #[serde(default)]
    plugins: Vec<String>,
    #[serde(default)]
    pub(super) services: Vec<Service>,
    #[serde(default)]
    reservations: Vec<Reservations>,
    #[serde(default)]
    pub(super) before: Vec<Pods>,
    pub(super) measured: Vec<Pods>,
    templates: BTreeMap<String, Value>,
    pub(super) bars: Bars,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nodes {
    pub(super) count: usize,
    zones: usize,
    allocatable: BTreeMap<String, String>,
    /// What is measured of them; none when nobody measures.
    usage: Option<Usage>,
}

/// The least and the most that a node uses; the nodes of a group lie evenly between.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Usage {
    cpu_milli: [usize; 2],
    memory_mebi: [usize; 2],
}

/// Nodes that differ in what they use; more would make no difference.
const USAGE_STEPS: usize = 97;

impl Usage {
    fn resources(&self, index: usize) -> Value {
        let between = |[least, most]: [usize; 2]| {
            least + most.saturating_sub(least) * (index % USAGE_STEPS) / (USAGE_STEPS - 1)
        };
        json!({"cpu": format!("{}m", between(self.cpu_milli)), "memory": format!("{}Mi", between(self.memory_mebi))})
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    name: String,
    selector: BTreeMap<String, String>,
}

/// Room that is held for pods with these labels, one on each node as far as they go.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reservations {
    count: usize,
    /// Whether one owner uses up all of it.
    #[serde(default)]
    once: bool,
    owners: BTreeMap<String, String>,
    requests: BTreeMap<String, String>,
}

impl Reservations {
    fn object(&self, number: usize) -> Value {
        let name = format!("reservation-{number}");
        let containers =
            json!([{"name": "c", "image": "registry/pause:3", "resources": {"requests": self.requests}}]);
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1",
                "creationTimestamp": "2027-01-15T07:00:00Z"},
            "spec": {"allocateOnce": self.once, "allocatePolicy": "Aligned", "ttl": "0s",
                "owners": [{"labelSelector": {"matchLabels": self.owners}}],
                "template": {"metadata": {"namespace": "default"}, "spec": {"containers": containers}}},
            "status": {"phase": "Available", "nodeName": format!("node-{number}"),
                "allocatable": self.requests}})
    }
}

/// Pods of the templates in turn. `$index`, `$milli` and `$mebi` in a template are numbers of the pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pods {
    pub(super) count: usize,
    templates: Vec<String>,
    #[serde(default = "default_namespace")]
    namespace: String,
    /// Whether all of them find a node.
    #[serde(default = "yes")]
    pub(super) fits: bool,
}

fn default_namespace() -> String {
    "default".to_owned()
}

fn yes() -> bool {
    true
}

/// What the figures must reach.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Bars {
    pub(super) pods_per_second: Option<f64>,
    /// The same as a part of the rate of workload `basic` in the same run.
    pub(super) of_basic: Option<f64>,
    pub(super) attempt_p99_micros: Option<f64>,
}

fn folder() -> PathBuf {
    root().join("bench/scheduler")
}

/// All workloads, `basic` first; only those named if any are.
pub(super) fn load(names: &[String]) -> Result<Vec<Workload>> {
    let mut workloads = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let text = std::fs::read_to_string(&path)?;
        let mut workload: Workload =
            serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        for pods in workload.before.iter().chain(&workload.measured) {
            let unknown = pods.templates.iter().find(|name| !workload.templates.contains_key(*name));
            ensure!(unknown.is_none(), "{}: no template {unknown:?}", path.display());
        }
        workload.name = name;
        workloads.push(workload);
    }
    workloads.sort_by_key(|workload| (workload.name != "basic", workload.name.clone()));
    let known: Vec<String> = workloads.iter().map(|workload| workload.name.clone()).collect();
    let unknown = names.iter().find(|name| !known.contains(name));
    ensure!(unknown.is_none(), "no workload {unknown:?}; there are {}", known.join(", "));
    // Others are measured against it.
    workloads
        .retain(|workload| names.is_empty() || workload.name == "basic" || names.contains(&workload.name));
    Ok(workloads)
}

impl Workload {
    /// The same on a cluster of another size, with so many pods.
    pub(super) fn scaled(&self, nodes: usize, pods: usize) -> Workload {
        let mut scaled = self.clone();
        for group in &mut scaled.nodes {
            group.count = nodes;
        }
        for group in &mut scaled.measured {
            group.count = pods;
        }
        scaled
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes.iter().map(|group| group.count).sum()
    }

    /// The plugins that run.
    pub(super) fn profile(&self) -> Result<Profile> {
        let name = "default-scheduler";
        let choice = |plugin: &String| Choice { name: plugin.clone(), weight: 1 };
        let mut custom = PluginSets::default();
        custom.multi_point.enabled = self.plugins.iter().map(choice).collect();
        let points = PluginSets::defaults().merge(&custom).expand(name).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("plugins of the workload: {}", errors.join("; "))
        })?;
        Ok(Profile { points, ..Profile::standard(name) })
    }

    /// What the engine is told first, at this time.
    pub(super) fn base(&self, now: Time) -> Result<Vec<Input>> {
        let mut inputs = Vec::new();
        for name in ["default", "sched-0", "sched-1"] {
            let labels = json!({"kubernetes.io/metadata.name": name});
            inputs.push(input(
                json!({"type": "namespace", "object": {"metadata": {"name": name, "labels": labels}}}),
            )?);
        }
        for node in self.node_objects() {
            inputs.push(input(json!({"type": "node", "object": node}))?);
        }
        for metric in self.node_metrics(now) {
            inputs.push(input(json!({"type": "nodeMetric", "object": metric}))?);
        }
        let held = self.reservations.iter().flat_map(|group| std::iter::repeat_n(group, group.count));
        for (number, group) in held.enumerate() {
            inputs.push(input(json!({"type": "reservation", "object": group.object(number)}))?);
        }
        for service in &self.services {
            let object = json!({"kind": "Service", "metadata": {"name": service.name, "namespace": "default"},
                "spec": {"selector": service.selector}});
            inputs.push(input(json!({"type": "workload", "object": object}))?);
        }
        Ok(inputs)
    }

    fn node_metrics(&self, now: Time) -> Vec<Value> {
        let groups = self.nodes.iter().flat_map(|group| (0..group.count).map(move |index| (group, index)));
        let named = groups.enumerate().filter_map(|(number, (group, index))| {
            let usage = json!({"resources": group.usage.as_ref()?.resources(index)});
            Some(json!({"metadata": {"name": format!("node-{number}")},
                "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
                "status": {"updateTime": now.to_string(), "nodeMetric": {"nodeUsage": usage}}}))
        });
        named.collect()
    }

    pub(super) fn node_objects(&self) -> Vec<Value> {
        let mut objects = Vec::new();
        for group in &self.nodes {
            for index in 0..group.count {
                let name = format!("node-{}", objects.len());
                let zone = format!("zone-{}", index % group.zones);
                objects.push(
                    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
                        "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
                    "status": {"allocatable": group.allocatable, "capacity": group.allocatable,
                        "conditions": [{"type": "Ready", "status": "True"}]}}),
                );
            }
        }
        objects
    }

    /// The pods of a group, as the API would have them. `first` numbers them.
    pub(super) fn pods(&self, group: &Pods, first: usize) -> Result<Vec<Value>> {
        let texts: Vec<String> =
            group.templates.iter().map(|name| self.templates[name].to_string()).collect();
        (0..group.count)
            .map(|index| {
                let number = first + index;
                let text = texts[index % texts.len()]
                    .replace("$index", &index.to_string())
                    .replace("$milli", &(100 + number % 997).to_string())
                    .replace("$mebi", &(128 + number % 1499).to_string());
                let mut pod: Value = serde_json::from_str(&text)?;
                pod["apiVersion"] = json!("v1");
                pod["kind"] = json!("Pod");
                pod["metadata"]["name"] = json!(format!("pod-{number}"));
                pod["metadata"]["namespace"] = json!(group.namespace);
                Ok(pod)
            })
            .collect()
    }
}

/// An input from its JSON form.
pub(super) fn input(value: Value) -> Result<Input> {
    Ok(serde_json::from_value(value)?)
}
