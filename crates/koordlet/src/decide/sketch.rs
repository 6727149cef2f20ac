//! Short nodes and pods for tests: what is not mentioned does not matter.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use koord_api::keys;
use koord_api::topology::{CpuInfo, CpuTopology};

use super::snapshot::{Node, Pod};

pub(crate) type Amounts<'a> = &'a [(&'a str, &'a str)];

fn amounts(list: Amounts<'_>) -> BTreeMap<String, Quantity> {
    list.iter().map(|(name, amount)| (name.to_string(), Quantity(amount.to_string()))).collect()
}

/// A Node object in the making.
#[derive(Clone)]
pub(crate) struct NodeSketch(v1::Node);

pub(crate) fn node(capacity: Amounts<'_>, allocatable: Amounts<'_>) -> NodeSketch {
    NodeSketch(v1::Node {
        status: Some(v1::NodeStatus {
            capacity: Some(amounts(capacity)),
            allocatable: Some(amounts(allocatable)),
            ..v1::NodeStatus::default()
        }),
        ..v1::Node::default()
    })
}

impl NodeSketch {
    pub(crate) fn annotated(mut self, key: &str, value: &str) -> NodeSketch {
        self.0.metadata.annotations.get_or_insert_default().insert(key.to_string(), value.to_string());
        self
    }

    pub(crate) fn read(&self) -> Node {
        Node::read(&self.0)
    }

    pub(crate) fn object(&self) -> &v1::Node {
        &self.0
    }
}

/// A Pod object in the making; its uid is its name. It runs, and so does every container added before
/// `running`, with the id `containerd://<pod>-<container>`.
#[derive(Clone)]
pub(crate) struct PodSketch(v1::Pod);

pub(crate) fn pod(name: &str) -> PodSketch {
    let mut pod = v1::Pod::default();
    pod.metadata.name = Some(name.to_string());
    pod.metadata.namespace = Some("default".to_string());
    pod.metadata.uid = Some(name.to_string());
    pod.spec = Some(v1::PodSpec::default());
    pod.status = Some(v1::PodStatus { phase: Some("Running".to_string()), ..v1::PodStatus::default() });
    PodSketch(pod)
}

impl PodSketch {
    fn spec(mut self, edit: impl FnOnce(&mut v1::PodSpec)) -> PodSketch {
        edit(self.0.spec.get_or_insert_default());
        self
    }

    fn status(mut self, edit: impl FnOnce(&mut v1::PodStatus)) -> PodSketch {
        edit(self.0.status.get_or_insert_default());
        self
    }

