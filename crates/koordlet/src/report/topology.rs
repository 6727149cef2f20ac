//! NodeResourceTopology: where the node's CPUs and memory are, and which CPUs pods share. Spec: koordlet-observe 8.
//!
//! [`compute`] is pure; [`object`] merges the result into what the API server has; [`run`] is the loop around both.

pub mod kubelet;
pub mod object;
pub mod run;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;

use koord_api::annotation::node::SystemQosResource;
use koord_api::annotation::node_reservation::NodeReservation;
use koord_api::annotation::node_topology::{
    BeCpuSharedPools, CpuBasicInfo, CpuSharedPools, CpuTopologyReport, KubeletCpuManagerPolicy, PodCpuAlloc,
    PodCpuAllocs,
};
use koord_api::annotation::{Annotation, AnnotationError, Annotations, read};
use koord_api::cpuset::CpuSet;
use koord_api::crd::node_resource_topology::{TopologyPolicy, Zone};
use koord_api::keys::node_topology::annotation::SYSTEM_QOS_RESOURCE;
use koord_api::keys::node_topology::label::ENABLE_NUMA_RESERVATION;
use koord_api::topology::{CpuTopology, take_by_topology};
use serde::Deserialize;

use crate::decide::hooks::share_pools::{Withheld, is_managed, share_pools};
use crate::decide::snapshot::Layout;
use crate::state::{Hardware, NodeState, PodState};
use kubelet::KubeletConfig;

/// What a report is made from.
#[derive(Clone, Copy)]
pub struct Sources<'s> {
    pub node: &'s NodeState,
    pub hardware: &'s Hardware,
    pub pods: &'s [Arc<PodState>],
    /// None when the kubelet is not asked.
    pub kubelet: Option<&'s KubeletConfig>,
    /// What kubelet's CPU manager wrote down; none when it wrote nothing.
    pub cpu_manager: Option<&'s str>,
    /// Gate HugePageReport.
    pub reports_huge_pages: bool,
}

/// Everything that we say about the node, and nothing that others say.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    /// Every annotation that is ours.
    pub annotations: Annotations,
    /// The only label that follows the node's; none takes it off.
    pub numa_reservation: Option<String>,
    pub policy: TopologyPolicy,
    /// In order of their NUMA nodes.
    pub zones: Vec<Zone>,
    /// The same, as decisions read it.
    pub layout: Layout,
    /// What could not be read and was left out.
    pub warnings: Vec<String>,
}

/// Why a round reports nothing.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// The node says something that must not be misread.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    #[error("cannot read kubelet's cpu_manager_state")]
    CpuManager(#[source] serde_json::Error),
    /// Upstream's text.
    #[error("NUMA node number not matched, CPUs are on {cpu_nodes}, memory is known of {memory_nodes}")]
    NumaNodes {
        cpu_nodes: usize,
        memory_nodes: usize,
        /// Decisions need the CPUs alone, and these are known.
        layout: Box<Layout>,
    },
}

pub fn compute(sources: Sources<'_>) -> Result<Computed, ComputeError> {
    let Sources { node, hardware, pods, kubelet, .. } = sources;
    let topology = hardware.topology();
    let zones = zones::zones(&topology, hardware, node, sources.reports_huge_pages);
    let mut warnings = Vec::new();
    let reservation = reservation(node, &topology, &mut warnings);
    let system: Option<SystemQosResource> = read(node.annotations.as_ref())?;
    let manager = kubelet.map(|kubelet| kubelet.cpu_manager(&topology, &mut warnings)).unwrap_or_default();
    let text = sources.cpu_manager.filter(|text| manager.is_static() && !text.is_empty());
    let (allocs, taken) = kubelet_allocs(text, pods, &mut warnings)?;
    let withheld = Withheld { kubelet: taken, node: withheld_by_node(&reservation, system.as_ref()) };
    // Differs: upstream keeps CPUs away from others that pods had which have ended.
    let running = pods.iter().filter(|pod| !pod.is_finished).map(|pod| &pod.pod);
    let pools = share_pools(&topology, &withheld, running);
    let info = &hardware.info;
    let basic = CpuBasicInfo {
        cpu_model: info.model.clone(),
        hyper_thread_enabled: info.hyper_threading,
        turbo_enabled: info.turbo,
        cat_l3_cbm_mask: info.l3_mask.clone(),
        vendor_id: info.vendor.clone(),
    };
    let mut annotations = Annotations::new();
    set(&mut annotations, &basic);
    set(&mut annotations, &CpuTopologyReport::from(&topology));
    set(&mut annotations, &CpuSharedPools(pools.ls));
    set(&mut annotations, &BeCpuSharedPools(pools.be));
    set(&mut annotations, &manager);
    set(&mut annotations, &allocs);
    set(&mut annotations, &reservation);
    match (&node.annotations, system) {
        // Upstream tells a node without annotations from one without this annotation, by accident.
        (None, _) => drop(annotations.insert(SYSTEM_QOS_RESOURCE.to_owned(), "null".to_owned())),
        (Some(_), system) => set(&mut annotations, &system.unwrap_or_default()),
    }
    let cpu_nodes = topology.nodes().count();
    let layout = Layout::read(topology, &annotations);
    let Some(zones) = zones else {
        let memory_nodes = hardware.numa_nodes.len();
        return Err(ComputeError::NumaNodes { cpu_nodes, memory_nodes, layout: Box::new(layout) });
    };
    Ok(Computed {
        layout,
        annotations,
        numa_reservation: node.labels.get(ENABLE_NUMA_RESERVATION).cloned(),
        policy: kubelet.map_or(TopologyPolicy::None, KubeletConfig::topology_policy),
        zones,
        warnings,
    })
}

