//! Block I/O QoS: limits and weights of disks for best-effort pods, single pods and the whole machine.
//!
//! A block names a disk in one of three ways (`disks`); disks that are no longer named get their defaults back.
//! What the files hold already is not wished for again. Spec: koordlet-enforce 11, 3.4.

pub mod disks;

use std::collections::{BTreeMap, BTreeSet};

use koord_api::crd::node_slo::{BlkioQos, BlockCfg, IoCfg, ResourceQos, ResourceQosStrategy};
use koord_api::qos::KubeQos;

use super::snapshot::{Phase, Pod};
use super::wish::{Cause, Disk, File, Place, Value, Wish};
use disks::{Disks, ResolveError};

/// The files of pods and classes, in the order they are written.
pub const GROUP_FILES: [File; 5] =
    [File::BlkioReadIops, File::BlkioReadBps, File::BlkioWriteIops, File::BlkioWriteBps, File::BlkioWeight];

/// Weight of a disk that nobody configured.
const WEIGHT_DEFAULT: i64 = 100;
const LATENCY_DEFAULT_US: i64 = 3000;
const LATENCY_PERCENT_DEFAULT: i64 = 95;

/// What files of a group hold now; a file that is not there has no entry.
pub type Present = BTreeMap<File, String>;

/// Files of all groups that may have limits.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub groups: BTreeMap<Place, Present>,
    /// v2: a kernel without cost control has no weights, and limits all the same.
    pub is_weight_optional: bool,
}

/// What a cycle wants, and what it could not do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub wishes: Vec<Wish>,
    pub problems: Vec<(Place, Problem)>,
}

