//! Events about what controllers did, as `kubectl describe` shows them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
pub(crate) use koord_kit::events::EventType;
use koord_kit::events::aggregate::Correlator;
use koord_kit::events::{Note, Verdict};
use serde_json::Value;

use super::view::Meta;
use crate::patch::merge;
use crate::server::{Api, Part, WriteOptions};

/// Who tells. Each counts its own repeats.
pub(crate) struct Recorder {
    /// By component. Guards the books and the last time used in a name.
    books: Mutex<(HashMap<&'static str, Correlator>, Timestamp)>,
    options: WriteOptions,
}

/// What an event is about.
pub(crate) fn about(api_version: &str, kind: &str, meta: &Meta) -> ObjectReference {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectReference {
        api_version: some(api_version),
        kind: some(kind),
        name: some(&meta.name),
        namespace: some(&meta.namespace),
        uid: some(&meta.uid),
        ..ObjectReference::default()
    }
}

impl Recorder {
    pub(crate) fn new(options: WriteOptions) -> Recorder {
        Recorder { books: Mutex::new((HashMap::new(), Timestamp::UNIX_EPOCH)), options }
    }

    /// Tells it, once more or for the first time. An event that cannot be written is not missed.
    pub(crate) async fn tell(
        &self,
        api: &Api,
        component: &'static str,
        regarding: &ObjectReference,
        (kind, reason, text): (EventType, &str, String),
    ) {
        let note = Note {
            regarding: regarding.clone(),
            related: None,
            kind,
            reason: reason.to_owned(),
            action: String::new(),
            text,
        };
        let verdict = {
            let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
            // Names are made of the time: a nanosecond apart, they differ.
            let next = books.1 + jiff::SignedDuration::from_nanos(1);
            let now = api.now().max(next);
            books.1 = now;
            books.0.entry(component).or_insert_with(|| Correlator::new(component, "")).take(now, note)
        };
        let result = match verdict {
            Verdict::Skip => return,
            Verdict::Create(event) => self.create(api, &event).await,
            Verdict::Patch { event, patch } => match self.patch(api, &event, &patch).await {
                Err(error) if error.code == 404 => self.create(api, &event).await,
                other => other,
            },
        };
        if let Err(error) = result {
            tracing::debug!(component, reason, %error, "event not written");
        }
    }

    async fn create(&self, api: &Api, event: &Event) -> Result<(), crate::status::ApiError> {
        let kind = api.kind("", "events")?;
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let object = serde_json::to_value(event).map_err(crate::status::ApiError::internal)?;
        api.create(&kind, &namespace, object, &self.options).await.map(|_| ())
    }

    async fn patch(&self, api: &Api, event: &Event, patch: &Value) -> Result<(), crate::status::ApiError> {
        let kind = api.kind("", "events")?;
        let (namespace, name) = (event.metadata.namespace.as_deref(), event.metadata.name.as_deref());
        let key = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let fields = patch.as_object().cloned().unwrap_or_default();
        let change = |object: &mut Value| {
            *object = merge::apply_fields(object.take(), fields.clone());
            Ok(true)
        };
        api.edit(&kind, key, Part::Main, &self.options, &change).await.map(|_| ())
    }
}
