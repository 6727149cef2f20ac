//! What the original koord-manager wrote to NodeSLOs and NodeMetrics in recorded runs, against our decisions without a
//! cluster.
//!
//! Objects change as recorded; then every node takes its turns until nothing is written any more, and all must be as
//! recorded, with the events on the ConfigMap. Quantities compare by value, nulls and empty maps as absent.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use koord_api::patch::merge;
use koord_api::quantity::Quantity;
use koord_api::slo::NodeFacts;
use koord_manager::node_metric::{self, Plan};
use koord_manager::node_slo;
use koord_manager::strategies::{Source, Strategies, notes, strategies};
use koord_manager::world::ConfigData;
use serde_json::{Map, Value, json};

/// Turns after which an object that still changes is a fault.
const TURNS_MAX: usize = 4;

/// A cluster, as far as it matters here.
struct Cluster {
    /// By kind and name.
    objects: BTreeMap<(String, String), Value>,
    strategies: Strategies,
    source: Source,
    reasons: BTreeSet<String>,
}

impl Cluster {
    fn new() -> Cluster {
        let (strategies, source) = strategies();
        Cluster { objects: BTreeMap::new(), strategies, source, reasons: BTreeSet::new() }
    }

    fn carry_out(&mut self, op: &Value) {
        if let Some(object) = op.get("create") {
            self.put(object.clone());
        } else if let Some(patch) = op.get("patch") {
            let before = self.objects.get(&key(patch)).cloned().expect("what is patched exists");
            let patch = patch.as_object().cloned().expect("an object");
            self.put(merge::apply_fields(before, patch));
        } else if let Some((kind, name)) = op["delete"].as_str().and_then(|text| text.split_once('/')) {
            self.objects.remove(&(kind.to_owned(), name.to_owned()));
        }
    }

    fn put(&mut self, object: Value) {
        let key = key(&object);
        let is_config = key.0 == "ConfigMap";
        self.objects.insert(key, object);
        if is_config {
            self.load();
        }
    }

    fn load(&mut self) {
        let map = self.objects.iter().find(|((kind, _), _)| kind == "ConfigMap").map(|(_, map)| ConfigData {
            reference: ObjectReference::default(),
            data: serde_json::from_value(map["data"].clone()).expect("data of texts"),
        });
        self.source.load(map.as_ref());
        self.reasons.extend(notes(&self.strategies.now()).into_iter().map(|(_, note)| note.reason));
    }

    /// Every node's objects, until they are as they should be.
    fn settle(&mut self) {
        let names: BTreeSet<String> = self.objects.keys().map(|(_, name)| name.clone()).collect();
        for name in names {
            for turn in 0.. {
                assert!(turn < TURNS_MAX, "{name} does not come to rest");
                let (metric, slo) = self.plans(&name);
                let is_over = matches!((&metric, &slo), (Plan::Nothing, Plan::Nothing));
                self.follow("NodeMetric", &name, metric);
                self.follow("NodeSLO", &name, slo);
                if is_over {
                    break;
                }
            }
        }
    }

    fn plans(&self, name: &str) -> (Plan<Value>, Plan<Value>) {
        let object = |kind: &str| self.objects.get(&(kind.to_owned(), name.to_owned()));
        let node: Option<Node> =
            object("Node").map(|node| serde_json::from_value(node.clone()).expect("a node"));
        let meta = node
            .map(|node| node.metadata)
            .map(|meta| (meta.labels.unwrap_or_default(), meta.annotations.unwrap_or_default()));
        let facts = meta.as_ref().map(|(labels, annotations)| NodeFacts { labels, annotations });
        let standing = self.strategies.now();
        let spec = object("NodeMetric")
            .map(|object| serde_json::from_value(object["spec"].clone()).expect("a NodeMetric's spec"));
        let metric = node_metric::plan(&standing.config, facts, spec.as_ref().map(Some));
        let spec = object("NodeSLO")
            .map(|object| serde_json::from_value(object["spec"].clone()).expect("a NodeSLO's spec"));
        let (slo, _) = node_slo::plan(&standing.config, facts, spec.as_ref().map(Some));
        (map(metric), map(slo))
    }

