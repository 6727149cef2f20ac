//! The HTTPS server that the API server calls: bytes in, bytes out. Spec: manager 14.1.
//!
//! [`Desk::answer`] is a whole review without HTTP; [`Desk::router`] puts it behind the paths. Certificates are read
//! anew for each connection, so that new ones are used without a restart and without breaking what is under way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request as HttpRequest, StatusCode, Version, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use koord_kit::http::{Answer as HttpAnswer, Router, is_local, text, with_type};
use koord_kit::random;
use tokio_util::sync::CancellationToken;

use super::facts::{Board, Facts, Texts};
use super::handler::{Aside, Handler};
use super::metrics::WebhookMetrics;
use super::paths::{ENTRIES, Entry};
use super::review::{Complaint, Request, decode, encode, encode_error};

/// Two objects of the largest size that the API server takes, and some.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long the labels of a namespace that the watch has not told of are waited for.
const NAMESPACE_WAIT: Duration = Duration::from_secs(2);

/// Reads the labels of a namespace from the API server; none when there is no such namespace.
pub type FindNamespace = Arc<dyn Fn(String) -> BoxFuture<'static, Option<Texts>> + Send + Sync>;

/// Tells the owner of a profile what it does.
pub type Complain = Arc<dyn Fn(&Complaint) + Send + Sync>;

/// Where requests are answered.
pub struct Desk {
    pub handlers: BTreeMap<&'static str, Handler>,
    pub board: Arc<Board>,
    pub find_namespace: FindNamespace,
    pub complain: Complain,
    pub metrics: WebhookMetrics,
    /// Cancelled when this process is about to stop.
    pub leaving: CancellationToken,
}

impl Desk {
    /// The answer to a body that came to a path, if anything is served there.
    pub async fn answer(&self, path: &str, body: &[u8]) -> Option<Vec<u8>> {
        let begun = Instant::now();
        let (path, handler) = self.handlers.get_key_value(path)?;
        let request = match decode(body) {
            Ok(request) => Arc::new(request),
            Err(error) => {
                tracing::debug!(path, %error, "a body that is no review");
                return Some(encode_error(&error));
            }
        };
        let facts = self.facts(&request).await;
        let mut dice = || i64::try_from(random::bits() % 100).unwrap_or_default();
        let mut step = self.stopwatch(path, &request);
        let mut aside = Aside { dice: &mut dice, step: &mut step };
        let answer = handler.answer(&request, &facts, &mut aside).await;
        for complaint in &answer.complaints {
            (self.complain)(complaint);
        }
        let encoded = encode(&request, &answer);
        self.metrics.review(path, begun.elapsed());
        Some(encoded)
    }

    /// The facts of the moment. A pod may come faster than the news of its namespace; then we ask.
    async fn facts(&self, request: &Request) -> Arc<Facts> {
        let facts = self.board.now();
        let namespace = &request.namespace;
        let asks = request.resource.resource == "pods" && facts.profiles.ask_for_namespaces();
        if !asks || namespace.is_empty() || facts.namespace_labels(namespace).is_some() {
            return facts;
        }
        let found = tokio::time::timeout(NAMESPACE_WAIT, (self.find_namespace)(namespace.clone())).await;
        match found {
            Ok(Some(labels)) => {
                let mut more = Facts::clone(&facts);
                more.new_namespace = Some((namespace.clone(), Arc::new(labels)));
                Arc::new(more)
            }
            _ => {
                tracing::warn!(
                    namespace,
                    "the labels of a namespace are not known; profiles that ask for them are left out"
                );
                facts
            }
        }
    }

    /// Times the steps of one request, each from the end of the one before.
    fn stopwatch(&self, path: &str, request: &Request) -> impl FnMut(&'static str, bool) + Send + use<> {
        let entry: &Entry = ENTRIES.iter().find(|entry| entry.path == path).unwrap_or(&ENTRIES[0]);
        let (side, object, operation) = (entry.side, entry.metric, request.operation);
        let metrics = self.metrics.clone();
        let mut last = Instant::now();
        move |plugin, is_fine| {
            let now = Instant::now();
            metrics.step(side, object, operation, plugin, is_fine, now - last);
            last = now;
        }
    }

    /// All paths: reviews, `/healthz`, `/convert`, and `/elasticQuota`, of which `quotas` is the content.
    pub fn router(self: Arc<Desk>, quotas: Arc<dyn Fn() -> serde_json::Value + Send + Sync>) -> Router {
        let mut router = Router::bare().page("/healthz", |_| async { text(StatusCode::OK, "") });
        for path in self.handlers.keys() {
            let desk = self.clone();
            router = router.page(path, move |request| {
                let desk = desk.clone();
                async move { desk.page(request).await }
            });
        }
        // No kind of ours has two versions, so there is nothing to convert.
        router =
            router.page("/convert", |_| async { text(StatusCode::NOT_FOUND, "no kind is converted here\n") });
        router.page("/elasticQuota", move |request: HttpRequest<Incoming>| {
            let answer = match is_local(&request) {
                true => koord_kit::http::json(StatusCode::OK, &quotas()),
                // Differs: upstream shows all quotas to whoever asks (manager 26, DB-28).
                false => text(StatusCode::FORBIDDEN, "this page is for clients on the same machine\n"),
            };
            async move { answer }
        })
    }

    async fn page(&self, request: HttpRequest<Incoming>) -> HttpAnswer {
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "reviews are posted\n");
        }
        let (path, version) = (request.uri().path().to_owned(), request.version());
        let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                return text(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}\n"));
            }
        };
        let mut answer = match self.answer(&path, &body).await {
            Some(answer) => with_type(StatusCode::OK, "application/json", answer),
            None => text(StatusCode::NOT_FOUND, "nothing is served here\n"),
        };
        // An API server sends its next request on a connection that it believes to be good. Told in time, it takes another;
        // found closed, the request fails. HTTP/2 has its own way to say so.
        if version == Version::HTTP_11 && self.leaving.is_cancelled() {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

#[cfg(test)]
mod tests;
