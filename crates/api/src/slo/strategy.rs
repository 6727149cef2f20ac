//! What a strategy is: its key, its defaults, and how a part of it lies over a whole one.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::document::Shape;
use super::{defaults, key};
use crate::crd::node_slo::{
    CpuBurstStrategy, HostApplicationSpec, ResourceQosStrategy, ResourceThresholdStrategy, SystemStrategy,
};
use crate::gojson;
use crate::quantity::Quantity;

/// The strategies under one key of the ConfigMap.
pub trait Strategy: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned {
    /// What users write: the same fields, each of them optional.
    type Partial: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned;
    /// The key in the ConfigMap.
    const KEY: &'static str;
    /// How cluster and node parts are arranged in the document.
    const SHAPE: Shape;
    /// Reason and subject of the event for a document that cannot be read.
    const UNREADABLE: (&'static str, &'static str);
    /// Whether an empty text stands for the defaults rather than for a broken document.
    const EMPTY_IS_DEFAULT: bool = false;

    /// What holds where nobody configured anything.
    fn built_in() -> Self;

    /// This strategy with what `new` says laid over it.
    fn over(&self, new: &Self::Partial) -> Self {
        merge(self, new)
    }

    /// What makes this strategy unusable, one text for each fault.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// `old` with `new` laid over it: objects merge field by field, maps by key with the new value
/// whole, everything else that is present in `new` replaces. Empty texts, lists and maps of `new`
/// count as absent. Spec: api 7.1.
///
/// Differs: a list replaces the old list whole, where upstream mixes the elements (api 11, item 5).
pub fn merge<T: Serialize + DeserializeOwned>(old: &impl Serialize, new: &impl Serialize) -> T {
    let encode = "a strategy is made of plain JSON types";
    let old = gojson::to_value(old).expect(encode);
    let new = gojson::to_value(new).expect(encode);
    gojson::decode_layers(&[&old, &new]).expect("a strategy reads what it wrote")
}

const NODE_SLO_EVENT: &str = "SLOCfgUnmarshalFailed";

impl Strategy for ResourceThresholdStrategy {
    type Partial = Self;
    const KEY: &'static str = key::RESOURCE_THRESHOLD;
    const SHAPE: Shape = Shape::Nested;
    const UNREADABLE: (&'static str, &'static str) = (NODE_SLO_EVENT, "ThresholdCfg");

    fn built_in() -> Self {
        defaults::threshold()
    }
}

impl Strategy for ResourceQosStrategy {
    type Partial = Self;
    const KEY: &'static str = key::RESOURCE_QOS;
    const SHAPE: Shape = Shape::Nested;
    const UNREADABLE: (&'static str, &'static str) = (NODE_SLO_EVENT, "ResourceQOSCfg");

    /// Empty: a NodeSLO shows only what users wrote, koordlet knows the defaults of each class.
    fn built_in() -> Self {
        ResourceQosStrategy::default()
    }
}

impl Strategy for CpuBurstStrategy {
    type Partial = Self;
    const KEY: &'static str = key::CPU_BURST;
    const SHAPE: Shape = Shape::Nested;
    const UNREADABLE: (&'static str, &'static str) = (NODE_SLO_EVENT, "CPUBurstCfg");

    fn built_in() -> Self {
        defaults::burst()
    }
}

impl Strategy for SystemStrategy {
    type Partial = SystemPartial;
    const KEY: &'static str = key::SYSTEM;
    const SHAPE: Shape = Shape::Nested;
    const UNREADABLE: (&'static str, &'static str) = (NODE_SLO_EVENT, "SystemCfg");

    fn built_in() -> Self {
        SystemStrategy::default()
    }
}

/// [`SystemStrategy`] as users write it.
///
/// Differs: an omitted bandwidth is absent, where upstream reads it as 0 and so resets the
/// cluster's value by every node strategy that does not repeat it (api 11, item 4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SystemPartial {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_kbytes_factor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark_scale_factor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memcg_reap_back_ground: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sched_group_identity_enabled: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sched_idle_saver_wmark: Option<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sched_features: BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache_limit_enabled: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_network_bandwidth: Option<Quantity>,
}

/// The applications of a node beside its pods, under `host-application-config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostApplications {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<HostApplicationSpec>,
}

impl Strategy for HostApplications {
    type Partial = Self;
    const KEY: &'static str = key::HOST_APPLICATION;
    const SHAPE: Shape = Shape::Flat;
    const UNREADABLE: (&'static str, &'static str) = (NODE_SLO_EVENT, "HostApplicationCfg");

    fn built_in() -> Self {
        HostApplications::default()
    }

    /// The list of a node item replaces the cluster's, even by an empty one. Spec: api 7.2 rule 7.
    fn over(&self, new: &Self) -> Self {
        new.clone()
    }
}
