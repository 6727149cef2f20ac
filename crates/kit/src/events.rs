//! Telling users what was done to their objects, as Kubernetes events.
//!
//! [`Recorder::event`] never waits and never fails: it puts a [`Note`] in a bounded queue, and what does not fit is
//! counted and dropped. [`Worker`] sends, in one of two manners:
//!
//! - [`Flavour::Core`]: `v1` events with client-go's correlator ([`aggregate`]): repeats raise a count, many similar
//!   ones become one, and a source that floods an object is held back.
//! - [`Flavour::Series`]: `events.k8s.io/v1` as kube-scheduler writes them ([`series`]): repeats become a series.
//!
//! Both correlators are pure.

pub mod aggregate;
pub mod series;

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, ObjectReference};
use k8s_openapi::api::events::v1::Event as SeriesEvent;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::log::chain;
use crate::metrics::{KitMetrics, OutcomeLabels};
use crate::random;
use aggregate::Correlator;
use series::SeriesBook;

/// Notes waiting to be sent, as client-go; a burst of a thousand bindings fits.
const QUEUE_MAX: usize = 1000;

/// client-go's patience with a server that cannot be reached.
const TRIES_MAX: u32 = 12;
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// How long queued notes are still sent after a stop.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// The API server's limit for `note`.
const NOTE_BYTES_MAX: usize = 1024;

/// How grave it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The object it is about; see [`reference()`].
    pub regarding: ObjectReference,
    /// A second object that had a part in it.
    pub related: Option<ObjectReference>,
    pub kind: EventType,
    /// One word in CamelCase, such as `FailedScheduling`.
    pub reason: String,
    /// What was being done, such as `Scheduling`. Only series have it.
    pub action: String,
    pub text: String,
}

/// A reference to an object, as events carry it.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}

/// In which API events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Core,
    Series,
}

/// Takes notes. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Note>,
    metrics: KitMetrics,
}

impl Recorder {
    /// Counts events that were never noted, for lack of room before this.
    pub fn count_dropped(&self, count: usize) {
        let dropped = self.metrics.events.get_or_create(&OutcomeLabels { outcome: "dropped" });
        dropped.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Notes an event. Returns at once; when the queue is full the event is dropped and counted.
    pub fn event(&self, note: Note) {
        if let Err(error) = self.queue.try_send(note) {
            self.count_dropped(1);
            let (mpsc::error::TrySendError::Full(note) | mpsc::error::TrySendError::Closed(note)) = error;
            tracing::debug!(
                reason = note.reason,
                object = note.regarding.name,
                "event dropped, the queue is full"
            );
        }
    }
}

/// A recorder and the worker that sends for it. `component` is the source that users see.
pub fn recorder(
    client: kube::Client,
    component: &str,
    flavour: Flavour,
    metrics: &KitMetrics,
) -> (Recorder, Worker) {
    let (queue, notes) = mpsc::channel(QUEUE_MAX);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let book = match flavour {
        Flavour::Core => Book::Core(Correlator::new(component, "")),
        Flavour::Series => Book::Series(SeriesBook::new(component, &format!("{component}-{host}"))),
    };
    (Recorder { queue, metrics: metrics.clone() }, Worker { client, notes, book, metrics: metrics.clone() })
}

/// What a correlator wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<E> {
    /// Nothing is sent.
    Skip,
    Create(E),
    /// Change the event of the same name; where it is gone, create it again.
    Patch {
        event: E,
        patch: Value,
    },
}

/// Sends notes to the API server.
pub struct Worker {
    client: kube::Client,
    notes: mpsc::Receiver<Note>,
    book: Book,
    metrics: KitMetrics,
}

enum Book {
    Core(Correlator),
    Series(SeriesBook),
}

impl Worker {
    /// Names the host that core events come from, which those of an agent have.
    #[must_use]
    pub fn on_host(mut self, host: &str) -> Worker {
        if let Book::Core(correlator) = &mut self.book {
            host.clone_into(&mut correlator.host);
        }
        self
    }

