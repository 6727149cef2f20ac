use koord_api::keys::pod::annotation::EXTENDED_RESOURCE_SPEC;
use koord_kit::metrics::{KitMetrics, Metrics};
use koord_kit::queue::QueueMetrics;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::controllers::Memories;
use crate::fake::{FakeApi, Seen, refused};
use crate::flags;
use crate::metrics::ManagerMetrics;
use crate::strategies;
use crate::world::{Scope, World};

/// Two nodes, a profile, and a pod that bears its marks.
fn cluster(seen: &Seen) -> (u16, Value) {
    if seen.line.contains("watch=") {
        return refused(500, "no watch");
    }
    let meta = |name: &str| json!({"name": name, "uid": name, "resourceVersion": "1"});
    let node = |name: &str| {
        json!({"metadata": meta(name), "status": {
            "capacity": {"cpu": "64", "memory": "256Gi"}, "allocatable": {"cpu": "62", "memory": "250Gi"}}})
    };
    let path = seen.line.split(['?', ' ']).nth(1).unwrap_or_default();
    let items = match path.rsplit('/').next().unwrap_or_default() {
        "spark" => return (200, pod()),
        "broken" => return refused(403, "pods \"broken\" is forbidden"),
        "nobody" => return refused(404, "pods \"nobody\" not found"),
        "nodes" => json!([node("n1"), node("n2")]),
        "clustercolocationprofiles" => json!([
            {"metadata": meta("batch"), "spec": {"namespaceSelector": {"matchLabels": {"team": "data"}},
                "labels": {"x": "1"}}},
            {"metadata": meta("elsewhere"), "spec": {"namespaceSelector": {"matchLabels": {"team": "web"}},
                "labels": {"y": "1"}}},
        ]),
        "namespaces" => {
            let mut namespace = meta("shop");
            namespace["labels"] = json!({"team": "data"});
            json!([{"metadata": namespace}])
        }
        _ => json!([]),
    };
    (200, json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
}

fn pod() -> Value {
    let record = r#"{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}"#;
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "spark", "namespace": "shop",
        "labels": {"x": "1"}, "annotations": {EXTENDED_RESOURCE_SPEC: record}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]}, "status": {"phase": "Running"}})
}

struct Stage {
    explainer: Explainer,
    source: strategies::Source,
    workers: Option<crate::world::Workers>,
}

