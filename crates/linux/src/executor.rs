//! The one way values reach the kernel: checked, skipped when nothing changes, in an order that never breaks the
//! kernel's rule that a child stays within its parent, and told to whoever keeps the audit log.
//!
//! [`plan`] decides the order and is pure; here are the files and the memory of what was written.
//! Spec: koordlet-enforce 3.

use std::collections::HashMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_api::cpuset::CpuSet;

use crate::cgroup::{Cgroups, Dir, Version};
use crate::error::{Error, Malformed};
use crate::resctrl::{Line, Resctrl, Schema, Schemata, count_fault};
use crate::resource::{Resource, convert, current_value, encode};
use crate::root::Root;
use crate::system::SystemFile;
use crate::text;

use cache::Cache;
use plan::{Held, Item, Plan};

mod cache;
pub mod plan;

/// What is written to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The value is in v1's language, whatever the version.
    Cgroup {
        resource: Resource,
        dir: Dir,
    },
    System(SystemFile),
    /// One line of a resctrl group's schemata.
    Schemata {
        group: String,
        schema: Schema,
    },
}

impl Target {
    /// Whether its group is still there. What belongs to the machine always is.
    pub fn exists(&self, cgroups: &Cgroups) -> bool {
        match self {
            Target::Cgroup { resource, dir } => cgroups.path(*resource, dir).is_ok_and(|path| path.exists()),
            Target::System(_) | Target::Schemata { .. } => true,
        }
    }
}

/// The value of a CPU set of v2 that is its parent's, whatever that is. Where the kernel does not take it, because the
/// group has processes, the CPUs that the parent has now are written.
pub const INHERITED: &str = "\n";

/// A value that a file should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub target: Target,
    pub value: String,
    /// Who wants it and why; for the audit log.
    pub cause: Option<Arc<Cause>>,
}

/// Why something is written.
#[derive(Clone, Debug)]
pub struct Cause {
    /// What the audit log calls it: `AdjustBEByNodeCPUUsage`.
    pub reason: &'static str,
    pub subject: Subject,
    /// None when nobody wants to hear it.
    pub words: Option<Arc<dyn Words>>,
}

/// Says what is written, and the numbers that led to it. Asked only when it was, for most values are there already.
pub trait Words: fmt::Debug + Send + Sync {
    /// `before` is what the file held; see [`Attempt::before`].
    fn say(&self, before: &str) -> String;
}

/// The same write for other numbers is the same.
impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        (self.reason, &self.subject) == (other.reason, &other.subject)
    }
}

impl Eq for Cause {}

/// Whom a write is about, by the names that people know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Node,
    /// A class's group, or one that belongs to nobody we know.
    Group(String),
    Pod {
        uid: Arc<str>,
        namespace: String,
        name: String,
        /// Empty for the pod itself.
        container: String,
    },
}

impl Update {
    pub fn cgroup(resource: Resource, dir: &Dir, value: impl Into<String>) -> Update {
        let target = Target::Cgroup { resource, dir: dir.clone() };
        Update { target, value: value.into(), cause: None }
    }

    pub fn system(file: SystemFile, value: impl Into<String>) -> Update {
        Update { target: Target::System(file), value: value.into(), cause: None }
    }

    pub fn schemata(group: &str, line: &Line) -> Update {
        let target = Target::Schemata { group: group.to_owned(), schema: line.schema };
        Update { target, value: line.to_string(), cause: None }
    }

    pub fn because(mut self, cause: Arc<Cause>) -> Update {
        self.cause = Some(cause);
        self
    }
}

/// Whether an update may rest on what was written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// A value written lately, as [`Executor::new`] was told, is taken to be there still.
    Trust,
    /// The file is read whatever was written.
    Look,
}

/// How soon a set that was cut is looked at again: the CPUs that the group above lacks may stay away for good.
const LOOK_ABOVE: Duration = Duration::from_secs(10);

