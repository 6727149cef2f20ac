//! Reading numbers and words out of the kernel's text, without allocating.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use crate::error::{Error, Malformed};

/// A whole small file; for what is read now and then.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let bytes = fs::read(path).map_err(|source| Error::read(path, source))?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The content without newlines at either end; blanks stay, as upstream keeps them.
pub(crate) fn trimmed(content: &[u8]) -> &[u8] {
    let start = content.iter().position(|byte| *byte != b'\n').unwrap_or(content.len());
    let end = content.iter().rposition(|byte| *byte != b'\n').map_or(start, |last| last + 1);
    &content[start..end]
}

pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The first two words of each line that has two.
pub(crate) fn pairs(content: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(content).filter_map(|line| {
        let mut words = words(line);
        Some((words.next()?, words.next()?))
    })
}

pub(crate) fn number<T: FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Bytes as text for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number of a signed single-number file; `max` is -1.
pub(crate) fn signed(content: &[u8]) -> Result<i64, Malformed> {
    single(content, -1)
}

/// The number of an unsigned single-number file; `max` is the largest signed number.
pub(crate) fn unsigned(content: &[u8]) -> Result<u64, Malformed> {
    single(content, i64::MAX.unsigned_abs())
}

/// The number of a 32-bit single-number file; `max` is the largest signed number.
pub(crate) fn unsigned32(content: &[u8]) -> Result<u32, Malformed> {
    single(content, i32::MAX.unsigned_abs())
}

fn single<T: FromStr>(content: &[u8], max: T) -> Result<T, Malformed> {
    let word = trimmed(content);
    if word == b"max" {
        return Ok(max);
    }
    number(word).ok_or_else(|| Malformed(format!("cannot parse cgroup value {}", shown(word))))
}

/// Ids separated by white space, as in `tasks` and `cgroup.procs`.
pub(crate) fn ids(content: &[u8]) -> Result<Vec<u32>, Malformed> {
    words(content)
        .map(|word| number(word).ok_or_else(|| Malformed(format!("cannot parse id in row {}", shown(word)))))
        .collect()
}
