//! What the original koord-manager wrote to nodes in recorded runs, against our decisions without a cluster.
//!
//! Objects change as recorded; after each change the nodes that it concerns take their turns, as the controller would
//! give them, until nothing that is written is news to it. Then nodes and topologies must be as recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use koord_api::crd::device::Device;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::duration::GoDuration;
use koord_api::patch::merge;
use koord_api::quantity::Quantity;
use koord_api::slo::SloConfig;
use koord_kit::cache::{ObjectKey, Pool};
use koord_manager::node_resource::batch::zones;
use koord_manager::node_resource::news::{OwnWrite, changed_view};
use koord_manager::node_resource::report::Report;
use koord_manager::node_resource::view::MetricEntry;
use koord_manager::node_resource::{
    Input, NodeMemory, NodeView, Options, PLUGINS, Settings, TopologyView, plan,
};
use koord_manager::pods::PodReader;
use serde_json::{Map, Value, json};

/// A cluster, as far as it matters here.
#[derive(Default)]
struct Cluster {
    now: Timestamp,
    /// By kind, then by namespace and name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    config: SloConfig,
    memories: BTreeMap<String, NodeMemory>,
    /// Of nodes whose last turn wrote them.
    own_writes: BTreeMap<String, OwnWrite>,
    /// Of the object written last.
    version: u64,
}

/// Turns after which a node that still changes is a fault.
const TURNS_MAX: usize = 10;

impl Cluster {
    fn kind(&mut self, kind: &str) -> &mut BTreeMap<String, Value> {
        self.objects.entry(kind.to_owned()).or_default()
    }

    fn typed<T: serde::de::DeserializeOwned>(&self, kind: &str, name: &str) -> Option<T> {
        let object = self.objects.get(kind)?.get(&format!("/{name}"))?;
        Some(serde_json::from_value(object.clone()).expect("recorded objects are well-formed"))
    }

    fn carry_out(&mut self, op: &Value) {
        if let Some(object) = op.get("create") {
            let mut object = self.at_times(object.clone());
            if object["kind"] == "Pod" {
                self.admit(&mut object);
            }
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            let key = key(&object);
            self.kind(text(&object["kind"])).insert(key, object.clone());
            self.woken_by(text(&object["kind"]), text(&object["metadata"]["name"]));
        } else if let Some(patch) = op.get("patch").or_else(|| op.get("status")) {
            let patch = self.at_times(patch.clone());
            let (kind, name) = (text(&patch["kind"]).to_owned(), text(&patch["metadata"]["name"]).to_owned());
            let merged =
                if op.get("status").is_some() { json!({"status": patch["status"]}) } else { patch.clone() };
            // A NodeMetric is made by the nodemetric controller as soon as there is a node.
            let object =
                self.kind(&kind).entry(key(&patch)).or_insert_with(|| json!({"metadata": {"name": name}}));
            let before = object.clone();
            merge(object, &merged);
            let after = object.clone();
            let is_news = match kind.as_str() {
                "Node" => self.store_node(&name, before, after),
                _ => before != after,
            };
            if is_news {
                self.woken_by(&kind, &name);
            }
        } else if let Some(path) = op.get("delete") {
            let parts: Vec<&str> = text(path).split('/').collect();
            let (namespace, name) = if parts.len() == 3 { (parts[1], parts[2]) } else { ("", parts[1]) };
            self.kind(parts[0]).remove(&format!("{namespace}/{name}"));
            self.woken_by(parts[0], name);
        }
        let pause = op.get("pause").and_then(Value::as_i64).unwrap_or(0);
        self.now += SignedDuration::from_millis(pause);
    }

    /// What the API server does to a pod: its class gives the priority, limits are requests where there are none.
    fn admit(&self, pod: &mut Value) {
        let class = pod["spec"]["priorityClassName"].as_str().map(|name| format!("/{name}"));
        let class = class.and_then(|key| self.objects.get("PriorityClass")?.get(&key));
        pod["spec"]["priority"] = class.map_or(json!(0), |class| class["value"].clone());
        let containers = ["containers", "initContainers"];
        for container in containers
            .iter()
            .flat_map(|field| {
                pod["spec"]
                    .get(*field)
                    .and_then(Value::as_array)
                    .map(Vec::len)
                    .into_iter()
                    .flat_map(move |len| (0..len).map(move |at| format!("/spec/{field}/{at}/resources")))
            })
            .collect::<Vec<_>>()
        {
            let Some(resources) = pod.pointer_mut(&container) else { continue };
            let limits = resources["limits"].as_object().cloned().unwrap_or_default();
            for (name, amount) in limits {
                let requests = &mut resources["requests"];
                if requests.get(&name).is_none() {
                    requests[&name] = amount;
                }
            }
        }
        if pod["status"].get("phase").is_none() {
            pod["status"]["phase"] = json!("Pending");
        }
    }

