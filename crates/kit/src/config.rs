//! Configuration files: YAML or JSON, strictly typed, with errors that say where and what would be right.
//!
//! [`Document::read`] parses a file into a tree that remembers lines; [`Document::decode`] fills a plain serde struct
//! from it. Unknown fields are refused without `deny_unknown_fields`, and *all* mistakes are reported, each with
//! file, line, column, field path, value and what is accepted. Checks beyond types are added to the same list:
//!
//! ```
//! # use koord_kit::config::{ConfigErrors, Document};
//! #[derive(serde::Deserialize)]
//! #[serde(rename_all = "camelCase", default)]
//! struct Raw { percentage: i64 }
//! # impl Default for Raw { fn default() -> Raw { Raw { percentage: 0 } } }
//!
//! fn load(text: &str) -> Result<Raw, ConfigErrors> {
//!     let document = Document::parse("scheduler.yaml", text)?;
//!     document.expect_kind(&[("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration")])?;
//!     let raw: Raw = document.decode()?;
//!     let mut problems = document.problems();
//!     if !(0..=100).contains(&raw.percentage) {
//!         problems.refuse("percentage", raw.percentage, "a percentage from 0 to 100");
//!     }
//!     problems.finish(raw)
//! }
//! let error = load("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npercentage: 200\n");
//! assert_eq!(
//!     error.err().unwrap().to_string(),
//!     "scheduler.yaml:3:13: percentage: 200 is not accepted, expected a percentage from 0 to 100"
//! );
//! ```
//!
//! A part whose type is known only later (a plugin's arguments) is a [`Raw`] field, decoded by
//! [`Document::decode_raw`] with paths and lines kept.

mod decode;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

pub use decode::Raw;
use tree::{Duplicate, Duplicates, Node, NodeId, Tree};

/// No more problems than this are listed; a file with more is broken in one way many times.
const PROBLEMS_MAX: usize = 50;

/// A parsed configuration file.
#[derive(Debug)]
pub struct Document {
    file: PathBuf,
    tree: Tree,
}

