//! What QoS classes use of the last-level cache and of memory bandwidth. Spec: koordlet-observe 5.13, 14 (9).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use koord_linux::cpu_info::CpuInfo;
use koord_linux::resctrl::{Resctrl, Usage};
use koord_linux::root::Root;

use super::Pass;
use super::every::Every;
use super::facts::Facts;
use crate::store::{Id, Kind};

// Differs: upstream leaves out LSE, which has a group of its own on some nodes.
const GROUPS: [&str; 4] = ["LSE", "LSR", "LS", "BE"];
/// Makers whose counters are known.
const VENDORS: [&str; 2] = ["GenuineIntel", "AuthenticAMD"];

/// What is measured of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResctrlMeasure {
    /// Bytes of cache now.
    Occupancy,
    /// Bytes that went to memory of the same NUMA node, ever growing.
    LocalBandwidth,
    /// Bytes that went to any memory, ever growing.
    TotalBandwidth,
}

impl ResctrlMeasure {
    /// The value of the property and of the label for bandwidth; occupancy has none.
    pub fn bandwidth_type(self) -> Option<&'static str> {
        match self {
            ResctrlMeasure::Occupancy => None,
            ResctrlMeasure::LocalBandwidth => Some("mbm_local_bytes"),
            ResctrlMeasure::TotalBandwidth => Some("mbm_total_bytes"),
        }
    }
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResctrlReading {
    pub group: &'static str,
    pub cache: u32,
    pub measure: ResctrlMeasure,
    pub value: f64,
}

pub(super) struct Collector {
    every: Every,
    resctrl: Resctrl,
    series: HashMap<(&'static str, u32, ResctrlMeasure), Id>,
    readings: Vec<ResctrlReading>,
}

impl Collector {
    pub(super) fn new(root: &Root, interval: Duration) -> Collector {
        Collector {
            every: Every::new(interval),
            resctrl: Resctrl::new(root),
            series: HashMap::new(),
            readings: Vec::new(),
        }
    }

    /// A group that is missing or cannot tell is left out; without the file system, or on another CPU, there is nothing.
    pub(super) fn run(&mut self, pass: &mut Pass<'_>, facts: &Facts) {
        let is_supported = facts.cpu.as_ref().is_some_and(|cpu| is_supported(&cpu.info));
        if !is_supported || !self.every.is_due(pass.now.instant) {
            return;
        }
        self.readings = self.read();
        for reading in &self.readings {
            let id = self.series.entry((reading.group, reading.cache, reading.measure)).or_default();
            let id = pass.store.place(id, || {
                let group: Arc<str> = reading.group.into();
                let cache: Arc<str> = reading.cache.to_string().into();
                match reading.measure.bandwidth_type() {
                    None => Kind::ResctrlResourceLlc.of([&group, &cache]),
                    Some(kind) => Kind::ResctrlResourceMb.of([&group, &cache, &kind.into()]),
                }
            });
            pass.batch.add(id, pass.now.unix_ms, reading.value);
        }
        pass.commit("resctrlCollector");
    }

    pub(super) fn readings(&self) -> &[ResctrlReading] {
        &self.readings
    }

