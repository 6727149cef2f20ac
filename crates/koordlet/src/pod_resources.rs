//! Which pod has which devices, as monitors ask kubelet: its answer, with the devices that koord-scheduler gave.
//!
//! The kubelet knows only of devices that a device plugin gave. Monitors are pointed at our socket instead of its own, and
//! see both. Spec: koordlet-observe 3.7.

mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use koord_api::annotation::device::{DeviceAllocation, DeviceAllocations};
use koord_api::crd::device::DeviceType;
use koord_api::keys::resource::{NVIDIA_GPU, RDMA};
use koord_linux::root::Root;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::grpc::Refusal;
use crate::grpc::client::{CallError, Channel};
use crate::grpc::server::{Service, listen, serve};
use crate::state::{Snapshot, State};
use wire::ContainerDevices;

/// Of our socket, and of the kubelet's.
const SOCKET: &str = "kubelet.sock";
/// How long the kubelet has for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const LIST: &str = "/v1.PodResourcesLister/List";
/// What is handed on as it is.
const OTHERS: [&str; 2] = ["/v1.PodResourcesLister/GetAllocatableResources", "/v1.PodResourcesLister/Get"];

/// Listens in a folder. Where that is not possible monitors have the kubelet alone.
pub fn start(dir: &Path, root: &Root, state: &State, tasks: &TaskTracker, stop: &CancellationToken) {
    let socket = dir.join(SOCKET);
    let proxy = Proxy { kubelet: root.kubelet.join("pod-resources").join(SOCKET), state: state.clone() };
    let listener = std::fs::create_dir_all(dir).and_then(|()| listen(&socket));
    match listener {
        Ok(listener) => {
            tracing::info!(socket = %socket.display(), "tells monitors which pod has which devices");
            tasks.spawn(serve(listener, Arc::new(proxy), stop.clone()));
        }
        Err(error) => {
            tracing::warn!(socket = %socket.display(), %error, "cannot listen: monitors are not told of devices");
        }
    }
}

struct Proxy {
    /// Its own socket.
    kubelet: PathBuf,
    state: State,
}

impl Service for Proxy {
    async fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        if path != LIST && !OTHERS.contains(&path) {
            return Err(Refusal::unknown_method(path));
        }
        let snapshot = self.state.load();
        if path == LIST && !snapshot.synced.pods {
            // An answer without what koord-scheduler gave would say that nobody has it.
            return Err(Refusal::unavailable("koordlet has not heard of the node's pods yet".to_owned()));
        }
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.ask(path, message)).await;
        let answer = answer
            .map_err(|_| Refusal::unavailable(format!("kubelet did not answer within {ANSWER_WITHIN:?}")))?;
        let answer = answer.map_err(|error| match error {
            CallError::Refused(refusal) => refusal,
            error => Refusal::unavailable(format!("kubelet: {error}")),
        })?;
        if path != LIST {
            return Ok(answer.into());
        }
        wire::with_devices(&answer, |namespace, name| given(&snapshot, namespace, name))
            .map_err(|error| Refusal::unknown(format!("kubelet's answer cannot be read: {error}")))
    }
}

impl Proxy {
    async fn ask(&self, path: &str, message: &[u8]) -> Result<Bytes, CallError> {
        Channel::open(&self.kubelet).await?.call(path, message).await
    }
}

/// What koord-scheduler gave a pod; nothing where that is not known.
fn given(snapshot: &Snapshot, namespace: &str, name: &str) -> Vec<ContainerDevices> {
    let mut pods = snapshot.pods.iter().map(|pod| &pod.pod);
    let pod = pods.find(|pod| pod.name == name && pod.namespace == namespace);
    match pod.map(|pod| &pod.devices) {
        Some(Ok(Some(DeviceAllocations(devices)))) => devices.iter().map(described).collect(),
        _ => Vec::new(),
    }
}

fn described((kind, devices): (&DeviceType, &Vec<DeviceAllocation>)) -> ContainerDevices {
    let resource_name = match kind {
        DeviceType::Gpu => NVIDIA_GPU,
        DeviceType::Rdma => RDMA,
        DeviceType::Fpga | DeviceType::Other(_) => "",
    };
    let ids = |device: &DeviceAllocation| match &device.extension {
        Some(extension) => extension.vfs.iter().map(|vf| vf.bus_id.clone()).collect(),
        None => vec![device.id.clone()],
    };
    ContainerDevices {
        resource_name: resource_name.to_owned(),
        device_ids: devices.iter().flat_map(ids).collect(),
    }
}

#[cfg(test)]
mod tests;
