//! Disks of best-effort pods, single pods and the whole machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use koord_api::qos::KubeQos;
use koord_linux::block::Storage;
use koord_linux::cgroup::{Cgroups, Version};
use koord_linux::error::Malformed;
use koord_linux::resource::Resource;

use super::{Ground, Hands, Setting, Strategy};
use crate::apply::dir_of;
use crate::decide::blkio::disks::Disks;
use crate::decide::blkio::{self, Files, GROUP_FILES, Present, Problem};
use crate::decide::wish::{Batch, Disk, File, Place};

/// Disks come and go rarely, and looking for them takes many files.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The strategy and what it remembers.
#[derive(Default)]
pub(super) struct Blkio {
    storage: Storage,
    looked: Option<Instant>,
    /// What was wrong in the last turn and is told once.
    problems: Vec<(Place, Problem)>,
}

impl Strategy for Blkio {
    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some(slo) = ground.snapshot.slo.as_deref() else { return };
        let is_old = self.looked.is_none_or(|at| ground.now.saturating_duration_since(at) >= LOOK_EVERY);
        if is_old || ground.news.pods {
            self.looked = Some(ground.now);
            match Storage::read(&setting.root) {
                Ok(storage) => self.storage = storage,
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "disks cannot be read")
                }
            }
        }
        let disks = disks(&self.storage, setting, ground);
        let plan = blkio::plan(&slo.qos, ground.pods, &disks, &files(&setting.cgroups, ground));
        for (place, problem) in plan.problems.iter().filter(|problem| !self.problems.contains(problem)) {
            tracing::warn!(?place, %problem, "disks of a group are left alone");
        }
        self.problems = plan.problems;
        hands.apply(ground, &Batch::Each(plan.wishes));
    }
}

fn disks(storage: &Storage, setting: &Setting, ground: &Ground<'_>) -> Disks {
    let disk = |device: &koord_linux::resource::Device| Disk { major: device.major, minor: device.minor };
    let kubelet = setting.root.kubelet.to_string_lossy();
    Disks {
        disks: storage.disks.iter().map(|(name, device)| (name.clone(), disk(device))).collect(),
        partitions: storage.partitions.clone(),
        volume_groups: storage.groups.clone(),
        logical_volumes: storage.volumes.clone(),
        mounts: storage.mounts.clone(),
        claims: BTreeMap::clone(&ground.snapshot.claims),
        kubelet_dir: kubelet.trim_end_matches('/').to_owned(),
    }
}

/// What the files of all groups hold that may have limits.
fn files(cgroups: &Cgroups, ground: &Ground<'_>) -> Files {
    let with_limits = ground.pods.iter().filter(|pod| matches!(pod.blkio_qos, Ok(Some(_))));
    let groups = with_limits.map(|pod| pod.place()).chain([Place::Kube(KubeQos::BestEffort)]);
    let root = [(Place::CgroupRoot, present(cgroups, &Place::CgroupRoot, &[File::BlkioCostQos]))];
    let groups = groups.map(|place| {
        let present = present(cgroups, &place, &GROUP_FILES);
        (place, present)
    });
    let is_weight_optional = cgroups.version() == Version::V2;
    Files { groups: groups.chain(root).collect(), is_weight_optional }
}

fn present(cgroups: &Cgroups, place: &Place, files: &[File]) -> Present {
    let Some(dir) = dir_of(place, cgroups.driver()) else { return Present::new() };
    let text = |content: &[u8]| Ok::<_, Malformed>(String::from_utf8_lossy(content).into_owned());
    let of = |file: &File| {
        let resource = Resource::from_name(file.name())?;
        let content = cgroups.read(resource, &dir, text).ok()?;
        Some((*file, if cgroups.version() == Version::V2 { as_v1(*file, &content) } else { content }))
    };
    files.iter().filter_map(of).collect()
}

/// What a file of v2 says about one of v1's: `io.max` has four limits on a line, `io.weight` one for all others.
fn as_v1(file: File, content: &str) -> String {
    let key = match file {
        File::BlkioReadBps => "rbps=",
        File::BlkioWriteBps => "wbps=",
        File::BlkioReadIops => "riops=",
        File::BlkioWriteIops => "wiops=",
        File::BlkioWeight => "",
        _ => return content.to_owned(),
    };
    let mut lines = String::new();
    for line in content.lines() {
        let mut words = line.split_whitespace();
        let Some(disk) = words.next().filter(|disk| *disk != "default") else { continue };
        let value = words.find_map(|word| word.strip_prefix(key)).filter(|value| *value != "max");
        if let Some(value) = value {
            lines.push_str(&format!("{disk} {value}\n"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_v2_are_told_as_v1_tells_them() {
        let max = "8:0 rbps=1048576 wbps=max riops=max wiops=120\n253:16 rbps=max wbps=9 riops=1 wiops=max\n";
        for (file, content, want) in [
            (File::BlkioReadBps, max, "8:0 1048576\n"),
            (File::BlkioWriteBps, max, "253:16 9\n"),
            (File::BlkioReadIops, max, "253:16 1\n"),
            (File::BlkioWriteIops, max, "8:0 120\n"),
            (File::BlkioWeight, "default 100\n8:0 50\n", "8:0 50\n"),
            (File::BlkioCostQos, "8:0 enable=1\n", "8:0 enable=1\n"),
        ] {
            assert_eq!(as_v1(file, content), want, "{}", file.name());
        }
    }
}
