//! What stood in files before we first wrote to them, kept over restarts, so that it can be given back.
//!
//! A line of JSON for each file, and for each part of a file that has many, appended before the file is written, so that
//! a kill at any moment loses nothing. The last line about a file counts. The file is written anew when most lines are of
//! groups that are gone. It lies where it dies with the groups: below `/var/run`.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use koord_linux::cgroup::{Cgroups, Dir, Version};
use koord_linux::executor::{self, INHERITED, Target, Update};
use koord_linux::process::Process;
use koord_linux::resource::{Device, Resource, shares_of_weight, value_of_device, weight_of_shares};
use koord_linux::system::{SystemFile, sched_feature_word, sched_features};
use serde::{Deserialize, Serialize};

use crate::audit::Subject;
use crate::records::{GIVE_BACK, Records};

/// How important a record of something given back is.
const LEVEL: u32 = 3;

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
    /// What the batch that is carried out now was the first to change.
    fresh: HashSet<Key>,
}

/// A change that can be given back.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The reason that the audit log has.
    pub reason: &'a str,
    pub target: &'a Target,
    /// The scheduler feature, where the change is about one.
    pub feature: Option<&'a str>,
}

/// A file, or one part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    target: Target,
    part: Option<Part>,
}

/// What a file has many of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Disk(Device),
    Feature(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Before {
    value: String,
    reason: String,
    /// Whom it was changed for. None for what an earlier run noted: names are not kept.
    subject: Option<executor::Subject>,
    /// Whether a write followed. What an earlier run noted counts as written, for nobody knows.
    is_written: bool,
}

/// An entry as a line spells it.
#[derive(Serialize, Deserialize)]
struct Line {
    /// A resource of a group, or a file of the machine.
    file: String,
    /// None for files of the machine and of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    /// Id and start of the process, for a file of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<(u32, u64)>,
    before: String,
    reason: String,
}

impl Undo {
    /// What an earlier run left in the file, and what comes is added to it. A file that cannot be used is told; what
    /// comes is then remembered until the end of the process.
    pub fn open(path: &Path) -> Undo {
        let mut undo = Undo { path: Some(path.to_owned()), ..Undo::default() };
        let content = fs::read(path).unwrap_or_default();
        for line in content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            undo.lines += 1;
            undo.take(line);
        }
        let opened = path.parent().map_or(Ok(()), fs::create_dir_all);
        let opened = opened.and_then(|()| OpenOptions::new().append(true).create(true).open(path));
        // A line that was cut short must not swallow the next one.
        let is_torn = content.last().is_some_and(|byte| *byte != b'\n');
        let opened =
            opened.and_then(|mut file| if is_torn { file.write_all(b"\n").map(|()| file) } else { Ok(file) });
        match opened {
            Ok(file) => undo.file = Some(file),
            Err(error) => {
                let path = path.display();
                tracing::warn!(error = &error as &dyn std::error::Error, %path, "changes are not kept over a restart");
            }
        }
        undo
    }

    /// Takes a line of an earlier run in, if it can be understood.
    fn take(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Line>(line) else { return };
        if let Some(target) = line.target() {
            let before = Before { value: line.before, reason: line.reason, subject: None, is_written: true };
            self.entries.insert(Key::new(target, &before.value), before);
        }
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

    /// Takes note of what a file holds that is about to be written, unless we wrote to it before.
    pub(super) fn note(&mut self, update: &Update, before: &str, cause: &executor::Cause) {
        let key = Key::new(update.target.clone(), &update.value);
        let known = self.entries.get(&key);
        if known.is_some_and(|known| known.is_written) {
            return;
        }
        let Some(value) = key.part_of(before) else { return };
        if known.is_some_and(|known| known.value == value) {
            return;
        }
        let Some(line) = Line::of(&key.target, &value, cause.reason) else { return };
        let subject = Some(cause.subject.clone());
        self.entries
            .insert(key, Before { value, reason: cause.reason.to_owned(), subject, is_written: false });
        self.append(&line);
    }

    /// Takes note of a process that was born with what we gave its parent, unless it is known: it goes back to what the
    /// parent had before us.
    pub(super) fn inherit(&mut self, child: Process, parent: Process) {
        let key = |process| Key { target: Target::System(SystemFile::OomScoreAdj(process)), part: None };
        let (child, parent) = (key(child), self.entries.get(&key(parent)));
        let Some(before) = parent.filter(|parent| parent.is_written).cloned() else { return };
        if self.entries.contains_key(&child) {
            return;
        }
        if let Some(line) = Line::of(&child.target, &before.value, &before.reason) {
            self.append(&line);
        }
        self.entries.insert(child, before);
    }

    /// Another batch begins.
    pub(super) fn begin(&mut self) {
        self.fresh.clear();
    }

    /// Whether the CPU set of a group was changed by us, before this batch: what it changes first had no effect on others
    /// yet.
    pub(super) fn has_set(&self, group: &Dir) -> bool {
        let key = Key::of_set(group);
        self.entries.get(&key).is_some_and(|before| before.is_written) && !self.fresh.contains(&key)
    }

    /// Whether the CPU set of a group is among the changes that are meant.
    pub(super) fn is_set_meant(&self, group: &Dir, is_meant: &dyn Fn(&Change<'_>) -> bool) -> bool {
        let key = Key::of_set(group);
        let change = self.entries.get(&key).filter(|before| before.is_written);
        change.is_some_and(|before| is_meant(&key.change(&before.reason)))
    }

    /// Takes note of a group that has a copy of the CPU set that we gave its parent, unless we changed it ourselves.
    pub(super) fn inherit_set(&mut self, group: &Dir, parent: &Dir) {
        let key = Key::of_set(group);
        let changed = self.entries.get(&Key::of_set(parent)).filter(|parent| parent.is_written);
        let Some(reason) = changed.map(|parent| parent.reason.clone()).filter(|_| !self.has_set(group))
        else {
            return;
        };
        if let Some(line) = Line::of(&key.target, INHERITED, &reason) {
            self.append(&line);
        }
        let before = Before { value: INHERITED.to_owned(), reason, subject: None, is_written: true };
        self.entries.insert(key, before);
    }

    fn append(&mut self, line: &Line) {
        if let (Some(file), Ok(mut text)) = (&mut self.file, serde_json::to_string(line)) {
            text.push('\n');
            self.lines += 1;
            // A full disk costs the memory of one change, which the next run cannot give back then.
            let _ = file.write_all(text.as_bytes());
        }
    }

    /// The write that a note was taken for was done.
    pub(super) fn written(&mut self, update: &Update) {
        let key = Key::new(update.target.clone(), &update.value);
        if let Some(before) = self.entries.get_mut(&key).filter(|before| !before.is_written) {
            before.is_written = true;
            self.fresh.insert(key);
        }
    }

    /// What must be written to give back the changes that are meant.
    pub(super) fn updates(
        &self,
        version: Version,
        is_meant: &dyn Fn(&Change<'_>) -> bool,
    ) -> (Vec<Key>, Vec<Update>) {
        let is_change =
            |(key, before): &(&Key, &Before)| before.is_written && is_meant(&key.change(&before.reason));
        let update = |(key, before): (&Key, &Before)| {
            let value = decoded(&key.target, version, &before.value);
            (key.clone(), Update { target: key.target.clone(), value, cause: None })
        };
        self.entries.iter().filter(is_change).map(update).unzip()
    }

    /// Says that a change was given back.
    pub(super) fn record(&self, key: &Key, records: &Records) {
        let Some(before) = self.entries.get(key) else { return };
        let (file, group) = match &key.target {
            Target::Cgroup { resource, dir } => (resource.name().to_owned(), Some(dir.as_str())),
            Target::System(SystemFile::OomScoreAdj(process)) => {
                (format!("oom_score_adj of process {}", process.pid), None)
            }
            Target::System(file) => (file.name().to_owned(), None),
            Target::Schemata { group, .. } => ("schemata".to_owned(), Some(group.as_str())),
        };
        let subject = match (&before.subject, group) {
            (Some(subject), _) => Subject::from(subject),
            (None, Some(group)) => Subject::Group(group),
            (None, None) => Subject::Node,
        };
        let value = match before.value.trim() {
            "" => "nothing of its own".to_owned(),
            value => value.replace('\n', " "),
        };
        let message = format!("give {file} back {value}; it had been changed for {}", before.reason);
        records.record(LEVEL, subject, GIVE_BACK, message);
    }

    pub(super) fn forget(&mut self, keys: impl Iterator<Item = Key>) {
        keys.for_each(|key| drop(self.entries.remove(&key)));
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
    /// A value of a file with a line for each disk begins with the disk; one of features is the feature.
    fn new(target: Target, value: &str) -> Key {
        let part = match &target {
            Target::Cgroup { resource, .. } if resource.is_per_device() => {
                value.split(' ').next().and_then(|word| word.parse().ok()).map(Part::Disk)
            }
            Target::System(SystemFile::SchedFeatures) => {
                let word = value.trim();
                Some(Part::Feature(word.strip_prefix("NO_").unwrap_or(word).to_owned()))
            }
            _ => None,
        };
        Key { target, part }
    }

    fn of_set(group: &Dir) -> Key {
        Key { target: Target::Cgroup { resource: Resource::CpusetCpus, dir: group.clone() }, part: None }
    }

    /// What a file's content says about this. None for a feature that it does not list.
    fn part_of(&self, content: &str) -> Option<String> {
        match (&self.target, &self.part) {
            (Target::Cgroup { resource, .. }, Some(Part::Disk(device))) => {
                Some(value_of_device(*resource, content, *device))
            }
            (_, Some(Part::Feature(name))) => {
                let is_on = *sched_features(content).ok()?.get(name.as_str())?;
                Some(sched_feature_word(name, is_on))
            }
            _ => Some(content.to_owned()),
        }
    }

    fn change<'a>(&'a self, reason: &'a str) -> Change<'a> {
        let feature = match &self.part {
            Some(Part::Feature(name)) => Some(name.as_str()),
            _ => None,
        };
        Change { reason, target: &self.target, feature }
    }
}

impl Line {
    /// None for groups of resctrl, which are given back by removing them.
    fn of(target: &Target, before: &str, reason: &str) -> Option<Line> {
        let (mut dir, mut process) = (None, None);
        let file = match target {
            Target::Cgroup { resource, dir: group } => {
                dir = Some(group.as_str().to_owned());
                resource.name()
            }
            Target::System(file) => {
                if let SystemFile::OomScoreAdj(Process { pid, start_ticks }) = file {
                    process = Some((*pid, *start_ticks));
                }
                file.name()
            }
            Target::Schemata { .. } => return None,
        };
        Some(Line {
            file: file.to_owned(),
            dir,
            process,
            before: before.to_owned(),
            reason: reason.to_owned(),
        })
    }

    fn target(&self) -> Option<Target> {
        match (&self.dir, self.process) {
            (Some(dir), _) => {
                Some(Target::Cgroup { resource: Resource::from_name(&self.file)?, dir: Dir::new(dir)? })
            }
            (None, Some((pid, start_ticks))) => {
                Some(Target::System(SystemFile::OomScoreAdj(Process { pid, start_ticks })))
            }
            (None, None) => SystemFile::from_name(&self.file).map(Target::System),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(dir: &str) -> Update {
        Update::cgroup(Resource::CpuShares, &Dir::new(dir).unwrap(), "2")
    }

    fn cause() -> executor::Cause {
        executor::Cause { reason: "r", subject: executor::Subject::Node, words: None }
    }

    fn dirs(undo: &Undo) -> Vec<String> {
        let of = |update: &Update| match &update.target {
            Target::Cgroup { dir, .. } => format!("{dir}={}", update.value),
            other => format!("{other:?}"),
        };
        let mut dirs: Vec<String> = undo.updates(Version::V1, &|_| true).1.iter().map(of).collect();
        dirs.sort_unstable();
        dirs
    }

    /// A kill comes before the write, or after it and before anything else: the line is there in both cases.
    #[test]
    fn a_note_is_kept_whatever_comes_of_the_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("changes.jsonl");
        let mut undo = Undo::open(&path);
        undo.note(&shares("a"), "10", &cause());
        assert!(dirs(&undo).is_empty(), "a write that failed has nothing to give back");
        assert_eq!(dirs(&Undo::open(&path)), ["a=10"], "killed: nobody knows whether it was written");
        undo.note(&shares("a"), "11", &cause());
        undo.written(&shares("a"));
        undo.note(&shares("a"), "2", &cause());
        assert_eq!(dirs(&undo), ["a=11"], "what was there when it was written at last");
        assert_eq!(dirs(&Undo::open(&path)), ["a=11"]);
    }

    #[test]
    fn scheduler_features_are_noted_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("changes.jsonl");
        let mut undo = Undo::open(&path);
        for word in ["A\n", "NO_B\n", "C\n"] {
            let update = Update::system(SystemFile::SchedFeatures, word);
            undo.note(&update, "NO_A B D", &cause());
            undo.written(&update);
        }
        let undo = Undo::open(&path);
        let is_b = |change: &Change<'_>| change.feature == Some("B");
        let words = |is_meant: &dyn Fn(&Change<'_>) -> bool| {
            let updates = undo.updates(Version::V2, is_meant).1;
            let mut words: Vec<String> = updates.into_iter().map(|update| update.value).collect();
            words.sort_unstable();
            words
        };
        assert_eq!(words(&|_| true), ["B", "NO_A"], "C is not a feature of this kernel");
        assert_eq!(words(&is_b), ["B"]);
    }

    proptest! {
        /// Cut at any byte, and with rubbish behind: what is whole before it counts, and what comes after it.
        #[test]
        fn a_torn_file_is_still_understood(count in 0_usize..6, cut in 0_usize..600, rubbish in prop::collection::vec(any::<u8>(), 0..8)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("changes.jsonl");
            let mut undo = Undo::open(&path);
            for number in 0..count {
                undo.note(&shares(&format!("d{number}")), &number.to_string(), &cause());
            }
            let whole = fs::read(&path).unwrap();
            let kept = &whole[..cut.min(whole.len())];
            // The last line is whole, too, when only its end is missing.
            let lines = kept.iter().filter(|byte| **byte == b'\n').count();
            fs::write(&path, kept).unwrap();
            let found = dirs(&Undo::open(&path)).len();
            prop_assert!(found == lines || found == lines + 1);
            fs::write(&path, [kept, b"\n", &rubbish].concat()).unwrap();
            Undo::open(&path).note(&shares("new"), "7", &cause());
            let again = dirs(&Undo::open(&path));
            prop_assert!(again.contains(&"new=7".to_owned()), "{again:?}");
            prop_assert_eq!(again.len(), found + 1);
        }
    }
}
