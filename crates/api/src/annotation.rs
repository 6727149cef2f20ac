//! What stands behind our annotation keys: one typed value for each, read tolerantly, written canonically.
//!
//! `read` gives `None` for an absent key and an [`AnnotationError`] for a text that cannot be taken;
//! the error says what a reader then does, so that no caller has to remember. One file for each family;
//! what follows from a value stands beside it. Spec: api 1.2, 1.4, 5.

use std::collections::BTreeMap;
use std::fmt;

use crate::gojson;

pub mod core_sched;
pub mod cpu;
pub mod device;
pub mod eviction;
pub mod gang;
pub mod load_aware;
pub mod network;
pub mod node;
pub mod node_reservation;
pub mod node_side;
pub mod node_topology;
pub mod quota;
pub mod ratio;
pub mod reservation;
pub mod scheduling_hint;

mod codecs;

pub use codecs::{CODECS, Codec};

/// The annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// A value that lives under one annotation key.
pub trait Annotation: Sized {
    const KEY: &'static str;
    /// A spelling of earlier releases, read when `KEY` counts as absent.
    const OLD_KEY: Option<&'static str> = None;
    /// What a key without text means.
    const EMPTY: Empty;
    /// What a reader does with a text it cannot take.
    const ON_ERROR: OnError;

    fn parse(text: &str) -> Result<Self, Fault>;

    /// The canonical text.
    fn text(&self) -> String;
}

/// What a key without text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// The same as no key.
    Absent,
    /// The same as a text that cannot be read.
    Broken,
    /// A value of its own.
    Value,
}

/// What a reader does with a text it cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Logs it and goes on as if the key were absent.
    Absent,
    /// Does not schedule the pod and shows the error in its status.
    FailPod,
    /// Refuses the admission request.
    FailRequest,
    /// Takes the empty value, which allows less than an absent key.
    EmptyValue,
}

/// Reads one annotation.
pub fn read<'a, T: Annotation>(
    annotations: impl Into<Option<&'a Annotations>>,
) -> Result<Option<T>, AnnotationError> {
    let Some(annotations) = annotations.into() else { return Ok(None) };
    for key in std::iter::once(T::KEY).chain(T::OLD_KEY) {
        if let Some(text) = annotations.get(key) {
            let value = read_text::<T>(key, text)?;
            if value.is_some() {
                return Ok(value);
            }
        }
    }
    Ok(None)
}

/// Reads the text of one annotation, with the rule for an empty one.
pub fn read_text<T: Annotation>(key: &'static str, text: &str) -> Result<Option<T>, AnnotationError> {
    let error = |fault| AnnotationError { key, fault: Box::new(fault), then: T::ON_ERROR };
    match (text, T::EMPTY) {
        ("", Empty::Absent) => Ok(None),
        _ => T::parse(text).map(Some).map_err(error),
    }
}

/// Sets one annotation to the canonical text of a value.
pub fn write<T: Annotation>(annotations: &mut Annotations, value: &T) {
    annotations.insert(T::KEY.to_string(), value.text());
}

/// An annotation we cannot take: its key, where in it the fault lies, and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationError {
    pub key: &'static str,
    pub fault: Box<Fault>,
    /// What the reader does now.
    pub then: OnError,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not the JSON we expect; the error has path and position.
    Json(gojson::Error),
    /// Upstream's words for a value out of range or of another form.
    Value(String),
}

impl AnnotationError {
    /// Field inside the JSON, such as `detail[3].id`; empty for the whole text.
    pub fn path(&self) -> String {
        match &*self.fault {
            Fault::Json(error) => error.path(),
            Fault::Value(_) => String::new(),
        }
    }

    /// Byte of the text at which the fault was met, where known.
    pub fn offset(&self) -> Option<usize> {
        match &*self.fault {
            Fault::Json(error) => error.offset(),
            Fault::Value(_) => None,
        }
    }

    /// The fault without the key, for messages that frame it themselves.
    pub fn reason(&self) -> String {
        self.fault.to_string()
    }
}

impl fmt::Display for AnnotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "annotation {}: {}", self.key, self.fault)
    }
}

impl std::error::Error for AnnotationError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Json(error) => error.fmt(f),
            Fault::Value(text) => f.write_str(text),
        }
    }
}

impl From<gojson::Error> for Fault {
    fn from(error: gojson::Error) -> Fault {
        Fault::Json(error)
    }
}

/// For annotations whose faults are only logged.
pub trait OrAbsent<T> {
    /// The value, or none after the fault was reported.
    fn or_absent(self, report: impl FnOnce(&AnnotationError)) -> Option<T>;
}

impl<T> OrAbsent<T> for Result<Option<T>, AnnotationError> {
    fn or_absent(self, report: impl FnOnce(&AnnotationError)) -> Option<T> {
        self.unwrap_or_else(|error| {
            report(&error);
            None
        })
    }
}

/// Declares that a type is the JSON under a key.
macro_rules! json_annotation {
    ($type:ty, $key:expr, $empty:ident, $on_error:ident) => {
        impl crate::annotation::Annotation for $type {
            const KEY: &'static str = $key;
            const EMPTY: crate::annotation::Empty = crate::annotation::Empty::$empty;
            const ON_ERROR: crate::annotation::OnError = crate::annotation::OnError::$on_error;

            fn parse(text: &str) -> Result<Self, crate::annotation::Fault> {
                Ok(crate::gojson::from_str(text)?)
            }

            fn text(&self) -> String {
                crate::annotation::encode(self)
            }
        }
    };
}
use json_annotation;

/// Canonical JSON of a value that we declared here.
fn encode(value: &impl serde::Serialize) -> String {
    gojson::to_string(value).expect("our types hold nothing that JSON cannot write")
}

/// Leaves a number or a switch out of the JSON when it says nothing, as Go's `omitempty` does.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
