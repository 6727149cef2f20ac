//! A test double: an API server that answers by a function and remembers what it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

/// One request as the server saw it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// `POST /api/v1/…`, with the query.
    pub(crate) line: String,
    pub(crate) body: Value,
}

#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl FakeApi {
    /// A client of a server that answers with a status and an object.
    pub(crate) fn client(
        &self,
        script: impl Fn(&Seen) -> (u16, Value) + Clone + Send + Sync + 'static,
    ) -> kube::Client {
        let all = self.seen.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (all, script) = (all.clone(), script.clone());
            async move {
                let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
                let line = format!("{} {path}", request.method());
                let bytes = request.into_body().collect_bytes().await.unwrap_or_default();
                let seen = Seen { line, body: serde_json::from_slice(&bytes).unwrap_or_default() };
                let (code, answer) = script(&seen);
                all.lock().unwrap().push(seen);
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    /// What was asked since the last look.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }
}

/// How the API server refuses.
pub(crate) fn refused(code: u16, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "x"}))
}
