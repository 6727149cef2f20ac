//! CPU orchestration on pods: what a user wants, what the scheduler gave. Spec: api 5.1.

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::json_annotation;
use crate::cpuset::{CpuListError, CpuSet};
use crate::crd::wire::{Omit, empty_as_none, open_enum};
use crate::keys::pod::annotation::{NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC, RESOURCE_STATUS};
use crate::priority::{self, PriorityClass};
use crate::qos::{self, Qos};
use crate::quantity::ResourceList;

/// How the user wants CPUs to be picked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceSpec {
    /// Kept strictly, or the pod is not scheduled.
    #[serde(
        rename = "requiredCPUBindPolicy",
        skip_serializing_if = "Omit::omit",
        deserialize_with = "empty_as_none"
    )]
    pub required_cpu_bind_policy: Option<CpuBindPolicy>,
    #[serde(
        rename = "preferredCPUBindPolicy",
        skip_serializing_if = "Omit::omit",
        deserialize_with = "empty_as_none"
    )]
    pub preferred_cpu_bind_policy: Option<CpuBindPolicy>,
    #[serde(
        rename = "preferredCPUExclusivePolicy",
        skip_serializing_if = "Omit::omit",
        deserialize_with = "empty_as_none"
    )]
    pub preferred_cpu_exclusive_policy: Option<CpuExclusivePolicy>,
}

json_annotation!(ResourceSpec, RESOURCE_SPEC, Broken, FailPod);

open_enum! {
    /// Which CPUs of a core go together.
    pub enum CpuBindPolicy {
        /// What the scheduler is configured for.
        Default = "Default",
        /// Whole cores.
        FullPcpus = "FullPCPUs",
        /// One thread of each core first.
        SpreadByPcpus = "SpreadByPCPUs",
        /// Reserved.
        ConstrainedBurst = "ConstrainedBurst",
    }

    /// What pods with the same policy do not share.
    pub enum CpuExclusivePolicy {
        None = "None",
        PcpuLevel = "PCPULevel",
        NumaNodeLevel = "NUMANodeLevel",
    }

    /// How a pod's resources are aligned to NUMA nodes.
    pub enum NumaTopologyPolicy {
        BestEffort = "BestEffort",
        Restricted = "Restricted",
        SingleNumaNode = "SingleNUMANode",
    }

    /// Whether pods on one and on several NUMA nodes are kept apart.
    pub enum NumaExclusive {
        Preferred = "Preferred",
        Required = "Required",
    }
}

/// A pod's wish for pinned CPUs, as the scheduler understands it.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuBinding {
    /// `FullPcpus` or `SpreadByPcpus`.
    pub policy: CpuBindPolicy,
    /// Whether a node that cannot keep the policy is out.
    pub is_required: bool,
}

impl ResourceSpec {
    /// Whether the pod's CPUs are pinned, and how. Only LSE and LSR pods of class prod have pinned CPUs.
    pub fn binding(&self, pod: &Pod, default: &CpuBindPolicy) -> Option<CpuBinding> {
        let is_pinned = qos::raw(pod).is_some_and(Qos::is_pinned)
            && priority::class_with_default(pod) == Some(PriorityClass::Prod);
        if !is_pinned {
            return None;
        }
        let or_default = |policy: Option<&CpuBindPolicy>| match policy {
            None | Some(CpuBindPolicy::Default) => default.clone(),
            Some(policy) => policy.clone(),
        };
        let is_required = self.required_cpu_bind_policy.is_some();
        let policy =
            or_default(self.required_cpu_bind_policy.as_ref().or(self.preferred_cpu_bind_policy.as_ref()));
        matches!(policy, CpuBindPolicy::FullPcpus | CpuBindPolicy::SpreadByPcpus)
            .then_some(CpuBinding { policy, is_required })
    }
}

/// What the scheduler gave to a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceStatus {
    /// CPU list; see [`ResourceStatus::cpus`].
    #[serde(skip_serializing_if = "Omit::omit")]
    pub cpuset: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub numa_node_resources: Vec<NumaNodeResource>,
}

json_annotation!(ResourceStatus, RESOURCE_STATUS, Broken, Absent);

/// Amounts on one NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaNodeResource {
    pub node: i32,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub resources: ResourceList,
}

impl ResourceStatus {
    /// The pinned CPUs; empty when none are.
    pub fn cpus(&self) -> Result<CpuSet, CpuListError> {
        self.cpuset.parse()
    }
}

/// NUMA wishes of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaTopologySpec {
    #[serde(
        rename = "numaTopologyPolicy",
        skip_serializing_if = "Omit::omit",
        deserialize_with = "empty_as_none"
    )]
    pub policy: Option<NumaTopologyPolicy>,
    #[serde(
        rename = "singleNUMANodeExclusive",
        skip_serializing_if = "Omit::omit",
        deserialize_with = "empty_as_none"
    )]
    pub single_numa_node_exclusive: Option<NumaExclusive>,
}

json_annotation!(NumaTopologySpec, NUMA_TOPOLOGY_SPEC, Broken, FailPod);

/// A node and a pod that ask for different NUMA policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node(s) NUMA Topology policy not match")]
pub struct NumaPolicyMismatch;

