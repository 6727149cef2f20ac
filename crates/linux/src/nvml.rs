//! NVIDIA GPUs, as the driver's own library tells of them. Spec: koordlet-observe 6.1, 6.7.
//!
//! The library is loaded when it is asked for and never linked: a node without a driver is normal. Every call may be
//! slow, or hang with a dying card, so callers keep it off threads that others wait for.

use std::ffi::OsStr;
use std::time::Duration;

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::event::XidError;
pub use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
use nvml_wrapper::{Device, Nvml};

use crate::pci;
use crate::root::Root;

/// The driver installs the first name; development packages bring the second.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// The kernel driver, as `/sys/bus/pci/drivers` calls it.
const KERNEL_DRIVER: &str = "nvidia";
/// What the library answers for an error whose number it does not know.
const XID_UNKNOWN: u64 = 999;

/// The loaded library.
#[derive(Debug)]
pub struct Library {
    nvml: Nvml,
}

/// A card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    pub uuid: String,
    pub minor: u32,
    /// In lower case, with a domain of four digits.
    pub bus_id: String,
    /// Such as `NVIDIA A100-SXM4-80GB`.
    pub name: String,
    pub memory_bytes: u64,
}

/// What a card does now. Parts that the card cannot tell are None.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    pub busy_percent: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub processes: Vec<ProcessUse>,
    /// When the newest sample of a process was taken, for the next call.
    pub newest_sample_us: u64,
}

/// What a process does on a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    pub pid: u32,
    pub busy_percent: u32,
    pub memory_bytes: u64,
}

/// What a watch saw.
#[derive(Debug)]
pub enum Sighting {
    /// Nothing within the time.
    Quiet,
    /// A critical error. A card without a name stands for all of them.
    Xid { number: u64, bus_id: Option<String>, uuid: String },
    /// The watch itself does not work now.
    Fault(GpuError),
}

/// What the library answers when it cannot.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    #[error("no NVIDIA driver answers")]
    Absent { source: NvmlError },
    #[error("cannot read {what} of GPU {gpu}")]
    Read { what: &'static str, gpu: String, source: NvmlError },
    #[error("cannot watch GPUs for errors")]
    Watch { source: NvmlError },
}

impl Library {
    /// Loads the library and wakes the driver.
    pub fn load() -> Result<Library, GpuError> {
        let mut last = NvmlError::LibraryNotFound;
        for name in LIBRARIES {
            match Nvml::builder().lib_path(OsStr::new(name)).init() {
                Ok(nvml) => return Ok(Library { nvml }),
                // The library is there, and what it says is more telling than that its other name is not.
                Err(error) if !matches!(error, NvmlError::LibloadingError(_)) => {
                    return Err(GpuError::Absent { source: error });
                }
                Err(error) => last = error,
            }
        }
        Err(GpuError::Absent { source: last })
    }

    /// Such as `460.91.03`.
    pub fn driver_version(&self) -> Result<String, GpuError> {
        self.nvml.sys_driver_version().map_err(|source| GpuError::Absent { source })
    }

    /// Bus ids of the cards: those the kernel driver holds, or all that the library counts where `/sys` does not tell.
    pub fn bus_ids(&self, root: &Root) -> Vec<String> {
        let driven = pci::driven_by(root, KERNEL_DRIVER);
        if !driven.is_empty() {
            return driven;
        }
        let count = self.nvml.device_count().unwrap_or(0);
        let devices = (0..count).filter_map(|index| self.nvml.device_by_index(index).ok());
        let mut ids: Vec<String> = devices.filter_map(|device| bus_id(&device).ok()).collect();
        ids.sort_unstable();
        ids
    }

    pub fn gpu(&self, bus_id: &str) -> Result<Gpu, GpuError> {
        let fault = |what, source| GpuError::Read { what, gpu: bus_id.to_owned(), source };
        let device = self.nvml.device_by_pci_bus_id(bus_id).map_err(|source| fault("the handle", source))?;
        Ok(Gpu {
            uuid: device.uuid().map_err(|source| fault("the UUID", source))?,
            minor: device.minor_number().map_err(|source| fault("the minor number", source))?,
            bus_id: bus_id.to_owned(),
            name: device.name().map_err(|source| fault("the name", source))?,
            memory_bytes: device.memory_info().map_err(|source| fault("the memory", source))?.total,
        })
    }

