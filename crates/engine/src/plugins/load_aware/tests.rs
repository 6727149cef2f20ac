//! Worked examples of filter and score, and what wakes pods. Spec: scheduler-reservation-loadaware B4, B5.

use koord_api::annotation::load_aware::AggregationType;
use koord_api::duration::GoDuration;
use koord_api::keys::node::annotation::{RAW_ALLOCATABLE, USAGE_THRESHOLDS};
use koord_api::keys::pod::label::PRIORITY_CLASS;
use koord_api::keys::resource::BATCH_CPU;
use serde_json::{Value, json};

use super::*;
use crate::framework::event::Event;
use crate::plugins::testing::{World, merged};
use crate::pod::Pod;
use crate::profile::args::{Aggregated, Percents};
use crate::time::Time;

/// 2024-01-01T12:00:00Z, when nodes are measured.
const NOON: i64 = 1_704_110_400;

fn time(seconds_after_noon: i64) -> String {
    Time::from_seconds(NOON + seconds_after_noon).to_string()
}

/// One node of 96 cores and 512Gi, measured at noon, which is now.
struct Lab {
    args: LoadAwareSchedulingArgs,
    node: Value,
    /// None where the node was not measured.
    metric: Option<Value>,
    /// Seconds after noon.
    now: i64,
    pods: Vec<(&'static str, Value)>,
}

fn percents(list: &[(&str, i64)]) -> Percents {
    list.iter().map(|(name, percent)| ((*name).to_owned(), *percent)).collect()
}

fn resources(cpu: &str, memory: &str) -> Value {
    json!({"resources": {"cpu": cpu, "memory": memory}})
}

/// A node that uses this much.
fn lab(cpu: &str, memory: &str) -> Lab {
    // What a pod asks for is what it is expected to use.
    let estimated_scaling_factors = percents(&[("cpu", 100), ("memory", 100)]);
    let args = LoadAwareSchedulingArgs { estimated_scaling_factors, ..LoadAwareSchedulingArgs::default() };
    Lab {
        args,
        node: json!({"status": {"allocatable": {"cpu": "96", "memory": "512Gi", "pods": "110"}}}),
        metric: Some(
            json!({"status": {"updateTime": time(0), "nodeMetric": {"nodeUsage": resources(cpu, memory)}}}),
        ),
        now: 0,
        pods: Vec::new(),
    }
}

fn busy(cpu: &str) -> Lab {
    lab(cpu, "1Gi")
}

impl Lab {
    fn args(mut self, change: impl FnOnce(&mut LoadAwareSchedulingArgs)) -> Lab {
        change(&mut self.args);
        self
    }

    fn default_factors(self) -> Lab {
        self.args(|args| args.estimated_scaling_factors = LoadAwareSchedulingArgs::default_factors())
    }

    fn aggregated(self, given: Aggregated) -> Lab {
        self.args(|args| args.aggregated = Some(given))
    }

    fn node(mut self, over: Value) -> Lab {
        self.node = merged(self.node, &over);
        self
    }

    fn annotated(self, key: &str, text: &str) -> Lab {
        self.node(json!({"metadata": {"annotations": {(key): text}}}))
    }

    fn metric(mut self, over: &Value) -> Lab {
        self.metric = self.metric.map(|metric| merged(metric, over));
        self
    }

    fn recorded(self, list: Value) -> Lab {
        self.metric(&json!({"status": {"nodeMetric": {"aggregatedNodeUsages": list}}}))
    }

    fn unmeasured(mut self) -> Lab {
        self.metric = None;
        self
    }

    fn at(mut self, seconds: i64) -> Lab {
        self.now = seconds;
        self
    }

    /// A pod on the node.
    fn pod(mut self, name: &'static str, object: Value) -> Lab {
        self.pods.push((name, object));
        self
    }

    fn world(&self) -> (World, Hooks) {
        let hooks = build(&self.args);
        let mut world = World::new();
        world.cluster.follow_load(hooks.load.as_ref().unwrap());
        world.cluster.pass_time(Time::from_seconds(NOON));
        world.node("n", self.node.clone());
        for (name, object) in &self.pods {
            world.place(name, "n", object.clone());
        }
        if let Some(metric) = &self.metric {
            measure(&mut world, metric);
        }
        world.cluster.pass_time(Time::from_seconds(NOON + self.now));
        (world, hooks)
    }