impl Document {
    /// Reads and parses a file.
    pub fn read(path: impl AsRef<Path>) -> Result<Document, ConfigErrors> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigErrors::one(path, None, String::new(), format!("cannot read the file: {error}"))
        })?;
        Document::parse(path, &text)
    }

    /// Parses text; `name` is what errors call it.
    pub fn parse(name: impl AsRef<Path>, text: &str) -> Result<Document, ConfigErrors> {
        Document::parse_with(name.as_ref(), text, Duplicates::Refuse)
    }

    /// As [`Document::parse`], but a field that stands twice is only noted in [`Document::duplicates`]; the later
    /// one counts.
    pub fn parse_noting_duplicates(name: impl AsRef<Path>, text: &str) -> Result<Document, ConfigErrors> {
        Document::parse_with(name.as_ref(), text, Duplicates::Note)
    }

    fn parse_with(file: &Path, text: &str, duplicates: Duplicates) -> Result<Document, ConfigErrors> {
        match Tree::parse(text, duplicates) {
            Ok(tree) => Ok(Document { file: file.to_owned(), tree }),
            Err((position, message)) => Err(ConfigErrors::one(file, position, String::new(), message)),
        }
    }

    /// The fields that stand twice, in the order of the file.
    pub fn duplicates(&self) -> Vec<Problem> {
        let place = |duplicate: &Duplicate| Problem {
            position: Some(duplicate.position),
            path: self.tree.path_below(duplicate.parent, &duplicate.key),
            message: "given twice; the last one counts".to_owned(),
        };
        self.tree.duplicates.iter().map(place).collect()
    }

    /// The file, as errors call it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Where the field is, or the nearest thing around it.
    pub fn position(&self, path: &str) -> (u64, u64) {
        self.tree.node(self.tree.nearest(path).0).position
    }

    /// The path of a part that was kept raw.
    pub fn path_of_raw(&self, raw: &Raw) -> String {
        self.tree.path(raw.id)
    }

    /// The `apiVersion` and `kind`, empty where absent or not text.
    pub fn kind(&self) -> (&str, &str) {
        self.kind_of(self.tree.root())
    }

    /// The `apiVersion` and `kind` of a part.
    pub fn kind_of_raw(&self, raw: &Raw) -> (&str, &str) {
        self.kind_of(raw.id)
    }

    fn kind_of(&self, id: NodeId) -> (&str, &str) {
        (self.tree.text_field(id, "apiVersion"), self.tree.text_field(id, "kind"))
    }

    /// Refuses a document that is none of the accepted `(apiVersion, kind)` pairs.
    pub fn expect_kind(&self, accepted: &[(&str, &str)]) -> Result<(), ConfigErrors> {
        let found = self.kind();
        if accepted.contains(&found) {
            return Ok(());
        }
        let mut problems = self.problems();
        let kind_known = accepted.iter().any(|(_, kind)| *kind == found.1);
        let (field, value) = if kind_known { ("apiVersion", found.0) } else { ("kind", found.1) };
        let list: Vec<String> = accepted.iter().map(|(version, kind)| format!("{version} {kind}")).collect();
        problems.refuse(field, value, &list.join(" or "));
        problems.finish(())
    }

    /// Fills a struct from the document, or says everything that does not fit.
    ///
    /// `apiVersion` and `kind` at the top are let through; check them with [`Document::expect_kind`].
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ConfigErrors> {
        self.decode_at(self.tree.root())
    }

    /// Fills a struct from a part that was kept raw.
    pub fn decode_raw<T: DeserializeOwned>(&self, raw: &Raw) -> Result<T, ConfigErrors> {
        self.decode_at(raw.id)
    }

    fn decode_at<T: DeserializeOwned>(&self, id: NodeId) -> Result<T, ConfigErrors> {
        let Decoded { value, unknown } = self.decode_node(id);
        let mut problems = self.problems();
        problems.list.extend(unknown.into_iter().map(|problem| (None, problem)));
        match value {
            Ok(value) => problems.finish(value),
            Err(errors) => {
                problems.extend(errors);
                problems.into_err()
            }
        }
    }

    /// As [`Document::decode`], with the unknown fields apart, for files in which they are let through.
    pub fn decode_noting_unknown<T: DeserializeOwned>(&self) -> Decoded<T> {
        self.decode_node(self.tree.root())
    }

    /// As [`Document::decode_raw`], with the unknown fields apart.
    pub fn decode_raw_noting_unknown<T: DeserializeOwned>(&self, raw: &Raw) -> Decoded<T> {
        self.decode_node(raw.id)
    }

    fn decode_node<T: DeserializeOwned>(&self, id: NodeId) -> Decoded<T> {
        // Serde stops at the first mistake. Each mistake's node is taken out and the rest is decoded again, until
        // nothing is wrong with what is left.
        let mut skipped = BTreeSet::new();
        let mut problems = self.problems();
        let mut unknown_fields = self.problems();
        loop {
            let (result, unknown) = decode::run::<T>(&self.tree, id, &skipped);
            for (id, message) in unknown {
                skipped.insert(id);
                unknown_fields.add(Some(id), message);
            }
            let listed = problems.list.len() + unknown_fields.list.len();
            match result {
                Ok(value) => {
                    return Decoded { value: problems.finish(value), unknown: unknown_fields.into_list() };
                }
                Err(fault) => {
                    // A required field that was itself refused is not also missing.
                    let is_echo = fault.missing
                        && (problems.has_below(fault.node) || unknown_fields.has_below(fault.node));
                    if !is_echo {
                        problems.add(Some(fault.node), fault.message);
                    }
                    let is_stuck = fault.node == id || !skipped.insert(fault.node);
                    if is_stuck || listed >= PROBLEMS_MAX {
                        return Decoded { value: problems.into_err(), unknown: unknown_fields.into_list() };
                    }
                }
            }
        }
    }

    /// An empty list of problems of this document.
    pub fn problems(&self) -> Problems<'_> {
        Problems { document: self, list: Vec::new() }
    }
}

