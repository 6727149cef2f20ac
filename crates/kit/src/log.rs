//! Logs: one line per event on stderr, as text in klog's shape or as JSON, at klog's `-v` levels.
//!
//! | `-v`  | our crates | other crates |
//! |-------|------------|--------------|
//! | 0 – 3 | info       | info         |
//! | 4     | debug      | info         |
//! | 5 – 7 | trace      | info         |
//! | 8 +   | trace      | trace        |
//!
//! Warnings and errors always show. `--vmodule=cache=5,leader=4` raises single modules; the name is a module's last
//! part or its whole path. The verbosity can be changed while running through the returned [`LogHandle`].

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// What the user asked of the logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub format: LogFormat,
    pub verbosity: u8,
    pub modules: Vec<ModuleLevel>,
}

/// `--logging-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = LogError;

    fn from_str(text: &str) -> Result<LogFormat, LogError> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(LogError::Format(other.to_owned())),
        }
    }
}

/// One entry of `--vmodule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleLevel {
    pub module: String,
    pub verbosity: u8,
}

impl FromStr for ModuleLevel {
    type Err = LogError;

    fn from_str(text: &str) -> Result<ModuleLevel, LogError> {
        let parsed = text.split_once('=').and_then(|(module, level)| {
            let verbosity = level.trim().parse().ok()?;
            let module = module.trim().to_owned();
            (!module.is_empty()).then_some(ModuleLevel { module, verbosity })
        });
        parsed.ok_or_else(|| LogError::Module(text.to_owned()))
    }
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("logging format {0:?} is unknown; accepted: text, json")]
    Format(String),
    #[error("vmodule entry {0:?} is not MODULE=LEVEL with a level from 0 to 255, such as cache=5")]
    Module(String),
    #[error("logging was already set up in this process")]
    Twice(#[source] tracing::subscriber::SetGlobalDefaultError),
}

/// Changes the verbosity of a running process.
#[derive(Clone, Debug)]
pub struct LogHandle {
    verbosity: Arc<AtomicU8>,
}

impl LogHandle {
    pub fn verbosity(&self) -> u8 {
        self.verbosity.load(Ordering::Relaxed)
    }

    pub fn set_verbosity(&self, verbosity: u8) {
        self.verbosity.store(verbosity, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Sets up logging for the whole process, on stderr.
pub fn init(options: &LogOptions) -> Result<LogHandle, LogError> {
    let (subscriber, handle) = subscriber(options, std::io::stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(LogError::Twice)?;
    Ok(handle)
}

/// The subscriber behind [`init`], writing wherever asked.
pub fn subscriber<W>(options: &LogOptions, writer: W) -> (impl Subscriber + Send + Sync + use<W>, LogHandle)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let verbosity = Arc::new(AtomicU8::new(options.verbosity));
    let handle = LogHandle { verbosity: verbosity.clone() };
    let modules = options.modules.clone();
    let filter =
        filter_fn(move |meta: &Metadata<'_>| enabled(meta, verbosity.load(Ordering::Relaxed), &modules))
            // The level may be raised later, so nothing is ruled out for good.
            .with_max_level_hint(LevelFilter::TRACE);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(writer)
        .event_format(Lines { format: options.format })
        .with_filter(filter);
    (tracing_subscriber::registry().with(layer), handle)
}

fn enabled(meta: &Metadata<'_>, verbosity: u8, modules: &[ModuleLevel]) -> bool {
    *meta.level() <= level_of(meta.target(), verbosity, modules)
}

fn level_of(target: &str, verbosity: u8, modules: &[ModuleLevel]) -> Level {
    let named = modules.iter().rev().find(|m| names(&m.module, target)).map(|m| m.verbosity);
    let package = target.split("::").next().unwrap_or_default();
    let ours = matches!(package, "koord" | "koordlet") || package.starts_with("koord_");
    match (named, verbosity) {
        (Some(verbosity), _) => ours_level(verbosity),
        (None, verbosity) if ours || verbosity >= 8 => ours_level(verbosity),
        _ => Level::INFO,
    }
}

fn ours_level(verbosity: u8) -> Level {
    match verbosity {
        0..=3 => Level::INFO,
        4 => Level::DEBUG,
        _ => Level::TRACE,
    }
}

fn names(module: &str, target: &str) -> bool {
    target == module || target.rsplit("::").next() == Some(module)
}

/// The line format.
struct Lines {
    format: LogFormat,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let meta = event.metadata();
        let line = match self.format {
            LogFormat::Text => text_line(meta, jiff::Timestamp::now(), &fields),
            LogFormat::Json => json_line(meta, jiff::Timestamp::now(), &fields),
        };
        writeln!(out, "{line}")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, serde_json::Value)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.others.push((field.name(), format!("{value:?}").into()));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            self.others.push((field.name(), value.into()));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), value.into()));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.others.push((field.name(), chain(value).into()));
    }
}