    /// Sends until `stop` is cancelled or all recorders are gone, then what is still queued, for a moment.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(series::FINISH_AFTER / 2);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                note = self.notes.recv() => match note {
                    Some(note) => self.take(note, &stop).await,
                    None => break,
                },
                _ = tick.tick() => self.tidy(&stop).await,
                () = stop.cancelled() => break,
            }
        }
        self.notes.close();
        let drain = async {
            while let Some(note) = self.notes.recv().await {
                self.take(note, &stop).await;
            }
        };
        if tokio::time::timeout(DRAIN_MAX, drain).await.is_err() {
            tracing::warn!("some events were not sent before the end");
        }
    }

    async fn take(&mut self, note: Note, stop: &CancellationToken) {
        let now = Timestamp::now();
        match &mut self.book {
            Book::Core(correlator) => {
                let verdict = correlator.take(now, note);
                if let Some(stored) = send(&self.client, verdict, stop, &self.metrics).await {
                    correlator.stored(&stored);
                }
            }
            Book::Series(book) => {
                let verdict = book.take(now, note);
                send::<SeriesEvent>(&self.client, verdict, stop, &self.metrics).await;
            }
        }
    }

    /// Writes the final counts of series that have ended.
    async fn tidy(&mut self, stop: &CancellationToken) {
        if let Book::Series(book) = &mut self.book {
            for verdict in book.tidy(Timestamp::now()) {
                send::<SeriesEvent>(&self.client, verdict, stop, &self.metrics).await;
            }
        }
    }
}

/// Kinds of events that can be sent.
pub(crate) trait Sendable:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
{
    /// Whether "already exists" on creation may pass: a series whose first event is still on its way.
    fn may_exist(&self) -> bool;
}

impl Sendable for CoreEvent {
    fn may_exist(&self) -> bool {
        false
    }
}

impl Sendable for SeriesEvent {
    fn may_exist(&self) -> bool {
        self.series.is_some()
    }
}

async fn send<E: Sendable>(
    client: &kube::Client,
    verdict: Verdict<E>,
    stop: &CancellationToken,
    metrics: &KitMetrics,
) -> Option<E> {
    let count = |outcome| metrics.events.get_or_create(&OutcomeLabels { outcome }).inc();
    let (event, patch) = match verdict {
        Verdict::Skip => {
            count("merged");
            return None;
        }
        Verdict::Create(event) => (event, None),
        Verdict::Patch { event, patch } => (event, Some(patch)),
    };
    let api: Api<E> = Api::namespaced(client.clone(), &event.namespace().unwrap_or_default());
    for attempt in 1..=TRIES_MAX {
        let error = match try_send(&api, &event, patch.as_ref()).await {
            Ok(stored) => {
                count("sent");
                return Some(stored);
            }
            Err(error) => error,
        };
        if !is_worth_retrying(&error, &event) {
            count("refused");
            tracing::warn!(event = event.name_any(), error = chain(&error), "event was refused");
            return None;
        }
        let wait = if attempt == 1 { RETRY_AFTER.mul_f64(random::unit()) } else { RETRY_AFTER };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => break,
        }
    }
    count("unsent");
    tracing::warn!(event = event.name_any(), "event could not be sent");
    None
}

async fn try_send<E: Sendable>(api: &Api<E>, event: &E, patch: Option<&Value>) -> Result<E, kube::Error> {
    if let Some(patch) = patch {
        let name = event.name_any();
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            result => return result,
        }
    }
    api.create(&PostParams::default(), event).await
}

/// A server that answers has judged the event; one that does not may answer later.
fn is_worth_retrying<E: Sendable>(error: &kube::Error, event: &E) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 409 && event.may_exist(),
        kube::Error::BuildRequest(_) | kube::Error::SerdeError(_) => false,
        _ => true,
    }
}

/// The name of a new event: the object's and the time, as client-go makes it, or a random one where that is too long.
fn event_name(object: &str, now: Timestamp) -> String {
    let name = format!("{object}.{:x}", now.as_nanosecond());
    let is_short = name.len() <= 253;
    if is_short && !object.is_empty() { name } else { random::uuid() }
}

/// Cuts a text to the server's limit, as kube-scheduler does.
fn cut(text: &str) -> String {
    const SUFFIX: &str = " ...";
    if text.len() <= NOTE_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = NOTE_BYTES_MAX - SUFFIX.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{SUFFIX}", &text[..end])
}

/// The namespace an event lives in: its object's, or `default` for objects without one.
fn event_namespace(regarding: &ObjectReference) -> String {
    regarding
        .namespace
        .clone()
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}
