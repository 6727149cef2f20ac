//! Cache and memory bandwidth groups: schemata, tasks, counters. Intel, AMD, or a directory that looks like it.
//!
//! Which values a class gets is decided elsewhere. Spec: koordlet-enforce 3.5, 13; koordlet-observe 5.13.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::error::{Error, Malformed};
use crate::root::Root;
use crate::text;

pub use schemata::{Line, Schema, Schemata};

mod schemata;

/// The mounted file system.
#[derive(Clone, Debug)]
pub struct Resctrl {
    dir: PathBuf,
}

/// Since when the file system is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounted {
    Before,
    /// It is the caller's to take away.
    Now,
}

/// What one group uses of one cache. Parts that the hardware could not tell are None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cache: u32,
    pub llc_bytes: Option<u64>,
    /// Ever growing.
    pub local_bytes: Option<u64>,
    /// Ever growing.
    pub total_bytes: Option<u64>,
}

impl Resctrl {
    pub fn new(root: &Root) -> Resctrl {
        Resctrl { dir: root.resctrl() }
    }

    /// Whether groups can be made and set now.
    pub fn is_usable(&self) -> bool {
        self.dir.join("info/L3/cbm_mask").exists()
            || self.schemata("").is_ok_and(|schemata| schemata.is_open())
    }

    /// Mounts the file system where it is missing.
    pub fn ensure_mounted(&self) -> Result<Mounted, Error> {
        if self.is_usable() {
            return Ok(Mounted::Before);
        }
        let failed = |source: io::Error| Error::write(&self.dir, "resctrl", source);
        mount("resctrl", &self.dir, "resctrl", MountFlags::RELATIME, None::<&CStr>)
            .map_err(|errno| failed(errno.into()))?;
        if self.is_usable() {
            return Ok(Mounted::Now);
        }
        // Of no use to anybody. Where it stays, the next try says that it is there already.
        let _ = self.unmount();
        Err(Error::Unsupported { name: "resctrl" })
    }

    /// Takes the mount away; every thread is of the one class again that the machine began with. An error while somebody
    /// has a file of it open.
    pub fn unmount(&self) -> Result<(), Error> {
        unmount(&self.dir, UnmountFlags::NOFOLLOW)
            .map_err(|errno| Error::write(&self.dir, "no mount", errno.into()))
    }

    /// Of a group, or of the whole node for "".
    pub fn schemata(&self, group: &str) -> Result<Schemata, Error> {
        let path = self.schemata_path(group);
        let content = text::read(&path)?;
        Schemata::parse(&content).map_err(|source| Error::content(&path, source))
    }

    pub fn schemata_path(&self, group: &str) -> PathBuf {
        self.group(group).join("schemata")
    }

    /// Ways of the cache that groups may share, as hexadecimal text.
    pub fn l3_mask(&self) -> Result<String, Error> {
        Ok(text::read(&self.dir.join("info/L3/cbm_mask"))?.trim().to_owned())
    }

    /// Whether a group is there.
    pub fn has(&self, group: &str) -> bool {
        self.group(group).is_dir()
    }

    /// Makes a group; an existing one is kept.
    pub fn create(&self, group: &str) -> Result<(), Error> {
        let path = self.group(group);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result.map_err(|source| Error::write(&path, "", source)),
        }
    }

    /// Takes a group away; one that has gone is no error.
    pub fn remove(&self, group: &str) -> Result<(), Error> {
        let path = self.group(group);
        match fs::remove_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(|source| Error::write(&path, "", source)),
        }
    }

    /// Names of the groups, in order.
    pub fn groups(&self) -> Result<Vec<String>, Error> {
        names_with(&self.dir, "schemata")
    }

    /// Names of the groups that only count, and belong to no other group, in order. None where the hardware has no counters.
    pub fn counting_groups(&self) -> Result<Vec<String>, Error> {
        match names_with(&self.dir.join("mon_groups"), "tasks") {
            Err(Error::Missing { .. }) => Ok(Vec::new()),
            names => names,
        }
    }

    /// Threads of a group.
    pub fn tasks(&self, group: &str) -> Result<Vec<u32>, Error> {
        let path = self.group(group).join("tasks");
        let content = text::read(&path)?;
        text::ids(content.as_bytes()).map_err(|source| Error::content(&path, source))
    }

    /// Moves threads into a group, one write each, for the kernel takes one at a time. A thread that has ended is
    /// passed over. Gives how many moved.
    pub fn add_tasks(&self, group: &str, ids: &[u32]) -> Result<usize, Error> {
        let path = self.group(group).join("tasks");
        let file = fs::OpenOptions::new().read(true).append(true).open(&path);
        let mut file = file.map_err(|source| Error::read(&path, source))?;
        let mut moved = 0;
        for id in ids {
            moved += usize::from(file.write_all(format!("{id}\n").as_bytes()).is_ok());
        }
        Ok(moved)
    }

    /// Counters of a group, in order of cache.
    pub fn usage(&self, group: &str) -> Result<Vec<Usage>, Error> {
        let dir = self.group(group).join("mon_data");
        let entries = fs::read_dir(&dir).map_err(|source| Error::read(&dir, source))?;
        let caches: BTreeMap<u32, PathBuf> = entries
            .flatten()
            .filter_map(|entry| Some((cache_id(entry.file_name().to_str()?)?, entry.path())))
            .collect();
        Ok(caches.into_iter().map(|(cache, dir)| usage_of(cache, &dir)).collect())
    }

    fn group(&self, group: &str) -> PathBuf {
        if group.is_empty() { self.dir.clone() } else { self.dir.join(group) }
    }
}

/// Names of the directories that have a certain file, in order.
fn names_with(dir: &Path, file: &str) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(dir).map_err(|source| Error::read(dir, source))?;
    let has_file = |entry: &fs::DirEntry| entry.path().join(file).exists();
    let names = entries.flatten().filter(has_file).filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    Ok(names)
}

/// `mon_L3_01`
fn cache_id(name: &str) -> Option<u32> {
    name.strip_prefix("mon_L3_")?.parse().ok()
}

fn usage_of(cache: u32, dir: &Path) -> Usage {
    // The kernel prints `Unavailable` and `Error` where the hardware does not tell.
    let read = |file: &str| text::read(&dir.join(file)).ok()?.trim().parse().ok();
    Usage {
        cache,
        llc_bytes: read("llc_occupancy"),
        local_bytes: read("mbm_local_bytes"),
        total_bytes: read("mbm_total_bytes"),
    }
}

impl Schemata {
    /// Whether every cache and every controller lets something through.
    fn is_open(&self) -> bool {
        let lines = [self.line(Schema::L3), self.line(Schema::Mb)];
        lines.iter().all(|line| line.is_some_and(|line| line.values.values().all(|value| *value > 0)))
    }
}

/// The line would not fit the cache count of the group. Upstream's text.
pub(crate) fn count_fault(schema: Schema, found: usize, wanted: usize) -> Malformed {
    Malformed(format!(
        "read resctrl schemata failed, {} masks has invalid count {found}, l3Num {wanted}",
        schema.as_str()
    ))
}

#[cfg(test)]
mod tests;
