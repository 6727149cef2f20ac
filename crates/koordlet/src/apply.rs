//! How wishes reach the kernel: each becomes an update of one file, with its cause, and the executor does the rest.
//!
//! `place` turns a neutral place into a directory, `undo` remembers what stood there before us, `copies` what was only a
//! copy of that. What is tried leaves a record and a metric; what fails again and again is told once. Spec: koordlet-enforce 3, 17.

mod copies;
mod place;
mod undo;

#[cfg(test)]
mod tests;

pub use place::dir_of;
pub use undo::{Change, Undo};

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use koord_api::qos::KubeQos;
use koord_linux::cgroup::Cgroups;
use koord_linux::error::Error;
use koord_linux::executor::{self, Attempt, Caching, Executor, INHERITED, Outcome, Target, Update, Words};
use koord_linux::process::Process;
use koord_linux::resctrl::{Line, Resctrl};
use koord_linux::resource::Resource;
use koord_linux::root::Root;
use koord_linux::system::SystemFile;

use crate::audit::Subject;
use crate::decide::hooks::pod_resctrl::GROUP_PREFIX;
use crate::decide::snapshot::Pod;
use crate::decide::wish::{Batch, Before, Cause, File, Place, Value, Wish};
use crate::metrics::{KoordletMetrics, Metric};
use crate::records::{BEST_EFFORT, Records};

/// Faults that are remembered so as to be told once; more are told again.
const FAULTS_MAX: usize = 4096;

/// The one who carries wishes out.
pub struct Applier {
    executor: Executor,
    cgroups: Arc<Cgroups>,
    resctrl: Resctrl,
    records: Records,
    metrics: KoordletMetrics,
    undo: Arc<Mutex<Undo>>,
    /// What failed when it was last tried.
    faults: HashSet<Target>,
    /// What the kernel has no use for, once in this life: weights in an idle group.
    pointless: HashSet<Resource>,
    /// Sets that hold fewer CPUs than they should, for the groups above them lack some.
    cut: HashSet<Target>,
    /// Until when everything that was applied since it was last set is known to stand; none when something is not.
    known_until: Option<Instant>,
}

/// Batches that were carried out and need no second look for a while.
#[derive(Debug, Default)]
pub struct Settled {
    batches: Vec<Batch>,
    until: Option<Instant>,
    /// What the executor remembered then.
    edition: u64,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub written: usize,
    /// Those that the group or the kernel has no place for do not count.
    pub failed: usize,
}

impl Report {
    /// Whether everything that could be written was.
    pub fn is_good(self) -> bool {
        self.failed == 0
    }

    pub fn and(self, other: Report) -> Report {
        Report { written: self.written + other.written, failed: self.failed + other.failed }
    }
}

/// Names of pods, for whoever reads the audit log. Pods stand in order of uid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a>(pub &'a [Pod]);

impl<'a> Names<'a> {
    fn pod(self, uid: &str) -> Option<&'a Pod> {
        let at = self.0.binary_search_by(|pod| (*pod.id.uid).cmp(uid)).ok()?;
        self.0.get(at)
    }
}

