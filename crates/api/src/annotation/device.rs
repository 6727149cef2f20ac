//! Devices of pods: what was given, what is wanted, and which GPUs belong together. Spec: api 5.5.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize, Serializer};

use super::{Annotation, AnnotationError, Empty, Fault, OnError, encode, is_default, json_annotation};
use crate::crd::device::DeviceType;
use crate::crd::wire::{Omit, empty_as_none, open_enum};
use crate::gojson;
use crate::keys::device::annotation::GPU_PARTITIONS;
use crate::keys::pod::annotation::{
    DEVICE_ALLOCATE_HINT, DEVICE_ALLOCATED, DEVICE_JOINT_ALLOCATE, GPU_PARTITION_SPEC,
};
use crate::quantity::{Quantity, ResourceList};

/// Devices the scheduler gave to a pod, by type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceAllocations(pub BTreeMap<DeviceType, Vec<DeviceAllocation>>);

json_annotation!(DeviceAllocations, DEVICE_ALLOCATED, Broken, Absent);

/// A share of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceAllocation {
    pub minor: i32,
    #[serde(serialize_with = "empty_as_null")]
    pub resources: ResourceList,
    /// Stable id, the bus id of a network card.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub id: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub extension: Option<DeviceAllocationExtension>,
}

/// The field is always written, and upstream writes `null` for no resources.
fn empty_as_null<S: Serializer>(list: &ResourceList, serializer: S) -> Result<S::Ok, S::Error> {
    (!list.is_empty()).then_some(list).serialize(serializer)
}

/// What only some devices have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceAllocationExtension {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub vfs: Vec<AllocatedVf>,
    #[serde(rename = "gpuSharedResourceTemplate", skip_serializing_if = "Omit::omit")]
    pub gpu_shared_resource_template: String,
}

/// A virtual function of a network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatedVf {
    #[serde(skip_serializing_if = "is_default")]
    pub minor: i32,
    #[serde(rename = "busID", skip_serializing_if = "Omit::omit")]
    pub bus_id: String,
}

/// How the user wants devices to be picked, by type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceAllocateHints(pub BTreeMap<DeviceType, DeviceHint>);

json_annotation!(DeviceAllocateHints, DEVICE_ALLOCATE_HINT, Broken, FailPod);

/// How devices of one type are picked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceHint {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub vf_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Omit::omit", deserialize_with = "empty_as_none")]
    pub allocate_strategy: Option<DeviceAllocateStrategy>,
    #[serde(skip_serializing_if = "Omit::omit", deserialize_with = "empty_as_none")]
    pub required_topology_scope: Option<DeviceTopologyScope>,
    #[serde(skip_serializing_if = "Omit::omit", deserialize_with = "empty_as_none")]
    pub exclusive_policy: Option<DeviceExclusivePolicy>,
}

/// Devices of several types that are picked together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceJointAllocate {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub device_types: Vec<DeviceType>,
    #[serde(skip_serializing_if = "Omit::omit", deserialize_with = "empty_as_none")]
    pub required_scope: Option<DeviceJointScope>,
}

json_annotation!(DeviceJointAllocate, DEVICE_JOINT_ALLOCATE, Broken, FailPod);

/// Which GPU partitions the user accepts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GpuPartitionSpec {
    #[serde(skip_serializing_if = "Omit::omit", deserialize_with = "empty_as_none")]
    pub allocate_policy: Option<GpuPartitionAllocatePolicy>,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub ring_bus_bandwidth: Option<Quantity>,
}

json_annotation!(GpuPartitionSpec, GPU_PARTITION_SPEC, Broken, FailPod);

impl GpuPartitionSpec {
    /// The given policy; none is best effort.
    pub fn policy(&self) -> GpuPartitionAllocatePolicy {
        self.allocate_policy.clone().unwrap_or(GpuPartitionAllocatePolicy::BestEffort)
    }
}

open_enum! {
    /// How many devices a request means.
    pub enum DeviceAllocateStrategy {
        /// All devices that match.
        ApplyForAll = "ApplyForAll",
        /// As many devices as the request counts.
        RequestsAsCount = "RequestsAsCount",
    }

    /// How close devices must be.
    pub enum DeviceTopologyScope {
        Device = "Device",
        Pcie = "PCIe",
        NumaNode = "NUMANode",
        Node = "Node",
    }

    /// What pods with the same policy do not share.
    pub enum DeviceExclusivePolicy {
        Device = "DeviceLevel",
        Pcie = "PCIeLevel",
    }

    /// How close devices of several types must be.
    pub enum DeviceJointScope {
        SamePcie = "SamePCIe",
    }

    /// How strictly the best partition is taken.
    pub enum GpuPartitionAllocatePolicy {
        /// Only partitions with the highest score.
        Restricted = "Restricted",
        BestEffort = "BestEffort",
    }
}

impl DeviceTopologyScope {
    /// Higher is tighter; 0 for a word we do not know.
    pub fn level(&self) -> u8 {
        match self {
            DeviceTopologyScope::Device => 4,
            DeviceTopologyScope::Pcie => 3,
            DeviceTopologyScope::NumaNode => 2,
            DeviceTopologyScope::Node => 1,
            DeviceTopologyScope::Other(_) => 0,
        }
    }
}

/// Groups of GPUs of a node that talk fast to each other, by number of GPUs. On the Device object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuPartitions(pub BTreeMap<i64, Vec<GpuPartition>>);

