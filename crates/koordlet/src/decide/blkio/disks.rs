//! Which disk a block of the configuration means. Spec: koordlet-enforce 11.

use std::collections::BTreeMap;

use koord_api::crd::node_slo::{BlockCfg, BlockType};

use crate::decide::snapshot::{Pod, Volume};
use crate::decide::wish::Disk;

/// The block devices of the node and what lies on them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disks {
    /// Whole disks by device name.
    pub disks: BTreeMap<String, Disk>,
    /// Partitions with the disk they are on.
    pub partitions: BTreeMap<String, String>,
    /// Volume groups of LVM with the disk they are on.
    pub volume_groups: BTreeMap<String, String>,
    /// Logical volumes by device name with their volume group.
    pub logical_volumes: BTreeMap<String, String>,
    /// Mount points with the device that is mounted there.
    pub mounts: BTreeMap<String, String>,
    /// Claims, by namespace and name, with the volume bound to them.
    pub claims: BTreeMap<(String, String), String>,
    /// Kubelet's folder, without a slash at its end.
    pub kubelet_dir: String,
}

/// Why a block means no disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("block type {0} is not supported")]
    Type(String),
    #[error("pod meta is nil")]
    NoPod,
    #[error("no disk found for device {0}")]
    Device(String),
    #[error("no disk found for volume group {0}")]
    VolumeGroup(String),
    #[error("pod has no volume {0} on a disk of the node")]
    PodVolume(String),
}

impl Disks {
    pub fn resolve(&self, block: &BlockCfg, pod: Option<&Pod>) -> Result<Disk, ResolveError> {
        match &block.block_type {
            Some(BlockType::Device) => self.of_device(&block.name),
            Some(BlockType::VolumeGroup) => self.of_volume_group(&block.name),
            Some(BlockType::PodVolume) => self.of_pod_volume(&block.name, pod.ok_or(ResolveError::NoPod)?),
            Some(BlockType::Other(text)) => Err(ResolveError::Type(text.clone())),
            None => Err(ResolveError::Type(String::new())),
        }
    }

    /// A disk, or the disk of a partition.
    fn of_device(&self, name: &str) -> Result<Disk, ResolveError> {
        let disk = self.partitions.get(name).map_or(name, String::as_str);
        self.disks.get(disk).copied().ok_or_else(|| ResolveError::Device(name.to_owned()))
    }

    fn of_volume_group(&self, name: &str) -> Result<Disk, ResolveError> {
        let disk = self.volume_groups.get(name).ok_or_else(|| ResolveError::VolumeGroup(name.to_owned()))?;
        self.of_device(disk)
    }

    /// The disk below the mount point that kubelet made for a volume.
    fn of_pod_volume(&self, name: &str, pod: &Pod) -> Result<Disk, ResolveError> {
        let error = || ResolveError::PodVolume(name.to_owned());
        let source = pod.volumes.iter().find(|(volume, _)| volume == name).map(|(_, source)| source);
        let folder = match source.ok_or_else(error)? {
            Volume::Claim(claim) => {
                self.claims.get(&(pod.namespace.clone(), claim.clone())).ok_or_else(error)?.as_str()
            }
            Volume::InlineCsi => name,
            Volume::Other => return Err(error()),
        };
        let dir = &self.kubelet_dir;
        let point = format!("{dir}/pods/{}/volumes/kubernetes.io~csi/{folder}/mount", pod.id.uid);
        let device = self.mounts.get(&point).ok_or_else(error)?;
        match self.logical_volumes.get(device) {
            Some(group) => self.of_volume_group(group),
            None => self.of_device(device),
        }
    }
}
