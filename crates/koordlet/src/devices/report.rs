//! What the Device object of this node should say. Pure. Spec: koordlet-observe 6.6.

mod partitions;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use koord_api::annotation::Annotation;
use koord_api::annotation::device::GpuPartitions;
use koord_api::crd::device::{
    CONDITION_HEALTHY, Device, DeviceInfo, DeviceSpec, DeviceTopology, DeviceType, VirtualFunction,
    VirtualFunctionGroup,
};
use koord_api::keys::device::label::{GPU_DRIVER_VERSION, GPU_MODEL, GPU_PARTITION_POLICY, GPU_VENDOR};
use koord_api::keys::resource::{GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA};
use koord_api::quantity::{Family, Quantity, ResourceList};
use koord_linux::rdma::Card;

use super::xpu::Xpu;
use super::{Ailment, GpuDevice, Inventory};

/// Labels that are ours alone; those of others stay.
const LABELS: [&str; 4] = [GPU_MODEL, GPU_DRIVER_VERSION, GPU_VENDOR, GPU_PARTITION_POLICY];
const NVIDIA: &str = "nvidia";
/// What the driver puts before the name of a model.
const NVIDIA_PREFIX: &str = "NVIDIA ";
const LABEL_LENGTH_MAX: usize = 63;
/// A whole device, in percent.
const WHOLE: i64 = 100;
/// Nobody tells sockets.
const NO_SOCKET: i32 = -1;
const REASON_HEALTHY: &str = "DeviceHealthy";
const MESSAGE_HEALTHY: &str = "device is healthy";

/// What the Device object should say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// By type, then minor number.
    entries: Vec<Entry>,
    labels: BTreeMap<&'static str, String>,
    /// None when there is nothing to tell.
    partitions: Option<String>,
}

/// A device, and what is known of its health beyond yes and no.
#[derive(Clone, Debug, Default, PartialEq)]
struct Entry {
    info: DeviceInfo,
    verdict: Option<Verdict>,
}

#[derive(Clone, Debug, PartialEq)]
struct Verdict {
    is_healthy: bool,
    reason: String,
    message: String,
}

/// Accelerators that files describe stand in for GPUs of the driver.
pub fn report(inventory: &Inventory, is_xpu_only: bool) -> Report {
    let mut report = Report::default();
    if !inventory.xpus.is_empty() {
        report.entries = inventory.xpus.iter().map(of_xpu).collect();
        report.labels = xpu_labels(&inventory.xpus);
        let partitions = partitions::of(&inventory.xpus);
        report.partitions = (!partitions.0.is_empty()).then(|| partitions.text());
    } else if !is_xpu_only {
        report.entries = inventory.gpus.iter().map(of_gpu).collect();
        report.labels = gpu_labels(&inventory.gpus, inventory.driver_version.as_deref());
    }
    report.entries.extend(inventory.cards.iter().filter_map(of_card));
    let order = |entry: &Entry| (entry.info.device_type.as_str().to_owned(), entry.info.minor);
    report.entries.sort_by_key(order);
    report
}

impl Report {
    /// Whether there is no device at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts what is known into the object. What others wrote, and times of what did not change, stay.
    pub fn apply(&self, device: &mut Device, now: Timestamp) {
        let spec = device.spec.get_or_insert_with(DeviceSpec::default);
        let before = std::mem::take(&mut spec.devices);
        spec.devices = self.entries.iter().map(|entry| entry.settle(&before, now)).collect();
        let labels = LABELS.map(|key| (key, self.labels.get(key)));
        set(&mut device.metadata.labels, &labels);
        set(&mut device.metadata.annotations, &[(GpuPartitions::KEY, self.partitions.as_ref())]);
    }
}

/// Sets or takes off keys; a map that was not there stays away while nothing is set.
fn set(map: &mut Option<BTreeMap<String, String>>, keys: &[(&str, Option<&String>)]) {
    for (key, value) in keys {
        match (value, map.as_mut()) {
            (Some(value), _) => {
                map.get_or_insert_default().insert((*key).to_owned(), (*value).clone());
            }
            (None, Some(map)) => _ = map.remove(*key),
            (None, None) => {}
        }
    }
}