/// GPUs that may be given together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GpuPartition {
    pub minors: Vec<i64>,
    /// Such as `NVLink`.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub gpu_link_type: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub ring_bus_bandwidth: Option<Quantity>,
    #[serde(skip_serializing_if = "is_default")]
    pub allocation_score: i64,
}

impl Annotation for GpuPartitions {
    const KEY: &'static str = GPU_PARTITIONS;
    const EMPTY: Empty = Empty::Absent;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        let value = gojson::parse(text)?;
        if value.is_null() {
            return Err(Fault::Value(format!("invalid gpu partitions in device cr: {text}")));
        }
        Ok(GpuPartitions(value.decode()?))
    }

    /// Counts are sorted as text.
    fn text(&self) -> String {
        let by_text: BTreeMap<String, &Vec<GpuPartition>> =
            self.0.iter().map(|(count, partitions)| (count.to_string(), partitions)).collect();
        encode(&by_text)
    }
}

/// The message with which a pod fails that carries a broken device wish.
pub fn prefilter_message(error: &AnnotationError) -> String {
    let name = match error.key {
        DEVICE_ALLOCATE_HINT => "DeviceAllocateHint",
        DEVICE_JOINT_ALLOCATE => "DeviceJointAllocate",
        GPU_PARTITION_SPEC => "GPUPartitionSpec",
        other => other,
    };
    format!("invalid {name} annotation, err: {}", error.reason())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{Annotations, read};

    #[test]
    fn allocated() {
        let rdma = DeviceAllocation {
            id: "0000:09:00.0".into(),
            extension: Some(DeviceAllocationExtension {
                vfs: vec![AllocatedVf { minor: 0, bus_id: "x".into() }],
                ..DeviceAllocationExtension::default()
            }),
            ..DeviceAllocation::default()
        };
        let all = DeviceAllocations([(DeviceType::Rdma, vec![rdma])].into());
        let text = r#"{"rdma":[{"minor":0,"resources":null,"id":"0000:09:00.0","extension":{"vfs":[{"busID":"x"}]}}]}"#;
        assert_eq!(all.text(), text, "api#1.2.J14");
        assert_eq!(DeviceAllocations::parse(text).unwrap(), all, "api#1.2.J14");
        let text = r#"{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"8Gi","koordinator.sh/gpu-memory-ratio":"50"}}]}"#;
        assert_eq!(DeviceAllocations::parse(text).unwrap().text(), text);
    }

    #[test]
    fn partitions() {
        let parse = |text: &str| GpuPartitions::parse(text).map_err(|fault| fault.to_string());
        assert_eq!(parse(r#"{"2":null}"#), Ok(GpuPartitions([(2, vec![])].into())), "api#1.2.J11");
        assert_eq!(parse("{}"), Ok(GpuPartitions::default()), "api#1.2.J11");
        assert_eq!(parse("null"), Err("invalid gpu partitions in device cr: null".into()), "api#1.2.J11");
        assert!(parse(r#"{"x":[]}"#).is_err(), "api#1.2.J11");
        let text = concat!(
            r#"{"1":[{"minors":[0]}],"10":[],"#,
            r#""2":[{"minors":[0,1],"gpuLinkType":"NVLink","ringBusBandwidth":"400Gi","allocationScore":1}]}"#
        );
        assert_eq!(parse(text).unwrap().text(), text);
    }

    #[test]
    fn wishes() {
        let text = concat!(
            r#"{"rdma":{"selector":{"matchLabels":{"a":"b"}},"vfSelector":{},"allocateStrategy":"ApplyForAll","#,
            r#""requiredTopologyScope":"PCIe","exclusivePolicy":"DeviceLevel"}}"#
        );
        let hints = DeviceAllocateHints::parse(text).unwrap();
        assert_eq!(hints.0[&DeviceType::Rdma].required_topology_scope, Some(DeviceTopologyScope::Pcie));
        assert_eq!(hints.text(), text);
        let text = r#"{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}"#;
        assert_eq!(DeviceJointAllocate::parse(text).unwrap().text(), text);
        let text = r#"{"allocatePolicy":"Restricted","ringBusBandwidth":"400Gi"}"#;
        assert_eq!(GpuPartitionSpec::parse(text).unwrap().text(), text);
        assert_eq!(GpuPartitionSpec::parse("{}").unwrap().policy(), GpuPartitionAllocatePolicy::BestEffort);
        let levels: Vec<u8> = DeviceTopologyScope::KNOWN.iter().map(DeviceTopologyScope::level).collect();
        assert_eq!(levels, [4, 3, 2, 1]);
    }

    #[test]
    fn messages_of_broken_wishes() {
        let end = "unexpected end of JSON input";
        for (key, want) in [
            (DEVICE_ALLOCATE_HINT, "DeviceAllocateHint"),
            (DEVICE_JOINT_ALLOCATE, "DeviceJointAllocate"),
            (GPU_PARTITION_SPEC, "GPUPartitionSpec"),
        ] {
            let broken = Annotations::from([(key.to_string(), "{".to_string())]);
            let error = match key {
                DEVICE_ALLOCATE_HINT => read::<DeviceAllocateHints>(&broken).unwrap_err(),
                DEVICE_JOINT_ALLOCATE => read::<DeviceJointAllocate>(&broken).unwrap_err(),
                _ => read::<GpuPartitionSpec>(&broken).unwrap_err(),
            };
            assert_eq!(prefilter_message(&error), format!("invalid {want} annotation, err: {end}"));
            assert_eq!(error.then, OnError::FailPod);
        }
    }
}
