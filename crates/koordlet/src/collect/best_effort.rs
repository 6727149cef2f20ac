//! CPU of all best-effort pods together: what they use, may use and ask for, in milli-cores. Spec: koordlet-observe 5.4.

use std::sync::Arc;
use std::time::Instant;

use koord_api::number::{nearest, truncated};
use koord_api::qos::KubeQos;
use koord_linux::cgroup::{Cgroups, Dir, Listing, Version, cpu_count};
use koord_linux::cpu_stat;
use koord_linux::handle::{Buffer, Handle};
use koord_linux::resource::Resource;

use super::Pass;
use super::group::Unread;
use crate::store::{Id, Kind};

/// The open files of the group of best-effort pods.
struct Files {
    usage: Handle,
    quota: Handle,
    /// On v2 the file of the quota tells the period too.
    period: Option<Handle>,
    cpus: Handle,
}

pub(super) struct Collector {
    files: Option<Files>,
    version: Version,
    /// The pods, and the containers of each: sandboxes may have all CPUs, so that only the smallest set counts.
    pods: Listing,
    containers: Vec<(Listing, Vec<Handle>)>,
    before: Option<(Instant, u64)>,
    used_milli: Option<i64>,
    is_failing: bool,
    slots: [(Arc<str>, Id); 3],
}

impl Collector {
    pub(super) fn new(cgroups: &Cgroups) -> Collector {
        let dir = cgroups.qos_dir(KubeQos::BestEffort);
        let allocation = |name: &str| (Arc::from(name), Id::default());
        Collector {
            files: files(cgroups, &dir),
            version: cgroups.version(),
            pods: Listing::new(cgroups, dir),
            containers: Vec::new(),
            before: None,
            used_milli: None,
            is_failing: false,
            slots: ["usage", "real-limit", "request"].map(allocation),
        }
    }

    pub(super) fn run(&mut self, pass: &mut Pass<'_>, request_milli: i64) {
        match self.read(pass) {
            Ok((usage, limit)) => {
                self.is_failing = false;
                self.used_milli = usage.or(self.used_milli);
                self.add(pass, [usage, Some(limit), Some(request_milli)]);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "the group of best-effort pods cannot be measured");
                }
            }
        }
        pass.commit("BEResourceCollector");
    }

    /// What is used, None when that cannot be told now, and the limit.
    fn read(&mut self, pass: &mut Pass<'_>) -> Result<(Option<i64>, i64), Unread> {
        let version = self.version;
        self.follow(pass.cgroups)?;
        let smallest = self.smallest_set(pass.buffer);
        let unsupported = || koord_linux::error::Malformed("this kernel has no CPU control".into());
        let files = self.files.as_mut().ok_or_else(unsupported)?;
        let own = cpu_count(files.cpus.read(pass.buffer)?)?;
        let cpus = smallest.map_or(own, |smallest| own.min(smallest));
        let content = files.quota.read(pass.buffer)?;
        let quota = cpu_stat::quota_us(version, content)?;
        let period = match &mut files.period {
            None => cpu_stat::period_us(version, content)?,
            Some(file) => cpu_stat::period_us(version, file.read(pass.buffer)?)?,
        };
        let usage_ns = cpu_stat::usage_ns(version, files.usage.read(pass.buffer)?)?;
        let now = pass.now.instant;
        let usage = match self.before.replace((now, usage_ns)) {
            None => Some(0),
            Some((at, before)) => used_milli(before, usage_ns, now.duration_since(at).as_millis()),
        };
        Ok((usage, limit_milli(cpus, quota, period)))
    }

    /// Follows pods and containers that come and go.
    fn follow(&mut self, cgroups: &Cgroups) -> Result<(), Unread> {
        let odd = |error: std::io::Error| koord_linux::error::Malformed(error.to_string());
        if self.pods.refresh(cgroups).map_err(odd)? {
            let dirs: Vec<Dir> = self.pods.names().iter().map(|name| self.pods.dir().child(name)).collect();
            self.containers.retain(|(listing, _)| dirs.contains(listing.dir()));
            for dir in dirs {
                if !self.containers.iter().any(|(listing, _)| *listing.dir() == dir) {
                    self.containers.push((Listing::new(cgroups, dir), Vec::new()));
                }
            }
        }
        for (listing, handles) in &mut self.containers {
            if listing.refresh(cgroups).map_err(odd)? {
                let dirs = listing.names().iter().map(|name| listing.dir().child(name));
                *handles = dirs.filter_map(|dir| cgroups.handle(Resource::CpusetCpus, &dir).ok()).collect();
            }
        }
        Ok(())
    }

    /// The smallest CPU set of any container; None without containers.
    fn smallest_set(&mut self, buffer: &mut Buffer) -> Option<u32> {
        let mut smallest = None;
        for (_, handles) in &mut self.containers {
            // Differs: a container that ends meanwhile does not cost the round, nor does one whose set is not written
            // yet make the limit 0.
            handles.retain_mut(|handle| {
                let Ok(content) = handle.read(buffer) else { return false };
                if let Some(count) = cpu_count(content).ok().filter(|count| *count > 0) {
                    smallest = Some(smallest.map_or(count, |known: u32| known.min(count)));
                }
                true
            });
        }
        smallest
    }

    /// In the order of the slots: usage, limit, request.
    fn add(&mut self, pass: &mut Pass<'_>, values: [Option<i64>; 3]) {
        for ((name, slot), value) in self.slots.iter_mut().zip(values) {
            let Some(value) = value else { continue };
            let id = pass.store.place(slot, || Kind::NodeBe.of([&Arc::from("cpu"), name]));
            pass.batch.add(id, pass.now.unix_ms, nearest(value));
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.used_milli.is_some()
    }

    pub(super) fn used_milli(&self) -> Option<i64> {
        self.used_milli
    }

    pub(super) fn opens(&self) -> u64 {
        let containers = self.containers.iter().flat_map(|(_, handles)| handles);
        let files = self.files.iter().flat_map(|files| {
            [Some(&files.usage), Some(&files.quota), files.period.as_ref(), Some(&files.cpus)]
                .into_iter()
                .flatten()
        });
        containers.chain(files).map(|handle| u64::from(handle.opens())).sum()
    }
}

