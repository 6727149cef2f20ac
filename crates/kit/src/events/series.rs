//! Events of `events.k8s.io/v1` as kube-scheduler writes them: a repeat becomes a series. Pure.
//!
//! The first event is created, the second time a series of count 2 is added to it, further times are only counted.
//! The final count is written when the series has been quiet for six minutes, and every half hour before that, so
//! that the server does not expire it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::json;

use super::{EventType, Note, Verdict, cut, event_name, event_namespace};
use crate::lru::Lru;

/// A series ends after so long a silence.
pub const FINISH_AFTER: Duration = Duration::from_secs(360);
const FINISH: SignedDuration = SignedDuration::from_secs(360);

/// A series that goes on is written anew after this.
const REFRESH: SignedDuration = SignedDuration::from_secs(1800);

/// client-go has no bound here; ours forgets the oldest, whose repeat then starts a new event.
const ENTRIES_MAX: usize = 4096;

/// Events that may repeat.
#[derive(Debug)]
pub struct SeriesBook {
    controller: String,
    instance: String,
    events: Lru<Key, Entry>,
    by_text: bool,
}

#[derive(Debug)]
struct Entry {
    event: Event,
    written: Timestamp,
}

/// What makes two events the same; their texts may differ, unless the book is one [`SeriesBook::by_text`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: &'static str,
    action: String,
    reason: String,
    regarding: String,
    related: String,
    text: String,
}

impl SeriesBook {
    pub fn new(controller: &str, instance: &str) -> SeriesBook {
        let (controller, instance) = (controller.to_owned(), instance.to_owned());
        SeriesBook { controller, instance, events: Lru::new(ENTRIES_MAX), by_text: false }
    }

    /// Another text is another event. kube-scheduler has this by naming the object's version in each event, which
    /// changes with the condition that holds the same text; for those who do not know the version.
    pub fn by_text(self) -> SeriesBook {
        SeriesBook { by_text: true, ..self }
    }

    /// An event that cannot repeat, made without being remembered.
    pub fn single(&self, now: Timestamp, note: Note) -> Event {
        self.event(now, note)
    }

    /// What to do about a note.
    pub fn take(&mut self, now: Timestamp, note: Note) -> Verdict<Event> {
        let key = Key {
            kind: note.kind.as_str(),
            action: note.action.clone(),
            reason: note.reason.clone(),
            regarding: reference_key(&note.regarding),
            related: note.related.as_ref().map(reference_key).unwrap_or_default(),
            text: if self.by_text { note.text.clone() } else { String::new() },
        };
        if let Some(entry) = self.events.get_mut(&key) {
            let count = entry.event.series.as_ref().map_or(1, |series| series.count);
            let last_observed_time = MicroTime(now);
            entry.event.series = Some(EventSeries { count: count.saturating_add(1), last_observed_time });
            if count > 1 {
                return Verdict::Skip;
            }
            entry.written = now;
            return patch(&entry.event);
        }
        let event = self.event(now, note);
        self.events.insert(&key, Entry { event: event.clone(), written: now });
        Verdict::Create(event)
    }

    /// Final counts of series that ended, and fresh ones of those that go on.
    pub fn tidy(&mut self, now: Timestamp) -> Vec<Verdict<Event>> {
        let mut verdicts = Vec::new();
        self.events.retain(|_, entry| {
            let event = &entry.event;
            let last = match &event.series {
                Some(series) => series.last_observed_time.0,
                None => event.event_time.as_ref().map_or(now, |time| time.0),
            };
            let is_over = now.duration_since(last) > FINISH;
            let is_due = is_over || now.duration_since(entry.written) > REFRESH;
            if event.series.is_some() && is_due {
                verdicts.push(patch(event));
                entry.written = now;
            }
            !is_over
        });
        verdicts
    }

    fn event(&self, now: Timestamp, note: Note) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(note.regarding.name.as_deref().unwrap_or_default(), now)),
                namespace: Some(event_namespace(&note.regarding)),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            action: Some(note.action),
            reason: Some(note.reason),
            regarding: Some(note.regarding),
            related: note.related,
            note: Some(cut(&note.text)),
            type_: Some(EventType::as_str(note.kind).to_owned()),
            ..Event::default()
        }
    }
}

fn patch(event: &Event) -> Verdict<Event> {
    Verdict::Patch { event: event.clone(), patch: json!({"series": event.series}) }
}

fn reference_key(object: &ObjectReference) -> String {
    [
        &object.api_version,
        &object.kind,
        &object.namespace,
        &object.name,
        &object.uid,
        &object.resource_version,
        &object.field_path,
    ]
    .map(|part| part.as_deref().unwrap_or_default())
    .join("\0")
}
