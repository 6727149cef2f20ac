//! A small cluster and the default profile's plugins, as far as they say no.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{Attempt, Choice, Failure, Framework, Nominated, Ties, Unfit};
use crate::cluster::{Cluster, Row};
use crate::framework::Hooks;
use crate::plugins::{
    default_preemption, dynamic_resources, inter_pod_affinity, node_affinity, node_name, node_ports,
    node_resources_fit, node_unschedulable, pod_topology_spread, taint_toleration,
};
use crate::pod::Pod;
use crate::random::Random;
use crate::time::Time;

/// A cluster and a scheduler in one.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) framework: Framework,
    pub(crate) nominated: Nominated,
    pub(crate) random: Random,
    pub(crate) now: Time,
}

/// A pod; what is not said does not matter.
#[derive(Clone)]
pub(crate) struct Spec {
    name: String,
    metadata: Value,
    spec: Value,
    requests: Value,
    status: Value,
}

pub(crate) fn pod(name: &str) -> Spec {
    let metadata = json!({"name": name, "namespace": "d", "uid": name});
    Spec { name: name.into(), metadata, spec: json!({}), requests: json!({}), status: json!({}) }
}

impl Spec {
    pub(crate) fn priority(self, priority: i32) -> Spec {
        self.with("priority", json!(priority))
    }

    pub(crate) fn cpu(self, amount: &str) -> Spec {
        self.asks("cpu", amount)
    }

    pub(crate) fn asks(mut self, resource: &str, amount: &str) -> Spec {
        self.requests[resource] = json!(amount);
        self
    }

    /// Minutes after midnight.
    pub(crate) fn started(mut self, minutes: u32) -> Spec {
        self.status["startTime"] = json!(format!("2024-01-01T00:{minutes:02}:00Z"));
        self
    }

    pub(crate) fn app(mut self, name: &str) -> Spec {
        self.metadata["labels"] = json!({"app": name});
        self
    }

    pub(crate) fn host_port(self, port: u16) -> Spec {
        self.with("ports", json!([{"containerPort": port, "hostPort": port}]))
    }

    /// A field of the pod's spec; `ports` is one of its container.
    pub(crate) fn with(mut self, field: &str, value: Value) -> Spec {
        self.spec[field] = value;
        self
    }

    pub(crate) fn leaving(mut self, is_preempted: bool) -> Spec {
        self.metadata["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        if is_preempted {
            self.status["conditions"] =
                json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
        }
        self
    }

    fn object(&self) -> Value {
        let mut spec = self.spec.clone();
        let ports = spec.as_object_mut().unwrap().remove("ports");
        let mut container = json!({"name": "c", "image": "i", "resources": {"requests": self.requests}});
        container["ports"] = ports.unwrap_or(json!([]));
        spec["containers"] = json!([container]);
        json!({"metadata": self.metadata, "spec": spec, "status": self.status})
    }
}

/// The default profile, filters first; without what only scores.
fn framework() -> Framework {
    let fit = node_resources_fit::build(node_resources_fit::Args::default());
    let affinity = node_affinity::build(node_affinity::Added::default());
    let ports = node_ports::build();
    let spread = pod_topology_spread::build(&crate::profile::args::DefaultConstraints::default());
    let pods = inter_pod_affinity::build(inter_pod_affinity::Args::default());
    let claims = dynamic_resources::build();
    let preemption = default_preemption::build(&Default::default());
    let taints = taint_toleration::build(taint_toleration::Wording::Plain);
    let (unschedulable, name) = (node_unschedulable::build(), node_name::build());
    Framework {
        pre_filters: vec![affinity.clone(), ports.clone(), spread.clone(), pods.clone(), claims.clone()],
        filters: vec![unschedulable, name, taints, affinity, ports, fit, spread, pods],
        post_filters: vec![claims, preemption],
        ties: Ties::Heap,
        ..Framework::default()
    }
}

impl World {
    pub(crate) fn new() -> World {
        World {
            cluster: Cluster::default(),
            framework: framework(),
            nominated: Nominated::default(),
            random: Random::new(1),
            now: Time::from_seconds(1_704_070_800),
        }
    }

    /// Only DefaultPreemption helps.
    pub(crate) fn without_claims(mut self) -> World {
        self.framework.post_filters.remove(0);
        self
    }

    /// This plugin runs after all others.
    pub(crate) fn with(mut self, plugin: &Hooks) -> World {
        if plugin.pre_filter.is_some() {
            self.framework.pre_filters.push(plugin.clone());
        }
        if plugin.filter.is_some() {
            self.framework.filters.push(plugin.clone());
        }
        if plugin.post_filter.is_some() {
            self.framework.post_filters.push(plugin.clone());
        }
        self
    }

    pub(crate) fn node(&mut self, name: &str, cpu: &str) -> Row {
        self.node_with(name, json!({"cpu": cpu, "memory": "8Gi", "pods": "110"}), json!({}), json!({}))
    }

    pub(crate) fn node_with(&mut self, name: &str, allocatable: Value, spec: Value, labels: Value) -> Row {
        let object = json!({"metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"allocatable": allocatable}});
        self.cluster.set_node(&serde_json::from_value(object).unwrap());
        self.cluster.row(name).unwrap()
    }

    pub(crate) fn compile(&mut self, spec: &Spec) -> Arc<Pod> {
        Arc::new(self.cluster.compile(&serde_json::from_value(spec.object()).unwrap()))
    }

    pub(crate) fn place(&mut self, spec: &Spec, node: &str) {
        let placed = self.compile(&spec.clone().with("nodeName", json!(node)));
        assert_eq!(self.cluster.confirm(placed), None, "{}", spec.name);
    }

    pub(crate) fn promise(&mut self, spec: &Spec, node: &str) {
        let (pod, row) = (self.compile(spec), self.cluster.row(node).unwrap());
        self.nominated.insert(row, pod);
    }

    pub(crate) fn budget(&mut self, app: &str, allowed: i32, disrupted: &[&str]) {
        let disrupted: serde_json::Map<String, Value> =
            disrupted.iter().map(|name| ((*name).to_owned(), json!("2024-01-01T00:00:00Z"))).collect();
        let object = json!({"metadata": {"name": app, "namespace": "d"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
                "disruptionsAllowed": allowed, "disruptedPods": disrupted}});
        self.cluster.set_budget(&serde_json::from_value(object).unwrap());
    }

    pub(crate) fn attempt(&mut self, spec: &Spec, nominated: Option<&str>) -> Result<Choice, Failure> {
        let pod = self.compile(spec);
        self.cluster.attend(&pod.class);
        let order = self.cluster.visiting_order().to_vec();
        let attempt = Attempt {
            framework: &self.framework,
            nominated: &self.nominated,
            order: &order,
            start: &mut 0,
            random: &mut self.random,
            nominated_row: nominated.and_then(|name| self.cluster.row(name)),
            now: self.now,
            memory: None,
            extenders: &mut [],
        };
        attempt.run(&self.cluster, &pod)
    }

    pub(crate) fn unfit(&mut self, spec: &Spec, nominated: Option<&str>) -> Box<Unfit> {
        match self.attempt(spec, nominated) {
            Err(Failure::Unfit(unfit)) => unfit,
            other => panic!("{}: {other:?}", spec.name),
        }
    }

    pub(crate) fn message(&mut self, spec: &Spec) -> String {
        self.unfit(spec, None).message()
    }
}
