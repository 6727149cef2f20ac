//! Cycles and instructions of a group, counted by the CPU. Spec: koordlet-observe 5.10.

use std::fs::File;
use std::io;
use std::path::Path;

use koord_api::cpuset::CpuSet;
use perf_event::events::Hardware;
use perf_event::{Builder, Counter, ReadFormat};

/// What a group did since its counters were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    pub cycles: u64,
    pub instructions: u64,
}

/// One pair of counters per CPU, running from the start. Closed when dropped.
#[derive(Debug)]
pub struct CycleCounters {
    pairs: Vec<Pair>,
}

#[derive(Debug)]
struct Pair {
    /// Leads: one read gives both.
    cycles: Counter,
    instructions: Counter,
}

impl CycleCounters {
    /// `group` is the directory that [`crate::cgroup::Cgroups::perf_group`] gives. Only CPUs that the group may use
    /// need counters, each two open files.
    pub fn open(group: &Path, cpus: &CpuSet) -> io::Result<CycleCounters> {
        let directory = File::open(group)?;
        let pairs = cpus.iter().map(|cpu| Pair::open(&directory, cpu)).collect::<io::Result<_>>()?;
        Ok(CycleCounters { pairs })
    }

    /// The sum over all CPUs.
    pub fn read(&mut self) -> io::Result<Cycles> {
        let mut sum = Cycles::default();
        for pair in &mut self.pairs {
            let one = pair.read()?;
            sum.cycles = sum.cycles.saturating_add(one.cycles);
            sum.instructions = sum.instructions.saturating_add(one.instructions);
        }
        Ok(sum)
    }
}

impl Pair {
    fn open(directory: &File, cpu: u32) -> io::Result<Pair> {
        let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
        let builder = |event: Hardware| {
            let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
            let mut builder = Builder::new(event);
            builder
                .observe_cgroup(directory)
                .one_cpu(cpu)
                .include_kernel()
                .read_format(ReadFormat::GROUP | times);
            builder
        };
        let mut cycles = builder(Hardware::CPU_CYCLES).build_group()?.into_counter();
        let instructions = builder(Hardware::INSTRUCTIONS).build_with_group(&mut cycles)?;
        cycles.enable_group()?;
        Ok(Pair { cycles, instructions })
    }

    fn read(&mut self) -> io::Result<Cycles> {
        let data = self.cycles.read_group()?;
        let enabled = data.time_enabled().unwrap_or_default().as_nanos();
        let running = data.time_running().unwrap_or_default().as_nanos();
        let count =
            |counter: &Counter| data.get(counter).map_or(0, |entry| scaled(entry.value(), enabled, running));
        Ok(Cycles { cycles: count(&self.cycles), instructions: count(&self.instructions) })
    }
}

/// What would have been counted, had the counter run all the time: there are fewer counters than events.
fn scaled(count: u64, enabled: u128, running: u128) -> u64 {
    if enabled == 0 || running == 0 {
        return count;
    }
    u64::try_from(u128::from(count).saturating_mul(enabled) / running).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_counters_are_scaled() {
        // koordlet-observe#13.2.B25
        assert_eq!(scaled(100, 10, 5), 200);
        assert_eq!(scaled(100, 10, 10), 100);
        assert_eq!((scaled(100, 0, 5), scaled(100, 10, 0)), (100, 100));
        assert_eq!(scaled(u64::MAX, 10, 1), u64::MAX);
    }

    #[test]
    fn what_is_no_group_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(CycleCounters::open(&dir.path().join("gone"), &CpuSet::range(0..=0)).is_err());
        assert!(CycleCounters::open(dir.path(), &CpuSet::range(0..=0)).is_err());
        assert_eq!(
            CycleCounters::open(dir.path(), &CpuSet::new()).unwrap().read().unwrap(),
            Cycles::default()
        );
    }
}
