//! Recordings: everything an engine was told and when, so that it can be told again.
//!
//! Pure functions over bytes, one line of JSON for each entry; files and compression are the shell's. The first line
//! says how the engine was set up. `Taker` writes while an engine works, `Player` gives an engine the same again and
//! compares what it wants done, `Folder` makes a short beginning out of a long one.

mod digest;
mod fold;
mod play;
mod recall;

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use digest::Digest;
pub use fold::Folder;
pub use play::{Difference, Played, Player};

use crate::engine::{Command, Input, Options};
use crate::extender::Said;
use crate::profile::Profile;
use crate::time::Time;

/// What this version writes, and reads.
pub const VERSION: u32 = 1;
/// Steps put on one line.
const STEPS_MAX: usize = 256;

/// How the engine was set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Of this format.
    pub recording: u32,
    pub seed: u64,
    /// The configuration as a file, from which profiles are made; empty for kube-scheduler's defaults.
    #[serde(default)]
    pub configuration: String,
    /// The scheduler's name where there is no configuration.
    #[serde(default)]
    pub scheduler: String,
    pub percentage_of_nodes_to_score: i64,
    pub parallelism: i32,
    pub initial_backoff_millis: u64,
    pub max_backoff_millis: u64,
    pub max_in_unschedulable_millis: u64,
    pub uses_hints: bool,
    pub pops_from_backoff: bool,
    /// Older recordings do not say it; then it was on.
    #[serde(default = "yes")]
    pub checks_scheduler: bool,
}

fn yes() -> bool {
    true
}

impl Header {
    /// Of an engine with these options, whose profiles are made of this configuration.
    pub fn new(options: &Options, configuration: &str) -> Header {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Header {
            recording: VERSION,
            seed: options.seed,
            configuration: configuration.to_owned(),
            scheduler: options.profiles.first().map(|p| p.scheduler_name.clone()).unwrap_or_default(),
            percentage_of_nodes_to_score: options.percentage_of_nodes_to_score,
            parallelism: options.parallelism,
            initial_backoff_millis: millis(options.initial_backoff),
            max_backoff_millis: millis(options.max_backoff),
            max_in_unschedulable_millis: millis(options.max_in_unschedulable),
            uses_hints: options.uses_hints,
            pops_from_backoff: options.pops_from_backoff,
            checks_scheduler: options.checks_scheduler,
        }
    }

    /// The options, with profiles that the reader made of the configuration.
    pub fn options(&self, profiles: Vec<Profile>) -> Options {
        Options {
            percentage_of_nodes_to_score: self.percentage_of_nodes_to_score,
            parallelism: self.parallelism,
            initial_backoff: Duration::from_millis(self.initial_backoff_millis),
            max_backoff: Duration::from_millis(self.max_backoff_millis),
            max_in_unschedulable: Duration::from_millis(self.max_in_unschedulable_millis),
            uses_hints: self.uses_hints,
            pops_from_backoff: self.pops_from_backoff,
            checks_scheduler: self.checks_scheduler,
            seed: self.seed,
            ..Options::new(profiles)
        }
    }
}

/// One entry of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Header(Box<Header>),
    Input {
        at: Time,
        input: Box<Input>,
    },
    /// Pods were tried, at these times.
    Steps(Vec<Time>),
    /// What extenders say in the step that comes next: which of them, in the order they were asked.
    Said(Vec<(usize, Said)>),
    /// All commands so far.
    Digest(Digest),
    /// What comes before stands for a longer history that was dropped: objects as they were, without the engine's own
    /// state. From here on decisions may differ from those of the original.
    Cut {
        at: Time,
    },
}

/// A line as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line<'a> {
    Input {
        t: i64,
        i: std::borrow::Cow<'a, Input>,
    },
    /// The first step's time, and how much later than the one before each of the others is.
    Steps {
        t: i64,
        s: Vec<i64>,
    },
    Said {
        x: std::borrow::Cow<'a, [(usize, Said)]>,
    },
    Digest {
        d: Digest,
    },
    Cut {
        cut: i64,
    },
    Header(std::borrow::Cow<'a, Header>),
}

/// Why a line is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("not a line of a recording: {0}")]
    Line(String),
    #[error("a recording of version {0}; this program reads version {VERSION}")]
    Version(u32),
}

