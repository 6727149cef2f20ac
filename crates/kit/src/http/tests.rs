use std::path::Path;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::*;

struct Server {
    address: std::net::SocketAddr,
    health: Arc<Health>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn start(tls: Option<TlsFiles>, pages: impl FnOnce(Router) -> Router) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let health = Arc::new(Health::default());
    let router = pages(Router::new(health.clone(), Arc::new(Metrics::new())));
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve(listener, router, tls, stop.clone()));
    Server { address, health, stop, task }
}

/// The status and the body of one request on its own connection.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, line: &str, accept: &str) -> (u16, String) {
    let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    // A TLS peer may close without saying so; what counts is what came.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn get(server: &Server, path: &str) -> (u16, String) {
    let stream = TcpStream::connect(server.address).await.unwrap();
    ask(stream, &format!("GET {path}"), "*/*").await
}

#[tokio::test]
async fn health_answers_as_kubernetes_does() {
    let server = start(None, |router| router).await;
    server.health.add(Check::live("loop", || Ok(())));
    server
        .health
        .add(Check::ready("caches", || Err("podgroups.scheduling.sigs.k8s.io is missing".to_owned())));
    for (path, status, body) in [
        ("/healthz", 200, "ok"),
        ("/livez", 200, "ok"),
        ("/livez?verbose", 200, "[+]ping ok\n[+]loop ok\nlivez check passed\n"),
        (
            "/readyz",
            500,
            "[+]ping ok\n[+]loop ok\n[-]caches failed: podgroups.scheduling.sigs.k8s.io is missing\nreadyz check failed\n",
        ),
        ("/readyz?exclude=caches", 200, "ok"),
        (
            "/readyz?verbose&exclude=caches&exclude=other",
            200,
            "[+]ping ok\n[+]loop ok\n[+]caches excluded: ok\n\
             warn: some health checks cannot be excluded: no matches for \"other\"\nreadyz check passed\n",
        ),
        ("/readyz/caches", 500, "internal server error: podgroups.scheduling.sigs.k8s.io is missing\n"),
        ("/readyz/loop", 200, "ok"),
        ("/livez/caches", 404, "no page /livez/caches\n"),
        ("/nothing", 404, "no page /nothing\n"),
    ] {
        assert_eq!(get(&server, path).await, (status, body.to_owned()), "{path}");
    }
    // A check of the same name replaces the former.
    server.health.add(Check::ready("caches", || Ok(())));
    assert_eq!(get(&server, "/readyz").await, (200, "ok".to_owned()));
    let stream = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(ask(stream, "POST /healthz", "*/*").await.0, 405);
}

#[tokio::test]
async fn metrics_come_in_the_form_that_is_asked_for() {
    let server = start(None, |router| router).await;
    let (status, page) = get(&server, "/metrics").await;
    assert_eq!(status, 200);
    assert!(page.contains("# TYPE process_cpu_seconds_total counter\n"), "{page}");
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (_, page) = ask(stream, "GET /metrics", "application/openmetrics-text;version=1.0.0").await;
    assert!(page.contains("# EOF\n"), "{page}");
}

#[tokio::test]
async fn the_longest_page_answers() {
    let server = start(None, |router| {
        router
            .page("/apis/v1/", |request| async move {
                text(StatusCode::OK, format!("below {}", request.uri().path()))
            })
            .page("/apis/v1/nodes", |_| async { json(StatusCode::OK, &serde_json::json!([])) })
    })
    .await;
    assert_eq!(get(&server, "/apis/v1/pods/a").await, (200, "below /apis/v1/pods/a".to_owned()));
    assert_eq!(get(&server, "/apis/v1/nodes").await, (200, "[]".to_owned()));
    assert_eq!(get(&server, "/apis/v1").await.0, 404);
}

#[tokio::test]
async fn requests_in_flight_are_finished() {
    let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
    let finish = Arc::new(tokio::sync::Notify::new());
    let waiter = finish.clone();
    let server = start(None, |router| {
        router.page("/slow", move |_| {
            let (begun, waiter) = (begun.clone(), waiter.clone());
            async move {
                begun.send(()).await.unwrap();
                waiter.notified().await;
                text(StatusCode::OK, "done")
            }
        })
    })
    .await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let asked = tokio::spawn(ask(stream, "GET /slow", "*/*"));
    has_begun.recv().await.unwrap();
    server.stop.cancel();
    // New connections are refused once the listener is gone.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.task.is_finished());
    finish.notify_one();
    assert_eq!(asked.await.unwrap(), (200, "done".to_owned()));
    server.task.await.unwrap();
}

fn write_pair(dir: &Path) -> CertificateDer<'static> {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("tls.crt"), pair.cert.pem()).unwrap();
    std::fs::write(dir.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    pair.cert.der().clone()
}

async fn get_tls(server: &Server, trusted: &CertificateDer<'static>) -> Result<(u16, String), String> {
    get_tls_as(server, trusted, None, "/healthz").await
}

