use std::collections::HashMap;
use std::sync::Arc;

use koord_api::gate::Component;
use koord_engine::profile::expand::Enabled;
use koord_engine::profile::point::Point;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::brain::View;
use crate::clock::Clock;
use crate::driver::{Parts, start};
use crate::dump::Switches;
use crate::fake::{FakeApi, FakeBrain, Reply};
use crate::load::Load;
use crate::metrics::SchedulerMetrics;
use crate::monitor::Monitor;

/// What a watch is told by, until the test is over.
type Streams = Arc<Mutex<HashMap<String, mpsc::UnboundedSender<String>>>>;

/// Serves these items, by path, and watches that can be fed.
fn server(
    items: &'static [(&'static str, &'static str)],
    missing: &'static [&'static str],
) -> (FakeApi, Streams) {
    let streams = Streams::default();
    let feeds = streams.clone();
    let api = FakeApi::new(move |seen| {
        let (path, query) = seen.line.strip_prefix("GET ").unwrap().split_once('?').unwrap();
        if missing.contains(&path) {
            return Reply::refused(404, "the server could not find the requested resource");
        }
        if query.contains("watch=true") {
            let (feed, lines) = mpsc::unbounded_channel();
            feeds.lock().unwrap().insert(path.to_owned(), feed);
            return Reply::Stream(lines);
        }
        let listed: Vec<Value> = items
            .iter()
            .filter(|(at, _)| *at == path)
            .map(|(_, text)| serde_json::from_str(text).unwrap())
            .collect();
        Reply::Answer(200, json!({"metadata": {"resourceVersion": "10"}, "items": listed}).to_string())
    });
    (api, streams)
}

struct Hands;

impl crate::driver::Hands for Hands {
    fn take(&mut self, _: koord_engine::engine::Command) {}
}

/// Runs watches into a scripted engine.
fn run(api: &FakeApi, gates: &str) -> (FakeBrain, Desk, usize, CancellationToken) {
    run_with(api, gates, &[])
}

fn run_with(api: &FakeApi, gates: &str, profiles: &[Profile]) -> (FakeBrain, Desk, usize, CancellationToken) {
    let gates = Gates::parse(Component::Scheduler, gates).unwrap();
    let watches = Watches::new(&api.client(), &gates, &KitMetrics::unregistered(), None, profiles);
    let brain = FakeBrain::default();
    let (_, outcomes) = mpsc::unbounded_channel();
    let parts = Parts {
        brain: brain.clone(),
        hands: Hands,
        outcomes,
        load: Arc::new(Load::default()),
        clock: Clock::start(),
        monitor: Monitor::new(crate::flags::Monitor {
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            drop_unhandled_after: Duration::from_secs(5),
        }),
        switches: Arc::new(Switches::default()),
        metrics: SchedulerMetrics::default(),
        watches: watches.len(),
    };
    let stop = CancellationToken::new();
    let (desk, _thread) = start(parts, stop.clone(), stop.clone()).unwrap();
    let count = watches.len();
    assert!(!watches.is_empty());
    assert!(watches.checks().iter().all(|check| check().is_err()), "nothing is listed yet");
    watches.start(&desk, &stop, &|task| _ = tokio::spawn(task));
    (brain, desk, count, stop)
}

