//! What koordlet reads from pods: bursts, memory and CPU QoS, block I/O, cache, OOM order. Spec: api 5.10.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Annotation, Empty, Fault, OnError, encode, is_default, json_annotation};
use crate::crd::node_slo::{BlockCfg, CpuBurstStrategy, CpuQos, MemoryQos};
use crate::crd::wire::{Omit, open_enum};
use crate::gojson;
use crate::keys::pod::annotation::{
    BLKIO_QOS, CPU_BURST, CPU_QOS, EXTENDED_RESOURCE_SPEC, MEMORY_QOS, OLD_MEMORY_QOS, OOM_SCORE_ADJ,
    OOM_SCORE_ADJ_SPEC, REPLACE_RESOURCES, RESCTRL,
};
use crate::qos::Qos;
use crate::quantity::ResourceList;
use crate::slo::defaults;
use crate::slo::strategy::merge;

/// Extended resources of a pod's containers, for readers who see the pod through the CRI only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtendedResourceSpec {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub containers: BTreeMap<String, ExtendedResourceContainer>,
}

json_annotation!(ExtendedResourceSpec, EXTENDED_RESOURCE_SPEC, Broken, FailRequest);

/// Extended resources of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtendedResourceContainer {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub limits: ResourceList,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub requests: ResourceList,
}

/// How far one pod may burst, over the node's strategy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodCpuBurst(CpuBurstStrategy);

impl Annotation for PodCpuBurst {
    const KEY: &'static str = CPU_BURST;
    const EMPTY: Empty = Empty::Broken;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        // The pool is a matter of the node.
        Ok(PodCpuBurst(CpuBurstStrategy { share_pool_threshold_percent: None, ..gojson::from_str(text)? }))
    }

    fn text(&self) -> String {
        encode(&self.0)
    }
}

impl PodCpuBurst {
    /// The node's strategy with what the pod says in its place.
    pub fn over(&self, node: &CpuBurstStrategy) -> CpuBurstStrategy {
        merge(node, &self.0)
    }
}

open_enum! {
    /// Where a pod's memory QoS starts from.
    pub enum PodMemoryQosPolicy {
        /// The node's configuration.
        Default = "default",
        /// All off.
        None = "none",
        /// What is recommended for the pod's class.
        Auto = "auto",
    }
}

/// Memory QoS of one pod: a starting point and what is given over it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodMemoryQos {
    pub policy: Option<PodMemoryQosPolicy>,
    /// `enable` in it is not looked at.
    pub config: MemoryQos,
}

/// The policy alone; the other fields stand at the same level.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct PolicyField {
    #[serde(skip_serializing_if = "Omit::omit", deserialize_with = "crate::crd::wire::empty_as_none")]
    policy: Option<PodMemoryQosPolicy>,
}

impl Annotation for PodMemoryQos {
    const KEY: &'static str = MEMORY_QOS;
    const OLD_KEY: Option<&'static str> = Some(OLD_MEMORY_QOS);
    const EMPTY: Empty = Empty::Broken;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        let value = gojson::parse(text)?;
        let PolicyField { policy } = value.decode()?;
        Ok(PodMemoryQos { policy, config: value.decode()? })
    }

    fn text(&self) -> String {
        let policy = to_tree(&PolicyField { policy: self.policy.clone() });
        let members = [policy, to_tree(&self.config)].into_iter().flat_map(|tree| match tree.kind {
            gojson::Kind::Object(members) => members,
            _ => Vec::new(),
        });
        gojson::Value::from(gojson::Kind::Object(members.collect())).to_string()
    }
}

impl PodMemoryQos {
    /// What holds for a pod of a class, given what the node has for that class.
    pub fn resolve(&self, class: Qos, node: &MemoryQos) -> MemoryQos {
        let given = MemoryQos { enable: None, ..self.config.clone() };
        match self.policy {
            Some(PodMemoryQosPolicy::None) => MemoryQos { enable: Some(false), ..defaults::memory_none() },
            Some(PodMemoryQosPolicy::Auto) => {
                merge(&MemoryQos { enable: node.enable, ..recommended(class) }, &given)
            }
            _ => merge(node, &given),
        }
    }
}

/// What is recommended for a class: its built-in values.
fn recommended(class: Qos) -> MemoryQos {
    let qos = defaults::qos();
    let class = match class {
        Qos::Lse | Qos::Lsr => qos.lsr_class,
        Qos::Ls => qos.ls_class,
        Qos::Be => qos.be_class,
        Qos::System => qos.system_class,
    };
    class.and_then(|class| class.memory_qos).unwrap_or_default()
}

