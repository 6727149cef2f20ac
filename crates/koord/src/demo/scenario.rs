//! What a scenario is: parts of steps, each with things to do and a state to reach. Plain values.
//!
//! `read` makes them from YAML, proven; `expect` judges them; `stage` carries them out.

use std::time::Duration;

use koord_api::quantity::Quantity;
use koord_api::selector::Selector;
use regex::Regex;
use serde_json::Value;

/// A whole scenario, its included files already in place.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) text: String,
    /// Nodes that a sandbox of ours gets, in the compact form of `--node-shape`.
    pub(crate) shapes: Vec<String>,
    pub(crate) needs: Needs,
    pub(crate) parts: Vec<Part>,
    /// Commands to try once it is over.
    pub(crate) next: Vec<String>,
}

/// What a cluster must have before the first step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Ready nodes that take pods.
    pub(crate) nodes: usize,
    /// Different zones among them.
    pub(crate) zones: usize,
}

/// One file's steps. When a step misses its state, the rest of its part is left out.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) text: String,
    /// Made for it and removed afterwards; the first is where things are when nothing else is said.
    pub(crate) namespaces: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) actions: Vec<Action>,
    pub(crate) expectations: Vec<Expectation>,
    pub(crate) timeout: Duration,
    /// Whether to say of each pending pod why it is.
    pub(crate) explains: bool,
    /// The node of which to say what its agent does, or what it lends.
    pub(crate) explains_node: Option<String>,
}

/// Names an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectRef {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Of no meaning for kinds outside namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug)]
pub(crate) enum Action {
    Apply {
        object: ObjectRef,
        manifest: Value,
    },
    Delete(ObjectRef),
    Scale {
        object: ObjectRef,
        replicas: i32,
    },
    Patch {
        object: ObjectRef,
        patch: Value,
        how: PatchKind,
    },
    /// The same for all that a selector means; the name in `objects` is empty.
    PatchAll {
        objects: ObjectRef,
        selector: Labelled,
        patch: Value,
        how: PatchKind,
    },
    Cordon(Nodes),
    Uncordon(Nodes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Strategic,
    Merge,
    Json,
}

/// Which nodes.
#[derive(Debug)]
pub(crate) enum Nodes {
    Named(String),
    Selected(Labelled),
    /// Those on which these pods are.
    Hosting(Pods),
}

/// Which pods.
#[derive(Debug)]
pub(crate) struct Pods {
    pub(crate) namespace: String,
    pub(crate) which: Which,
}

#[derive(Debug)]
pub(crate) enum Which {
    Named(String),
    Selected(Labelled),
}

/// A label selector, with the words it was written in.
#[derive(Debug)]
pub(crate) struct Labelled {
    pub(crate) text: String,
    pub(crate) selector: Selector,
}

/// How many of the pods meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// All there are, and at least one.
    All,
    Exactly(usize),
    AtLeast(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Has a node.
    Scheduled,
    Pending,
    Running,
    /// Running, and all its containers are ready.
    Ready,
    Succeeded,
    Failed,
}

/// A state to reach.
#[derive(Debug)]
pub(crate) enum Expectation {
    /// A workload has rolled out (a Job: is complete), with this many pods where a number is given.
    Ready { object: ObjectRef, count: Option<u64> },
    /// So many of these pods are in a state and, where fields are given, have them.
    Pods { pods: Pods, state: PodState, count: Count, matches: Option<Value> },
    /// These pods' numbers per value of a node label differ by no more than this.
    Spread { pods: Pods, over: String, max_skew: usize, domains_min: usize },
    /// All these pods are on nodes with such labels.
    OnNodes { pods: Pods, nodes: Labelled },
    /// So many of these pods fit nowhere, for a reason that says this.
    Unschedulable { pods: Pods, count: Count, message: Option<String>, pattern: Option<Regex> },
    /// So many of these pods had to make room, for `by` where it is given.
    Preempted { pods: Pods, count: Count, by: Option<Pods> },
    /// None of these pods exists.
    Gone { pods: Pods },
    /// The nodes with such labels, or all that take any pod, have so much of a resource together.
    Allocatable { resource: String, nodes: Option<Labelled>, least: Option<Quantity>, most: Option<Quantity> },
    /// These pods together use so much of a resource, as their nodes' agents report.
    Usage { pods: Pods, resource: String, least: Option<Quantity>, most: Option<Quantity> },
    /// An object has these fields; lists hold an item like each one given.
    Object { object: ObjectRef, matches: Value },
}
