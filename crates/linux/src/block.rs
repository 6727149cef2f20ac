//! Disks, their partitions, volume groups and mounts, read from `/sys/class/block` and the mount table.
//!
//! Answers on which disk a device, a volume group or a mounted volume lies. No program is run.
//! Spec: koordlet-observe 5.8.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::resource::Device;
use crate::root::Root;
use crate::text;

/// What the node stores things on. Paths are those of devices: `/dev/vdb`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    pub disks: BTreeMap<String, Device>,
    /// Partition to its disk.
    pub partitions: BTreeMap<String, String>,
    /// Volume group to the one disk it lies on; groups over several disks are left out.
    pub groups: BTreeMap<String, String>,
    /// Logical volume, as `/dev/mapper` calls it, to its group.
    pub volumes: BTreeMap<String, String>,
    /// Mount point to its source.
    pub mounts: BTreeMap<String, String>,
}

impl Storage {
    pub fn read(root: &Root) -> Result<Storage, Error> {
        let dir = root.sys.join("class/block");
        let entries = fs::read_dir(&dir).map_err(|source| Error::read(&dir, source))?;
        let names: BTreeSet<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let mut storage = Storage::default();
        for name in &names {
            storage.add_disk(&dir, name);
        }
        let mut disks_of_groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for name in names.iter().filter(|name| name.starts_with("dm-")) {
            let Some((mapped, group)) = logical_volume(&dir.join(name)) else { continue };
            storage.volumes.insert(format!("/dev/mapper/{mapped}"), group.clone());
            disks_of_groups.entry(group).or_default().extend(storage.disks_below(&dir, name, 0));
        }
        for (group, disks) in disks_of_groups {
            if disks.len() == 1 {
                storage.groups.extend(disks.into_iter().map(|disk| (group.clone(), disk)));
            }
        }
        storage.mounts = mounts(root);
        Ok(storage)
    }

    fn add_disk(&mut self, dir: &Path, name: &str) {
        let device =
            text::read(&dir.join(name).join("dev")).ok().and_then(|number| number.trim().parse().ok());
        let Some(device) = device else { return };
        if name.starts_with("dm-") {
            return;
        }
        if !dir.join(name).join("partition").exists() {
            self.disks.insert(format!("/dev/{name}"), device);
            return;
        }
        // Differs: upstream finds the disk by minor − minor mod 16, which is another one for NVMe.
        if let Some(disk) = parent(&dir.join(name)) {
            self.partitions.insert(format!("/dev/{name}"), format!("/dev/{disk}"));
        }
    }

    /// The disks under a mapped device; volumes may lie on volumes.
    fn disks_below(&self, dir: &Path, name: &str, depth: usize) -> BTreeSet<String> {
        const DEPTH_MAX: usize = 8;
        let Ok(slaves) = fs::read_dir(dir.join(name).join("slaves")) else { return BTreeSet::new() };
        let mut disks = BTreeSet::new();
        for slave in slaves.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
            if slave.starts_with("dm-") && depth < DEPTH_MAX {
                disks.extend(self.disks_below(dir, &slave, depth + 1));
            } else {
                disks.extend(self.disk_path(&format!("/dev/{slave}")).map(str::to_owned));
            }
        }
        disks
    }

    fn disk_path<'a>(&'a self, device: &'a str) -> Option<&'a str> {
        if self.disks.contains_key(device) {
            Some(device)
        } else {
            self.partitions.get(device).map(String::as_str)
        }
    }

    /// The disk of a device or of one of its partitions.
    pub fn disk_of_device(&self, device: &str) -> Option<Device> {
        self.disk_path(device).and_then(|disk| self.disks.get(disk)).copied()
    }

    pub fn disk_of_group(&self, group: &str) -> Option<Device> {
        self.disk_of_device(self.groups.get(group)?)
    }

    /// The disk of what is mounted at a path: a device, a partition, or a volume of a group.
    pub fn disk_of_mount(&self, target: &str) -> Option<Device> {
        let source = self.mounts.get(target)?;
        self.disk_of_device(source).or_else(|| self.disk_of_group(self.volumes.get(source)?))
    }
}

/// The directory that a link below `/sys/class/block` leads into is the whole disk's.
fn parent(link: &Path) -> Option<String> {
    let target = fs::canonicalize(link).ok()?;
    Some(target.parent()?.file_name()?.to_str()?.to_owned())
}

/// Name of a mapped device and the group it belongs to; None when it is no logical volume.
fn logical_volume(device: &Path) -> Option<(String, String)> {
    let uuid = text::read(&device.join("dm/uuid")).ok()?;
    let name = text::read(&device.join("dm/name")).ok()?.trim().to_owned();
    let group = uuid.starts_with("LVM-").then(|| group_of(&name))??;
    Some((name, group))
}

/// The group in `group-volume`, where dashes inside either name stand twice.
fn group_of(mapped: &str) -> Option<String> {
    let mut group = String::new();
    let mut rest = mapped.chars().peekable();
    while let Some(next) = rest.next() {
        if next == '-' && rest.next_if_eq(&'-').is_none() {
            return Some(group);
        }
        group.push(next);
    }
    None
}

/// What `/dev/mapper` calls a volume of a group.
pub fn mapper_path(group: &str, volume: &str) -> String {
    format!("/dev/mapper/{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
}

/// Of the host's first process, or our own where that is hidden. The last mount on a point counts.
fn mounts(root: &Root) -> BTreeMap<String, String> {
    let tables: [PathBuf; 2] = [root.proc.join("1/mounts"), root.proc.join("mounts")];
    let table = tables.iter().find_map(|path| text::read(path).ok()).unwrap_or_default();
    let pair = |line: &str| {
        let mut words = line.split(' ');
        let (source, target) = (words.next()?, words.next()?);
        Some((unescaped(target), unescaped(source)))
    };
    table.lines().filter_map(pair).collect()
}

/// Blanks, tabs, newlines and backslashes stand in octal.
fn unescaped(word: &str) -> String {
    word.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests;