    /// Pods alone wake nobody.
    fn woken_by(&mut self, kind: &str, name: &str) {
        match kind {
            "ConfigMap" => {
                let map = self.objects["ConfigMap"].values().next();
                let data =
                    map.map(|map| serde_json::from_value(map["data"].clone()).expect("a map of texts"));
                self.config.load(data.as_ref());
                let names: Vec<String> =
                    self.kind("Node").keys().map(|key| key.trim_start_matches('/').to_owned()).collect();
                names.iter().for_each(|name| self.settle(name));
            }
            "Node" | "NodeMetric" | "NodeResourceTopology" | "Device" => self.settle(name),
            _ => {}
        }
    }

    /// Stores a changed node as the next version. Says whether the controller would give it a turn.
    fn store_node(&mut self, name: &str, before: Value, mut after: Value) -> bool {
        self.version += 1;
        after["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.kind("Node").insert(format!("/{name}"), after.clone());
        let [old, new] =
            [before, after].map(|node| serde_json::from_value::<Node>(node).expect("a node stays one"));
        let Some(view) = changed_view(&old, &new) else { return false };
        let is_own = self.own_writes.get(name).is_some_and(|write| write.made(&old, &view));
        if is_own {
            self.own_writes.remove(name);
        }
        !is_own
    }

    /// Gives a node turns until what it writes is no news.
    fn settle(&mut self, name: &str) {
        for turn in 0..TURNS_MAX {
            if !self.turn(name) {
                return;
            }
            assert!(turn + 1 < TURNS_MAX, "node {name} never comes to rest");
        }
    }

    /// One turn of a node, and what it writes. Says whether that asks for another.
    fn turn(&mut self, name: &str) -> bool {
        let Some(node) = self.typed::<Node>("Node", name) else { return false };
        let (texts, reader) = (Pool::default(), PodReader::default());
        let view = NodeView::of(&node);
        let Some(strategy) = self.config.colocation_strategy(view.facts()) else { return false };
        let settings = Settings::from(&strategy.value);
        let metric = self.typed::<Report>("NodeMetric", name);
        let metric = metric.map(|metric| MetricEntry::of(metric, &texts).view);
        let pods = self.objects.get("Pod").into_iter().flat_map(BTreeMap::values);
        let pods: Vec<_> = pods
            .map(|pod| serde_json::from_value::<Pod>(pod.clone()).expect("recorded pods are well-formed"))
            .map(|pod| {
                let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
                let key =
                    ObjectKey { namespace: text(&pod.metadata.namespace), name: text(&pod.metadata.name) };
                Arc::new(reader.brief(&key, &pod))
            })
            .filter(|pod| pod.node.as_deref() == Some(name))
            .collect();
        let mut topology = self.typed::<NodeResourceTopology>("NodeResourceTopology", name);
        let device = self.typed::<Device>("Device", name);
        let topology_view = topology.as_ref().map(TopologyView::of);
        let memory = self.memories.entry(name.to_owned()).or_default();
        let input = Input {
            now: self.now,
            node: &view,
            config: &self.config,
            settings: &settings,
            metric: metric.as_ref(),
            pods: &pods,
            topology: topology_view.as_ref(),
            device: device.as_ref(),
            options: Options::default(),
        };
        let plan = plan(PLUGINS, &input, memory);
        self.own_writes.remove(name);
        let before = serde_json::to_value(&node).expect("a node");
        let patch = if plan.needs_status {
            memory.node_synced = Some(self.now);
            let own_write = OwnWrite::of(&node, &view, &plan.prepared);
            self.own_writes.extend(own_write.map(|write| (name.to_owned(), write)));
            plan.prepared.patch(&view)
        } else if plan.needs_meta {
            plan.prepared.meta_patch(&view)
        } else {
            json!({})
        };
        let after = merge::apply(before.clone(), patch.to_string().as_bytes()).expect("a patch");
        if let Some(topology) = topology.as_mut().filter(|_| plan.zones.is_needed) {
            zones::apply(&mut topology.zones, &plan.resource, plan.zones.closeness);
            memory.zones_synced = Some(self.now);
            let object = serde_json::to_value(&*topology).expect("a topology");
            self.kind("NodeResourceTopology").insert(format!("/{name}"), object);
        }
        before != after && self.store_node(name, before, after)
    }

    /// Replaces `@-90s` by the time that long ago.
    fn at_times(&self, value: Value) -> Value {
        match value {
            Value::String(text) => {
                match text.strip_prefix("@-").and_then(|ago| ago.parse::<GoDuration>().ok()) {
                    Some(GoDuration(nanos)) => {
                        let time = self.now - SignedDuration::from_nanos(nanos);
                        // Times on objects have whole seconds.
                        json!(Timestamp::from_second(time.as_second()).expect("in range").to_string())
                    }
                    None => Value::String(text),
                }
            }
            Value::Array(all) => all.into_iter().map(|value| self.at_times(value)).collect(),
            Value::Object(all) => all.into_iter().map(|(key, value)| (key, self.at_times(value))).collect(),
            other => other,
        }
    }

    /// What the recorder looked at, in its form.
    fn seen(&self) -> BTreeMap<String, Value> {
        let mut seen = BTreeMap::new();
        for (key, node) in self.objects.get("Node").into_iter().flatten() {
            let (meta, status) = (&node["metadata"], &node["status"]);
            let labels: Map<String, Value> = meta["labels"]
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(key, _)| {
                    !["kubernetes.io/gpu-model", "kubernetes.io/gpu-driver"].contains(&key.as_str())
                })
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            let value = json!({
                "labels": labels, "annotations": meta["annotations"],
                "capacity": status["capacity"], "allocatable": status["allocatable"],
            });
            seen.insert(format!("Node{key}"), value);
        }
        for (key, topology) in self.objects.get("NodeResourceTopology").into_iter().flatten() {
            let mut zones = Map::new();
            for zone in topology["zones"].as_array().into_iter().flatten() {
                let mut resources = Map::new();
                for resource in zone["resources"].as_array().into_iter().flatten() {
                    let whole = |field: &str| json!(quantity(text(&resource[field])).value().to_string());
                    let fields = ["capacity", "allocatable", "available"]
                        .map(|field| (field.to_owned(), whole(field)));
                    resources.insert(
                        text(&resource["name"]).to_owned(),
                        Value::Object(fields.into_iter().collect()),
                    );
                }
                zones.insert(text(&zone["name"]).to_owned(), Value::Object(resources));
            }
            seen.insert(format!("NodeResourceTopology{key}"), Value::Object(zones));
        }
        seen
    }
}

