//! Answers of `/events`: pages of records, newest first, and the readers that stay between pages.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use koord_kit::random;
use serde::Serialize;

use super::Event;
use super::reader::Reader;

/// Records of a page when nobody says how many.
const SIZE_DEFAULT: i64 = 256;
/// A reader that is not used for so long is gone.
const READER_LIFE: Duration = Duration::from_secs(600);

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    /// A JSON object on each line.
    Text,
}

impl Form {
    /// Differs: any `Accept` that names JSON, where upstream wants exactly `application/json` (item 13).
    pub fn of_accept(accept: Option<&str>) -> Form {
        let types = accept.into_iter().flat_map(|accept| accept.split(','));
        let mut names = types.map(|part| part.split(';').next().unwrap_or_default().trim());
        if names.any(|name| name.eq_ignore_ascii_case("application/json")) { Form::Json } else { Form::Text }
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// What stands after `size=`.
    pub size: Option<String>,
    /// What stands after `pageToken=`; empty asks from the start.
    pub token: String,
}

impl Query {
    /// Reads the part of an address after the question mark.
    pub fn read(text: &str) -> Query {
        let mut query = Query::default();
        for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "size" if query.size.is_none() => query.size = Some(value.to_owned()),
                "pageToken" if query.token.is_empty() => value.clone_into(&mut query.token),
                _ => {}
            }
        }
        query
    }
}

/// A page, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The audit log is off.
    Off,
    Page {
        events: Vec<Event>,
        /// Empty at the end.
        token: String,
    },
    /// The request cannot be understood.
    Bad(String),
    /// The reader is not, or no longer, there.
    Gone(String),
}

/// The page as JSON spells it.
#[derive(Serialize)]
struct Page<'a> {
    #[serde(rename = "NextPageToken")]
    token: &'a str,
    #[serde(rename = "Events")]
    events: &'a [Event],
}

impl Answer {
    pub(super) fn off() -> Answer {
        Answer::Off
    }

    /// Status and text.
    pub fn body(&self, form: Form) -> (u16, String) {
        match (self, form) {
            (Answer::Off, _) => (200, String::new()),
            (Answer::Bad(text), _) => (400, text.clone()),
            (Answer::Gone(text), _) => (409, text.clone()),
            (Answer::Page { events, token }, Form::Json) => {
                (200, serde_json::to_string(&Page { token, events }).unwrap_or_default())
            }
            (Answer::Page { events, .. }, Form::Text) => {
                let lines = events.iter().filter_map(|event| serde_json::to_string(event).ok());
                (200, lines.map(|line| line + "\n").collect())
            }
        }
    }

    /// What the headers `Content-Type` and `Next-Page-Token` say; none where they are not sent.
    pub fn headers(&self, form: Form) -> (Option<&'static str>, Option<&str>) {
        match (self, form) {
            (Answer::Page { .. }, Form::Json) => (Some("application/json; charset=utf-8"), None),
            (Answer::Page { events, token }, Form::Text) if !events.is_empty() => {
                (Some("text/plain; charset=utf-8"), (!token.is_empty()).then_some(token))
            }
            (Answer::Page { .. } | Answer::Off, _) => (None, None),
            (Answer::Bad(_) | Answer::Gone(_), _) => (Some("text/plain; charset=utf-8"), None),
        }
    }
}

/// The readers of queries that go on.
pub(super) struct Readers {
    max: usize,
    /// Least recently used first.
    readers: Vec<Open>,
}

struct Open {
    token: String,
    reader: Reader,
    used: Instant,
}

impl Readers {
    pub(super) fn new(max: usize) -> Readers {
        Readers { max, readers: Vec::new() }
    }

    pub(super) fn answer(&mut self, query: &Query, max: usize, files: &[PathBuf], now: Instant) -> Answer {
        let size = query.size.as_deref().and_then(|text| text.parse::<i64>().ok()).unwrap_or(SIZE_DEFAULT);
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        if size > limit {
            return Answer::Bad(format!("size({size}) exceeds the limit({limit})"));
        }
        // Differs: upstream's handler crashes (item 13).
        let Ok(size) = usize::try_from(size) else {
            return Answer::Bad(format!("size({size}) is negative"));
        };
        let mut open = match self.take(&query.token, now) {
            Ok(open) => open,
            Err(answer) => return answer,
        };
        let (mut events, mut is_over) = (Vec::new(), false);
        for _ in 0..size {
            let Some(line) = open.reader.next_line(files) else {
                is_over = true;
                break;
            };
            // A line that cannot be read takes a place all the same.
            events.extend(serde_json::from_slice::<Event>(&line).ok());
        }
        let token = if is_over { String::new() } else { open.token.clone() };
        open.used = now;
        self.readers.push(open);
        Answer::Page { events, token }
    }

    /// The reader of a token out of the list, or a new one.
    fn take(&mut self, token: &str, now: Instant) -> Result<Open, Answer> {
        if token.is_empty() {
            self.sweep(now);
            let excess = (self.readers.len() + 1).saturating_sub(self.max.max(1));
            self.readers.drain(..excess.min(self.readers.len()));
            return Ok(Open { token: random::uuid(), reader: Reader::default(), used: now });
        }
        let at = self.readers.iter().position(|open| open.token == token);
        let open = at.map(|at| self.readers.remove(at));
        let open = open.ok_or_else(|| Answer::Gone(format!("invalid pageToken {token}")))?;
        if is_old(&open, now) {
            return Err(Answer::Gone(format!("reader {token} is expired")));
        }
        Ok(open)
    }

    pub(super) fn sweep(&mut self, now: Instant) {
        self.readers.retain(|open| !is_old(open, now));
    }
}

fn is_old(open: &Open, now: Instant) -> bool {
    now.saturating_duration_since(open.used) > READER_LIFE
}
