//! The kubelet's own server, of nodes that an agent is to be run on: which pods are here, and how it is configured.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use http::{Method, Request, Response, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::api::{Api, User};
use super::render::{self, Body};
use super::tls::{self, Authority, TlsError};
use super::{HANDSHAKE_TIMEOUT, IDLE_TIMEOUT, token_owner};

/// Clients at once: an agent or two, and somebody who looks.
const CONNECTIONS_MAX: usize = 64;

/// With what kubelets show themselves, and whom they answer. Cheap to clone.
#[derive(Clone)]
pub struct KubeletKeys {
    /// PEM of who signed the kubelets' certificate.
    pub(crate) authority: String,
    tls: TlsAcceptor,
    tokens: Arc<HashMap<String, Arc<User>>>,
}

impl KubeletKeys {
    /// The same clients as the API server has.
    pub fn new(authority: &Authority, tokens: &HashMap<String, User>) -> Result<KubeletKeys, TlsError> {
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let tls = authority.server_config(&authority.server(&names)?)?;
        let tokens = tokens.iter().map(|(token, user)| (token.clone(), Arc::new(user.clone()))).collect();
        let authority = authority.certificate().to_owned();
        Ok(KubeletKeys { authority, tls: TlsAcceptor::from(Arc::new(tls)), tokens: Arc::new(tokens) })
    }
}

/// A running server. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Kubelet {
    port: u16,
    task: JoinHandle<()>,
}

/// What the server answers from.
struct Node {
    api: Arc<Api>,
    name: Arc<str>,
    /// The answer of `/configz`.
    config: Value,
}

impl Kubelet {
    /// Serves for a node, on a free port of this machine.
    pub(crate) fn start(
        api: Arc<Api>,
        name: Arc<str>,
        config: Value,
        keys: KubeletKeys,
    ) -> io::Result<Kubelet> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let node = Arc::new(Node { api, name, config });
        Ok(Kubelet { port, task: tokio::spawn(run(listener, node, keys)) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(listener: TcpListener, node: Arc<Node>, keys: KubeletKeys) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                };
                let (node, keys) = (node.clone(), keys.clone());
                connections.spawn(async move {
                    serve(stream, node, keys).await;
                    drop(slot);
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn serve(stream: TcpStream, node: Arc<Node>, keys: KubeletKeys) {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, keys.tls.accept(stream));
    let Ok(Ok(stream)) = handshake.await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|list| list.first());
    let owner = certificate.and_then(tls::user_of).map(Arc::new);
    let service = service_fn(move |request: Request<Incoming>| {
        let user = owner.clone().or_else(|| token_owner(&keys.tokens, request.headers()));
        let answer = answer(&node, user.as_deref(), &request);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
    // A broken connection is the client's business.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

fn answer<B>(node: &Node, user: Option<&User>, request: &Request<B>) -> Response<Body> {
    if user.is_none() {
        return render::text(401, "Unauthorized");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = render::text(405, "405: Method Not Allowed");
        refused.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET"));
        return refused;
    }
    match request.uri().path() {
        "/pods" | "/pods/" => render::respond(200, render::full(pods(node)), "application/json"),
        "/configz" => {
            render::respond(200, render::full(node.config.to_string()), "application/json; charset=UTF-8")
        }
        "/healthz" => render::text(200, "ok"),
        _ => render::text(404, "404 page not found\n"),
    }
}

/// The pods of the node, whatever has become of them, as they stand in the API server.
fn pods(node: &Node) -> Vec<u8> {
    let mut body = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_vec();
    let Ok(kind) = node.api.kind("", "pods") else { return body };
    let is_here = |pod: &crate::store::Stored| pod.field("spec.nodeName") == &*node.name;
    let found = node.api.table(&kind).page(crate::store::Query::default(), &is_here);
    for (number, pod) in found.map(|page| page.items).unwrap_or_default().iter().enumerate() {
        if number > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&pod.json());
    }
    body.extend_from_slice(b"]}\n");
    body
}