/// A certificate and its key.
type Pair = (CertificateDer<'static>, PrivateKeyDer<'static>);

async fn get_tls_as(
    server: &Server,
    trusted: &CertificateDer<'static>,
    own: Option<Pair>,
    path: &str,
) -> Result<(u16, String), String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
    };
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream =
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|e| e.to_string())?;
    Ok(ask(stream, &format!("GET {path}"), "*/*").await)
}

/// An authority for clients.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::new(params, key), pem }
    }

    fn client(&self, name: &str, group: &str, usage: rcgen::ExtendedKeyUsagePurpose) -> Pair {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
        params.extended_key_usages = vec![usage];
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        (certificate, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

#[tokio::test]
async fn clients_say_who_they_are_by_certificate() {
    use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let dir = tempfile::tempdir().unwrap();
    let trusted = write_pair(dir.path());
    let files = TlsFiles::load(dir.path().join("tls.crt"), dir.path().join("tls.key")).unwrap();
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let authority =
        ClientCa::from_pem(format!("{}{}", Authority::new("first").pem, ours.pem).as_bytes()).unwrap();
    let server = start(Some(files.asking_clients().unwrap()), |router| {
        router.page("/who", move |request| {
            let shown = request.extensions().get::<PeerCertificates>();
            let who = match shown.map(|shown| authority.user(shown)) {
                None => "nobody".to_owned(),
                Some(Ok(Some(user))) => format!("{} of {}", user.name, user.groups.join(" ")),
                Some(Ok(None)) => "without a name".to_owned(),
                Some(Err(error)) => error.to_string(),
            };
            async move { text(StatusCode::OK, who) }
        })
    })
    .await;
    for (own, want) in [
        (None, "nobody"),
        (Some(ours.client("ann", "dev", ClientAuth)), "ann of dev"),
        (Some(ours.client("", "dev", ClientAuth)), "without a name"),
        (Some(others.client("ann", "dev", ClientAuth)), "invalid peer certificate: UnknownIssuer"),
        (Some(ours.client("host", "dev", ServerAuth)), "invalid peer certificate: "),
    ] {
        let (status, who) = get_tls_as(&server, &trusted, own, "/who").await.unwrap();
        assert!(status == 200 && who.starts_with(want), "{want}: {who}");
    }
    assert!(ClientCa::from_pem(b"").is_err() && ClientCa::from_pem(b"nonsense").is_err());
    server.stop.cancel();
}

#[tokio::test]
async fn certificates_are_renewed_while_serving() {
    let dir = tempfile::tempdir().unwrap();
    let first = write_pair(dir.path());
    let files = TlsFiles::load(dir.path().join("tls.crt"), dir.path().join("tls.key")).unwrap();
    let server = start(Some(files), |router| router).await;
    assert_eq!(get_tls(&server, &first).await, Ok((200, "ok".to_owned())));
    let second = write_pair(dir.path());
    assert_eq!(get_tls(&server, &second).await, Ok((200, "ok".to_owned())));
    assert!(get_tls(&server, &first).await.is_err(), "the old certificate is no longer shown");
    // A broken pair leaves the last good one in use.
    std::fs::write(dir.path().join("tls.key"), "nonsense").unwrap();
    assert_eq!(get_tls(&server, &second).await, Ok((200, "ok".to_owned())));
}

#[tokio::test]
async fn a_pair_in_memory_is_replaced_while_serving() {
    let pair = || {
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (pair.cert.pem(), pair.signing_key.serialize_pem(), pair.cert.der().clone())
    };
    let (first, second) = (pair(), pair());
    let tls = TlsFiles::in_memory(&first.0, &first.1).unwrap();
    let server = start(Some(tls.clone()), |router| router).await;
    assert_eq!(get_tls(&server, &first.2).await, Ok((200, "ok".to_owned())));
    assert!(tls.replace(&first.0, &second.1).is_err(), "no pair");
    assert_eq!(get_tls(&server, &first.2).await, Ok((200, "ok".to_owned())));
    tls.replace(&second.0, &second.1).unwrap();
    assert_eq!(get_tls(&server, &second.2).await, Ok((200, "ok".to_owned())));
    assert!(get_tls(&server, &first.2).await.is_err());
    server.stop.cancel();
}

#[test]
fn bad_tls_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    let message = |cert: &Path, key: &Path| TlsFiles::load(cert, key).err().unwrap().to_string();
    assert_eq!(message(&cert, &key), format!("cannot read TLS file {}", cert.display()));
    write_pair(dir.path());
    std::fs::write(&cert, "nonsense").unwrap();
    assert_eq!(message(&cert, &key), format!("{} holds no usable PEM certificate", cert.display()));
    write_pair(dir.path());
    let other = tempfile::tempdir().unwrap();
    write_pair(other.path());
    assert!(message(&cert, &other.path().join("tls.key")).contains("cannot be used together"));
}