/// Why a group, or one of its files, is left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error("{0} cannot be read")]
    Unreadable(&'static str),
    #[error("{file}: {disk} {value} is out of range")]
    OutOfRange { file: &'static str, disk: Disk, value: i64 },
    #[error("blkio of class {0} is not supported")]
    ClassWithoutBlkio(&'static str),
}

/// One cycle: the class of best-effort pods, the root, then pods.
pub fn plan(strategy: &ResourceQosStrategy, pods: &[Pod], disks: &Disks, files: &Files) -> Plan {
    let mut plan = Plan::default();
    let blocks = |class: Option<&ResourceQos>| {
        class.and_then(|class| class.blkio_qos.as_ref()).map_or_else(Vec::new, enabled)
    };
    for (name, class) in [("LSR", &strategy.lsr_class), ("LS", &strategy.ls_class)] {
        if !blocks(class.as_ref()).is_empty() {
            plan.problems.push((Place::CgroupRoot, Problem::ClassWithoutBlkio(name)));
        }
    }
    let place = Place::Kube(KubeQos::BestEffort);
    let best_effort = blocks(strategy.be_class.as_ref());
    plan.group(place, &best_effort, None, disks, files);
    plan.root(&blocks(strategy.cgroup_root.as_ref()), disks, files);
    for pod in pods.iter().filter(|pod| pod.phase == Phase::Running && pod.qos.is_some()) {
        if let Ok(Some(own)) = &pod.blkio_qos {
            plan.group(pod.place(), &own.blocks, Some(pod), disks, files);
        }
    }
    plan
}

/// Switched off is the same as no blocks.
fn enabled(blkio: &BlkioQos) -> Vec<BlockCfg> {
    if blkio.enable == Some(true) { blkio.blocks.clone() } else { Vec::new() }
}

impl Plan {
    /// Limits and weights of one group. One block that names no disk spoils the whole group.
    fn group(&mut self, place: Place, blocks: &[BlockCfg], pod: Option<&Pod>, disks: &Disks, files: &Files) {
        let Some(present) = files.groups.get(&place) else { return };
        let wanted = match wanted_by_disk(blocks, pod, disks) {
            Ok(wanted) => wanted,
            Err(error) => return self.problems.push((place, error.into())),
        };
        let is_missing = |file: File| {
            files.is_weight_optional && file == File::BlkioWeight && !present.contains_key(&file)
        };
        let mut found: BTreeSet<Disk> = BTreeSet::new();
        for file in GROUP_FILES.into_iter().filter(|file| !is_missing(*file)) {
            match present.get(&file).and_then(|text| listed_disks(text)) {
                Some(disks) => found.extend(disks),
                None => return self.problems.push((place, Problem::Unreadable(file.name()))),
            }
        }
        found.retain(|disk| !wanted.iter().any(|(named, _)| named == disk));
        let gone = found.into_iter().map(|disk| (disk, IoCfg::default()));
        for (disk, config) in wanted.into_iter().chain(gone) {
            for (file, value, least) in group_values(&config) {
                if is_missing(file) {
                    continue;
                }
                self.line(&place, file, disk, value, least, present);
            }
        }
    }

    /// One disk's line in one file, unless it is there already.
    fn line(&mut self, place: &Place, file: File, disk: Disk, value: i64, least: i64, present: &Present) {
        let is_weight = file == File::BlkioWeight;
        if value < least || (is_weight && value > 100) {
            let problem = Problem::OutOfRange { file: file.name(), disk, value };
            return self.problems.push((place.clone(), problem));
        }
        let text = present.get(&file).map_or("", String::as_str);
        let mut lines = text.lines().map(str::trim_end);
        let line = format!("{disk} {value}");
        let is_there = if value == 0 {
            // 0 takes a line away.
            !lines.any(|present| present.starts_with(&format!("{disk} ")))
        } else {
            lines.any(|present| present == line)
        };
        if !is_there {
            self.wish(place, file, disk, value.to_string());
        }
    }

    /// Latency targets and models of disks for the whole machine.
    fn root(&mut self, blocks: &[BlockCfg], disks: &Disks, files: &Files) {
        let place = Place::CgroupRoot;
        let Some(present) = files.groups.get(&place) else { return };
        let wanted = match wanted_by_disk(blocks, None, disks) {
            Ok(wanted) => wanted,
            Err(error) => return self.problems.push((place, error.into())),
        };
        let text = present.get(&File::BlkioCostQos).map_or("", String::as_str);
        let found = text.lines().filter_map(|line| Disk::parse(line.split(' ').next()?));
        for (disk, config) in &wanted {
            self.wish(&place, File::BlkioCostQos, *disk, cost_qos(config));
            match cost_model(config) {
                Ok(model) => self.wish(&place, File::BlkioCostModel, *disk, model),
                Err(value) => {
                    let file = File::BlkioCostModel.name();
                    self.problems.push((place.clone(), Problem::OutOfRange { file, disk: *disk, value }));
                }
            }
        }
        for disk in found.filter(|disk| !wanted.iter().any(|(named, _)| named == disk)) {
            self.wish(&place, File::BlkioCostQos, disk, "enable=0".to_owned());
        }
    }

    fn wish(&mut self, place: &Place, file: File, disk: Disk, setting: String) {
        let value = Value::Disk(disk, setting);
        self.wishes.push(Wish::new(place.clone(), file, value, Cause::BlockIo));
    }
}

/// The disks that blocks name, in their order.
fn wanted_by_disk(
    blocks: &[BlockCfg],
    pod: Option<&Pod>,
    disks: &Disks,
) -> Result<Vec<(Disk, IoCfg)>, ResolveError> {
    let of = |block: &BlockCfg| Ok((disks.resolve(block, pod)?, block.io_cfg.clone().unwrap_or_default()));
    blocks.iter().map(of).collect()
}

/// The disks that a file has lines for; none when a line does not have two words.
fn listed_disks(text: &str) -> Option<Vec<Disk>> {
    let mut disks = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let (name, _, None) = (words.next()?, words.next()?, words.next()) else { return None };
        disks.extend(Disk::parse(name));
    }
    Some(disks)
}

/// Value of each file and the least it may be.
fn group_values(config: &IoCfg) -> [(File, i64, i64); 5] {
    let values = [
        config.read_iops.unwrap_or(0),
        config.read_bps.unwrap_or(0),
        config.write_iops.unwrap_or(0),
        config.write_bps.unwrap_or(0),
        config.io_weight_percent.unwrap_or(WEIGHT_DEFAULT),
    ];
    std::array::from_fn(|at| (GROUP_FILES[at], values[at], i64::from(GROUP_FILES[at] == File::BlkioWeight)))
}

fn cost_qos(config: &IoCfg) -> String {
    let percent = |value: Option<i64>| value.unwrap_or(LATENCY_PERCENT_DEFAULT);
    let latency = |value: Option<i64>| value.unwrap_or(LATENCY_DEFAULT_US);
    format!(
        "enable=1 ctrl=user rpct={} rlat={} wpct={} wlat={}",
        percent(config.read_latency_percent),
        latency(config.read_latency),
        percent(config.write_latency_percent),
        latency(config.write_latency),
    )
}

/// The model of a disk; the value that the kernel would refuse when one is missing.
fn cost_model(config: &IoCfg) -> Result<String, i64> {
    if config.enable_user_model != Some(true) {
        return Ok("ctrl=auto".to_owned());
    }
    let [rbps, rseq, rrand, wbps, wseq, wrand] = [
        config.model_read_bps,
        config.model_read_seq_iops,
        config.model_read_rand_iops,
        config.model_write_bps,
        config.model_write_seq_iops,
        config.model_write_rand_iops,
    ]
    .map(|value| value.unwrap_or(0));
    match [rbps, rseq, rrand, wbps, wseq, wrand].into_iter().find(|value| *value < 1) {
        Some(value) => Err(value),
        None => Ok(format!(
            "ctrl=user rbps={rbps} rseqiops={rseq} rrandiops={rrand} wbps={wbps} wseqiops={wseq} wrandiops={wrand}"
        )),
    }
}

#[cfg(test)]
mod tests;
