//! What happens to every request: retried when that is safe, limited in rate, limited in time, counted.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Bytes};
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::ClientOptions;
use super::limit::RateLimiter;
use crate::metrics::{ClientMetrics, RequestLabels, VerbLabels};
use crate::random;

/// When and how often a request is sent again.
///
/// The server's word counts first: an answer with `Retry-After` means that the request was turned away before it did
/// anything, so any method is sent again after that time. Without it, 429 and 5xx answers and broken connections are
/// retried for GET, HEAD, PUT and DELETE, which do the same when done twice, and any method is retried when the
/// connection was never made.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    pub attempts_max: u32,
    pub delay_min: Duration,
    pub delay_max: Duration,
}

impl RetryPolicy {
    pub const NEVER: RetryPolicy =
        RetryPolicy { attempts_max: 1, delay_min: Duration::ZERO, delay_max: Duration::ZERO };

    /// The wait before attempt `number` (the second is 1): doubling, with half of it left to chance so that clients
    /// that failed together do not come back together.
    pub(crate) fn delay(&self, number: u32, chance: f64) -> Duration {
        let doubled = self.delay_min.saturating_mul(2_u32.saturating_pow(number.saturating_sub(1)));
        doubled.min(self.delay_max).mul_f64(0.5 + chance)
    }
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts_max: 6,
            delay_min: Duration::from_millis(100),
            delay_max: Duration::from_secs(5),
        }
    }
}

/// A server that asks for more patience than this is retried sooner: its words may be a proxy's.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// No answer in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer to {method} {path} within {} s", timeout.as_secs_f64())]
pub struct TimedOut {
    method: Method,
    path: String,
    timeout: Duration,
}

/// The service below `kube::Client`.
#[derive(Clone)]
pub(super) struct ApiService<S> {
    wire: S,
    shared: Arc<Shared>,
}

struct Shared {
    limiter: RateLimiter,
    timeout: Duration,
    retry: RetryPolicy,
    metrics: Option<ClientMetrics>,
    host: String,
    /// Metrics already found, since most requests are like one before. Few, so the first that fits is soon found.
    known: RwLock<Vec<Known>>,
}

/// Where requests of one sort are counted.
struct Known {
    method: Method,
    is_stream: bool,
    /// None when there was no answer.
    status: Option<StatusCode>,
    requests: Counter,
    duration: Histogram,
    throttled: Histogram,
}

impl<S> ApiService<S> {
    pub(super) fn new(wire: S, limiter: RateLimiter, options: &ClientOptions, host: String) -> ApiService<S> {
        let shared = Shared {
            limiter,
            timeout: options.timeout,
            retry: options.retry.clone(),
            metrics: options.metrics.clone(),
            host,
            known: RwLock::default(),
        };
        ApiService { wire, shared: Arc::new(shared) }
    }
}

impl<S, B> Service<Request<Body>> for ApiService<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each attempt waits for its own clone of the wire, so there is nothing to wait for here.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (wire, shared) = (self.wire.clone(), self.shared.clone());
        Box::pin(async move { shared.send(wire, request).await })
    }
}

/// An answer's body: already here, or still coming for a watch.
pub(super) type AnswerBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

