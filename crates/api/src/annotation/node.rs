//! Annotations and switches on Nodes that have no file of their own. Spec: api 5.4, 4.2.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Annotation, Empty, Fault, OnError, json_annotation};
use crate::cpuset::{CpuListError, CpuSet};
use crate::crd::wire::Omit;
use crate::gate::parse_bool;
use crate::keys;
use crate::keys::node::annotation::{
    COLOCATION_STRATEGY, NETWORK_BANDWIDTH, ORIGIN_EXTENDED_ALLOCATABLE, RAW_ALLOCATABLE,
    SYSTEM_QOS_RESOURCE, THIRD_PARTY_ALLOCATIONS,
};
use crate::priority::PriorityClass;
use crate::quantity::{Quantity, ResourceList};
use crate::slo::ColocationStrategy;

/// CPUs of pods with QoS class SYSTEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SystemQosResource {
    /// CPU list.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub cpuset: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub cpuset_exclusive: Option<bool>,
}

json_annotation!(SystemQosResource, SYSTEM_QOS_RESOURCE, Broken, Absent);

impl SystemQosResource {
    pub fn cpus(&self) -> Result<CpuSet, CpuListError> {
        self.cpuset.parse()
    }

    /// Whether nobody else may use these CPUs; so unless it is denied.
    pub fn is_exclusive(&self) -> bool {
        self.cpuset_exclusive.unwrap_or(true)
    }
}

json_annotation!(ColocationStrategy, COLOCATION_STRATEGY, Broken, Absent);

/// Network bandwidth of a node in bits per second, in place of the cluster's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkBandwidth(pub Quantity);

impl Annotation for NetworkBandwidth {
    const KEY: &'static str = NETWORK_BANDWIDTH;
    const EMPTY: Empty = Empty::Broken;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        let amount =
            text.parse().map_err(|error| Fault::Value(format!("failed to parse node bandwidth {error}")))?;
        Ok(NetworkBandwidth(amount))
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Allocatable before amplification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawAllocatable(pub ResourceList);

json_annotation!(RawAllocatable, RAW_ALLOCATABLE, Broken, Absent);

/// Extended resources before other schedulers on the node took their part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginExtendedAllocatable {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub resources: ResourceList,
}

json_annotation!(OriginExtendedAllocatable, ORIGIN_EXTENDED_ALLOCATABLE, Broken, Absent);

/// What other schedulers, such as YARN, have given out on the node. Names are unique.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThirdPartyAllocations {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub allocations: Vec<ThirdPartyAllocation>,
}

json_annotation!(ThirdPartyAllocations, THIRD_PARTY_ALLOCATIONS, Broken, Absent);

/// What one other scheduler has given out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThirdPartyAllocation {
    pub name: String,
    /// Name of the priority class whose resources are used.
    pub priority: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub resources: ResourceList,
}

impl ThirdPartyAllocations {
    /// Puts an allocation in the place of the one with the same name, or at the end.
    pub fn set(&mut self, allocation: ThirdPartyAllocation) {
        match self.allocations.iter_mut().find(|a| a.name == allocation.name) {
            Some(place) => *place = allocation,
            None => self.allocations.push(allocation),
        }
    }

    /// All that is given out of one class.
    pub fn sum(&self, class: PriorityClass) -> ResourceList {
        let mut sum = ResourceList::new();
        for (name, amount) in
            self.allocations.iter().filter(|a| a.priority == class.name()).flat_map(|a| &a.resources)
        {
            *sum.entry(name.clone()).or_default() += *amount;
        }
        sum
    }
}

/// A label that is neither true nor false.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("label {key}: invalid value {value:?}, expected true or false")]
pub struct BoolLabelError {
    pub key: &'static str,
    pub value: String,
}

/// What the node's label says about CPU normalization, over its strategy.
pub fn cpu_normalization_enabled(
    node_labels: Option<&BTreeMap<String, String>>,
) -> Result<Option<bool>, BoolLabelError> {
    let key = keys::node::label::CPU_NORMALIZATION_ENABLED;
    match node_labels.and_then(|labels| labels.get(key)) {
        None => Ok(None),
        Some(text) => match parse_bool(text) {
            Some(enabled) => Ok(Some(enabled)),
            None => Err(BoolLabelError { key, value: text.clone() }),
        },
    }
}

/// How much GPU partitions of a node's Device bind the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuPartitionPolicy {
    Honor,
    Prefer,
}

