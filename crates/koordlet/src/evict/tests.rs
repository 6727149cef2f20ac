//! Evictions against sockets and an API server that answer as the real ones do.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use koord_kit::events::{Flavour, recorder};
use koord_kit::metrics::{Format, KitMetrics};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::decide::sketch::pod;
use crate::flags::RuntimeOptions;

/// Requests that a runtime got: path and body.
type Got = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

fn options() -> RuntimeOptions {
    RuntimeOptions { containerd: String::new(), docker: String::new(), pouch: String::new() }
}

/// A body that ends with a status.
fn trailers(status: &'static str) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> {
    let mut map = HeaderMap::new();
    map.insert("grpc-status", status.parse().unwrap());
    map.insert("grpc-message", "as it is".parse().unwrap());
    // An empty message goes before a good end.
    let message = (status == "0").then(|| Frame::data(Bytes::from_static(&[0; 5])));
    let frames = message.into_iter().chain([Frame::trailers(map)]).map(Ok::<_, Infallible>);
    http_body_util::StreamBody::new(futures::stream::iter(frames.collect::<Vec<_>>()))
}

/// A runtime that answers with `status`, but not to the newest version of the interface when `is_old`.
fn cri(path: &Path, status: &'static str, is_old: bool) -> Got {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(path).unwrap();
    let got = Got::default();
    let heard = got.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let heard = heard.clone();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let heard = heard.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes().to_vec();
                    let is_unknown = is_old && path.contains("runtime.v1.");
                    heard.lock().unwrap().push((path, body));
                    Ok::<_, Infallible>(Response::new(trailers(if is_unknown { "12" } else { status })))
                }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    got
}

/// A docker that answers with `status`.
fn docker(path: &Path, status: u16) -> Got {
    let listener = UnixListener::bind(path).unwrap();
    let got = Got::default();
    let heard = got.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let heard = heard.clone();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let path = request.uri().to_string();
                heard.lock().unwrap().push((path, Vec::new()));
                let mut answer = Response::new(Full::new(Bytes::new()));
                *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    got
}

#[tokio::test]
async fn runtimes_are_asked_by_their_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let runtimes = Runtimes::new(dir.path(), &options());
    assert_eq!(
        runtimes.stop("containerd://1").await.unwrap_err().to_string(),
        "no socket of containerd was found"
    );
    assert!(matches!(runtimes.stop("nonsense").await, Err(StopError::Id(_))));
    let got = cri(&dir.path().join("containerd/containerd.sock"), "0", false);
    runtimes.stop("containerd://ab").await.unwrap();
    let want =
        ("/runtime.v1.RuntimeService/StopContainer".to_owned(), vec![0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
    assert_eq!(*got.lock().unwrap(), [want]);
    let old = cri(&dir.path().join("crio/crio.sock"), "0", true);
    runtimes.stop("cri-o://ab").await.unwrap();
    assert_eq!(old.lock().unwrap()[1].0, "/runtime.v1alpha2.RuntimeService/StopContainer");
    cri(&dir.path().join("pouchcri.sock"), "5", false);
    assert_eq!(
        runtimes.stop("pouch://ab").await.unwrap_err().to_string(),
        "the runtime refused: code 5: as it is"
    );
    let asked = docker(&dir.path().join("docker.sock"), 204);
    runtimes.stop("docker://cd").await.unwrap();
    assert_eq!(asked.lock().unwrap()[0].0, "/containers/cd/stop?t=0");
}

struct World {
    _dir: tempfile::TempDir,
    metrics: KoordletMetrics,
    auditor: Auditor,
    sender: Sender,
}

fn world(dir: tempfile::TempDir, way: Way) -> World {
    told(dir, way, None)
}

/// A world with somebody who hears of events.
fn told(dir: tempfile::TempDir, way: Way, recorder: Option<Recorder>) -> World {
    let (metrics, auditor) = (KoordletMetrics::new("n1"), Auditor::of_test(dir.path()));
    metrics.node_seen();
    let (sender, worker) = evictor(way, recorder, metrics.clone(), auditor.clone());
    tokio::spawn(worker.run());
    World { _dir: dir, metrics, auditor, sender }
}

impl World {
    /// Evicts from a thread, as the node's does.
    async fn evict(&mut self, pod: &Pod) -> Outcome {
        let pod = pod.clone();
        let mut sender = Sender { orders: self.sender.orders.clone(), is_by_api: self.sender.is_by_api };
        let evict =
            move || sender.evict(EvictOrder { pod: &pod, trigger: Trigger::BeMemory, numbers: "72 % used" });
        tokio::task::spawn_blocking(evict).await.unwrap()
    }

    fn count(&self) -> usize {
        let page = self.metrics.internal().render(Format::Prometheus);
        let lines = page.lines().filter(|line| line.starts_with("koordlet_pod_eviction"));
        lines.filter(|line| line.ends_with(" 1")).count()
    }

    fn messages(&self) -> Vec<String> {
        match self.auditor.query(&crate::audit::Query::default(), std::time::Instant::now()) {
            crate::audit::Answer::Page { events, .. } => {
                events.into_iter().map(|event| event.message).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn every_running_container_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let got = cri(&dir.path().join("containerd/containerd.sock"), "0", false);
    let runtimes = Runtimes::new(dir.path(), &options());
    let mut world = world(dir, Way::Stop(runtimes));
    let victim = pod("batch").qos("BE").container("a", &[], &[]).container("b", &[], &[]).running().read();
    assert_eq!(world.evict(&victim).await, Outcome::Leaving);
    assert_eq!(got.lock().unwrap().len(), 2);
    assert_eq!(world.count(), 2, "koordlet-observe#13.9.I3: one for the sum, one for the pod");
    let message = "trigger by koordlet feature BEMemoryEvict, kill pod: batch; 72 % used";
    assert_eq!(world.messages(), [message]);
    assert!(!world.sender.is_remembering());
}

/// What an init container takes is taken, and a pod between two starts of its containers frees nothing.
#[tokio::test]
async fn what_runs_is_what_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let got = cri(&dir.path().join("containerd/containerd.sock"), "0", false);
    let runtimes = Runtimes::new(dir.path(), &options());
    let mut world = world(dir, Way::Stop(runtimes));
    let between = pod("batch").qos("BE").container("a", &[], &[]).read();
    assert_eq!(world.evict(&between).await, Outcome::NothingRuns);
    assert_eq!((world.count(), world.messages().len()), (0, 0));
    let starting = pod("batch").qos("BE").initializing("init", &[], &[]).read();
    assert_eq!(world.evict(&starting).await, Outcome::Leaving);
    assert_eq!((got.lock().unwrap().len(), world.count()), (1, 2));
}

#[tokio::test]
async fn a_failure_counts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let runtimes = Runtimes::new(dir.path(), &options());
    let mut world = world(dir, Way::Stop(runtimes));
    let victim = pod("batch").qos("BE").container("a", &[], &[]).running().read();
    assert_eq!(world.evict(&victim).await, Outcome::Unreachable);
    assert_eq!(world.count(), 0);
    assert_eq!(world.messages().len(), 1, "that it was tried is on record");
}

/// An API server that answers everything with this, or as it is asked when it is 201; none never answers.
fn api_server(answer: Option<(u16, &'static str)>) -> (kube::Client, Got) {
    let got = Got::default();
    let heard = got.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let heard = heard.clone();
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.unwrap().to_vec();
            heard.lock().unwrap().push((path, body.clone()));
            let Some((code, message)) = answer else { return std::future::pending().await };
            let status = serde_json::json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": message, "reason": "x", "code": code });
            let text = if code == 201 { body } else { status.to_string().into_bytes() };
            let mut answer = Response::new(Full::new(Bytes::from(text)));
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok::<_, Infallible>(answer)
        }
    });
    (kube::Client::new(service, "default"), got)
}

