//! What stood in files before we first wrote to them, kept over restarts, so that it can be given back.
//!
//! A line of JSON for each file, and for each disk of a file that has many, appended as it comes and written anew when
//! most lines are of groups that are gone.
//! It lies where it dies with the groups: below `/var/run`.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use koord_linux::cgroup::{Cgroups, Dir, Version};
use koord_linux::executor::{INHERITED, Target, Update};
use koord_linux::resource::{Device, Resource, shares_of_weight, value_of_device, weight_of_shares};
use koord_linux::system::SystemFile;
use serde::{Deserialize, Serialize};

/// Lines of groups that are gone and may stay, besides as many as there are others.
const SLACK: usize = 512;

/// What was there before us.
#[derive(Default)]
pub struct Undo {
    /// None keeps it in memory only.
    path: Option<PathBuf>,
    file: Option<File>,
    lines: usize,
    entries: HashMap<Key, Before>,
}

/// A file, or one disk's line in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    target: Target,
    device: Option<Device>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Before {
    value: String,
    reason: String,
}

/// An entry as a line spells it.
#[derive(Serialize, Deserialize)]
struct Line {
    /// A resource of a group, or a file of the machine.
    file: String,
    /// None for files of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    before: String,
    reason: String,
}

impl Undo {
    /// What an earlier run left in the file, and what comes is added to it. A file that cannot be used is told; what
    /// comes is then remembered until the end of the process.
    pub fn open(path: &Path) -> Undo {
        let mut undo = Undo { path: Some(path.to_owned()), ..Undo::default() };
        if let Ok(file) = File::open(path) {
            for line in BufReader::new(file).lines().map_while(Result::ok) {
                undo.lines += 1;
                let Some(line) = serde_json::from_str::<Line>(&line).ok() else { continue };
                let before = Before { value: line.before.clone(), reason: line.reason.clone() };
                if let Some(target) = line.target() {
                    undo.entries.entry(Key::new(target, &before.value)).or_insert(before);
                }
            }
        }
        let opened = path.parent().map_or(Ok(()), fs::create_dir_all);
        match opened.and_then(|()| OpenOptions::new().append(true).create(true).open(path)) {
            Ok(file) => undo.file = Some(file),
            Err(error) => {
                let path = path.display();
                tracing::warn!(error = &error as &dyn std::error::Error, %path, "changes are not kept over a restart");
            }
        }
        undo
    }

    /// Kept in memory only.
    pub fn in_memory() -> Undo {
        Undo::default()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes note of what a file held before a write, the first time it is written.
    pub(super) fn note(&mut self, update: &Update, before: &str, reason: &str) {
        let key = Key::new(update.target.clone(), &update.value);
        if self.entries.contains_key(&key) {
            return;
        }
        let before = match (&key.target, key.device) {
            (Target::Cgroup { resource, .. }, Some(device)) => value_of_device(*resource, before, device),
            _ => before.to_owned(),
        };
        let Some(line) = Line::of(&key.target, &before, reason) else { return };
        self.entries.insert(key, Before { value: before, reason: reason.to_owned() });
        if let (Some(file), Ok(mut text)) = (&mut self.file, serde_json::to_string(&line)) {
            text.push('\n');
            self.lines += 1;
            // A full disk costs the memory of one change, which the next run cannot give back then.
            let _ = file.write_all(text.as_bytes());
        }
    }

    /// What must be written to give back the changes that are meant.
    pub(super) fn updates(&self, version: Version, is_meant: &dyn Fn(&str) -> bool) -> Vec<Update> {
        let meant = self.entries.iter().filter(|(_, before)| is_meant(&before.reason));
        let update = |(key, before): (&Key, &Before)| Update {
            target: key.target.clone(),
            value: decoded(&key.target, version, &before.value),
            cause: None,
        };
        meant.map(update).collect()
    }

    pub(super) fn forget(&mut self, is_meant: &dyn Fn(&str) -> bool) {
        self.entries.retain(|_, before| !is_meant(&before.reason));
        self.rewrite();
    }

    /// Forgets groups that are gone, and writes the file anew when most of it is about such.
    pub(super) fn retain_existing(&mut self, cgroups: &Cgroups) {
        self.entries.retain(|key, _| key.target.exists(cgroups));
        if self.lines > 2 * self.entries.len() + SLACK {
            self.rewrite();
        }
    }

    fn rewrite(&mut self) {
        let Some(path) = &self.path else { return };
        let mut text = String::new();
        for (key, before) in &self.entries {
            let line = Line::of(&key.target, &before.value, &before.reason);
            if let Some(Ok(line)) = line.map(|line| serde_json::to_string(&line)) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        let fresh = path.with_extension("new");
        let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path));
        if let Ok(file) = written.and_then(|()| OpenOptions::new().append(true).open(path)) {
            self.file = Some(file);
            self.lines = self.entries.len();
        }
    }
}

impl Key {
    /// A value of a file with a line for each disk begins with the disk.
    fn new(target: Target, value: &str) -> Key {
        let is_per_device = matches!(&target, Target::Cgroup { resource, .. } if resource.is_per_device());
        let device = value.split(' ').next().filter(|_| is_per_device).and_then(|word| word.parse().ok());
        Key { target, device }
    }
}

impl Line {
    /// None for what is given back in another way: groups of resctrl by removing them, scores with their processes.
    fn of(target: &Target, before: &str, reason: &str) -> Option<Line> {
        let (file, dir) = match target {
            Target::Cgroup { resource, dir } => (resource.name(), Some(dir.as_str().to_owned())),
            Target::System(SystemFile::OomScoreAdj { .. } | SystemFile::SchedFeatures) => return None,
            Target::System(file) => (file.name(), None),
            Target::Schemata { .. } => return None,
        };
        Some(Line { file: file.to_owned(), dir, before: before.to_owned(), reason: reason.to_owned() })
    }

    fn target(&self) -> Option<Target> {
        match &self.dir {
            Some(dir) => {
                Some(Target::Cgroup { resource: Resource::from_name(&self.file)?, dir: Dir::new(dir)? })
            }
            None => SystemFile::from_name(&self.file).map(Target::System),
        }
    }
}

/// A file's content in v1's language, which updates are written in.
fn decoded(target: &Target, version: Version, value: &str) -> String {
    let Target::Cgroup { resource, .. } = target else { return value.to_owned() };
    match (resource, version, value) {
        (Resource::CfsQuotaUs | Resource::MemoryLimit, _, "max") => "-1".to_owned(),
        (Resource::CpusetCpus, Version::V2, "") => INHERITED.to_owned(),
        (Resource::CpuShares, Version::V2, weight) => {
            shares_giving(weight).unwrap_or_else(|| value.to_owned())
        }
        _ => value.to_owned(),
    }
}

/// Shares that become exactly this weight: several do, and the plain way back may miss them by one.
fn shares_giving(weight: &str) -> Option<String> {
    let weight: i64 = weight.parse().ok()?;
    let shares = shares_of_weight(weight).ok()?;
    let exact = (shares..shares.saturating_add(64)).find(|shares| weight_of_shares(*shares) == Ok(weight));
    exact.map(|shares| shares.to_string())
}
