//! Attempts from memory against attempts that ask about every node, after random histories.

use std::collections::BTreeMap;
use std::time::Duration;

use koord_api::annotation::load_aware::AggregationType;
use koord_api::duration::GoDuration;
use koord_api::priority::PriorityClass;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::plugins::load_aware;
use crate::plugins::registry::{self, Manner};
use crate::profile::Profile;
use crate::profile::args::Aggregated;
use crate::profile::expand::Enabled;
use crate::profile::point::Point;
use crate::random::Random;
use crate::schedule::Nominated;
use crate::time::Time;

const NODES: u8 = 7;
const PODS: u8 = 24;

/// A cluster, a scheduler that remembers and one that does not.
struct World {
    cluster: Cluster,
    framework: Framework,
    nominated: Nominated,
    promised: Vec<(Row, Box<str>)>,
    memory: Memory,
    random: Random,
    placed: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Node {
        name: u8,
        zone: u8,
        kind: u8,
    },
    NodeGone {
        name: u8,
    },
    Place {
        pod: u8,
        template: u8,
        size: u8,
    },
    Gone {
        pod: u8,
    },
    Leaving {
        pod: u8,
    },
    Promise {
        pod: u8,
        template: u8,
        node: u8,
    },
    Unpromise,
    Namespace {
        labels: u8,
    },
    Service {
        is_there: bool,
    },
    /// A reservation on a node, or none any more.
    Reserve {
        name: u8,
        node: u8,
        kind: u8,
    },
    Unreserve {
        name: u8,
    },
    Metric {
        node: u8,
        cpu: u8,
        kind: u8,
    },
    MetricGone {
        node: u8,
    },
    Wait {
        seconds: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..NODES, 0..4u8, 0..9u8).prop_map(|(name, zone, kind)| Step::Node { name, zone, kind }),
        1 => (0..NODES).prop_map(|name| Step::NodeGone { name }),
        12 => (0..PODS, 0..TEMPLATES, 0..200u8).prop_map(|(pod, template, size)| Step::Place { pod, template, size }),
        2 => (0..PODS).prop_map(|pod| Step::Gone { pod }),
        1 => (0..PODS).prop_map(|pod| Step::Leaving { pod }),
        1 => (0..PODS, 0..TEMPLATES, 0..NODES).prop_map(|(pod, template, node)| Step::Promise { pod, template, node }),
        1 => Just(Step::Unpromise),
        1 => (0..2u8).prop_map(|labels| Step::Namespace { labels }),
        1 => any::<bool>().prop_map(|is_there| Step::Service { is_there }),
        2 => (0..6u8, 0..NODES, 0..24u8).prop_map(|(name, node, kind)| Step::Reserve { name, node, kind }),
        1 => (0..6u8).prop_map(|name| Step::Unreserve { name }),
        4 => (0..NODES, 0..40u8, 0..5u8).prop_map(|(node, cpu, kind)| Step::Metric { node, cpu, kind }),
        1 => (0..NODES).prop_map(|node| Step::MetricGone { node }),
        1 => (0..120u8).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// What a node uses: tenths of a core, and some of its pods.
fn metric(node: u8, cpu: u8, kind: u8, now: Time) -> Value {
    let usage = |cpu: u32| json!({"resources": {"cpu": format!("{}m", 100 * cpu), "memory": "3Gi"}});
    let pod = |name: u8, priority: &str| {
        json!({"namespace": "d", "name": format!("p{name}"), "priority": priority,
        "podUsage": usage(1 + u32::from(name % 3))})
    };
    let mut object = json!({"metadata": {"name": format!("n{node}")}, "status": {"updateTime": now.to_string(),
        "nodeMetric": {"nodeUsage": usage(u32::from(cpu)),
            "aggregatedNodeUsages": [{"duration": "5m", "usage": {"p95": usage(u32::from(cpu / 2))}}]},
        "podsMetric": [pod(cpu % PODS, PriorityClass::Prod.name()), pod((cpu + 1) % PODS, "")]}});
    match kind {
        1 => drop(object["status"].as_object_mut().unwrap().remove("updateTime")),
        2 => drop(object["status"].as_object_mut().unwrap().remove("nodeMetric")),
        3 => object["spec"] = json!({"metricCollectPolicy": {"reportIntervalSeconds": 1}}),
        _ => {}
    }
    object
}

/// The default plugins, and the load of nodes in one way or another.
fn with_load(kind: u8) -> Profile {
    let mut profile = Profile::standard("default-scheduler");
    for point in [Point::Filter, Point::Score] {
        profile.points[point].push(Enabled { plugin: load_aware::NAME, weight: 1 });
    }
    let args = &mut profile.args.load_aware_scheduling;
    let cpu = |percent: i64| BTreeMap::from([("cpu".to_owned(), percent)]);
    match kind {
        1 => args.enable_schedule_when_node_metrics_expired = true,
        2 => (args.prod_usage_thresholds, args.score_according_prod_usage) = (cpu(30), true),
        3 => {
            args.filter_expired_node_metrics = false;
            let kind = Some(AggregationType::P95);
            args.aggregated = Some(Aggregated {
                usage_thresholds: cpu(40),
                usage_type: kind.clone(),
                score_type: kind,
                score_duration: Some(GoDuration::from_seconds(600)),
                ..Aggregated::default()
            });
        }
        _ => {}
    }
    profile
}

fn node(name: u8, zone: u8, kind: u8) -> Value {
    let name = format!("n{name}");
    let mut object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "5", "ephemeral-storage": "10Gi"}}});
    if zone > 0 {
        object["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(format!("z{zone}"));
    }
    let taint = |effect: &str| json!([{"key": "k", "value": "v", "effect": effect}]);
    match kind {
        1 => object["spec"]["taints"] = taint("NoSchedule"),
        2 => object["spec"]["taints"] = taint("PreferNoSchedule"),
        3 => object["spec"]["unschedulable"] = json!(true),
        4 => object["status"]["allocatable"] = json!({"memory": "1125899906842624", "pods": "3"}),
        5 => object["status"]["images"] = json!([{"names": ["registry/big:1"], "sizeBytes": 900_000_000}]),
        6 => object["status"]["allocatable"]["example.com/gpu"] = json!("2"),
        7 => {
            object["metadata"]["labels"].as_object_mut().unwrap().remove("kubernetes.io/hostname");
        }
        // A host by the name of another.
        8 => object["metadata"]["labels"]["kubernetes.io/hostname"] = json!("n0"),
        _ => {}
    }
    object
}

