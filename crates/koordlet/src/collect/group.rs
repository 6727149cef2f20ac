//! One cgroup: its open files, what they told last, and the rates between two readings.

use std::time::{Duration, Instant};

use koord_linux::cgroup::{Cgroups, Dir, Version};
use koord_linux::cpu_stat::{self, Throttling};
use koord_linux::error::{Error, Malformed};
use koord_linux::handle::{Buffer, Handle};
use koord_linux::memory_stat::MemoryStat;
use koord_linux::resource::Resource;

use super::every::Patience;

/// A counter that was not read for so many rounds is no base for a rate. Spec: koordlet-observe 5.1.
pub(super) const BASELINE_ROUNDS_MAX: u32 = 20;

/// Why a group gave nothing this time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error(transparent)]
    File(#[from] Error),
    #[error(transparent)]
    Content(#[from] Malformed),
}

impl Unread {
    /// Whether the group has gone, which is how pods end.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Unread::File(error) if error.is_ignorable())
    }
}

/// What the files of a group hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) usage_ns: u64,
    pub(super) memory: MemoryStat,
    /// None where the kernel does not tell.
    pub(super) throttling: Option<Throttling>,
}

/// What happened since the last reading. None where there is nothing to compare with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) cores: Option<f64>,
    pub(super) throttled: Option<f64>,
}

/// Open files of one group.
#[derive(Debug)]
pub(super) struct Group {
    dir: Dir,
    version: Version,
    /// On v2 the file that tells throttling too.
    usage: Handle,
    throttling: Option<Handle>,
    memory: Handle,
    baseline: Option<Baseline>,
    pub(super) patience: Patience,
}

#[derive(Clone, Copy, Debug)]
struct Baseline {
    at: Instant,
    usage_ns: u64,
    throttling: Option<Throttling>,
}

impl Group {
    pub(super) fn new(cgroups: &Cgroups, dir: Dir) -> Result<Group, Error> {
        let throttling = match cgroups.version() {
            Version::V1 => Some(cgroups.handle(Resource::CpuStat, &dir)?),
            Version::V2 => None,
        };
        Ok(Group {
            version: cgroups.version(),
            usage: cgroups.handle(Resource::CpuacctUsage, &dir)?,
            throttling,
            memory: cgroups.handle(Resource::MemoryStat, &dir)?,
            baseline: None,
            patience: Patience::default(),
            dir,
        })
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// CPU time and memory are required, throttling is not.
    pub(super) fn read(&mut self, buffer: &mut Buffer) -> Result<Reading, Unread> {
        let content = self.usage.read(buffer)?;
        let usage_ns = cpu_stat::usage_ns(self.version, content)?;
        let throttling = match &mut self.throttling {
            None => cpu_stat::throttling(self.version, content).ok(),
            Some(file) => {
                file.read(buffer).ok().and_then(|content| cpu_stat::throttling(self.version, content).ok())
            }
        };
        let memory = MemoryStat::parse(self.version, self.memory.read(buffer)?)?;
        Ok(Reading { usage_ns, memory, throttling })
    }

    /// The same, passing over groups that failed before, with one word in the log when a group begins to fail.
    pub(super) fn read_patiently(&mut self, buffer: &mut Buffer, is_expected: bool) -> Option<Reading> {
        if self.patience.waits() {
            return None;
        }
        match self.read(buffer) {
            Ok(reading) => {
                self.patience.succeeded();
                Some(reading)
            }
            Err(error) => {
                if self.patience.failed() && is_expected && !error.is_missing() {
                    tracing::warn!(group = %self.dir, %error, "a group is not understood");
                }
                None
            }
        }
    }

    /// Rates since the last reading, if that is no older than `age_max`; this one is the base of the next.
    pub(super) fn rates(&mut self, at: Instant, reading: &Reading, age_max: Duration) -> Rates {
        let now = Baseline { at, usage_ns: reading.usage_ns, throttling: reading.throttling };
        let Some(before) = self.baseline.replace(now) else { return Rates::default() };
        let elapsed = at.duration_since(before.at);
        if elapsed > age_max {
            return Rates::default();
        }
        let throttled = reading.throttling.zip(before.throttling);
        Rates {
            cores: cpu_stat::cores(before.usage_ns, reading.usage_ns, elapsed).map(to_millionths),
            throttled: throttled.map(|(now, before)| to_millionths(now.ratio_since(&before))),
        }
    }

    pub(super) fn opens(&self) -> u64 {
        let throttling = self.throttling.as_ref().map_or(0, Handle::opens);
        u64::from(self.usage.opens()) + u64::from(throttling) + u64::from(self.memory.opens())
    }
}

/// The nearest millionth: what lies below is noise of the clock, and costs memory in the store. (Differs: upstream keeps it,
/// so that 1.9999996 cores are told as 1999m and not as 2.)
pub(super) fn to_millionths(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Bytes as a sample.
pub(super) fn bytes(count: u64) -> f64 {
    koord_api::number::nearest(i64::try_from(count).unwrap_or(i64::MAX))
}
