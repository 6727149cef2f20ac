//! Attempts on small clusters, with the spec's texts.

use super::*;
use crate::plugins::{
    balanced_allocation, image_locality, node_affinity, node_name, node_ports, node_resources_fit,
    node_unschedulable, taint_toleration,
};
use serde_json::{Value, json};

mod messages;
mod promises;
pub(crate) mod world;

/// A cluster and a scheduler in one.
struct World {
    cluster: Cluster,
    framework: Framework,
    nominated: Nominated,
    start: usize,
    random: Random,
}

fn framework() -> Framework {
    let fit = node_resources_fit::build(node_resources_fit::Args::default());
    let affinity = node_affinity::build(node_affinity::Added::default());
    let taints = taint_toleration::build(taint_toleration::Wording::Plain);
    let ports = node_ports::build();
    let balanced = balanced_allocation::build(vec!["cpu".into(), "memory".into()]);
    Framework {
        pre_filters: vec![affinity.clone(), ports.clone()],
        filters: vec![
            node_unschedulable::build(),
            node_name::build(),
            taints.clone(),
            affinity.clone(),
            ports,
            fit.clone(),
        ],
        scores: vec![(taints, 3), (affinity, 2), (fit, 1), (balanced, 1), (image_locality::build(), 1)],
        ties: Ties::Heap,
        sampling: Sampling::Percent(0),
        ..Framework::default()
    }
}

impl World {
    fn new() -> World {
        World {
            cluster: Cluster::default(),
            framework: framework(),
            nominated: Nominated::default(),
            start: 0,
            random: Random::new(1),
        }
    }

    fn node(&mut self, name: &str, cpu: &str, memory: &str) -> &mut World {
        self.object(name, json!({"cpu": cpu, "memory": memory, "pods": "110"}), json!({}))
    }

    fn object(&mut self, name: &str, allocatable: Value, spec: Value) -> &mut World {
        let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": spec,
            "status": {"allocatable": allocatable}});
        self.cluster.set_node(&serde_json::from_value(object).unwrap());
        self
    }

    fn pod(&mut self, name: &str, requests: Value, rest: Value) -> Arc<Pod> {
        let mut spec =
            json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]});
        for (key, value) in rest.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let object = json!({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec});
        Arc::new(self.cluster.compile(&serde_json::from_value(object).unwrap()))
    }

    fn place(&mut self, name: &str, node: &str, requests: Value) {
        let pod = self.pod(name, requests, json!({"nodeName": node, "priority": 10}));
        assert_eq!(self.cluster.confirm(pod), None);
    }

    fn attempt(&mut self, pod: &Arc<Pod>) -> Result<Choice, Failure> {
        let order = self.cluster.visiting_order().to_vec();
        let attempt = Attempt {
            framework: &self.framework,
            nominated: &self.nominated,
            order: &order,
            start: &mut self.start,
            random: &mut self.random,
            nominated_row: None,
            now: Time::default(),
            memory: None,
            extenders: &mut [],
        };
        attempt.run(&self.cluster, pod)
    }

    fn chosen(&mut self, pod: &Arc<Pod>) -> String {
        let choice = self.attempt(pod).unwrap();
        self.cluster.node(choice.row).name.to_string()
    }

    fn message(&mut self, pod: &Arc<Pod>) -> String {
        match self.attempt(pod) {
            Err(Failure::Unfit(unfit)) => unfit.message(),
            Err(Failure::NoNodes) => "no nodes available to schedule pods".to_owned(),
            other => panic!("{other:?}"),
        }
    }
}

fn tainted() -> Value {
    json!({"taints": [{"key": "k", "effect": "NoSchedule"}]})
}

#[test]
fn refusals_read_as_in_kubernetes() {
    let mut world = World::new();
    let pod = world.pod("p", json!({"cpu": "2", "memory": "2Gi"}), json!({}));
    assert_eq!(world.message(&pod), "no nodes available to schedule pods", "scheduler-core#4.2.T3");
    world.node("a", "3", "8Gi").node("b", "3", "8Gi").node("c", "3", "2Gi");
    for name in ["d", "e"] {
        world.object(name, json!({"cpu": "9", "memory": "9Gi", "pods": "9"}), tainted());
    }
    for node in ["a", "b", "c"] {
        world.place(&format!("on-{node}"), node, json!({"cpu": "2", "memory": "1Gi"}));
    }
    let want = "0/5 nodes are available: 1 Insufficient memory, 2 node(s) had untolerated taint(s), 3 Insufficient cpu.";
    assert_eq!(world.message(&pod), want, "scheduler-core#4.2.T1");
}

