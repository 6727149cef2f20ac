//! Strategies of third parties: keys that are not ours, whose content we only pick. Spec: api 7.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::document;
use crate::gojson::{self, Error};
use crate::selector::Selector;

/// The strategies under a third party's key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExtensionRules {
    cluster: Option<Value>,
    nodes: Vec<(Option<Selector>, Option<Value>)>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Nested {
    cluster_strategy: Option<Value>,
    node_strategies: Vec<gojson::Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodePart {
    #[serde(rename = "NodeStrategy")]
    strategy: Option<Value>,
}

impl ExtensionRules {
    /// Reads `{"clusterStrategy": …, "nodeStrategies": [{"nodeSelector": …, "NodeStrategy": …}]}`.
    pub fn parse(text: &str) -> Result<ExtensionRules, Error> {
        let read: Nested = gojson::from_str(text)?;
        let items = document::items::<NodePart>("nodeStrategies", &read.node_strategies)?;
        // An item whose selector cannot be read picks no node.
        let nodes = items
            .into_iter()
            .map(|item| (Selector::new(item.selector.as_ref()).ok(), item.strategy.strategy));
        Ok(ExtensionRules { cluster: read.cluster_strategy, nodes: nodes.collect() })
    }

    /// The strategy for a node, if there is one: that of the first matching item, else the cluster's.
    pub fn for_node(&self, labels: &BTreeMap<String, String>) -> Option<&Value> {
        let matching = |selector: &Option<Selector>| selector.as_ref().is_some_and(|s| s.matches(labels));
        let item = self.nodes.iter().find(|(selector, _)| matching(selector));
        item.map_or(&self.cluster, |(_, strategy)| strategy).as_ref()
    }
}