impl Shared {
    async fn send<S, B>(&self, wire: S, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let is_stream = is_stream(&request);
        let (parts, mut body) = request.into_parts();
        let mut attempt = 1;
        loop {
            // A body that cannot be copied can be sent once; kube's own requests always can.
            let copy = body.try_clone();
            let is_last = attempt >= self.retry.attempts_max || is_stream || copy.is_none();
            let this_body = copy.unwrap_or_else(|| std::mem::replace(&mut body, Body::empty()));
            let this = Request::from_parts(parts.clone(), this_body);
            let result = self.attempt(wire.clone(), this, is_stream).await;
            let wait = match &result {
                Ok(answer) => after_answer(&parts.method, answer.status(), answer.headers()),
                Err(error) => after_error(&parts.method, error.as_ref()),
            };
            let Some(wait) = wait.filter(|_| !is_last) else { return result };
            let wait = wait.unwrap_or_else(|| self.retry.delay(attempt, random::unit()));
            tracing::debug!(
                method = %parts.method,
                path = parts.uri.path(),
                attempt,
                wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                "request will be sent again"
            );
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    async fn attempt<S, B>(
        &self,
        mut wire: S,
        request: Request<Body>,
        is_stream: bool,
    ) -> Result<Response<AnswerBody>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>>,
        S::Error: Into<BoxError>,
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let throttled = self.limiter.acquire().await;
        let start = Instant::now();
        let exchange = async {
            std::future::poll_fn(|cx| wire.poll_ready(cx)).await.map_err(Into::into)?;
            let answer = wire.call(request).await.map_err(Into::into)?;
            let (parts, body) = answer.into_parts();
            let body = if is_stream {
                BodyExt::map_err(body, Into::into).boxed_unsync()
            } else {
                // Whole bodies are read here, so that the time limit covers them and a broken one can be retried.
                let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
                BodyExt::map_err(http_body_util::Full::new(bytes), |never| match never {}).boxed_unsync()
            };
            Ok(Response::from_parts(parts, body))
        };
        let result = match tokio::time::timeout(self.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(TimedOut { method: method.clone(), path, timeout: self.timeout }.into()),
        };
        self.count(&method, is_stream, &result, throttled, start.elapsed());
        result
    }

    fn count(
        &self,
        method: &Method,
        is_stream: bool,
        result: &Result<Response<AnswerBody>, BoxError>,
        throttled: Duration,
        took: Duration,
    ) {
        let Some(metrics) = &self.metrics else { return };
        let status = result.as_ref().ok().map(Response::status);
        let count = |known: &Known| {
            known.requests.inc();
            known.duration.observe(took.as_secs_f64());
            known.throttled.observe(throttled.as_secs_f64());
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let like = |known: &&Known| {
            known.status == status && known.method == *method && known.is_stream == is_stream
        };
        if let Some(known) = known.iter().find(like) {
            return count(known);
        }
        drop(known);
        let known = self.look_up(metrics, method, is_stream, status);
        count(&known);
        self.known.write().unwrap_or_else(PoisonError::into_inner).push(known);
    }

    fn look_up(
        &self,
        metrics: &ClientMetrics,
        method: &Method,
        is_stream: bool,
        status: Option<StatusCode>,
    ) -> Known {
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.as_str().to_owned());
        let verb = if is_stream { "WATCH".to_owned() } else { method.to_string() };
        let by_verb = VerbLabels { host: self.host.clone(), verb };
        let by_code = RequestLabels { code, host: self.host.clone(), method: method.to_string() };
        Known {
            method: method.clone(),
            is_stream,
            status,
            requests: metrics.requests.get_or_create_owned(&by_code),
            duration: metrics.duration.get_or_create_owned(&by_verb),
            throttled: metrics.throttled.get_or_create_owned(&by_verb),
        }
    }
}

/// Marks a request (as an extension) whose answer is read bit by bit, by someone who notices himself when it stalls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadInPieces;

/// Whether the answer has no end of its own: a watch, a followed log, an upgraded connection; or is read in pieces.
fn is_stream(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let asks = query.split('&').any(|part| matches!(part, "watch=true" | "watch=1" | "follow=true"));
    asks || request.headers().contains_key(header::UPGRADE)
        || request.extensions().get::<ReadInPieces>().is_some()
}

/// Whether an answer asks for another try, and after how long if it says so.
fn after_answer(method: &Method, status: StatusCode, headers: &http::HeaderMap) -> Option<Option<Duration>> {
    let is_busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if !is_busy {
        return None;
    }
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(seconds) = seconds {
        return Some(Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX)));
    }
    is_repeatable(method).then_some(None)
}

