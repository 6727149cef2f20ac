//! What can go wrong with a file of the kernel.

use std::io;
use std::path::{Path, PathBuf};

/// A file that could not be read or written, or holds what nobody expects.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The group has gone, or this kernel has no such file. Normal for pods that end.
    #[error("cgroup path or file not exist: {path}")]
    Missing { path: PathBuf },
    /// This kernel does not know the resource.
    #[error("resource is unsupported: {name}")]
    Unsupported { name: &'static str },
    /// This cgroup version does not know the resource.
    #[error("{name} not found in cgroup registry")]
    NotRegistered { name: &'static str },
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {value:?} to {path}")]
    Write { path: PathBuf, value: String, source: io::Error },
    /// The value to be written is none the kernel would take. Upstream's text.
    #[error("write cgroup {name} failed, value[{value}] not valid, msg: {source}")]
    Invalid { name: &'static str, value: String, source: Malformed },
    #[error("{path} is not understood")]
    Content { path: PathBuf, source: Malformed },
}

/// Why a text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl Error {
    /// Whether callers pass over it: the group ended, or the kernel lacks the feature.
    pub fn is_ignorable(&self) -> bool {
        matches!(self, Error::Missing { .. } | Error::Unsupported { .. })
    }

    /// A failed read; gone files and groups are told apart.
    pub(crate) fn read(path: &Path, source: io::Error) -> Error {
        if is_gone(&source) {
            Error::Missing { path: path.to_owned() }
        } else {
            Error::Read { path: path.to_owned(), source }
        }
    }

    pub(crate) fn write(path: &Path, value: &str, source: io::Error) -> Error {
        if is_gone(&source) {
            Error::Missing { path: path.to_owned() }
        } else {
            Error::Write { path: path.to_owned(), value: value.to_owned(), source }
        }
    }

    pub(crate) fn content(path: &Path, source: Malformed) -> Error {
        Error::Content { path: path.to_owned(), source }
    }
}

/// An open file of a removed cgroup answers ENODEV, one of an ended process ESRCH.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.kind() == io::ErrorKind::NotADirectory
        || error.raw_os_error().is_some_and(|code| {
            code == rustix::io::Errno::NODEV.raw_os_error() || code == rustix::io::Errno::SRCH.raw_os_error()
        })
}
