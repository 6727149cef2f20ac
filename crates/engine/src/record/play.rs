//! A recording told to an engine again.

use serde::Serialize;

use super::recall::recalled;
use super::{Digest, Entry};
use crate::engine::{Command, Engine};
use crate::extender::Terms;
use crate::time::Time;

/// An engine that lives through a recording.
pub struct Player {
    engine: Engine,
    /// Of the extenders that the original had, in order.
    terms: Vec<Terms>,
    digest: Digest,
    now: Time,
    /// Why decisions may differ, if they may.
    cut: Option<Time>,
    verified: u64,
    difference: Option<Difference>,
}

/// The first place where the engine wanted something else than the original did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Commands of the original up to there, and ours.
    pub recorded: u64,
    pub replayed: u64,
    /// The engine's time then.
    pub at: Time,
}

/// How a recording ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Played {
    /// Commands that were compared with the original and found equal.
    pub verified: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// The beginning was cut off there, so that decisions may differ from those of the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Time>,
}

impl Played {
    /// Whether every decision that could be compared is the same. What was cut cannot be.
    pub fn is_same(&self) -> bool {
        self.difference.is_none()
    }
}

impl Player {
    /// The engine must be new, with the options of the recording. Extenders are not asked: they say what they said.
    pub fn new(mut engine: Engine, terms: Vec<Terms>) -> Player {
        engine.set_extenders(recalled(&terms, Vec::new()));
        Player {
            engine,
            terms,
            digest: Digest::default(),
            now: Time::default(),
            cut: None,
            verified: 0,
            difference: None,
        }
    }

    /// Tells the engine one entry; returns what it wants done.
    pub fn play(&mut self, entry: Entry) -> Vec<Command> {
        match entry {
            Entry::Header(_) => {}
            Entry::Input { at, input } => {
                self.now = at;
                self.engine.take(at, *input);
            }
            Entry::Steps(times) => {
                for at in times {
                    self.now = at;
                    drop(self.engine.step(at));
                }
            }
            Entry::Said(said) => self.engine.set_extenders(recalled(&self.terms, said)),
            Entry::Digest(recorded) => self.compare(recorded),
            Entry::Cut { at } => self.cut = Some(at),
        }
        let commands = self.engine.take_commands();
        commands.iter().for_each(|command| self.digest.add(command));
        commands
    }

    /// The engine's time.
    pub fn now(&self) -> Time {
        self.now
    }

    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    pub fn end(&self) -> Played {
        Played { verified: self.verified, difference: self.difference.clone(), cut: self.cut }
    }

    fn compare(&mut self, recorded: Digest) {
        if self.cut.is_some() || self.difference.is_some() {
            return;
        }
        if recorded == self.digest {
            self.verified = recorded.commands;
        } else {
            let (recorded, replayed) = (recorded.commands, self.digest.commands);
            self.difference = Some(Difference { recorded, replayed, at: self.now });
        }
    }
}