#[test]
fn every_shortage_is_named() {
    let mut world = World::new();
    world.object("a", json!({"cpu": "1", "memory": "1Gi", "pods": "0"}), json!({}));
    let requests = json!({"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1Gi", "example.com/x": "2",
        "hugepages-2Mi": "2Mi"});
    let pod = world.pod("p", requests, json!({}));
    let want = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient ephemeral-storage, 1 Insufficient \
                example.com/x, 1 Insufficient hugepages-2Mi, 1 Insufficient memory, 1 Too many pods.";
    assert_eq!(world.message(&pod), want, "scheduler-core#4.2.T9");
}

#[test]
fn pinned_pods_name_the_plugin_that_pins_them() {
    let mut world = World::new();
    world.node("a", "1", "8Gi").node("b", "4", "8Gi").node("c", "4", "8Gi");
    let pin = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let name = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    for (key, terms, want) in [
        (
            "scheduler-core#4.2.T10",
            json!([{"matchFields": [name("a")]}]),
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
        ),
        (
            "scheduler-core#4.2.T11",
            json!([{"matchFields": [name("zz")]}]),
            "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity].",
        ),
        (
            "scheduler-core#4.2.T12",
            json!([{"matchFields": [name("a"), name("b")]}]),
            "0/3 nodes are available: pod affinity terms conflict.",
        ),
    ] {
        let pod = world.pod("p", json!({"cpu": "2"}), pin(terms));
        assert_eq!(world.message(&pod), want, "{key}");
    }
    let free = world.pod("q", json!({"cpu": "2"}), pin(json!([{"matchFields": [name("b")]}])));
    assert_eq!(world.chosen(&free), "b");
}

#[test]
fn the_search_goes_on_where_it_ended() {
    for (nodes, percentage, want) in [
        (99, 0, 99),
        (250, 0, 120),
        (500, 0, 230),
        (1000, 0, 420),
        (5000, 0, 500),
        (6000, 0, 300),
        (10_000, 0, 500),
        (500, 30, 150),
        (200, 30, 100),
        (100, 10, 100), // scheduler-core#10.S19
    ] {
        assert_eq!(nodes_to_find(nodes, percentage), want, "{nodes} nodes, {percentage} %");
    }
    let mut world = World::new();
    for i in 0..250 {
        world.node(&format!("n{i}"), "4", "8Gi");
    }
    let pod = world.pod("p", json!({"cpu": "1"}), json!({}));
    assert_eq!(world.chosen(&pod), "n0", "scheduler-core#3.2.K8");
    assert_eq!(world.chosen(&pod), "n120", "scheduler-core#3.2.K8");
}

#[test]
fn room_that_was_promised_is_left_alone() {
    let mut world = World::new();
    world.node("a", "4", "8Gi");
    let row = world.cluster.row("a").unwrap();
    for priority in [10, 5] {
        let spec = json!({"priority": priority});
        let promised = world.pod(&format!("promised-{priority}"), json!({"cpu": "2"}), spec);
        world.nominated.insert(row, promised);
    }
    for (priority, cpu, fits) in [(7, "2", true), (7, "3", false), (5, "2", false), (11, "3", true)] {
        let pod = world.pod("p", json!({"cpu": cpu}), json!({"priority": priority}));
        let text = match world.attempt(&pod) {
            Ok(_) => String::new(),
            Err(Failure::Unfit(unfit)) => unfit.message(),
            Err(other) => panic!("{other:?}"),
        };
        let want = if fits { "" } else { "0/1 nodes are available: 1 Insufficient cpu." };
        assert_eq!(text, want, "scheduler-core#10.S26 priority {priority} cpu {cpu}");
    }
}

#[test]
fn totals_are_weighted_sums() {
    let mut world = World::new();
    world.node("a", "4", "8Gi").node("b", "4", "8Gi");
    let pod = world.pod("p", json!({}), json!({}));
    let choice = world.attempt(&pod).unwrap();
    // TaintToleration 300, NodeResourcesFit 97; the others add nothing.
    assert_eq!(
        choice.feasible.iter().map(|(_, total)| *total).collect::<Vec<_>>(),
        [397, 397],
        "scheduler-core#10.S62"
    );
    world.place("x", "a", json!({"cpu": "2", "memory": "1Gi"}));
    assert_eq!(world.chosen(&pod), "b");
}

#[test]
fn soft_taints_and_preferences_are_normalised() {
    let mut world = World::new();
    let taint = |i: usize| json!({"key": format!("k{i}"), "effect": "PreferNoSchedule"});
    for (name, count) in [("a", 3), ("b", 1), ("c", 2)] {
        let taints: Vec<Value> = (0..count).map(taint).collect();
        world.object(name, json!({"cpu": "4", "memory": "8Gi", "pods": "9"}), json!({"taints": taints}));
    }
    world.framework.scores.truncate(1);
    let pod = world.pod("p", json!({}), json!({}));
    let totals: Vec<i64> = world.attempt(&pod).unwrap().feasible.iter().map(|(_, total)| total / 3).collect();
    assert_eq!(totals, [0, 67, 34], "scheduler-core#10.S41");
}
