//! Hints that schedulers pass to each other, and how a gang gathers in the network. Spec: api 5.8.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Annotation, Empty, Fault, OnError, encode, is_default, json_annotation};
use crate::crd::wire::{Omit, open_enum};
use crate::gojson;
use crate::keys::gang::annotation::NETWORK_TOPOLOGY_SPEC;
use crate::keys::pod::annotation::{OLD_SCHEDULING_HINT, SCHEDULING_HINT};

/// Where another scheduler wants a pod to go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SchedulingHint {
    /// Only these nodes.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub node_names: Vec<String>,
    /// These nodes first, in this order.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub preferred_node_names: Vec<String>,
    /// For plugins, by name.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub extensions: BTreeMap<String, gojson::Value>,
}

impl Annotation for SchedulingHint {
    const KEY: &'static str = SCHEDULING_HINT;
    const OLD_KEY: Option<&'static str> = Some(OLD_SCHEDULING_HINT);
    const EMPTY: Empty = Empty::Absent;
    const ON_ERROR: OnError = OnError::FailPod;

    fn parse(text: &str) -> Result<Self, Fault> {
        Ok(gojson::from_str(text)?)
    }

    fn text(&self) -> String {
        encode(self)
    }
}

/// How close the members of a gang must be in the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkTopologySpec {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub gather_strategy: Vec<GatherRule>,
}

json_annotation!(NetworkTopologySpec, NETWORK_TOPOLOGY_SPEC, Absent, FailPod);

/// What one layer of the network asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatherRule {
    /// Name of the layer, such as `SpineLayer`.
    pub layer: String,
    pub strategy: GatherStrategy,
    /// Members in one place come in multiples of this; 0 does not say.
    #[serde(skip_serializing_if = "is_default")]
    pub pod_count_multiple: i64,
}

impl Default for GatherRule {
    fn default() -> GatherRule {
        GatherRule {
            layer: String::new(),
            strategy: GatherStrategy::Other(String::new()),
            pod_count_multiple: 0,
        }
    }
}

open_enum! {
    /// Whether the members must be in one place of a layer.
    pub enum GatherStrategy {
        MustGather = "MustGather",
        PreferGather = "PreferGather",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{Annotations, read};

    #[test]
    fn the_old_key_is_a_fallback() {
        let hint = |name: &str| format!(r#"{{"nodeNames":["{name}"]}}"#);
        let node = |new: Option<&str>, old: Option<&str>| {
            let mut annotations = Annotations::new();
            annotations.extend(new.map(|text| (SCHEDULING_HINT.to_string(), text.to_string())));
            annotations.extend(old.map(|text| (OLD_SCHEDULING_HINT.to_string(), text.to_string())));
            read::<SchedulingHint>(&annotations).map(|hint| hint.map(|hint| hint.node_names[0].clone()))
        };
        let (a, b) = (hint("a"), hint("b"));
        assert_eq!(node(Some(&a), Some(&b)), Ok(Some("a".into())));
        assert_eq!(node(Some(""), Some(&b)), Ok(Some("b".into())));
        assert_eq!(node(None, Some(&b)), Ok(Some("b".into())));
        assert_eq!(node(None, Some("")), Ok(None));
        assert_eq!(node(None, Some("x")).unwrap_err().key, OLD_SCHEDULING_HINT);
        assert!(node(Some("x"), Some(&b)).is_err());
    }

    #[test]
    fn texts() {
        let text = r#"{"nodeNames":["a"],"preferredNodeNames":["b"],"extensions":{"x":{"a":null,"b":1.5}}}"#;
        assert_eq!(SchedulingHint::parse(text).unwrap().text(), text);
        let text = r#"{"gatherStrategy":[{"layer":"SpineLayer","strategy":"MustGather","podCountMultiple":8},{"layer":"BlockLayer","strategy":"PreferGather"}]}"#;
        assert_eq!(NetworkTopologySpec::parse(text).unwrap().text(), text);
    }
}
