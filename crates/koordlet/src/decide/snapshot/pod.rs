//! A pod as decisions see it, read from its object once.

use std::sync::Arc;

use k8s_openapi::api::core::v1;
use koord_api::annotation::core_sched::{CoreSched, core_sched};
use koord_api::annotation::cpu::ResourceStatus;
use koord_api::annotation::device::DeviceAllocations;
use koord_api::annotation::eviction::{EvictionPolicy, EvictionPriority};
use koord_api::annotation::network::PodNetworkQos;
use koord_api::annotation::node_side::{
    ExtendedResourceSpec, OomScoreAdj, OomScoreAdjSpec, PodBlkioQos, PodCpuBurst, PodCpuQos, PodMemoryQos,
    PodResctrl,
};
use koord_api::annotation::{Annotation, AnnotationError, read};
use koord_api::cpuset::CpuSet;
use koord_api::keys::pod::label::{EVICTION_ENABLED, GPU_ISOLATION_PROVIDER, PRIORITY};
use koord_api::pod::{is_sidecar, label, requests, resource_list};
use koord_api::priority::{self, PriorityClass};
use koord_api::qos::{self, KubeQos, Qos};
use koord_api::quantity::ResourceList;

use super::super::wish::{Place, PodId};
use super::whole;

/// The runtime class whose containers hooks leave alone. Spec: koordlet-enforce 14.5.
const KATA: &str = "kata";

/// An annotation's value, its absence, or why it cannot be taken.
pub type Read<T> = Result<Option<T>, AnnotationError>;

/// A pod of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub id: PodId,
    pub namespace: String,
    pub name: String,
    /// What the label says.
    pub qos: Option<Qos>,
    /// What the label says, else what the Kubernetes QoS implies.
    pub class: Qos,
    pub phase: Phase,
    /// With the default of its class where the spec says nothing.
    pub priority: i32,
    pub priority_class: Option<PriorityClass>,
    /// Order among pods of one priority; the priority itself where the label says nothing.
    pub sub_priority: i32,
    pub is_host_network: bool,
    /// Its containers run inside a machine of their own, and have no groups here.
    pub is_kata: bool,
    pub ip: Option<String>,
    pub created_seconds: i64,
    /// Those that run together: regular ones in order, then sidecars.
    pub containers: Vec<Container>,
    /// Those that run before the others, one after the other.
    pub init_containers: Vec<Container>,
    /// What it asks for in all, as Kubernetes counts.
    pub requests: ResourceList,
    pub volumes: Vec<(String, Volume)>,
    /// Whether the priority triggers may evict it.
    pub is_eviction_enabled: bool,
    pub eviction_priority: i32,
    /// The features that may evict it; all when absent.
    pub eviction_policy: Option<EvictionPolicy>,
    /// Who isolates its GPUs.
    pub gpu_isolation: Option<String>,
    /// Without and with the expeller's suffix.
    pub core_sched: [CoreSched; 2],
    pub resource_status: Read<ResourceStatus>,
    pub extended_spec: Read<ExtendedResourceSpec>,
    pub cpu_burst: Read<PodCpuBurst>,
    pub memory_qos: Read<PodMemoryQos>,
    pub cpu_qos: Read<PodCpuQos>,
    pub blkio_qos: Read<PodBlkioQos>,
    pub resctrl: Read<PodResctrl>,
    pub network_qos: Read<PodNetworkQos>,
    pub oom_score: Read<OomScoreAdj>,
    pub oom_score_spec: Read<OomScoreAdjSpec>,
    pub devices: Read<DeviceAllocations>,
}

/// A pod's phase, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    /// Ended, or unknown.
    Over,
}

/// A container that runs while its pod does.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    pub name: String,
    /// Such as `containerd://1f`; none before it exists.
    pub id: Option<Arc<str>>,
    pub is_running: bool,
    pub requests: ResourceList,
    pub limits: ResourceList,
}

/// Where a pod's volume comes from, as far as its disk can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// A claim by name.
    Claim(String),
    /// A volume of a CSI driver that lives as long as the pod.
    InlineCsi,
    Other,
}

impl Pod {
    pub fn read(pod: &v1::Pod) -> Pod {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let priority = priority::value_with_default(pod);
        let is_label_set = label(pod, PRIORITY).is_some_and(|text| !text.is_empty());
        Pod {
            id: PodId {
                uid: meta.uid.as_deref().unwrap_or_default().into(),
                kube_qos: qos::kube_qos(pod).unwrap_or_else(|| qos::computed_kube_qos(pod)),
            },
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            qos: qos::raw(pod),
            class: qos::with_default(pod).unwrap_or(Qos::Be),
            phase: phase(status),
            priority,
            priority_class: priority::class_with_default(pod),
            sub_priority: priority::sub_priority(pod).ok().filter(|_| is_label_set).unwrap_or(priority),
            is_host_network: spec.and_then(|spec| spec.host_network).unwrap_or(false),
            is_kata: spec.and_then(|spec| spec.runtime_class_name.as_deref()) == Some(KATA),
            ip: status.and_then(|status| status.pod_ip.clone()).filter(|ip| !ip.is_empty()),
            created_seconds: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            containers: containers(pod),
            init_containers: init_containers(pod),
            requests: requests(pod),
            volumes: volumes(spec),
            is_eviction_enabled: label(pod, EVICTION_ENABLED) == Some("true"),
            eviction_priority: annotation::<EvictionPriority>(pod).ok().flatten().unwrap_or_default().0,
            eviction_policy: annotation(pod).unwrap_or_else(|_| Some(EvictionPolicy::default())),
            gpu_isolation: label(pod, GPU_ISOLATION_PROVIDER).map(str::to_owned),
            core_sched: [core_sched(pod, false), core_sched(pod, true)],
            resource_status: annotation(pod),
            extended_spec: annotation(pod),
            cpu_burst: annotation(pod),
            memory_qos: annotation(pod),
            cpu_qos: annotation(pod),
            blkio_qos: annotation(pod),
            resctrl: annotation(pod),
            network_qos: annotation(pod),
            oom_score: annotation(pod),
            oom_score_spec: annotation(pod),
            devices: annotation(pod),
        }
    }

