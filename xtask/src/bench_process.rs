//! What a process costs, as the kernel counts it.

use std::time::Duration;

use anyhow::{Context, Result};

/// Ticks of the kernel's clock in a second, as /proc counts CPU time.
const TICKS: u32 = 100;

/// CPU time of all threads of a process so far.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may contain blanks.
    let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
    let sum = ticks(11).zip(ticks(12)).map(|(user, system)| user + system).context("no times in stat")?;
    Ok(Duration::from_secs(u64::from(sum)) / TICKS)
}

/// As [`cpu`], to the nanosecond, of the threads that there are now. Ticks are too coarse for what costs next to nothing.
pub(crate) fn cpu_of_threads(pid: u32) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path().join("schedstat");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let nanos = text.split_whitespace().next().and_then(|field| field.parse().ok());
        sum += Duration::from_nanos(nanos.with_context(|| format!("{} holds {text:?}", path.display()))?);
    }
    Ok(sum)
}

/// Resident memory of a process now, in MiB.
pub(crate) fn resident_mib(pid: u32) -> Result<f64> {
    status_mib(pid, "VmRSS:")
}

/// The most that its resident memory has been, in MiB.
pub(crate) fn resident_mib_max(pid: u32) -> Result<f64> {
    status_mib(pid, "VmHWM:")
}

fn status_mib(pid: u32, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib: u32 = line.with_context(|| format!("no {field}"))?.trim().trim_end_matches(" kB").parse()?;
    Ok(f64::from(kib) / 1024.0)
}
