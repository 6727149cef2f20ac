//! What plugins have worked out for a node: items, and their sum.

use std::collections::{BTreeMap, BTreeSet};

use koord_api::quantity::Quantity;

/// What one plugin says about one resource, or about the node's labels and annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// A resource name; for items without a resource any text that explains them.
    pub name: &'static str,
    pub quantity: Option<Quantity>,
    /// By zone of the NodeResourceTopology.
    pub zones: BTreeMap<String, Quantity>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Whether the resource is taken off the node.
    pub is_reset: bool,
}

impl Item {
    /// A resource that is taken off the node.
    pub fn reset(name: &'static str) -> Item {
        Item { name, is_reset: true, ..Item::default() }
    }

    pub fn quantity(name: &'static str, quantity: Quantity) -> Item {
        Item { name, quantity: Some(quantity), ..Item::default() }
    }
}

/// All items of a node taken together; of two that say different things the later holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeResource {
    pub resources: BTreeMap<&'static str, Quantity>,
    pub resets: BTreeSet<&'static str>,
    /// By zone, then by resource.
    pub zones: BTreeMap<String, BTreeMap<&'static str, Quantity>>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl NodeResource {
    /// What is to stand on the node; none when it is taken off or nobody set it.
    pub fn quantity(&self, name: &str) -> Option<Quantity> {
        self.resources.get(name).copied().filter(|_| !self.resets.contains(name))
    }
}

impl Extend<Item> for NodeResource {
    fn extend<I: IntoIterator<Item = Item>>(&mut self, items: I) {
        for item in items {
            if let Some(quantity) = item.quantity {
                self.resources.insert(item.name, quantity);
            }
            if item.is_reset {
                self.resets.insert(item.name);
            }
            for (zone, quantity) in item.zones {
                self.zones.entry(zone).or_default().insert(item.name, quantity);
            }
            self.labels.extend(item.labels);
            self.annotations.extend(item.annotations);
        }
    }
}
