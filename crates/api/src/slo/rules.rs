//! The strategies under one key, merged and ready to be picked for a node. Spec: api 7.2.

use std::collections::BTreeMap;

use super::document::{Document, NodeItem};
use super::explain::Layer;
use super::strategy::Strategy;
use crate::gojson::{self, Value};
use crate::selector::Selector;

/// Every strategy of one key, each already merged over what lies below it.
#[derive(Clone, Debug)]
pub struct Rules<S: Strategy> {
    /// The built-in defaults with the cluster's part over them.
    pub cluster: S,
    /// In order of precedence.
    pub nodes: Vec<NodeRule<S>>,
    document: Document<S::Partial>,
}

/// The strategy of the nodes that one item selects.
#[derive(Clone, Debug)]
pub struct NodeRule<S> {
    pub name: String,
    /// `None` when it cannot be read; such an item picks no node.
    selector: Option<Selector>,
    /// The cluster's strategy with the item over it, or the cluster's alone if that is unusable.
    pub strategy: S,
    /// Why the item is not used as written.
    pub problems: Vec<String>,
}

impl<S: Strategy> Rules<S> {
    /// The defaults alone.
    pub fn built_in() -> Rules<S> {
        Rules { cluster: S::built_in(), nodes: Vec::new(), document: Document::default() }
    }

    /// Merges a document over the defaults, or says why the cluster's part is unusable.
    pub fn new(document: Document<S::Partial>) -> Result<Rules<S>, Vec<String>> {
        let cluster = S::built_in().over(&document.cluster);
        let problems = cluster.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let nodes = document.nodes.iter().map(|item| NodeRule::new(&cluster, item)).collect();
        Ok(Rules { cluster, nodes, document })
    }

    /// The first item whose selector matches, with its place in the list.
    pub fn item_for(&self, labels: &BTreeMap<String, String>) -> Option<(usize, &NodeRule<S>)> {
        let matches = |rule: &NodeRule<S>| rule.selector.as_ref().is_some_and(|s| s.matches(labels));
        self.nodes.iter().enumerate().find(|(_, rule)| matches(rule))
    }

    /// What holds on a node with these labels.
    pub fn for_node(&self, labels: &BTreeMap<String, String>) -> &S {
        self.item_for(labels).map_or(&self.cluster, |(_, rule)| &rule.strategy)
    }

    /// Whether both come from documents that say the same.
    pub fn same_as(&self, other: &Rules<S>) -> bool {
        self.document == other.document
    }

    /// What each layer says for a node with these labels, lowest first.
    pub(super) fn layers(&self, labels: &BTreeMap<String, String>) -> Vec<(Layer, Value)> {
        let encode = |part: &S::Partial| gojson::to_value(part).unwrap_or_default();
        let built_in = gojson::to_value(&S::built_in()).unwrap_or_default();
        let mut layers = vec![(Layer::BuiltIn, built_in), (Layer::Cluster, encode(&self.document.cluster))];
        if let Some((index, rule)) = self.item_for(labels)
            && rule.problems.is_empty()
        {
            let layer = Layer::NodeItem { index, name: rule.name.clone() };
            layers.push((layer, encode(&self.document.nodes[index].strategy)));
        }
        layers
    }
}

impl<S: Strategy> NodeRule<S> {
    fn new(cluster: &S, item: &NodeItem<S::Partial>) -> NodeRule<S> {
        let merged = cluster.over(&item.strategy);
        let mut problems = merged.problems();
        let strategy = if problems.is_empty() { merged } else { cluster.clone() };
        let selector = match Selector::new(item.selector.as_ref()) {
            Ok(selector) => Some(selector),
            Err(error) => {
                problems.push(format!("nodeSelector: {error}"));
                None
            }
        };
        NodeRule { name: item.name.clone(), selector, strategy, problems }
    }
}
