//! The text of a group's `schemata`: `L3:0=7ff;1=7ff` and `MB:0=100;1=100`.
//!
//! Cache ids are whatever the hardware calls them; AMD's have gaps.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;

use crate::error::Malformed;

/// A line's resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Schema {
    /// Ways of the last-level cache, a hexadecimal mask.
    L3,
    /// Memory bandwidth: percent on Intel, eighths of GB/s on AMD.
    Mb,
}

impl Schema {
    pub fn as_str(self) -> &'static str {
        match self {
            Schema::L3 => "L3",
            Schema::Mb => "MB",
        }
    }

    fn parse(name: &str) -> Option<Schema> {
        [Schema::L3, Schema::Mb].into_iter().find(|schema| schema.as_str() == name)
    }

    fn number(self, text: &str) -> Option<u64> {
        match self {
            Schema::L3 => u64::from_str_radix(text, 16).ok(),
            Schema::Mb => text.parse().ok(),
        }
    }
}

/// One line: a value for each cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub schema: Schema,
    pub values: BTreeMap<u32, u64>,
}

impl Line {
    /// The same value for every cache.
    pub fn even(schema: Schema, caches: impl IntoIterator<Item = u32>, value: u64) -> Line {
        Line { schema, values: caches.into_iter().map(|cache| (cache, value)).collect() }
    }

    /// None for a line of another resource.
    fn parse(line: &str) -> Result<Option<Line>, Malformed> {
        let fault = || Malformed(format!("cannot parse schemata line {line:?}"));
        let (name, values) = line.trim().split_once(':').ok_or_else(fault)?;
        let Some(schema) = Schema::parse(name) else { return Ok(None) };
        let pair = |part: &str| {
            let (cache, value) = part.split_once('=')?;
            Some((cache.trim().parse().ok()?, schema.number(value.trim())?))
        };
        let parts = values.split(';').filter(|part| !part.trim().is_empty());
        let values = parts.map(|part| pair(part).ok_or_else(fault)).collect::<Result<_, _>>()?;
        Ok(Some(Line { schema, values }))
    }

    /// One such text, as it is written.
    pub fn from_text(text: &str) -> Result<Line, Malformed> {
        Line::parse(text)?.ok_or_else(|| Malformed(format!("{text:?} is a line of another resource")))
    }
}

/// As the kernel takes it, with its newline.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.schema.as_str())?;
        for (cache, value) in &self.values {
            match self.schema {
                Schema::L3 => write!(f, "{cache}={value:x};")?,
                Schema::Mb => write!(f, "{cache}={value};")?,
            }
        }
        f.write_char('\n')
    }
}

/// The lines that we know; those of other resources are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schemata {
    lines: Vec<Line>,
}

impl Schemata {
    pub fn parse(content: &str) -> Result<Schemata, Malformed> {
        let lines = content.lines().filter(|line| !line.trim().is_empty()).map(Line::parse);
        Ok(Schemata { lines: lines.filter_map(Result::transpose).collect::<Result<_, _>>()? })
    }

    pub fn line(&self, schema: Schema) -> Option<&Line> {
        self.lines.iter().find(|line| line.schema == schema)
    }

    /// Ids of the caches, as the L3 line tells them, or else the MB line.
    pub fn caches(&self) -> Vec<u32> {
        let line = self.line(Schema::L3).or_else(|| self.line(Schema::Mb));
        line.map(|line| line.values.keys().copied().collect()).unwrap_or_default()
    }
}
