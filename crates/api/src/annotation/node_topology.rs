//! What koordlet reports about a node's CPUs on its NodeResourceTopology. Spec: api 5.2, 4.2.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{is_default, json_annotation};
use crate::crd::wire::Omit;
use crate::keys;
use crate::keys::node_topology::annotation::{
    BE_CPU_SHARED_POOLS, CPU_BASIC_INFO, CPU_MANAGER_POLICY, CPU_SHARED_POOLS, CPU_TOPOLOGY, POD_CPU_ALLOCS,
};
use crate::topology::{CpuInfo, CpuTopology};

/// Where each CPU sits, sorted by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuTopologyReport {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub detail: Vec<ReportedCpu>,
}

json_annotation!(CpuTopologyReport, CPU_TOPOLOGY, Broken, Absent);

/// One logical CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedCpu {
    pub id: i32,
    pub core: i32,
    pub socket: i32,
    /// NUMA node.
    pub node: i32,
}

impl CpuTopologyReport {
    /// The topology to think with. A CPU with a negative number anywhere makes no sense and is left out.
    pub fn topology(&self) -> CpuTopology {
        CpuTopology::new(self.detail.iter().filter_map(|cpu| {
            let number = |wire: i32| u32::try_from(wire).ok();
            Some(CpuInfo {
                id: number(cpu.id)?,
                core: number(cpu.core)?,
                socket: number(cpu.socket)?,
                node: number(cpu.node)?,
            })
        }))
    }
}

impl From<&CpuTopology> for CpuTopologyReport {
    fn from(topology: &CpuTopology) -> CpuTopologyReport {
        // A kernel numbers CPUs far below the limit of the wire.
        let number = |id: u32| i32::try_from(id).unwrap_or(i32::MAX);
        let detail = topology.cpus().iter().map(|cpu| ReportedCpu {
            id: number(cpu.id),
            core: number(cpu.core),
            socket: number(cpu.socket),
            node: number(cpu.node),
        });
        CpuTopologyReport { detail: detail.collect() }
    }
}

/// CPUs that LS pods share: one pool for each NUMA node, sorted by socket, then node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuSharedPools(pub Vec<CpuSharedPool>);

json_annotation!(CpuSharedPools, CPU_SHARED_POOLS, Broken, Absent);

/// CPUs that BE pods share, alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BeCpuSharedPools(pub Vec<CpuSharedPool>);

json_annotation!(BeCpuSharedPools, BE_CPU_SHARED_POOLS, Broken, Absent);

/// The shared CPUs of one NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSharedPool {
    pub socket: i32,
    pub node: i32,
    /// CPU list.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub cpuset: String,
}

/// Pods that kubelet pinned and we do not manage, sorted by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodCpuAllocs(#[serde(serialize_with = "empty_list_as_null")] pub Vec<PodCpuAlloc>);

json_annotation!(PodCpuAllocs, POD_CPU_ALLOCS, Broken, Absent);

/// Writes what upstream writes for "none": `null`.
fn empty_list_as_null<S: serde::Serializer>(list: &[PodCpuAlloc], serializer: S) -> Result<S::Ok, S::Error> {
    (!list.is_empty()).then_some(list).serialize(serializer)
}

/// CPUs of one pod that kubelet pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodCpuAlloc {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub namespace: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub name: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub uid: String,
    /// CPU list.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub cpuset: String,
    #[serde(skip_serializing_if = "is_default")]
    pub managed_by_kubelet: bool,
}

/// Kubelet's own CPU manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubeletCpuManagerPolicy {
    /// `static` or `none`.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub policy: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub options: BTreeMap<String, String>,
    /// CPU list.
    #[serde(rename = "reservedCPUs", skip_serializing_if = "Omit::omit")]
    pub reserved_cpus: String,
}

json_annotation!(KubeletCpuManagerPolicy, CPU_MANAGER_POLICY, Broken, Absent);

/// Option of kubelet's static policy: pods get whole cores.
pub const OPTION_FULL_PCPUS_ONLY: &str = "full-pcpus-only";
/// Option of kubelet's static policy: CPUs are spread over NUMA nodes.
pub const OPTION_DISTRIBUTE_ACROSS_NUMA: &str = "distribute-cpus-across-numa";

impl KubeletCpuManagerPolicy {
    pub fn is_static(&self) -> bool {
        self.policy == "static"
    }

    pub fn has_option(&self, name: &str) -> bool {
        self.options.get(name).is_some_and(|value| value == "true")
    }
}

/// What a node's CPUs are like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CpuBasicInfo {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub cpu_model: String,
    #[serde(skip_serializing_if = "is_default")]
    pub hyper_thread_enabled: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub turbo_enabled: bool,
    #[serde(rename = "catL3CbmMask", skip_serializing_if = "Omit::omit")]
    pub cat_l3_cbm_mask: String,
    #[serde(rename = "vendorID", skip_serializing_if = "Omit::omit")]
    pub vendor_id: String,
}

json_annotation!(CpuBasicInfo, CPU_BASIC_INFO, Broken, Absent);

/// How CPUs must be bound on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeCpuBindPolicy {
    #[default]
    None,
    /// Whole cores only.
    FullPcpusOnly,
    /// One thread of each core first.
    SpreadByPcpus,
}

