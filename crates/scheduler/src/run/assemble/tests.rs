use std::sync::Mutex;

use koord_api::gate::{Component, Gates};
use koord_engine::engine::Options as EngineOptions;
use koord_engine::profile::Profile;
use koord_engine::profile::expand::Enabled;
use koord_engine::profile::point::Point;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::fake::{FakeApi, Reply};

/// Longer than a kind is waited for, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

const OUR_KINDS: [&str; 2] = [
    "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
    "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
];

/// A cluster with a node and a pod that nobody has given our kinds.
fn bare() -> FakeApi {
    let streams: Mutex<Vec<mpsc::UnboundedSender<String>>> = Mutex::default();
    FakeApi::new(move |seen| {
        let (verb, address) = seen.line.split_once(' ').unwrap();
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        if OUR_KINDS.contains(&path) {
            return Reply::refused(404, "the server could not find the requested resource");
        }
        if verb != "GET" {
            return Reply::Answer(201, json!({"metadata": {}}).to_string());
        }
        if query.contains("watch=true") {
            let (feed, lines) = mpsc::unbounded_channel();
            streams.lock().unwrap().push(feed);
            return Reply::Stream(lines);
        }
        let metadata =
            |name: &str| json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"});
        let items: Vec<Value> = match path {
            "/api/v1/nodes" => {
                vec![json!({"metadata": metadata("n"), "status": {"allocatable": {"cpu": "4", "pods": "9"}}})]
            }
            "/api/v1/pods" => {
                let mut metadata = metadata("p");
                metadata["namespace"] = json!("ns");
                vec![json!({"metadata": metadata, "spec": {"schedulerName": "s", "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})]
            }
            _ => Vec::new(),
        };
        Reply::Answer(200, json!({"metadata": {"resourceVersion": "10"}, "items": items}).to_string())
    })
}

/// All that Koordinator adds and that needs a kind of its own.
fn profile() -> Profile {
    let mut profile = Profile::standard("s");
    for point in
        [Point::PreFilter, Point::Filter, Point::PreScore, Point::Score, Point::Reserve, Point::PreBind]
    {
        profile.points[point].push(Enabled { plugin: "Reservation", weight: 1 });
    }
    for point in [Point::Filter, Point::Score] {
        profile.points[point].push(Enabled { plugin: "LoadAwareScheduling", weight: 1 });
    }
    profile
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_our_kinds_is_scheduled_all_the_same() {
    let api = bare();
    let client = api.client();
    let profiles = vec![profile()];
    let gates = Gates::parse(Component::Scheduler, "").unwrap();
    let watches = Watches::new(&client, &gates, &KitMetrics::unregistered(), None, &profiles);
    let (load, metrics) = (Arc::new(Load::default()), SchedulerMetrics::default());
    let (notes, _notes_worker) = events::notes(client.clone(), load.clone());
    let (hands, worker, outcomes) = pipeline::pipeline(Means {
        client,
        load: load.clone(),
        notes,
        metrics: metrics.clone(),
        may_write: Arc::new(|| true),
        extenders: Vec::new(),
    });
    let brain = crate::brain::engine(&EngineOptions::new(profiles)).unwrap();
    let stop = CancellationToken::new();
    let times = crate::flags::Monitor {
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(30),
        drop_unhandled_after: Duration::from_secs(5),
    };
    let parts = driver::Parts {
        brain,
        hands,
        outcomes,
        load,
        clock: Clock::start(),
        monitor: Monitor::new(times),
        switches: Arc::new(Switches::default()),
        metrics,
        watches: watches.len(),
    };
    let (desk, _thread) = driver::start(parts, stop.clone(), stop.clone()).unwrap();
    let (health, standing, lead) = (Health::default(), Arc::default(), Arc::default());
    add_checks(&health, &standing, &lead, &desk, &watches);
    let (is_ready, page) = health.answer("/readyz", "");
    assert!(!is_ready, "{page}");
    let count = watches.len();
    watches.start(&desk, &stop, &|task| _ = tokio::spawn(task));
    tokio::spawn(worker.run());
    let all = tokio::time::timeout(LIMIT, desk.all_listed(count)).await;
    assert!(all.is_ok(), "{}", health.answer("/readyz", "verbose").1);
    let (is_ready, page) = health.answer("/readyz", "");
    assert!(is_ready, "{page}");
    for kind in OUR_KINDS {
        assert!(api.lines().iter().any(|line| line.contains(kind)), "{kind} was asked for");
    }
    desk.send(Letter::Lead).await;
    let bound = async {
        while !api.lines().iter().any(|line| line.starts_with("POST /api/v1/namespaces/ns/pods/p/binding")) {
            // An answer means that the engine's thread went on.
            desk.ask(View::Queue).await.unwrap();
        }
    };
    assert!(tokio::time::timeout(LIMIT, bound).await.is_ok(), "{:?}", api.lines());
    stop.cancel();
}