impl Applier {
    /// `force_after` is how long a written value is trusted to be there.
    pub fn new(
        root: &Root,
        cgroups: Arc<Cgroups>,
        force_after: Duration,
        records: Records,
        metrics: KoordletMetrics,
        undo: Undo,
    ) -> Applier {
        let undo = Arc::new(Mutex::new(undo));
        let (log, counts, ledger) = (records.clone(), metrics.clone(), undo.clone());
        let audit = Box::new(move |attempt: &Attempt<'_>| tell(attempt, &log, &counts, &ledger));
        let (notebook, version) = (undo.clone(), cgroups.version());
        let notes = Box::new(move |update: &Update, before: &str| {
            if let Some(cause) = &update.cause {
                let mut notebook = lock(&notebook);
                let is_copy = copies::is_copy(&notebook, version, &update.target);
                notebook.note(update, if is_copy { INHERITED } else { before }, cause);
            }
        });
        Applier {
            executor: Executor::new(root.clone(), cgroups.clone(), force_after, audit).noting(notes),
            cgroups,
            resctrl: Resctrl::new(root),
            records,
            metrics,
            undo,
            faults: HashSet::new(),
            pointless: HashSet::new(),
            cut: HashSet::new(),
            known_until: None,
        }
    }

    pub fn cgroups(&self) -> &Arc<Cgroups> {
        &self.cgroups
    }

    pub fn resctrl(&self) -> &Resctrl {
        &self.resctrl
    }

    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Makes a group of resctrl where it is missing, and says whether it was.
    pub fn ensure_resctrl(&mut self, group: &str) -> Result<bool, Error> {
        let is_new = !self.resctrl.has(group);
        self.resctrl.create(group)?;
        if is_new {
            self.executor.forget_resctrl(group);
        }
        Ok(is_new)
    }

    /// Carries out a batch.
    pub fn apply(&mut self, now: Instant, batch: &Batch, names: Names<'_>) -> Report {
        match batch {
            Batch::Each(wishes) => self.each(now, wishes.iter(), names),
            Batch::Levels(levels) => self.each(now, levels.iter().flatten(), names),
            Batch::Chain(wishes) => {
                let mut report = Report::default();
                for wish in wishes {
                    report = report.and(self.each(now, std::iter::once(wish), names));
                    if !report.is_good() {
                        break;
                    }
                }
                report
            }
        }
    }

    /// Carries out batches that are the same most of the time. As long as they are, and every value is known to be
    /// there, nothing is done at all.
    pub fn settle(
        &mut self,
        now: Instant,
        batches: Vec<Batch>,
        names: Names<'_>,
        settled: &mut Settled,
    ) -> Report {
        let is_known = settled.until.is_some_and(|until| now <= until)
            && settled.edition == self.executor.edition()
            && settled.batches == batches;
        if is_known {
            return Report::default();
        }
        self.known_until = Some(now + self.executor.force_after());
        let report = self.apply_all(now, &batches, names);
        let until = self.known_until.take().filter(|_| report == Report::default());
        *settled = Settled { batches, until, edition: self.executor.edition() };
        report
    }

    pub fn apply_all(&mut self, now: Instant, batches: &[Batch], names: Names<'_>) -> Report {
        let reports = batches.iter().map(|batch| self.apply(now, batch, names));
        reports.fold(Report::default(), Report::and)
    }

    /// Wishes in whatever order keeps the kernel's rules. A failure does not stop the rest.
    fn each<'w>(&mut self, now: Instant, wishes: impl Iterator<Item = &'w Wish>, names: Names<'_>) -> Report {
        lock(&self.undo).begin();
        let (mut trusted, mut looked) = (Vec::new(), Vec::new());
        let mut report = Report::default();
        for wish in wishes {
            if let Value::Tasks(ids) = &wish.value {
                self.known_until = None;
                report = report.and(self.move_tasks(wish, ids, names));
                continue;
            }
            let updates = match is_looked_at(wish) {
                true => &mut looked,
                false => &mut trusted,
            };
            self.updates(wish, names, updates);
        }
        for (caching, updates) in [(Caching::Look, looked), (Caching::Trust, trusted)] {
            report = report.and(self.carry_out(now, caching, &updates));
        }
        report
    }

    fn carry_out(&mut self, now: Instant, caching: Caching, updates: &[Update]) -> Report {
        if updates.is_empty() {
            return Report::default();
        }
        let outcomes = self.executor.apply(now, caching, updates);
        self.note_known(caching, updates, &outcomes);
        self.take_in(updates, &outcomes)
    }

    /// Counts what became of updates, and tells what is new about failures.
    fn take_in(&mut self, updates: &[Update], outcomes: &[Outcome]) -> Report {
        let mut report = Report::default();
        for (outcome, update) in outcomes.iter().zip(updates) {
            match outcome {
                Outcome::Written => report.written += 1,
                Outcome::Failed(error) => {
                    report.failed += 1;
                    self.complain(update, error);
                    continue;
                }
                Outcome::Cut => {
                    self.tell_cut(update);
                    continue;
                }
                Outcome::Ignored(error @ Error::Write { .. }) => self.tell_pointless(update, error),
                Outcome::Known | Outcome::Unchanged | Outcome::Superseded | Outcome::Ignored(_) => {}
            }
            if !self.faults.is_empty() {
                self.faults.remove(&update.target);
            }
            if !self.cut.is_empty() && matches!(outcome, Outcome::Written | Outcome::Unchanged) {
                self.cut.remove(&update.target);
            }
        }
        report
    }

    /// Takes note of how long all of this is known.
    fn note_known(&mut self, caching: Caching, updates: &[Update], outcomes: &[Outcome]) {
        let Some(known_until) = self.known_until else { return };
        let is_known = |outcome: &Outcome| matches!(outcome, Outcome::Known | Outcome::Superseded);
        let is_trusted = caching == Caching::Trust && outcomes.iter().all(is_known);
        let until = updates.iter().map(|update| self.executor.known_until(update)).min().flatten();
        self.known_until = until.filter(|_| is_trusted).map(|until| until.min(known_until));
    }

    /// Says that a write failed, unless it failed before.
    fn complain(&mut self, update: &Update, error: &Error) {
        if self.faults.len() >= FAULTS_MAX {
            self.faults.clear();
        }
        if self.faults.insert(update.target.clone()) {
            let reason = update.cause.as_ref().map_or("", |cause| cause.reason);
            tracing::warn!(error = error as &dyn std::error::Error, reason, "a value cannot be written");
        }
    }