const PODS: &str = "/api/v1/pods";
const UID: &str = "0b0e7d1a-0000-4000-8000-00000000000a";

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_told_in_order_and_nothing_is_kept() {
    let (api, streams) = server(
        &[
            (
                PODS,
                r#"{"metadata":{"name":"a","namespace":"ns","uid":"0b0e7d1a-0000-4000-8000-00000000000a","resourceVersion":"1",
                   "labels":{"scheduling.koordinator.sh/scheduler-name":"other"}},"spec":{"containers":[]}}"#,
            ),
            (
                "/api/v1/nodes",
                r#"{"metadata":{"name":"n","uid":"odd uid","resourceVersion":"2"},
                "status":{"allocatable":{"koordinator.sh/batch-cpu":"7"}}}"#,
            ),
            (
                "/apis/apps/v1/statefulsets",
                r#"{"metadata":{"name":"s","namespace":"ns","uid":"u","resourceVersion":"3"}}"#,
            ),
        ],
        &[],
    );
    let (brain, desk, count, stop) = run(&api, "");
    desk.all_listed(count).await;
    let taken = brain.with(|state| std::mem::take(&mut state.taken));
    assert_eq!(taken.len(), 3, "{taken:?}");
    let pod = taken.iter().find_map(|input| match input {
        Input::Pod { object } => Some(object),
        _ => None,
    });
    let spec = pod.unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.scheduler_name.as_deref(), Some("other"), "transformers have run");
    let node = taken.iter().find_map(|input| match input {
        Input::Node { object } => object.status.as_ref()?.allocatable.clone(),
        _ => None,
    });
    assert!(node.unwrap().contains_key("kubernetes.io/batch-cpu"));
    let lists: Vec<String> = api.lines().into_iter().filter(|line| line.contains(PODS)).collect();
    assert!(
        lists[0].contains("fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"),
        "{lists:?}"
    );
    while streams.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
    let feed = |path: &str, line: Value| {
        streams.lock().unwrap()[path].send(format!("{line}\n")).unwrap();
    };
    let object = |version: &str| json!({"metadata": {"name": "a", "namespace": "ns", "uid": UID, "resourceVersion": version}});
    feed(PODS, json!({"type": "MODIFIED", "object": object("11")}));
    feed(PODS, json!({"type": "DELETED", "object": object("12")}));
    feed(
        "/api/v1/nodes",
        json!({"type": "DELETED", "object": {"metadata": {"name": "n", "uid": "odd uid", "resourceVersion": "13"}}}),
    );
    let gone = [
        Input::PodGone { namespace: "ns".into(), name: "a".into(), uid: UID.into() },
        Input::NodeGone { name: "n".into() },
    ];
    while !brain.with(|state| gone.iter().all(|input| state.taken.contains(input))) {
        desk.ask(View::Queue).await.unwrap();
    }
    // Kinds are watched side by side; within one the order is kept.
    let places = brain.with(|state| {
        let place = |is_it: fn(&Input) -> bool| state.taken.iter().position(is_it);
        (
            place(|input| matches!(input, Input::Pod { .. })),
            place(|input| matches!(input, Input::PodGone { .. })),
        )
    });
    assert!(places.0.is_some() && places.0 < places.1, "{places:?}");
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn older_clusters_lack_kinds_or_serve_them_under_other_versions() {
    let budget = r#"{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget",
        "metadata":{"name":"b","namespace":"ns","uid":"u","resourceVersion":"1"}}"#;
    let items: &'static [(&str, &str)] = vec![("/apis/policy/v1beta1/poddisruptionbudgets", budget)].leak();
    let (api, _streams) = server(items, &["/apis/policy/v1/poddisruptionbudgets"]);
    let (brain, desk, count, stop) =
        run(&api, "CompatiblePodDisruptionBudget=true,DisableCSIStorageCapacityInformer=true");
    desk.all_listed(count).await;
    assert!(brain.with(|state| matches!(&state.taken[..], [Input::Budget { .. }])));
    assert!(!api.lines().iter().any(|line| line.contains("csistoragecapacities")));
    stop.cancel();
    let (all, none) = (
        Watches::new(
            &api.client(),
            &Gates::parse(Component::Scheduler, "").unwrap(),
            &KitMetrics::unregistered(),
            None,
            &[],
        ),
        count,
    );
    assert_eq!(all.len(), none + 1);
}

/// The default plugins and LoadAwareScheduling.
fn with_load() -> Profile {
    let mut profile = Profile::standard("s");
    profile.points[Point::Filter].push(Enabled { plugin: "LoadAwareScheduling", weight: 1 });
    profile
}

const NODE_METRICS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";

