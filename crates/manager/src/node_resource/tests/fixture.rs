//! The node of the worked examples, and how it is changed for each of them. Spec: manager 6.7.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::slo::{ColocationStrategy, SloConfig};
use koord_kit::cache::{ObjectKey, Pool};
use serde_json::{Value, json};

use super::super::plugin::{Input, NodeMemory, Options, Plugin};
use super::super::report::Report;
use super::super::settings::Settings;
use super::super::view::{MetricEntry, MetricView, NodeView, TopologyView};
use super::super::{PLUGINS, Plan, plan};
use crate::pods::{PodBrief, PodReader};

pub(crate) const BATCH_CPU: &str = "kubernetes.io/batch-cpu";
pub(crate) const BATCH_MEMORY: &str = "kubernetes.io/batch-memory";

/// What a row changes before it is looked at.
pub(crate) type Act<'a> = &'a dyn Fn(&mut World);

/// A cluster of one node.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) node: Value,
    pub(crate) metric: Value,
    pub(crate) pods: Vec<Value>,
    pub(crate) topology: Option<Value>,
}

/// All that a plan needs, owned.
pub(crate) struct Parts {
    pub(crate) config: SloConfig,
    pub(crate) node: NodeView,
    pub(crate) strategy: Option<ColocationStrategy>,
    pub(crate) metric: Option<Arc<MetricView>>,
    pub(crate) pods: Vec<Arc<PodBrief>>,
    pub(crate) topology: Option<TopologyView>,
    pub(crate) now: Timestamp,
}

