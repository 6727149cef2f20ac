//! The collectors: what the kernel's files tell, once a second, put into the series store.
//!
//! One owner, one pass: the thread that decides calls [`Collectors::pass`] before it decides. Files stay open and
//! buffers are kept, so that a steady pass opens nothing and allocates nothing. What pods and applications there are
//! is told when it changes, by [`Collectors::set_pods`] and [`Collectors::set_applications`]. Spec: koordlet-observe 5.

mod best_effort;
mod cold;
mod cycles;
mod every;
mod facts;
mod group;
mod host_apps;
mod node;
mod pods;
mod pressure;
mod resctrl;
mod system;

use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_api::crd::node_slo::HostApplicationSpec;
use koord_linux::cgroup::Cgroups;
use koord_linux::handle::Buffer;
use koord_linux::root::Root;

pub use cycles::CyclesReading;
pub use facts::{CpuFacts, Facts, Outcomes, Rounds};
pub use host_apps::ApplicationReading;
pub use pressure::PressureReading;
pub use resctrl::{ResctrlMeasure, ResctrlReading};

use crate::decide::snapshot::Pod;
use crate::store::{Batch, Store};

/// Flags and gates of the collectors, resolved. The defaults are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `collect-res-used-interval`
    pub usage_interval: Duration,
    /// `collect-sys-metric-outdated-interval`
    pub outdated_after: Duration,
    /// `collect-node-cpu-info-interval`
    pub node_info_interval: Duration,
    /// `collect-node-storage-info-interval`
    pub storage_interval: Duration,
    /// `cpi-collector-interval`, `collect-cpi-timewindow`
    pub cycles_interval: Duration,
    pub cycles_window: Duration,
    /// `psi-collector-interval`
    pub pressure_interval: Duration,
    /// `coldpage-collector-interval`
    pub cold_interval: Duration,
    /// `resctrl-collector-interval`
    pub resctrl_interval: Duration,
    /// `enable-pagecache-collector`
    pub has_page_cache: bool,
    /// Gate `CPICollector`
    pub has_cycles: bool,
    /// Gate `PSICollector`
    pub has_pressure: bool,
    /// Gate `ColdPageCollector`
    pub has_cold_pages: bool,
    /// Gate `BlkIOReconcile`
    pub has_storage: bool,
    /// `enable-resctrl-collector`, and gate `ResctrlCollector`
    pub has_resctrl: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            usage_interval: Duration::from_secs(1),
            outdated_after: Duration::from_secs(10),
            node_info_interval: Duration::from_secs(60),
            storage_interval: Duration::from_secs(1),
            cycles_interval: Duration::from_secs(60),
            cycles_window: Duration::from_secs(10),
            pressure_interval: Duration::from_secs(10),
            cold_interval: Duration::from_secs(5),
            resctrl_interval: Duration::from_secs(10),
            has_page_cache: false,
            has_cycles: false,
            has_pressure: false,
            has_cold_pages: false,
            has_storage: false,
            has_resctrl: false,
        }
    }
}

/// One point in time, by both clocks: one for samples, one for rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub unix_ms: i64,
    pub instant: Instant,
}

/// Which memory of host applications counts, by the NodeMetric's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    #[default]
    WithoutPageCache,
    WithPageCache,
}

/// CPU and memory in use, in cores and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub cores: f64,
    pub bytes: f64,
}

/// The newest value that one collector has for another, and when it was measured.
type Shared<T> = Option<(Instant, T)>;

/// Whoever calls more often than the process does, which is every second, has rounds of a second all the same.
const ROUND_MIN: Duration = Duration::from_secs(1);

/// What a pass works with.
struct Pass<'p> {
    now: Moment,
    cgroups: &'p Cgroups,
    store: &'p mut Store,
    batch: &'p mut Batch,
    buffer: &'p mut Buffer,
    has_page_cache: bool,
    /// How old a counter may be that a rate is worked out from.
    baseline_age_max: Duration,
}

impl Pass<'_> {
    /// Stores what was collected since the last time; a batch that is refused is dropped, with a word.
    fn commit(&mut self, collector: &'static str) {
        if let Err(error) = self.store.commit(self.now.unix_ms, self.batch) {
            tracing::warn!(collector, %error, "samples were refused");
        }
    }
}

/// All collectors of the node.
pub struct Collectors {
    cgroups: Arc<Cgroups>,
    settings: Settings,
    buffer: Buffer,
    batch: Batch,
    usage: every::Every,
    facts: facts::Collector,
    node: node::Collector,
    pods: pods::Collector,
    best_effort: best_effort::Collector,
    host_apps: host_apps::Collector,
    system: system::Collector,
    pressure: Option<pressure::Collector>,
    cycles: Option<cycles::Collector>,
    cold: Option<cold::Collector>,
    resctrl: Option<resctrl::Collector>,
}

impl Collectors {
    /// Enabling cold pages changes the kernel's settings; [`Collectors::stop`] puts them back.
    pub fn new(root: &Root, cgroups: Arc<Cgroups>, settings: Settings) -> Collectors {
        Collectors {
            usage: every::Every::new(settings.usage_interval),
            facts: facts::Collector::new(root, &settings),
            node: node::Collector::new(root),
            pods: pods::Collector::default(),
            best_effort: best_effort::Collector::new(&cgroups),
            host_apps: host_apps::Collector::default(),
            system: system::Collector::new(settings.outdated_after),
            pressure: settings.has_pressure.then(|| pressure::Collector::new(settings.pressure_interval)),
            cycles: settings
                .has_cycles
                .then(|| cycles::Collector::new(settings.cycles_interval, settings.cycles_window)),
            cold: settings
                .has_cold_pages
                .then(|| cold::Collector::enable(root, settings.cold_interval))
                .flatten(),
            resctrl: settings.has_resctrl.then(|| resctrl::Collector::new(root, settings.resctrl_interval)),
            buffer: Buffer::default(),
            batch: Batch::default(),
            cgroups,
            settings,
        }
    }

