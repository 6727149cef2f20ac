//! What the log hears on this thread, from warnings up.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<String>>>);

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Warnings with this in them while something runs.
pub(super) fn warnings(part: &str, run: impl FnOnce()) -> usize {
    let ear = Ear::default();
    tracing::subscriber::with_default(ear.clone(), run);
    let heard = ear.0.lock().unwrap();
    heard.iter().filter(|words| words.contains(part)).count()
}