/// Whether a failed exchange may be tried again.
fn after_error(method: &Method, error: &(dyn std::error::Error + 'static)) -> Option<Option<Duration>> {
    let never_sent = error
        .downcast_ref::<hyper_util::client::legacy::Error>()
        .is_some_and(hyper_util::client::legacy::Error::is_connect);
    (never_sent || is_repeatable(method)).then_some(None)
}

fn is_repeatable(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientConnection;
    use std::collections::VecDeque;
    use std::sync::Mutex;

    /// A server that gives prepared answers and remembers when it was asked.
    #[derive(Clone, Default)]
    struct Script {
        answers: Arc<Mutex<VecDeque<Reply>>>,
        asked: Arc<Mutex<Vec<Instant>>>,
    }

    #[derive(Clone, Copy)]
    enum Reply {
        Status(u16),
        RetryAfter(u16, u64),
        Broken,
        Silence,
    }

    impl Service<Request<Body>> for Script {
        type Response = Response<http_body_util::Full<Bytes>>;
        type Error = BoxError;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            self.asked.lock().unwrap().push(Instant::now());
            let reply = self.answers.lock().unwrap().pop_front().unwrap_or(Reply::Status(200));
            Box::pin(async move {
                let status = match reply {
                    Reply::Status(status) | Reply::RetryAfter(status, _) => status,
                    Reply::Broken => return Err("connection reset".into()),
                    Reply::Silence => std::future::pending().await,
                };
                let mut answer = Response::builder().status(status);
                if let Reply::RetryAfter(_, seconds) = reply {
                    answer = answer.header("retry-after", seconds);
                }
                Ok(answer.body(http_body_util::Full::new(Bytes::from_static(b"{}"))).unwrap())
            })
        }
    }

    struct Outcome {
        result: Result<u16, String>,
        attempts: usize,
        seconds: f64,
    }

    async fn check(method: &str, uri: &str, replies: &[Reply]) -> Outcome {
        let script = Script::default();
        script.answers.lock().unwrap().extend(replies.iter().copied());
        let options = ClientOptions {
            timeout: Duration::from_secs(10),
            ..ClientOptions::new("koord-test", ClientConnection::default())
        };
        let mut service =
            ApiService::new(script.clone(), RateLimiter::new(-1.0, 0), &options, "h".to_owned());
        let start = Instant::now();
        let request = Request::builder().method(method).uri(uri).body(Body::from(b"x".to_vec())).unwrap();
        let result = service.call(request).await;
        let attempts = script.asked.lock().unwrap().len();
        let result = result.map(|answer| answer.status().as_u16()).map_err(|error| error.to_string());
        Outcome { result, attempts, seconds: start.elapsed().as_secs_f64() }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_retried_when_that_is_safe() {
        use Reply::*;
        for (name, method, uri, replies, status, attempts) in [
            ("a good answer", "GET", "/a", &[Status(200)][..], 200, 1),
            ("not found is an answer", "GET", "/a", &[Status(404)], 404, 1),
            ("a conflict is an answer", "PUT", "/a", &[Status(409)], 409, 1),
            ("busy", "GET", "/a", &[Status(503), Status(429), Status(200)], 200, 3),
            ("broken connection", "GET", "/a", &[Broken, Status(200)], 200, 2),
            ("a put says the same twice", "PUT", "/a", &[Status(500), Status(200)], 200, 2),
            ("a create may not", "POST", "/a", &[Status(500)], 500, 1),
            ("unless the server turned it away", "POST", "/a", &[RetryAfter(429, 1), Status(201)], 201, 2),
            ("a patch neither", "PATCH", "/a", &[Status(502)], 502, 1),
            ("not for ever", "GET", "/a", &[Status(500); 20], 500, 6),
            ("a watch has its own ways", "GET", "/a?watch=true", &[Status(500)], 500, 1),
        ] {
            let outcome = check(method, uri, replies).await;
            assert_eq!(outcome.result, Ok(status), "{name}");
            assert_eq!(outcome.attempts, attempts, "{name}");
        }
        let outcome = check("POST", "/a", &[Broken]).await;
        assert_eq!(outcome.result, Err("connection reset".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_servers_patience_is_kept() {
        let outcome = check("GET", "/a", &[Reply::RetryAfter(429, 7), Reply::Status(200)]).await;
        assert!((7.0..7.1).contains(&outcome.seconds), "{}", outcome.seconds);
        let outcome = check("GET", "/a", &[Reply::RetryAfter(503, 9999), Reply::Status(200)]).await;
        assert!((30.0..30.1).contains(&outcome.seconds), "{}", outcome.seconds);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_in_a_named_error() {
        let outcome = check("POST", "/apis/x", &[Reply::Silence]).await;
        assert_eq!(outcome.result, Err("no answer to POST /apis/x within 10 s".to_owned()));
    }

    #[test]
    fn delays_double_up_to_a_limit_and_vary() {
        let policy = RetryPolicy::default();
        for (number, chance, want_ms) in
            [(1, 0.0, 50), (1, 0.5, 100), (3, 0.5, 400), (9, 0.5, 5000), (60, 0.5, 5000)]
        {
            assert_eq!(policy.delay(number, chance), Duration::from_millis(want_ms), "{number} {chance}");
        }
    }
}
