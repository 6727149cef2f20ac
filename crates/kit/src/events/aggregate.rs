//! client-go's event correlator for `v1` events. Pure.
//!
//! Three steps, in client-go's order: ten events that differ only in their text within ten minutes are told as one;
//! an event seen before raises the count of the stored one; and a source may tell 25 events about an object at once
//! and one more every five minutes.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use super::{Note, Verdict, event_name, event_namespace};
use crate::client::limit::TokenBucket;
use crate::lru::Lru;

const ENTRIES_MAX: usize = 4096;
const SIMILAR_MAX: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
const SPAM_BURST: f64 = 25.0;
const SPAM_PER_SECOND: f64 = 1.0 / 300.0;

/// What was told before, and what follows from it for the next event.
#[derive(Debug)]
pub struct Correlator {
    component: String,
    /// Empty where events name none.
    pub(super) host: String,
    groups: Lru<Key, Group>,
    told: Lru<Key, Told>,
    sources: Lru<Key, TokenBucket>,
}

/// Stands for everything that two events have in common: texts are long, and thousands are remembered.
type Key = u64;

/// Events that differ only in their text.
#[derive(Debug, Default)]
struct Group {
    texts: BTreeSet<Key>,
    last: Option<Timestamp>,
}

/// An event that the server has.
#[derive(Clone, Debug)]
struct Told {
    count: i32,
    first: Option<Time>,
    name: String,
}

impl Correlator {
    pub fn new(component: &str, host: &str) -> Correlator {
        Correlator {
            component: component.to_owned(),
            host: host.to_owned(),
            groups: Lru::new(ENTRIES_MAX),
            told: Lru::new(ENTRIES_MAX),
            sources: Lru::new(ENTRIES_MAX),
        }
    }

    /// What to do about a note.
    pub fn take(&mut self, now: Timestamp, note: Note) -> Verdict<Event> {
        let event = self.event(now, note);
        let (event, key) = self.aggregate(now, event);
        let verdict = self.observe(event, key);
        let (Verdict::Create(event) | Verdict::Patch { event, .. }) = &verdict else { return verdict };
        if self.is_spam(now, event) { Verdict::Skip } else { verdict }
    }

    /// The server stored an event, under this name and count.
    pub fn stored(&mut self, event: &Event) {
        self.remember(event_key(event), event);
    }

    fn event(&self, now: Timestamp, note: Note) -> Event {
        let (component, host) =
            (Some(self.component.clone()), Some(self.host.clone()).filter(|h| !h.is_empty()));
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(note.regarding.name.as_deref().unwrap_or_default(), now)),
                namespace: Some(event_namespace(&note.regarding)),
                ..ObjectMeta::default()
            },
            involved_object: note.regarding,
            type_: Some(note.kind.as_str().to_owned()),
            reason: Some(note.reason),
            message: Some(note.text),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            reporting_component: component.clone(),
            reporting_instance: host.clone(),
            source: Some(EventSource { component, host }),
            ..Event::default()
        }
    }

    /// The event or, where there were many like it, one that stands for all; and the key under which it is counted.
    fn aggregate(&mut self, now: Timestamp, event: Event) -> (Event, Key) {
        let key = group_key(&event);
        let group = self.groups.get_or_insert(&key, Group::default);
        let is_old = group.last.is_none_or(|last| now.duration_since(last) > jiff_duration(SIMILAR_WITHIN));
        if is_old {
            *group = Group::default();
        }
        group.texts.insert(key_of(event.message.as_deref()));
        group.last = Some(now);
        if group.texts.len() < SIMILAR_MAX {
            let key = event_key(&event);
            return (event, key);
        }
        group.texts.pop_first();
        let message = event.message.as_deref().unwrap_or_default();
        let combined = Event {
            metadata: ObjectMeta {
                name: Some(event_name(event.involved_object.name.as_deref().unwrap_or_default(), now)),
                namespace: event.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            message: Some(format!("(combined from similar events): {message}")),
            ..event
        };
        (combined, key)
    }

    /// Counts an event that was told before, by a patch.
    fn observe(&mut self, mut event: Event, key: Key) -> Verdict<Event> {
        let before = self.told.get_mut(&key).cloned();
        let Some(before) = before else {
            self.remember(key, &event);
            return Verdict::Create(event);
        };
        event.metadata.name = Some(before.name);
        event.first_timestamp = before.first;
        event.count = Some(before.count.saturating_add(1));
        self.remember(key, &event);
        let patch =
            json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
        Verdict::Patch { event, patch }
    }

    fn remember(&mut self, key: Key, event: &Event) {
        let told = Told {
            count: event.count.unwrap_or(1),
            first: event.first_timestamp.clone(),
            name: event.metadata.name.clone().unwrap_or_default(),
        };
        self.told.insert(&key, told);
    }

    fn is_spam(&mut self, now: Timestamp, event: &Event) -> bool {
        let clock = Duration::from_millis(u64::try_from(now.as_millisecond()).unwrap_or(0));
        let fresh = || TokenBucket::new(SPAM_PER_SECOND, SPAM_BURST, clock);
        !self.sources.get_or_insert(&spam_key(event), fresh).try_take(clock)
    }
}

fn jiff_duration(duration: Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(duration).unwrap_or(jiff::SignedDuration::MAX)
}

fn source(event: &Event) -> [&str; 2] {
    let source = event.source.as_ref();
    [
        source.and_then(|source| source.component.as_deref()).unwrap_or_default(),
        source.and_then(|source| source.host.as_deref()).unwrap_or_default(),
    ]
}

fn object(object: &ObjectReference) -> [&str; 5] {
    [&object.kind, &object.namespace, &object.name, &object.uid, &object.api_version]
        .map(|part| part.as_deref().unwrap_or_default())
}

fn key_of<'p>(parts: impl IntoIterator<Item = &'p str>) -> Key {
    let parts: Vec<&str> = parts.into_iter().collect();
    BuildHasherDefault::<DefaultHasher>::new().hash_one(parts)
}

/// Everything that makes two events the same.
fn event_key(event: &Event) -> Key {
    let field = event.involved_object.field_path.as_deref().unwrap_or_default();
    let rest = [&event.type_, &event.reason, &event.message].map(|part| part.as_deref().unwrap_or_default());
    key_of(source(event).into_iter().chain(object(&event.involved_object)).chain([field]).chain(rest))
}

/// The same without the text.
fn group_key(event: &Event) -> Key {
    let rest = [&event.type_, &event.reason, &event.reporting_component, &event.reporting_instance]
        .map(|part| part.as_deref().unwrap_or_default());
    key_of(source(event).into_iter().chain(object(&event.involved_object)).chain(rest))
}

/// Who speaks about what.
fn spam_key(event: &Event) -> Key {
    let kind = event.type_.as_deref().unwrap_or_default();
    key_of(source(event).into_iter().chain(object(&event.involved_object)).chain([kind]))
}
