//! Block I/O QoS: limits and weights of disks for best-effort pods, single pods and the whole machine.
//!
//! A block names a disk in one of three ways (`disks`); disks that are no longer named get their defaults back.
//! What the files hold already is not wished for again. Spec: koordlet-enforce 11, 3.4.

pub mod disks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use koord_api::annotation::Annotation;
use koord_api::annotation::node_side::PodBlkioQos;
use koord_api::crd::node_slo::{BlkioQos, BlockCfg, IoCfg, ResourceQos, ResourceQosStrategy};
use koord_api::qos::KubeQos;

use super::snapshot::{Phase, Pod};
use super::wish::{Cause, Disk, File, Place, Value, Why, Wish};
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

/// What a disk's setting follows from.
#[derive(Clone, Debug)]
pub struct Because {
    /// The name of the block; none when no block names the disk any more.
    block: Option<Arc<str>>,
    /// The class, or the annotation, that has the blocks.
    source: &'static str,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.block {
            Some(block) => write!(f, "block {block} of {}", self.source),
            None => write!(f, "no block of {} names it any more", self.source),
        }
    }
}

/// The group that is looked at.
struct Group<'g> {
    place: Place,
    source: &'static str,
    blocks: &'g [BlockCfg],
    pod: Option<&'g Pod>,
}

/// A disk, and what should be so with it.
struct Wanted {
    disk: Disk,
    config: IoCfg,
    why: Why,
}

impl Group<'_> {
    /// The disks that blocks name, in their order.
    fn wanted(&self, disks: &Disks) -> Result<Vec<Wanted>, ResolveError> {
        let of = |block: &BlockCfg| {
            let config = block.io_cfg.clone().unwrap_or_default();
            Ok(Wanted { disk: disks.resolve(block, self.pod)?, config, why: self.why(Some(&block.name)) })
        };
        self.blocks.iter().map(of).collect()
    }

    /// A disk that files still have lines for.
    fn unwanted(&self, disk: Disk) -> Wanted {
        Wanted { disk, config: IoCfg::default(), why: self.why(None) }
    }

    fn why(&self, block: Option<&str>) -> Why {
        Why::Block(Because { block: block.map(Arc::from), source: self.source })
    }
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
    let (place, best_effort) = (Place::Kube(KubeQos::BestEffort), blocks(strategy.be_class.as_ref()));
    plan.group(&Group { place, source: "beClass", blocks: &best_effort, pod: None }, disks, files);
    let root = blocks(strategy.cgroup_root.as_ref());
    plan.root(
        &Group { place: Place::CgroupRoot, source: "cgroupRoot", blocks: &root, pod: None },
        disks,
        files,
    );
    for pod in pods.iter().filter(|pod| pod.phase == Phase::Running && pod.qos.is_some()) {
        if let Ok(Some(own)) = &pod.blkio_qos {
            let (place, source) = (pod.place(), PodBlkioQos::KEY);
            plan.group(&Group { place, source, blocks: &own.blocks, pod: Some(pod) }, disks, files);
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
    fn group(&mut self, group: &Group<'_>, disks: &Disks, files: &Files) {
        let place = &group.place;
        let Some(present) = files.groups.get(place) else { return };
        let wanted = match group.wanted(disks) {
            Ok(wanted) => wanted,
            Err(error) => return self.problems.push((place.clone(), error.into())),
        };
        let is_missing = |file: File| {
            files.is_weight_optional && file == File::BlkioWeight && !present.contains_key(&file)
        };
        let mut found: BTreeSet<Disk> = BTreeSet::new();
        for file in GROUP_FILES.into_iter().filter(|file| !is_missing(*file)) {
            match present.get(&file).and_then(|text| listed_disks(text)) {
                Some(disks) => found.extend(disks),
                None => return self.problems.push((place.clone(), Problem::Unreadable(file.name()))),
            }
        }
        found.retain(|disk| !wanted.iter().any(|named| named.disk == *disk));
        let gone = found.into_iter().map(|disk| group.unwanted(disk));
        for wanted in wanted.into_iter().chain(gone) {
            for (file, value) in group_values(&wanted.config) {
                if !is_missing(file) {
                    self.line(place, &wanted, file, value, present);
                }
            }
        }
    }

    /// One disk's line in one file, unless it is there already.
    fn line(&mut self, place: &Place, wanted: &Wanted, file: File, value: i64, present: &Present) {
        let (disk, is_weight) = (wanted.disk, file == File::BlkioWeight);
        if value < i64::from(is_weight) || (is_weight && value > 100) {
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
            self.wish(place, file, wanted, value.to_string());
        }
    }

    /// Latency targets and models of disks for the whole machine.
    fn root(&mut self, group: &Group<'_>, disks: &Disks, files: &Files) {
        let place = &group.place;
        let Some(present) = files.groups.get(place) else { return };
        let wanted = match group.wanted(disks) {
            Ok(wanted) => wanted,
            Err(error) => return self.problems.push((place.clone(), error.into())),
        };
        let text = present.get(&File::BlkioCostQos).map_or("", String::as_str);
        let found = text.lines().filter_map(|line| Disk::parse(line.split(' ').next()?));
        for named in &wanted {
            self.wish(place, File::BlkioCostQos, named, cost_qos(&named.config));
            match cost_model(&named.config) {
                Ok(model) => self.wish(place, File::BlkioCostModel, named, model),
                Err(value) => {
                    let (file, disk) = (File::BlkioCostModel.name(), named.disk);
                    self.problems.push((place.clone(), Problem::OutOfRange { file, disk, value }));
                }
            }
        }
        for disk in found.filter(|disk| !wanted.iter().any(|named| named.disk == *disk)) {
            self.wish(place, File::BlkioCostQos, &group.unwanted(disk), "enable=0".to_owned());
        }
    }

    fn wish(&mut self, place: &Place, file: File, wanted: &Wanted, setting: String) {
        let value = Value::Disk(wanted.disk, setting);
        self.wishes.push(Wish::new(place.clone(), file, value, Cause::BlockIo).because(&wanted.why));
    }
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

/// Value of each file.
fn group_values(config: &IoCfg) -> [(File, i64); 5] {
    let values = [
        config.read_iops.unwrap_or(0),
        config.read_bps.unwrap_or(0),
        config.write_iops.unwrap_or(0),
        config.write_bps.unwrap_or(0),
        config.io_weight_percent.unwrap_or(WEIGHT_DEFAULT),
    ];
    std::array::from_fn(|at| (GROUP_FILES[at], values[at]))
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
