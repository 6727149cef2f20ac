//! Estimates, sums and percentiles by worked examples, and sums against a recount. Spec: B2, B3, B6a, B6c.

use std::collections::BTreeMap;

use koord_api::annotation::load_aware::AggregationType;
use koord_api::duration::GoDuration;
use koord_api::keys::node::annotation::{RAW_ALLOCATABLE, USAGE_THRESHOLDS};
use koord_api::keys::pod::annotation::{
    LOAD_ESTIMATED_SCALING_FACTORS, LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED,
};
use koord_api::keys::pod::label::{PRIORITY_CLASS, QOS_CLASS};
use koord_api::keys::resource::{BATCH_CPU, MID_CPU, MID_MEMORY};
use serde_json::{Value, json};

use super::*;
use crate::plugins::testing::merged;
use crate::pod::Pod;
use crate::profile::args::{Aggregated, LoadAwareSchedulingArgs, Percents};
use crate::random::Random;

/// 2024-01-01T12:00:00Z.
const NOON: i64 = 1_704_110_400;

fn clock(seconds: i64) -> Value {
    json!(Time::from_seconds(seconds).to_string())
}

/// A cluster that follows load in one way.
fn follow(args: &LoadAwareSchedulingArgs) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.follow_load(&Arc::new(Settings::new(args)));
    cluster.pass_time(Time::from_seconds(NOON));
    cluster
}

fn compile(cluster: &mut Cluster, name: &str, over: &Value) -> Arc<Pod> {
    let base = json!({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"containers": [{"name": "c"}]}});
    Arc::new(cluster.compile(&serde_json::from_value(merged(base, over)).unwrap()))
}

fn place(cluster: &mut Cluster, name: &str, over: &Value) {
    let pod = compile(cluster, name, &merged(over.clone(), &json!({"spec": {"nodeName": "n"}})));
    assert_eq!(cluster.confirm(pod), None);
}

fn set_node(cluster: &mut Cluster, name: &str, over: &Value) {
    let base =
        json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64", "memory": "512Gi"}}});
    cluster.set_node(&serde_json::from_value(merged(base, over)).unwrap());
}

fn measure(cluster: &mut Cluster, object: Value) {
    let object = merged(json!({"metadata": {"name": "n"}}), &object);
    assert!(cluster.set_metric(&serde_json::from_value(object).unwrap()).is_some());
}

fn asks(requests: &Value, limits: &Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}})
}

fn cpu(amount: &str) -> Value {
    asks(&json!({"cpu": amount}), &json!({}))
}

fn labelled(key: &str, value: &str, object: &Value) -> Value {
    merged(object.clone(), &json!({"metadata": {"labels": {(key): value}}}))
}

fn class(name: &str, object: &Value) -> Value {
    labelled(PRIORITY_CLASS, name, object)
}

fn factors(text: &str, object: &Value) -> Value {
    merged(object.clone(), &json!({"metadata": {"annotations": {(LOAD_ESTIMATED_SCALING_FACTORS): text}}}))
}

/// What a pod without a word about memory is expected to use of it.
const MIB_200: i64 = 209_715_200;

