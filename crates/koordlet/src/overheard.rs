//! A test double: a log that remembers what was told on one thread.

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{NoSubscriber, Subscriber, with_default};
use tracing::{Dispatch, Event, Level, Metadata};

/// While a log is the only one, a line that another thread comes to first is asked of that thread's log alone, which is none,
/// and is lost to all (`Rebuilder::JustOne` in tracing-core's `callsite.rs`). With this one it never is the only one.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// What is told at `info` or louder while `work` goes on, such as `WARN too late pod="web"`.
pub(crate) fn overheard<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    LazyLock::force(&SECOND);
    let lines = Lines::default();
    let done = with_default(Log(lines.clone()), work);
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    (done, lines)
}

/// How many warnings with this in them are told while `work` goes on.
pub(crate) fn warnings(part: &str, work: impl FnOnce()) -> usize {
    let lines = overheard(work).1;
    lines.iter().filter(|line| line.starts_with("WARN ") && line.contains(part)).count()
}

type Lines = Arc<Mutex<Vec<String>>>;

struct Log(Lines);

/// One event as it is put together: the message, and behind it the fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let line = format!("{} {}{}", event.metadata().level(), line.message, line.fields);
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_line_is_heard_though_another_thread_was_there_first() {
    let tell = || tracing::info!("told");
    let (_, lines) = overheard(|| {
        std::thread::spawn(tell).join().unwrap();
        tell();
    });
    assert_eq!(lines, ["INFO told"]);
}
