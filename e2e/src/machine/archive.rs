//! A file system in the form that the kernel unpacks at its start: cpio, "newc".

use std::collections::BTreeSet;
use std::path::{Component, Path};

use anyhow::{Context, Result};

const DIR: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;
/// Major and minor number of the console.
const CONSOLE: (u32, u32) = (5, 1);

/// An archive that grows.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    pub(super) fn dir(&mut self, name: &str) {
        self.entry(name, DIR, (0, 0), &[]);
    }

    /// Every file may be run.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, (0, 0), content);
    }

    /// A file where it stands on this host, with the directories above it.
    pub(super) fn file_with_dirs(&mut self, path: &Path, content: &[u8]) -> Result<()> {
        let mut name = String::new();
        let parts = path.parent().into_iter().flat_map(Path::components);
        for part in parts.filter(|part| matches!(part, Component::Normal(_))) {
            name.push_str(part.as_os_str().to_str().context("a path that is no text")?);
            self.dir(&name);
            name.push('/');
        }
        name.push_str(path.file_name().and_then(|name| name.to_str()).context("a path that is no text")?);
        self.file(&name, content);
        Ok(())
    }

    pub(super) fn console(&mut self, name: &str) {
        self.entry(name, CHARACTER_DEVICE, CONSOLE, &[]);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    /// What stands there already is left alone.
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        let inode = self.names.len();
        let (size, name_size) = (content.len(), name.len() + 1);
        // magic, inode, mode, user, group, links, time, size, device of the file, device it is, name's length, sum
        let header = format!(
            "070701{inode:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{name_size:08x}{:08x}",
            0, 0, 1, 0, 0, 0, device.0, device.1, 0
        );
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_stand_once() {
        let mut archive = Archive::default();
        archive.file_with_dirs(Path::new("/lib/x/a.so"), b"12345").unwrap();
        archive.file_with_dirs(Path::new("/lib/x/b.so"), b"").unwrap();
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<&str> = text.split("070701").skip(1).map(|entry| &entry[104..]).collect();
        let names: Vec<&str> = names.iter().filter_map(|name| name.split('\0').next()).collect();
        assert_eq!(names, ["lib", "lib/x", "lib/x/a.so", "lib/x/b.so", "TRAILER!!!"]);
        assert!(text.starts_with("07070100000001000041ed"), "a directory's mode");
    }
}