/// The node's policy: its label, unless kubelet insists on whole cores.
pub fn node_cpu_bind_policy(
    node_labels: Option<&BTreeMap<String, String>>,
    kubelet: Option<&KubeletCpuManagerPolicy>,
) -> NodeCpuBindPolicy {
    let label = node_labels.and_then(|labels| labels.get(keys::node::label::CPU_BIND_POLICY));
    let kubelet_insists = kubelet.is_some_and(|k| k.is_static() && k.has_option(OPTION_FULL_PCPUS_ONLY));
    match label.map(String::as_str) {
        _ if kubelet_insists => NodeCpuBindPolicy::FullPcpusOnly,
        Some("FullPCPUsOnly") => NodeCpuBindPolicy::FullPcpusOnly,
        Some("SpreadByPCPUs") => NodeCpuBindPolicy::SpreadByPcpus,
        _ => NodeCpuBindPolicy::None,
    }
}

/// Which NUMA nodes of a node are filled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumaAllocateStrategy {
    MostAllocated,
    LeastAllocated,
}

/// The node's strategy; none leaves it to the scheduler's default.
pub fn numa_allocate_strategy(
    node_labels: Option<&BTreeMap<String, String>>,
) -> Option<NumaAllocateStrategy> {
    match node_labels?.get(keys::node::label::NUMA_ALLOCATE_STRATEGY)?.as_str() {
        "MostAllocated" => Some(NumaAllocateStrategy::MostAllocated),
        "LeastAllocated" => Some(NumaAllocateStrategy::LeastAllocated),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::Annotation;

    #[test]
    fn texts() {
        let topology =
            r#"{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":0,"socket":0,"node":0}]}"#;
        let report = CpuTopologyReport::parse(topology).unwrap();
        assert_eq!(report.text(), topology);
        assert_eq!(report.topology().siblings(1).unwrap().to_string(), "0-1");
        assert_eq!(CpuTopologyReport::from(&report.topology()), report);
        let odd = CpuTopologyReport::parse(r#"{"detail":[{"id":-1},{"id":3}]}"#).unwrap();
        assert_eq!(odd.topology().all().to_string(), "3");
        let pools = r#"[{"socket":0,"node":0,"cpuset":"0-7"},{"socket":0,"node":1}]"#;
        assert_eq!(CpuSharedPools::parse(pools).unwrap().text(), pools);
        assert_eq!(BeCpuSharedPools::parse(pools).unwrap().text(), pools);
        assert_eq!(PodCpuAllocs::default().text(), "null");
        assert_eq!(PodCpuAllocs::parse("null").unwrap(), PodCpuAllocs::default());
        let allocs = r#"[{"namespace":"a","name":"b","uid":"c","cpuset":"0-1","managedByKubelet":true}]"#;
        assert_eq!(PodCpuAllocs::parse(allocs).unwrap().text(), allocs);
        let policy = r#"{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-1"}"#;
        assert_eq!(KubeletCpuManagerPolicy::parse(policy).unwrap().text(), policy);
        let info = r#"{"cpuModel":"X","hyperThreadEnabled":true,"catL3CbmMask":"7ff","vendorID":"V"}"#;
        let read = CpuBasicInfo::parse(info).unwrap();
        assert!(!read.turbo_enabled);
        assert_eq!(read.text(), info);
    }

    #[test]
    fn cpu_bind_policy_of_a_node() {
        use NodeCpuBindPolicy::{FullPcpusOnly, None as NoPolicy, SpreadByPcpus};
        let label =
            |text: &str| BTreeMap::from([(keys::node::label::CPU_BIND_POLICY.to_string(), text.to_string())]);
        let kubelet = |policy: &str, full: &str| KubeletCpuManagerPolicy {
            policy: policy.to_string(),
            options: BTreeMap::from([(OPTION_FULL_PCPUS_ONLY.to_string(), full.to_string())]),
            ..KubeletCpuManagerPolicy::default()
        };
        for (key, text, policy, want) in [
            ("api#10.47", "SpreadByPCPUs", kubelet("static", "true"), FullPcpusOnly),
            ("not static", "SpreadByPCPUs", kubelet("none", "true"), SpreadByPcpus),
            ("option off", "None", kubelet("static", "false"), NoPolicy),
            ("label", "FullPCPUsOnly", kubelet("none", ""), FullPcpusOnly),
            ("other label", "x", kubelet("", ""), NoPolicy),
        ] {
            assert_eq!(node_cpu_bind_policy(Some(&label(text)), Some(&policy)), want, "{key}");
        }
        assert_eq!(node_cpu_bind_policy(None, None), NoPolicy);
    }

    #[test]
    fn numa_strategy_of_a_node() {
        let of = |text: &str| {
            let key = keys::node::label::NUMA_ALLOCATE_STRATEGY.to_string();
            numa_allocate_strategy(Some(&BTreeMap::from([(key, text.to_string())])))
        };
        assert_eq!(of("MostAllocated"), Some(NumaAllocateStrategy::MostAllocated));
        assert_eq!(of("LeastAllocated"), Some(NumaAllocateStrategy::LeastAllocated));
        assert_eq!(of("DistributeEvenly"), None);
    }
}