    /// What a card and its processes do; samples of processes no newer than `since_us` are left out.
    pub fn usage(&self, gpu: &Gpu, since_us: u64) -> Result<GpuUse, GpuError> {
        let fault = |what, source| GpuError::Read { what, gpu: gpu.bus_id.clone(), source };
        let device = self.device(gpu)?;
        let running = device.running_compute_processes().map_err(|source| fault("the processes", source))?;
        let samples = match device.process_utilization_stats(since_us) {
            Ok(samples) => samples,
            // An idle card has no sample, and a divided one takes none.
            Err(NvmlError::NotFound | NvmlError::NotSupported | NvmlError::NoData) => Vec::new(),
            Err(source) => return Err(fault("the use by processes", source)),
        };
        let fresh = || samples.iter().filter(|sample| sample.timestamp > since_us);
        let busy_percent = |pid: u32| {
            let newest = fresh().filter(|sample| sample.pid == pid).max_by_key(|sample| sample.timestamp);
            newest.map_or(0, |sample| sample.sm_util)
        };
        let processes = running.iter().map(|process| ProcessUse {
            pid: process.pid,
            // Differs: upstream leaves a process without a sample out, and with it the memory that it holds.
            busy_percent: busy_percent(process.pid),
            memory_bytes: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => bytes,
                UsedGpuMemory::Unavailable => 0,
            },
        });
        Ok(GpuUse {
            busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
            memory_bytes: device.memory_info().ok().map(|memory| memory.used),
            processes: processes.collect(),
            newest_sample_us: fresh().map(|sample| sample.timestamp).max().unwrap_or(since_us),
        })
    }

    /// Whether the driver wants the card to be reset, or the node to be restarted. None where it cannot tell.
    pub fn needs_recovery(&self, gpu: &Gpu) -> Option<bool> {
        let fields = [FieldId(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)];
        let values = self.device(gpu).ok()?.field_values_for(&fields).ok()?;
        match values.into_iter().next()?.ok()?.value.ok()? {
            SampleValue::U32(action) => Some(action != 0),
            SampleValue::U64(action) => Some(action != 0),
            SampleValue::I64(action) => Some(action != 0),
            SampleValue::F64(_) => None,
        }
    }

    /// Watches cards for critical errors. Gives the bus ids of cards that cannot be watched, too.
    pub fn watch(&self, bus_ids: &[String]) -> Result<(Watch<'_>, Vec<String>), GpuError> {
        let failed = |source| GpuError::Watch { source };
        let mut unwatched = Vec::new();
        let mut devices = Vec::new();
        for bus_id in bus_ids {
            match self.nvml.device_by_pci_bus_id(bus_id.as_str()) {
                Ok(device) if tells_errors(&device) => devices.push(device),
                _ => unwatched.push(bus_id.clone()),
            }
        }
        let mut set = self.nvml.create_event_set().map_err(failed)?;
        for device in &devices {
            let registered = device.register_events(EventTypes::CRITICAL_XID_ERROR, set);
            set = registered.map_err(|error| failed(error.error))?;
        }
        Ok((Watch { set }, unwatched))
    }

    fn device(&self, gpu: &Gpu) -> Result<Device<'_>, GpuError> {
        self.nvml.device_by_uuid(gpu.uuid.as_str()).map_err(|source| GpuError::Read {
            what: "the handle",
            gpu: gpu.bus_id.clone(),
            source,
        })
    }
}

/// Registered cards.
#[derive(Debug)]
pub struct Watch<'l> {
    set: EventSet<'l>,
}

impl Watch<'_> {
    /// Waits for the next error, so long at most.
    pub fn wait(&self, patience: Duration) -> Sighting {
        let milliseconds = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let event = match self.set.wait(milliseconds) {
            Ok(event) => event,
            Err(NvmlError::Timeout) => return Sighting::Quiet,
            Err(source) => return Sighting::Fault(GpuError::Watch { source }),
        };
        let number = match event.event_data {
            Some(XidError::Value(number)) => number,
            Some(XidError::Unknown) => XID_UNKNOWN,
            None => return Sighting::Quiet,
        };
        let uuid = event.device.uuid().unwrap_or_default();
        Sighting::Xid { number, bus_id: bus_id(&event.device).ok(), uuid }
    }
}

fn tells_errors(device: &Device<'_>) -> bool {
    device.supported_event_types().is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR))
}

/// The library spells domains with eight digits, `/sys` with four.
fn bus_id(device: &Device<'_>) -> Result<String, NvmlError> {
    let place = device.pci_info()?;
    Ok(format!("{:04x}:{:02x}:{:02x}.0", place.domain, place.bus, place.device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_says_so() {
        match Library::load() {
            Ok(library) => assert!(!library.driver_version().unwrap().is_empty()),
            Err(error) => assert!(matches!(error, GpuError::Absent { .. }), "{error:?}"),
        }
    }
}