/// Whose word counts about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judge {
    /// The ranges of the specification, before anything is written.
    Ranges,
    /// The kernel alone.
    Kernel,
}

/// What became of an update.
#[derive(Debug)]
pub enum Outcome {
    /// It was written or seen a short while ago; no file was touched.
    Known,
    /// The file holds it already.
    Unchanged,
    /// The file holds as many of the CPUs as the group above has; there are more that are wanted.
    Cut,
    Written,
    /// A later update in the same batch is about the same file.
    Superseded,
    /// The group has gone, or the kernel lacks the feature.
    Ignored(Error),
    Failed(Error),
}

/// A write that was tried.
#[derive(Debug)]
pub struct Attempt<'a> {
    pub update: &'a Update,
    pub path: &'a Path,
    /// What the file held; [`INHERITED`] for a set that was the parent's.
    pub before: &'a str,
    /// What was written: on the way it may be wider than what is wanted.
    pub value: &'a str,
    pub took: Duration,
    pub error: Option<&'a Error>,
}

impl Attempt<'_> {
    /// The label `type` of upstream's metric.
    pub fn kind(&self) -> &'static str {
        match self.update.target {
            Target::Cgroup { .. } => "cgroup",
            Target::System(_) => "default",
            Target::Schemata { .. } => "resctrl-schema",
        }
    }
}

