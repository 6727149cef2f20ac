//! A recording played again: the same engine, told the same at the same times.

use std::path::{Path, PathBuf};

use koord_api::gate::{Component, Gates};
use koord_engine::Engine;
use koord_engine::engine::Command;
use koord_engine::extender::Terms;
use koord_engine::profile::{Profile, ProfileError};
use koord_engine::record::{Entry, Header, Played, Player};
use koord_engine::time::Time;
use serde::Serialize;

use super::{Lines, RecordError};
use crate::config::{self, LoadError, Overrides};

/// What the engine decided about a pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    pub at: Time,
    pub pod: String,
    #[serde(flatten)]
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Verdict {
    Placed { node: String },
    Waits { message: String },
    Preempts { node: String, victims: Vec<String> },
}

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    File(#[from] RecordError),
    #[error("{0} does not begin as a recording does")]
    Header(PathBuf),
    #[error("the recorded configuration")]
    Configuration(#[source] Box<LoadError>),
    #[error("the recorded profiles")]
    Profiles(#[source] ProfileError),
}

/// Plays a file from its beginning and tells every decision.
pub fn replay(path: &Path, mut told: impl FnMut(Decision)) -> Result<Played, ReplayError> {
    let mut lines = Lines::open(path)?;
    let header = match lines.next_line()?.map(Entry::decode) {
        Some(Ok(Entry::Header(header))) => header,
        Some(Err(source @ koord_engine::record::RecordError::Version(_))) => {
            return Err(RecordError::Line { path: path.to_owned(), line: 1, source }.into());
        }
        _ => return Err(ReplayError::Header(path.to_owned())),
    };
    let (profiles, terms) = setup(&header)?;
    let options = header.options(profiles);
    let mut player = Player::new(Engine::new(&options).map_err(ReplayError::Profiles)?, terms);
    while let Some(line) = lines.next_line()? {
        let entry = Entry::decode(line);
        let entry = entry.map_err(|source| RecordError::Line {
            path: path.to_owned(),
            line: lines.number,
            source,
        })?;
        let commands = player.play(entry);
        let at = player.now();
        commands.iter().filter_map(|command| decision(at, command)).for_each(&mut told);
    }
    Ok(player.end())
}

/// The profiles, and what extenders want to be asked.
fn setup(header: &Header) -> Result<(Vec<Profile>, Vec<Terms>), ReplayError> {
    if header.configuration.is_empty() {
        return Ok((vec![Profile::standard(&header.scheduler)], Vec::new()));
    }
    let name = Path::new("recorded configuration");
    let gates = Gates::defaults(Component::Scheduler);
    let read = config::parse(name, &header.configuration, &Overrides::default(), &gates);
    let config = read.map_err(|error| ReplayError::Configuration(Box::new(error)))?;
    let terms = config.extenders.iter().map(crate::extender::terms).collect();
    Ok((config.profiles, terms))
}

fn decision(at: Time, command: &Command) -> Option<Decision> {
    let (pod, verdict) = match command {
        Command::Bind(binding) => (&binding.pod, Verdict::Placed { node: binding.node.to_string() }),
        Command::Tell(note) if note.reason == "FailedScheduling" => {
            (&note.about, Verdict::Waits { message: note.note.clone() })
        }
        Command::Preempt(order) => {
            let victims = order.victims.iter().map(|victim| victim.key.to_string()).collect();
            (&order.preemptor, Verdict::Preempts { node: order.node.to_string(), victims })
        }
        _ => return None,
    };
    Some(Decision { at, pod: pod.key.to_string(), verdict })
}
