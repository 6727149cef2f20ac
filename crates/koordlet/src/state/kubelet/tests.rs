//! A kubelet over TLS, as far as koordlet sees one.

use std::net::SocketAddr;

use http::StatusCode;
use koord_kit::http::{Answer, Router, TlsFiles, serve, text};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::state::Snapshot;

fn node(addresses: &[(&str, &str)], kubelet_port: u16) -> NodeState {
    let addresses = addresses.iter().map(|(kind, address)| ((*kind).to_owned(), (*address).to_owned()));
    NodeState { name: "n1".to_owned(), addresses: addresses.collect(), kubelet_port, ..NodeState::default() }
}

#[test]
fn endpoints() {
    let both = [("Hostname", "n1"), ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")];
    let secure = KubeletOptions::default();
    let of = |kind: &str| KubeletOptions { address_type: kind.to_owned(), ..KubeletOptions::default() };
    let plain = KubeletOptions { is_plain: true, ..KubeletOptions::default() };
    for (name, node, options, want) in [
        ("https", node(&both, 10_250), &secure, Ok("https://10.0.0.1:10250")),
        ("another type", node(&both, 10_250), &of("Hostname"), Ok("https://n1:10250")),
        ("read-only port", node(&both, 10_250), &plain, Ok("http://10.0.0.1:10255")),
        ("IPv6", node(&[("InternalIP", "fd00::1")], 1), &secure, Ok("https://[fd00::1]:1")),
        ("none", node(&both, 1), &of("ExternalIP"), Err("no address matched types ExternalIP")),
        ("no port", node(&both, 0), &secure, Err("the Node tells no kubelet port")),
    ] {
        let found = endpoint(&node, options).map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), want, "{name}");
    }
}

/// A kubelet that wants the token `secret`.
struct FakeKubelet {
    address: SocketAddr,
    /// The certificate of the kubelet, which signs itself.
    certificate: String,
    stop: CancellationToken,
}

impl FakeKubelet {
    async fn start(is_plain: bool) -> FakeKubelet {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let certificate = signed.cert.pem();
        let tls = TlsFiles::in_memory(&certificate, &signed.signing_key.serialize_pem()).unwrap();
        let answer = move |body: &'static str| {
            move |request: http::Request<_>| async move { judge(&request, is_plain, body) }
        };
        let router = Router::bare()
            .page("/pods/", answer(r#"{"items":[]}"#))
            .page("/configz", answer(r#"{"kubeletconfig":{"cpuManagerPolicy":"none"}}"#));
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, router, (!is_plain).then_some(tls), stop.clone()));
        FakeKubelet { address, certificate, stop }
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn judge<B>(request: &http::Request<B>, is_plain: bool, body: &'static str) -> Answer {
    let token = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match (is_plain, token) {
        (true, None) | (false, Some("Bearer secret")) => text(StatusCode::OK, body),
        (true, Some(_)) => text(StatusCode::BAD_REQUEST, "credentials on the open port"),
        (false, _) => text(StatusCode::UNAUTHORIZED, "who are you?"),
    }
}

/// A node whose kubelet is there, and credentials with this token.
fn kubelet(
    fake: &FakeKubelet,
    token: &str,
    options: KubeletOptions,
) -> (Kubelet, State, Arc<Mutex<Vec<Call>>>) {
    let node = node(&[("InternalIP", "127.0.0.1")], fake.address.port());
    let state = State::new(Snapshot { node: Some(Arc::new(node)), ..Snapshot::default() });
    let mut config = kube::Config::new("https://10.0.0.1:6443".parse().unwrap());
    config.auth_info.token = Some(token.to_owned().into());
    let calls = Arc::new(Mutex::new(Vec::new()));
    let heard = calls.clone();
    let observe: Observe = Arc::new(move |call| heard.lock().unwrap().push(call));
    // Patient: the machine may be busy.
    let options = KubeletOptions { timeout: Duration::from_secs(60), ..options };
    (Kubelet::new(state.clone(), config, options, observe), state, calls)
}

#[tokio::test]
async fn credentials_are_shown_and_answers_timed() {
    let fake = FakeKubelet::start(false).await;
    let (kubelet, _, calls) = kubelet(&fake, "secret", KubeletOptions::default());
    assert_eq!(kubelet.pods().await.unwrap(), r#"{"items":[]}"#);
    assert_eq!(kubelet.config().await.unwrap().cpu_manager_policy, "none");
    let calls: Vec<(&str, u16)> = calls.lock().unwrap().iter().map(|call| (call.path, call.code)).collect();
    assert_eq!(calls, [("/pods/", 200), ("/configz", 200)]);
}

#[tokio::test]
async fn a_refusal_names_the_request() {
    let fake = FakeKubelet::start(false).await;
    let (kubelet, _, calls) = kubelet(&fake, "wrong", KubeletOptions::default());
    let error = kubelet.pods().await.unwrap_err().to_string();
    assert_eq!(error, format!("request https://{}/pods/ failed, code 401", fake.address));
    assert_eq!(calls.lock().unwrap()[0].code, 401);
}

#[tokio::test]
async fn the_certificate_is_verified_when_a_ca_is_given() {
    let fake = FakeKubelet::start(false).await;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        Some(path)
    };
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem();
    let right =
        KubeletOptions { ca_file: write("right.pem", &fake.certificate), ..KubeletOptions::default() };
    let wrong = KubeletOptions { ca_file: write("wrong.pem", &other), ..KubeletOptions::default() };
    assert!(kubelet(&fake, "secret", right).0.pods().await.is_ok());
    let error = kubelet(&fake, "secret", wrong).0.pods().await.unwrap_err();
    assert!(matches!(error, KubeletError::Request { .. }), "{error}");
}

#[tokio::test]
async fn the_open_port_sees_no_credentials() {
    let fake = FakeKubelet::start(true).await;
    let options =
        KubeletOptions { is_plain: true, read_only_port: fake.address.port(), ..KubeletOptions::default() };
    let (kubelet, _, _) = kubelet(&fake, "secret", options);
    assert_eq!(kubelet.pods().await.unwrap(), r#"{"items":[]}"#);
    assert!(!kubelet.tells_config());
}

#[tokio::test]
async fn the_connection_follows_the_node() {
    let (first, second) = (FakeKubelet::start(false).await, FakeKubelet::start(false).await);
    let (kubelet, state, _) = kubelet(&first, "secret", KubeletOptions::default());
    assert!(kubelet.pods().await.is_ok());
    drop(first);
    let moved = node(&[("InternalIP", "127.0.0.1")], second.address.port());
    state.update(|snapshot| snapshot.node = Some(Arc::new(moved)));
    assert!(kubelet.pods().await.is_ok());
    state.update(|snapshot| snapshot.node = None);
    assert!(matches!(kubelet.pods().await, Err(KubeletError::NoNode)));
}