fn set<T: Annotation>(annotations: &mut Annotations, value: &T) {
    koord_api::annotation::write(annotations, value);
}

/// The node's reservation with its CPUs found. One that cannot be read reserves nothing.
fn reservation(node: &NodeState, topology: &CpuTopology, warnings: &mut Vec<String>) -> NodeReservation {
    let reservation: NodeReservation = match read(node.annotations.as_ref()) {
        Ok(reservation) => reservation.unwrap_or_default(),
        Err(error) => {
            warnings.push(format!("the node's reservation cannot be read and reserves nothing: {error}"));
            NodeReservation::default()
        }
    };
    reservation.with_cpus(|count| take_by_topology(topology, topology.all(), count))
}

fn withheld_by_node(reservation: &NodeReservation, system: Option<&SystemQosResource>) -> CpuSet {
    let reserved: CpuSet = reservation.reserved_cpus.parse().unwrap_or_default();
    let exclusive = system.filter(|system| system.is_exclusive());
    let system: CpuSet = exclusive.and_then(|system| system.cpus().ok()).unwrap_or_default();
    &reserved | &system
}

/// What kubelet's CPU manager writes down, as far as we read it.
#[derive(Deserialize)]
struct CpuManagerState {
    /// CPU lists by container, by uid.
    #[serde(default)]
    entries: BTreeMap<String, BTreeMap<String, String>>,
}

/// Pods that kubelet pinned and that are not ours, by uid, and all of their CPUs.
fn kubelet_allocs(
    text: Option<&str>,
    pods: &[Arc<PodState>],
    warnings: &mut Vec<String>,
) -> Result<(PodCpuAllocs, CpuSet), ComputeError> {
    let mut allocs = Vec::new();
    let mut taken = CpuSet::new();
    let Some(text) = text else { return Ok((PodCpuAllocs(allocs), taken)) };
    let state: CpuManagerState = serde_json::from_str(text).map_err(ComputeError::CpuManager)?;
    for (uid, containers) in state.entries {
        let pod = pods.iter().find(|pod| **pod.uid() == *uid).map(|pod| &pod.pod);
        if pod.is_some_and(is_managed) {
            continue;
        }
        let mut cpus = CpuSet::new();
        for (container, list) in containers {
            match list.parse::<CpuSet>() {
                Ok(own) => cpus = &cpus | &own,
                Err(error) => {
                    warnings
                        .push(format!("CPUs of pod {uid}, container {container}, cannot be read: {error}"));
                }
            }
        }
        if cpus.is_empty() {
            continue;
        }
        allocs.push(PodCpuAlloc {
            namespace: pod.map(|pod| pod.namespace.clone()).unwrap_or_default(),
            name: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
            uid,
            cpuset: cpus.to_string(),
            managed_by_kubelet: true,
        });
        taken = &taken | &cpus;
    }
    Ok((PodCpuAllocs(allocs), taken))
}

/// Whether two texts hold the same JSON. A text that is no JSON is like no other.
fn is_same_json(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    matches!((value(a), value(b)), (Some(a), Some(b)) if a == b)
}

impl KubeletConfig {
    /// The annotation about kubelet's CPU manager. Reserved CPUs that cannot be found are left out.
    fn cpu_manager(&self, topology: &CpuTopology, warnings: &mut Vec<String>) -> KubeletCpuManagerPolicy {
        let mut policy = KubeletCpuManagerPolicy {
            policy: self.cpu_manager_policy.clone(),
            options: self.cpu_manager_options.clone(),
            reserved_cpus: String::new(),
        };
        if policy.is_static() {
            match self.reserved_cpus(topology) {
                Ok(cpus) => policy.reserved_cpus = cpus.to_string(),
                Err(error) => {
                    warnings.push(format!("CPUs that kubelet keeps for itself are not known: {error}"))
                }
            }
        }
        policy
    }
}

#[cfg(test)]
mod tests;