impl Entry {
    /// Reads one line, with or without its end.
    pub fn decode(line: &[u8]) -> Result<Entry, RecordError> {
        let line: Line<'_> =
            serde_json::from_slice(line).map_err(|error| RecordError::Line(error.to_string()))?;
        Ok(match line {
            Line::Header(header) if header.recording != VERSION => {
                return Err(RecordError::Version(header.recording));
            }
            Line::Header(header) => Entry::Header(Box::new(header.into_owned())),
            Line::Input { t, i } => Entry::Input { at: Time::from_nanos(t), input: Box::new(i.into_owned()) },
            Line::Steps { t, s } => {
                let mut at = t;
                let mut times = vec![Time::from_nanos(t)];
                for later in s {
                    at = at.saturating_add(later);
                    times.push(Time::from_nanos(at));
                }
                Entry::Steps(times)
            }
            Line::Said { x } => Entry::Said(x.into_owned()),
            Line::Digest { d } => Entry::Digest(d),
            Line::Cut { cut } => Entry::Cut { at: Time::from_nanos(cut) },
        })
    }

    /// Writes one line.
    pub fn encode(&self, out: &mut Vec<u8>) {
        use std::borrow::Cow::Borrowed;
        match self {
            Entry::Header(header) => write(out, &Line::Header(Borrowed(header))),
            Entry::Input { at, input } => write(out, &Line::Input { t: at.nanos(), i: Borrowed(input) }),
            Entry::Steps(times) => {
                let Some(first) = times.first() else { return };
                let later = times.windows(2).map(|pair| pair[1].nanos().saturating_sub(pair[0].nanos()));
                write(out, &Line::Steps { t: first.nanos(), s: later.collect() });
            }
            Entry::Said(said) => write(out, &Line::Said { x: Borrowed(said) }),
            Entry::Digest(digest) => write(out, &Line::Digest { d: *digest }),
            Entry::Cut { at } => write(out, &Line::Cut { cut: at.nanos() }),
        }
    }
}

fn write(out: &mut Vec<u8>, line: &Line<'_>) {
    let start = out.len();
    // Objects are JSON by nature; one that is not leaves no half line behind.
    if serde_json::to_writer(&mut *out, line).is_err() {
        out.truncate(start);
        return;
    }
    out.push(b'\n');
}

/// Writes down what an engine is told.
#[derive(Debug)]
pub struct Taker {
    lines: Vec<u8>,
    steps: Vec<Time>,
    digest: Digest,
}

impl Taker {
    pub fn new(header: &Header) -> Taker {
        let mut lines = Vec::new();
        Entry::Header(Box::new(header.clone())).encode(&mut lines);
        Taker { lines, steps: Vec::new(), digest: Digest::default() }
    }

    /// To be called with every input of `Engine::take`, before or after it.
    pub fn input(&mut self, now: Time, input: &Input) {
        self.end_steps();
        write(&mut self.lines, &Line::Input { t: now.nanos(), i: std::borrow::Cow::Borrowed(input) });
    }

    /// To be called with every `Engine::step`, whatever it brought.
    pub fn step(&mut self, now: Time) {
        self.steps.push(now);
        if self.steps.len() == STEPS_MAX {
            self.end_steps();
        }
    }

    /// To be called with what extenders said in a step, before [`Taker::step`] for the same step.
    pub fn said(&mut self, said: &[(usize, Said)]) {
        self.end_steps();
        write(&mut self.lines, &Line::Said { x: std::borrow::Cow::Borrowed(said) });
    }

    /// To be called with what `Engine::take_commands` gave, in order.
    pub fn commands(&mut self, commands: &[Command]) {
        commands.iter().for_each(|command| self.digest.add(command));
    }

    /// Bytes that wait to be written.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.steps.is_empty()
    }

    /// The lines so far, ended by a digest of all commands. All commands of the inputs before must have been given.
    pub fn take_lines(&mut self) -> Vec<u8> {
        self.end_steps();
        Entry::Digest(self.digest).encode(&mut self.lines);
        std::mem::take(&mut self.lines)
    }

    fn end_steps(&mut self) {
        if !self.steps.is_empty() {
            Entry::Steps(std::mem::take(&mut self.steps)).encode(&mut self.lines);
        }
    }
}
