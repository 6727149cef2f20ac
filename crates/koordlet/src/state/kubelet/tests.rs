//! A kubelet over TLS, as far as koordlet sees one.

use super::*;
use crate::state::fake_kubelet::{FakeKubelet, TOKEN};

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

#[tokio::test]
async fn credentials_are_shown_and_answers_timed() {
    let fake = FakeKubelet::start(false).await;
    let (kubelet, _, calls) = fake.client(TOKEN, KubeletOptions::default());
    assert_eq!(kubelet.pods().await.unwrap(), r#"{"items":[]}"#);
    assert_eq!(kubelet.config().await.unwrap().cpu_manager_policy, "none");
    let calls: Vec<(&str, u16)> = calls.lock().unwrap().iter().map(|call| (call.path, call.code)).collect();
    assert_eq!(calls, [("/pods/", 200), ("/configz", 200)]);
}

#[tokio::test]
async fn a_refusal_names_the_request() {
    let fake = FakeKubelet::start(false).await;
    let (kubelet, _, calls) = fake.client("wrong", KubeletOptions::default());
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
    assert!(fake.client(TOKEN, right).0.pods().await.is_ok());
    let error = fake.client(TOKEN, wrong).0.pods().await.unwrap_err();
    assert!(matches!(error, KubeletError::Request { .. }), "{error}");
}

#[tokio::test]
async fn the_open_port_sees_no_credentials() {
    let fake = FakeKubelet::start(true).await;
    let options =
        KubeletOptions { is_plain: true, read_only_port: fake.address.port(), ..KubeletOptions::default() };
    let (kubelet, _, _) = fake.client(TOKEN, options);
    assert_eq!(kubelet.pods().await.unwrap(), r#"{"items":[]}"#);
    assert!(!kubelet.tells_config());
}

#[tokio::test]
async fn the_connection_follows_the_node() {
    let (first, second) = (FakeKubelet::start(false).await, FakeKubelet::start(false).await);
    let (kubelet, state, _) = first.client(TOKEN, KubeletOptions::default());
    assert!(kubelet.pods().await.is_ok());
    drop(first);
    state.update(|snapshot| snapshot.node = Some(second.node()));
    assert!(kubelet.pods().await.is_ok());
    state.update(|snapshot| snapshot.node = None);
    assert!(matches!(kubelet.pods().await, Err(KubeletError::NoNode)));
}
