//! The node at one instant.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1;
use koord_api::annotation::Annotations;
use koord_api::annotation::node::RawAllocatable;
use koord_api::annotation::read;
use koord_api::crd::node_metric::{MetricCollectPolicy, NodeMemoryCollectPolicy};
use koord_api::crd::node_slo::HostApplicationSpec;
use koord_api::duration::GoDuration;
use koord_api::quantity::ResourceList;
use koord_api::slo::Effective;
use koord_api::topology::{self, CpuTopology};
use koord_linux::cgroup::{Dir, Driver};
use koord_linux::cpu_info::CpuInfo;
use koord_linux::error::Error;
use koord_linux::root::Root;
use koord_linux::topology::{Cpu, NumaNode, cpus, numa_nodes};

use super::Editions;
use crate::decide::snapshot::{Layout, Node, Pod};

/// The node at one instant. Every part is shared with the snapshots before and after it.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// None before the Node was seen.
    pub node: Option<Arc<NodeState>>,
    /// The NodeSLO over the built-in defaults; none before one was seen.
    pub slo: Option<Arc<Effective>>,
    /// What the kubelet last told, by uid.
    pub pods: Arc<[Arc<PodState>]>,
    /// None before the first round of the topology report, and while that cannot be worked out: then what moves CPU sets
    /// rests, and everything else goes on.
    pub layout: Option<Arc<Layout>>,
    /// None before `/sys` was read.
    pub hardware: Option<Arc<Hardware>>,
    /// How to measure, with its defaults.
    pub metric_policy: Arc<MetricPolicy>,
    /// Names of volumes by namespace and claim. Empty unless disks are governed.
    pub claims: Arc<BTreeMap<(String, String), String>>,
    pub synced: Synced,
    pub editions: Editions,
}

/// Which parts were asked for and answered at least once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// The list of NodeSLOs was read, whether or not one is for this node.
    pub slo: bool,
    pub pods: bool,
    /// The NodeMetric of this node exists.
    pub metric: bool,
    pub claims: bool,
    /// The layout was worked out once, or what is known of the node does not allow it.
    pub layout: bool,
}

impl Snapshot {
    /// What is still waited for before anything may act, in words. Empty when all is there.
    pub fn missing(&self) -> Vec<&'static str> {
        let parts = [
            (self.node.is_some(), "the Node object"),
            (self.synced.slo, "the list of NodeSLOs"),
            (self.synced.pods, "the kubelet's pods"),
            (self.synced.claims, "the list of PersistentVolumeClaims"),
            (self.layout.is_some() || self.synced.layout, "the CPUs of the node"),
        ];
        parts.into_iter().filter(|(is_there, _)| !is_there).map(|(_, name)| name).collect()
    }

    pub fn host_applications(&self) -> &[HostApplicationSpec] {
        self.slo.as_ref().map_or(&[], |slo| &slo.host_applications)
    }

    pub fn pod(&self, uid: &str) -> Option<&Arc<PodState>> {
        let at = self.pods.binary_search_by(|pod| pod.uid().as_ref().cmp(uid)).ok()?;
        self.pods.get(at)
    }

    /// The volume that a claim is bound to.
    pub fn volume_name(&self, namespace: &str, claim: &str) -> Option<&str> {
        self.claims.get(&(namespace.to_owned(), claim.to_owned())).map(String::as_str)
    }
}

/// What is kept of the Node object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeState {
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// None when the object has no annotations at all.
    pub annotations: Option<Annotations>,
    pub node: Node,
    /// Types and addresses in the order of the object.
    pub addresses: Vec<(String, String)>,
    pub kubelet_port: u16,
}

impl NodeState {
    pub fn read(object: &v1::Node) -> NodeState {
        let meta = &object.metadata;
        let status = object.status.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
        let endpoint = status.and_then(|status| status.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref());
        NodeState {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone(),
            node: Node::read(object),
            addresses: addresses.map(|address| (address.type_.clone(), address.address.clone())).collect(),
            kubelet_port: endpoint.and_then(|endpoint| u16::try_from(endpoint.port).ok()).unwrap_or(0),
        }
    }

    /// How events name the node.
    pub fn reference(&self) -> v1::ObjectReference {
        v1::ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..v1::ObjectReference::default()
        }
    }

    /// Allocatable before amplification; what the annotation leaves out counts as none.
    pub fn raw_allocatable(&self) -> ResourceList {
        match read::<RawAllocatable>(self.annotations.as_ref()) {
            Ok(Some(RawAllocatable(list))) => list,
            _ => self.node.allocatable.clone(),
        }
    }
}

/// A pod of this node and what is kept of it beyond what decisions read.
#[derive(Clone, Debug, PartialEq)]
pub struct PodState {
    pub pod: Pod,
    /// Its cgroup.
    pub dir: Dir,
    pub is_deleting: bool,
    /// Succeeded or Failed.
    pub is_finished: bool,
    /// Ids in `status.containerStatuses`, empty where none is told yet.
    pub container_ids: Vec<Arc<str>>,
    /// Those of init containers. With those above they are all groups of the pod but the sandbox.
    pub init_ids: Vec<Arc<str>>,
}

