//! Reading lines backwards through files that may be renamed meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const CHUNK: usize = 16 << 10;

/// A place in the log, from which lines are read towards older ones.
///
/// Differs: a file is known by its inode and lines may have any length, where upstream repeats or skips a file that is
/// renamed and cannot read a line longer than a chunk (item 13).
#[derive(Default)]
pub(super) struct Reader {
    place: Place,
}

#[derive(Default)]
enum Place {
    #[default]
    Start,
    In {
        file: File,
        inode: u64,
        /// Bytes before this were not read.
        offset: u64,
        /// Read, but not yet told: from `offset` to what was told last.
        rest: Vec<u8>,
    },
    /// All of this file was told. It is held so that its inode stays its own.
    After {
        _held: File,
        inode: u64,
    },
    End,
}

impl Reader {
    /// The next older line; none at the end. `files` are those there are now, newest first.
    pub(super) fn next_line(&mut self, files: &[PathBuf]) -> Option<Vec<u8>> {
        loop {
            match &mut self.place {
                Place::Start => self.open(files.first()),
                Place::After { inode, .. } => {
                    let inode = *inode;
                    let at = files.iter().position(|path| inode_of(path) == Some(inode));
                    // A file that is gone was the oldest.
                    self.open(at.and_then(|at| files.get(at + 1)));
                }
                Place::In { file, offset, rest, .. } => match last_line(file, offset, rest) {
                    Ok(Some(line)) if line.is_empty() => {}
                    Ok(Some(line)) => return Some(line),
                    Ok(None) | Err(_) => self.leave(),
                },
                Place::End => return None,
            }
        }
    }

    fn leave(&mut self) {
        self.place = match std::mem::take(&mut self.place) {
            Place::In { file, inode, .. } => Place::After { _held: file, inode },
            other => other,
        };
    }

    fn open(&mut self, path: Option<&PathBuf>) {
        let opened = path.and_then(|path| {
            let file = File::open(path).ok()?;
            let meta = file.metadata().ok()?;
            Some(Place::In { file, inode: meta.ino(), offset: meta.len(), rest: Vec::new() })
        });
        self.place = opened.unwrap_or(Place::End);
    }
}

fn inode_of(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|meta| meta.ino())
}

/// Takes the last line off what is left of a file.
fn last_line(file: &File, offset: &mut u64, rest: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut searched = rest.len();
    loop {
        if let Some(at) = rest[..searched].iter().rposition(|byte| *byte == b'\n') {
            let line = rest.split_off(at + 1);
            rest.truncate(at);
            return Ok(Some(line));
        }
        if *offset == 0 {
            let line = std::mem::take(rest);
            return Ok((!line.is_empty()).then_some(line));
        }
        let size = CHUNK.min(usize::try_from(*offset).unwrap_or(CHUNK));
        let mut chunk = vec![0; size];
        let start = *offset - u64::try_from(size).unwrap_or(0);
        file.read_exact_at(&mut chunk, start)?;
        *offset = start;
        searched = size;
        chunk.append(rest);
        *rest = chunk;
    }
}
