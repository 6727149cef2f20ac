//! The server every process has: health, metrics, and room for a component's own pages.
//!
//! [`Health`] holds the named checks behind `/healthz`, `/livez` and `/readyz`; [`Router`] adds `/metrics` and a
//! component's handlers; [`Listen`] says where; [`serve`] runs it on a listener, plain or over TLS, until asked to stop, and lets requests
//! in flight finish. Bytes on the wire are hyper's business, so there is no web framework here.

mod client_cert;
pub mod health;
mod listen;
mod tls;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use client_cert::{CertificateUser, ClientCa, ClientCaError, PeerCertificates};
pub use health::{Check, Health};
pub use listen::{BadAddress, Listen};
pub use tls::{TlsError, TlsFiles};

use crate::metrics::{Format, Metrics};

/// Connections served at once; more wait in the kernel's queue. Scrapers, probes and a console need a handful.
const CONNECTIONS_MAX: usize = 512;

/// A client that does not finish its handshake or its request's head in this time is let go.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// A complete answer.
pub type Answer = Response<Full<Bytes>>;

/// A component's own page.
pub type Handler = Arc<dyn Fn(Request<Incoming>) -> AnswerFuture + Send + Sync>;

/// What a [`Handler`] returns.
pub type AnswerFuture = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Says who may not have an answer: `Some` is what they get instead.
pub type Guard = Arc<dyn Fn(&http::request::Parts) -> GuardFuture + Send + Sync>;

/// What a [`Guard`] returns.
pub type GuardFuture = Pin<Box<dyn Future<Output = Option<Answer>> + Send>>;

/// Which path is answered by what.
#[derive(Clone)]
pub struct Router {
    /// None where only pages are served.
    own: Option<(Arc<Health>, Arc<Metrics>)>,
    pages: Vec<(String, Handler)>,
    guard: Option<Guard>,
}

impl Router {
    pub fn new(health: Arc<Health>, metrics: Arc<Metrics>) -> Router {
        Router { own: Some((health, metrics)), pages: Vec::new(), guard: None }
    }

    /// Neither health nor metrics, for ports that strangers reach.
    pub fn bare() -> Router {
        Router { own: None, pages: Vec::new(), guard: None }
    }

    /// Asks this before anything else is answered.
    pub fn guarded(mut self, guard: Guard) -> Router {
        self.guard = Some(guard);
        self
    }

    /// Adds a page. A path that ends in `/` answers everything below it; the longest match wins.
    pub fn page<F, A>(mut self, path: &str, handler: F) -> Router
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        self.pages.push((path.to_owned(), Arc::new(move |request| Box::pin(handler(request)))));
        self
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let request = match &self.guard {
            None => request,
            Some(guard) => {
                let (parts, body) = request.into_parts();
                if let Some(refusal) = guard(&parts).await {
                    return refusal;
                }
                Request::from_parts(parts, body)
            }
        };
        let path = request.uri().path().to_owned();
        if let Some(handler) = self.handler(&path) {
            return handler(request).await;
        }
        let own = self.own.as_ref().filter(|(health, _)| path == "/metrics" || health.serves(&path));
        let Some((health, metrics)) = own else {
            return text(StatusCode::NOT_FOUND, format!("no page {path}\n"));
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} is read with GET\n"));
        }
        if path == "/metrics" {
            return metrics_page(metrics, &request);
        }
        let (passed, body) = health.answer(&path, request.uri().query().unwrap_or_default());
        text(if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, body)
    }

    fn handler(&self, path: &str) -> Option<&Handler> {
        let matches = |page: &str| page == path || (page.ends_with('/') && path.starts_with(page));
        let best = self.pages.iter().filter(|(page, _)| matches(page)).max_by_key(|(page, _)| page.len());
        best.map(|(_, handler)| handler)
    }
}

fn metrics_page(metrics: &Metrics, request: &Request<Incoming>) -> Answer {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::of_accept(accept);
    with_type(StatusCode::OK, format.content_type(), metrics.render(format))
}

/// Whether a request comes from the same machine, or through `kubectl port-forward`.
pub fn is_local<B>(request: &Request<B>) -> bool {
    request.extensions().get::<SocketAddr>().is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

/// A plain text answer.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    with_type(status, "text/plain; charset=utf-8", body)
}

/// A JSON answer.
pub fn json(status: StatusCode, body: &serde_json::Value) -> Answer {
    with_type(status, "application/json", body.to_string())
}

/// An answer of any type.
pub fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    answer
}

/// Serves until `stop` is cancelled, then finishes the requests in flight and returns.
pub async fn serve(listener: TcpListener, router: Router, tls: Option<TlsFiles>, stop: CancellationToken) {
    let router = Arc::new(router);
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, usually: wait for some to come back instead of spinning.
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // An answer in several writes must not wait for the client's acknowledgement of the first; slow is better than none.
        let _ = socket.set_nodelay(true);
        let (router, watcher, tls) = (router.clone(), graceful.watcher(), tls.clone());
        tokio::spawn(async move {
            connection(socket, peer, router, tls, watcher).await;
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn connection(
    socket: TcpStream,
    peer: SocketAddr,
    router: Arc<Router>,
    tls: Option<TlsFiles>,
    watcher: Watcher,
) {
    let Some(tls) = tls else {
        return converse(TokioIo::new(socket), router, peer, None, watcher).await;
    };
    match tokio::time::timeout(HEAD_TIMEOUT, tls.acceptor().accept(socket)).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates();
            let shown = shown.map(|shown| PeerCertificates(shown.to_vec().into()));
            converse(TokioIo::new(stream), router, peer, shown, watcher).await;
        }
        Ok(Err(error)) => tracing::debug!(error = &error as &dyn std::error::Error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

/// HTTP/1.1, or HTTP/2 where the client speaks it: an API server then needs one connection for all its requests.
async fn converse<T: Read + Write + Unpin + Send + 'static>(
    io: T,
    router: Arc<Router>,
    peer: SocketAddr,
    shown: Option<PeerCertificates>,
    watcher: Watcher,
) {
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let router = router.clone();
        request.extensions_mut().insert(peer);
        if let Some(shown) = &shown {
            request.extensions_mut().insert(shown.clone());
        }
        async move { Ok::<_, Infallible>(router.answer(request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection(io, service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(error = &*error as &dyn std::error::Error, "connection ended early");
    }
}