impl Stage {
    fn new(words: &[&str], leads: bool) -> Stage {
        let flags::Request::Run(options) = flags::parse(words.iter().copied(), |_| None).unwrap() else {
            panic!("not a run");
        };
        let client = FakeApi::default().client(cluster);
        let scope = Scope {
            config_namespace: options.config_namespace.clone(),
            config_name: options.config_name.clone(),
            namespace: None,
        };
        let kit_metrics = KitMetrics::unregistered();
        let (world, workers) = World::new(&client, &scope, &kit_metrics);
        let (strategies, source) = strategies::strategies();
        let ground = Ground {
            client,
            world,
            strategies,
            options: Arc::new(*options),
            metrics: ManagerMetrics::unregistered(),
            kit_metrics,
            queue_metrics: QueueMetrics::unregistered(),
            internal: Arc::new(Metrics::bare()),
            memories: Memories::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let explainer = Explainer::new(&ground, &Arc::new(AtomicBool::new(leads)));
        Stage { explainer, source, workers: Some(workers) }
    }

    async fn synced(words: &[&str], leads: bool) -> Stage {
        let mut stage = Stage::new(words, leads);
        let ground = &stage.explainer.ground;
        if let Some(workers) = stage.workers.take() {
            workers.start(&ground.tasks, &ground.stop);
        }
        ground.world.synced().await;
        stage
    }

    fn node(&self, name: &str) -> Result<NodeExplanation, (u16, String)> {
        self.explainer.node(name).map_err(|refusal| (refusal.status.as_u16(), refusal.message))
    }

    async fn pod(&self, name: &str) -> Result<PodStory, (u16, String)> {
        let told = self.explainer.pod("shop", name).await;
        told.map_err(|refusal| (refusal.status.as_u16(), refusal.message))
    }

    async fn close(self) {
        let ground = self.explainer.ground;
        ground.stop.cancel();
        ground.tasks.close();
        ground.tasks.wait().await;
    }
}

#[test]
fn paths_are_questions() {
    for (path, want) in [
        ("/apis/v1/explain/node/n1.example", Some(Question::Node("n1.example"))),
        ("/apis/v1/explain/pod/shop/web-0", Some(Question::Pod { namespace: "shop", name: "web-0" })),
        ("/apis/v1/explain/node/", None),
        ("/apis/v1/explain/node/a/b", None),
        ("/apis/v1/explain/node/a%2Fb", None),
        ("/apis/v1/explain/pod/web-0", None),
        ("/apis/v1/explain/pod/shop/..%2Fsecrets", None),
        ("/apis/v1/", None),
        ("/elsewhere", None),
    ] {
        assert_eq!(Question::of(path), want, "{path}");
    }
}

#[test]
fn an_unknown_node_is_told_from_those_there_are() {
    let many: Vec<String> = (0..12).map(|number| format!("n{number:02}")).collect();
    for (known, want) in [
        (vec![], "cannot find node x; there are none"),
        (vec!["n1"], "cannot find node x; there is only n1"),
        (vec!["n2", "n1"], "cannot find node x; there are n1, n2"),
        (
            many.iter().map(String::as_str).collect(),
            "cannot find node x; there are n00, n01, n02, n03, n04, n05, n06, n07 and 4 more",
        ),
    ] {
        assert_eq!(unknown_node("x", known), Refusal::new(StatusCode::NOT_FOUND, want));
    }
}

#[tokio::test]
async fn who_is_asked_matters_only_for_what_is_remembered() {
    let mut told = Vec::new();
    for (words, leads) in [(&[][..], true), (&[], false), (&["--controllers=*,-noderesource"], true)] {
        let stage = Stage::synced(words, leads).await;
        stage.source.load(None);
        let found = stage.node("n1").unwrap();
        assert_eq!((found.node.as_str(), found.state.as_str()), ("n1", "colocation is off in the cluster"));
        assert!(found.parameters.iter().any(|line| line.layer == "default"), "{found}");
        let (status, message) = stage.node("n3").unwrap_err();
        assert_eq!((status, message.as_str()), (404, "cannot find node n3; there are n1, n2"));
        told.push(found.write);
        stage.close().await;
    }
    assert!(!told[0].contains("not written by this replica"), "{told:?}");
    assert_eq!(told[1..], [FOLLOWS, NO_CONTROLLER]);
}

#[tokio::test]
async fn what_is_not_known_yet_is_not_made_up() {
    let starting = Stage::new(&[], true);
    let (status, message) = starting.node("n1").unwrap_err();
    assert_eq!(status, 503);
    assert!(message.starts_with("the manager is still starting: "), "{message}");
    assert_eq!(starting.pod("spark").await.unwrap_err().0, 503);
    let listed = Stage::synced(&[], true).await;
    let want = "node n1 is left as it is: colocation-config of ConfigMap koordinator-system/slo-controller-config was \
                never readable";
    assert_eq!(listed.node("n1").unwrap_err(), (503, want.to_owned()));
    listed.close().await;
}

#[tokio::test]
async fn a_pod_that_runs_has_its_story() {
    let stage = Stage::synced(&[], false).await;
    let story = stage.pod("spark").await.unwrap();
    let want = "Profiles, in the order they are applied:
  batch: applied
    metadata.labels[x] = \"1\"
Extended resources, recorded for the node:
  container main: requests kubernetes.io/batch-cpu 500";
    assert_eq!(story.text(), want);
    assert_eq!(stage.pod("nobody").await.unwrap_err(), (404, "cannot find pod shop/nobody".to_owned()));
    let (status, message) = stage.pod("broken").await.unwrap_err();
    assert!(status == 502 && message.contains("is forbidden"), "{message}");
    stage.close().await;
}

#[tokio::test]
async fn answers_come_in_both_forms() {
    use http_body_util::BodyExt;
    let told = || Ok(Told { text: "words\n".to_owned(), data: json!({"a": 1}) });
    let refusal = || Err(Refusal::new(StatusCode::NOT_FOUND, "no"));
    for (result, as_text, want) in [
        (told(), true, (200, "text/plain; charset=utf-8", "words\n")),
        (told(), false, (200, "application/json", r#"{"a":1}"#)),
        (refusal(), true, (404, "application/json", r#"{"message":"no"}"#)),
        (refusal(), false, (404, "application/json", r#"{"message":"no"}"#)),
    ] {
        let answer = render(result, as_text);
        let (status, kind) = (answer.status().as_u16(), answer.headers()[header::CONTENT_TYPE].clone());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((status, kind.to_str().unwrap(), std::str::from_utf8(&body).unwrap()), want);
    }
}
