use koord_linux::nvml::Gpu;
use koord_linux::pci::Place;
use serde_json::{Value, json};

use super::*;
use crate::devices::xpu::{Link, Status, Topology};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A GPU whose place is known when it has a root.
fn gpu(minor: u32, name: &str, memory_bytes: u64, pcie_root: &str) -> GpuDevice {
    GpuDevice {
        gpu: Gpu {
            uuid: format!("GPU-{minor}"),
            minor,
            bus_id: format!("0000:{minor:02x}:00.0"),
            name: name.to_owned(),
            memory_bytes,
        },
        place: Place { numa_node: 0, pcie_root: pcie_root.to_owned() },
        ailment: None,
    }
}

fn of_gpus(gpus: Vec<GpuDevice>) -> Inventory {
    Inventory { gpus, driver_version: Some("460.91.03".to_owned()), ..Inventory::default() }
}

fn of_xpus(xpus: Vec<Xpu>) -> Inventory {
    Inventory { xpus, ..Inventory::default() }
}

fn xpu(minor: &str, links: &[(&str, &str)]) -> Xpu {
    let p2p_links = links
        .iter()
        .map(|(peers, kind)| Link { peer_minor: (*peers).to_owned(), link_type: (*kind).to_owned() })
        .collect();
    Xpu {
        vendor: "huawei".to_owned(),
        model: "Ascend 910B3".to_owned(),
        uuid: format!("npu-{minor}"),
        minor: minor.to_owned(),
        topology: Some(Topology { p2p_links, ..Topology::default() }),
        ..Xpu::default()
    }
}

/// What is written over an object.
fn over(live: &Device, inventory: &Inventory, second: i64) -> Device {
    let mut device = live.clone();
    report(inventory, false).apply(&mut device, at(second));
    device
}

fn written(inventory: &Inventory) -> Device {
    over(&Device::default(), inventory, 100)
}

fn devices(device: &Device) -> Vec<Value> {
    let devices = device.spec.iter().flat_map(|spec| &spec.devices);
    devices.map(|device| serde_json::to_value(device).unwrap()).collect()
}

