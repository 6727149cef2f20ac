//! Cycles and instructions of containers, counted for a while every minute. Spec: koordlet-observe 5.10.
//!
//! Nothing sleeps: counters are opened in one pass and read in a later one. A round is spread over passes, so that the
//! number of open counters has an end.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_api::cpuset::CpuSet;
use koord_linux::cgroup::{Cgroups, Dir, cpus};
use koord_linux::perf::{CycleCounters, Cycles};
use koord_linux::resource::Resource;

use super::Pass;
use super::every::Every;
use super::facts::Facts;
use super::pods::PodRecord;
use crate::store::{Key, Kind};

/// Counters that may be open at once; each CPU of a container takes two files.
const OPEN_MAX: usize = 4096;

/// What a container did in one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CyclesReading {
    pub pod_uid: Arc<str>,
    pub pod_name: Arc<str>,
    pub pod_namespace: Arc<str>,
    pub container_id: Arc<str>,
    pub container_name: Arc<str>,
    pub cycles: Cycles,
}

/// A container of this round.
struct Subject {
    reading: CyclesReading,
    dir: Dir,
}

struct Running {
    subject: Subject,
    since: Instant,
    counters: CycleCounters,
    open: usize,
}

pub(super) struct Collector {
    every: Every,
    window: Duration,
    waiting: VecDeque<Subject>,
    running: Vec<Running>,
    /// Of the round that is under way, and of the last whole one.
    found: Vec<CyclesReading>,
    readings: Vec<CyclesReading>,
    has_started: bool,
    is_failing: bool,
}

impl Collector {
    pub(super) fn new(interval: Duration, window: Duration) -> Collector {
        Collector {
            every: Every::new(interval),
            window,
            waiting: VecDeque::new(),
            running: Vec::new(),
            found: Vec::new(),
            readings: Vec::new(),
            has_started: false,
            is_failing: false,
        }
    }

    pub(super) fn run(&mut self, pass: &mut Pass<'_>, pods: &[PodRecord], facts: &Facts) {
        // Which CPUs there are must be known first.
        let Some(known) = &facts.cpu else { return };
        self.read_finished(pass);
        let is_idle = self.waiting.is_empty() && self.running.is_empty();
        if is_idle && self.every.is_due(pass.now.instant) {
            self.has_started = true;
            self.waiting.extend(subjects(pods));
        }
        if self.waiting.is_empty() {
            return;
        }
        let online: CpuSet = known.cpus.iter().map(|cpu| cpu.id).collect();
        let mut open: usize = self.running.iter().map(|running| running.open).sum();
        while open < OPEN_MAX
            && let Some(subject) = self.waiting.pop_front()
        {
            let cpus = cpus_of(pass.cgroups, &subject.dir, &online);
            match CycleCounters::open(&pass.cgroups.perf_group(&subject.dir), &cpus) {
                Ok(counters) => {
                    let count = cpus.len() * 2;
                    open += count;
                    self.running.push(Running { subject, since: pass.now.instant, counters, open: count });
                }
                Err(error) => self.note(&subject, &error),
            }
        }
    }

    /// Containers that cannot be counted are left out; the log hears of the first.
    fn note(&mut self, subject: &Subject, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(group = %subject.dir, %error, "cycles of a container cannot be counted");
        }
    }

    /// Reads and closes the counters whose time is over; the round ends with the last of them.
    fn read_finished(&mut self, pass: &mut Pass<'_>) {
        if self.running.is_empty() {
            return;
        }
        let now = pass.now.instant;
        let is_over = |running: &mut Running| now.duration_since(running.since) >= self.window;
        let finished: Vec<Running> = self.running.extract_if(.., is_over).collect();
        for mut running in finished {
            match running.counters.read() {
                Ok(cycles) => {
                    let reading = CyclesReading { cycles, ..running.subject.reading };
                    add(pass, &reading);
                    self.found.push(reading);
                }
                Err(error) => self.note(&running.subject, &error),
            }
        }
        pass.commit("PerformanceCollector");
        if self.running.is_empty() && self.waiting.is_empty() {
            self.readings = std::mem::take(&mut self.found);
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    pub(super) fn readings(&self) -> &[CyclesReading] {
        &self.readings
    }
}

fn subjects(pods: &[PodRecord]) -> impl Iterator<Item = Subject> + '_ {
    pods.iter().flat_map(|record| {
        record.containers.iter().map(|container| Subject {
            reading: CyclesReading {
                pod_uid: Arc::clone(&record.pod.id),
                pod_name: Arc::clone(&record.pod.name),
                pod_namespace: Arc::clone(&record.namespace),
                container_id: Arc::clone(&container.id),
                container_name: Arc::clone(&container.name),
                cycles: Cycles::default(),
            },
            dir: container.group.dir().clone(),
        })
    })
}

/// The CPUs that the container may use; where that is not told, all.
fn cpus_of(cgroups: &Cgroups, dir: &Dir, online: &CpuSet) -> CpuSet {
    // Differs: upstream opens counters on every CPU of the node, which meets the limit of open files.
    let own = cgroups.read(Resource::CpusetCpus, dir, cpus).unwrap_or_default();
    let usable: CpuSet = own.iter().filter(|cpu| online.contains(*cpu)).collect();
    if usable.is_empty() { online.clone() } else { usable }
}

fn add(pass: &mut Pass<'_>, reading: &CyclesReading) {
    for (resource, count) in [("cycle", reading.cycles.cycles), ("instruction", reading.cycles.instructions)]
    {
        let key: Key = Kind::ContainerCpi.of([&reading.pod_uid, &reading.container_id, &Arc::from(resource)]);
        let id = pass.store.find(key);
        pass.batch.add(id, pass.now.unix_ms, super::group::bytes(count));
    }
}