#[test]
fn estimates_of_pods() {
    let none = json!({});
    let both = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let two = json!({"cpu": "2"});
    let two_containers = json!({"spec": {"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "8"}}},
        {"name": "b", "resources": {"requests": {"cpu": "6"}}}]}});
    let phases = merged(
        cpu("1"),
        &json!({"spec": {"overhead": {"cpu": "500m"},
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]}}),
    );
    let mid = class("koord-mid", &asks(&json!({(MID_CPU): "4000", (MID_MEMORY): "8Gi"}), &none));
    let custom = LoadAwareSchedulingArgs { allow_customize_estimation: true, ..Default::default() };
    let plain = LoadAwareSchedulingArgs::default();
    for (key, args, pod, want) in [
        ("scheduler-reservation-loadaware#B2.L1", &plain, cpu("4"), (3400, MIB_200)),
        (
            "scheduler-reservation-loadaware#B2.L2",
            &plain,
            asks(&json!({"cpu": "4"}), &json!({"cpu": "8"})),
            (6800, MIB_200),
        ),
        (
            "scheduler-reservation-loadaware#B2.L3",
            &plain,
            asks(&json!({"cpu": "4"}), &json!({"cpu": "4"})),
            (3400, MIB_200),
        ),
        ("scheduler-reservation-loadaware#B2.L4", &plain, none.clone(), (250, MIB_200)),
        (
            "scheduler-reservation-loadaware#B2.L5",
            &plain,
            asks(&json!({"memory": "8Gi"}), &none),
            (250, 6_012_954_214),
        ),
        (
            "scheduler-reservation-loadaware#B2.L6",
            &plain,
            class("koord-batch", &asks(&json!({(BATCH_CPU): "4000"}), &none)),
            (3400, MIB_200),
        ),
        (
            "scheduler-reservation-loadaware#B2.L7",
            &custom,
            factors(r#"{"cpu":120}"#, &asks(&two, &two)),
            (2000, MIB_200),
        ),
        ("scheduler-reservation-loadaware#B2.L8", &plain, class("koord-mid", &none), (0, 0)),
        (
            "scheduler-reservation-loadaware#B2.L9",
            &custom,
            factors(r#"{"cpu":120}"#, &cpu("2")),
            (2400, MIB_200),
        ),
        (
            "scheduler-reservation-loadaware#B2.L10 not allowed",
            &plain,
            factors(r#"{"cpu":120}"#, &cpu("2")),
            (1700, MIB_200),
        ),
        (
            "scheduler-reservation-loadaware#B2.L10 a text",
            &custom,
            factors(r#"{"cpu":"120"}"#, &cpu("2")),
            (1700, MIB_200),
        ),
        ("scheduler-reservation-loadaware#B2.L10 empty", &custom, factors("{}", &cpu("2")), (1700, MIB_200)),
        ("scheduler-reservation-loadaware#B2.L11", &custom, factors(r#"{"cpu":0}"#, &cpu("2")), (0, MIB_200)),
        (
            "scheduler-reservation-loadaware#B2.L12",
            &plain,
            class("koord-mid", &asks(&both("4", "8Gi"), &none)),
            (0, 0),
        ),
        ("scheduler-reservation-loadaware#B2.L13", &plain, mid, (3400, 6_012_954_214)),
        (
            "scheduler-reservation-loadaware#B2.L14",
            &plain,
            class("koord-batch", &asks(&both("4", "8Gi"), &none)),
            (250, MIB_200),
        ),
        ("scheduler-reservation-loadaware#B2.L15", &plain, class("koord-free", &cpu("4")), (0, 0)),
        (
            "scheduler-reservation-loadaware#B2.L16",
            &plain,
            labelled(QOS_CLASS, "BE", &cpu("4")),
            (250, MIB_200),
        ),
        (
            "scheduler-reservation-loadaware#B2.L17",
            &plain,
            asks(&none, &both("2", "1Gi")),
            (1700, 751_619_277),
        ),
        ("scheduler-reservation-loadaware#B2.L18", &plain, asks(&json!({"cpu": "4"}), &two), (2000, MIB_200)),
        ("scheduler-reservation-loadaware#B2.L19 10m", &plain, cpu("10m"), (9, MIB_200)),
        ("scheduler-reservation-loadaware#B2.L19 1m", &plain, cpu("1m"), (1, MIB_200)),
        ("scheduler-reservation-loadaware#B2.L19 0.5m", &plain, cpu("0.5m"), (1, MIB_200)),
        ("scheduler-reservation-loadaware#B2.L20 3", &plain, asks(&json!({"memory": "3"}), &none), (250, 2)),
        ("scheduler-reservation-loadaware#B2.L20 5", &plain, asks(&json!({"memory": "5"}), &none), (250, 4)),
        ("scheduler-reservation-loadaware#B2.L21", &plain, two_containers, (8000, MIB_200)),
        ("scheduler-reservation-loadaware#B2.L22", &plain, phases, (2975, MIB_200)),
    ] {
        let mut cluster = follow(args);
        let pod = compile(&mut cluster, "p", &pod);
        let load = pod.class.load.as_ref().unwrap();
        assert_eq!(load.amounts(0), [want.0, want.1], "{key}");
    }
}

#[test]
fn a_resource_without_a_twin_counts_for_prod_alone() {
    let mut args = LoadAwareSchedulingArgs::default();
    args.estimated_scaling_factors.insert("ephemeral-storage".to_owned(), 50);
    let mut cluster = follow(&args);
    let asked = asks(&json!({"ephemeral-storage": "10Gi"}), &json!({}));
    for (class_name, want) in [("koord-prod", 5_368_709_120), ("koord-batch", 0)] {
        let pod = compile(&mut cluster, class_name, &class(class_name, &asked));
        // In the order of names, between cpu and memory.
        let got = pod.class.load.as_ref().unwrap().amounts(0)[1];
        assert_eq!(got, want, "scheduler-reservation-loadaware#B2.L23 {class_name}");
    }
}

#[test]
fn pods_read_before_anybody_wants_to_know_say_nothing() {
    let mut cluster = Cluster::default();
    assert!(compile(&mut cluster, "p", &json!({})).class.load.is_none());
    let object = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    assert_eq!(cluster.set_metric(&object), None);
    assert!(cluster.row("n").is_none());
}

#[test]
fn amplified_nodes_count_as_they_are() {
    let args = LoadAwareSchedulingArgs { supported_resources: vec!["x.com/y".into()], ..Default::default() };
    let mut cluster = follow(&args);
    let gib = 1 << 30;
    for (key, text, want) in [
        ("scheduler-reservation-loadaware#B2.R1", r#"{"cpu":"32"}"#, [32_000, 512 * gib, 0]),
        ("scheduler-reservation-loadaware#B2.R2 broken", "{", [64_000, 512 * gib, 0]),
        ("scheduler-reservation-loadaware#B2.R2 empty", "", [64_000, 512 * gib, 0]),
        ("scheduler-reservation-loadaware#B2.R3", r#"{"cpu":"32","x.com/y":"3"}"#, [32_000, 512 * gib, 3]),
    ] {
        set_node(&mut cluster, "n", &json!({"metadata": {"annotations": {(RAW_ALLOCATABLE): text}}}));
        let row = cluster.row("n").unwrap();
        let got = cluster.loads().books()[0].allocatable(row);
        assert_eq!(got, want, "{key}");
    }
}

/// Sums of the node `n`, cpu only.
#[derive(Debug, PartialEq)]
struct Sums {
    node_delta: i64,
    prod_delta: i64,
    prod_usage: i64,
    node_estimated: i64,
}

fn sums(cluster: &Cluster) -> Sums {
    let account = cluster.loads().books()[0].account(cluster.row("n").unwrap()).unwrap();
    let sums = account.sums.unwrap();
    Sums {
        node_delta: sums.node_delta[0],
        prod_delta: sums.prod_delta[0],
        prod_usage: sums.prod_usage[0],
        node_estimated: sums.node_estimated[0],
    }
}

fn at(clock: &str) -> Value {
    json!(format!("2024-01-01T{clock}Z"))
}

fn since(condition: &str, at: &Value) -> Value {
    json!({"type": condition, "status": "True", "lastTransitionTime": at})
}

fn scheduled(clock: &str, object: &Value) -> Value {
    merged(object.clone(), &json!({"status": {"conditions": [since("PodScheduled", &at(clock))]}}))
}

/// The node measured at noon; `p` used this many cores.
fn metric(used: Option<&str>, priority: &str) -> Value {
    let pod = |used: &str| json!({"namespace": "d", "name": "p", "priority": priority, "podUsage": {"resources": {"cpu": used}}});
    json!({"status": {"updateTime": at("12:00:00"), "podsMetric": used.map(pod).into_iter().collect::<Vec<Value>>(),
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": "10"}}, "systemUsage": {"resources": {"cpu": "2"}}}}})
}

#[test]
fn pods_in_flight() {
    let lasting = |scheduled: Option<i64>, initialized: Option<i64>| LoadAwareSchedulingArgs {
        estimated_after_pod_scheduled: scheduled.map(GoDuration::from_seconds),
        estimated_after_initialized: initialized.map(GoDuration::from_seconds),
        allow_customize_estimation: true,
        ..Default::default()
    };
    let plain = || lasting(None, None);
    let four = cpu("4");
    let seen = || metric(Some("1"), "");
    let initialized = json!({"status": {"conditions": [
        since("PodScheduled", &at("11:50:00")), since("Initialized", &at("11:55:00"))]}});
    let own = |seconds: &str| {
        let annotations = json!({(LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED): seconds});
        scheduled("11:50:00", &merged(cpu("4"), &json!({"metadata": {"annotations": annotations}})))
    };
    for (key, args, pod, metric, want) in [
        (
            "scheduler-reservation-loadaware#B3.I1",
            plain(),
            scheduled("12:00:30", &four),
            metric(None, ""),
            3400,
        ),
        ("scheduler-reservation-loadaware#B3.I2", plain(), scheduled("11:59:30", &four), seen(), 2400),
        ("scheduler-reservation-loadaware#B3.I3", plain(), scheduled("11:50:00", &four), seen(), 0),
        (
            "scheduler-reservation-loadaware#B3.I4",
            lasting(Some(1200), None),
            scheduled("11:50:00", &four),
            seen(),
            2400,
        ),
        (
            "scheduler-reservation-loadaware#B3.I5",
            plain(),
            scheduled("11:59:30", &four),
            metric(Some("5"), ""),
            0,
        ),
        ("scheduler-reservation-loadaware#B3.I6", plain(), scheduled("11:59:00", &four), seen(), 0),
        ("scheduler-reservation-loadaware#B3.I7", plain(), scheduled("11:59:01", &four), seen(), 2400),
        (
            "scheduler-reservation-loadaware#B3.I8 exactly",
            lasting(Some(600), None),
            scheduled("11:50:00", &four),
            seen(),
            0,
        ),
        (
            "scheduler-reservation-loadaware#B3.I8 a second more",
            lasting(Some(601), None),
            scheduled("11:50:00", &four),
            seen(),
            2400,
        ),
        (
            "scheduler-reservation-loadaware#B3.I9",
            lasting(Some(3600), Some(60)),
            merged(four.clone(), &initialized),
            seen(),
            0,
        ),
        (
            "scheduler-reservation-loadaware#B3.I10",
            lasting(Some(3600), Some(60)),
            scheduled("11:50:00", &four),
            seen(),
            2400,
        ),
        (
            "scheduler-reservation-loadaware#B3.I11",
            plain(),
            scheduled("02:00:00", &four),
            metric(None, ""),
            3400,
        ),
        ("scheduler-reservation-loadaware#B3.I12 zero", lasting(Some(3600), None), own("0"), seen(), 0),
        ("scheduler-reservation-loadaware#B3.I12 below", lasting(Some(3600), None), own("-1"), seen(), 2400),
        (
            "scheduler-reservation-loadaware#B3.I13",
            plain(),
            scheduled("11:00:00", &four),
            merged(seen(), &json!({"status": {"updateTime": null}})),
            2400,
        ),
    ] {
        let mut cluster = follow(&args);
        place(&mut cluster, "p", &pod);
        measure(&mut cluster, metric);
        assert_eq!(sums(&cluster).node_delta, want, "{key}");
        assert_eq!(sums(&cluster).node_estimated, 3400, "{key}");
        cluster.release("p");
        let nothing = Sums { node_delta: 0, prod_delta: 0, prod_usage: 0, node_estimated: 0 };
        assert_eq!(sums(&cluster), nothing, "{key}: it takes away what it brought");
    }
}

#[test]
fn sums_of_prod_pods() {
    let four = cpu("4");
    let with_system = LoadAwareSchedulingArgs { prod_usage_include_sys: true, ..Default::default() };
    let plain = LoadAwareSchedulingArgs::default();
    let prod = |clock: &str| scheduled(clock, &class("koord-prod", &four));
    for (key, args, pod, reported, want) in [
        ("scheduler-reservation-loadaware#B3.N1", &plain, prod("11:00:00"), "koord-prod", (1000, 0, 0)),
        ("scheduler-reservation-loadaware#B3.N2", &plain, prod("11:59:50"), "koord-prod", (1000, 2400, 2400)),
        ("scheduler-reservation-loadaware#B3.N3", &plain, prod("11:00:00"), "koord-batch", (0, 3400, 0)),
        (
            "scheduler-reservation-loadaware#B3.N4",
            &plain,
            scheduled("11:00:00", &class("koord-batch", &four)),
            "koord-prod",
            (0, 0, 0),
        ),
        (
            "scheduler-reservation-loadaware#B3.N5",
            &plain,
            scheduled("11:00:00", &four),
            "koord-prod",
            (1000, 0, 0),
        ),
        ("scheduler-reservation-loadaware#B3.N6", &plain, scheduled("11:00:00", &four), "", (0, 3400, 0)),
        ("scheduler-reservation-loadaware#B3.N7", &with_system, prod("11:00:00"), "koord-prod", (3000, 0, 0)),
    ] {
        let mut cluster = follow(args);
        measure(&mut cluster, metric(Some("1"), reported));
        place(&mut cluster, "p", &pod);
        let Sums { node_delta, prod_delta, prod_usage, .. } = sums(&cluster);
        let got = (prod_usage, prod_delta, node_delta);
        assert_eq!(got, want, "{key}");
    }
    let mut cluster = follow(&plain);
    measure(&mut cluster, metric(Some("3"), "koord-prod"));
    let nothing = Sums { node_delta: 0, prod_delta: 0, prod_usage: 0, node_estimated: 0 };
    assert_eq!(sums(&cluster), nothing, "scheduler-reservation-loadaware#B3.N8");
}

#[test]
fn which_use_counts() {
    let window = |duration: &str, cpu: &str| json!({"duration": duration, "usage": {"p95": {"resources": {"cpu": cpu}}}});
    let object = json!({"status": {"updateTime": at("12:00:00"),
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": "30"}},
            "aggregatedNodeUsages": [window("5m", "40"), window("10m", "50")]},
        "podsMetric": [{"namespace": "d", "name": "old", "podUsage": {"resources": {"cpu": "20"}}}]}});
    let one = Percents::from([("cpu".to_owned(), 1)]);
    for (key, kind, minutes, want) in [
        ("scheduler-reservation-loadaware#B6a.G1", Some(AggregationType::P95), Some(5), (40_000, 4_000)),
        ("scheduler-reservation-loadaware#B6a.G2", Some(AggregationType::P95), None, (50_000, 4_000)),
        ("scheduler-reservation-loadaware#B6a.G3", Some(AggregationType::P95), Some(30), (0, 20_000)),
        ("scheduler-reservation-loadaware#B6a.G4", Some(AggregationType::P99), None, (30_000, 4_000)),
        ("scheduler-reservation-loadaware#B6a.G5", None, None, (30_000, 4_000)),
        ("scheduler-reservation-loadaware#B6a.G6", Some(AggregationType::P99), Some(5), (0, 20_000)),
        ("scheduler-reservation-loadaware#B6a.G7", None, Some(5), (30_000, 4_000)),
    ] {
        let args = LoadAwareSchedulingArgs {
            usage_thresholds: one.clone(),
            estimated_scaling_factors: Percents::from([("cpu".to_owned(), 100)]),
            aggregated: Some(Aggregated {
                usage_thresholds: one.clone(),
                usage_type: kind,
                usage_duration: minutes.map(|minutes| GoDuration::from_seconds(60 * minutes)),
                ..Aggregated::default()
            }),
            ..Default::default()
        };
        let mut cluster = follow(&args);
        set_node(&mut cluster, "n", &json!({}));
        place(&mut cluster, "old", &scheduled("11:00:00", &cpu("16")));
        place(&mut cluster, "new", &scheduled("12:00:00", &cpu("4")));
        measure(&mut cluster, object.clone());
        let idle = compile(&mut cluster, "idle", &class("koord-free", &json!({})));
        let load = idle.class.load.as_ref().unwrap();
        let refusal = cluster.loads().books()[0].refusal(load, cluster.row("n").unwrap());
        let Some(Refusal::Over(excess)) = refusal else { panic!("{key}: {refusal:?}") };
        let got = (excess.base, excess.in_flight);
        assert_eq!(got, want, "{key}");
    }
}

#[test]
fn an_assumed_pod_keeps_its_time_until_the_api_tells_one() {
    let mut cluster = follow(&LoadAwareSchedulingArgs::default());
    set_node(&mut cluster, "n", &json!({}));
    let row = cluster.row("n").unwrap();
    let times = |cluster: &Cluster| -> Vec<Time> {
        let account = cluster.loads().books()[0].account(row).unwrap();
        account.pods.iter().map(|(since, _)| *since).collect()
    };
    let waiting = compile(&mut cluster, "p", &cpu("4"));
    cluster.assume(waiting.clone(), row).unwrap();
    cluster.pass_time(Time::from_seconds(NOON + 30));
    place(&mut cluster, "p", &cpu("4"));
    assert_eq!(times(&cluster), [Time::from_seconds(NOON)], "nothing new was said");
    place(&mut cluster, "p", &scheduled("12:00:05", &cpu("4")));
    assert_eq!(times(&cluster), [Time::from_seconds(NOON + 5)]);
    let batch = scheduled("12:00:05", &class("koord-batch", &cpu("4")));
    measure(&mut cluster, metric(None, ""));
    assert_eq!(sums(&cluster).prod_delta, 3400);
    place(&mut cluster, "p", &batch);
    assert_eq!(sums(&cluster).prod_delta, 0, "a class by label is noticed");
    cluster.release("p");
    cluster.assume(waiting, row).unwrap();
    assert_eq!(times(&cluster), [Time::from_seconds(NOON + 30)]);
    cluster.forget("p").unwrap();
    assert_eq!(cluster.loads().books()[0].account(row).unwrap().pods, []);
    assert!(cluster.remove_metric("n"));
    assert_eq!(cluster.loads().books()[0].account(row), None, "an empty entry is none");
}

#[test]
fn a_reservation_itself_uses_nothing() {
    let mut cluster = follow(&LoadAwareSchedulingArgs::default());
    measure(&mut cluster, metric(None, ""));
    let pod = compile(&mut cluster, "r", &merged(cpu("4"), &json!({"spec": {"nodeName": "n"}})));
    assert!(pod.class.load.is_some(), "the filter asks what its template is expected to use");
    let reserve = Arc::new(Pod { reserves: Some("r".into()), ..(*pod).clone() });
    assert_eq!(cluster.confirm(reserve), None);
    let nothing = Sums { node_delta: 0, prod_delta: 0, prod_usage: 0, node_estimated: 0 };
    assert_eq!(sums(&cluster), nothing);
    assert!(cluster.release("r"));
    assert_eq!(sums(&cluster), nothing);
}

#[test]
fn measurements_run_out_one_by_one() {
    let args =
        LoadAwareSchedulingArgs { enable_schedule_when_node_metrics_expired: true, ..Default::default() };
    let mut cluster = follow(&args);
    let measured = |cluster: &mut Cluster, name: &str, second: i64| {
        let object = json!({"metadata": {"name": name}, "status": {"updateTime": clock(NOON + second)}});
        cluster.set_metric(&serde_json::from_value(object).unwrap());
    };
    for (name, second) in [("a", 0), ("b", 10), ("c", -300)] {
        set_node(&mut cluster, name, &json!({}));
        measured(&mut cluster, name, second);
    }
    assert_eq!(cluster.next_opening(), Some(Time::from_seconds(NOON + 180)));
    assert_eq!(cluster.pass_time(Time::from_seconds(NOON + 179)), Vec::<Arc<str>>::new());
    measured(&mut cluster, "a", 100);
    let end = cluster.changes().end();
    // The timer of `a` is early, never late.
    assert_eq!(cluster.pass_time(Time::from_seconds(NOON + 180)), Vec::<Arc<str>>::new());
    assert_eq!(cluster.next_opening(), Some(Time::from_seconds(NOON + 190)));
    assert_eq!(cluster.changes().end(), end, "no row changed");
    let names: Vec<String> =
        cluster.pass_time(Time::from_seconds(NOON + 400)).iter().map(|name| name.to_string()).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(cluster.changes().end(), end + 2);
    assert_eq!(cluster.next_opening(), None);
    // A report that is older than the one before runs out earlier.
    measured(&mut cluster, "a", 390);
    measured(&mut cluster, "a", 300);
    assert_eq!(cluster.pass_time(Time::from_seconds(NOON + 480)).len(), 1);
    assert_eq!(cluster.pass_time(Time::from_seconds(NOON + 900)), Vec::<Arc<str>>::new());
}

/// The API's truth.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<String, Value>,
    metrics: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
}

/// The same cluster made in one go, pods with the times that the other has for them.
fn recounted(model: &Model, args: &LoadAwareSchedulingArgs, other: &Cluster) -> Cluster {
    let mut cluster = follow(args);
    cluster.pass_time(other.loads().now());
    for metric in model.metrics.values() {
        cluster.set_metric(&serde_json::from_value(metric.clone()).unwrap());
    }
    for (name, node) in &model.nodes {
        set_node(&mut cluster, name, node);
    }
    for held in other.all_held() {
        let node = other.node(held.row).name.to_string();
        let told = json!([since("PodScheduled", &json!(held.since.to_string()))]);
        let mut object = merged(model.pods[&*held.pod.uid].clone(), &json!({"spec": {"nodeName": node}}));
        let initialized = object["status"]["conditions"].as_array().into_iter().flatten();
        let kept: Vec<Value> = initialized.filter(|c| c["type"] == "Initialized").cloned().collect();
        object["status"]["conditions"] =
            json!([told.as_array().unwrap().as_slice(), kept.as_slice()].concat());
        let pod = compile(&mut cluster, &held.pod.key.name, &object);
        assert_eq!(cluster.confirm(pod), None);
    }
    cluster
}

fn accounts(cluster: &Cluster, names: impl Iterator<Item = String>) -> BTreeMap<String, Option<Account>> {
    let book = &cluster.loads().books()[0];
    names.map(|name| (name.clone(), cluster.row(&name).and_then(|row| book.account(row)))).collect()
}

/// A pod of one of a few kinds.
fn random_pod(random: &mut Random, now: i64) -> Value {
    let classes = ["koord-prod", "koord-batch", "koord-mid", "koord-free", ""];
    let mut object = cpu(["1", "2", "4", "500m"][random.below(4)]);
    match classes[random.below(5)] {
        "" => {}
        name => object = class(name, &object),
    }
    let mut conditions = Vec::new();
    if random.below(2) == 0 {
        conditions.push(since("PodScheduled", &clock(now - i64::try_from(random.below(200)).unwrap())));
    }
    if random.below(3) == 0 {
        conditions.push(since("Initialized", &clock(now - i64::try_from(random.below(100)).unwrap())));
    }
    merged(object, &json!({"status": {"conditions": conditions}}))
}

fn random_metric(random: &mut Random, name: &str, now: i64) -> Value {
    let usage =
        |random: &mut Random| json!({"resources": {"cpu": random.below(8).to_string(), "memory": "1Gi"}});
    let pods: Vec<Value> = (0..random.below(8))
        .map(|_| {
            let priority = ["koord-prod", "koord-batch", ""][random.below(3)];
            json!({"namespace": "d", "name": format!("p{}", random.below(20)), "priority": priority, "podUsage": usage(random)})
        })
        .collect();
    let mut object = json!({"metadata": {"name": name}, "status": {"podsMetric": pods,
        "nodeMetric": {"nodeUsage": usage(random), "systemUsage": usage(random)}}});
    if random.below(10) > 0 {
        object["status"]["updateTime"] = clock(now - i64::try_from(random.below(100)).unwrap());
    }
    object
}

/// One random thing that happens.
fn happen(random: &mut Random, cluster: &mut Cluster, model: &mut Model, now: &mut i64) {
    let node = format!("n{}", random.below(5));
    let pod = format!("p{}", random.below(20));
    match random.below(10) {
        0 => {
            let annotations = match random.below(3) {
                0 => json!({}),
                1 => json!({(USAGE_THRESHOLDS): r#"{"usageThresholds":{"cpu":10}}"#}),
                _ => json!({(RAW_ALLOCATABLE): r#"{"cpu":"8"}"#}),
            };
            let object = json!({"metadata": {"annotations": annotations}});
            set_node(cluster, &node, &object);
            model.nodes.insert(node, object);
        }
        1 => {
            cluster.remove_node(&node);
            model.nodes.remove(&node);
        }
        2 | 3 => {
            let object = random_metric(random, &node, *now);
            cluster.set_metric(&serde_json::from_value(object.clone()).unwrap());
            model.metrics.insert(node, object);
        }
        4 => {
            cluster.remove_metric(&node);
            model.metrics.remove(&node);
        }
        5 => {
            *now += i64::try_from(random.below(90)).unwrap();
            cluster.pass_time(Time::from_seconds(*now));
        }
        6 => drop(cluster.release(&pod)),
        7 => {
            let object = random_pod(random, *now);
            let record = compile(cluster, &pod, &object);
            if let Some(row) = cluster.row(&node)
                && cluster.assume(record, row).is_ok()
            {
                model.pods.insert(pod, object);
            }
        }
        _ => {
            let object = random_pod(random, *now);
            let placed = merged(object.clone(), &json!({"spec": {"nodeName": node}}));
            let record = compile(cluster, &pod, &placed);
            cluster.confirm(record);
            model.pods.insert(pod, object);
        }
    }
}

#[test]
fn sums_equal_a_rebuild_after_any_history() {
    let args = LoadAwareSchedulingArgs {
        prod_usage_include_sys: true,
        estimated_after_pod_scheduled: Some(GoDuration::from_seconds(90)),
        estimated_after_initialized: Some(GoDuration::from_seconds(30)),
        ..Default::default()
    };
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let (mut cluster, mut model, mut now) = (follow(&args), Model::default(), NOON);
        for step in 0..1000 {
            happen(&mut random, &mut cluster, &mut model, &mut now);
            let before = cluster.loads.books[0].all_sums();
            cluster.loads.books[0].rebuild_all();
            assert_eq!(before, cluster.loads.books[0].all_sums(), "seed {seed} step {step}");
            if step % 50 == 0 {
                let names = || (0..5).map(|number| format!("n{number}"));
                let again = recounted(&model, &args, &cluster);
                assert_eq!(accounts(&cluster, names()), accounts(&again, names()), "seed {seed} step {step}");
            }
        }
        assert!(cluster.pod_count() > 5, "seed {seed}");
    }
}