impl PodState {
    pub fn read(object: &v1::Pod, driver: Driver) -> PodState {
        let pod = Pod::read(object);
        let status = object.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        PodState {
            dir: driver.pod_dir(pod.id.kube_qos, &pod.id.uid),
            is_deleting: object.metadata.deletion_timestamp.is_some(),
            is_finished: matches!(phase, Some("Succeeded" | "Failed")),
            container_ids: ids(status.and_then(|status| status.container_statuses.as_ref())),
            init_ids: ids(status.and_then(|status| status.init_container_statuses.as_ref())),
            pod,
        }
    }

    pub fn uid(&self) -> &Arc<str> {
        &self.pod.id.uid
    }

    /// Whether nothing about any pod changed: a list of the kubelet shares what it has in common with the one before.
    pub fn are_same(before: &[Arc<PodState>], now: &[Arc<PodState>]) -> bool {
        before.len() == now.len() && before.iter().zip(now).all(|(before, now)| Arc::ptr_eq(before, now))
    }
}

fn ids(statuses: Option<&Vec<v1::ContainerStatus>>) -> Vec<Arc<str>> {
    let ids = statuses.into_iter().flatten().map(|status| status.container_id.as_deref().unwrap_or_default());
    ids.map(Arc::from).collect()
}

/// What `/sys` and `/proc` tell of the machine. Read once a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    pub info: CpuInfo,
    /// CPUs that are online.
    pub cpus: Vec<Cpu>,
    pub numa_nodes: Vec<NumaNode>,
}

impl Hardware {
    pub fn read(root: &Root) -> Result<Hardware, Error> {
        Ok(Hardware { info: CpuInfo::read(root), cpus: cpus(root)?, numa_nodes: numa_nodes(root) })
    }

    pub fn topology(&self) -> CpuTopology {
        CpuTopology::new(self.cpus.iter().map(|cpu| topology::CpuInfo {
            id: cpu.id,
            core: cpu.core,
            socket: cpu.socket,
            node: cpu.node,
        }))
    }
}

/// The spec of a NodeMetric over its defaults, with its floors. Spec: koordlet-observe 7.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricPolicy {
    /// Window of plain averages.
    pub aggregate_seconds: i64,
    pub report_interval_seconds: i64,
    /// Windows of the percentiles.
    pub windows: Vec<GoDuration>,
    pub memory: NodeMemoryCollectPolicy,
}

/// How fast NodeMetric may be asked for, whatever its spec says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricPace {
    pub aggregate_seconds_min: i64,
    pub report_seconds_min: i64,
    /// Reports per second over time, and at once.
    pub qps: f64,
    pub burst: f64,
    /// Whether a new interval acts at once, not after the wait that goes on.
    pub is_prompt: bool,
}

impl Default for MetricPace {
    /// As the original has it.
    fn default() -> MetricPace {
        MetricPace {
            aggregate_seconds_min: 60,
            report_seconds_min: 30,
            qps: 0.1,
            burst: 2.0,
            is_prompt: false,
        }
    }
}

impl MetricPace {
    /// For a cluster that somebody is watching, where nobody counts writes.
    pub const fn hurried() -> MetricPace {
        MetricPace { aggregate_seconds_min: 1, report_seconds_min: 1, qps: 2.0, burst: 4.0, is_prompt: true }
    }
}

const AGGREGATE_SECONDS_DEFAULT: i64 = 300;
const REPORT_SECONDS_DEFAULT: i64 = 60;
const WINDOWS_DEFAULT_SECONDS: [i64; 3] = [300, 600, 1800];

impl Default for MetricPolicy {
    fn default() -> MetricPolicy {
        MetricPolicy::new(None, &MetricPace::default())
    }
}

impl MetricPolicy {
    pub fn new(policy: Option<&MetricCollectPolicy>, pace: &MetricPace) -> MetricPolicy {
        let seconds = |field: Option<i64>, default: i64, min: i64| field.unwrap_or(default).max(min);
        let windows = policy.and_then(|policy| policy.node_aggregate_policy.as_ref());
        let windows = windows.map(|policy| policy.durations.clone()).filter(|windows| !windows.is_empty());
        MetricPolicy {
            aggregate_seconds: seconds(
                policy.and_then(|policy| policy.aggregate_duration_seconds),
                AGGREGATE_SECONDS_DEFAULT,
                pace.aggregate_seconds_min,
            ),
            report_interval_seconds: seconds(
                policy.and_then(|policy| policy.report_interval_seconds),
                REPORT_SECONDS_DEFAULT,
                pace.report_seconds_min,
            ),
            windows: windows
                .unwrap_or_else(|| WINDOWS_DEFAULT_SECONDS.map(GoDuration::from_seconds).to_vec()),
            memory: policy
                .and_then(|policy| policy.node_memory_collect_policy)
                .unwrap_or(NodeMemoryCollectPolicy::UsageWithoutPageCache),
        }
    }
}
