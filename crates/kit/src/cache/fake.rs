//! A small API server for one kind, in memory, whose connections misbehave on demand.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::{BoxError, Service};

type AnswerBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// Serves config maps in namespace `n`; the payload is `data.value`.
#[derive(Clone, Default)]
pub(super) struct FakeServer {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    uids: u64,
    objects: BTreeMap<String, Value>,
    /// Everything that happened since the last compaction, as `(version, line)`.
    history: Vec<(u64, String)>,
    compacted: u64,
    watchers: Vec<mpsc::UnboundedSender<Result<Bytes, BoxError>>>,
    /// Answers to give instead of the right ones.
    mishaps: VecDeque<Mishap>,
    /// Lines held back until [`FakeServer::release`].
    held: Option<Vec<String>>,
    /// Everything asked so far.
    requests: Vec<String>,
    /// What was there when a list began whose further pages may be asked for, by version.
    snapshots: BTreeMap<u64, BTreeMap<String, Value>>,
}

/// What may happen to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mishap {
    Status(u16),
    Broken,
    /// This one is answered well.
    None,
}

impl FakeServer {
    pub(super) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "n")
    }

    /// What the server holds, as name to payload; broken objects are left out.
    pub(super) fn truth(&self) -> BTreeMap<String, String> {
        let state = self.state.lock().unwrap();
        let sound = state.objects.iter().filter(|(_, object)| object["data"].is_object());
        sound.map(|(name, object)| (name.clone(), payload(object))).collect()
    }

    pub(super) fn put(&self, name: &str, value: &str) {
        self.state.lock().unwrap().put(name, json!({ "value": value }));
    }

    /// Stores an object that a typed decoder refuses.
    pub(super) fn put_broken(&self, name: &str) {
        self.state.lock().unwrap().put(name, json!("this is not a map"));
    }

    pub(super) fn delete(&self, name: &str) {
        self.state.lock().unwrap().delete(name);
    }

    /// Ends every open watch, in the middle of a line if there is one to send.
    pub(super) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        for watcher in state.watchers.drain(..) {
            let _ = watcher.send(Ok(Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"meta")));
        }
    }

    /// Breaks every open watch with an error.
    pub(super) fn break_connections(&self) {
        for watcher in self.state.lock().unwrap().watchers.drain(..) {
            let _ = watcher.send(Err("connection reset".into()));
        }
    }

    /// Forgets its history: a watch from before now is answered with 410.
    pub(super) fn compact(&self) {
        let mut state = self.state.lock().unwrap();
        state.history.clear();
        state.compacted = state.version;
    }

    /// Tells open watches that their place is too old.
    pub(super) fn expire_watches(&self) {
        let mut state = self.state.lock().unwrap();
        let line = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
        state.send(&line.to_string());
        state.watchers.clear();
    }

    pub(super) fn bookmark(&self) {
        let mut state = self.state.lock().unwrap();
        let line = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": state.version.to_string()}}});
        state.send(&line.to_string());
    }

    /// Sends the last lines once more.
    pub(super) fn repeat(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        let start = state.history.len().saturating_sub(count);
        let lines: Vec<String> = state.history[start..].iter().map(|(_, line)| line.clone()).collect();
        lines.iter().for_each(|line| state.send(line));
    }

    /// Sends a line that is no JSON.
    pub(super) fn babble(&self) {
        self.state.lock().unwrap().send("{\"type\": nonsense}");
    }

    /// Holds lines back from open watches.
    pub(super) fn hold(&self) {
        self.state.lock().unwrap().held.get_or_insert_default();
    }

    /// Sends what was held back, in reverse if asked.
    pub(super) fn release(&self, reversed: bool) {
        let mut state = self.state.lock().unwrap();
        let mut lines = state.held.take().unwrap_or_default();
        if reversed {
            lines.reverse();
        }
        lines.iter().for_each(|line| state.send(line));
    }

    /// Loses what was held back, as a faulty proxy would.
    pub(super) fn lose(&self) {
        self.state.lock().unwrap().held = None;
    }

    pub(super) fn mishap(&self, mishap: Mishap) {
        self.state.lock().unwrap().mishaps.push_back(mishap);
    }

    /// Paths and queries asked for so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    fn answer(&self, request: &Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let query: BTreeMap<String, String> = request
            .uri()
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let mut state = self.state.lock().unwrap();
        state.requests.push(request.uri().to_string());
        match state.mishaps.pop_front() {
            Some(Mishap::Broken) => return Err("connection refused".into()),
            Some(Mishap::Status(code)) => return Ok(status(code)),
            Some(Mishap::None) | None => {}
        }
        if query.get("watch").is_some_and(|watch| watch == "true") {
            let from: u64 = query["resourceVersion"].parse()?;
            return Ok(state.watch(from));
        }
        Ok(state.list(&query))
    }
}