    fn refusal(&self, pod: Value) -> String {
        let (mut world, hooks) = self.world();
        let pod = world.pod("p", pod);
        world.filtered(&hooks, &pod).concat()
    }

    fn score(&self, pod: Value) -> i64 {
        let (mut world, hooks) = self.world();
        let pod = world.pod("p", pod);
        world.rated(&hooks, &pod)[0]
    }
}

fn measure(world: &mut World, metric: &Value) {
    let object = merged(json!({"metadata": {"name": "n"}}), metric);
    assert!(world.cluster.set_metric(&serde_json::from_value(object).unwrap()).is_some());
}

fn asks(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn class(name: &str, object: &Value) -> Value {
    merged(object.clone(), &json!({"metadata": {"labels": {(PRIORITY_CLASS): name}}}))
}

fn scheduled(seconds_after_noon: i64, object: &Value) -> Value {
    let condition =
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": time(seconds_after_noon)}]);
    merged(object.clone(), &json!({"status": {"conditions": condition}}))
}

/// Expected to use nothing.
fn idle() -> Value {
    class("koord-free", &json!({}))
}

const CPU_OVER: &str = "node(s) cpu usage exceed threshold";
const CPU_OVER_AGGREGATED: &str = "node(s) cpu aggregated usage exceed threshold";
const MEMORY_OVER: &str = "node(s) memory usage exceed threshold";
const EXPIRED: &str = "node(s) nodeMetric expired";

fn p95(duration: Option<i64>) -> Aggregated {
    Aggregated {
        usage_thresholds: percents(&[("cpu", 65)]),
        usage_type: Some(AggregationType::P95),
        usage_duration: duration.map(GoDuration::from_seconds),
        ..Aggregated::default()
    }
}

fn window(duration: &str, kind: &str, cpu: &str) -> Value {
    json!({"duration": duration, "usage": {(kind): {"resources": {"cpu": cpu}}}})
}

#[test]
fn plain_thresholds() {
    let daemon = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": true},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "2"}]}});
    let off = |args: &mut LoadAwareSchedulingArgs| {
        args.usage_thresholds = percents(&[("cpu", 0), ("memory", 0)]);
    };
    let no_cpu = json!({"status": {"allocatable": {"cpu": "0"}}});
    for (key, lab, pod, want) in [
        ("scheduler-reservation-loadaware#B4.F1", busy("60"), asks("6800m"), CPU_OVER),
        ("scheduler-reservation-loadaware#B4.F2", busy("60"), asks("2800m"), ""),
        ("scheduler-reservation-loadaware#B4.F3", busy("62.4"), asks("500m"), CPU_OVER),
        ("scheduler-reservation-loadaware#B4.F4", busy("62.38"), asks("500m"), CPU_OVER),
        ("scheduler-reservation-loadaware#B4.F5", busy("62.379"), asks("500m"), ""),
        ("scheduler-reservation-loadaware#B4.F6", lab("90", "511Gi"), asks("1"), CPU_OVER),
        ("memory alone", lab("1", "511Gi"), asks("1"), MEMORY_OVER),
        ("scheduler-reservation-loadaware#B4.F7", busy("90"), merged(asks("4"), &daemon), ""),
        ("scheduler-reservation-loadaware#B4.F8", busy("90").unmeasured(), asks("1"), ""),
        ("a second too young", busy("1").at(179), asks("1"), ""),
        ("scheduler-reservation-loadaware#B4.F9", busy("1").at(180), asks("1"), EXPIRED),
        (
            "scheduler-reservation-loadaware#B4.F10",
            busy("95").at(180).args(|args| args.enable_schedule_when_node_metrics_expired = true),
            asks("1"),
            "",
        ),
        (
            "scheduler-reservation-loadaware#B4.F11",
            busy("95").at(1800).args(|args| args.filter_expired_node_metrics = false),
            asks("1"),
            CPU_OVER,
        ),
        (
            "scheduler-reservation-loadaware#B4.F12",
            busy("1").metric(&json!({"status": {"updateTime": null}})),
            asks("1"),
            EXPIRED,
        ),
        (
            "scheduler-reservation-loadaware#B4.F13",
            busy("95").metric(&json!({"status": {"nodeMetric": null}})),
            asks("1"),
            "",
        ),
        ("scheduler-reservation-loadaware#B4.F14", busy("95").at(180).args(off), asks("1"), ""),
        ("scheduler-reservation-loadaware#B4.F15", busy("95").node(no_cpu.clone()), asks("1"), ""),
        (
            "scheduler-reservation-loadaware#B4.F15 memory",
            lab("95", "511Gi").node(no_cpu),
            asks("1"),
            MEMORY_OVER,
        ),
        (
            "scheduler-reservation-loadaware#B4.F16",
            busy("31").annotated(RAW_ALLOCATABLE, r#"{"cpu":"48"}"#),
            asks("1"),
            CPU_OVER,
        ),
        (
            "scheduler-reservation-loadaware#B4.F17",
            lab("70", "511Gi").annotated(USAGE_THRESHOLDS, r#"{"usageThresholds":{"cpu":80}}"#),
            asks("1"),
            "",
        ),
        (
            "scheduler-reservation-loadaware#B4.F18 broken",
            busy("70").annotated(USAGE_THRESHOLDS, "{"),
            asks("1"),
            CPU_OVER,
        ),
        (
            "scheduler-reservation-loadaware#B4.F18 empty",
            busy("70").annotated(USAGE_THRESHOLDS, "{}"),
            asks("1"),
            CPU_OVER,
        ),
        (
            "scheduler-reservation-loadaware#B4.F19",
            busy("95").annotated(USAGE_THRESHOLDS, r#"{"usageThresholds":{"cpu":0}}"#),
            asks("1"),
            "",
        ),
        (
            "a name that nobody knows",
            busy("95").annotated(USAGE_THRESHOLDS, r#"{"usageThresholds":{"example.com/x":1}}"#),
            asks("1"),
            "",
        ),
    ] {
        assert_eq!(lab.refusal(pod), want, "{key}");
    }
    assert!(
        busy("90").score(merged(asks("4"), &daemon)) > 0,
        "scheduler-reservation-loadaware#B4.F7: scored"
    );
}

#[test]
fn aggregated_and_prod_thresholds() {
    let two = json!([window("5m", "p95", "70"), window("10m", "p95", "40")]);
    let estimated =
        |cpu: &'static str| busy("90").aggregated(p95(Some(1800))).recorded(two.clone()).pod("a", asks(cpu));
    let p99 = Aggregated { usage_type: Some(AggregationType::P99), ..p95(None) };
    let zero = Aggregated { usage_thresholds: percents(&[("cpu", 0)]), ..p95(None) };
    let untyped = Aggregated { usage_type: None, ..p95(None) };
    let prod =
        |lab: Lab| lab.default_factors().args(|args| args.prod_usage_thresholds = percents(&[("cpu", 55)]));
    // 45 cores of prod pods are seen, and one of them is so new that it is not.
    let two_prods = || {
        let seen = json!({"namespace": "d", "name": "old", "priority": "koord-prod", "podUsage": resources("45", "1Gi")});
        prod(busy("50"))
            .pod("old", scheduled(-3600, &class("koord-prod", &asks("40"))))
            .pod("new", scheduled(0, &class("koord-prod", &asks("4"))))
            .metric(&json!({"status": {"podsMetric": [seen]}}))
    };
    let batch = class(
        "koord-batch",
        &json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {(BATCH_CPU): "8k"}}}]}}),
    );
    for (key, lab, pod, want) in [
        (
            "scheduler-reservation-loadaware#B4.F20",
            busy("10").aggregated(p95(Some(300))).recorded(json!([window("5m", "p95", "70")])),
            asks("1"),
            CPU_OVER_AGGREGATED,
        ),
        ("scheduler-reservation-loadaware#B4.F21", busy("90").aggregated(p95(None)).recorded(two.clone()), asks("1"), ""),
        ("scheduler-reservation-loadaware#B4.F22 20C", estimated("20"), asks("1"), ""),
        ("scheduler-reservation-loadaware#B4.F22 63C", estimated("63"), asks("1"), CPU_OVER_AGGREGATED),
        (
            "scheduler-reservation-loadaware#B4.F23",
            busy("70").aggregated(p99).recorded(json!([{"duration": "5m", "usage": {"p99": {"resources": {}}}}])),
            asks("1"),
            CPU_OVER_AGGREGATED,
        ),
        ("scheduler-reservation-loadaware#B4.F24", busy("95").aggregated(zero), asks("1"), ""),
        ("scheduler-reservation-loadaware#B4.F25", busy("70").aggregated(untyped), asks("1"), CPU_OVER),
        ("scheduler-reservation-loadaware#B4.F26", two_prods(), class("koord-prod", &asks("8")), CPU_OVER),
        ("scheduler-reservation-loadaware#B4.F26 Burstable", two_prods(), asks("8"), CPU_OVER),
        ("scheduler-reservation-loadaware#B4.F27", two_prods(), batch, ""),
        ("scheduler-reservation-loadaware#B4.F28", prod(busy("95")), class("koord-prod", &asks("1")), ""),
        (
            "prod limits of the node's own",
            busy("10").annotated(USAGE_THRESHOLDS, r#"{"prodUsageThresholds":{"cpu":1}}"#),
            asks("8"),
            CPU_OVER,
        ),
        (
            "aggregation of the node's own",
            busy("10").recorded(two.clone()).annotated(
                USAGE_THRESHOLDS,
                r#"{"aggregatedUsage":{"usageThresholds":{"cpu":65},"usageAggregationType":"p95","usageAggregatedDuration":"5m"}}"#,
            ),
            asks("1"),
            CPU_OVER_AGGREGATED,
        ),
    ] {
        assert_eq!(lab.refusal(pod), want, "{key}");
    }
}

#[test]
fn numbers_stand_behind_a_refusal() {
    let lab = busy("60").pod("a", scheduled(0, &asks("2"))).pod("b", scheduled(-3600, &asks("1")));
    let (mut world, hooks) = lab.world();
    let pod = world.pod("p", asks("6800m"));
    let status = world.statuses(&hooks, &pod).remove(0).unwrap();
    assert_eq!((status.code, status.plugin), (Code::Unschedulable, NAME));
    let Facts::Load(facts) = &status.reasons[0].facts else { panic!("{status:?}") };
    let want = LoadFacts {
        resource: "cpu".into(),
        threshold: 65,
        expected: 73,
        measured: Some(Time::from_seconds(NOON)),
        used: 60_000,
        in_flight: 3_000,
        in_flight_pods: 2,
        incoming: 6_800,
        allocatable: 96_000,
        is_of_prod: false,
        is_estimated: false,
    };
    assert_eq!(**facts, want);
}

#[test]
fn scores() {
    let half = || lab("48", "128Gi");
    let weights = |list: &'static [(&'static str, i64)], dominant: i64| {
        move |args: &mut LoadAwareSchedulingArgs| {
            (args.resource_weights, args.dominant_resource_weight) = (percents(list), dominant);
        }
    };
    const BOTH: &[(&str, i64)] = &[("cpu", 1), ("memory", 1)];
    let asked = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4", "memory": "8Gi"}}}]}});
    let by_p95 = Aggregated {
        score_type: Some(AggregationType::P95),
        score_duration: Some(GoDuration::from_seconds(300)),
        ..Aggregated::default()
    };
    for (key, lab, pod, want) in [
        ("scheduler-reservation-loadaware#B5.S1", half(), idle(), 62),
        ("scheduler-reservation-loadaware#B5.S2", half().args(weights(BOTH, 1)), idle(), 58),
        ("scheduler-reservation-loadaware#B5.S3", half().args(weights(&[], 1)), idle(), 50),
        (
            "scheduler-reservation-loadaware#B5.S4",
            half().args(weights(&[("cpu", 3), ("memory", 1)], 0)),
            idle(),
            56,
        ),
        ("scheduler-reservation-loadaware#B5.S5", lab("97", "128Gi"), idle(), 37),
        (
            "scheduler-reservation-loadaware#B5.S6",
            lab("1", "1Gi").node(json!({"status": {"allocatable": {"cpu": "3", "memory": "3Gi"}}})),
            idle(),
            66,
        ),
        (
            "scheduler-reservation-loadaware#B5.S7",
            half().args(|args| {
                weights(BOTH, 1)(args);
                args.estimated_scaling_factors.insert("x.com/y".to_owned(), 100);
            }),
            idle(),
            58,
        ),
        ("scheduler-reservation-loadaware#B5.S8", half().default_factors(), asked.clone(), 59),
        (
            "scheduler-reservation-loadaware#B5.S9",
            half().default_factors().args(|args| args.score_according_prod_usage = true),
            class("koord-prod", &asked),
            97,
        ),
        (
            "scheduler-reservation-loadaware#B5.S10",
            lab("10", "128Gi").aggregated(by_p95).recorded(json!([window("5m", "p95", "70")])),
            idle(),
            63,
        ),
        (
            "scheduler-reservation-loadaware#B5.S11",
            half().node(json!({"status": {"allocatable": {"memory": "0"}}})),
            idle(),
            25,
        ),
        (
            "scheduler-reservation-loadaware#B5.S12",
            half().at(180).args(|args| args.filter_expired_node_metrics = false),
            idle(),
            0,
        ),
        ("no weights", half().args(weights(&[], 0)), idle(), 0),
        ("not measured", half().unmeasured(), idle(), 0),
        ("only pods measured", half().metric(&json!({"status": {"nodeMetric": null}})), idle(), 0),
    ] {
        assert_eq!(lab.score(pod), want, "{key}");
    }
}