/// The policy on a Node or Device.
pub fn gpu_partition_policy(labels: Option<&BTreeMap<String, String>>) -> GpuPartitionPolicy {
    match labels.and_then(|labels| labels.get(keys::node::label::GPU_PARTITION_POLICY)) {
        Some(text) if text == "Honor" => GpuPartitionPolicy::Honor,
        _ => GpuPartitionPolicy::Prefer,
    }
}

/// A fact as a label value may hold it.
pub fn as_label_value(fact: &str) -> String {
    fact.replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_qos() {
        let read = SystemQosResource::parse(r#"{"cpuset":"0-3"}"#).unwrap();
        assert!(read.is_exclusive(), "api#10.38");
        assert_eq!(read.cpus().unwrap().len(), 4, "api#10.38");
        let text = r#"{"cpuset":"0-1","cpusetExclusive":false}"#;
        let read = SystemQosResource::parse(text).unwrap();
        assert!(!read.is_exclusive());
        assert_eq!(read.text(), text);
        assert_eq!(SystemQosResource::default().text(), "{}");
    }

    #[test]
    fn network_bandwidth() {
        assert_eq!(NetworkBandwidth::parse("1G").unwrap().0.value(), 1_000_000_000);
        assert_eq!(NetworkBandwidth::parse("1000M").unwrap().text(), "1G");
        for text in ["x", ""] {
            let fault = NetworkBandwidth::parse(text).unwrap_err().to_string();
            assert!(fault.starts_with("failed to parse node bandwidth quantities must match"), "{fault}");
        }
    }

    #[test]
    fn third_party_allocations() {
        let one = |name: &str, class: &str, amount: &str| ThirdPartyAllocation {
            name: name.into(),
            priority: class.into(),
            resources: [("kubernetes.io/batch-cpu".to_string(), amount.parse().unwrap())].into(),
        };
        let mut all = ThirdPartyAllocations::default();
        all.set(one("yarn", "koord-batch", "1k"));
        all.set(one("slurm", "koord-mid", "5"));
        all.set(one("hive", "koord-batch", "7"));
        all.set(one("yarn", "koord-batch", "2k"));
        let text = concat!(
            r#"{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"2k"}},"#,
            r#"{"name":"slurm","priority":"koord-mid","resources":{"kubernetes.io/batch-cpu":"5"}},"#,
            r#"{"name":"hive","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"7"}}]}"#,
        );
        assert_eq!(all.text(), text);
        assert_eq!(ThirdPartyAllocations::parse(text).unwrap(), all);
        assert_eq!(all.sum(PriorityClass::Batch)["kubernetes.io/batch-cpu"].value(), 2007);
        assert!(all.sum(PriorityClass::Free).is_empty());
    }

    #[test]
    fn amounts() {
        let text = r#"{"resources":{"kubernetes.io/batch-cpu":"1k"}}"#;
        assert_eq!(OriginExtendedAllocatable::parse(text).unwrap().text(), text);
        let text = r#"{"cpu":"4","memory":"8Gi"}"#;
        assert_eq!(RawAllocatable::parse(text).unwrap().text(), text);
    }

    #[test]
    fn cpu_normalization_switch() {
        let label = |text: &str| {
            BTreeMap::from([(keys::node::label::CPU_NORMALIZATION_ENABLED.to_string(), text.to_string())])
        };
        for (text, want) in [("t", Some(true)), ("F", Some(false)), ("tRue", None), ("yes", None), ("", None)]
        {
            let got = cpu_normalization_enabled(Some(&label(text)));
            assert_eq!(got.ok().flatten(), want, "api#10.128 {text:?}");
        }
        assert_eq!(cpu_normalization_enabled(None), Ok(None));
        let error = cpu_normalization_enabled(Some(&label("yes"))).unwrap_err();
        let want = "label node.koordinator.sh/cpu-normalization-enabled: invalid value \"yes\", expected true or false";
        assert_eq!(error.to_string(), want);
    }

    #[test]
    fn facts_as_labels() {
        assert_eq!(as_label_value("NVIDIA A100 SXM4"), "NVIDIA-A100-SXM4");
        let label = |text: &str| {
            BTreeMap::from([(keys::node::label::GPU_PARTITION_POLICY.to_string(), text.to_string())])
        };
        assert_eq!(gpu_partition_policy(Some(&label("Honor"))), GpuPartitionPolicy::Honor);
        assert_eq!(gpu_partition_policy(Some(&label("honor"))), GpuPartitionPolicy::Prefer);
        assert_eq!(gpu_partition_policy(None), GpuPartitionPolicy::Prefer);
    }
}
