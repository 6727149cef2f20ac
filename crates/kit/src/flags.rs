//! Command lines, in every spelling that manifests written for the original use.
//!
//! A component lists its flags as a table of [`Flag`] rows; [`parse`] checks a command line against the table and
//! gives typed [`Values`]. Accepted alike: `-name` and `--name`, `name=value` and the value as the next word,
//! hyphens and underscores, `--flag`, `--flag=false` and `--flag false` for switches, `-v4`, repeated and
//! comma-separated lists. All mistakes are reported together.
//!
//! The `koord` binary uses clap for its subcommands only and hands a component's words here untouched, for clap
//! knows neither single-dash long names nor the underscore spelling.

mod help;
mod parse;

#[cfg(test)]
mod tests;

use koord_api::duration::GoDuration;
use koord_api::gate::{Component, GateError, Gates};
use std::collections::BTreeMap;

pub use help::help;
pub(crate) use parse::distance;
pub use parse::{FlagError, FlagErrors, parse};

/// One row of a component's table of flags.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name with hyphens, without leading dashes.
    pub name: &'static str,
    /// One-letter form, such as `v`.
    pub short: Option<char>,
    pub kind: Kind,
    /// The default, written as a user would write the value.
    pub default: &'static str,
    /// The heading under which `--help` lists it.
    pub group: &'static str,
    pub help: &'static str,
    pub status: Status,
}

/// What a flag's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int,
    Float,
    /// Go syntax, such as `1m30s`.
    Duration,
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Comma-separated, and repeats add to it.
    List,
    /// `key=value` pairs, comma-separated, and repeats add to it.
    Map,
}

/// Whether a flag still does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Live,
    /// Still obeyed; the text says what to use instead.
    Deprecated(&'static str),
    /// Accepted so that old manifests start, but without effect; the text says why.
    Ignored(&'static str),
}

impl Flag {
    /// A live flag; refine it with the other methods.
    pub const fn new(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind, default, group: "Flags", help, status: Status::Live }
    }

    pub const fn short(mut self, letter: char) -> Flag {
        self.short = Some(letter);
        self
    }

    pub const fn group(mut self, group: &'static str) -> Flag {
        self.group = group;
        self
    }

    pub const fn deprecated(mut self, instead: &'static str) -> Flag {
        self.status = Status::Deprecated(instead);
        self
    }

    pub const fn ignored(mut self, why: &'static str) -> Flag {
        self.status = Status::Ignored(why);
        self
    }
}

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    Duration(GoDuration),
    Text(String),
    List(Vec<String>),
    Map(BTreeMap<String, String>),
}

/// A checked command line: every flag of the table has a value.
#[derive(Clone, Debug, Default)]
pub struct Values {
    pub(crate) values: BTreeMap<&'static str, Value>,
    pub(crate) given: BTreeMap<&'static str, bool>,
    /// Words that are not flags.
    pub rest: Vec<String>,
    /// One line for each deprecated or ignored flag that was used.
    pub warnings: Vec<String>,
    /// `--help` or `-h` was asked for.
    pub help: bool,
    /// `--version` was asked for.
    pub version: bool,
}

/// Reading a flag under a name or type that its table does not have is a bug of the caller, found by its first test.
impl Values {
    pub fn bool(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Bool(value) => *value,
            other => wrong_kind(name, "a switch", other),
        }
    }

    pub fn int(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Int(value) => *value,
            other => wrong_kind(name, "an integer", other),
        }
    }

    pub fn float(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Float(value) => *value,
            other => wrong_kind(name, "a number", other),
        }
    }

    pub fn duration(&self, name: &str) -> GoDuration {
        match self.value(name) {
            Value::Duration(value) => *value,
            other => wrong_kind(name, "a duration", other),
        }
    }

    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Text(value) => value,
            other => wrong_kind(name, "a text", other),
        }
    }

    pub fn list(&self, name: &str) -> &[String] {
        match self.value(name) {
            Value::List(value) => value,
            other => wrong_kind(name, "a list", other),
        }
    }

    pub fn map(&self, name: &str) -> &BTreeMap<String, String> {
        match self.value(name) {
            Value::Map(value) => value,
            other => wrong_kind(name, "a map", other),
        }
    }

    /// Whether the user set the flag, for options that a file may also give.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.get(name).copied().unwrap_or(false)
    }

    fn value(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or_else(|| panic!("flag --{name} is not in this component's table"))
    }
}

fn wrong_kind<T>(name: &str, wanted: &str, found: &Value) -> T {
    panic!("flag --{name} is read as {wanted} but its table makes it {found:?}")
}

/// Which of several named parts run, as a list of names says: `*` is all, `-name` all but one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen(Vec<String>);

impl Chosen {
    pub fn new(list: &[String]) -> Chosen {
        Chosen(list.to_vec())
    }

    /// The first mention of the part decides, then whether all are on.
    pub fn is_on(&self, part: &str) -> bool {
        for word in &self.0 {
            if word == part {
                return true;
            }
            if word.strip_prefix('-') == Some(part) {
                return false;
            }
        }
        self.0.iter().any(|word| word == "*")
    }
}

/// The flags of [`crate::log`], with klog's older ones accepted for nothing.
pub const LOG_FLAGS: &[Flag] = &[
    Flag::new("v", Kind::Int, "0", "verbosity: 0-3 info, 4 debug, 5 and up trace").short('v').group("Logs"),
    Flag::new("vmodule", Kind::List, "", "verbosity of single modules, such as cache=5,leader=4")
        .group("Logs"),
    Flag::new("logging-format", Kind::OneOf(&["text", "json"]), "text", "the form of log lines")
        .group("Logs"),
    klog("logtostderr", Kind::Bool, "true"),
    klog("alsologtostderr", Kind::Bool, "false"),
    klog("stderrthreshold", Kind::Text, "2"),
    klog("log-dir", Kind::Text, ""),
    klog("log-file", Kind::Text, ""),
    klog("log-file-max-size", Kind::Int, "1800"),
    klog("log-backtrace-at", Kind::Text, ""),
    klog("log-flush-frequency", Kind::Duration, "5s"),
    klog("add-dir-header", Kind::Bool, "false"),
    klog("skip-headers", Kind::Bool, "false"),
    klog("skip-log-headers", Kind::Bool, "false"),
    klog("one-output", Kind::Bool, "false"),
];

const fn klog(name: &'static str, kind: Kind, default: &'static str) -> Flag {
    Flag::new(name, kind, default, "").group("Logs").ignored("logs always go to stderr")
}

/// `--feature-gates`, read with [`Values::map`].
pub const FEATURE_GATES: Flag =
    Flag::new("feature-gates", Kind::Map, "", "switches for features, such as A=true,B=false")
        .group("Features");

/// The gates of a component as [`FEATURE_GATES`] sets them.
pub fn feature_gates(values: &Values, component: Component) -> Result<Gates, GateError> {
    let pairs: Vec<String> =
        values.map("feature-gates").iter().map(|(name, state)| format!("{name}={state}")).collect();
    Gates::parse(component, &pairs.join(","))
}

/// The log options that [`LOG_FLAGS`] carry.
pub fn log_options(values: &Values) -> Result<crate::log::LogOptions, crate::log::LogError> {
    Ok(crate::log::LogOptions {
        format: values.text("logging-format").parse()?,
        verbosity: u8::try_from(values.int("v").clamp(0, 255)).unwrap_or(u8::MAX),
        modules: values.list("vmodule").iter().map(|entry| entry.parse()).collect::<Result<_, _>>()?,
    })
}
