//! What can go wrong between "start a cluster" and a cluster.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the program \"go\" is not in PATH: install Go {} or newer to build {what}",
        crate::go::GO_NEEDED
    )]
    GoMissing { what: String },
    #[error("{what} needs Go {needed} or newer, found Go {found}")]
    GoTooOld { what: String, needed: String, found: String },
    #[error("cannot get the sources of {what} from the Go module proxy:\n{output}")]
    Download { what: String, output: String },
    #[error("cannot build {what}:\n{output}")]
    Build { what: String, output: String },
    #[error("{value:?} is not a version: expected three numbers such as v1.35.4 or v1.36.0-rc.0")]
    BadVersion { value: String },
    #[error("cannot find a cache folder: set KOORD_CACHE, XDG_CACHE_HOME or HOME")]
    NoCache,
    #[error("there is no Go program {name:?} in {}; found: {found}", dir.display())]
    NoPeer { name: String, dir: PathBuf, found: String },
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot make certificates")]
    Certificates(#[from] rcgen::Error),
    #[error("{component} ended with {status}; the end of {}:\n{tail}", log.display())]
    Exited { component: &'static str, status: ExitStatus, log: PathBuf, tail: String },
    #[error("{component} is not running: it was stopped and not started again")]
    Stopped { component: &'static str },
    #[error("{component} is not ready after {seconds} s; the end of {}:\n{tail}", log.display())]
    NotReady { component: &'static str, seconds: u64, log: PathBuf, tail: String },
    #[error("no free port on 127.0.0.1 after {tries} tries")]
    NoPort { tries: u32 },
    #[error("gave up waiting for {what} after {seconds} s")]
    Timeout { what: String, seconds: u64 },
    #[error("kubectl {args} failed with {status}:\n{output}")]
    Kubectl { args: String, status: ExitStatus, output: String },
    #[error("{} is not empty: give a folder that does not exist yet or has nothing in it", .0.display())]
    DirNotEmpty(PathBuf),
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        let path = path.as_ref().to_path_buf();
        move |source| Error::Io { doing, path, source }
    }

    /// This machine lacks Go or the network: a reason to skip a test, not a fault of ours.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::GoMissing { .. } | Error::GoTooOld { .. } | Error::Download { .. })
    }

    /// The error and all its causes in one text.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        text
    }
}