    /// Says of the first of them that groups get fewer CPUs than they should.
    fn tell_cut(&mut self, update: &Update) {
        let is_first = self.cut.is_empty();
        self.cut.insert(update.target.clone());
        if is_first {
            let (target, wanted) = (&update.target, &update.value);
            tracing::warn!(
                ?target,
                wanted,
                "the group above lacks some of the CPUs; cgroup v1 gives none back that was offline"
            );
        }
    }

    /// Says that the kernel refuses a kind of value as it is set up, which is the same for many groups and for ever.
    fn tell_pointless(&mut self, update: &Update, error: &Error) {
        let Target::Cgroup { resource, .. } = update.target else { return };
        if self.pointless.insert(resource) {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, "the kernel has no use for a value, in an idle group for one; told once");
        }
    }

    /// The updates that a wish means: none when its place cannot exist, two when it is about two lines.
    fn updates(&self, wish: &Wish, names: Names<'_>, into: &mut Vec<Update>) {
        let cause = Arc::new(self.cause(wish, names));
        match (&wish.place, wish.file) {
            (Place::Resctrl(group), File::ResctrlSchemata) => {
                let text = wish.value.to_string();
                let lines = text.lines().filter_map(|line| Line::from_text(line).ok());
                into.extend(lines.map(|line| Update::schemata(group, &line).because(cause.clone())));
            }
            (Place::Process(place), File::OomScoreAdj) => {
                let process = Process { pid: place.pid, start_ticks: place.start_ticks };
                let file = SystemFile::OomScoreAdj(process);
                into.push(Update::system(file, wish.value.to_string()).because(cause));
            }
            (Place::Host, file) => {
                if let Some(file) = SystemFile::from_name(file.name()) {
                    into.push(Update::system(file, wish.value.to_string()).because(cause));
                }
            }
            (place, file) => {
                let dir = dir_of(place, self.cgroups.driver());
                if let Some((resource, dir)) = Resource::from_name(file.name()).zip(dir) {
                    into.push(Update::cgroup(resource, &dir, wish.value.to_string()).because(cause));
                }
            }
        }
    }

    fn cause(&self, wish: &Wish, names: Names<'_>) -> executor::Cause {
        let is_told = self.records.are_wanted(level(wish.cause.reason()));
        let words = is_told.then(|| Arc::new(wish.clone()) as Arc<dyn Words>);
        executor::Cause { reason: wish.cause.reason(), subject: subject(&wish.place, names), words }
    }

    /// Threads into a group of resctrl, each on its own. Never remembered, for ids are used again.
    fn move_tasks(&self, wish: &Wish, ids: &[u32], names: Names<'_>) -> Report {
        let Place::Resctrl(group) = &wish.place else { return Report::default() };
        match self.resctrl.add_tasks(group, ids) {
            Ok(0) => Report::default(),
            Ok(written) => {
                let message = format!("add {written} tasks to resctrl group {group}{}", wish.why);
                let subject = subject(&wish.place, names);
                let reason = wish.cause.reason();
                self.records.record(level(reason), Subject::from(&subject), reason, message);
                self.metrics.count(Metric::NodeChange, &["resctrl-tasks", "success"]);
                Report { written, failed: 0 }
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, %group, "threads cannot be moved");
                self.metrics.count(Metric::NodeChange, &["resctrl-tasks", "failed"]);
                Report { written: 0, failed: usize::from(!error.is_ignorable()) }
            }
        }
    }

    /// Gives back those of our changes that are meant, whatever was written to the files since. Those that fail are
    /// remembered for another try; those of groups that are gone are not.
    pub fn give_back(&mut self, now: Instant, is_meant: impl Fn(&Change<'_>) -> bool) -> Report {
        let mut undo = lock(&self.undo);
        undo.begin();
        copies::take_in(&mut undo, &self.cgroups, &is_meant);
        drop(undo);
        let (keys, mut updates) = lock(&self.undo).updates(self.cgroups.version(), &is_meant);
        if updates.is_empty() {
            return Report::default();
        }
        copies::fill_in(&self.cgroups, &mut updates);
        let outcomes = self.executor.restore(now, &updates);
        let report = self.take_in(&updates, &outcomes);
        for (key, outcome) in keys.iter().zip(&outcomes) {
            if matches!(outcome, Outcome::Written) {
                lock(&self.undo).record(key, &self.records);
            }
        }
        let is_done = |outcome: &Outcome| !matches!(outcome, Outcome::Failed(_));
        let done = keys.into_iter().zip(&outcomes).filter(|(_, outcome)| is_done(outcome));
        lock(&self.undo).forget(done.map(|(key, _)| key));
        report
    }

    /// Says that a process has what it has from another. If that has it from us, both are given back the same.
    pub fn inherit(&mut self, child: Process, parent: Process) {
        lock(&self.undo).inherit(child, parent);
    }

    /// Drops what is no longer there from the memory of changes and faults. To be called every few minutes.
    pub fn tidy(&mut self, now: Instant) {
        self.records.tidy(now);
        let cgroups = self.cgroups.clone();
        lock(&self.undo).retain_existing(&cgroups);
        self.faults.retain(|target| target.exists(&cgroups));
        self.cut.retain(|target| target.exists(&cgroups));
    }

    /// How many files it remembers something of.
    pub fn kept(&self) -> usize {
        self.executor.kept()
            + lock(&self.undo).len()
            + self.faults.len()
            + self.cut.len()
            + self.records.kept()
    }
}