/// An error with all of its causes, in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        // Some libraries print their cause themselves; say it once.
        if !text.ends_with(&part) {
            let _ = write!(text, ": {part}");
        }
        cause = error.source();
    }
    text
}

fn text_line(meta: &Metadata<'_>, now: jiff::Timestamp, fields: &Fields) -> String {
    let severity = match *meta.level() {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        Level::INFO => 'I',
        Level::DEBUG => 'D',
        Level::TRACE => 'T',
    };
    let time = now.strftime("%m%d %H:%M:%S%.6f");
    let mut line = format!("{severity}{time} {}] {:?}", meta.target(), fields.message);
    for (name, value) in &fields.others {
        let _ = write!(line, " {name}={value}");
    }
    line
}

fn json_line(meta: &Metadata<'_>, now: jiff::Timestamp, fields: &Fields) -> String {
    let level = meta.level().as_str().to_ascii_lowercase();
    let head = serde_json::json!(now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string());
    let mut line = format!(
        "{{\"ts\":{head},\"level\":{},\"logger\":{},\"msg\":{}",
        serde_json::json!(level),
        serde_json::json!(meta.target()),
        serde_json::json!(fields.message),
    );
    for (name, value) in &fields.others {
        let _ = write!(line, ",{}:{value}", serde_json::json!(name));
    }
    line.push('}');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(options: &LogOptions, work: impl FnOnce(&LogHandle)) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let (subscriber, handle) = subscriber(options, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || work(&handle));
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_lines_have_klogs_shape() {
        let text = logged(&LogOptions::default(), |_| {
            tracing::info!(target: "koord_kit::cache", pod = "shop/web", count = 3, "pod placed");
        });
        let (head, rest) = text.split_once("] ").unwrap();
        assert_eq!(rest, "\"pod placed\" pod=\"shop/web\" count=3\n");
        assert!(head.starts_with('I') && head.ends_with("koord_kit::cache"), "{head}");
        assert_eq!(head.len(), "I1115 20:50:01.123456 koord_kit::cache".len(), "{head}");
    }

    #[test]
    fn json_lines_are_json() {
        let options = LogOptions { format: LogFormat::Json, ..LogOptions::default() };
        let text = logged(&options, |_| {
            let error = io::Error::other("disk \"gone\"");
            tracing::warn!(target: "koord", error = &error as &dyn std::error::Error, ok = false, "cannot write");
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!(line["msg"], "cannot write");
        assert_eq!(line["error"], "disk \"gone\"");
        assert_eq!(line["ok"], false);
    }

    #[test]
    fn verbosity_maps_to_levels() {
        let five = [ModuleLevel { module: "cache".into(), verbosity: 5 }];
        for (name, target, verbosity, modules, want) in [
            ("quiet", "koord_kit", 0, &[][..], Level::INFO),
            ("three is still info", "koord_kit", 3, &[], Level::INFO),
            ("four", "koord_kit::leader", 4, &[], Level::DEBUG),
            ("five", "koord", 5, &[], Level::TRACE),
            ("the node agent is ours, too", "koordlet::run::node", 4, &[], Level::DEBUG),
            ("others stay quiet", "hyper::client", 5, &[], Level::INFO),
            ("until eight", "hyper::client", 8, &[], Level::TRACE),
            ("a module by its last part", "koord_kit::cache", 0, &five, Level::TRACE),
            ("and no other", "koord_kit::cached", 0, &five, Level::INFO),
        ] {
            assert_eq!(level_of(target, verbosity, modules), want, "{name}");
        }
    }

    #[test]
    fn verbosity_changes_while_running() {
        let text = logged(&LogOptions::default(), |handle| {
            for verbosity in [0, 4] {
                handle.set_verbosity(verbosity);
                tracing::debug!(target: "koord_kit::log", verbosity = handle.verbosity(), "seen");
            }
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with("verbosity=4\n"), "{text}");
    }

    #[test]
    fn bad_options_are_named() {
        assert_eq!(
            "xml".parse::<LogFormat>().unwrap_err().to_string(),
            "logging format \"xml\" is unknown; accepted: text, json"
        );
        for bad in ["cache", "=3", "cache=x", "cache=-1"] {
            let message = bad.parse::<ModuleLevel>().unwrap_err().to_string();
            assert!(message.contains(&format!("{bad:?}")), "{message}");
        }
    }
}
