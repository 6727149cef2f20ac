//! Steps as a file writes them, field by field.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Step {
    pub(super) title: String,
    #[serde(default)]
    pub(super) text: String,
    #[serde(default, rename = "do")]
    pub(super) actions: Vec<Action>,
    #[serde(default)]
    pub(super) expect: Vec<Expectation>,
    pub(super) timeout: Option<String>,
    #[serde(default)]
    pub(super) explain: bool,
    pub(super) explain_node: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Action {
    Apply(Vec<Value>),
    ApplyFile(PathBuf),
    Delete(Object),
    Scale(Scale),
    Patch(Patch),
    Cordon(Nodes),
    Uncordon(Nodes),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object {
    pub(super) api_version: Option<String>,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Scale {
    api_version: Option<String>,
    kind: String,
    namespace: Option<String>,
    name: String,
    pub(super) replicas: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Patch {
    api_version: Option<String>,
    kind: String,
    namespace: Option<String>,
    #[serde(default)]
    name: String,
    pub(super) selector: Option<String>,
    #[serde(default, rename = "type")]
    pub(super) how: PatchKind,
    pub(super) patch: Value,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PatchKind {
    #[default]
    Strategic,
    Merge,
    Json,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Nodes {
    pub(super) name: Option<String>,
    pub(super) selector: Option<String>,
    pub(super) hosting: Option<Pods>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Pods {
    pub(super) namespace: Option<String>,
    pub(super) pod: Option<String>,
    pub(super) selector: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Expectation {
    Ready(Ready),
    Pods(PodStates),
    Spread(Spread),
    OnNodes(OnNodes),
    Unschedulable(Unschedulable),
    Preempted(Preempted),
    Gone(Pods),
    Allocatable(Allocatable),
    Usage(Usage),
    Object(Matches),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ready {
    api_version: Option<String>,
    kind: String,
    namespace: Option<String>,
    name: String,
    pub(super) count: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodStates {
    namespace: Option<String>,
    pod: Option<String>,
    selector: Option<String>,
    pub(super) are: PodState,
    pub(super) count: Option<usize>,
    pub(super) at_least: Option<usize>,
    pub(super) matches: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PodState {
    Scheduled,
    Pending,
    Running,
    Ready,
    Succeeded,
    Failed,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spread {
    namespace: Option<String>,
    pod: Option<String>,
    selector: Option<String>,
    pub(super) over: String,
    #[serde(default = "one")]
    pub(super) max_skew: usize,
    #[serde(default)]
    pub(super) domains_at_least: usize,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OnNodes {
    namespace: Option<String>,
    pod: Option<String>,
    selector: Option<String>,
    pub(super) nodes: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unschedulable {
    namespace: Option<String>,
    pod: Option<String>,
    selector: Option<String>,
    pub(super) count: Option<usize>,
    pub(super) at_least: Option<usize>,
    pub(super) message: Option<String>,
    pub(super) pattern: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preempted {
    namespace: Option<String>,
    pod: Option<String>,
    selector: Option<String>,
    pub(super) count: Option<usize>,
    pub(super) at_least: Option<usize>,
    pub(super) by: Option<Pods>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Allocatable {
    pub(super) resource: String,
    pub(super) nodes: Option<String>,
    pub(super) at_least: Option<Amount>,
    pub(super) at_most: Option<Amount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    namespace: Option<String>,
    pod: Option<String>,
    selector: Option<String>,
    pub(super) resource: String,
    pub(super) at_least: Option<Amount>,
    pub(super) at_most: Option<Amount>,
}

/// A quantity; YAML takes a plain one for a number.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Amount {
    Text(String),
    Number(i64),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Matches {
    api_version: Option<String>,
    kind: String,
    namespace: Option<String>,
    name: String,
    pub(super) matches: Value,
}

// Serde's `flatten` would let unknown fields through, so the words that name an object or pods stand in every
// struct, and are taken out of it here.
macro_rules! taken_out {
    ($whole:ident: $($field:ident),* => $name:ident) => {
        impl $whole {
            pub(super) fn take(&mut self) -> $name {
                $name { $($field: std::mem::take(&mut self.$field)),* }
            }
        }
    };
}

taken_out!(Scale: api_version, kind, namespace, name => Object);
taken_out!(Patch: api_version, kind, namespace, name => Object);
taken_out!(Ready: api_version, kind, namespace, name => Object);
taken_out!(Matches: api_version, kind, namespace, name => Object);
taken_out!(PodStates: namespace, pod, selector => Pods);
taken_out!(Spread: namespace, pod, selector => Pods);
taken_out!(OnNodes: namespace, pod, selector => Pods);
taken_out!(Unschedulable: namespace, pod, selector => Pods);
taken_out!(Usage: namespace, pod, selector => Pods);
taken_out!(Preempted: namespace, pod, selector => Pods);
