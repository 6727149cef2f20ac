//! Applications that run beside the pods. Spec: koordlet-observe 5.12.

use std::sync::Arc;

use koord_api::crd::node_slo::HostApplicationSpec;
use koord_api::qos::Qos;
use koord_linux::cgroup::{Cgroups, Dir, host_app};
use koord_linux::error::Malformed;
use koord_linux::handle::Handle;
use koord_linux::memory_stat;
use koord_linux::resource::Resource;

use super::cold::ColdSlots;
use super::group::{Group, bytes};
use super::{MemoryPolicy, Pass, Shared, Usage};
use crate::store::{Id, Kind};

/// What an application used at the last round.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationReading {
    pub name: Arc<str>,
    pub priority: Arc<str>,
    pub qos: Arc<str>,
    pub usage: Usage,
}

pub(super) struct Record {
    spec: HostApplicationSpec,
    pub(super) name: Arc<str>,
    priority: Arc<str>,
    qos: Arc<str>,
    pub(super) group: Group,
    usage_file: Handle,
    cpu: Id,
    memory: Id,
    page_cache: Id,
    pub(super) cold: Option<Box<ColdSlots>>,
}

#[derive(Default)]
pub(super) struct Collector {
    has_node_slo: bool,
    policy: MemoryPolicy,
    records: Vec<Record>,
    readings: Vec<ApplicationReading>,
    used: Shared<Usage>,
}

impl Collector {
    pub(super) fn set(
        &mut self,
        cgroups: &Cgroups,
        applications: Option<&[HostApplicationSpec]>,
        policy: MemoryPolicy,
    ) {
        self.has_node_slo = applications.is_some();
        self.policy = policy;
        let mut known = std::mem::take(&mut self.records);
        for spec in applications.unwrap_or_default() {
            let at = known.iter().position(|record| record.spec == *spec);
            let record = match at {
                Some(at) => Some(known.swap_remove(at)),
                None => Record::new(cgroups, spec),
            };
            self.records.extend(record);
        }
    }

    pub(super) fn run(&mut self, pass: &mut Pass<'_>) {
        self.readings.clear();
        if !self.has_node_slo {
            return;
        }
        let mut sum = Usage::default();
        for record in &mut self.records {
            let Some((usage, with_page_cache)) = record.run(pass) else { continue };
            sum.cores += usage.cores;
            sum.bytes += match self.policy {
                MemoryPolicy::WithoutPageCache => usage.bytes,
                MemoryPolicy::WithPageCache => with_page_cache,
            };
            self.readings.push(ApplicationReading {
                name: Arc::clone(&record.name),
                priority: Arc::clone(&record.priority),
                qos: Arc::clone(&record.qos),
                usage,
            });
        }
        pass.commit("HostApplicationCollector");
        self.used = Some((pass.now.instant, sum));
    }

    pub(super) fn used(&self) -> Shared<Usage> {
        self.used
    }

    pub(super) fn readings(&self) -> &[ApplicationReading] {
        &self.readings
    }

    pub(super) fn records_mut(&mut self) -> &mut [Record] {
        &mut self.records
    }

    pub(super) fn opens(&self) -> u64 {
        self.records.iter().map(|record| record.group.opens() + u64::from(record.usage_file.opens())).sum()
    }
}

impl Record {
    fn new(cgroups: &Cgroups, spec: &HostApplicationSpec) -> Option<Record> {
        let make = || -> Result<Record, super::group::Unread> {
            let dir = dir(cgroups, spec)?;
            Ok(Record {
                usage_file: cgroups.handle(Resource::MemoryUsage, &dir)?,
                group: Group::new(cgroups, dir)?,
                spec: spec.clone(),
                name: spec.name.as_str().into(),
                priority: spec.priority.as_str().into(),
                qos: spec.qos.as_str().into(),
                cpu: Id::default(),
                memory: Id::default(),
                page_cache: Id::default(),
                cold: None,
            })
        };
        make()
            .inspect_err(
                |error| tracing::warn!(application = spec.name, %error, "a host application is left out"),
            )
            .ok()
    }

    /// What it used, and its memory with page cache.
    fn run(&mut self, pass: &mut Pass<'_>) -> Option<(Usage, f64)> {
        let reading = self.group.read_patiently(pass.buffer, true)?;
        let usage =
            self.usage_file.read(pass.buffer).ok().and_then(|content| memory_stat::usage(content).ok());
        let Some(with_page_cache) = usage else {
            self.group.patience.failed();
            return None;
        };
        let cores = self.group.rates(pass.now.instant, &reading, pass.baseline_age_max).cores?;
        let usage = Usage { cores, bytes: bytes(reading.memory.used()) };
        let with_page_cache = bytes(with_page_cache);
        let name = &self.name;
        for (slot, kind, value) in [
            (&mut self.cpu, Kind::HostApplicationCpuUsage, usage.cores),
            (&mut self.memory, Kind::HostApplicationMemoryUsage, usage.bytes),
            (&mut self.page_cache, Kind::HostApplicationMemoryUsageWithPageCache, with_page_cache),
        ] {
            let id = pass.store.place(slot, || kind.of([name]));
            pass.batch.add(id, pass.now.unix_ms, value);
        }
        Some((usage, with_page_cache))
    }
}

/// Where the application's group lies. A path that is a base itself or leaves it is refused.
fn dir(cgroups: &Cgroups, spec: &HostApplicationSpec) -> Result<Dir, Malformed> {
    let Some(path) = &spec.cgroup_path else {
        return host_app::default_dir(&spec.name, Qos::parse(&spec.qos));
    };
    let base =
        path.base.as_ref().map_or(host_app::Base::CgroupRoot, |base| host_app::Base::parse(base.as_str()));
    host_app::dir(cgroups.driver(), base, &path.parent_dir, &path.relative_path)
}