/// A quota that follows the load is compared with the file each time: others write it too.
fn is_looked_at(wish: &Wish) -> bool {
    let is_moving = matches!(wish.cause, Cause::CpuSuppress | Cause::QuotaRecovery | Cause::QuotaBurst);
    is_moving && wish.file == File::CpuCfsQuota
}

/// How important a record is, by its reason.
fn level(reason: &str) -> u32 {
    let is_important =
        [Cause::CpuSuppress, Cause::QuotaRecovery].iter().any(|cause| cause.reason() == reason);
    if is_important { 1 } else { 3 }
}

/// Whom a place belongs to.
fn subject(place: &Place, names: Names<'_>) -> executor::Subject {
    use executor::Subject::{Group, Node};
    match place {
        Place::Host => Node,
        Place::CgroupRoot => Group("/".to_owned()),
        Place::Kube(KubeQos::BestEffort) => Group(BEST_EFFORT.to_owned()),
        Place::Kube(qos) => Group(format!("{qos:?}").to_lowercase()),
        Place::Dir(dir) => Group(dir.to_string()),
        // No name of a group that pods hear about.
        Place::HostApplication(application) => Group(format!("host application {}", application.dir)),
        Place::Resctrl(group) => match group.strip_prefix(GROUP_PREFIX) {
            Some(uid) => pod_subject(names.pod(uid), &uid.into(), ""),
            None => Group(group.to_string()),
        },
        Place::Process(process) => {
            let uid = &process.pod.uid;
            pod_subject(names.pod(uid), uid, &process.container)
        }
        Place::Pod(id) => pod_subject(names.pod(&id.uid), &id.uid, ""),
        Place::Container(id, container) => pod_subject(names.pod(&id.uid), &id.uid, container),
    }
}

fn pod_subject(pod: Option<&Pod>, uid: &Arc<str>, id: &str) -> executor::Subject {
    let Some(pod) = pod else { return executor::Subject::Group(uid.to_string()) };
    let own = pod.with_init_containers().find(|container| container.id.as_deref() == Some(id));
    let container = own.map_or_else(|| id.to_owned(), |container| container.name.clone());
    let (uid, namespace, name) = (uid.clone(), pod.namespace.clone(), pod.name.clone());
    executor::Subject::Pod { uid, namespace, name, container }
}

/// Everything that every write leaves behind.
fn tell(attempt: &Attempt<'_>, records: &Records, metrics: &KoordletMetrics, undo: &Mutex<Undo>) {
    let status = if attempt.error.is_some() { "failed" } else { "success" };
    let millis = attempt.took.as_secs_f64() * 1000.0;
    metrics.observe(Metric::ResourceUpdateDuration, &[attempt.kind(), status], millis);
    // For whoever wants to see every write in its order: --vmodule=apply=5.
    tracing::trace!(
        path = %attempt.path.display(),
        before = attempt.before,
        value = attempt.value,
        error = attempt.error.map(|error| koord_kit::log::chain(error)).unwrap_or_default(),
        "write"
    );
    if attempt.error.is_some() {
        return;
    }
    let Some(cause) = &attempt.update.cause else { return };
    lock(undo).written(attempt.update);
    let Some(words) = &cause.words else { return };
    let message = words.say(attempt.before);
    records.record(level(cause.reason), Subject::from(&cause.subject), cause.reason, message);
}

impl Words for Wish {
    fn say(&self, before: &str) -> String {
        let before = match before.trim() {
            _ if before == executor::INHERITED => Some(Before::Parents),
            before if before.is_empty() || before.contains('\n') => None,
            before => Some(Before::Value(before)),
        };
        self.audit_message(before)
    }
}

fn lock(undo: &Mutex<Undo>) -> std::sync::MutexGuard<'_, Undo> {
    undo.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the memory of changes lies: it lives as long as the groups do, until the machine starts anew.
pub fn undo_path(root: &Root) -> PathBuf {
    root.state.join("changes.jsonl")
}
