//! Pages on disk: files of ten minutes to which finished pages are appended by a thread of its own.
//!
//! A record is its length, a sum over its bytes, and a page with the name of its series. A file that is damaged or
//! torn ends where the damage begins. What other programs left in the directory is not looked at.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::kind::{Key, Kind};
use super::page::Page;
use super::points::Window;

/// The time that one file covers, as upstream's blocks.
const FILE_MS: i64 = 10 * 60 * 1000;
const SUFFIX: &str = ".series";
/// Records that may wait for the disk. When it is slower, pages wait in memory.
const WAITING_MAX: usize = 256;
/// A record is a page and a name; anything longer is damage.
const RECORD_BYTES_MAX: usize = 4096;

/// The directory of a store, and the thread that writes to it.
#[derive(Debug)]
pub(super) struct Disk {
    records: Option<SyncSender<Record>>,
    writer: Option<JoinHandle<()>>,
    size: Arc<Size>,
}

#[derive(Debug, Default)]
struct Size {
    files: AtomicUsize,
    bytes: AtomicU64,
}

struct Record {
    /// The clock when it was handed over.
    now_ms: i64,
    first_ms: i64,
    bytes: Vec<u8>,
}

impl Disk {
    /// None, with a word in the log, when the directory cannot be used.
    pub(super) fn open(path: &Path, retention: Duration, bytes_max: u64, now_ms: i64) -> Option<Disk> {
        if let Err(error) = fs::create_dir_all(path) {
            tracing::warn!(path = %path.display(), %error, "series are kept in memory only");
            return None;
        }
        let size = Arc::new(Size::default());
        let (records, received) = sync_channel(WAITING_MAX);
        let retention_ms = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let mut writer =
            Writer { path: path.to_owned(), retention_ms, bytes_max, size: Arc::clone(&size), open: None };
        writer.prune(now_ms);
        let thread = std::thread::Builder::new().name("series".into()).spawn(move || writer.run(&received));
        match thread {
            Ok(thread) => Some(Disk { records: Some(records), writer: Some(thread), size }),
            Err(error) => {
                tracing::warn!(%error, "series are kept in memory only");
                None
            }
        }
    }

    /// Number of files and bytes.
    pub(super) fn size(&self) -> (usize, u64) {
        (self.size.files.load(Ordering::Relaxed), self.size.bytes.load(Ordering::Relaxed))
    }

    /// Whether the page is on its way. The thread that collects never waits for the disk.
    pub(super) fn save(&mut self, now_ms: i64, key: &Key, page: &Page) -> bool {
        let Some(bytes) = record(key, page) else { return true };
        let record = Record { now_ms, first_ms: page.first_ms, bytes };
        self.records.as_ref().is_some_and(|records| records.try_send(record).is_ok())
    }

    /// The same, waiting for the disk.
    pub(super) fn save_patiently(&mut self, now_ms: i64, key: &Key, page: &Page) -> bool {
        let Some(bytes) = record(key, page) else { return true };
        let record = Record { now_ms, first_ms: page.first_ms, bytes };
        self.records.as_ref().is_some_and(|records| records.send(record).is_ok())
    }

    /// Waits until everything is written.
    pub(super) fn close(mut self) {
        self.records = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::warn!("the writer of series ended badly");
        }
    }
}

/// The thread that writes.
struct Writer {
    path: PathBuf,
    retention_ms: i64,
    bytes_max: u64,
    size: Arc<Size>,
    open: Option<(i64, File)>,
}