/// The policy a pod gets on a node. The node's own one is its label, else kubelet's.
pub fn effective_numa_policy(
    pod: Option<&NumaTopologyPolicy>,
    node: Option<&NumaTopologyPolicy>,
) -> Result<Option<NumaTopologyPolicy>, NumaPolicyMismatch> {
    match (pod, node) {
        (Some(pod), Some(node)) if pod != node => Err(NumaPolicyMismatch),
        (pod, node) => Ok(pod.or(node).cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{Annotation, Annotations, read};
    use crate::pod::sketch::{Sketch, pod};

    #[test]
    fn resource_status_text() {
        let status = ResourceStatus {
            cpuset: "2-3".into(),
            numa_node_resources: vec![
                NumaNodeResource { node: 0, resources: ResourceList::new() },
                NumaNodeResource {
                    node: 1,
                    resources: [("cpu", "4000m"), ("memory", "8192Mi")]
                        .map(|(name, amount)| (name.to_string(), amount.parse().unwrap()))
                        .into(),
                },
            ],
        };
        let text = r#"{"cpuset":"2-3","numaNodeResources":[{"node":0},{"node":1,"resources":{"cpu":"4","memory":"8Gi"}}]}"#;
        assert_eq!(status.text(), text, "api#1.2.J13");
        assert_eq!(ResourceStatus::parse(text).unwrap(), status, "api#1.2.J13");
        assert_eq!(status.cpus().unwrap().to_string(), "2-3");
        let old = r#"{"cpuset":"0","cpuSharedPools":[{"socket":0,"node":0,"cpuset":"1"}]}"#;
        assert_eq!(ResourceStatus::parse(old).unwrap().text(), r#"{"cpuset":"0"}"#);
    }

    #[test]
    fn spec_texts() {
        let text = r#"{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}"#;
        let spec = ResourceSpec::parse(text).unwrap();
        assert_eq!(spec.preferred_cpu_bind_policy, Some(CpuBindPolicy::SpreadByPcpus));
        assert_eq!(spec.preferred_cpu_exclusive_policy, Some(CpuExclusivePolicy::PcpuLevel));
        assert_eq!(spec.text(), text);
        let loose = r#"{"PreferredCpuBindPolicy":"FullPCPUs","requiredCPUBindPolicy":"","x":1}"#;
        let spec = ResourceSpec::parse(loose).unwrap();
        assert_eq!(spec.text(), r#"{"preferredCPUBindPolicy":"FullPCPUs"}"#);

        let text = r#"{"numaTopologyPolicy":"SingleNUMANode","singleNUMANodeExclusive":"Required"}"#;
        assert_eq!(NumaTopologySpec::parse(text).unwrap().text(), text);

        let broken = Annotations::from([(RESOURCE_SPEC.to_string(), String::new())]);
        let error = read::<ResourceSpec>(&broken).unwrap_err();
        assert_eq!(error.to_string(), format!("annotation {RESOURCE_SPEC}: unexpected end of JSON input"));
    }

    #[test]
    fn who_gets_pinned_cpus() {
        use CpuBindPolicy::{ConstrainedBurst, Default, FullPcpus, SpreadByPcpus};
        let lsr = || pod().qos("LSR").priority(9500);
        let spec = |required: Option<CpuBindPolicy>, preferred: Option<CpuBindPolicy>| ResourceSpec {
            required_cpu_bind_policy: required,
            preferred_cpu_bind_policy: preferred,
            ..ResourceSpec::default()
        };
        for (name, pod, spec, want) in [
            ("scheduler default", lsr(), spec(None, None), Some((FullPcpus, false))),
            ("preferred", lsr(), spec(None, Some(SpreadByPcpus)), Some((SpreadByPcpus, false))),
            ("required wins", lsr(), spec(Some(SpreadByPcpus), Some(FullPcpus)), Some((SpreadByPcpus, true))),
            ("Default", lsr(), spec(Some(Default), None), Some((FullPcpus, true))),
            ("other", lsr(), spec(None, Some(ConstrainedBurst)), None),
            ("LSE", pod().qos("LSE"), spec(None, None), Some((FullPcpus, false))),
            ("not prod", pod().qos("LSE").priority(5500), spec(None, None), None),
            ("LS", pod().qos("LS").priority(9500), spec(Some(FullPcpus), None), None),
        ] {
            let got = spec.binding(&pod, &FullPcpus).map(|b| (b.policy, b.is_required));
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn numa_policies_must_agree() {
        use NumaTopologyPolicy::{BestEffort, Restricted};
        assert_eq!(effective_numa_policy(None, None), Ok(None));
        assert_eq!(effective_numa_policy(Some(&BestEffort), None), Ok(Some(BestEffort)));
        assert_eq!(effective_numa_policy(None, Some(&Restricted)), Ok(Some(Restricted)));
        assert_eq!(effective_numa_policy(Some(&Restricted), Some(&Restricted)), Ok(Some(Restricted)));
        let error = effective_numa_policy(Some(&BestEffort), Some(&Restricted)).unwrap_err();
        assert_eq!(error.to_string(), "node(s) NUMA Topology policy not match");
    }
}