    fn follow(&mut self, kind: &str, name: &str, plan: Plan<Value>) {
        let key = (kind.to_owned(), name.to_owned());
        match plan {
            Plan::Nothing => {}
            Plan::Delete => _ = self.objects.remove(&key),
            Plan::Create(mut spec) | Plan::Update(mut spec) => {
                defaulted(&mut spec);
                let object = json!({"kind": kind, "metadata": {"name": name}, "spec": spec});
                self.objects.insert(key, object);
            }
        }
    }

    /// The state that the manager is responsible for, as recordings have it.
    fn seen(&self) -> Map<String, Value> {
        let ours =
            self.objects.iter().filter(|((kind, _), _)| matches!(kind.as_str(), "NodeSLO" | "NodeMetric"));
        let mut seen: Map<String, Value> = ours
            .map(|((kind, name), object)| (format!("{kind}/{name}"), json!({"spec": object["spec"]})))
            .collect();
        let reasons: Map<String, Value> =
            self.reasons.iter().map(|reason| (reason.clone(), json!(true))).collect();
        seen.insert("Events".to_owned(), Value::Object(reasons));
        seen
    }
}

fn key(object: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

fn map<S: serde::Serialize>(plan: Plan<S>) -> Plan<Value> {
    match plan {
        Plan::Nothing => Plan::Nothing,
        Plan::Create(spec) => Plan::Create(json!(spec)),
        Plan::Update(spec) => Plan::Update(json!(spec)),
        Plan::Delete => Plan::Delete,
    }
}

/// What the API server fills in.
fn defaulted(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    for (name, value) in fields.iter_mut() {
        if name == "networkQOS" {
            for (field, default) in
                [("ingressRequest", 0), ("ingressLimit", 100), ("egressRequest", 0), ("egressLimit", 100)]
            {
                value.as_object_mut().expect("an object").entry(field).or_insert(json!(default));
            }
        }
        defaulted(value);
    }
}

/// Without nulls and empty maps and lists, with bandwidths in one spelling.
fn clean(value: &Value, name: &str) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let fields: Map<String, Value> =
                fields.iter().filter_map(|(name, value)| Some((name.clone(), clean(value, name)?))).collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        Value::Array(items) => (!items.is_empty())
            .then(|| items.iter().map(|item| clean(item, name).unwrap_or_else(|| json!({}))).collect()),
        Value::String(text) if name == "totalNetworkBandwidth" => {
            Some(json!(text.parse::<Quantity>().expect("a quantity").to_string()))
        }
        other => Some(other.clone()),
    }
}

fn replay(name: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name);
    let mut text = String::new();
    let file = std::fs::File::open(&path).expect("a recording");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a recording");
    let recording: Value = serde_json::from_str(&text).expect("a recording");
    let mut cluster = Cluster::new();
    for object in recording["base"].as_array().into_iter().flatten() {
        cluster.put(object.clone());
    }
    if !recording["base"].to_string().contains("ConfigMap") {
        cluster.load();
    }
    let (mut compared, mut wrong) = (0, Vec::new());
    for (place, step) in recording["steps"].as_array().expect("steps").iter().enumerate() {
        for op in step["do"].as_array().into_iter().flatten() {
            cluster.carry_out(op);
            cluster.settle();
        }
        let (seen, want) = (cluster.seen(), step["want"].as_object().expect("what was seen"));
        for key in want.keys().chain(seen.keys()).collect::<BTreeSet<_>>() {
            let side = |all: &Map<String, Value>| all.get(key).and_then(|value| clean(value, ""));
            compared += 1;
            if side(&seen) != side(want) {
                wrong.push(format!("step {place} {key}:\n want {:?}\n have {:?}", side(want), side(&seen)));
            }
        }
    }
    assert!(wrong.is_empty(), "{name}: {} of {compared} differ\n{}", wrong.len(), wrong.join("\n"));
    compared
}

#[test]
fn recorded_runs_are_reproduced() {
    for name in ["mgr-nodeslo-1.json.gz", "mgr-nodeslo-2.json.gz", "mgr-nodeslo-3.json.gz"] {
        let compared = replay(name);
        assert!(compared > 100, "{name}: only {compared} objects");
    }
}