/// For pods of one app or of all, of every policy, for one pod or many.
fn reservation(name: u8, node: u8, kind: u8) -> Value {
    let (name, node) = (format!("r{name}"), format!("n{node}"));
    let app = ["a", "b", "none"][usize::from(kind % 3)];
    let held =
        [json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "500m"})][usize::from(kind / 3 % 2)].clone();
    let mut spec = json!({"allocateOnce": kind % 4 == 0, "ttl": "1h",
        "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
        "template": {"metadata": {"namespace": "d", "labels": {"app": "held"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": held}}]}}});
    match kind / 6 {
        0 => {}
        1 => spec["allocatePolicy"] = json!("Restricted"),
        2 => spec["allocatePolicy"] = json!("Aligned"),
        // Its pod matters to others, beyond its node.
        _ => spec["template"]["metadata"]["labels"]["app"] = json!(app),
    }
    json!({"metadata": {"name": name, "uid": name}, "spec": spec,
        "status": {"phase": "Available", "nodeName": node, "allocatable": held}})
}

const TEMPLATES: u8 = 20;

fn pod(name: u8, template: u8, size: u8) -> Value {
    let name = format!("p{name}");
    let term =
        |key: &str, app: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let spread = |key: &str, skew: u8, action: &str| {
        json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action,
            "labelSelector": {"matchLabels": {"app": "a"}}})
    };
    let mut requests = json!({"cpu": "300m", "memory": "700Mi"});
    let mut spec = json!({});
    let mut app = "a";
    match template {
        // Like no other.
        0..=2 => {
            requests = json!({"cpu": format!("{}m", 10 * u32::from(size)), "memory": format!("{}Mi", 7 * u32::from(size))});
            app = "none";
        }
        3 => requests = json!({}),
        4 => requests = json!({"cpu": "3", "ephemeral-storage": "6Gi"}),
        5 => requests = json!({"cpu": "1", "example.com/gpu": "1"}),
        6 => spec = json!({"tolerations": [{"operator": "Exists"}]}),
        7 => spec = json!({"nodeSelector": {(zone): "z1"}}),
        8 => {
            spec = json!({"affinity": {"nodeAffinity": {(preferred): [
                {"weight": 7, "preference": {"matchExpressions": [{"key": zone, "operator": "In", "values": ["z2"]}]}},
                {"weight": 2, "preference": {"matchExpressions": [{"key": host, "operator": "Exists"}]}}]}}})
        }
        9 => spec = json!({"affinity": {"podAffinity": {(required): [term(zone, "a")]}}}),
        10 => spec = json!({"affinity": {"podAffinity": {(required): [term(zone, "a"), term(host, "a")]}}}),
        11 => {
            spec = json!({"affinity": {"podAntiAffinity": {(required): [term(host, "b")]}}});
            app = "b";
        }
        12 => {
            spec = json!({"affinity": {"podAntiAffinity": {(required): [term(zone, "b")]}}});
            app = "b";
        }
        13 => {
            spec = json!({"affinity": {"podAffinity": {(preferred): [{"weight": 5, "podAffinityTerm": term(zone, "b")}]},
            "podAntiAffinity": {(preferred): [{"weight": 3, "podAffinityTerm": term(host, "a")}]}}})
        }
        14 => spec = json!({"topologySpreadConstraints": [spread(zone, 1, "DoNotSchedule")]}),
        15 => {
            spec = json!({"topologySpreadConstraints": [spread(host, 1, "DoNotSchedule"), spread(zone, 2, "DoNotSchedule")],
            "tolerations": [{"key": "k", "operator": "Exists"}]})
        }
        16 => {
            spec = json!({"topologySpreadConstraints": [spread(host, 1, "ScheduleAnyway"), spread(zone, 3, "ScheduleAnyway")]})
        }
        17 => {
            spec = json!({"affinity": {"podAntiAffinity": {(required): [
                {"topologyKey": zone, "namespaceSelector": {"matchLabels": {"team": "x"}}, "labelSelector": {"matchLabels": {"app": "c"}}}]}}});
            app = "c";
        }
        18 => {
            spec = json!({"topologySpreadConstraints": [
            {"maxSkew": 1, "minDomains": 3, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor",
                "labelSelector": {"matchLabels": {"app": "a"}}}], "nodeSelector": {(host): "n1"}})
        }
        _ => spec = json!({"priority": 5}),
    }
    let port = if template == 19 && size.is_multiple_of(4) {
        json!([{"containerPort": 1, "hostPort": 80}])
    } else {
        json!([])
    };
    spec["containers"] =
        json!([{"name": "c", "image": "registry/big:1", "ports": port, "resources": {"requests": requests}}]);
    json!({"metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"app": app}}, "spec": spec})
}

impl World {
    fn new() -> World {
        World::of(&Profile::standard("default-scheduler"))
    }

    fn of(profile: &Profile) -> World {
        let mut cluster = Cluster::default();
        cluster
            .set_default_spread("default-scheduler", &profile.args.pod_topology_spread.default_constraints);
        let mut framework = registry::framework(profile, Manner::default());
        framework.post_filters.clear();
        framework.loads().for_each(|settings| cluster.follow_load(settings));
        World {
            cluster,
            framework,
            nominated: Nominated::default(),
            promised: Vec::new(),
            memory: Memory::default(),
            random: Random::new(7),
            placed: 0,
        }
    }

    fn compile(&mut self, object: Value) -> Arc<Pod> {
        Arc::new(self.cluster.compile(&serde_json::from_value(object).unwrap()))
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Node { name, zone, kind } => {
                self.cluster.set_node(&serde_json::from_value(node(*name, *zone, *kind)).unwrap());
            }
            Step::NodeGone { name } => drop(self.cluster.remove_node(&format!("n{name}"))),
            Step::Place { pod: name, template, size } => {
                // Some are among those that were promised a node.
                let name = if size % 8 == 0 { 100 + name } else { *name };
                let pod = self.compile(pod(name, *template, *size));
                self.place(&pod);
            }
            Step::Gone { pod } => drop(self.cluster.release(&format!("p{pod}"))),
            Step::Leaving { pod } => {
                if let Some(held) = self.cluster.held(&format!("p{pod}")).cloned() {
                    let node = self.cluster.node(held.row).name.clone();
                    let leaving = Pod { is_deleting: true, node, ..(*held.pod).clone() };
                    self.cluster.confirm(Arc::new(leaving));
                }
            }
            Step::Promise { pod: name, template, node } => {
                let pod = self.compile(pod(100 + *name, *template, 50));
                let is_new = !self.promised.iter().any(|(_, uid)| *uid == pod.uid);
                let row = self.cluster.row(&format!("n{node}"));
                if let Some(row) = row.filter(|row| is_new && self.cluster.node(*row).is_real) {
                    self.promised.push((row, pod.uid.clone()));
                    self.nominated.insert(row, pod);
                }
            }
            Step::Reserve { name, node, kind } => {
                let object = reservation(*name, *node, *kind);
                let news = self.cluster.set_reservation(&serde_json::from_value(object).unwrap());
                self.cluster.confirm(news.new.pod.clone());
            }
            Step::Unreserve { name } => drop(self.cluster.remove_reservation(&format!("r{name}"))),
            Step::Unpromise => {
                for (row, uid) in self.promised.drain(..) {
                    self.nominated.remove(row, &uid);
                }
            }
            Step::Namespace { labels } => {
                let labels = [("team".to_owned(), if *labels == 0 { "x" } else { "y" }.to_owned())];
                self.cluster.set_namespace("d", BTreeMap::from(labels));
            }
            Step::Service { is_there } => {
                let object = json!({"kind": "Service", "metadata": {"name": "s", "namespace": "d"},
                    "spec": {"selector": if *is_there { json!({"app": "a"}) } else { json!({}) }}});
                self.cluster.set_workload(&serde_json::from_value(object).unwrap());
            }
            Step::Metric { node, cpu, kind } => {
                let object = metric(*node, *cpu, *kind, self.cluster.loads().now());
                self.cluster.set_metric(&serde_json::from_value(object).unwrap());
            }
            Step::MetricGone { node } => drop(self.cluster.remove_metric(&format!("n{node}"))),
            Step::Wait { seconds } => {
                let now = self.cluster.loads().now() + Duration::from_secs(u64::from(*seconds));
                self.cluster.pass_time(now);
            }
        }
    }

    fn attempt(&mut self, pod: &Arc<Pod>, remembers: bool) -> Result<Choice, Failure> {
        self.cluster.visiting_order();
        let promise = self.promised.iter().find(|(_, uid)| *uid == pod.uid);
        let attempt = Attempt {
            framework: &self.framework,
            nominated: &self.nominated,
            order: self.cluster.visited(),
            start: &mut 0,
            random: &mut self.random,
            nominated_row: promise.map(|(row, _)| *row),
            now: Time::default(),
            memory: remembers.then_some(&mut self.memory),
            extenders: &mut [],
        };
        attempt.run(&self.cluster, pod)
    }

    /// Both ways must agree; then the pod is placed.
    fn place(&mut self, pod: &Arc<Pod>) {
        self.cluster.tidy();
        self.cluster.attend(&pod.class);
        let (asked, remembered) = (self.attempt(pod, false), self.attempt(pod, true));
        match (asked, remembered) {
            (Ok(asked), Ok(remembered)) => {
                assert!(
                    remembered.feasible.is_empty() || asked.feasible.len() == 1,
                    "{pod:?} went the plain way"
                );
                assert_eq!(asked.feasible.len(), remembered.feasible_count, "{pod:?}");
                let total = |row: Row| {
                    asked.feasible.iter().find(|(known, _)| *known == row).map(|(_, total)| *total)
                };
                let best = asked.feasible.iter().map(|(_, total)| *total).max();
                assert_eq!(total(remembered.row), best, "{pod:?}\n{:?}", asked.feasible);
                self.compare_totals(pod, asked.feasible);
                if self.cluster.assume(pod.clone(), remembered.row).is_ok() {
                    self.placed += 1;
                    self.promised.iter().for_each(|(row, uid)| {
                        if *uid == pod.uid {
                            self.nominated.remove(*row, uid);
                        }
                    });
                    self.promised.retain(|(_, uid)| *uid != pod.uid);
                }
            }
            (Err(Failure::Unfit(asked)), Err(Failure::Unfit(remembered))) => {
                assert_eq!(asked.message(), remembered.message(), "{pod:?}");
                assert_eq!(asked.diagnosis.rejectors(), remembered.diagnosis.rejectors());
                for row in self.cluster.visited() {
                    assert_eq!(
                        asked.diagnosis.code_of(*row),
                        remembered.diagnosis.code_of(*row),
                        "{pod:?} {row:?}"
                    );
                }
            }
            (Err(Failure::NoNodes), Err(Failure::NoNodes)) => {}
            (asked, remembered) => panic!("{pod:?}\n{asked:?}\n{remembered:?}"),
        }
    }

    /// A standing that was used knows every total.
    fn compare_totals(&self, pod: &Arc<Pod>, mut asked: Vec<(Row, i64)>) {
        let place = self.memory.places.get(&Arc::as_ptr(&pod.class).addr());
        let Some(place) = place.filter(|_| asked.len() > 1) else { return };
        asked.sort_unstable();
        assert_eq!(self.memory.standings[*place].standing.totals(), asked, "{pod:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn memory_and_asking_agree(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for name in 0..NODES {
            world.take(&Step::Node { name, zone: name % 4, kind: 0 });
        }
        steps.iter().for_each(|step| world.take(step));
    }
}

#[test]
fn a_class_that_comes_again_gets_a_standing() {
    let mut world = World::new();
    for name in 0..NODES {
        world.take(&Step::Node { name, zone: 1 + name % 3, kind: 0 });
    }
    for (what, template, standings) in [
        ("like no other", 0, 0),
        ("met for the first time", 3, 0),
        ("met again", 3, 1),
        ("and again", 3, 1),
        ("with a wish that states cannot tell", 9, 2),
        ("like no other, after all this", 1, 2),
    ] {
        let pod = u8::try_from(world.placed).unwrap();
        world.take(&Step::Place { pod, template, size: 10 + 3 * pod + 1 });
        assert_eq!(world.memory.standings.len(), standings, "{what}");
    }
    assert_eq!(world.placed, 6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn they_agree_where_load_counts(steps in prop::collection::vec(step(), 1..120), kind in 0..4u8) {
        let mut world = World::of(&with_load(kind));
        for node in 0..NODES {
            world.take(&Step::Node { name: node, zone: node % 4, kind: 0 });
            world.take(&Step::Metric { node, cpu: 3 * node, kind: 0 });
        }
        steps.iter().for_each(|step| world.take(step));
    }
}

/// An amount: nothing, some round number, anything, or more than the fused arithmetic takes.
fn amount(max: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        4 => (1..16u64).prop_map(move |part| max / 16 * part),
        4 => 0..max,
        1 => (40..51u32).prop_map(|bits| 1 << bits),
    ]
}

/// A node, by what there is and what is taken, and how many are like it.
#[derive(Clone, Debug)]
struct Shape {
    cpu: u64,
    memory: u64,
    taken_cpu: u64,
    taken_memory: u64,
    count: usize,
}

fn shape() -> impl Strategy<Value = Shape> {
    let amounts = (amount(64_000), amount(1 << 38), amount(40_000), amount(1 << 37));
    (amounts, 1..4usize).prop_map(|((cpu, memory, taken_cpu, taken_memory), count)| Shape {
        cpu,
        memory,
        taken_cpu,
        taken_memory,
        count,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn states_are_rated_as_plugins_rate_nodes(
        shapes in prop::collection::vec(shape(), 1..90),
        asked in prop::collection::vec((amount(9_000), amount(1 << 33)), 1..8),
    ) {
        let mut world = World::new();
        let nodes = shapes.iter().flat_map(|shape| (0..shape.count).map(move |_| shape));
        for (number, shape) in nodes.enumerate() {
            let name = format!("n{number}");
            let allocatable = json!({"cpu": format!("{}m", shape.cpu), "memory": shape.memory.to_string(), "pods": "9"});
            let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}});
            world.cluster.set_node(&serde_json::from_value(node).unwrap());
            let taken = json!({"cpu": format!("{}m", shape.taken_cpu), "memory": shape.taken_memory.to_string()});
            let there = world.compile(alone(&format!("there-{number}"), &name, taken));
            world.cluster.confirm(there);
        }
        for (number, (cpu, memory)) in asked.iter().enumerate() {
            let requests = json!({"cpu": format!("{cpu}m"), "memory": memory.to_string()});
            let pod = world.compile(alone(&format!("p{number}"), "", requests));
            world.place(&pod);
        }
    }
}

fn alone(name: &str, node: &str, requests: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"nodeName": node,
        "containers": [{"name": "c", "resources": {"requests": requests}}]}})
}