#[tokio::test(flavor = "multi_thread")]
async fn the_load_of_nodes_is_watched_where_it_counts() {
    let metric = r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"1"},
        "status":{"updateTime":"2024-01-01T12:00:00Z","nodeMetric":{"nodeUsage":{"resources":{"cpu":"3"}}}}}"#;
    let items: &'static [(&str, &str)] = vec![(NODE_METRICS, metric)].leak();
    let (api, streams) = server(items, &[]);
    let (_, desk, plain, stop) = run(&api, "");
    desk.all_listed(plain).await;
    assert!(!api.lines().iter().any(|line| line.contains(NODE_METRICS)), "nobody asked for it");
    stop.cancel();
    let (brain, desk, count, stop) = run_with(&api, "", &[with_load()]);
    assert_eq!(count, plain + 1);
    desk.all_listed(count).await;
    assert!(brain.with(|state| matches!(&state.taken[..], [Input::NodeMetric { .. }])));
    while !streams.lock().unwrap().contains_key(NODE_METRICS) {
        tokio::task::yield_now().await;
    }
    let gone =
        json!({"type": "DELETED", "object": {"metadata": {"name": "n", "uid": "u", "resourceVersion": "2"}}});
    streams.lock().unwrap()[NODE_METRICS].send(format!("{gone}\n")).unwrap();
    let told = Input::NodeMetricGone { name: "n".into() };
    while !brain.with(|state| state.taken.contains(&told)) {
        desk.ask(View::Queue).await.unwrap();
    }
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_let_pods_be_changed_on_their_way() {
    let (api, _streams) = server(
        &[(
            PODS,
            r#"{"metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1",
                "labels":{"koordinator.sh/priority-class":"koord-batch"},
                "annotations":{"pod.koordinator.sh/replace-resources":"example.com/a:example.com/b"}},
                "spec":{"containers":[{"name":"c","resources":{"requests":{"example.com/a":"3"}}}]}}"#,
        )],
        &[],
    );
    let spec = async |gates: &str| {
        let (brain, desk, count, stop) = run(&api, gates);
        desk.all_listed(count).await;
        stop.cancel();
        let taken = brain.with(|state| std::mem::take(&mut state.taken));
        let [Input::Pod { object }] = taken.as_slice() else { panic!("{taken:?}") };
        object.spec.clone().unwrap()
    };
    let plain = spec("").await;
    assert_eq!((plain.priority, plain.preemption_policy), (None, None));
    let requests = |spec: &core::PodSpec| {
        let resources = spec.containers[0].resources.clone().unwrap();
        resources.requests.unwrap().into_keys().collect::<Vec<String>>()
    };
    assert_eq!(requests(&spec("").await), ["example.com/a"]);
    let on = "PriorityTransformer=true,PreemptionPolicyTransformer=true,ReplaceResourcesTransformer=true";
    let changed = spec(on).await;
    assert_eq!((changed.priority, changed.preemption_policy.as_deref()), (Some(5500), Some("Never")));
    assert_eq!(requests(&changed), ["example.com/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reservations_come_before_the_pods_that_use_them() {
    const RESERVATIONS: &str = "/apis/scheduling.koordinator.sh/v1alpha1/reservations";
    let (api, streams) = server(
        &[
            (PODS, r#"{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"1"}}"#),
            (RESERVATIONS, r#"{"metadata":{"name":"r","uid":"v","resourceVersion":"2"}}"#),
        ],
        &[],
    );
    let mut profile = Profile::standard("s");
    let enabled = koord_engine::profile::expand::Enabled { plugin: "Reservation", weight: 1 };
    profile.points[koord_engine::profile::point::Point::Reserve].push(enabled);
    let (brain, desk, count, stop) = run_with(&api, "", &[profile]);
    desk.all_listed(count).await;
    let taken = brain.with(|state| std::mem::take(&mut state.taken));
    assert!(
        matches!(&taken[..], [Input::Reservation { object }, Input::Pod { .. }]
            if object.metadata.name.as_deref() == Some("r")),
        "{taken:?}"
    );
    while !streams.lock().unwrap().contains_key(RESERVATIONS) {
        tokio::task::yield_now().await;
    }
    let gone =
        json!({"type": "DELETED", "object": {"metadata": {"name": "r", "uid": "v", "resourceVersion": "9"}}});
    streams.lock().unwrap()[RESERVATIONS].send(format!("{gone}\n")).unwrap();
    let gone = Input::ReservationGone { name: "r".into(), uid: "v".into() };
    while !brain.with(|state| state.taken.contains(&gone)) {
        desk.ask(View::Queue).await.unwrap();
    }
    stop.cancel();
    let (api, _) = server(&[], &[]);
    let (_, desk, count, stop) = run(&api, "");
    desk.all_listed(count).await;
    assert!(!api.lines().iter().any(|line| line.contains("reservations")), "nobody needs them");
    stop.cancel();
}