/// CPU QoS of one pod in place of its class's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodCpuQos(pub CpuQos);

impl Annotation for PodCpuQos {
    const KEY: &'static str = CPU_QOS;
    const EMPTY: Empty = Empty::Broken;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        let qos: CpuQos = gojson::from_str(text)?;
        match qos.group_identity.filter(|identity| !(-1..=2).contains(identity)) {
            Some(identity) => Err(Fault::Value(format!("bad group identity value: {identity}"))),
            None => Ok(PodCpuQos(qos)),
        }
    }

    fn text(&self) -> String {
        encode(&self.0)
    }
}

/// Block I/O limits of one pod. An empty text is an empty list, which is not the same as none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodBlkioQos {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub blocks: Vec<BlockCfg>,
}

impl Annotation for PodBlkioQos {
    const KEY: &'static str = BLKIO_QOS;
    const EMPTY: Empty = Empty::Value;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return Ok(PodBlkioQos::default());
        }
        Ok(gojson::from_str(text)?)
    }

    fn text(&self) -> String {
        encode(self)
    }
}

/// A pod's own group in resctrl.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodResctrl {
    /// Last-level cache.
    pub llc: ResctrlPart,
    /// Memory bandwidth.
    pub mb: ResctrlPart,
}

json_annotation!(PodResctrl, RESCTRL, Broken, Absent);

/// One resource of resctrl: for all caches, and for single ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResctrlPart {
    pub schemata: Schemata,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub schemata_per_cache: Vec<CacheSchemata>,
}

/// A share, by size or by range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Schemata {
    #[serde(skip_serializing_if = "is_default")]
    pub percent: i64,
    /// Start and end in percent.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub range: Vec<i64>,
}

/// A share of one cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheSchemata {
    #[serde(rename = "cacheID", skip_serializing_if = "is_default")]
    pub cache_id: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub percent: i64,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub range: Vec<i64>,
}

/// Who is killed first when memory is short: -1000 to 1000, for all containers of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomScoreAdj(pub i64);

impl Annotation for OomScoreAdj {
    const KEY: &'static str = OOM_SCORE_ADJ;
    const EMPTY: Empty = Empty::Absent;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        let fault =
            || Fault::Value(format!("invalid value {text:?}, expected an integer from -1000 to 1000"));
        text.parse().ok().filter(|score| (-1000..=1000).contains(score)).map(OomScoreAdj).ok_or_else(fault)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// The same for single containers; wins over the pod's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OomScoreAdjSpec(pub BTreeMap<String, i64>);

json_annotation!(OomScoreAdjSpec, OOM_SCORE_ADJ_SPEC, Absent, Absent);

/// The score of one container.
pub fn oom_score_adj(
    pod: Option<OomScoreAdj>,
    containers: Option<&OomScoreAdjSpec>,
    container: &str,
) -> Option<i64> {
    containers.and_then(|spec| spec.0.get(container)).copied().or(pod.map(|score| score.0))
}

/// Resources of a pod to erase or to call by another name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplaceResources {
    pub erase: Vec<String>,
    pub replace: BTreeMap<String, String>,
}

impl Annotation for ReplaceResources {
    const KEY: &'static str = REPLACE_RESOURCES;
    const EMPTY: Empty = Empty::Absent;
    const ON_ERROR: OnError = OnError::Absent;

    /// Items without exactly one `:` are skipped, so every text can be taken.
    fn parse(text: &str) -> Result<Self, Fault> {
        let mut read = ReplaceResources::default();
        for item in text.split(',') {
            match item.split(':').map(str::trim).collect::<Vec<_>>().as_slice() {
                [from, ""] => read.erase.push(from.to_string()),
                [from, to] => {
                    read.replace.insert(from.to_string(), to.to_string());
                }
                _ => {}
            }
        }
        Ok(read)
    }

    fn text(&self) -> String {
        let replace = self.replace.iter().map(|(from, to)| format!("{from}:{to}"));
        let erase = self.erase.iter().map(|name| format!("{name}:"));
        replace.chain(erase).collect::<Vec<_>>().join(",")
    }
}

fn to_tree(value: &impl Serialize) -> gojson::Value {
    gojson::to_value(value).expect("our types hold strings, integers and lists")
}

#[cfg(test)]
mod tests;
