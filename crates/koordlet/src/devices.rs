//! Devices of the node: what is there, whether it works, and who uses it. Spec: koordlet-observe 6.
//!
//! A thread of its own asks the GPU driver, for such a call may hang with a dying card, and reads what network cards and
//! other accelerators show of themselves. It publishes an [`Inventory`], which changes rarely and becomes the Device
//! object, and a [`Reading`] of every round, from which the node's collectors take what pods use.

mod gpu;
mod health;
mod publish;
mod report;
mod samples;
mod series;
mod thread;
pub(crate) mod xpu;

pub use gpu::{Driver, GpuReading, Gpus, Load, Reading, Usage};
pub use health::{Ailment, Marks, XIDS_OF_APPLICATIONS};
pub use publish::{Publisher, publish, run};
pub use report::{Report, report};
pub use samples::{Samples, Subject};
pub use series::GpuCollector;
pub use thread::{Devices, start};
pub use xpu::{Link, Status, Topology, Xpu, XpuError, read_dir};

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use koord_linux::nvml::Gpu;
use koord_linux::pci::Place;
use koord_linux::rdma::Card;

/// What is looked for, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Gate `Accelerators`: GPUs and other accelerators.
    pub is_accelerators_on: bool,
    /// Gate `RDMADevices`.
    ///
    /// Differs: upstream reports cards only where `Accelerators` is on, too.
    pub is_rdma_on: bool,
    /// `--xpu-device-infos-dir`
    pub xpu_dir: PathBuf,
    /// `--xpu-enforce-collect-from-device-infos`: GPUs of the driver are measured but not reported.
    pub is_xpu_only: bool,
    /// `--collect-res-used-interval`; None when nothing is measured. What is there is looked for all the same.
    pub measure_interval: Option<Duration>,
    /// `--node-topology-sync-interval`
    pub scan_interval: Duration,
    /// Errors that an application causes and a card survives.
    pub ignored_xids: BTreeSet<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            is_accelerators_on: false,
            is_rdma_on: false,
            xpu_dir: "/var/run/koordlet/xpu-device-infos/".into(),
            is_xpu_only: false,
            measure_interval: Some(Duration::from_secs(1)),
            scan_interval: Duration::from_secs(3),
            ignored_xids: XIDS_OF_APPLICATIONS.into(),
        }
    }
}

impl Options {
    /// Whether there is anything to look for.
    pub fn is_any_on(&self) -> bool {
        self.is_accelerators_on || self.is_rdma_on
    }
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub gpus: Vec<GpuDevice>,
    /// None when the driver does not tell.
    pub driver_version: Option<String>,
    pub cards: Vec<Card>,
    /// In the order of their files.
    pub xpus: Vec<Xpu>,
}

/// A GPU of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuDevice {
    pub gpu: Gpu,
    pub place: Place,
    /// None while it works.
    pub ailment: Option<Ailment>,
}

impl Inventory {
    /// Whether the GPU with that UUID works. None for one that is not there.
    pub fn is_gpu_healthy(&self, uuid: &str) -> Option<bool> {
        let device = self.gpus.iter().find(|device| device.gpu.uuid == uuid)?;
        Some(device.ailment.is_none())
    }

    /// Memory of the GPU with that minor number, in bytes; for ratios.
    pub fn gpu_memory_bytes(&self, minor: u32) -> Option<u64> {
        let device = self.gpus.iter().find(|device| device.gpu.minor == minor)?;
        Some(device.gpu.memory_bytes)
    }
}
