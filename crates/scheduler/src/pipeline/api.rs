//! Requests to the API server, and what their answers mean for us.
//!
//! Answers that are not needed are not decoded: a binding's answer is only its status code.

use std::time::Duration;

use http::{Method, Request, header};
use koord_kit::log::chain;
use koord_kit::random;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Kubernetes' patience with single writes: 4 tries, 10 ms, 50 ms and 250 ms apart, with a tenth left to chance.
const TRIES: u32 = 4;
const WAIT: Duration = Duration::from_millis(10);
const WAIT_FACTOR: u32 = 5;
const WAIT_JITTER: f64 = 0.1;

/// Why a request did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server said no.
    Refused { code: u16, message: String },
    /// There was no answer: nobody knows whether it was done.
    Unanswered(String),
}

impl Failure {
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Failure::Refused { code: 404, .. })
    }

    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Failure::Refused { code: 409, .. })
    }

    /// Whether the write may have been done all the same.
    pub(super) fn is_unsure(&self) -> bool {
        matches!(self, Failure::Unanswered(_) | Failure::Refused { code: 500.., .. })
    }

    /// What Kubernetes' own scheduler tries again for a status.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Failure::Unanswered(_) | Failure::Refused { code: 500 | 503, .. })
    }

    /// What Koordinator tries again for a pod's annotations.
    pub(super) fn is_passing_for_patch(&self) -> bool {
        matches!(self, Failure::Unanswered(_) | Failure::Refused { code: 409 | 429, .. })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused { message, .. } | Failure::Unanswered(message) => f.write_str(message),
        }
    }
}

/// Which form a patch has.
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const JSON: &str = "application/json";

/// The API server.
pub(super) struct Api {
    client: kube::Client,
}

/// The path of a pod, or of a part of it.
pub(super) fn pod_path(pod: &koord_engine::pod::PodKey, part: &str) -> String {
    format!("/api/v1/namespaces/{}/pods/{}{part}", pod.namespace, pod.name)
}

impl Api {
    pub(super) fn new(client: kube::Client) -> Api {
        Api { client }
    }

    /// Sends something whose answer does not matter beyond its success.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        form: &'static str,
        body: Vec<u8>,
    ) -> Result<(), Failure> {
        self.exchange(method, path, form, body).await.map(drop)
    }

    /// Sends something and reads the answer.
    pub(super) async fn fetch<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        form: &'static str,
        body: Vec<u8>,
    ) -> Result<T, Failure> {
        let answer = self.exchange(method, path, form, body).await?;
        let bytes = answer.collect_bytes().await.map_err(|error| Failure::Unanswered(chain(&error)))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::Unanswered(format!("answer to {path}: {error}")))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        form: &'static str,
        body: Vec<u8>,
    ) -> Result<Body, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, form)
            .header(header::ACCEPT, JSON)
            .body(Body::from(body))
            // A name that no server would have given.
            .map_err(|error| Failure::Refused { code: 400, message: error.to_string() })?;
        let answer = self.client.send(request).await.map_err(|error| Failure::Unanswered(chain(&error)))?;
        let status = answer.status();
        let body = answer.into_body();
        if status.is_success() {
            return Ok(body);
        }
        let bytes = body.collect_bytes().await.unwrap_or_default();
        Err(Failure::Refused { code: status.as_u16(), message: message_of(status, &bytes) })
    }
}

#[derive(Default, Deserialize)]
struct RawStatus {
    #[serde(default)]
    message: String,
}

fn message_of(status: http::StatusCode, body: &[u8]) -> String {
    match serde_json::from_slice::<RawStatus>(body).unwrap_or_default().message {
        message if message.is_empty() => format!("the server answered {status}"),
        message => message,
    }
}

/// Tries again while it may help, as Kubernetes does for single writes.
pub(super) async fn patiently<T, F>(
    is_passing: impl Fn(&Failure) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut wait = WAIT;
    for _ in 1..TRIES {
        match attempt().await {
            Err(failure) if is_passing(&failure) => {
                tokio::time::sleep(random::jitter(wait, WAIT_JITTER)).await;
                wait = wait.saturating_mul(WAIT_FACTOR);
            }
            result => return result,
        }
    }
    attempt().await
}
