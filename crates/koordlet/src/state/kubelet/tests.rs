//! A kubelet over TLS, as far as koordlet sees one.

use super::*;
use crate::state::fake_kubelet::{CLIENT, FakeKubelet, TOKEN};

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

/// An authority, and files of a certificate that it signed and its key.
struct Client {
    authority: String,
    folder: tempfile::TempDir,
}

impl Client {
    fn new(name: &str) -> Client {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, key);
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("crt"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        std::fs::write(folder.path().join("key"), key.serialize_pem()).unwrap();
        Client { authority, folder }
    }

    fn options(&self) -> KubeletOptions {
        let [certificate, key] = ["crt", "key"].map(|name| self.folder.path().join(name));
        KubeletOptions { client_files: Some((certificate, key)), ..KubeletOptions::default() }
    }
}

/// In place of the API client's credentials, which the kubelet does not get to see then.
#[tokio::test]
async fn a_certificate_of_its_own_is_shown_where_one_is_given() {
    let (ours, others) = (Client::new(CLIENT), Client::new(CLIENT));
    let fake = FakeKubelet::start_for_clients_of(&ours.authority).await;
    for (name, options, want) in [
        ("none", KubeletOptions::default(), 401),
        ("another authority's", others.options(), 401),
        ("ours", ours.options(), 200),
    ] {
        let (kubelet, _, calls) = fake.client(TOKEN, options);
        assert_eq!(kubelet.pods().await.is_ok(), want == 200, "{name}");
        assert_eq!(kubelet.config().await.is_ok(), want == 200, "{name}");
        let codes: Vec<u16> = calls.lock().unwrap().iter().map(|call| call.code).collect();
        assert_eq!(codes, [want, want], "{name}");
    }
    // A file that is not there is told, and nothing is asked without it.
    let gone =
        KubeletOptions { client_files: Some(("gone".into(), "gone".into())), ..KubeletOptions::default() };
    let (kubelet, _, calls) = fake.client(TOKEN, gone);
    let error = kubelet.pods().await.unwrap_err();
    assert!(matches!(error, KubeletError::Client(_)), "{error}");
    assert!(calls.lock().unwrap().is_empty());
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
