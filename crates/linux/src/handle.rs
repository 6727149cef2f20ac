//! A file that is read again and again: opened once, read at offset 0 into a buffer that callers share.
//!
//! A steady reading is one system call and no allocation.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, is_gone};

/// Most files are shorter than this, so that one read sees the end.
const BUFFER_BYTES: usize = 8192;
/// A file in an ordinary directory stays readable after its removal; one look in so many readings notices.
const READINGS_PER_LOOK: u32 = 32;

/// Bytes of the last reading. One buffer serves any number of handles.
#[derive(Debug)]
pub struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer(vec![0; BUFFER_BYTES])
    }
}

/// How the kernel hands a file out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// All at once: a read that does not fill the buffer has seen everything. Values, `*.stat`, pressure, meminfo.
    One,
    /// Piece by piece: only an empty read is the end. `tasks`, `cgroup.procs`, diskstats.
    Many,
}

/// One file, opened at its first reading and again when it was replaced.
#[derive(Debug)]
pub struct Handle {
    path: PathBuf,
    records: Records,
    file: Option<File>,
    readings: u32,
    opens: u32,
}

impl Handle {
    pub fn new(path: PathBuf, records: Records) -> Handle {
        Handle { path, records, file: None, readings: 0, opens: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How often the file was opened; in the steady state this stands still.
    pub fn opens(&self) -> u32 {
        self.opens
    }

    /// The content now. [`Error::Missing`] when the group, process or file has gone.
    pub fn read<'b>(&mut self, buffer: &'b mut Buffer) -> Result<&'b [u8], Error> {
        let length = self.fill(buffer).map_err(|source| Error::read(&self.path, source))?;
        Ok(&buffer.0[..length])
    }

    fn fill(&mut self, buffer: &mut Buffer) -> io::Result<usize> {
        self.readings = self.readings.wrapping_add(1);
        if self.readings.is_multiple_of(READINGS_PER_LOOK) && self.is_unlinked() {
            self.file = None;
        }
        if let Some(file) = &self.file {
            match read_at_start(file, self.records, buffer) {
                // The group was removed; another may stand in its place.
                Err(error) if is_gone(&error) => self.file = None,
                result => return result,
            }
        }
        let file = File::open(&self.path)?;
        self.opens = self.opens.wrapping_add(1);
        let result = read_at_start(&file, self.records, buffer);
        self.file = result.is_ok().then_some(file);
        result
    }

    fn is_unlinked(&self) -> bool {
        let links = self.file.as_ref().and_then(|file| file.metadata().ok()).map(|status| status.nlink());
        links == Some(0)
    }
}

fn read_at_start(file: &File, records: Records, buffer: &mut Buffer) -> io::Result<usize> {
    let mut length = 0;
    loop {
        if length == buffer.0.len() {
            buffer.0.resize(length * 2, 0);
        }
        let offset = u64::try_from(length).map_err(io::Error::other)?;
        let count = match file.read_at(&mut buffer.0[length..], offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        length += count;
        if count == 0 || (records == Records::One && length < buffer.0.len()) {
            return Ok(length);
        }
    }
}

/// Lets the process keep as many files open as the administrator permits.
pub fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_open_serves_many_readings_and_growing_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpuacct.usage");
        fs::write(&path, "100\n").unwrap();
        let mut handle = Handle::new(path.clone(), Records::One);
        let mut buffer = Buffer::default();
        for value in 0..100 {
            fs::write(&path, format!("{value}\n")).unwrap();
            assert_eq!(handle.read(&mut buffer).unwrap(), format!("{value}\n").as_bytes());
        }
        assert_eq!(handle.opens(), 1);
        let long = "x".repeat(BUFFER_BYTES * 3 + 1);
        fs::write(&path, &long).unwrap();
        assert_eq!(handle.read(&mut buffer).unwrap(), long.as_bytes());
        fs::write(&path, "5\n").unwrap();
        assert_eq!(handle.read(&mut buffer).unwrap(), b"5\n");
        assert_eq!(handle.opens(), 1);
    }

    #[test]
    fn many_records_are_read_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tasks");
        fs::write(&path, "1\n2\n").unwrap();
        let mut handle = Handle::new(path, Records::Many);
        assert_eq!(handle.read(&mut Buffer::default()).unwrap(), b"1\n2\n");
    }

    #[test]
    fn a_missing_file_is_told_apart_and_found_when_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone");
        let mut handle = Handle::new(path.clone(), Records::One);
        let mut buffer = Buffer::default();
        let error = handle.read(&mut buffer).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }) && error.is_ignorable(), "{error}");
        fs::write(&path, "7").unwrap();
        assert_eq!(handle.read(&mut buffer).unwrap(), b"7");
    }

    #[test]
    fn a_replaced_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu.stat");
        fs::write(&path, "old").unwrap();
        let mut handle = Handle::new(path.clone(), Records::One);
        let mut buffer = Buffer::default();
        handle.read(&mut buffer).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "new").unwrap();
        let seen = (0..READINGS_PER_LOOK).any(|_| handle.read(&mut buffer).unwrap() == b"new");
        assert!(seen);
        fs::remove_file(&path).unwrap();
        let missed = (0..READINGS_PER_LOOK).any(|_| handle.read(&mut buffer).is_err());
        assert!(missed);
    }
}