fn labels(device: &Device) -> Vec<(&str, &str)> {
    let labels = device.metadata.labels.iter().flatten();
    labels.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[test]
fn models_and_drivers() {
    let driver = (GPU_DRIVER_VERSION, "460.91.03");
    let vendor = (GPU_VENDOR, "nvidia");
    for (name, names, want) in [
        (
            "koordlet-observe#13.4.D1",
            vec!["NVIDIA A100-SXM4-80GB"; 2],
            vec![driver, (GPU_MODEL, "A100-SXM4-80GB"), vendor],
        ),
        ("koordlet-observe#13.4.D2", vec!["Tesla T4"], vec![driver, (GPU_MODEL, "Tesla-T4"), vendor]),
        ("koordlet-observe#13.4.D3", vec!["Tesla T4", "Tesla V100"], vec![vendor]),
        ("not a label's letters", vec!["GeForce (x) "], vec![driver, (GPU_MODEL, "GeForce--x"), vendor]),
        ("no name", vec![""], vec![vendor]),
        ("koordlet-observe#13.4.D11 no GPU", vec![], vec![]),
    ] {
        let gpus = names.iter().zip(0..).map(|(name, minor)| gpu(minor, name, 1, "")).collect();
        assert_eq!(labels(&written(&of_gpus(gpus))), want, "{name}");
    }
    let silent = Inventory { driver_version: None, ..of_gpus(vec![gpu(0, "Tesla T4", 1, "")]) };
    assert_eq!(labels(&written(&silent)), [vendor], "a driver that does not tell its version");
    assert!(report(&Inventory::default(), false).is_empty(), "koordlet-observe#13.4.D11");
    assert!(report(&of_gpus(vec![gpu(0, "Tesla T4", 1, "")]), true).is_empty(), "only files count");
}

#[test]
fn gpus_in_order_with_their_places() {
    let inventory = of_gpus(vec![gpu(1, "A", 85_899_345_920, "pci0000:5d"), gpu(0, "A", 16_000, "")]);
    let [first, second] = devices(&written(&inventory)).try_into().unwrap();
    assert_eq!(
        first,
        json!({"type": "gpu", "id": "GPU-0", "minor": 0, "health": true, "resources": {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "16000",
            "koordinator.sh/gpu-memory-ratio": "100",
        }}),
        "koordlet-observe#13.4.D12"
    );
    assert_eq!(second["resources"]["koordinator.sh/gpu-memory"], "80Gi", "koordlet-observe#13.4.D12");
    let topology = json!({"socketID": -1, "nodeID": 0, "pcieID": "pci0000:5d", "busID": "0000:01:00.0"});
    assert_eq!(second["topology"], topology, "koordlet-observe#13.4.D12");
}

#[test]
fn illness_is_told_once_and_recovery_too() {
    let mut inventory = of_gpus(vec![gpu(0, "A", 1, ""), gpu(1, "A", 1, "")]);
    let message = "Xid error detected on device, error code: 79";
    inventory.gpus[1].ailment = Some(Ailment { code: "Xid79".to_owned(), message: message.to_owned() });
    let ill = written(&inventory);
    let [first, second] = devices(&ill).try_into().unwrap();
    assert_eq!(first.get("conditions"), None, "koordlet-observe#13.4.D13");
    assert_eq!(second["health"], false, "koordlet-observe#13.4.D13");
    assert_eq!(
        second["conditions"],
        json!([{"type": "Healthy", "status": "False", "reason": "Xid79", "message": message,
            "lastTransitionTime": "1970-01-01T00:01:40Z"}]),
        "koordlet-observe#13.4.D13"
    );
    assert_eq!(over(&ill, &inventory, 200), ill, "koordlet-observe#13.4.D14: nothing to write");
    inventory.gpus[1].ailment = None;
    let well = over(&ill, &inventory, 300);
    assert_eq!(
        devices(&well)[1]["conditions"],
        json!([{"type": "Healthy", "status": "True", "reason": "DeviceHealthy", "message": "device is healthy",
            "lastTransitionTime": "1970-01-01T00:05:00Z"}])
    );
    assert_eq!(over(&well, &inventory, 400), well);
}

#[test]
fn what_others_wrote_stays() {
    let inventory = of_gpus(vec![gpu(0, "Tesla T4", 1, "")]);
    let mut live = written(&inventory);
    live.metadata.labels.get_or_insert_default().insert("team".to_owned(), "red".to_owned());
    live.metadata.annotations.get_or_insert_default().insert("note".to_owned(), "kept".to_owned());
    let first = &mut live.spec.as_mut().unwrap().devices[0];
    first.labels.insert("slot".to_owned(), "front".to_owned());
    first.module_id = Some(7);
    assert_eq!(over(&live, &inventory, 200), live);
    let gone = over(&live, &Inventory::default(), 200);
    assert_eq!(labels(&gone), [("team", "red")], "koordlet-observe#13.4.D11: only our labels leave");
    assert!(devices(&gone).is_empty());
    // An object of an old release names no minor number, and that is no reason to fall over.
    let mut old = live.clone();
    old.spec.as_mut().unwrap().devices[0].minor = None;
    assert_eq!(over(&old, &inventory, 200), live);
}

#[test]
fn cards_follow_the_gpus() {
    for (name, want) in [
        ("mlx5_3", Some(3)),
        ("hns_0", None),
        ("mlx5_10", Some(10)),
        ("mlx5_", None),
        ("mlx_1", None),
        ("mlx5_+1", None),
        ("mlx5_1x", None),
    ] {
        assert_eq!(card_minor(name), want, "koordlet-observe#13.4.D7 koordlet-observe#13.4.D22 {name}");
    }
    let card = |name: &str, functions: &[&str]| Card {
        bus_id: "0000:1f:00.0".to_owned(),
        name: name.to_owned(),
        place: Place { numa_node: 1, pcie_root: "pci0000:1e".to_owned() },
        is_active: true,
        virtual_functions: functions.iter().map(|id| (*id).to_owned()).collect(),
        ..Card::default()
    };
    let inventory = Inventory {
        cards: vec![card("hns_0", &[]), card("mlx5_3", &["0000:1f:00.3", "0000:1f:00.2"])],
        ..of_gpus(vec![gpu(5, "A", 1, "")])
    };
    let [_, rdma] = devices(&written(&inventory)).try_into().unwrap();
    assert_eq!(
        rdma,
        json!({"type": "rdma", "id": "0000:1f:00.0", "minor": 3, "health": true,
            "resources": {"koordinator.sh/rdma": "100"},
            "topology": {"socketID": -1, "nodeID": 1, "pcieID": "pci0000:1e", "busID": "0000:1f:00.0"},
            "vfGroups": [{"vfs": [{"minor": -1, "busID": "0000:1f:00.2"}, {"minor": -1, "busID": "0000:1f:00.3"}]}]}),
        "koordlet-observe#13.4.D15"
    );
}

#[test]
fn partitions_of_accelerators() {
    let all = ["0", "1", "2", "3"].map(|own| {
        let peers: Vec<&str> = ["0", "1", "2", "3"].into_iter().filter(|minor| *minor != own).collect();
        xpu(own, &[(&peers.join(","), "HCCS")])
    });
    let mut first = xpu("1", &[("0,2,3", "HCCS")]);
    first.topology.as_mut().unwrap().must_honor_partition = true;
    let second = xpu("0", &[("1,2,3", "PCIe"), ("1", "HCCS"), ("", "HCCS"), ("2", "")]);
    let four = r#""4":[{"minors":[0,1,2,3],"gpuLinkType":"HCCS","allocationScore":1}]"#;
    let two = r#""2":[{"minors":[0,1],"gpuLinkType":"HCCS","allocationScore":1}]"#;
    for (name, xpus, policy, want) in [
        ("koordlet-observe#13.4.D8", all.to_vec(), Some("Prefer"), Some(format!("{{{four}}}"))),
        ("koordlet-observe#13.4.D16", vec![first, second], Some("Honor"), Some(format!("{{{two},{four}}}"))),
        ("numbers that are none", vec![xpu("x", &[("y,z", "HCCS")])], Some("Prefer"), None),
        ("no links", vec![xpu("0", &[])], None, None),
    ] {
        let device = written(&of_xpus(xpus));
        let found = |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
        assert_eq!(found(&device.metadata.annotations, GpuPartitions::KEY), want, "{name}");
        assert_eq!(found(&device.metadata.labels, GPU_PARTITION_POLICY).as_deref(), policy, "{name}");
        assert_eq!(found(&device.metadata.labels, GPU_MODEL).as_deref(), Some("Ascend-910B3"), "{name}");
        assert_eq!(found(&device.metadata.labels, GPU_VENDOR).as_deref(), Some("huawei"), "{name}");
    }
}

#[test]
fn accelerators_from_files() {
    let listed = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
    };
    let ratio = json!({"koordinator.sh/gpu-memory-ratio": "100"});
    let healthy = Status { healthy: true, ..Status::default() };
    let ill = Status { error_code: "chip error".to_owned(), ..Status::default() };
    let condition = |status: &str, reason: &str, message: &str| {
        json!([{"type": "Healthy", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "1970-01-01T00:01:40Z"}])
    };
    for (name, xpu, want) in [
        (
            "koordlet-observe#13.4.D9",
            Xpu { resources: listed(&[("gpu-core", "100")]), ..Xpu::default() },
            json!({"type": "gpu", "minor": 0, "health": true, "resources": {
                "koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}}),
        ),
        (
            "koordlet-observe#13.4.D17",
            Xpu { minor: "zz".to_owned(), ..Xpu::default() },
            json!({"type": "gpu", "minor": 0, "health": true, "resources": ratio}),
        ),
        (
            "koordlet-observe#13.4.D18",
            Xpu { topology: Some(Topology::default()), status: Some(healthy), ..Xpu::default() },
            json!({"type": "gpu", "minor": 0, "health": true, "resources": ratio,
                "topology": {"socketID": -1, "nodeID": -1, "pcieID": ""},
                "conditions": condition("True", "DeviceHealthy", "device is healthy")}),
        ),
        (
            "koordlet-observe#13.4.D19",
            Xpu { resources: listed(&[("gpu-memory", "65536Mi"), ("bad", "x")]), ..Xpu::default() },
            json!({"type": "gpu", "minor": 0, "health": true, "resources": {
                "koordinator.sh/gpu-memory": "64Gi", "koordinator.sh/gpu-memory-ratio": "100"}}),
        ),
        (
            "a code that is no word",
            Xpu { status: Some(ill), ..Xpu::default() },
            json!({"type": "gpu", "minor": 0, "health": false, "resources": ratio,
                "conditions": condition("False", "chip_error", "device is unhealthy")}),
        ),
        (
            "no code at all",
            Xpu {
                status: Some(Status { error_message: "hot".to_owned(), ..Status::default() }),
                ..Xpu::default()
            },
            json!({"type": "gpu", "minor": 0, "health": false, "resources": ratio,
                "conditions": condition("False", "Unknown", "hot")}),
        ),
    ] {
        assert_eq!(devices(&written(&of_xpus(vec![xpu]))), [want], "{name}");
    }
}

#[test]
fn accelerators_of_files_stand_in_for_gpus() {
    let both = Inventory { xpus: vec![xpu("0", &[])], ..of_gpus(vec![gpu(0, "Tesla T4", 1, "")]) };
    let device = written(&both);
    assert_eq!(devices(&device)[0]["id"], "npu-0");
    assert_eq!(devices(&device).len(), 1);
    assert_eq!(labels(&device), [(GPU_MODEL, "Ascend-910B3"), (GPU_VENDOR, "huawei")]);
}