    pub(crate) fn named(mut self, namespace: &str, name: &str) -> PodSketch {
        self.0.metadata.namespace = Some(namespace.to_string());
        self.0.metadata.name = Some(name.to_string());
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> PodSketch {
        self.0.metadata.labels.get_or_insert_default().insert(key.to_string(), value.to_string());
        self
    }

    pub(crate) fn annotated(mut self, key: &str, value: &str) -> PodSketch {
        self.0.metadata.annotations.get_or_insert_default().insert(key.to_string(), value.to_string());
        self
    }

    pub(crate) fn qos(self, text: &str) -> PodSketch {
        self.label(keys::pod::label::QOS_CLASS, text)
    }

    /// CPUs that the scheduler pinned it to.
    pub(crate) fn pinned(self, cpus: &str) -> PodSketch {
        self.placed(&format!(r#"{{"cpuset":"{cpus}"}}"#))
    }

    /// What the scheduler wrote.
    pub(crate) fn placed(self, status: &str) -> PodSketch {
        self.annotated(keys::pod::annotation::RESOURCE_STATUS, status)
    }

    pub(crate) fn kube_qos(self, text: &str) -> PodSketch {
        self.status(|status| status.qos_class = Some(text.to_string()))
    }

    pub(crate) fn phase(self, text: &str) -> PodSketch {
        self.status(|status| status.phase = Some(text.to_string()))
    }

    pub(crate) fn priority(self, value: i32) -> PodSketch {
        self.spec(|spec| spec.priority = Some(value))
    }

    pub(crate) fn host_network(self) -> PodSketch {
        self.spec(|spec| spec.host_network = Some(true))
    }

    pub(crate) fn runtime_class(self, name: &str) -> PodSketch {
        self.spec(|spec| spec.runtime_class_name = Some(name.to_string()))
    }

    pub(crate) fn ip(self, ip: &str) -> PodSketch {
        self.status(|status| status.pod_ip = Some(ip.to_string()))
    }

    pub(crate) fn claim_volume(self, name: &str, claim: &str) -> PodSketch {
        let source = v1::PersistentVolumeClaimVolumeSource { claim_name: claim.to_string(), read_only: None };
        let persistent_volume_claim = Some(source);
        let volume = v1::Volume { name: name.to_string(), persistent_volume_claim, ..v1::Volume::default() };
        self.spec(|spec| spec.volumes.get_or_insert_default().push(volume))
    }

    pub(crate) fn csi_volume(self, name: &str) -> PodSketch {
        let csi = Some(v1::CSIVolumeSource::default());
        let volume = v1::Volume { name: name.to_string(), csi, ..v1::Volume::default() };
        self.spec(|spec| spec.volumes.get_or_insert_default().push(volume))
    }

    pub(crate) fn container(self, name: &str, requests: Amounts<'_>, limits: Amounts<'_>) -> PodSketch {
        self.spec(|spec| spec.containers.push(container(name, requests, limits)))
    }

    pub(crate) fn sidecar(self, name: &str) -> PodSketch {
        let sidecar =
            v1::Container { restart_policy: Some("Always".to_string()), ..container(name, &[], &[]) };
        self.spec(|spec| spec.init_containers.get_or_insert_default().push(sidecar))
    }

    /// An init container that runs now.
    pub(crate) fn initializing(self, name: &str, requests: Amounts<'_>, limits: Amounts<'_>) -> PodSketch {
        let id = format!("containerd://{}-{name}", self.0.metadata.name.clone().unwrap_or_default());
        let status = v1::ContainerStatus {
            name: name.to_string(),
            container_id: Some(id),
            state: Some(v1::ContainerState {
                running: Some(v1::ContainerStateRunning::default()),
                ..v1::ContainerState::default()
            }),
            ..v1::ContainerStatus::default()
        };
        let init = container(name, requests, limits);
        self.spec(|spec| spec.init_containers.get_or_insert_default().push(init))
            .status(|all| all.init_container_statuses.get_or_insert_default().push(status))
    }

    /// Gives every container an id and lets it run.
    pub(crate) fn running(mut self) -> PodSketch {
        let name = self.0.metadata.name.clone().unwrap_or_default();
        let containers = self.0.spec.as_ref().map(|spec| spec.containers.clone()).unwrap_or_default();
        let statuses = containers.iter().map(|container| v1::ContainerStatus {
            name: container.name.clone(),
            container_id: Some(format!("containerd://{name}-{}", container.name)),
            state: Some(v1::ContainerState {
                running: Some(v1::ContainerStateRunning::default()),
                ..v1::ContainerState::default()
            }),
            ..v1::ContainerStatus::default()
        });
        self.0.status.get_or_insert_default().container_statuses = Some(statuses.collect());
        self
    }

    /// The last container has no id yet: its image is being pulled.
    pub(crate) fn pulling(self) -> PodSketch {
        self.status(|all| {
            if let Some(last) = all.container_statuses.as_mut().and_then(|statuses| statuses.last_mut()) {
                (last.container_id, last.state) = (None, None);
            }
        })
    }

    pub(crate) fn read(&self) -> Pod {
        Pod::read(&self.0)
    }

    pub(crate) fn object(&self) -> &v1::Pod {
        &self.0
    }
}

fn container(name: &str, requests: Amounts<'_>, limits: Amounts<'_>) -> v1::Container {
    v1::Container {
        name: name.to_string(),
        resources: Some(v1::ResourceRequirements {
            requests: Some(amounts(requests)),
            limits: Some(amounts(limits)),
            ..v1::ResourceRequirements::default()
        }),
        ..v1::Container::default()
    }
}

/// CPUs with their core and NUMA node by id; the socket is the node.
pub(crate) fn cpus(count: u32, core: impl Fn(u32) -> u32, node: impl Fn(u32) -> u32) -> CpuTopology {
    CpuTopology::new((0..count).map(|id| CpuInfo { id, core: core(id), socket: node(id), node: node(id) }))
}
