//! Events for users: none is lost, and none stands in the way of a binding.
//!
//! [`Notes::tell`] never waits. [`Worker`] sends: now and then one while bindings are on their way, for both cost the API
//! server the same, and many at a time when it is quiet, when too many wait, or when we stop. Repeats become a series,
//! as kube-scheduler's do.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use http::{Method, Request, header};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use koord_api::crd::reservation::Reservation;
use koord_engine::engine::command::{Note, Subject};
use koord_kit::events::series::{FINISH_AFTER, SeriesBook};
use koord_kit::events::{EventType, Note as Told, Verdict};
use koord_kit::log::chain;
use kube::Resource as _;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::load::Load;

/// Sent at once when nothing else is going on.
const AT_ONCE: usize = 16;

/// So many writes on their way are busy times, and so many are quiet.
const BUSY: usize = 32;
const QUIET: usize = 4;

/// The time between one event and the next in busy times.
const TRICKLE: Duration = Duration::from_millis(20);

/// client-go's patience with a server that cannot be reached.
const TRIES_MAX: u32 = 12;
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// After a stop there is less time.
const LAST_RETRY_AFTER: Duration = Duration::from_millis(200);

/// How long what waits is still sent after a stop.
const DRAIN_MAX: Duration = Duration::from_secs(20);

/// A pod is bound once, so this cannot repeat and need not be remembered.
const ONCE: &str = "Scheduled";

/// Takes events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notes {
    queue: mpsc::UnboundedSender<Waiting>,
    load: Arc<Load>,
}

/// An event that waits, small.
#[derive(Debug)]
struct Waiting {
    at: Timestamp,
    note: Box<Note>,
}

impl Notes {
    /// Notes an event for sending. [`Load`] counts it until it is sent.
    pub fn tell(&self, note: Box<Note>) {
        self.load.begin_note();
        if self.queue.send(Waiting { at: Timestamp::now(), note }).is_err() {
            self.load.end_note();
        }
    }
}

/// Where notes are put, and the worker that sends them.
pub fn notes(client: kube::Client, load: Arc<Load>) -> (Notes, Worker) {
    let (queue, waiting) = mpsc::unbounded_channel();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let notes = Notes { queue, load: load.clone() };
    (notes, Worker { client, waiting, load, host, books: HashMap::new(), busy: HashSet::new() })
}

/// Sends events.
pub struct Worker {
    client: kube::Client,
    waiting: mpsc::UnboundedReceiver<Waiting>,
    load: Arc<Load>,
    host: String,
    /// One for each profile, for each reports under its own name.
    books: HashMap<Box<str>, SeriesBook>,
    /// Objects with an event on its way: the next one about them waits, for it may add to the first.
    busy: HashSet<Box<str>>,
}

impl Worker {
    /// Sends until every [`Notes`] is gone and all is sent, or for a while after `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(DRAIN_MAX).await;
        };
        let load = self.load.clone();
        tokio::select! {
            () = self.send_all(&stop) => {}
            () = late => tracing::warn!(events = load.notes(), "some events were not sent before the end"),
        }
    }

    async fn send_all(&mut self, stop: &CancellationToken) {
        let mut sending = FuturesUnordered::new();
        let mut tick = tokio::time::interval(FINISH_AFTER / 2);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut next: Option<Waiting> = None;
        let mut is_open = true;
        while is_open || next.is_some() || !sending.is_empty() {
            if let Some(waiting) = next.take_if(|next| {
                sending.len() < width(&self.load, stop.is_cancelled())
                    && !self.busy.contains(&next.note.about.uid)
            }) {
                let uid = waiting.note.about.uid.clone();
                self.busy.insert(uid.clone());
                let verdict = self.judge(waiting);
                let (client, load) = (self.client.clone(), self.load.clone());
                sending.push(async move {
                    send(&client, verdict, stop).await;
                    if width(&load, stop.is_cancelled()) == 1 {
                        let _ = tokio::time::timeout(TRICKLE, stop.cancelled()).await;
                    }
                    uid
                });
                continue;
            }
            tokio::select! {
                Some(uid) = sending.next() => {
                    self.busy.remove(&uid);
                    self.load.end_note();
                }
                waiting = self.waiting.recv(), if is_open && next.is_none() => match waiting {
                    Some(waiting) => next = Some(waiting),
                    None => is_open = false,
                },
                _ = tick.tick() => self.tidy(stop).await,
            }
        }
    }

    /// What is to be sent of a note.
    fn judge(&mut self, waiting: Waiting) -> Verdict<Event> {
        let Waiting { at, note } = waiting;
        let host = &self.host;
        let book = self.books.entry(note.scheduler.clone()).or_insert_with_key(|scheduler| {
            SeriesBook::new(scheduler, &format!("{scheduler}-{host}")).by_text()
        });
        let is_once = note.reason == ONCE;
        let told = told(*note);
        if is_once { Verdict::Create(book.single(at, told)) } else { book.take(at, told) }
    }

    /// Writes the final counts of series that have ended.
    async fn tidy(&mut self, stop: &CancellationToken) {
        let now = Timestamp::now();
        for verdict in self.books.values_mut().flat_map(|book| book.tidy(now)).collect::<Vec<_>>() {
            send(&self.client, verdict, stop).await;
        }
    }
}

