//! koordlet's report of devices to an API server that checks it: made once, written on changes alone, and others' parts
//! kept.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use koord_api::crd::device::Device;
use koord_linux::nvml::Gpu;
use koord_linux::pci::Place;
use koord_sandbox::cluster::{Cluster, Options};
use koord_sandbox::nodes::{Pool, Shape};
use koordlet::devices::{Ailment, GpuDevice, Inventory, Status, Xpu, publish, report};
use koordlet::state::NodeState;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;

fn gpu(minor: u32) -> GpuDevice {
    GpuDevice {
        gpu: Gpu {
            uuid: format!("GPU-{minor}"),
            minor,
            bus_id: format!("0000:{minor:02x}:00.0"),
            name: "NVIDIA H200".to_owned(),
            memory_bytes: 150_754_820_096,
        },
        place: Place { numa_node: 0, pcie_root: "pci0000:00".to_owned() },
        ailment: None,
    }
}

async fn cluster() -> Result<(Cluster, Client)> {
    let pools = vec![Pool { name: "node".to_owned(), count: 1, shape: Shape::default() }];
    let cluster = Cluster::start(Options { pools, ..Options::default() }, &mut |_| {}).await?;
    let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok((cluster, Client::try_from(config)?))
}

#[tokio::test]
async fn a_node_reports_its_devices() -> Result<()> {
    let (_cluster, client) = cluster().await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.list(&Default::default()).await?.items.into_iter().next().context("a node")?;
    let node = NodeState::read(&node);
    let api: Api<Device> = Api::all(client.clone());
    let now = Timestamp::now();

    let nothing = report(&Inventory::default(), false);
    assert!(!publish(&client, &node, &nothing, now).await?, "nothing to tell, nothing made");
    assert!(api.get_opt(&node.name).await?.is_none());

    let mut inventory = Inventory {
        gpus: vec![gpu(0), gpu(1)],
        driver_version: Some("580.159.04".to_owned()),
        ..Inventory::default()
    };
    assert!(publish(&client, &node, &report(&inventory, false), now).await?);
    let made = api.get(&node.name).await?;
    let owner = made.owner_references().first().context("an owner")?;
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Node", node.uid.as_str()));
    assert_eq!(made.labels().get("node.koordinator.sh/gpu-model").map(String::as_str), Some("H200"));
    assert!(!publish(&client, &node, &report(&inventory, false), now).await?);
    assert_eq!(api.get(&node.name).await?.resource_version(), made.resource_version(), "nothing was sent");

    let foreign = json!({"metadata": {"labels": {"team": "red"}}});
    api.patch(&node.name, &PatchParams::default(), &Patch::Merge(&foreign)).await?;
    inventory.gpus[1].ailment =
        Some(Ailment { code: "Xid79".to_owned(), message: "it fell off the bus".to_owned() });
    assert!(publish(&client, &node, &report(&inventory, false), now).await?);
    let ill = api.get(&node.name).await?;
    assert_eq!(ill.labels().get("team").map(String::as_str), Some("red"));
    let healths: Vec<bool> =
        ill.spec.iter().flat_map(|spec| &spec.devices).map(|device| device.health).collect();
    assert_eq!(healths, [true, false]);
    assert!(!publish(&client, &node, &report(&inventory, false), Timestamp::now()).await?);

    // Words that would be refused as they are: a model with a blank, a code that is none.
    let status = Some(Status { error_code: "chip error".to_owned(), ..Status::default() });
    let npu = Xpu { vendor: "huawei".to_owned(), model: "Ascend 910B".to_owned(), status, ..Xpu::default() };
    inventory.xpus = vec![npu];
    assert!(publish(&client, &node, &report(&inventory, false), now).await?);
    let other = api.get(&node.name).await?;
    assert_eq!(other.labels().get("node.koordinator.sh/gpu-vendor").map(String::as_str), Some("huawei"));

    assert!(publish(&client, &node, &nothing, now).await?, "devices that left are taken off");
    let empty = api.get(&node.name).await?;
    assert!(empty.spec.is_none_or(|spec| spec.devices.is_empty()));
    Ok(())
}
