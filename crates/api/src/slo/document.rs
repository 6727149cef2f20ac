//! A document of the ConfigMap: one part for the cluster, and items for nodes that a selector picks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::gojson::{self, Error, Segment, Value};

/// What a user wrote under one key, nothing filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document<P> {
    pub cluster: P,
    /// In the order written, which is the order of precedence.
    pub nodes: Vec<NodeItem<P>>,
}

/// Part of a document for some nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeItem<P> {
    /// For people; empty when not given.
    pub name: String,
    /// Which nodes; absent picks none, empty picks all.
    pub selector: Option<LabelSelector>,
    pub strategy: P,
}

/// Where the parts stand in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `{"clusterStrategy": {…}, "nodeStrategies": […]}`
    Nested,
    /// The cluster's fields at top level, and `"nodeConfigs": […]` among them.
    Flat,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "P: DeserializeOwned + Default")]
struct Nested<P> {
    cluster_strategy: Option<P>,
    node_strategies: Vec<Value>,
}

impl<P> Default for Nested<P> {
    fn default() -> Nested<P> {
        Nested { cluster_strategy: None, node_strategies: Vec::new() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FlatItems {
    node_configs: Vec<Value>,
}

/// What every node item has beside its strategy.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Head {
    name: String,
    node_selector: Option<LabelSelector>,
}

impl<P: DeserializeOwned + Default> Document<P> {
    /// Reads a document. The text `null` is an empty one.
    pub fn parse(text: &str, shape: Shape) -> Result<Document<P>, Error> {
        let value = gojson::parse(text)?;
        match shape {
            Shape::Nested => {
                let read: Nested<P> = value.decode()?;
                let nodes = items("nodeStrategies", &read.node_strategies)?;
                Ok(Document { cluster: read.cluster_strategy.unwrap_or_default(), nodes })
            }
            Shape::Flat => {
                let read: FlatItems = value.decode()?;
                Ok(Document { cluster: value.decode()?, nodes: items("nodeConfigs", &read.node_configs)? })
            }
        }
    }
}

/// Each item holds name, selector and strategy at one level.
pub(super) fn items<P: DeserializeOwned>(field: &str, items: &[Value]) -> Result<Vec<NodeItem<P>>, Error> {
    let read = |item: &Value| {
        let head: Head = item.decode()?;
        Ok(NodeItem { name: head.name, selector: head.node_selector, strategy: item.decode()? })
    };
    let place = |index, error: Error| {
        let error = error.inside(Segment::Index(index), 0);
        error.inside(Segment::Field(field.to_owned()), 0)
    };
    let items = items.iter().enumerate();
    items.map(|(index, item)| read(item).map_err(|error| place(index, error))).collect()
}
