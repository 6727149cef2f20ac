//! The user's cache folder, shared by every checkout and every test process of this user.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// `KOORD_CACHE`, or `koord` in the user's cache folder.
pub fn cache_dir() -> Result<PathBuf, Error> {
    let var = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = var("KOORD_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("koord")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache/koord")))
        .ok_or(Error::NoCache)?;
    std::path::absolute(&dir).map_err(Error::io("resolve", &dir))
}

/// Held while something is built into a folder, by one process on this machine at a time.
pub(crate) struct BuildLock {
    /// Closing the file, even by dying, releases the lock.
    _file: File,
}

impl BuildLock {
    pub(crate) fn take(dir: &Path, what: &str) -> Result<BuildLock, Error> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let path = dir.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                say(&format!("waiting for another process that builds {what}"));
                file.lock().map_err(Error::io("lock", &path))?;
            }
            Err(TryLockError::Error(source)) => return Err(Error::io("lock", &path)(source)),
        }
        Ok(BuildLock { _file: file })
    }
}

/// Progress for a person who waits. Written past the test harness, which would hold it back.
pub(crate) fn say(text: &str) {
    // Nobody to read it is no reason to stop.
    let _ = writeln!(io::stderr().lock(), "koord-testkit: {text}");
}
