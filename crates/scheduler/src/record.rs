//! Recording a live scheduler to a file, and playing such a file again.
//!
//! The engine's thread hands lines over and never waits for the disk; a thread of our own compresses and writes. The
//! file stays within its limit: when it is full, what happened long ago is folded into the objects that were there last.

mod brain;
mod extenders;
mod file;
mod replay;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use koord_api::quantity::Quantity;
use koord_engine::engine::{Command, Input};
use koord_engine::extender::Said;
use koord_engine::record::{Header, Taker};
use koord_engine::time::Time;

pub use brain::Recorded;
pub use extenders::Heard;
pub use file::Lines;
pub use koord_engine::record::Played;
pub use replay::{Decision, ReplayError, Verdict, replay};

/// Bytes of lines that are compressed together.
const CHUNK: usize = 256 << 10;
/// Chunks on their way to the disk.
const CHUNKS_MAX: usize = 32;
/// Bytes that may wait while the file is folded; a disk that is slower than this ends the recording.
const BACKLOG_MAX: usize = 128 << 20;
/// Below this a file could not even hold a small cluster.
pub const LIMIT_MIN: u64 = 1 << 20;

/// Why a recording ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot write the recording {path}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot read the recording {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}, line {line}")]
    Line { path: PathBuf, line: u64, source: koord_engine::record::RecordError },
    #[error(
        "the objects of the cluster alone take {objects} bytes of the recording's {limit}; a larger limit is needed"
    )]
    TooSmall { objects: u64, limit: u64 },
    #[error("the disk does not keep up with the recording")]
    Backlog,
    #[error("{text:?} is no size; expected an amount such as 64Mi, {LIMIT_MIN} bytes at least")]
    Size { text: String },
}

/// The size that a text asks for.
pub fn parse_size(text: &str) -> Result<u64, RecordError> {
    let size = text.parse::<Quantity>().ok().and_then(|size| u64::try_from(size.value()).ok());
    size.filter(|size| *size >= LIMIT_MIN).ok_or_else(|| RecordError::Size { text: text.to_owned() })
}

/// Writes down everything that an engine is told. Does nothing once it has ended.
#[derive(Debug)]
pub struct Recorder {
    taker: Taker,
    writer: Option<Writer>,
    /// Chunks that the writer had no room for.
    backlog: VecDeque<Vec<u8>>,
    problem: Option<RecordError>,
}

#[derive(Debug)]
struct Writer {
    chunks: SyncSender<Vec<u8>>,
    thread: JoinHandle<Result<(), RecordError>>,
}

impl Recorder {
    /// Begins a file of at most `limit` bytes, in place of one that is there.
    pub fn start(path: &Path, limit: u64, header: &Header) -> Result<Recorder, RecordError> {
        let mut file = file::Bounded::create(path, limit)?;
        let (chunks, inbox) = sync_channel::<Vec<u8>>(CHUNKS_MAX);
        let write = move || inbox.iter().try_for_each(|chunk| file.append(&chunk));
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(write)
            .map_err(|source| RecordError::Write { path: path.to_owned(), source })?;
        let writer = Some(Writer { chunks, thread });
        Ok(Recorder { taker: Taker::new(header), writer, backlog: VecDeque::new(), problem: None })
    }

    /// To be called with every input, before the engine takes it.
    pub fn input(&mut self, now: Time, input: &Input) {
        if self.writer.is_some() {
            self.taker.input(now, input);
        }
    }

    /// To be called with what extenders said in a step, before the step itself.
    pub fn said(&mut self, said: &[(usize, Said)]) {
        if self.writer.is_some() && !said.is_empty() {
            self.taker.said(said);
        }
    }

    /// To be called with every step, whatever it brought.
    pub fn step(&mut self, now: Time) {
        if self.writer.is_some() {
            self.taker.step(now);
        }
    }

    /// To be called with what the engine wants done, each time it is taken.
    pub fn commands(&mut self, commands: &[Command]) {
        if self.writer.is_some() {
            self.taker.commands(commands);
            if self.taker.len() >= CHUNK {
                self.flush();
            }
        }
    }

    /// Hands over what there is. All commands must have been taken.
    pub fn flush(&mut self) {
        if self.writer.is_none() || self.taker.is_empty() {
            return;
        }
        self.backlog.push_back(self.taker.take_lines());
        while let (Some(writer), Some(chunk)) = (&self.writer, self.backlog.pop_front()) {
            match writer.chunks.try_send(chunk) {
                Ok(()) => {}
                Err(TrySendError::Full(chunk)) => {
                    self.backlog.push_front(chunk);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => self.problem = self.stop().err(),
            }
        }
        if self.backlog.iter().map(Vec::len).sum::<usize>() > BACKLOG_MAX {
            // The thread ends by itself when it has written what it has.
            self.writer = None;
            self.backlog.clear();
            self.problem = Some(RecordError::Backlog);
        }
    }

    /// Why it ended before its time, told once.
    pub fn take_problem(&mut self) -> Option<RecordError> {
        self.problem.take()
    }

    /// Writes what is left and waits for the disk.
    pub fn finish(mut self) -> Result<(), RecordError> {
        self.flush();
        if let Some(writer) = &self.writer {
            for chunk in self.backlog.drain(..) {
                // The thread's own error says why it is gone.
                let _ = writer.chunks.send(chunk);
            }
        }
        self.stop()?;
        self.problem.map_or(Ok(()), Err)
    }

    fn stop(&mut self) -> Result<(), RecordError> {
        self.backlog.clear();
        let Some(Writer { chunks, thread }) = self.writer.take() else { return Ok(()) };
        drop(chunks);
        thread.join().unwrap_or(Ok(()))
    }
}
