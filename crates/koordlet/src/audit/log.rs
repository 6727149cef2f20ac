//! Writing the log: one file that grows, and those it was renamed to.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Event;

const CURRENT: &str = "audit.log";
const ROTATED_PREFIX: &str = "audit-";
const SUFFIX: &str = ".log";
/// A file that has grown to this makes room for a new one.
pub(super) const FILE_BYTES_MAX: u64 = 2 << 20;
const BUFFER_BYTES: usize = 64 << 10;
/// What is in memory for so long is written with the next record; a timer does it where none comes.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// The files of one directory.
pub(super) struct Log {
    dir: PathBuf,
    /// Renamed files that may stay.
    rotated_max: usize,
    /// The second and the number of the last renamed file.
    last: Option<(String, u32)>,
    current: Option<Current>,
    /// Whether the last try to write failed, so that it is told once.
    is_broken: bool,
}

struct Current {
    file: BufWriter<File>,
    bytes: u64,
    flushed: Option<Instant>,
}

impl Log {
    pub(super) fn new(dir: &Path, disk_mib_max: u64) -> Log {
        let files = disk_mib_max / (FILE_BYTES_MAX >> 20);
        let rotated_max = usize::try_from(files.saturating_sub(1)).unwrap_or(usize::MAX);
        Log { dir: dir.to_owned(), rotated_max, last: None, current: None, is_broken: false }
    }

    pub(super) fn append(&mut self, event: &Event, now: Instant) {
        let result = self.try_append(event, now);
        self.settle(result);
    }

    pub(super) fn flush(&mut self, now: Instant) {
        let Some(current) = &mut self.current else { return };
        current.flushed = Some(now);
        let result = current.file.flush();
        self.settle(result);
    }

    fn settle(&mut self, result: std::io::Result<()>) {
        match result {
            Ok(()) => self.is_broken = false,
            Err(error) => {
                self.current = None;
                if !std::mem::replace(&mut self.is_broken, true) {
                    let dir = self.dir.display();
                    tracing::warn!(error = &error as &dyn std::error::Error, %dir, "cannot write audit records");
                }
            }
        }
    }

    fn try_append(&mut self, event: &Event, now: Instant) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        if self.current.as_ref().is_some_and(|current| current.bytes >= FILE_BYTES_MAX) {
            self.rotate()?;
        }
        let current = match &mut self.current {
            Some(current) => current,
            None => self.current.insert(open(&self.dir)?),
        };
        current.file.write_all(&line)?;
        current.bytes += u64::try_from(line.len()).unwrap_or(0);
        let is_due = current.flushed.is_none_or(|at| now.saturating_duration_since(at) >= FLUSH_EVERY);
        if is_due {
            current.flushed = Some(now);
            current.file.flush()?;
        }
        Ok(())
    }

    fn rotate(&mut self) -> std::io::Result<()> {
        if let Some(mut current) = self.current.take() {
            current.file.flush()?;
        }
        let stamp = jiff::Timestamp::now().strftime("%Y-%m-%d-%H-%M-%S").to_string();
        // Differs: numbers go on past 8, where upstream writes over a file of the same second (item 13). None is given twice
        // in a second, even if its file is gone: the order of the names is the order of the files.
        let number = match &self.last {
            Some((last, number)) if *last == stamp => number + 1,
            _ => newest_of(&self.dir, &stamp).map_or(0, |number| number + 1),
        };
        let name = format!("{ROTATED_PREFIX}{stamp}-{number}{SUFFIX}");
        fs::rename(self.dir.join(CURRENT), self.dir.join(name))?;
        self.last = Some((stamp, number));
        for old in rotated(&self.dir).into_iter().skip(self.rotated_max) {
            fs::remove_file(old)?;
        }
        Ok(())
    }

    /// All files, newest first. Those that are not there are left out.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let current = self.dir.join(CURRENT);
        current.exists().then_some(current).into_iter().chain(rotated(&self.dir)).collect()
    }
}

fn open(dir: &Path) -> std::io::Result<Current> {
    fs::create_dir_all(dir)?;
    let file = OpenOptions::new().append(true).create(true).open(dir.join(CURRENT))?;
    // Differs: what an earlier run wrote counts too, where upstream lets the file grow past its limit (item 13).
    let bytes = file.metadata()?.len();
    Ok(Current { file: BufWriter::with_capacity(BUFFER_BYTES, file), bytes, flushed: None })
}

/// The second that a file was renamed in, and its number within it.
fn key(path: &Path) -> Option<(String, u32)> {
    let name = path.file_name()?.to_str()?;
    let (stamp, number) = name.strip_prefix(ROTATED_PREFIX)?.strip_suffix(SUFFIX)?.rsplit_once('-')?;
    Some((stamp.to_owned(), number.parse::<u32>().ok()?))
}

/// The highest number of a second.
fn newest_of(dir: &Path, stamp: &str) -> Option<u32> {
    let keys = rotated(dir).into_iter().filter_map(|path| key(&path));
    keys.filter(|(known, _)| known == stamp).map(|(_, number)| number).max()
}

/// Renamed files, newest first: by their second, then by the number within it.
fn rotated(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<((String, u32), PathBuf)> =
        entries.filter_map(|path| Some((key(&path)?, path))).collect();
    files.sort_by(|(a, _), (b, _)| b.cmp(a));
    files.into_iter().map(|(_, path)| path).collect()
}