/// Hears of every write.
pub type Audit = Box<dyn FnMut(&Attempt<'_>) + Send>;

/// Hears what a file holds while it still does: right before every write to it. [`INHERITED`] for a set that is the
/// parent's.
pub type Notes = Box<dyn FnMut(&Update, &str) + Send>;

/// The one writer of a node.
pub struct Executor {
    root: Root,
    cgroups: Arc<Cgroups>,
    cache: Cache,
    audit: Audit,
    notes: Notes,
}

/// An update on its way through a batch.
struct Job {
    /// Its place among the updates.
    at: usize,
    path: PathBuf,
    item: Item,
    /// Whether the group above lacks some of the CPUs that are wanted.
    is_cut: bool,
}

impl Executor {
    /// `force_after` is how long a written value is trusted: `--resource-force-update-seconds`.
    pub fn new(root: Root, cgroups: Arc<Cgroups>, force_after: Duration, audit: Audit) -> Executor {
        Executor { root, cgroups, cache: Cache::new(force_after), audit, notes: Box::new(|_, _| {}) }
    }

    /// Has somebody take notes who must know what a file held even when we are killed in the middle of a write.
    pub fn noting(mut self, notes: Notes) -> Executor {
        self.notes = notes;
        self
    }

    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// Grows whenever another value is remembered, or one is forgotten.
    pub fn edition(&self) -> u64 {
        self.cache.edition()
    }

    /// How long a written value is trusted.
    pub fn force_after(&self) -> Duration {
        self.cache.force_after()
    }

    /// Until when this value is taken to be there; none when it is not.
    pub fn known_until(&self, update: &Update) -> Option<Instant> {
        self.cache.known_until(update)
    }

    /// How many files it remembers a value of.
    pub fn kept(&self) -> usize {
        self.cache.len()
    }

    /// Takes nothing for granted about a group of resctrl, for it was made anew.
    pub fn forget_resctrl(&mut self, group: &str) {
        for schema in [Schema::L3, Schema::Mb] {
            self.cache.forget(&Target::Schemata { group: group.to_owned(), schema });
        }
    }

    /// One value.
    pub fn update(&mut self, now: Instant, caching: Caching, update: &Update) -> Outcome {
        self.apply(now, caching, std::slice::from_ref(update)).pop().unwrap_or(Outcome::Known)
    }

    /// Any number of values, in whatever order keeps every child within its parent. Never stops at a failure.
    /// Outcomes stand in the order of the updates.
    pub fn apply(&mut self, now: Instant, caching: Caching, updates: &[Update]) -> Vec<Outcome> {
        self.run(now, caching, Judge::Ranges, updates)
    }

    /// The same for what files held before: our ranges are about wishes, and the kernel took these values from somebody.
    pub fn restore(&mut self, now: Instant, updates: &[Update]) -> Vec<Outcome> {
        self.run(now, Caching::Look, Judge::Kernel, updates)
    }

    fn run(&mut self, now: Instant, caching: Caching, judge: Judge, updates: &[Update]) -> Vec<Outcome> {
        self.cache.expire(now);
        let mut outcomes: Vec<Outcome> = updates.iter().map(|_| Outcome::Known).collect();
        let mut jobs: Vec<Job> = Vec::new();
        for (at, is_last) in last_of_each_target(updates).into_iter().enumerate() {
            if !is_last {
                outcomes[at] = Outcome::Superseded;
            } else if caching == Caching::Look || self.cache.needs(now, &updates[at]) {
                match self.prepare(&updates[at], judge) {
                    Ok(job) => jobs.push(Job { at, ..job }),
                    Err(error) => outcomes[at] = refused(error),
                }
            }
        }
        if self.cgroups.version() == Version::V1 {
            cut(&mut jobs);
        }
        self.carry_out(now, updates, jobs, &mut outcomes);
        outcomes
    }

    /// Checks the value and reads what the file holds.
    fn prepare(&self, update: &Update, judge: Judge) -> Result<Job, Error> {
        let invalid = |name, source: Malformed| Error::Invalid { name, value: update.value.clone(), source };
        let job = |path, item| Job { at: 0, path, item, is_cut: false };
        match &update.target {
            Target::Cgroup { resource, dir } => self.prepare_cgroup(update, *resource, dir, judge),
            Target::System(file) => {
                if judge == Judge::Ranges {
                    file.validate(&update.value).map_err(|source| invalid(file.name(), source))?;
                }
                file.require(&self.root)?;
                let path = file.path(&self.root);
                let current = text::read(&path)?.trim_matches('\n').to_owned();
                let held = if *file == SystemFile::SchedFeatures { Held::Words } else { Held::Text };
                Ok(job(path, Item { held, depth: 0, value: update.value.clone(), current }))
            }
            Target::Schemata { group, schema } => {
                let path = Resctrl::new(&self.root).schemata_path(group);
                let line = Line::from_text(&update.value).map_err(|source| invalid("schemata", source))?;
                let current = current_line(&path, *schema, line.values.len())?.to_string();
                Ok(job(path, Item { held: Held::Text, depth: 0, value: line.to_string(), current }))
            }
        }
    }

    fn prepare_cgroup(
        &self,
        update: &Update,
        resource: Resource,
        dir: &Dir,
        judge: Judge,
    ) -> Result<Job, Error> {
        let name = resource.name();
        let invalid = |source: Malformed| Error::Invalid { name, value: update.value.clone(), source };
        let path = self.cgroups.path(resource, dir)?;
        self.cgroups.require(resource, dir)?;
        let (version, depth) = (self.cgroups.version(), dir.depth());
        let content = text::read(&path)?;
        let has_set = resource == Resource::CpusetCpus && version == Version::V2;
        let is_inherited = has_set && content.trim().is_empty();
        if has_set && update.value == INHERITED {
            let current = if is_inherited { INHERITED.to_owned() } else { content };
            let item = Item { held: Held::Text, depth, value: INHERITED.to_owned(), current };
            return Ok(Job { at: 0, path, item, is_cut: false });
        }
        let value = match judge {
            Judge::Ranges => encode(resource, version, &update.value),
            Judge::Kernel => convert(resource, version, &update.value),
        };
        let value = value.map_err(invalid)?;
        if resource == Resource::CpusetCpus && value.is_empty() {
            // Differs: upstream writes it, and tasks of the group then cannot start: no space left on device.
            return Err(invalid(Malformed("a cpuset needs a CPU".into())));
        }
        // An inherited CPU set is empty; what it amounts to stands beside it. It is written even if that is the value, for
        // whoever widens the parent must not widen it, too.
        let effective = is_inherited.then(|| text::read(&path.with_file_name("cpuset.cpus.effective")).ok());
        let content = effective.flatten().unwrap_or(content);
        let current = current_value(resource, version, &content).to_owned();
        let held = if is_inherited { Held::Parents } else { Held::Cgroup { resource, version } };
        Ok(Job { at: 0, path, item: Item { held, depth, value, current }, is_cut: false })
    }

    fn carry_out(&mut self, now: Instant, updates: &[Update], jobs: Vec<Job>, outcomes: &mut [Outcome]) {
        let (places, items): (Vec<(usize, PathBuf, bool)>, Vec<Item>) =
            jobs.into_iter().map(|job| ((job.at, job.path, job.is_cut), job.item)).unzip();
        for (at, _, is_cut) in &places {
            outcomes[*at] = if *is_cut { Outcome::Cut } else { Outcome::Unchanged };
        }
        let mut plan = Plan::new(items);
        while let Some(step) = plan.next_step() {
            let (at, path, _) = &places[step.item];
            let item = plan.item(step.item);
            let before = if item.held == Held::Parents { INHERITED } else { &item.current };
            let mut result = self.write(&updates[*at], path, before, &step.value);
            if step.value == INHERITED && matches!(&result, Err(error) if is_populated(error)) {
                // The parent's turn was before, so its CPUs are as many as they will be.
                let cpus = parents_cpus(path);
                result = cpus.and_then(|cpus| self.write(&updates[*at], path, before, &cpus));
            }
            plan.done(result.is_ok());
            outcomes[*at] = match result {
                Ok(()) => Outcome::Written,
                Err(error) if is_pointless(&updates[*at], path, &error) => Outcome::Ignored(error),
                Err(error) => refused(error),
            };
        }
        let mut any_failed = false;
        for (index, (at, _, is_cut)) in places.iter().enumerate() {
            // What the kernel has no use for is not tried again every second.
            let is_pointless = matches!(outcomes[*at], Outcome::Ignored(Error::Write { .. }));
            if *is_cut {
                // The rest is to follow soon after the group above has it.
                self.cache.remember_for(now, &updates[*at], LOOK_ABOVE);
            } else if plan.item(index).is_settled() || is_pointless {
                self.cache.remember(now, &updates[*at]);
            } else {
                any_failed |= matches!(outcomes[*at], Outcome::Failed(_));
            }
        }
        if any_failed {
            // Somebody else may have changed a parent or a child that we believe to know: look at all of them next time.
            updates.iter().for_each(|update| self.cache.forget(&update.target));
        }
    }

    fn write(&mut self, update: &Update, path: &Path, before: &str, value: &str) -> Result<(), Error> {
        (self.notes)(update, before);
        let start = Instant::now();
        // Truncation matters only where a plain file stands in for the kernel's; nothing is ever created.
        let opened = OpenOptions::new().write(true).truncate(true).open(path);
        let opened = opened.map_err(|source| Error::write(path, value, source));
        // An open file is its process' own: asked afterwards, no other can come in between.
        let opened = opened.and_then(|file| match update.target {
            Target::System(system) => system.require(&self.root).map(|()| file),
            _ => Ok(file),
        });
        let result = opened.and_then(|mut file| {
            file.write_all(value.as_bytes()).map_err(|source| Error::write(path, value, source))
        });
        let error = result.as_ref().err();
        (self.audit)(&Attempt { update, path, before, value, took: start.elapsed(), error });
        result
    }
}

fn refused(error: Error) -> Outcome {
    if error.is_ignorable() { Outcome::Ignored(error) } else { Outcome::Failed(error) }
}

/// Cuts sets of CPUs to what the group above has, or will have.
///
/// Differs: v1 takes a CPU that goes offline from every group, and gives it back to none. Until somebody does, it refuses
/// whatever has that CPU in it, also where the set is to shrink: upstream's sets stay as they are. A set of which nothing
/// would be left is written as it is wanted, for that it is refused must be told.
fn cut(jobs: &mut [Job]) {
    let is_set = |job: &Job| matches!(job.item.held, Held::Cgroup { resource: Resource::CpusetCpus, .. });
    let mut order: Vec<usize> = (0..jobs.len()).filter(|at| is_set(&jobs[*at])).collect();
    order.sort_by_key(|at| jobs[*at].item.depth);
    let mut wanted: HashMap<PathBuf, String> = HashMap::new();
    for job in order {
        let Job { path, item, is_cut, .. } = &mut jobs[job];
        let above =
            path.parent().and_then(Path::parent).map(|dir| dir.join("cpuset.cpus")).unwrap_or_default();
        let above = wanted.get(&above).cloned().or_else(|| text::read(&above).ok()).unwrap_or_default();
        if let (Ok(own), Ok(above)) = (item.value.parse::<CpuSet>(), above.trim().parse::<CpuSet>()) {
            let left = &own & &above;
            *is_cut = left.len() < own.len() && !left.is_empty();
            if *is_cut {
                item.value = left.to_string();
            }
        }
        wanted.insert(path.clone(), item.value.clone());
    }
}

/// Kernels refuse to take the CPUs of a group away that has processes, though it would have its parent's then.
fn is_populated(error: &Error) -> bool {
    matches!(error, Error::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull)
}

/// What a set amounts to that is its parent's.
fn parents_cpus(path: &Path) -> Result<String, Error> {
    let parent = path.parent().and_then(Path::parent).unwrap_or(path);
    Ok(text::read(&parent.join("cpuset.cpus.effective"))?.trim().to_owned())
}

/// The kernel refuses weights of a group that is idle as a whole, and of a disk that has no cost control.
fn is_pointless(update: &Update, path: &Path, error: &Error) -> bool {
    let (Target::Cgroup { resource, .. }, Error::Write { source, .. }) = (&update.target, error) else {
        return false;
    };
    match (resource, source.kind()) {
        (Resource::CpuShares, io::ErrorKind::InvalidInput) => {
            text::read(&path.with_file_name("cpu.idle")).is_ok_and(|idle| idle.trim() == "1")
        }
        (Resource::IoWeight, io::ErrorKind::Unsupported) => true,
        _ => false,
    }
}

/// For each update, whether no later one is about the same thing.
fn last_of_each_target(updates: &[Update]) -> Vec<bool> {
    let keys: Vec<(&Target, Option<&str>)> =
        updates.iter().map(|update| (&update.target, part_of(update))).collect();
    let last: HashMap<(&Target, Option<&str>), usize> =
        keys.iter().enumerate().map(|(at, key)| (*key, at)).collect();
    keys.iter().enumerate().map(|(at, key)| last[key] == at).collect()
}

/// Which part of its file an update is about, where a file holds many: a device's line, a scheduler feature.
fn part_of(update: &Update) -> Option<&str> {
    match &update.target {
        Target::Cgroup { resource, .. } if resource.is_per_device() => update.value.split(' ').next(),
        Target::System(SystemFile::SchedFeatures) => {
            let word = update.value.trim();
            Some(word.strip_prefix("NO_").unwrap_or(word))
        }
        _ => None,
    }
}

/// The line of a group, which must be about as many caches as the one to be written.
fn current_line(path: &Path, schema: Schema, caches: usize) -> Result<Line, Error> {
    let fault = |source| Error::content(path, source);
    let schemata = Schemata::parse(&text::read(path)?).map_err(fault)?;
    let line = schemata.line(schema).ok_or_else(|| fault(count_fault(schema, 0, caches)))?;
    if line.values.len() != caches {
        return Err(fault(count_fault(schema, line.values.len(), caches)));
    }
    Ok(line.clone())
}

#[cfg(test)]
mod tests;