fn key(object: &Value) -> String {
    let meta = &object["metadata"];
    format!("{}/{}", meta["namespace"].as_str().unwrap_or_default(), text(&meta["name"]))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn quantity(text: &str) -> Quantity {
    text.parse().expect("a quantity")
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().expect("made one");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Without what does not matter: nulls, empty maps, the spelling of amounts and of JSON in annotations.
fn clean(value: &Value, is_amount: bool) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(all) => {
            let amounts = |key: &str| ["capacity", "allocatable", "available", "resources"].contains(&key);
            let all: Map<String, Value> = all
                .iter()
                .filter_map(|(key, value)| {
                    let is_amount = amounts(key) || is_amount && !value.is_object();
                    Some((key.clone(), clean(value, is_amount)?))
                })
                .collect();
            (!all.is_empty()).then_some(Value::Object(all))
        }
        // The amounts of a resource list stand one level below its name.
        Value::String(text) if is_amount => {
            Some(json!(text.parse::<Quantity>().map_or(text.clone(), |amount| amount.nano().to_string())))
        }
        Value::String(text) if text.starts_with('{') => match serde_json::from_str(text) {
            Ok(inner) => Some(clean(&inner, false).unwrap_or_else(|| json!({}))),
            Err(_) => Some(value.clone()),
        },
        _ => Some(value.clone()),
    }
}

fn differences(path: &str, want: Option<&Value>, got: Option<&Value>, found: &mut Vec<String>) {
    match (want, got) {
        (Some(Value::Object(want)), Some(Value::Object(got))) => {
            let keys: BTreeSet<&String> = want.keys().chain(got.keys()).collect();
            for key in keys {
                differences(&format!("{path}/{key}"), want.get(key), got.get(key), found);
            }
        }
        _ if want == got => {}
        _ => found.push(format!("{path}: want {want:?}, got {got:?}")),
    }
}

fn replay(name: &str) -> (usize, Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name);
    let file = std::fs::File::open(&path).expect("a recording");
    let mut content = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut content).expect("a recording");
    let recording: Value = serde_json::from_str(&content).expect("a recording");
    let mut cluster = Cluster { now: "2024-05-01T12:00:00Z".parse().expect("a time"), ..Cluster::default() };
    for object in recording["base"].as_array().expect("objects") {
        cluster.carry_out(&json!({"create": object}));
    }
    let (mut same, mut found) = (0, Vec::new());
    for (place, step) in recording["steps"].as_array().expect("steps").iter().enumerate() {
        for op in step["do"].as_array().into_iter().flatten() {
            cluster.carry_out(op);
        }
        // A step is over when nothing was written for two seconds.
        cluster.now += SignedDuration::from_secs(3);
        let seen = cluster.seen();
        let want = step["want"].as_object().expect("what was seen");
        for key in want.keys().chain(seen.keys().filter(|key| !want.contains_key(*key))) {
            let mut differ = Vec::new();
            let clean = |value: Option<&Value>| value.and_then(|value| clean(value, false));
            differences(key, clean(want.get(key)).as_ref(), clean(seen.get(key)).as_ref(), &mut differ);
            same += usize::from(differ.is_empty());
            found.extend(differ.into_iter().map(|text| format!("step {place} ({}): {text}", step["note"])));
        }
    }
    (same, found)
}

#[test]
fn nodes_are_written_as_recorded() {
    for (name, objects) in
        [("mgr-batch-1.json.gz", 124), ("mgr-batch-2.json.gz", 198), ("mgr-batch-3.json.gz", 148)]
    {
        let (same, found) = replay(name);
        assert!(found.is_empty(), "{name}: {same} same, {} different\n{}", found.len(), found.join("\n"));
        assert_eq!(same, objects, "{name}");
    }
}