impl World {
    /// Node N1 with its pods; colocation on with all defaults.
    pub(crate) fn n1() -> World {
        let now: Timestamp = "2024-05-01T12:00:00Z".parse().unwrap();
        let mut world = World {
            now,
            config: BTreeMap::new(),
            node: json!({
                "metadata": {"name": "n1", "labels": {}, "annotations": {}},
                "status": {
                    "capacity": {"cpu": "64", "memory": "256Gi"},
                    "allocatable": {"cpu": "62", "memory": "250Gi"},
                },
            }),
            metric: json!({"metadata": {"name": "n1"}, "status": {
                "nodeMetric": {
                    "nodeUsage": {"resources": {"cpu": "20", "memory": "100Gi"}},
                    "systemUsage": {"resources": {"cpu": "3", "memory": "5Gi"}},
                },
                "podsMetric": [],
                "hostApplicationMetric": [
                    {"name": "nginx", "priority": "koord-prod", "usage": usage("1500m", "1Gi")["podUsage"]},
                ],
            }}),
            pods: Vec::new(),
            topology: None,
        };
        world.strategy(json!({"enable": true}));
        world.report_age(SignedDuration::from_secs(30));
        world.annotate("node.koordinator.sh/reservation", r#"{"resources":{"cpu":"5"}}"#);
        world.pod("web", "LS", "koord-prod", "16", "64Gi");
        world.pod("db", "LSE", "koord-prod", "8", "32Gi");
        world.pod("new", "LS", "koord-prod", "4", "8Gi");
        world.extended_pod("spark", "BE", "koord-batch", json!({BATCH_CPU: "10k", BATCH_MEMORY: "20Gi"}));
        world.extended_pod("mid", "BE", "koord-mid", json!({"kubernetes.io/mid-cpu": "1k"}));
        world.usage("web", "koord-prod", "6", "40Gi");
        world.usage("db", "koord-prod", "5", "30Gi");
        world.usage("spark", "koord-batch", "10", "20Gi");
        world.usage("mid", "koord-mid", "2", "4Gi");
        world.usage("gone", "koord-prod", "1", "2Gi");
        world
    }

    /// N1 with two NUMA zones, db on the first.
    pub(crate) fn n1_zones() -> World {
        let mut world = World::n1();
        let native = || {
            let amount = |name: &str, all: &str| json!({"name": name, "capacity": all, "allocatable": all, "available": all});
            json!([amount("cpu", "32"), amount("memory", "128Gi")])
        };
        world.topology = Some(json!({"metadata": {"name": "n1"}, "zones": [
            {"name": "node-0", "type": "Node", "resources": native()},
            {"name": "node-1", "type": "Node", "resources": native()},
        ]}));
        world.on_numa("db", &[0]);
        world
    }

    pub(crate) fn on_numa(&mut self, pod: &str, ids: &[i32]) {
        let nodes: Vec<Value> = ids.iter().map(|id| json!({"node": id})).collect();
        let text = json!({"numaNodeResources": nodes}).to_string();
        self.find_pod(pod)["metadata"]["annotations"] =
            json!({"scheduling.koordinator.sh/resource-status": text});
    }

    /// Replaces `colocation-config`.
    pub(crate) fn strategy(&mut self, document: Value) {
        self.config.insert("colocation-config".to_owned(), document.to_string());
    }

    /// Adds to `colocation-config`.
    pub(crate) fn set(&mut self, fields: Value) {
        let mut document: Value = serde_json::from_str(&self.config["colocation-config"]).unwrap();
        for (key, value) in fields.as_object().unwrap() {
            document[key] = value.clone();
        }
        self.strategy(document);
    }

    pub(crate) fn annotate(&mut self, key: &str, text: &str) {
        self.node["metadata"]["annotations"][key] = json!(text);
    }

    pub(crate) fn label(&mut self, key: &str, text: &str) {
        self.node["metadata"]["labels"][key] = json!(text);
    }

    /// How long ago the node reported.
    pub(crate) fn report_age(&mut self, age: SignedDuration) {
        self.metric["status"]["updateTime"] = json!((self.now - age).to_string());
    }

    pub(crate) fn pod(&mut self, name: &str, qos: &str, class: &str, cpu: &str, memory: &str) {
        self.extended_pod(name, qos, class, json!({"cpu": cpu, "memory": memory}));
    }

    pub(crate) fn extended_pod(&mut self, name: &str, qos: &str, class: &str, requests: Value) {
        self.pods.push(json!({
            "metadata": {
                "namespace": "default", "name": name, "uid": name,
                "labels": {"koordinator.sh/qosClass": qos, "koordinator.sh/priority-class": class},
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Running"},
        }));
    }

    pub(crate) fn find_pod(&mut self, name: &str) -> &mut Value {
        self.pods.iter_mut().find(|pod| pod["metadata"]["name"] == name).unwrap()
    }

    pub(crate) fn phase(&mut self, name: &str, phase: &str) {
        self.find_pod(name)["status"]["phase"] = json!(phase);
    }

    /// Reports what a pod uses, in place of what was reported before.
    pub(crate) fn usage(&mut self, name: &str, class: &str, cpu: &str, memory: &str) {
        let mut entry = usage(cpu, memory);
        entry["namespace"] = json!("default");
        entry["name"] = json!(name);
        entry["priority"] = json!(class);
        let all = self.metric["status"]["podsMetric"].as_array_mut().unwrap();
        all.retain(|entry| entry["name"] != name);
        all.push(entry);
    }

    pub(crate) fn unreport(&mut self, name: &str) {
        let all = self.metric["status"]["podsMetric"].as_array_mut().unwrap();
        all.retain(|entry| entry["name"] != name);
    }

    pub(crate) fn host_app(&mut self, name: &str, class: &str, cpu: &str, memory: &str) {
        let entry = json!({"name": name, "priority": class, "usage": usage(cpu, memory)["podUsage"]});
        let all = self.metric["status"]["hostApplicationMetric"].as_array_mut().unwrap();
        all.retain(|entry| entry["name"] != name);
        all.push(entry);
    }

    pub(crate) fn parts(&self) -> Parts {
        let mut config = SloConfig::default();
        config.load(Some(&self.config));
        self.parts_under(config)
    }

    pub(crate) fn parts_under(&self, config: SloConfig) -> Parts {
        let texts = Pool::default();
        let reader = PodReader::default();
        let node: Node = serde_json::from_value(self.node.clone()).unwrap();
        let node = NodeView::of(&node);
        let strategy = config.colocation_strategy(node.facts()).map(|rendered| rendered.value);
        let metric = (!self.metric.is_null()).then(|| {
            let metric: Report = serde_json::from_value(self.metric.clone()).unwrap();
            MetricEntry::of(metric, &texts).view
        });
        let pod = |pod: &Value| {
            let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
            let name = pod.metadata.name.as_deref().unwrap();
            let key = ObjectKey { namespace: "default".into(), name: name.into() };
            Arc::new(reader.brief(&key, &pod))
        };
        let topology = self.topology.as_ref().map(|topology| {
            let topology: NodeResourceTopology = serde_json::from_value(topology.clone()).unwrap();
            TopologyView::of(&topology)
        });
        Parts {
            config,
            node,
            strategy,
            metric,
            pods: self.pods.iter().map(pod).collect(),
            topology,
            now: self.now,
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        self.plan_with(&mut NodeMemory::default())
    }

    pub(crate) fn plan_with(&self, memory: &mut NodeMemory) -> Plan {
        self.parts().plan_with(PLUGINS, memory).expect("the configuration is available")
    }
}

impl Parts {
    /// Nothing while there is no configuration.
    pub(crate) fn plan_with(&self, plugins: &[&dyn Plugin], memory: &mut NodeMemory) -> Option<Plan> {
        let settings = Settings::from(self.strategy.as_ref()?);
        let input = Input {
            now: self.now,
            node: &self.node,
            config: &self.config,
            settings: &settings,
            metric: self.metric.as_ref(),
            pods: &self.pods,
            topology: self.topology.as_ref(),
            device: None,
            options: Options::default(),
        };
        Some(plan(plugins, &input, memory))
    }
}

fn usage(cpu: &str, memory: &str) -> Value {
    json!({"podUsage": {"resources": {"cpu": cpu, "memory": memory}}})
}

/// What the prepared node can allocate of a resource.
pub(crate) fn allocatable(plan: &Plan, name: &str) -> Option<i64> {
    let allocatable = plan.prepared.allocatable.as_ref().unwrap().get(name).map(|amount| amount.value());
    let capacity = plan.prepared.capacity.as_ref().unwrap().get(name).map(|amount| amount.value());
    assert_eq!(allocatable, capacity, "{name}");
    allocatable
}

/// Batch cpu and memory of a plan.
pub(crate) fn batch(plan: &Plan) -> (Option<i64>, Option<i64>) {
    (allocatable(plan, BATCH_CPU), allocatable(plan, BATCH_MEMORY))
}