    pub fn is_active(&self) -> bool {
        self.phase != Phase::Over
    }

    /// Whether its CPU time comes from what best-effort pods share.
    pub fn is_best_effort(&self) -> bool {
        self.qos == Some(Qos::Be) || self.id.kube_qos == KubeQos::BestEffort
    }

    /// CPUs that the scheduler pinned it to; empty when there are none.
    pub fn pinned_cpus(&self) -> CpuSet {
        match &self.resource_status {
            Ok(Some(status)) => status.cpus().unwrap_or_default(),
            _ => CpuSet::new(),
        }
    }

    /// Whether the scheduler gave it CPUs of its own.
    pub fn is_pinned(&self) -> bool {
        matches!(&self.resource_status, Ok(Some(status)) if !status.cpuset.is_empty())
    }

    /// Whether the scheduler chose NUMA nodes or CPUs for it.
    pub fn is_placed(&self) -> bool {
        matches!(&self.resource_status, Ok(Some(status))
            if !status.cpuset.is_empty() || !status.numa_node_resources.is_empty())
    }

    /// The sum over containers of a resource counted in whole units; what is not asked for counts nothing.
    pub fn sum_requests(&self, name: &str) -> i64 {
        let amounts = self.containers.iter().filter_map(|container| whole(&container.requests, name));
        amounts.fold(0, i64::saturating_add)
    }

    /// The same for limits; none when a container has none.
    pub fn sum_limits(&self, name: &str) -> Option<i64> {
        let mut sum = 0_i64;
        for container in &self.containers {
            sum = sum.saturating_add(whole(&container.limits, name)?);
        }
        (!self.containers.is_empty()).then_some(sum)
    }

    pub fn place(&self) -> Place {
        Place::Pod(self.id.clone())
    }

    /// Containers whose groups follow rules: regular ones and sidecars, then the init container that runs now. One that
    /// has ended has no group any more.
    pub fn with_init_containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().chain(self.running_init_containers())
    }

    /// Containers that hooks look after: those whose groups follow rules, but none of a virtual machine.
    pub fn hooked_containers(&self) -> impl Iterator<Item = &Container> {
        self.with_init_containers().filter(|_| !self.is_kata)
    }

    pub fn running_init_containers(&self) -> impl Iterator<Item = &Container> {
        self.init_containers.iter().filter(|container| container.is_running)
    }

    /// `namespace/name`, which orders pods that are alike otherwise.
    pub fn full_name(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

impl Container {
    /// Where its cgroup lies; none before it exists.
    pub fn place(&self, pod: &Pod) -> Option<Place> {
        Some(Place::Container(pod.id.clone(), self.id.clone()?))
    }
}

fn annotation<T: Annotation>(pod: &v1::Pod) -> Read<T> {
    read(pod.metadata.annotations.as_ref())
}

fn phase(status: Option<&v1::PodStatus>) -> Phase {
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Pending") => Phase::Pending,
        Some("Running") => Phase::Running,
        _ => Phase::Over,
    }
}

fn containers(pod: &v1::Pod) -> Vec<Container> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    spec.containers.iter().chain(sidecars).map(|own| container(pod, own)).collect()
}

fn init_containers(pod: &v1::Pod) -> Vec<Container> {
    let all = pod.spec.iter().filter_map(|spec| spec.init_containers.as_ref()).flatten();
    all.filter(|own| !is_sidecar(own)).map(|own| container(pod, own)).collect()
}

/// A container of the spec with what its status says.
fn container(pod: &v1::Pod, container: &v1::Container) -> Container {
    let lists = pod.status.iter().flat_map(|s| [&s.container_statuses, &s.init_container_statuses]);
    let status = lists.flatten().flatten().find(|status| status.name == container.name);
    let id = status.and_then(|status| status.container_id.as_deref()).filter(|id| !id.is_empty());
    let resources = container.resources.as_ref();
    Container {
        name: container.name.clone(),
        id: id.map(Arc::from),
        is_running: status
            .and_then(|status| status.state.as_ref())
            .is_some_and(|state| state.running.is_some()),
        requests: resource_list(resources.and_then(|resources| resources.requests.as_ref())),
        limits: resource_list(resources.and_then(|resources| resources.limits.as_ref())),
    }
}

fn volumes(spec: Option<&v1::PodSpec>) -> Vec<(String, Volume)> {
    let of = |volume: &v1::Volume| {
        let source = match (&volume.persistent_volume_claim, &volume.csi) {
            (Some(claim), _) => Volume::Claim(claim.claim_name.clone()),
            (None, Some(_)) => Volume::InlineCsi,
            (None, None) => Volume::Other,
        };
        (volume.name.clone(), source)
    };
    spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten().map(of).collect()
}
