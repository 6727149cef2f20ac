//! Which layer each parameter of a strategy came from.

use std::fmt;

use crate::gojson::{Kind, Value};

/// Who set a parameter, lowest precedence first. Spec: api 7.2.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    BuiltIn,
    Cluster,
    /// An item of `nodeStrategies` or `nodeConfigs`.
    NodeItem {
        index: usize,
        name: String,
    },
    /// The Node annotation of this key.
    NodeAnnotation(&'static str),
    /// The Node label of this key.
    NodeLabel(&'static str),
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::BuiltIn => f.write_str("default"),
            Layer::Cluster => f.write_str("cluster"),
            Layer::NodeItem { index, name } if name.is_empty() => write!(f, "node item {index}"),
            Layer::NodeItem { index, name } => write!(f, "node item {index} {name:?}"),
            Layer::NodeAnnotation(key) => write!(f, "annotation {key}"),
            Layer::NodeLabel(key) => write!(f, "label {key}"),
        }
    }
}

/// One value of a strategy as it holds on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Such as `beClass.resctrlQOS.mbaPercent`.
    pub path: String,
    /// JSON text.
    pub value: String,
    pub layer: Layer,
}

/// Every parameter of `effective`, with the highest of the layers that has it.
pub(super) fn parameters(effective: &Value, layers: &[(Layer, Value)]) -> Vec<Parameter> {
    let mut found = Vec::new();
    let all: Vec<_> = layers.iter().map(|(layer, value)| (layer, Some(value))).collect();
    walk(effective, &all, &mut Vec::new(), &mut found);
    found
}

fn walk<'a>(
    effective: &'a Value,
    layers: &[(&Layer, Option<&Value>)],
    path: &mut Vec<&'a str>,
    found: &mut Vec<Parameter>,
) {
    if let Kind::Object(entries) = &effective.kind
        && (path.is_empty() || !entries.is_empty())
    {
        for (key, value) in entries {
            let below: Vec<_> = layers
                .iter()
                .map(|(layer, value)| (*layer, value.and_then(|value| value.get(key))))
                .collect();
            path.push(key);
            walk(value, &below, path, found);
            path.pop();
        }
        return;
    }
    let layer = layers.iter().rev().find(|(_, value)| value.is_some()).map(|(layer, _)| *layer);
    let layer = layer.unwrap_or(&Layer::BuiltIn).clone();
    found.push(Parameter { path: path.join("."), value: effective.to_string(), layer });
}
