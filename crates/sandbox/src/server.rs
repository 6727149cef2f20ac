//! The API on the wire: routing, negotiation, discovery, watches, authentication.
//!
//! `api` is the layer below HTTP that everyone in the process uses; `write`, `delete`, `list`,
//! `watch` and `subresource` are its verbs. `http` turns requests into such calls, `control` those about the sandbox itself, `tls` says who
//! is calling. Nobody gets in without a certificate or a token; everybody who is in may do all.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

mod admission;
pub mod api;
pub mod control;
mod crd;
pub mod decode;
pub mod delete;
pub mod discovery;
mod expire;
mod fields;
mod http;
pub mod kubeconfig;
pub mod kubelet;
pub mod list;
mod negotiate;
mod openapi;
mod options;
mod protobuf;
mod render;
pub mod restore;
mod reviews;
mod route;
mod subresource;
pub mod tls;
mod watch_stream;
pub mod write;

pub use api::{Answer, Api, FieldValidation, Part, User, WriteOptions, Written};
pub use delete::{DeleteOptions, Deleted};
pub use list::ListOptions;
pub use restore::{RestoreError, Restored};
pub use write::Patch;

use control::Control;
use tls::{Authority, TlsError};

/// Clients at once; more wait in the backlog. A laptop's own limit on files is usually lower.
const CONNECTIONS_MAX: usize = 16_384;
/// A client must have shaken hands by then.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client must have sent its next request by then. Far longer than clients keep idle connections,
/// for one closed under their hands is an error to them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Streams one HTTP/2 connection may have open, as in Kubernetes.
const STREAMS_MAX: u32 = 250;
/// How long open requests may take to end when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Where and with which keys to serve.
pub struct ServerConfig {
    /// Port 0 chooses a free one.
    pub listen: SocketAddr,
    pub authority: Authority,
    /// Who may come with which bearer token.
    pub tokens: HashMap<String, User>,
    /// Who answers requests about the sandbox itself; None answers that there is no such page.
    pub control: Option<Arc<dyn Control>>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A running API server. Ends when stopped or dropped.
pub struct Server {
    address: SocketAddr,
    kubeconfig: String,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts serving `api`.
    pub async fn start(api: Arc<Api>, config: ServerConfig) -> Result<Server, ServerError> {
        let listen = |source| ServerError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        names.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
        let own = address.ip().to_string();
        if !names.contains(&own) {
            names.push(own);
        }
        let tls = config.authority.server_config(&config.authority.server(&names)?)?;
        let admin = User { name: "kubernetes-admin".into(), groups: vec!["system:masters".into()] };
        let client = config.authority.client(&admin)?;
        let kubeconfig =
            kubeconfig::render(&format!("https://{address}"), config.authority.certificate(), &client);
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(http::Shared {
            api: api.clone(),
            address: address.to_string(),
            shutdown: stopped,
            documents: openapi::Documents::default(),
            control: config.control,
        });
        let acceptor = Acceptor {
            tls: TlsAcceptor::from(Arc::new(tls)),
            tokens: Arc::new(config.tokens.into_iter().map(|(t, u)| (t, Arc::new(u))).collect()),
            shared,
        };
        let task = tokio::spawn(run(listener, acceptor, api));
        Ok(Server { address, kubeconfig, stop, task: Some(task) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For kubectl and every other client: the cluster, and an administrator's certificate.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Ends watches, lets requests finish for a moment, and stops.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What every connection needs.
#[derive(Clone)]
struct Acceptor {
    tls: TlsAcceptor,
    tokens: Arc<HashMap<String, Arc<User>>>,
    shared: Arc<http::Shared>,
}

async fn run(listener: TcpListener, acceptor: Acceptor, api: Arc<Api>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut stopped = acceptor.shared.shutdown.clone();
    let mut connections = JoinSet::new();
    let sweeper = tokio::spawn(expire::run(api));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let acceptor = acceptor.clone();
                    connections.spawn(async move {
                        acceptor.serve(stream).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    // Out of file descriptors, most likely: wait for some to be closed.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = stopped.changed() => break,
        }
    }
    drop(listener);
    sweeper.abort();
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_TIMEOUT, drained).await;
    connections.shutdown().await;
}

impl Acceptor {
    async fn serve(self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.tls.accept(stream));
        let Ok(Ok(stream)) = handshake.await else { return };
        let certificate = stream.get_ref().1.peer_certificates().and_then(|list| list.first());
        let owner = certificate.and_then(tls::user_of).map(Arc::new);
        let (tokens, shared) = (self.tokens, self.shared.clone());
        let service = service_fn(move |request: ::http::Request<hyper::body::Incoming>| {
            let user = owner.clone().or_else(|| token_owner(&tokens, request.headers()));
            let shared = shared.clone();
            async move { Ok::<_, std::convert::Infallible>(http::serve(shared, user, request).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .keep_alive_interval(Some(Duration::from_secs(30)))
            .keep_alive_timeout(Duration::from_secs(15));
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut stopped = self.shared.shutdown.clone();
        tokio::select! {
            // A broken connection is the client's business.
            _ = connection.as_mut() => return,
            _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

fn token_owner(tokens: &HashMap<String, Arc<User>>, headers: &::http::HeaderMap) -> Option<Arc<User>> {
    let text = headers.get(::http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    tokens.get(token.trim()).filter(|_| is_bearer).cloned()
}
