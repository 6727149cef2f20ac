//! What QoS classes use of the last-level cache and of memory bandwidth. Spec: koordlet-observe 5.13, 14 (9).

use std::collections::HashMap;
use std::sync::Arc;

use koord_linux::cpu_info::CpuInfo;
use koord_linux::resctrl::{Resctrl, Usage};
use koord_linux::root::Root;

use crate::store::{AppendError, Batch, Id, Kind, Store};

// Differs: upstream leaves out LSE, which has a group of its own on some nodes.
const GROUPS: [&str; 4] = ["LSE", "LSR", "LS", "BE"];

/// What is measured of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Bytes of cache now.
    Occupancy,
    /// Bytes that went to memory of the same NUMA node, ever growing.
    LocalBandwidth,
    /// Bytes that went to any memory, ever growing.
    TotalBandwidth,
}

impl Measure {
    /// The value of the bandwidth property and label; occupancy has none.
    pub fn bandwidth_type(self) -> Option<&'static str> {
        match self {
            Measure::Occupancy => None,
            Measure::LocalBandwidth => Some("mbm_local_bytes"),
            Measure::TotalBandwidth => Some("mbm_total_bytes"),
        }
    }
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub group: &'static str,
    pub cache: u32,
    pub measure: Measure,
    pub value: f64,
}

/// Whether the CPU can be asked.
pub fn is_supported(cpu: &CpuInfo) -> bool {
    cpu.can_monitor() && ["GenuineIntel", "AuthenticAMD"].contains(&cpu.vendor.as_str())
}

/// The collector of the node's thread.
pub struct ResctrlCollector {
    resctrl: Resctrl,
    series: HashMap<(&'static str, u32, Measure), Id>,
    batch: Batch,
}

impl ResctrlCollector {
    pub fn new(root: &Root) -> ResctrlCollector {
        ResctrlCollector { resctrl: Resctrl::new(root), series: HashMap::new(), batch: Batch::default() }
    }

    /// One round, for the store and, by what is returned, for the metrics. A group that is missing or cannot tell is
    /// left out; without the file system there is nothing.
    pub fn collect(&mut self, store: &mut Store, now_ms: i64) -> Result<Vec<Sample>, AppendError> {
        let samples = self.read();
        for sample in &samples {
            let id = self.series.entry((sample.group, sample.cache, sample.measure)).or_default();
            let id = store.place(id, || {
                let (group, cache): (Arc<str>, Arc<str>) =
                    (sample.group.into(), sample.cache.to_string().into());
                match sample.measure.bandwidth_type() {
                    None => Kind::ResctrlResourceLlc.of([&group, &cache]),
                    Some(kind) => Kind::ResctrlResourceMb.of([&group, &cache, &kind.into()]),
                }
            });
            self.batch.add(id, now_ms, sample.value);
        }
        store.commit(now_ms, &mut self.batch)?;
        Ok(samples)
    }

    fn read(&self) -> Vec<Sample> {
        if self.resctrl.schemata("").is_err() {
            return Vec::new();
        }
        let of_group = |group: &'static str| {
            let caches = self.resctrl.usage(group).unwrap_or_default();
            caches.into_iter().flat_map(move |usage| of_cache(group, usage))
        };
        GROUPS.into_iter().flat_map(of_group).collect()
    }
}

fn of_cache(group: &'static str, usage: Usage) -> impl Iterator<Item = Sample> {
    let values = [
        (Measure::Occupancy, usage.llc_bytes),
        (Measure::LocalBandwidth, usage.local_bytes),
        (Measure::TotalBandwidth, usage.total_bytes),
    ];
    let sample = move |(measure, value): (Measure, Option<u64>)| {
        Some(Sample { group, cache: usage.cache, measure, value: as_f64(value?) })
    };
    values.into_iter().filter_map(sample)
}

#[expect(clippy::cast_precision_loss, reason = "counters stay exact for months and near after that")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::{Aggregate, Limits, Window};

    fn put(root: &Root, path: &str, content: &str) {
        let path = root.resctrl().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn groups_that_tell_are_stored_and_others_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        let mut collector = ResctrlCollector::new(&root);
        let mut store = Store::new(&Limits::default());
        put(&root, "BE/mon_data/mon_L3_00/llc_occupancy", "1024\n");
        assert_eq!(collector.collect(&mut store, 1000).unwrap(), [], "not before schemata can be read");
        put(&root, "schemata", "L3:0=fff;1=fff\nMB:0=100;1=100\n");
        put(&root, "BE/mon_data/mon_L3_00/mbm_local_bytes", "Unavailable\n");
        put(&root, "BE/mon_data/mon_L3_00/mbm_total_bytes", "77\n");
        put(&root, "BE/mon_data/mon_L3_01/llc_occupancy", "Error\n");
        put(&root, "LSE/mon_data/mon_L3_00/llc_occupancy", "4096\n");
        put(&root, "other/mon_data/mon_L3_00/llc_occupancy", "1\n");
        let sample = |group, cache, measure, value| Sample { group, cache, measure, value };
        let want = [
            sample("LSE", 0, Measure::Occupancy, 4096.0),
            sample("BE", 0, Measure::Occupancy, 1024.0),
            sample("BE", 0, Measure::TotalBandwidth, 77.0),
        ];
        assert_eq!(collector.collect(&mut store, 11_000).unwrap(), want);
        let last = |key: crate::store::Key| {
            let points = store.query(&key.into(), Window { start_ms: 0, end_ms: 20_000 });
            points.value(Aggregate::Last).unwrap()
        };
        assert_eq!(last(Kind::ResctrlResourceLlc.of([&"BE".into(), &"0".into()])), 1024.0);
        let total = Kind::ResctrlResourceMb.of([&"BE".into(), &"0".into(), &"mbm_total_bytes".into()]);
        assert_eq!(last(total), 77.0);
    }

    #[test]
    fn watching_needs_no_flags_of_allocation() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        fs::create_dir_all(&root.proc).unwrap();
        for (vendor, flags, want) in [
            ("GenuineIntel", "cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local", true),
            ("AuthenticAMD", "cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local cat_l3 mba", true),
            ("GenuineIntel", "cqm_llc cqm_occup_llc cqm_mbm_total", false),
            ("ARM", "cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local", false),
        ] {
            let content = format!("vendor_id\t: {vendor}\nflags\t\t: {flags}\n");
            fs::write(root.proc.join("cpuinfo"), content).unwrap();
            assert_eq!(is_supported(&CpuInfo::read(&root)), want, "{vendor} {flags}");
        }
    }
}