    fn read(&self) -> Vec<ResctrlReading> {
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

fn is_supported(cpu: &CpuInfo) -> bool {
    cpu.can_monitor() && VENDORS.contains(&cpu.vendor.as_str())
}

fn of_cache(group: &'static str, usage: Usage) -> impl Iterator<Item = ResctrlReading> {
    let values = [
        (ResctrlMeasure::Occupancy, usage.llc_bytes),
        (ResctrlMeasure::LocalBandwidth, usage.local_bytes),
        (ResctrlMeasure::TotalBandwidth, usage.total_bytes),
    ];
    let reading = move |(measure, value): (ResctrlMeasure, Option<u64>)| {
        Some(ResctrlReading { group, cache: usage.cache, measure, value: as_f64(value?) })
    };
    values.into_iter().filter_map(reading)
}

#[expect(clippy::cast_precision_loss, reason = "counters stay exact for months and near after that")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use koord_linux::cgroup::{Cgroups, Driver, Version};
    use koord_linux::handle::Buffer;

    use super::super::Moment;
    use super::super::facts::CpuFacts;
    use super::*;
    use crate::store::{Aggregate, Batch, Key, Limits, Store, Window};

    const FLAGS: &str = "cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local";

    fn put(root: &Root, path: &str, content: &str) {
        let path = root.resctrl().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn cpu(root: &Root, vendor: &str, flags: &str) -> CpuInfo {
        fs::create_dir_all(&root.proc).unwrap();
        let content = format!("vendor_id\t: {vendor}\nflags\t\t: {flags}\n");
        fs::write(root.proc.join("cpuinfo"), content).unwrap();
        CpuInfo::read(root)
    }

    #[test]
    fn groups_that_tell_are_stored_and_others_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        let cpu = CpuFacts::new(cpu(&root, "GenuineIntel", FLAGS), Vec::new());
        let facts = Facts { cpu: Some(Arc::new(cpu)), ..Facts::default() };
        let cgroups = Cgroups::new(&root, Version::V2, Driver::Cgroupfs);
        let (mut store, mut batch, mut buffer) =
            (Store::new(&Limits::default()), Batch::default(), Buffer::default());
        let mut collector = Collector::new(&root, Duration::from_secs(10));
        let start = Instant::now();
        let mut run = |collector: &mut Collector, facts: &Facts, store: &mut Store, seconds: u64| {
            let now = Moment {
                unix_ms: i64::try_from(seconds * 1000).unwrap(),
                instant: start + Duration::from_secs(seconds),
            };
            let (batch, buffer) = (&mut batch, &mut buffer);
            let mut pass = Pass {
                now,
                cgroups: &cgroups,
                store,
                batch,
                buffer,
                has_page_cache: false,
                baseline_age_max: Duration::ZERO,
            };
            collector.run(&mut pass, facts);
        };
        put(&root, "BE/mon_data/mon_L3_00/llc_occupancy", "1024\n");
        run(&mut collector, &facts, &mut store, 1);
        assert_eq!(collector.readings(), [], "not before schemata can be read");
        put(&root, "schemata", "L3:0=fff;1=fff\nMB:0=100;1=100\n");
        put(&root, "BE/mon_data/mon_L3_00/mbm_local_bytes", "Unavailable\n");
        put(&root, "BE/mon_data/mon_L3_00/mbm_total_bytes", "77\n");
        put(&root, "BE/mon_data/mon_L3_01/llc_occupancy", "Error\n");
        put(&root, "LSE/mon_data/mon_L3_00/llc_occupancy", "4096\n");
        put(&root, "other/mon_data/mon_L3_00/llc_occupancy", "1\n");
        run(&mut collector, &facts, &mut store, 5);
        assert_eq!(collector.readings(), [], "not before the interval has passed");
        run(&mut collector, &Facts::default(), &mut store, 11);
        assert_eq!(collector.readings(), [], "not before the CPU is known");
        run(&mut collector, &facts, &mut store, 11);
        let reading = |group, measure, value| ResctrlReading { group, cache: 0, measure, value };
        let want = [
            reading("LSE", ResctrlMeasure::Occupancy, 4096.0),
            reading("BE", ResctrlMeasure::Occupancy, 1024.0),
            reading("BE", ResctrlMeasure::TotalBandwidth, 77.0),
        ];
        assert_eq!(collector.readings(), want);
        let last = |key: Key| {
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
        for (vendor, flags, want) in [
            ("GenuineIntel", FLAGS.to_owned(), true),
            ("AuthenticAMD", format!("{FLAGS} cat_l3 mba"), true),
            ("GenuineIntel", "cqm_llc cqm_occup_llc cqm_mbm_total".to_owned(), false),
            ("ARM", FLAGS.to_owned(), false),
        ] {
            assert_eq!(is_supported(&cpu(&root, vendor, &flags)), want, "{vendor} {flags}");
        }
    }
}