impl Entry {
    /// The device as it is written over what was there.
    fn settle(&self, before: &[DeviceInfo], now: Timestamp) -> DeviceInfo {
        let is_same = |old: &&DeviceInfo| {
            old.device_type == self.info.device_type
                && if old.id.is_empty() { old.minor == self.info.minor } else { old.id == self.info.id }
        };
        let mut info = self.info.clone();
        let Some(old) = before.iter().find(is_same) else {
            info.conditions.extend(self.verdict.as_ref().map(|verdict| verdict.condition(None, now)));
            return info;
        };
        info.labels = old.labels.clone();
        info.module_id = old.module_id;
        let is_health = |condition: &&Condition| condition.type_ == CONDITION_HEALTHY;
        let health = old.conditions.iter().find(is_health);
        // A card that was ill and works again says so; one that never was says nothing.
        let recovered = health.map(|_| Verdict::healthy());
        let verdict = self.verdict.clone().or(recovered);
        info.conditions = old.conditions.iter().filter(|condition| !is_health(condition)).cloned().collect();
        info.conditions.extend(verdict.map(|verdict| verdict.condition(health, now)));
        info.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        info
    }
}

impl Verdict {
    fn healthy() -> Verdict {
        Verdict { is_healthy: true, reason: REASON_HEALTHY.into(), message: MESSAGE_HEALTHY.into() }
    }

    fn ill(code: &str, message: &str) -> Verdict {
        let message = if message.is_empty() { "device is unhealthy" } else { message };
        Verdict { is_healthy: false, reason: reason(code), message: message.to_owned() }
    }

    // Differs: upstream compares with a fresh time before it takes the old one over, and so writes every round.
    fn condition(&self, before: Option<&Condition>, now: Timestamp) -> Condition {
        let status = if self.is_healthy { "True" } else { "False" };
        let since = before.filter(|before| before.status == status);
        Condition {
            type_: CONDITION_HEALTHY.to_owned(),
            status: status.to_owned(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            last_transition_time: since.map_or(Time(now), |before| before.last_transition_time.clone()),
            observed_generation: None,
        }
    }
}

fn of_gpu(device: &GpuDevice) -> Entry {
    let GpuDevice { gpu, place, ailment } = device;
    let is_placed = place.numa_node >= 0 && !place.pcie_root.is_empty() && !gpu.bus_id.is_empty();
    let memory = i64::try_from(gpu.memory_bytes).unwrap_or(i64::MAX);
    Entry {
        info: DeviceInfo {
            device_type: DeviceType::Gpu,
            id: gpu.uuid.clone(),
            minor: i32::try_from(gpu.minor).ok(),
            health: ailment.is_none(),
            resources: resources([
                (GPU_CORE, percent(WHOLE)),
                (GPU_MEMORY, Quantity::bytes(memory)),
                (GPU_MEMORY_RATIO, percent(WHOLE)),
            ]),
            topology: is_placed.then(|| DeviceTopology {
                socket_id: NO_SOCKET,
                node_id: place.numa_node,
                pcie_id: place.pcie_root.clone(),
                bus_id: Some(gpu.bus_id.clone()),
            }),
            ..DeviceInfo::default()
        },
        verdict: ailment.as_ref().map(|Ailment { code, message }| Verdict::ill(code, message)),
    }
}

/// None, and a word in the log, for a card whose name tells no number.
fn of_card(card: &Card) -> Option<Entry> {
    let Some(minor) = card_minor(&card.name) else {
        tracing::debug!(card = card.bus_id, name = card.name, "an RDMA card whose name tells no number");
        return None;
    };
    let mut vfs: Vec<VirtualFunction> = card
        .virtual_functions
        .iter()
        .map(|bus_id| VirtualFunction { minor: -1, bus_id: bus_id.clone() })
        .collect();
    vfs.sort_by(|a, b| a.bus_id.cmp(&b.bus_id));
    let group = (!vfs.is_empty()).then(|| VirtualFunctionGroup { labels: BTreeMap::new(), vfs });
    Some(Entry {
        info: DeviceInfo {
            device_type: DeviceType::Rdma,
            id: card.bus_id.clone(),
            minor: Some(minor),
            health: card.is_active,
            resources: resources([(RDMA, percent(WHOLE))]),
            topology: Some(DeviceTopology {
                socket_id: NO_SOCKET,
                node_id: card.place.numa_node,
                pcie_id: card.place.pcie_root.clone(),
                bus_id: Some(card.bus_id.clone()),
            }),
            vf_groups: group.into_iter().collect(),
            ..DeviceInfo::default()
        },
        verdict: None,
    })
}

/// `mlx5_3` is 3.
fn card_minor(name: &str) -> Option<i32> {
    let (family, number) = name.strip_prefix("mlx")?.split_once('_')?;
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(family) && is_number(number)).then(|| number.parse().ok())?
}

