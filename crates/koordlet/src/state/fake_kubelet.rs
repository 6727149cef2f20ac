//! A test double: a kubelet that answers over TLS, or plainly on its read-only port.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use koord_kit::http::{Answer, ClientCa, PeerCertificates, Router, TlsFiles, serve, text};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::kubelet::{Call, Kubelet, KubeletOptions, Observe};
use super::{NodeState, Snapshot, State};

/// The token that it wants to see.
pub(crate) const TOKEN: &str = "secret";

/// The name that it wants to see in a certificate.
pub(crate) const CLIENT: &str = "koordlet";

/// Whom it answers.
#[derive(Clone)]
enum Door {
    /// Everybody, and nobody shows credentials there.
    Open,
    /// Those with the token.
    Token,
    /// Those whose certificate this authority signed, and who show nothing else.
    Certificate(ClientCa),
}

pub(crate) struct FakeKubelet {
    pub(crate) address: SocketAddr,
    /// Its certificate, which it signed itself.
    pub(crate) certificate: String,
    pods: Arc<Mutex<Result<Value, StatusCode>>>,
    stop: CancellationToken,
}

impl FakeKubelet {
    pub(crate) async fn start(is_plain: bool) -> FakeKubelet {
        FakeKubelet::open(if is_plain { Door::Open } else { Door::Token }).await
    }

    /// One that demands certificates of this authority, in PEM.
    pub(crate) async fn start_for_clients_of(authority: &str) -> FakeKubelet {
        FakeKubelet::open(Door::Certificate(ClientCa::from_pem(authority.as_bytes()).unwrap())).await
    }

    async fn open(door: Door) -> FakeKubelet {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let certificate = signed.cert.pem();
        let tls = TlsFiles::in_memory(&certificate, &signed.signing_key.serialize_pem()).unwrap();
        let tls = match &door {
            Door::Open => None,
            Door::Token => Some(tls),
            Door::Certificate(_) => Some(tls.asking_clients().unwrap()),
        };
        let pods = Arc::new(Mutex::new(Ok(json!([]))));
        let (told, of_pods) = (pods.clone(), door.clone());
        let list = move |request: http::Request<_>| {
            let (told, door) = (told.lock().unwrap().clone(), of_pods.clone());
            async move {
                match told {
                    Ok(items) => judge(&request, &door, json!({ "items": items }).to_string()),
                    Err(code) => text(code, "not now"),
                }
            }
        };
        let config = move |request: http::Request<_>| {
            let answer =
                judge(&request, &door, r#"{"kubeletconfig":{"cpuManagerPolicy":"none"}}"#.to_owned());
            async move { answer }
        };
        let router = Router::bare().page("/pods/", list).page("/configz", config);
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, router, tls, stop.clone()));
        FakeKubelet { address, certificate, pods, stop }
    }

    /// What it answers about pods from now on.
    pub(crate) fn tell(&self, pods: Result<Value, StatusCode>) {
        *self.pods.lock().unwrap() = pods;
    }

    /// The Node whose kubelet this is.
    pub(crate) fn node(&self) -> Arc<NodeState> {
        Arc::new(NodeState {
            name: "n1".to_owned(),
            addresses: vec![("InternalIP".to_owned(), "127.0.0.1".to_owned())],
            kubelet_port: self.address.port(),
            ..NodeState::default()
        })
    }

    /// A client with this token, the state it reads the Node from, and the answers it saw.
    pub(crate) fn client(
        &self,
        token: &str,
        options: KubeletOptions,
    ) -> (Kubelet, State, Arc<Mutex<Vec<Call>>>) {
        let state = State::new(Snapshot { node: Some(self.node()), ..Snapshot::default() });
        let mut config = kube::Config::new("https://10.0.0.1:6443".parse().unwrap());
        config.auth_info.token = Some(token.to_owned().into());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let heard = calls.clone();
        let observe: Observe = Arc::new(move |call| heard.lock().unwrap().push(call));
        // Patient: the machine may be busy.
        let options = KubeletOptions { timeout: Duration::from_secs(60), ..options };
        (Kubelet::new(state.clone(), config, options, observe), state, calls)
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn judge<B>(request: &http::Request<B>, door: &Door, body: String) -> Answer {
    let header = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = request.extensions().get::<PeerCertificates>();
    let is_known = match door {
        Door::Open if header.is_some() => {
            return text(StatusCode::BAD_REQUEST, "credentials on the open port");
        }
        Door::Open => true,
        Door::Token => header.is_some_and(|header| header.strip_prefix("Bearer ") == Some(TOKEN)),
        Door::Certificate(authority) => {
            let user = shown.and_then(|shown| authority.user(shown).ok().flatten());
            header.is_none() && user.is_some_and(|user| user.name == CLIENT)
        }
    };
    if is_known { text(StatusCode::OK, body) } else { text(StatusCode::UNAUTHORIZED, "who are you?") }
}
