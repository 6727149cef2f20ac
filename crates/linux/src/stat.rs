//! The node's counters: `/proc/stat`, meminfo of node and NUMA nodes, `/proc/diskstats`. Spec: koordlet-observe 2.6.

use std::time::Duration;

use crate::error::Malformed;
use crate::resource::Device;
use crate::text::{lines, number, shown, words};

/// Ticks all CPUs worked: user, nice, system, irq and softirq; waiting, stolen and guest time do not count.
pub fn used_ticks(content: &[u8]) -> Result<u64, Malformed> {
    let line = lines(content).find(|line| words(line).next() == Some(b"cpu"));
    let line = line.ok_or_else(|| Malformed("no line `cpu` in stat".into()))?;
    ticks(line).ok_or_else(|| bad_line(line))
}

/// Ticks of each CPU by its id, put in place of what `into` held.
pub fn used_ticks_per_cpu(content: &[u8], into: &mut Vec<(u32, u64)>) -> Result<(), Malformed> {
    into.clear();
    for line in lines(content) {
        let name = words(line).next().unwrap_or_default();
        let Some(cpu) = name.strip_prefix(b"cpu").filter(|id| !id.is_empty()) else { continue };
        let Some(cpu) = number(cpu) else { continue };
        into.push((cpu, ticks(line).ok_or_else(|| bad_line(line))?));
    }
    if into.is_empty() { Err(Malformed("no line of a single CPU in stat".into())) } else { Ok(()) }
}

fn ticks(line: &[u8]) -> Option<u64> {
    let mut fields = [0u64; 7];
    let mut words = words(line).skip(1);
    for field in &mut fields {
        *field = number(words.next()?)?;
    }
    let [user, nice, system, _idle, _iowait, irq, softirq] = fields;
    Some([nice, system, irq, softirq].into_iter().fold(user, u64::saturating_add))
}

fn bad_line(line: &[u8]) -> Malformed {
    Malformed(format!("cannot parse line {:?} of stat", shown(line)))
}

/// Cores in use between two readings. None when the counter went back or no time passed, so there is no sample.
pub fn cores(before: u64, now: u64, elapsed: Duration, ticks_per_second: u64) -> Option<f64> {
    let ticks = i64::try_from(now.checked_sub(before)?).ok()?;
    let period = elapsed.as_secs_f64() * koord_api::number::nearest(i64::try_from(ticks_per_second).ok()?);
    (period > 0.0).then(|| koord_api::number::nearest(ticks) / period)
}

/// `CLK_TCK` of the host.
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// Bytes of a page of the host.
pub fn page_bytes() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// Of the node or of one NUMA node, in KiB. What is not told is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    pub total_kib: u64,
    pub free_kib: u64,
    /// Kernels before 3.14 do not tell.
    pub available_kib: Option<u64>,
    pub buffers_kib: u64,
    pub cached_kib: u64,
    pub active_file_kib: u64,
    pub inactive_file_kib: u64,
    pub reclaimable_slab_kib: u64,
}

impl MemInfo {
    /// Of `/proc/meminfo`, or of a NUMA node's, whose lines begin with `Node N`.
    pub fn parse(content: &[u8]) -> MemInfo {
        let mut info = MemInfo::default();
        for line in lines(content) {
            let mut words = words(line).peekable();
            if words.peek() == Some(&b"Node".as_slice()) {
                words.nth(1);
            }
            let (Some(key), Some(value)) = (words.next(), words.next()) else { continue };
            let value = number(value).unwrap_or(0);
            match key {
                b"MemTotal:" => info.total_kib = value,
                b"MemFree:" => info.free_kib = value,
                b"MemAvailable:" => info.available_kib = Some(value),
                b"Buffers:" => info.buffers_kib = value,
                b"Cached:" => info.cached_kib = value,
                b"Active(file):" => info.active_file_kib = value,
                b"Inactive(file):" => info.inactive_file_kib = value,
                b"SReclaimable:" => info.reclaimable_slab_kib = value,
                _ => {}
            }
        }
        info
    }

    pub fn total_bytes(&self) -> u64 {
        self.total_kib.saturating_mul(1024)
    }

    /// What is not available.
    pub fn used_bytes(&self) -> u64 {
        // Differs: upstream counts everything as used where the kernel does not tell, and wraps below 0.
        let available = self.available_kib.unwrap_or_else(|| {
            self.free_kib.saturating_add(self.buffers_kib).saturating_add(self.cached_kib)
        });
        self.total_kib.saturating_sub(available).saturating_mul(1024)
    }

    pub fn used_with_page_cache_bytes(&self) -> u64 {
        self.total_kib.saturating_sub(self.free_kib).saturating_mul(1024)
    }