fn of_xpu(xpu: &Xpu) -> Entry {
    let minor = xpu.minor.parse().unwrap_or_else(|_| {
        tracing::debug!(uuid = xpu.uuid, minor = xpu.minor, "an accelerator's minor number is none");
        0
    });
    let topology = xpu.topology.as_ref().map(|topology| DeviceTopology {
        socket_id: NO_SOCKET,
        node_id: if topology.node_id.is_empty() { -1 } else { topology.node_id.parse().unwrap_or(0) },
        pcie_id: topology.pcie_id.clone(),
        bus_id: (!topology.bus_id.is_empty()).then(|| topology.bus_id.clone()),
    });
    let verdict = xpu.status.as_ref().map(|status| match status.healthy {
        true => Verdict::healthy(),
        false => Verdict::ill(&status.error_code, &status.error_message),
    });
    let listed = xpu.resources.iter().filter_map(|(name, amount)| {
        let name = match name.as_str() {
            "gpu-core" => GPU_CORE,
            "gpu-memory" => GPU_MEMORY,
            other => other,
        };
        Some((name.to_owned(), amount.parse().ok()?))
    });
    let mut resources = resources([(GPU_MEMORY_RATIO, percent(WHOLE))]);
    resources.extend(listed);
    Entry {
        info: DeviceInfo {
            device_type: DeviceType::Gpu,
            id: xpu.uuid.clone(),
            minor: Some(minor),
            health: xpu.status.as_ref().is_none_or(|status| status.healthy),
            resources,
            topology,
            ..DeviceInfo::default()
        },
        verdict,
    }
}

/// The model and the driver only where every card is of one model.
fn gpu_labels(gpus: &[GpuDevice], driver_version: Option<&str>) -> BTreeMap<&'static str, String> {
    let mut labels = BTreeMap::new();
    let Some(first) = gpus.first() else { return labels };
    labels.insert(GPU_VENDOR, NVIDIA.to_owned());
    let name = &first.gpu.name;
    let is_uniform = gpus.iter().all(|device| device.gpu.name == *name);
    let model = label_value(name.strip_prefix(NVIDIA_PREFIX).unwrap_or(name));
    if let (true, false, Some(version)) = (is_uniform, model.is_empty(), driver_version) {
        labels.insert(GPU_MODEL, model);
        labels.insert(GPU_DRIVER_VERSION, label_value(version));
    }
    labels
}

fn xpu_labels(xpus: &[Xpu]) -> BTreeMap<&'static str, String> {
    let mut labels = BTreeMap::new();
    let Some(first) = xpus.first() else { return labels };
    for (key, text) in [(GPU_VENDOR, &first.vendor), (GPU_MODEL, &first.model)] {
        let value = label_value(text);
        if !value.is_empty() {
            labels.insert(key, value);
        }
    }
    if let Some(topology) = first.topology.as_ref().filter(|topology| !topology.p2p_links.is_empty()) {
        let policy = if topology.must_honor_partition { "Honor" } else { "Prefer" };
        labels.insert(GPU_PARTITION_POLICY, policy.to_owned());
    }
    labels
}

/// A text as a label's value: what is not allowed there becomes `-`.
// Differs: upstream writes an accelerator's model as it is, and the API server then refuses the object.
fn label_value(text: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let letters = text.chars().map(|letter| if is_allowed(letter) { letter } else { '-' });
    let value: String = letters.take(LABEL_LENGTH_MAX).collect();
    value.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()).to_owned()
}

/// A code as a condition's reason, which must be one word that starts with a letter.
// Differs: upstream writes codes such as `chip error` as they are, and the API server then refuses the object.
fn reason(code: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_,:".contains(letter);
    let word: String =
        code.chars().map(|letter| if is_allowed(letter) { letter } else { '_' }).take(1024).collect();
    let word = word.trim_start_matches(|letter: char| !letter.is_ascii_alphabetic());
    let word = word.trim_end_matches([',', ':']);
    if word.is_empty() { "Unknown".to_owned() } else { word.to_owned() }
}

fn percent(amount: i64) -> Quantity {
    Quantity::from_value(amount, Family::DecimalSi)
}

fn resources<const N: usize>(amounts: [(&str, Quantity); N]) -> ResourceList {
    amounts.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
}

#[cfg(test)]
mod tests;