impl State {
    fn put(&mut self, name: &str, data: Value) {
        self.version += 1;
        let kind = if self.objects.contains_key(name) { "MODIFIED" } else { "ADDED" };
        if kind == "ADDED" {
            self.uids += 1;
        }
        let uid = match self.objects.get(name) {
            Some(object) => object["metadata"]["uid"].clone(),
            None => json!(format!("{:08}-0000-4000-8000-000000000000", self.uids)),
        };
        let object = json!({
            "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": self.version.to_string()},
            "data": data,
        });
        self.objects.insert(name.to_owned(), object.clone());
        self.tell(kind, &object);
    }

    fn delete(&mut self, name: &str) {
        if let Some(mut object) = self.objects.remove(name) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.tell("DELETED", &object);
        }
    }

    fn tell(&mut self, kind: &str, object: &Value) {
        let line = json!({"type": kind, "object": object}).to_string();
        self.history.push((self.version, line.clone()));
        match &mut self.held {
            Some(held) => held.push(line),
            None => self.send(&line),
        }
    }

    fn send(&mut self, line: &str) {
        let bytes = Bytes::from(format!("{line}\n"));
        self.watchers.retain(|watcher| watcher.send(Ok(bytes.clone())).is_ok());
    }

    fn watch(&mut self, from: u64) -> Response<AnswerBody> {
        if from < self.compacted {
            return status(410);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        for (_, line) in self.history.iter().filter(|(version, _)| *version > from) {
            let _ = sender.send(Ok(Bytes::from(format!("{line}\n"))));
        }
        self.watchers.push(sender);
        let stream = futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|chunk| (chunk.map(Frame::data), receiver))
        });
        Response::new(BodyExt::boxed_unsync(StreamBody::new(stream)))
    }

    /// All pages of a list show the moment of the first.
    fn list(&mut self, query: &BTreeMap<String, String>) -> Response<AnswerBody> {
        let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let token = query.get("continue").and_then(|token| token.split_once('.'));
        let (version, after) = match token {
            Some((version, after)) => (version.parse().unwrap(), after),
            None => (self.version, ""),
        };
        let objects = self.snapshots.entry(version).or_insert_with(|| self.objects.clone());
        let rest: Vec<&Value> =
            objects.iter().filter(|(name, _)| name.as_str() > after).map(|(_, object)| object).collect();
        let page: Vec<&Value> = rest.iter().copied().take(limit).collect();
        let next = if page.len() < rest.len() {
            page.last()
                .map(|last| format!("{version}.{}", last["metadata"]["name"].as_str().unwrap_or_default()))
        } else {
            None
        };
        let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
        body(200, &json!({"metadata": metadata, "items": page}))
    }
}

pub(super) fn payload(object: &Value) -> String {
    object["data"]["value"].as_str().unwrap_or_default().to_owned()
}

fn status(code: u16) -> Response<AnswerBody> {
    body(
        code,
        &json!({"kind": "Status", "status": "Failure", "code": code, "message": format!("status {code}"), "reason": ""}),
    )
}

fn body(code: u16, value: &Value) -> Response<AnswerBody> {
    let full = Full::new(Bytes::from(value.to_string()));
    let mut response = Response::new(BodyExt::map_err(full, |never| match never {}).boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}

impl Service<Request<Body>> for FakeServer {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.answer(&request);
        Box::pin(async move { answer })
    }
}