/// The API server's part: what it is asked, and what its answers mean.
#[tokio::test]
async fn the_api_server_evicts_this_very_pod() {
    const OTHER: &str = "the UID in the precondition (a) does not match the UID in record (b)";
    for (code, message, outcome, counted) in [
        (201, "", Outcome::Leaving, 2),
        (404, "pods \"batch\" not found", Outcome::Leaving, 0),
        (409, OTHER, Outcome::Leaving, 0),
        (409, "the object has been modified", Outcome::Refused, 0),
        (429, "disruption budget", Outcome::Refused, 0),
        (403, "forbidden", Outcome::Refused, 0),
        (503, "starting", Outcome::Unreachable, 0),
        (504, "timeout", Outcome::Unanswered, 0),
    ] {
        let (client, got) = api_server(Some((code, message)));
        let (ear, heard) = api_server(Some((201, "")));
        let kit = KitMetrics::new(KoordletMetrics::new("n1").internal());
        let (recorder, events) = recorder(ear, "koordlet-qosManager", Flavour::Core, &kit);
        let events = tokio::spawn(events.run(CancellationToken::new()));
        let mut world = told(tempfile::tempdir().unwrap(), Way::Api(client), Some(recorder));
        let victim = pod("batch").qos("BE").read();
        assert_eq!(world.evict(&victim).await, outcome, "{code} {message}");
        assert!(world.sender.is_remembering());
        let (path, body) = got.lock().unwrap()[0].clone();
        assert_eq!(path, "/api/v1/namespaces/default/pods/batch/eviction");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["deleteOptions"]["preconditions"]["uid"], "batch");
        assert_eq!(body["apiVersion"], "policy/v1");
        assert_eq!(world.count(), counted, "{code} {message}");
        // Everyone ends, and has told what there was to tell.
        drop(world);
        events.await.unwrap();
        let event: serde_json::Value = serde_json::from_slice(&heard.lock().unwrap()[0].1).unwrap();
        let (reason, end) = if counted > 0 {
            ("evictPodSuccess", "kill pod: batch; 72 % used")
        } else {
            ("evictPodFail", message)
        };
        assert_eq!(event["reason"], reason, "{code}");
        let text = event["message"].as_str().unwrap();
        assert!(text.starts_with("evict Pod:default/batch, reason: evicted, message: trigger by"), "{text}");
        assert!(text.contains(end), "{text}");
    }
}

/// The clock is the test's own, so nobody waits.
#[tokio::test(start_paused = true)]
async fn no_answer_is_no_refusal() {
    let (client, _) = api_server(None);
    let (_sender, worker) = evictor(Way::Api(client), None, KoordletMetrics::new("n1"), Auditor::off());
    let batch = pod("batch").qos("BE").read();
    let victim = Victim {
        namespace: batch.namespace.clone(),
        name: batch.name.clone(),
        uid: batch.id.uid.clone(),
        message: String::new(),
        numbers: String::new(),
        trigger: Trigger::BeMemory,
        running: Vec::new(),
        pod: batch,
    };
    let trouble = worker.carry_out(&victim).await.unwrap_err();
    assert_eq!((trouble.outcome, trouble.text.as_str()), (Outcome::Unanswered, "no answer within 5 s"));
}
