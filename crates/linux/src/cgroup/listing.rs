//! Sub-directories of a group, listed again only when one came or went.
//!
//! Looking costs one `stat`; listing needs an open directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{Cgroups, Dir};

/// What changes when a directory gets or loses a sub-directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    inode: u64,
    links: u64,
    changed: (i64, i64),
}

/// The names of a group's sub-directories, in order.
#[derive(Debug)]
pub struct Listing {
    dir: Dir,
    path: PathBuf,
    mark: Option<Mark>,
    names: Vec<String>,
}

impl Listing {
    pub fn new(cgroups: &Cgroups, dir: Dir) -> Listing {
        Listing { path: cgroups.listing(&dir), dir, mark: None, names: Vec::new() }
    }

    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the names are others than before. A group that has gone has none.
    pub fn refresh(&mut self, cgroups: &Cgroups) -> io::Result<bool> {
        let mark = match fs::metadata(&self.path) {
            Ok(status) => Some(Mark {
                inode: status.ino(),
                links: status.nlink(),
                changed: (status.mtime(), status.mtime_nsec()),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if mark == self.mark {
            return Ok(false);
        }
        let names = if mark.is_some() { cgroups.children(&self.dir)? } else { Vec::new() };
        // Taken before listing: what comes in between is seen next time.
        self.mark = mark;
        let is_changed = names != self.names;
        self.names = names;
        Ok(is_changed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Driver, Version};
    use super::*;
    use crate::root::Root;

    #[test]
    fn changes_are_seen() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::host(tree.path());
        let cgroups = Cgroups::new(&root, Version::V2, Driver::Cgroupfs);
        let mut listing = Listing::new(&cgroups, Dir::new("kubepods").unwrap());
        assert!(!listing.refresh(&cgroups).unwrap());
        let path = root.cgroup.join("kubepods");
        fs::create_dir_all(path.join("b")).unwrap();
        fs::write(path.join("cpu.stat"), "").unwrap();
        assert!(listing.refresh(&cgroups).unwrap());
        assert_eq!(listing.names(), ["b"]);
        assert!(!listing.refresh(&cgroups).unwrap());
        fs::create_dir(path.join("a")).unwrap();
        assert!(listing.refresh(&cgroups).unwrap());
        assert_eq!(listing.names(), ["a", "b"]);
        fs::remove_dir_all(&path).unwrap();
        assert!(listing.refresh(&cgroups).unwrap());
        assert_eq!(listing.names(), [""; 0]);
    }
}
