//! Why a configuration cannot be used: in kube-scheduler's words, and with the place in the file.

use std::fmt;
use std::path::PathBuf;

use koord_kit::config::{ConfigErrors, Document, Problem};

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    pub file: PathBuf,
    /// kube-scheduler's complaint.
    pub message: String,
    /// Where to look, in the order of the file.
    pub places: Vec<Problem>,
}

impl LoadError {
    pub(super) fn new(document: &Document, message: String, places: Vec<Problem>) -> LoadError {
        let mut places = places;
        places.sort_by_key(|place| place.position);
        places.dedup();
        LoadError { file: document.file().to_owned(), message, places }
    }

    /// Of a file that is no YAML, or cannot be read.
    pub(super) fn unreadable(errors: ConfigErrors) -> LoadError {
        let first = errors.problems.first();
        let text = first.map_or("", |problem| problem.message.as_str());
        let message = match first.and_then(|problem| problem.position) {
            Some((line, _)) => format!("yaml: line {line}: {text}"),
            None => text.to_owned(),
        };
        LoadError { file: errors.file, message, places: Vec::new() }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.message)?;
        for place in &self.places {
            write!(f, "\n  {}", self.file.display())?;
            if let Some((line, column)) = place.position {
                write!(f, ":{line}:{column}")?;
            }
            for part in [&place.path, &place.message].into_iter().filter(|part| !part.is_empty()) {
                write!(f, ": {part}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}
