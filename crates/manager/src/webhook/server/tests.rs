use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::rewrite::profile::Profiles;
use koord_kit::http::{TlsFiles, serve};
use koord_kit::metrics::{Format, Metrics};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::webhook::certificates::{Artifacts, TLS_CERT, TLS_KEY};
use crate::webhook::paths::MUTATE_POD;
use crate::webhook::readiness::{Readiness, Trust};
use crate::webhook::{files, pod};

fn desk(profiles: Value, found: Option<Texts>) -> (Desk, Arc<Metrics>, Arc<Mutex<Vec<Complaint>>>) {
    let profiles: Vec<ClusterColocationProfile> = serde_json::from_value(profiles).unwrap();
    let facts = Facts { profiles: Profiles::new(&profiles).into(), ..Facts::default() };
    let metrics = Arc::new(Metrics::new());
    let complaints = Arc::new(Mutex::new(Vec::new()));
    let heard = complaints.clone();
    let desk = Desk {
        handlers: [(MUTATE_POD, Handler::now(pod::mutate))].into(),
        board: Arc::new(Board::new(facts)),
        find_namespace: Arc::new(move |_: String| -> BoxFuture<'static, Option<Texts>> {
            let found = found.clone();
            Box::pin(async move { found })
        }),
        complain: Arc::new(move |complaint: &Complaint| heard.lock().unwrap().push(complaint.clone())),
        metrics: WebhookMetrics::new(&metrics),
        leaving: CancellationToken::new(),
    };
    (desk, metrics, complaints)
}

fn review() -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "new",
        "object": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}}})
    .to_string()
    .into_bytes()
}

