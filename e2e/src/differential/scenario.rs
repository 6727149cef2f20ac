//! Scenarios: objects to begin with, steps that create and delete more, and what became of each pod.
//!
//! The shape of the recordings in the golden files, with additions: `update` changes nodes, `keep` lets a pod wait
//! while the steps after it change the cluster, and `parts` are the weighted scores of single plugins.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A whole scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    pub family: String,
    pub seed: u64,
    pub base: Vec<Value>,
    pub steps: Vec<Step>,
}

/// Done at once, then waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub create: Vec<Value>,
    /// Nodes as they are from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub update: Vec<Value>,
    /// `Pod/name`, or `Pod/namespace/name` outside the default namespace, or `Node/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
    /// The pod created here stays when it is refused, until a step creates another one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// By the name of the pod.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub want: BTreeMap<String, Outcome>,
}

/// What a scheduler did with a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The weighted totals of the nodes that passed; none when only one did.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, i64>,
    /// What they are made of: by node, by plugin.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, BTreeMap<String, i64>>,
    /// Why the pod waits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The node that the pod was promised on the way.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nominated: String,
    /// Whether a pod that waited was tried again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub woken: bool,
    /// Pods preempted for it, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
}

/// `metadata.name`, or nothing.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// `metadata.namespace`; `default` where it is not given.
pub fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or("default")
}

pub fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

pub fn is_kind(object: &Value, wanted: &str) -> bool {
    kind(object) == wanted
}

/// Whether it is a pod that somebody has to place.
pub fn is_to_place(object: &Value) -> bool {
    is_kind(object, "Pod") && object["spec"].get("nodeName").is_none()
}