#[test]
fn what_wakes_a_pod() {
    let metrics = |action| Event::new(Resource::node_metrics(), action);
    let of = |name: &str| Change::Object { namespace: "".into(), name: name.into() };
    let (mut world, hooks) = busy("90").pod("a", scheduled(0, &asks("40"))).world();
    let pod = world.pod("p", asks("1"));
    let wakes = |world: &World, pod: &Arc<Pod>| world.wakes(&hooks, pod, &metrics(Action::UPDATE), &of("n"));
    assert!(!wakes(&world, &pod), "still too busy");
    assert!(!world.wakes(&hooks, &pod, &metrics(Action::ADD), &of("nobody")), "no such node");
    let cool =
        json!({"status": {"updateTime": time(0), "nodeMetric": {"nodeUsage": resources("20", "1Gi")}}});
    measure(&mut world, &cool);
    assert!(wakes(&world, &pod), "20 and 40 in flight of 96");
    let large = world.pod("large", asks("10"));
    assert!(!wakes(&world, &large));
    let a = world.cluster.held("a").unwrap().pod.clone();
    world.cluster.release("a");
    assert!(world.pod_wakes(&hooks, &large, Some(&a), None), "what was in flight is gone");
    let waiting = world.pod("b", asks("1"));
    assert!(!world.pod_wakes(&hooks, &large, Some(&waiting), None), "it was in nobody's sum");
    let less = world.pod("large", asks("1"));
    assert!(world.pod_wakes(&hooks, &less, Some(&large), Some(&less)), "it asks for less itself");
    assert!(world.node_wakes(&hooks, &large, "new", json!({})), "a node that nobody has measured");
    let hot = json!({"status": {"updateTime": time(0), "nodeMetric": {"nodeUsage": resources("90", "1Gi")}}});
    measure(&mut world, &hot);
    let text = r#"{"usageThresholds":{"cpu":99}}"#;
    let annotated = json!({"metadata": {"annotations": {(USAGE_THRESHOLDS): text}},
        "status": {"allocatable": {"cpu": "96", "memory": "512Gi"}}});
    assert!(!wakes(&world, &less));
    assert!(world.node_wakes(&hooks, &less, "n", annotated), "limits of its own");
    assert!(world.cluster.remove_metric("n"));
    assert!(world.wakes(&hooks, &large, &metrics(Action::DELETE), &of("n")), "nobody knows any more");
}
