//! The audit log: what was done to whom, and why, in files that turn over and can be asked newest first.
//!
//! [`Auditor`] is what everyone holds; `log` writes the files, `reader` reads them backwards, `query` answers
//! `/events`. Switched off it costs nothing and answers nothing. Spec: koordlet-observe 10.

mod log;
mod query;
mod reader;

#[cfg(test)]
mod tests;

pub use query::{Answer, Form, Query};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use koord_linux::executor;
use serde::{Deserialize, Serialize};

use crate::flags::AuditOptions;
use log::Log;
use query::Readers;

/// One record, as a line of the log spells it. Empty fields are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    #[serde(rename = "createdAt")]
    pub created_at: String,
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub level: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whom a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    Node,
    /// A class's group, or a group of the machine.
    Group(&'a str),
    Pod {
        uid: &'a str,
        namespace: &'a str,
        name: &'a str,
        /// Empty for the pod itself.
        container: &'a str,
    },
    Unknown,
}

impl<'a> From<&'a executor::Subject> for Subject<'a> {
    fn from(subject: &'a executor::Subject) -> Subject<'a> {
        match subject {
            executor::Subject::Node => Subject::Node,
            executor::Subject::Group(name) => Subject::Group(name),
            executor::Subject::Pod { uid, namespace, name, container } => {
                Subject::Pod { uid, namespace, name, container }
            }
        }
    }
}

/// Takes records. Cheap to clone.
#[derive(Clone, Default)]
pub struct Auditor {
    /// None when the gate is off.
    inner: Option<Arc<Inner>>,
}

struct Inner {
    verbose: u32,
    events_max: usize,
    /// Locked for the time of one line.
    log: Mutex<Log>,
    /// Locked for the time of one page.
    readers: Mutex<Readers>,
}

impl Auditor {
    /// A log in the options' directory.
    pub fn open(options: &AuditOptions) -> Auditor {
        Auditor {
            inner: Some(Arc::new(Inner {
                verbose: options.verbose,
                events_max: options.events_max,
                log: Mutex::new(Log::new(&options.dir, options.disk_mib_max)),
                readers: Mutex::new(Readers::new(options.readers_max)),
            })),
        }
    }

    /// Keeps everything, in a folder of a test.
    #[cfg(test)]
    pub(crate) fn of_test(dir: &std::path::Path) -> Auditor {
        Auditor::open(&tests::options(&dir.join("audit")))
    }

    /// Keeps what is important, in a folder of a test.
    #[cfg(test)]
    pub(crate) fn of_test_keeping(dir: &std::path::Path, verbose: u32) -> Auditor {
        Auditor::open(&AuditOptions { verbose, ..tests::options(&dir.join("audit")) })
    }

    /// Nobody listens.
    pub fn off() -> Auditor {
        Auditor::default()
    }

    /// Whether a record of this level is kept: whoever must work to make one asks first.
    pub fn is_kept(&self, level: u32) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.verbose == 0 || level <= inner.verbose)
    }

    /// Writes a record. A log that cannot be written is told once and tried again with the next record.
    pub fn record(&self, level: u32, subject: Subject<'_>, reason: &str, message: String) {
        let Some(inner) = self.inner.as_ref().filter(|_| self.is_kept(level)) else { return };
        let (kind, namespace, name, container) = match subject {
            Subject::Node => ("node", "", "", ""),
            Subject::Group(name) => ("group", "", name, ""),
            Subject::Pod { namespace, name, container, .. } => ("pod", namespace, name, container),
            Subject::Unknown => ("unknown", "", "", ""),
        };
        let event = Event {
            // Differs: in UTC, where upstream writes the time zone of its container, which is UTC.
            created_at: jiff::Timestamp::now().to_string(),
            kind: kind.to_owned(),
            level: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            container: container.to_owned(),
            reason: reason.to_owned(),
            message,
        };
        locked(&inner.log).append(&event, Instant::now());
    }

    /// Writes what is still in memory to the file.
    pub fn flush(&self) {
        if let Some(inner) = &self.inner {
            locked(&inner.log).flush(Instant::now());
        }
    }

    /// One page.
    pub fn query(&self, query: &Query, now: Instant) -> Answer {
        let Some(inner) = &self.inner else { return Answer::off() };
        // Differs: everything written so far is seen, where upstream keeps seconds of it back (item 13).
        self.flush();
        let files = locked(&inner.log).files();
        locked(&inner.readers).answer(query, inner.events_max, &files, now)
    }

    /// Drops queries that nobody goes on with.
    pub fn sweep(&self, now: Instant) {
        if let Some(inner) = &self.inner {
            locked(&inner.readers).sweep(now);
        }
    }
}

/// A panic elsewhere leaves a log that is still a log.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