    /// Of a NUMA node, which does not tell what is available.
    pub fn numa_used_bytes(&self) -> u64 {
        let given_back = [self.active_file_kib, self.inactive_file_kib, self.reclaimable_slab_kib];
        let available = given_back.into_iter().fold(self.free_kib, u64::saturating_add);
        self.total_kib.saturating_sub(available).saturating_mul(1024)
    }
}

/// Work of one disk or partition since boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStat {
    pub device: Device,
    pub name: String,
    pub reads: u64,
    pub read_sectors: u64,
    pub read_ms: u64,
    pub writes: u64,
    pub written_sectors: u64,
    pub write_ms: u64,
    pub in_flight: u64,
    pub busy_ms: u64,
}

/// Of `/proc/diskstats`; odd lines are passed over.
pub fn disks(content: &[u8]) -> Vec<DiskStat> {
    lines(content).filter_map(disk).collect()
}

fn disk(line: &[u8]) -> Option<DiskStat> {
    let mut words = words(line);
    let device = Device { major: number(words.next()?)?, minor: number(words.next()?)? };
    let name = shown(words.next()?);
    let mut fields = [0u64; 10];
    for field in &mut fields {
        *field = number(words.next()?)?;
    }
    let [reads, _, read_sectors, read_ms, writes, _, written_sectors, write_ms, in_flight, busy_ms] = fields;
    Some(DiskStat {
        device,
        name,
        reads,
        read_sectors,
        read_ms,
        writes,
        written_sectors,
        write_ms,
        in_flight,
        busy_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_work() {
        // koordlet-observe#13.2.B1
        assert_eq!(used_ticks(b"cpu  100 0 50 1000 10 5 5 0 0 0\ncpu0 1 1 1 1 1 1 1\n"), Ok(160));
        // koordlet-observe#13.2.B3
        assert!(used_ticks(b"cpu 1 2 3\n").is_err());
        assert!(used_ticks(b"intr 5\n").is_err());
    }

    #[test]
    fn ticks_of_each_cpu() {
        let mut ticks = vec![(9, 9)];
        used_ticks_per_cpu(
            b"cpu 9 9 9 9 9 9 9\ncpu0 1 0 1 7 7 1 1 5\ncpu12 2 0 0 0 0 0 0\nintr 1\n",
            &mut ticks,
        )
        .unwrap();
        assert_eq!(ticks, [(0, 4), (12, 2)]);
        assert!(used_ticks_per_cpu(b"cpu 9 9 9 9 9 9 9\n", &mut ticks).is_err());
    }

    #[test]
    fn cores_between_readings() {
        let second = Duration::from_secs(1);
        // koordlet-observe#13.2.B2
        assert_eq!(cores(1000, 1650, second, 100), Some(6.5));
        // koordlet-observe#13.2.B42
        assert_eq!(cores(1000, 999, second, 100), None);
        assert_eq!(cores(1000, 1001, Duration::ZERO, 100), None);
    }

    #[test]
    fn memory_of_the_node() {
        // koordlet-observe#13.2.B4
        let info =
            MemInfo::parse(b"MemTotal: 2000000 kB\nMemFree: 800000 kB\nMemAvailable: 1000000 kB\nOdd:\n");
        assert_eq!(info.used_bytes(), 1_024_000_000);
        assert_eq!(info.used_with_page_cache_bytes(), 1_228_800_000);
        // koordlet-observe#13.2.B41
        assert_eq!(MemInfo::parse(b"MemTotal: 2000 kB\n").used_bytes(), 2_048_000);
        assert_eq!(MemInfo::parse(b"MemTotal: 2000 kB\nMemAvailable: 3000 kB\n").used_bytes(), 0);
        let old = MemInfo::parse(b"MemTotal: 2000 kB\nMemFree: 500 kB\nBuffers: 100 kB\nCached: 400 kB\n");
        assert_eq!(old.used_bytes(), 1000 * 1024);
        assert_eq!(MemInfo::parse(b"MemTotal: x kB\n").total_bytes(), 0);
    }

    #[test]
    fn memory_of_a_numa_node() {
        // koordlet-observe#13.2.B32
        let info = MemInfo::parse(
            b"Node 0 MemTotal: 1000000 kB\nNode 0 MemFree: 400000 kB\nNode 0 Active(file): 100000 kB\n\
              Node 0 Inactive(file): 50000 kB\nNode 0 SReclaimable: 10000 kB\n",
        );
        assert_eq!(info.numa_used_bytes(), 450_560_000);
        assert_eq!(MemInfo { free_kib: 990_000, ..info }.numa_used_bytes(), 0);
    }

    #[test]
    fn disk_counters() {
        let text = b" 253       0 vda 10 1 200 30 40 2 500 60 0 70 90 0 0\n 7 0 loop0 short\n";
        let found = disks(text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].device.to_string()), ("vda", "253:0".to_owned()));
        assert_eq!(
            (found[0].reads, found[0].read_sectors, found[0].written_sectors, found[0].busy_ms),
            (10, 200, 500, 70)
        );
    }
}