fn files(cgroups: &Cgroups, dir: &Dir) -> Option<Files> {
    let handle = |resource| cgroups.handle(resource, dir).ok();
    let period = match cgroups.version() {
        Version::V1 => Some(handle(Resource::CfsPeriodUs)?),
        Version::V2 => None,
    };
    Some(Files {
        usage: handle(Resource::CpuacctUsage)?,
        quota: handle(Resource::CfsQuotaUs)?,
        period,
        cpus: handle(Resource::CpusetCpus)?,
    })
}

/// What the CPU set and the quota allow.
fn limit_milli(cpus: u32, quota_us: i64, period_us: i64) -> i64 {
    let of_cpus = i64::from(cpus) * 1000;
    if quota_us == -1 || period_us <= 0 {
        return of_cpus;
    }
    of_cpus.min(quota_us.saturating_mul(1000) / period_us)
}

/// Whole milliseconds of CPU time, by the milliseconds that passed. None when none did or the counter went back.
fn used_milli(before_ns: u64, now_ns: u64, elapsed_ms: u128) -> Option<i64> {
    let used_ms = i64::try_from(now_ns.checked_sub(before_ns)? / 1_000_000).ok()?;
    let elapsed_ms = i64::try_from(elapsed_ms).ok().filter(|elapsed| *elapsed > 0)?;
    Some(truncated(nearest(used_ms) / nearest(elapsed_ms) * 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        for (name, cpus, quota, period, want) in [
            ("koordlet-observe#13.2.B10", 4, -1, 100_000, 4000),
            ("koordlet-observe#13.2.B11", 4, 300_000, 100_000, 3000),
            ("koordlet-observe#13.2.B35", 4, 333_333, 100_000, 3333),
            ("quota 0", 4, 0, 100_000, 0),
            ("odd period", 4, 5, 0, 4000),
        ] {
            assert_eq!(limit_milli(cpus, quota, period), want, "{name}");
        }
    }

    #[test]
    fn usage() {
        // koordlet-observe#13.2.B12
        assert_eq!(used_milli(0, 2_500_000_000, 1000), Some(2500));
        assert_eq!(used_milli(0, 2_500_000_000, 0), None);
        assert_eq!(used_milli(5, 4, 1000), None);
    }
}
