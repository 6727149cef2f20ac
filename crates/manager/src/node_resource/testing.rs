//! One turn of a node for tests: what is not mentioned does not matter.

use std::collections::BTreeMap;

use jiff::Timestamp;
use koord_api::crd::device::{Device, DeviceInfo, DeviceSpec, DeviceType};
use koord_api::slo::{SloConfig, key};

use super::{Input, NodeMemory, NodeView, Options, Plan, Plugin, Settings, TopologyView, plan};

/// What a turn is given.
#[derive(Clone)]
pub(super) struct Turn {
    pub(super) node: NodeView,
    pub(super) is_colocated: bool,
    /// Documents of slo-controller-config beside `colocation-config`, by key.
    pub(super) documents: Vec<(&'static str, String)>,
    pub(super) topology: Option<TopologyView>,
    pub(super) device: Option<Device>,
    pub(super) sync_gpu_shared: bool,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            node: NodeView {
                name: "n1".to_owned(),
                capacity: Some(BTreeMap::new()),
                allocatable: Some(BTreeMap::new()),
                ..NodeView::default()
            },
            is_colocated: true,
            documents: Vec::new(),
            topology: None,
            device: None,
            sync_gpu_shared: false,
        }
    }
}

/// What these plugins want to do with a node that was written a moment ago.
pub(super) fn turn(plugins: &[&dyn Plugin], turn: &Turn) -> Plan {
    let mut data: BTreeMap<String, String> =
        turn.documents.iter().map(|(key, text)| ((*key).to_owned(), text.clone())).collect();
    data.insert(key::COLOCATION.to_owned(), format!(r#"{{"enable":{}}}"#, turn.is_colocated));
    let mut config = SloConfig::default();
    config.load(Some(&data));
    let strategy = config.colocation_strategy(turn.node.facts()).expect("the config is loaded").value;
    let now = Timestamp::UNIX_EPOCH;
    let input = Input {
        now,
        node: &turn.node,
        config: &config,
        settings: &Settings::from(&strategy),
        metric: None,
        pods: &[],
        topology: turn.topology.as_ref(),
        device: turn.device.as_ref(),
        options: Options { sync_gpu_shared: turn.sync_gpu_shared },
    };
    let mut memory = NodeMemory { node_synced: Some(now), ..NodeMemory::default() };
    plan(plugins, &input, &mut memory)
}

/// A device with its type, whether it works, and what it offers.
pub(super) type TestDevice = (DeviceType, bool, Vec<(&'static str, &'static str)>);

/// The Device object of a node.
pub(super) fn device(devices: Vec<TestDevice>, labels: &[(&str, &str)]) -> Device {
    let info = |(device_type, health, resources): TestDevice| DeviceInfo {
        device_type,
        health,
        resources: resources
            .into_iter()
            .map(|(name, amount)| (name.to_owned(), amount.parse().expect("a quantity")))
            .collect(),
        ..DeviceInfo::default()
    };
    let mut device = Device::default();
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    device.metadata.labels = Some(labels.collect());
    device.spec = Some(DeviceSpec { devices: devices.into_iter().map(info).collect() });
    device
}