async fn answered(desk: &Desk) -> Value {
    serde_json::from_slice(&desk.answer(MUTATE_POD, &review()).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_review_from_bytes_to_bytes() {
    let (desk, metrics, _) = desk(json!([{"metadata": {"name": "a"}, "spec": {"labels": {"x": "1"}}}]), None);
    let told = answered(&desk).await;
    assert_eq!(told["response"]["uid"], json!("u"));
    assert!(told["response"]["patch"].is_string());
    assert_eq!(desk.answer("/elsewhere", b"").await, None);
    let told: Value = serde_json::from_slice(&desk.answer(MUTATE_POD, b"{").await.unwrap()).unwrap();
    assert_eq!(told["response"]["status"]["code"], json!(400));
    let page = metrics.render(Format::Prometheus);
    let want = "koord_manager_webhook_webhook_duration_milliseconds_count{webhook_type=\"mutate\",object_type=\"pod\",\
                operation=\"CREATE\",plugin_name=\"ClusterColocationProfile\",status=\"allowed\"} 1";
    assert!(page.contains(want), "{page}");
    let want = "controller_runtime_webhook_latency_seconds_count{webhook=\"/mutate-pod\"} 1";
    assert!(page.contains(want), "what is no review does not count: {page}");
}

#[tokio::test]
async fn namespaces_and_complaints() {
    let by_team = json!([{"metadata": {"name": "a"},
        "spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}, "labels": {"x": "1"}}}]);
    let (unknown, _, _) = desk(by_team.clone(), None);
    assert_eq!(answered(&unknown).await["response"].get("patch"), None);
    let (known, _, _) = desk(by_team, Some([("team".to_owned(), "a".to_owned())].into()));
    assert!(
        answered(&known).await["response"]["patch"].is_string(),
        "a namespace that no watch has told of yet"
    );

    let broken = json!([{"metadata": {"name": "a"}, "spec": {"priorityClassName": "nope"}}]);
    let (broken, _, complaints) = desk(broken, None);
    assert_eq!(answered(&broken).await["response"]["status"]["code"], json!(500));
    assert_eq!(complaints.lock().unwrap()[0].profile, "a");
}

/// A client that connects anew, and trusts what the API server would.
async fn post(port: u16, trusted: &str, name: &str) -> Result<String, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
    let mut stream = stream.map_err(|error| error.to_string())?;
    let body = review();
    let head = format!(
        "POST {MUTATE_POD} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
    stream.write_all(&body).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    if answer.starts_with("HTTP/1.1 200") { Ok(answer) } else { Err(answer) }
}

fn serve_from(dir: &Path, listener: TcpListener, stop: &CancellationToken) {
    let (desk, _, _) = desk(json!([]), None);
    let tls = TlsFiles::load(dir.join(TLS_CERT), dir.join(TLS_KEY)).unwrap();
    let router = Arc::new(desk).router(Arc::new(|| json!({"quotaInfoMap": {}})));
    tokio::spawn(serve(listener, router, Some(tls), stop.clone()));
}

/// Certificates change again and again while requests come in; the API server trusts the old and the new authority, as
/// the keeper arranges it. Not one request fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_under_load() {
    const NAME: &str = "webhook.koord.svc";
    let place = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let two: Vec<Artifacts> = (1..3).map(|n| Artifacts::default().renew(NAME, now, n).unwrap()).collect();
    files::write(place.path(), &two[0], now).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    serve_from(place.path(), listener, &stop);

    let trusted = Arc::new(format!("{}{}", two[0].ca_cert, two[1].ca_cert));
    let answered = Arc::new(AtomicUsize::new(0));
    let done = CancellationToken::new();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let (trusted, answered, done) = (trusted.clone(), answered.clone(), done.clone());
        clients.push(tokio::spawn(async move {
            while !done.is_cancelled() {
                post(port, &trusted, NAME).await?;
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), String>(())
        }));
    }
    for round in 1..9_usize {
        let before = answered.load(Ordering::Relaxed);
        files::write(place.path(), &two[round % 2], now).unwrap();
        while answered.load(Ordering::Relaxed) < before + 8
            && clients.iter().all(|client| !client.is_finished())
        {
            tokio::task::yield_now().await;
        }
    }
    done.cancel();
    for client in clients {
        assert_eq!(client.await.unwrap(), Ok(()));
    }
    // The last one written is the one in use.
    assert!(post(port, &two[0].ca_cert, NAME).await.is_ok());
    assert!(post(port, &two[1].ca_cert, NAME).await.is_err());
    stop.cancel();
}

/// Clients keep connections; one that finds its own closed under a request has lost it.
#[tokio::test]
async fn whoever_leaves_says_so() {
    let (desk, _, _) = desk(json!([]), None);
    let (leaving, stop) = (desk.leaving.clone(), CancellationToken::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Arc::new(desk).router(Arc::new(|| json!({}))), None, stop.clone()));
    for leaves in [false, true] {
        if leaves {
            leaving.cancel();
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        let body = review();
        let head = format!("POST {MUTATE_POD} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let mut answer = String::new();
        while !answer.contains("\r\n\r\n") {
            let mut part = [0; 1024];
            let read = stream.read(&mut part).await.unwrap();
            answer.push_str(&String::from_utf8_lossy(&part[..read]));
        }
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(answer.to_lowercase().contains("connection: close"), leaves, "{answer}");
    }
    stop.cancel();
}

#[tokio::test]
async fn we_ask_ourselves() {
    let place = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let own = Artifacts::default().renew("webhook.koord.svc", now, 1).unwrap();
    files::write(place.path(), &own, now).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    serve_from(place.path(), listener, &stop);
    for trust in [Trust::Authority(place.path().to_owned()), Trust::Anybody] {
        let (readiness, asked_enough) = (Readiness::default(), CancellationToken::new());
        assert!(readiness.get().is_err(), "nothing is kept yet");
        let (kept, is_kept) = watch::channel(false);
        let asking = tokio::spawn(readiness.clone().run(port, trust, is_kept, asked_enough.clone()));
        kept.send_replace(true);
        while readiness.get().is_err() {
            tokio::task::yield_now().await;
        }
        asked_enough.cancel();
        asking.await.unwrap();
    }
    stop.cancel();
}

#[test]
fn the_dump_of_quotas_is_for_neighbours() {
    let from = |peer: Option<&str>| {
        let mut request = HttpRequest::new(());
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer.parse::<SocketAddr>().unwrap());
        }
        is_local(&request)
    };
    assert!(from(Some("127.0.0.1:5")) && from(Some("[::1]:5")), "manager#26.DB-28");
    assert!(from(Some("[::ffff:127.0.0.1]:5")), "manager#26.DB-28");
    assert!(!from(Some("10.0.0.1:5")) && !from(None), "manager#26.DB-28");
}
