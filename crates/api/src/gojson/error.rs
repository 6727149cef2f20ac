//! What is wrong with a document, where, in the words of Go's decoder.

use std::fmt;

/// Why a document cannot be read. `Display` keeps Go's wording and adds the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    problem: Problem,
    /// Innermost segment first while the error travels outwards.
    path: Vec<Segment>,
    offset: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// The text ends inside a value.
    End,
    Syntax(String),
    Type {
        found: String,
        wanted: String,
    },
    /// A value of the right JSON type that its reader refuses.
    Value(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Field(String),
    Index(usize),
}

impl Error {
    pub(super) fn end(offset: usize) -> Error {
        Error::new(Problem::End, Some(offset))
    }

    pub(super) fn syntax(message: String, offset: usize) -> Error {
        Error::new(Problem::Syntax(message), Some(offset))
    }

    pub(super) fn wrong_type(found: String, wanted: &str, offset: usize) -> Error {
        let wanted = wanted.to_owned();
        Error::new(Problem::Type { found, wanted }, Some(offset))
    }

    fn new(problem: Problem, offset: Option<usize>) -> Error {
        Error(Box::new(Fault { problem, path: Vec::new(), offset }))
    }

    /// Names the field or element that holds the faulty value, from the inside out.
    pub(crate) fn inside(mut self, segment: Segment, offset: usize) -> Error {
        self.0.path.push(segment);
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Byte of the document at which the fault was met, where known.
    pub fn offset(&self) -> Option<usize> {
        self.0.offset
    }

    /// Field path such as `clusterStrategy.enable` or `nodeStrategies[0]`; empty at top level.
    pub fn path(&self) -> String {
        let mut path = String::new();
        for segment in self.0.path.iter().rev() {
            match segment {
                Segment::Field(name) if path.is_empty() => path.push_str(name),
                Segment::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                Segment::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    /// Whether the text is not JSON at all, rather than JSON of the wrong shape.
    pub fn is_syntax(&self) -> bool {
        matches!(self.0.problem, Problem::End | Problem::Syntax(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path();
        match &self.0.problem {
            // The place is the end, and Go's text says so.
            Problem::End => return f.write_str("unexpected end of JSON input"),
            Problem::Syntax(message) => f.write_str(message)?,
            Problem::Type { found, wanted } if path.is_empty() => {
                write!(f, "json: cannot unmarshal {found} into Go value of type {wanted}")?;
            }
            Problem::Type { found, wanted } => {
                write!(f, "json: cannot unmarshal {found} into Go struct field {path} of type {wanted}")?;
            }
            Problem::Value(message) if path.is_empty() => f.write_str(message)?,
            Problem::Value(message) => write!(f, "{path}: {message}")?,
        }
        match self.0.offset {
            Some(offset) => write!(f, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Error {
        Error::new(Problem::Value(message.to_string()), None)
    }

    fn invalid_type(found: serde::de::Unexpected<'_>, wanted: &dyn serde::de::Expected) -> Error {
        use serde::de::Unexpected;
        let found = match found {
            Unexpected::Bool(_) => "bool".to_owned(),
            Unexpected::Unsigned(number) => format!("number {number}"),
            Unexpected::Signed(number) => format!("number {number}"),
            Unexpected::Float(number) => format!("number {number}"),
            Unexpected::Char(_) | Unexpected::Str(_) => "string".to_owned(),
            Unexpected::Unit | Unexpected::Option => "null".to_owned(),
            Unexpected::Seq => "array".to_owned(),
            Unexpected::Map => "object".to_owned(),
            other => other.to_string(),
        };
        Error::new(Problem::Type { found, wanted: wanted.to_string() }, None)
    }
}

impl serde::ser::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Error {
        Error::new(Problem::Value(message.to_string()), None)
    }
}