impl Writer {
    fn run(&mut self, records: &Receiver<Record>) {
        let mut is_failing = false;
        for record in records {
            match self.write(&record) {
                Ok(()) => is_failing = false,
                // The next record is the retry.
                Err(error) if !is_failing => {
                    tracing::warn!(path = %self.path.display(), %error, "series cannot be saved");
                    is_failing = true;
                }
                Err(_) => {}
            }
        }
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let start_ms = record.first_ms.div_euclid(FILE_MS).saturating_mul(FILE_MS);
        if self.open.as_ref().is_none_or(|(open_ms, _)| *open_ms != start_ms) {
            self.prune(record.now_ms);
            let path = self.path.join(format!("{start_ms}{SUFFIX}"));
            let is_new = !path.exists();
            self.open = Some((start_ms, OpenOptions::new().create(true).append(true).open(path)?));
            self.size.files.fetch_add(usize::from(is_new), Ordering::Relaxed);
        }
        if let Some((_, file)) = &mut self.open {
            file.write_all(&record.bytes)?;
            let length = u64::try_from(record.bytes.len()).unwrap_or(0);
            self.size.bytes.fetch_add(length, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes files that are too old, and the oldest while all together are too large. Files of the future tell that the
    /// clock is wrong, or was: they stay, for it may be the former, and go first where there is no room.
    fn prune(&mut self, now_ms: i64) {
        let oldest_ms = now_ms.saturating_sub(self.retention_ms);
        let (old, mut files): (Vec<_>, Vec<_>) = files(&self.path)
            .into_iter()
            .partition(|(start_ms, _)| start_ms.saturating_add(FILE_MS) < oldest_ms);
        old.iter().for_each(|(_, path)| remove(path));
        let future = files.partition_point(|(start_ms, _)| *start_ms <= now_ms.saturating_add(FILE_MS));
        files.rotate_left(future);
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |status| status.len());
        let mut total: u64 = files.iter().map(|(_, path)| bytes(path)).sum();
        let mut count = files.len();
        for (_, path) in &files {
            if total <= self.bytes_max {
                break;
            }
            total = total.saturating_sub(bytes(path));
            count -= 1;
            remove(path);
        }
        self.size.files.store(count, Ordering::Relaxed);
        self.size.bytes.store(total, Ordering::Relaxed);
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "an old file of series stays");
    }
}

/// Files with the time they begin, oldest first.
fn files(path: &Path) -> Vec<(i64, PathBuf)> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let start = |path: &Path| path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.parse().ok();
    let mut files: Vec<(i64, PathBuf)> =
        entries.flatten().map(|entry| entry.path()).filter_map(|path| Some((start(&path)?, path))).collect();
    files.sort_unstable();
    files
}

/// Gives every page that may have samples in the window, oldest file first.
pub(super) fn read(path: &Path, window: Window, mut give: impl FnMut(Key, Page)) {
    for (start_ms, path) in files(path) {
        // A page lies where it begins, and may be longer than its file when samples are rare.
        if start_ms > window.end_ms || start_ms.saturating_add(7 * FILE_MS) < window.start_ms {
            continue;
        }
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "saved series cannot be read");
                continue;
            }
        };
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let Some((key, page, after)) = parse(rest) else {
                tracing::warn!(path = %path.display(), "saved series are damaged, the rest of the file is left out");
                break;
            };
            if page.last_ms >= window.start_ms && page.first_ms <= window.end_ms {
                give(key, page);
            }
            rest = after;
        }
    }
}

/// None when a name is longer than anything real.
fn record(key: &Key, page: &Page) -> Option<Vec<u8>> {
    let name_bytes =
        key.values().iter().map(|value| value.len() + 2).sum::<usize>() + key.kind().as_str().len() + 2;
    let mut body = Vec::with_capacity(8 + 32 + name_bytes + page.data().len());
    body.extend([0; 8]);
    put_text(&mut body, key.kind().as_str())?;
    for value in key.values() {
        put_text(&mut body, value)?;
    }
    body.extend(page.first_ms.to_le_bytes());
    body.extend(page.last_ms.to_le_bytes());
    body.extend(page.count().to_le_bytes());
    body.push(page.unit().code());
    body.extend(page.data());
    let length = u32::try_from(body.len() - 8).ok()?;
    if body.len() > RECORD_BYTES_MAX {
        return None;
    }
    let sum = sum(&body[8..]);
    body[..4].copy_from_slice(&length.to_le_bytes());
    body[4..8].copy_from_slice(&sum.to_le_bytes());
    Some(body)
}

fn put_text(body: &mut Vec<u8>, text: &str) -> Option<()> {
    body.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
    body.extend(text.as_bytes());
    Some(())
}

/// The first record, and what comes after it.
fn parse(bytes: &[u8]) -> Option<(Key, Page, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (want, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (body, after) = rest.split_at_checked(length)?;
    if sum(body) != u32::from_le_bytes(*want) {
        return None;
    }
    let (kind, mut body) = text(body)?;
    let kind = Kind::parse(kind)?;
    let mut values: Vec<Arc<str>> = Vec::new();
    for _ in kind.properties() {
        let (value, rest) = text(body)?;
        values.push(value.into());
        body = rest;
    }
    let (first_ms, body) = body.split_first_chunk()?;
    let (last_ms, body) = body.split_first_chunk()?;
    let (count, body) = body.split_first_chunk()?;
    let (unit, data) = body.split_first()?;
    let (first_ms, last_ms) = (i64::from_le_bytes(*first_ms), i64::from_le_bytes(*last_ms));
    let page = Page::of_parts(first_ms, last_ms, u16::from_le_bytes(*count), *unit, data)?;
    Some((Key { kind, values: values.into() }, page, after))
}

fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

/// FNV-1a: finds torn and damaged records, which is all it is for.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