/// What decoding found.
#[derive(Debug)]
pub struct Decoded<T> {
    /// The value, with unknown fields left out, or what does not fit.
    pub value: Result<T, ConfigErrors>,
    /// Fields that nobody asked for.
    pub unknown: Vec<Problem>,
}

/// What is wrong with a document, collected.
#[derive(Debug)]
pub struct Problems<'d> {
    document: &'d Document,
    list: Vec<(Option<NodeId>, Problem)>,
}

impl Problems<'_> {
    /// A value that has the right type but cannot be used. The path is as users write it: `profiles[0].name`.
    pub fn refuse(&mut self, path: &str, value: impl fmt::Debug, wanted: &str) {
        self.message(path, format!("{value:?} is not accepted, expected {wanted}"));
    }

    /// Anything else that is wrong with a field.
    pub fn message(&mut self, path: &str, message: impl Into<String>) {
        let tree = &self.document.tree;
        // The field may be absent: then the nearest thing around it is shown.
        let (id, _) = tree.nearest(path);
        let position = Some(tree.node(id).position);
        self.list.push((Some(id), Problem { position, path: path.to_owned(), message: message.into() }));
    }

    /// A problem of a part that was kept raw.
    pub fn message_in_raw(&mut self, raw: &Raw, path: &str, message: impl Into<String>) {
        let below = self.document.tree.path(raw.id);
        let full = if below.is_empty() { path.to_owned() } else { format!("{below}.{path}") };
        self.message(&full, message);
    }

    /// Adds the problems of another step.
    pub fn extend(&mut self, errors: ConfigErrors) {
        self.list.extend(errors.problems.into_iter().map(|problem| (None, problem)));
    }

    /// The value if nothing is wrong, otherwise all that is.
    pub fn finish<T>(self, value: T) -> Result<T, ConfigErrors> {
        if self.list.is_empty() { Ok(value) } else { self.into_err() }
    }

    fn into_err<T>(self) -> Result<T, ConfigErrors> {
        let file = self.document.file.clone();
        Err(ConfigErrors { file, problems: self.into_list() })
    }

    fn into_list(self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.list.into_iter().map(|(_, problem)| problem).collect();
        problems.sort_by_key(|problem| problem.position);
        problems
    }

    fn add(&mut self, id: Option<NodeId>, message: String) {
        let tree = &self.document.tree;
        let node = id.map(|id| tree.node(id));
        let problem = Problem {
            position: node.map(|node: &Node| node.position),
            path: id.map(|id| tree.path(id)).unwrap_or_default(),
            message,
        };
        self.list.push((id, problem));
    }

    fn has_below(&self, parent: NodeId) -> bool {
        self.list
            .iter()
            .any(|(id, _)| id.is_some_and(|id| self.document.tree.node(id).parent == Some(parent)))
    }
}

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line and column, from 1.
    pub position: Option<(u64, u64)>,
    /// The field, such as `profiles[0].plugins`.
    pub path: String,
    pub message: String,
}

/// All mistakes in a file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    pub file: PathBuf,
    pub problems: Vec<Problem>,
}

impl ConfigErrors {
    fn one(file: &Path, position: Option<(u64, u64)>, path: String, message: String) -> ConfigErrors {
        ConfigErrors { file: file.to_owned(), problems: vec![Problem { position, path, message }] }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file.display())?;
            if let Some((line, column)) = problem.position {
                write!(f, ":{line}:{column}")?;
            }
            if !problem.path.is_empty() {
                write!(f, ": {}", problem.path)?;
            }
            write!(f, ": {}", problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
