//! From words to checked values. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::{Flag, Kind, Status, Value, Values};

/// Words further apart than this are not offered as what the user may have meant.
const SUGGESTION_DISTANCE_MAX: usize = 3;

/// One thing wrong with a command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("unknown flag {word}{}", suggestion.map(|s| format!("; did you mean --{s}?")).unwrap_or_default())]
    Unknown { word: String, suggestion: Option<&'static str> },
    #[error("flag {word} needs a value: {wanted}")]
    NoValue { word: String, wanted: String },
    #[error("flag {word}: {value:?} is not accepted, expected {wanted}")]
    BadValue { word: String, value: String, wanted: String },
}

/// Everything wrong with a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagErrors(pub Vec<FlagError>);

impl fmt::Display for FlagErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FlagErrors {}

/// Checks the words after the program's name against tables of flags.
pub fn parse<I>(tables: &[&[Flag]], words: I) -> Result<Values, FlagErrors>
where
    I: IntoIterator,
    I::Item: Into<String>,
{
    let flags: Vec<&Flag> = tables.iter().copied().flatten().collect();
    let mut values = Values::default();
    let mut errors = Vec::new();
    for flag in &flags {
        let value = read(flag, "(default)", flag.default).expect("a flag's default is of its own kind");
        values.values.insert(flag.name, value);
    }
    let mut words: VecDeque<String> = words.into_iter().map(Into::into).collect();
    while let Some(word) = words.pop_front() {
        if word == "--" {
            values.rest.extend(words.drain(..));
        } else if word == "-" || !word.starts_with('-') {
            values.rest.push(word);
        } else if let Err(error) = take_flag(&flags, &mut values, word, &mut words) {
            errors.push(error);
        }
    }
    if errors.is_empty() { Ok(values) } else { Err(FlagErrors(errors)) }
}

fn take_flag(
    flags: &[&Flag],
    values: &mut Values,
    word: String,
    words: &mut VecDeque<String>,
) -> Result<(), FlagError> {
    let (shown, attached) = match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (word, None),
    };
    let bare = shown.trim_start_matches('-').replace('_', "-");
    let Some(flag) = flags.iter().find(|flag| flag.name == bare) else {
        return take_other(flags, values, &shown, &bare, attached, words);
    };
    let text = match attached {
        Some(text) => text,
        None => following(flag, &shown, words)?,
    };
    store(values, flag, &shown, &text)
}

/// `--help`, `-h`, `--version`, and one-letter flags with or without a value glued on.
fn take_other(
    flags: &[&Flag],
    values: &mut Values,
    shown: &str,
    bare: &str,
    attached: Option<String>,
    words: &mut VecDeque<String>,
) -> Result<(), FlagError> {
    match bare {
        "help" | "h" => values.help = true,
        "version" => values.version = true,
        _ => {
            let mut letters = bare.chars();
            let letter = letters.next();
            let glued = letters.as_str();
            let short = flags.iter().find(|flag| flag.short.is_some() && flag.short == letter);
            let (Some(flag), false) = (short, shown.starts_with("--")) else {
                return Err(unknown(flags, shown, bare));
            };
            let text = match attached {
                Some(text) if glued.is_empty() => text,
                None if !glued.is_empty() && read(flag, shown, glued).is_ok() => glued.to_owned(),
                None if glued.is_empty() => following(flag, shown, words)?,
                _ => return Err(unknown(flags, shown, bare)),
            };
            store(values, flag, shown, &text)?;
        }
    }
    Ok(())
}

/// The value when none is attached: the next word, or `true` for a switch that none follows.
fn following(flag: &Flag, shown: &str, words: &mut VecDeque<String>) -> Result<String, FlagError> {
    if flag.kind == Kind::Bool {
        let said = words.front().is_some_and(|word| matches!(word.as_str(), "true" | "false"));
        let value = if said { words.pop_front() } else { None };
        return Ok(value.unwrap_or_else(|| "true".to_owned()));
    }
    let missing = || FlagError::NoValue { word: shown.to_owned(), wanted: wanted(flag.kind) };
    words.pop_front().ok_or_else(missing)
}

fn store(values: &mut Values, flag: &Flag, shown: &str, text: &str) -> Result<(), FlagError> {
    let read = read(flag, shown, text)?;
    let first = values.given.insert(flag.name, true).is_none();
    match (values.values.get_mut(flag.name), read) {
        (Some(Value::List(list)), Value::List(more)) if !first => list.extend(more),
        (Some(Value::Map(map)), Value::Map(more)) if !first => map.extend(more),
        (Some(slot), value) => *slot = value,
        (None, _) => {}
    }
    let warning = match flag.status {
        Status::Live => return Ok(()),
        Status::Deprecated(instead) => format!("flag --{} is deprecated: {instead}", flag.name),
        Status::Ignored(why) => format!("flag --{} has no effect: {why}", flag.name),
    };
    if !values.warnings.contains(&warning) {
        values.warnings.push(warning);
    }
    Ok(())
}

fn read(flag: &Flag, shown: &str, text: &str) -> Result<Value, FlagError> {
    let value = match flag.kind {
        Kind::Bool => read_bool(text).map(Value::Bool),
        Kind::Int => read_int(text).map(Value::Int),
        Kind::Float => text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float),
        Kind::Duration => text.parse().ok().map(Value::Duration),
        Kind::Text => Some(Value::Text(text.to_owned())),
        Kind::OneOf(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
        Kind::List => Some(Value::List(parts(text).map(str::to_owned).collect())),
        Kind::Map => read_map(text).map(Value::Map),
    };
    value.ok_or_else(|| FlagError::BadValue {
        word: shown.to_owned(),
        value: text.to_owned(),
        wanted: wanted(flag.kind),
    })
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// The words that Go's `strconv.ParseBool` takes.
fn read_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn read_int(text: &str) -> Option<i64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn read_map(text: &str) -> Option<BTreeMap<String, String>> {
    parts(text)
        .map(|part| {
            let (key, value) = part.split_once('=')?;
            Some((key.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

pub(super) fn wanted(kind: Kind) -> String {
    match kind {
        Kind::Bool => "true or false".to_owned(),
        Kind::Int => "an integer such as 4".to_owned(),
        Kind::Float => "a number such as 0.5".to_owned(),
        Kind::Duration => "a duration such as 1m30s".to_owned(),
        Kind::Text => "a text".to_owned(),
        Kind::OneOf(words) => format!("one of {}", words.join(", ")),
        Kind::List => "a list such as a,b".to_owned(),
        Kind::Map => "pairs such as a=1,b=2".to_owned(),
    }
}

fn unknown(flags: &[&Flag], shown: &str, bare: &str) -> FlagError {
    let near = flags
        .iter()
        .map(|flag| (distance(bare, flag.name), flag.name))
        .filter(|(steps, name)| *steps <= SUGGESTION_DISTANCE_MAX.min(name.len() / 2));
    FlagError::Unknown { word: shown.to_owned(), suggestion: near.min().map(|(_, name)| name) }
}

/// How many letters to add, drop or change to get from one word to the other.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