    /// The pods of the node, all of them. What is known of a pod that stays is kept.
    pub fn set_pods<'p>(&mut self, pods: impl IntoIterator<Item = &'p Pod>) {
        self.pods.set(&self.cgroups, pods);
    }

    /// The host applications of the NodeSLO; None when there is no NodeSLO.
    pub fn set_applications(&mut self, applications: Option<&[HostApplicationSpec]>, policy: MemoryPolicy) {
        self.host_apps.set(&self.cgroups, applications, policy);
    }

    /// Runs every collector that is due.
    pub fn pass(&mut self, now: Moment, store: &mut Store) {
        let mut pass = Pass {
            now,
            cgroups: &self.cgroups,
            store,
            batch: &mut self.batch,
            buffer: &mut self.buffer,
            has_page_cache: self.settings.has_page_cache,
            baseline_age_max: self
                .settings
                .usage_interval
                .max(ROUND_MIN)
                .saturating_mul(group::BASELINE_ROUNDS_MAX),
        };
        self.facts.run(now.instant, pass.buffer);
        if self.usage.is_due(now.instant) {
            self.node.run(&mut pass, self.facts.facts());
            self.pods.run(&mut pass);
            self.best_effort.run(&mut pass, self.pods.batch_request_milli());
            self.host_apps.run(&mut pass);
            self.system.run(
                &mut pass,
                &self.node,
                self.pods.used(),
                self.host_apps.used(),
                self.pods.numa_used(),
            );
        }
        if let Some(pressure) = &mut self.pressure {
            pressure.run(&mut pass, self.pods.records_mut());
        }
        if let Some(cycles) = &mut self.cycles {
            cycles.run(&mut pass, self.pods.records(), self.facts.facts());
        }
        if let Some(cold) = &mut self.cold {
            cold.run(&mut pass, self.node.memory(), self.pods.records_mut(), self.host_apps.records_mut());
        }
        if let Some(resctrl) = &mut self.resctrl {
            resctrl.run(&mut pass, self.facts.facts());
        }
    }

    /// The enabled collectors that have not had a successful round yet; nothing acts before all have.
    pub fn not_started(&self) -> Vec<&'static str> {
        // Differs: host applications are not waited for, since upstream waits for a NodeSLO forever.
        [
            ("NodeInfoCollector", self.facts.has_started()),
            ("NodeResourceCollector", self.node.used().is_some()),
            ("PodResourceCollector", self.pods.used().is_some()),
            ("BEResourceCollector", self.best_effort.has_started()),
            ("PerformanceCollector", self.pressure.as_ref().is_none_or(|pressure| pressure.has_started())),
            ("PerformanceCollector", self.cycles.as_ref().is_none_or(|cycles| cycles.has_started())),
        ]
        .into_iter()
        .filter(|(_, has_started)| !has_started)
        .map(|(name, _)| name)
        .collect()
    }

    /// What is known of CPUs, NUMA nodes and disks.
    pub fn facts(&self) -> &Facts {
        self.facts.facts()
    }

    /// How often the facts were read, for their counters.
    pub fn rounds(&self) -> &Rounds {
        self.facts.rounds()
    }

    pub fn node_used(&self) -> Option<Usage> {
        self.node.used().map(|(_, usage)| usage)
    }

    /// CPU that best-effort pods use, in milli-cores.
    pub fn best_effort_used_milli(&self) -> Option<i64> {
        self.best_effort.used_milli()
    }

    pub fn applications(&self) -> &[ApplicationReading] {
        self.host_apps.readings()
    }

    /// Pressure of every pod and container at the last round.
    pub fn pressures(&self) -> &[PressureReading] {
        self.pressure.as_ref().map_or(&[], |pressure| pressure.readings())
    }

    /// Cycles and instructions of every container at the last round.
    pub fn cycles(&self) -> &[CyclesReading] {
        self.cycles.as_ref().map_or(&[], |cycles| cycles.readings())
    }

    /// Use of caches and memory bandwidth at the last round.
    pub fn resctrl(&self) -> &[ResctrlReading] {
        self.resctrl.as_ref().map_or(&[], |resctrl| resctrl.readings())
    }

    /// Whether memory is measured with page cache, too.
    pub fn has_page_cache(&self) -> bool {
        self.settings.has_page_cache
    }

    /// Whether cold pages are known, so that hot page cache can be told from cold.
    pub fn has_cold_pages(&self) -> bool {
        self.cold.is_some()
    }

    /// How many pods and containers are measured.
    pub fn groups(&self) -> usize {
        self.pods.records().iter().map(|record| 1 + record.containers.len()).sum()
    }

    /// How often files were opened so far; in the steady state this stands still.
    pub fn opens(&self) -> u64 {
        self.node.opens() + self.pods.opens() + self.best_effort.opens() + self.host_apps.opens()
    }

    /// Puts back what was changed in the kernel.
    pub fn stop(&mut self) {
        if let Some(cold) = self.cold.take() {
            cold.stop();
        }
    }
}

#[cfg(test)]
mod tests;
