//! What the files of one group count, and how they tell it.

use super::sharing::Share;
use super::{File, file};
use crate::nodes::profile::{float, whole};

const SECOND: u64 = 1_000_000_000;
/// Quotas are dealt out in periods of 100 ms.
const PERIOD: u64 = SECOND / 10;
const PAGE: i64 = 4096;
/// Windows of the averages of pressure, in seconds.
const WINDOWS: [f64; 3] = [10.0, 60.0, 300.0];

/// Counters of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) cpu_nanos: u64,
    /// Time under a quota, and time held back by it.
    limited_nanos: u64,
    throttled_nanos: u64,
    /// Time that something waited for a CPU, and its averages in percent.
    waited_nanos: u64,
    waits: [f64; 3],
}

/// Time that so many thousandths of a CPU work while `nanos` pass.
pub(super) fn time(nanos: u64, milli: i64) -> u64 {
    let worked = u128::from(nanos) * u128::from(milli.max(0).unsigned_abs()) / 1000;
    u64::try_from(worked).unwrap_or(u64::MAX)
}

impl Counters {
    pub(super) fn advance(&mut self, nanos: u64, share: &Share) {
        self.cpu_nanos = self.cpu_nanos.saturating_add(time(nanos, share.cpu));
        let lacks = (share.wanted - share.cpu).max(0);
        if share.has_quota {
            self.limited_nanos += nanos;
        }
        if share.is_throttled {
            self.throttled_nanos += time(nanos, lacks);
        }
        let waited = if share.wanted > 0 { float(lacks) / float(share.wanted) } else { 0.0 };
        let seconds = std::time::Duration::from_nanos(nanos).as_secs_f64();
        self.waited_nanos += time(nanos, whole(waited * 1000.0));
        for (average, window) in self.waits.iter_mut().zip(WINDOWS) {
            let weight = (-seconds / window).exp();
            *average = *average * weight + waited * 100.0 * (1.0 - weight);
        }
    }

    /// All files but the one of CPU time, which moves more often.
    pub(super) fn files(&self, group: &str, memory: i64, nodes: u32) -> Vec<File> {
        let throttled = self.throttled_nanos.div_ceil(PERIOD).min(self.limited_nanos / PERIOD);
        let stat = format!(
            "nr_periods {}\nnr_throttled {throttled}\nthrottled_time {}\n",
            self.limited_nanos / PERIOD,
            self.throttled_nanos
        );
        let calm = pressure([0.0; 3], 0);
        vec![
            (file("cpu", group, "cpu.stat"), stat),
            (file("cpuacct", group, "cpu.pressure"), pressure(self.waits, self.waited_nanos / 1000)),
            (file("cpuacct", group, "memory.pressure"), calm.clone()),
            (file("cpuacct", group, "io.pressure"), calm),
            (file("memory", group, "memory.usage_in_bytes"), format!("{memory}\n")),
            (file("memory", group, "memory.stat"), memory_stat(memory)),
            (file("memory", group, "memory.numa_stat"), numa_stat(memory, nodes)),
        ]
    }
}

/// Some wait at times; everybody at once never does.
fn pressure(averages: [f64; 3], total_us: u64) -> String {
    let [ten, sixty, more] = averages;
    format!(
        "some avg10={ten:.2} avg60={sixty:.2} avg300={more:.2} total={total_us}\n\
         full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )
}

/// All of it anonymous: simulated pods read no files.
fn memory_stat(memory: i64) -> String {
    let lines = [
        ("cache", 0),
        ("rss", memory),
        ("mapped_file", 0),
        ("inactive_anon", 0),
        ("active_anon", memory),
        ("inactive_file", 0),
        ("active_file", 0),
        ("unevictable", 0),
    ];
    let own = lines.iter().map(|(key, bytes)| format!("{key} {bytes}\n"));
    own.chain(lines.iter().map(|(key, bytes)| format!("total_{key} {bytes}\n"))).collect()
}

/// The same on every NUMA node.
fn numa_stat(memory: i64, nodes: u32) -> String {
    let pages = memory / PAGE / i64::from(nodes);
    let parts: String = (0..nodes).map(|node| format!(" N{node}={pages}")).collect();
    let all = pages * i64::from(nodes);
    format!(
        "total={all}{parts}\nfile=0{}\nanon={all}{parts}\n",
        (0..nodes).map(|n| format!(" N{n}=0")).collect::<String>()
    )
}
