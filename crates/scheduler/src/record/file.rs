//! The file of a recording: compressed chunks one after the other, never more than its limit.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use koord_engine::record::Folder;

use super::{CHUNK, RecordError};

/// A file that folds its beginning when it is full.
pub(super) struct Bounded {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
}

impl Bounded {
    pub(super) fn create(path: &Path, limit: u64) -> Result<Bounded, RecordError> {
        // Pods are in it whole, with all that people put into their environment.
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path).map_err(|source| cannot_write(path, source))?;
        Ok(Bounded { path: path.to_owned(), file, size: 0, limit })
    }

    /// Adds lines, which must be whole.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), RecordError> {
        let bytes = compressed(lines).map_err(|source| cannot_write(&self.path, source))?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.size > 0 && self.size.saturating_add(length) > self.limit {
            self.fold()?;
        }
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.file.write_all(bytes).map_err(|source| cannot_write(&self.path, source))?;
        self.size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Keeps of each object only what was said last. The old file stays until the new one is whole.
    fn fold(&mut self) -> Result<(), RecordError> {
        let mut folder = Folder::default();
        let mut lines = Lines::open(&self.path)?;
        let mut number = 0;
        let cannot_read = |line: u64, source| RecordError::Line { path: self.path.clone(), line, source };
        while let Some(line) = lines.next_line()? {
            number += 1;
            folder.note(line).map_err(|source| cannot_read(number, source))?;
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".folding");
        let mut new = Bounded::create(Path::new(&name), u64::MAX)?;
        let mut kept: Vec<u8> = Vec::new();
        let mut lines = Lines::open(&self.path)?;
        number = 0;
        while let Some(line) = lines.next_line()? {
            number += 1;
            if folder.keep(line).map_err(|source| cannot_read(number, source))? {
                kept.extend_from_slice(line);
            }
            if kept.len() >= CHUNK {
                new.append(&std::mem::take(&mut kept))?;
            }
        }
        kept.extend(folder.end());
        new.append(&kept)?;
        // With hardly any room left it would be folded again and again.
        if new.size > self.limit / 4 * 3 {
            // What cannot be removed is only a file too many.
            let _ = std::fs::remove_file(&name);
            return Err(RecordError::TooSmall { objects: new.size, limit: self.limit });
        }
        std::fs::rename(&name, &self.path).map_err(|source| cannot_write(&self.path, source))?;
        (self.file, self.size) = (new.file, new.size);
        Ok(())
    }
}

fn cannot_write(path: &Path, source: io::Error) -> RecordError {
    RecordError::Write { path: path.to_owned(), source }
}

fn compressed(lines: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(lines)?;
    encoder.finish()
}

/// The lines of a recording. One that broke off in the middle ends with its last whole line.
pub struct Lines {
    path: PathBuf,
    reader: BufReader<MultiGzDecoder<BufReader<File>>>,
    line: Vec<u8>,
    /// Of the last line given; the first is 1.
    pub number: u64,
    /// The file ends in the middle of something: whoever wrote it was stopped.
    pub is_broken_off: bool,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Lines, RecordError> {
        let file = File::open(path).map_err(|source| RecordError::Read { path: path.to_owned(), source })?;
        let reader = BufReader::new(MultiGzDecoder::new(BufReader::new(file)));
        Ok(Lines { path: path.to_owned(), reader, line: Vec::new(), number: 0, is_broken_off: false })
    }

    /// The next line with its end.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, RecordError> {
        if self.is_broken_off {
            return Ok(None);
        }
        self.line.clear();
        match self.reader.read_until(b'\n', &mut self.line) {
            Ok(0) => Ok(None),
            Ok(_) if self.line.ends_with(b"\n") => {
                self.number += 1;
                Ok(Some(&self.line))
            }
            Err(source) if source.kind() != io::ErrorKind::UnexpectedEof || self.number == 0 => {
                Err(RecordError::Read { path: self.path.clone(), source })
            }
            Ok(_) | Err(_) => {
                self.is_broken_off = true;
                Ok(None)
            }
        }
    }
}