/// How many events may be on their way.
fn width(load: &Load, is_stopping: bool) -> usize {
    match load.writes() {
        _ if is_stopping || load.is_pressed_by_notes() => AT_ONCE,
        writes if writes >= BUSY => 1,
        writes if writes >= QUIET => AT_ONCE / 4,
        _ => AT_ONCE,
    }
}

fn told(note: Note) -> Told {
    Told {
        regarding: reference(&note.about),
        related: note.related.as_ref().map(reference),
        kind: if note.is_warning { EventType::Warning } else { EventType::Normal },
        reason: note.reason.to_owned(),
        action: note.action.to_owned(),
        text: note.note,
    }
}

fn reference(about: &Subject) -> ObjectReference {
    if let Some(name) = &about.reserves {
        return ObjectReference {
            api_version: Some(Reservation::api_version(&()).into_owned()),
            kind: Some(Reservation::kind(&()).into_owned()),
            name: Some(name.to_string()),
            uid: Some(about.uid.to_string()),
            ..ObjectReference::default()
        };
    }
    let is_node = about.is_node();
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(if is_node { "Node" } else { "Pod" }.to_owned()),
        namespace: (!is_node).then(|| about.key.namespace.to_string()),
        name: Some(about.key.name.to_string()),
        uid: Some(about.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// Sends until the server has judged it, or patience ends.
async fn send(client: &kube::Client, verdict: Verdict<Event>, stop: &CancellationToken) {
    let (event, patch) = match verdict {
        Verdict::Skip => return,
        Verdict::Create(event) => (event, None),
        Verdict::Patch { event, patch } => (event, Some(patch)),
    };
    let name = event.metadata.name.as_deref().unwrap_or_default();
    for _ in 0..TRIES_MAX {
        let wait = match try_send(client, &event, patch.as_ref()).await {
            Sent::Done => return,
            Sent::Refused(why) => {
                tracing::warn!(event = name, error = why, "event was refused");
                return;
            }
            Sent::Unanswered(why) => {
                tracing::debug!(event = name, error = why, "event will be sent again");
                RETRY_AFTER
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => tokio::time::sleep(LAST_RETRY_AFTER).await,
        }
    }
    tracing::warn!(event = name, "event could not be sent");
}

enum Sent {
    Done,
    Refused(String),
    Unanswered(String),
}

async fn try_send(client: &kube::Client, event: &Event, patch: Option<&Value>) -> Sent {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let folder = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    if let Some(patch) = patch {
        let path = format!("{folder}/{}", event.metadata.name.as_deref().unwrap_or_default());
        let form = "application/merge-patch+json";
        match exchange(client, Method::PATCH, &path, form, patch.to_string().into_bytes()).await {
            // The first of the series has expired: begin again.
            Ok(404) => {}
            answer => return judged(answer, event.series.is_some()),
        }
    }
    match serde_json::to_vec(event) {
        Ok(body) => {
            let answer = exchange(client, Method::POST, &folder, "application/json", body).await;
            judged(answer, event.series.is_some())
        }
        Err(error) => Sent::Refused(error.to_string()),
    }
}

fn judged(answer: Result<u16, String>, may_exist: bool) -> Sent {
    match answer {
        Ok(200..=299) => Sent::Done,
        Ok(409) if may_exist => Sent::Unanswered("it exists".to_owned()),
        // Sent twice because the answer was lost: it is there.
        Ok(409) => Sent::Done,
        Ok(code) => Sent::Refused(format!("the server answered {code}")),
        Err(error) => Sent::Unanswered(error),
    }
}

/// The answer's status; its body is of no use.
async fn exchange(
    client: &kube::Client,
    method: Method,
    path: &str,
    form: &'static str,
    body: Vec<u8>,
) -> Result<u16, String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, form)
        .body(Body::from(body))
        .map_err(|error| error.to_string())?;
    client.send(request).await.map(|answer| answer.status().as_u16()).map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests;
