//! Others who have a say in scheduling from outside. Spec: scheduler-core 3.5.
//!
//! The engine does no I/O: whoever owns it brings the extenders along, as it brings time and randomness. Calls are
//! synchronous, for an attempt cannot go on without the answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::engine::command::Subject;
use crate::framework::PluginName;
use crate::pod::Pod;

/// A pseudo plugin: what extenders refuse may be lifted by anything.
pub const NAME: PluginName = "Extender";

/// The best score that an extender gives is 10, that of a plugin 100.
pub(crate) const SCORE_SCALE: i64 = 10;

/// What an extender wants to be asked, and about whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    pub filters: bool,
    /// Weight of its scores; none when it gives none.
    pub weight: Option<i64>,
    pub binds: bool,
    pub preempts: bool,
    /// Its failures do not fail the pod.
    pub is_ignorable: bool,
    /// Only pods that ask for one of these resources; empty is all pods.
    pub managed: Vec<Box<str>>,
}

impl Terms {
    /// Whether it has a say about this pod.
    // Differs: upstream takes a resource that is asked for with an amount of 0, too; the pod does not use it.
    pub fn interests(&self, cluster: &Cluster, pod: &Pod) -> bool {
        let asks_for = |name: &str| {
            let id = cluster.resources.id(name);
            id.is_some_and(|id| pod.class.requests.amounts.get(id) != 0)
        };
        self.managed.is_empty() || self.managed.iter().any(|name| asks_for(name))
    }
}

/// Somebody outside who has a say.
///
/// An error is the whole text. Whoever implements this tells the log of errors: here, those that may be ignored are.
pub trait Extender: Send {
    fn terms(&self) -> &Terms;

    /// Which of these nodes can take the pod.
    fn filter(&mut self, pod: &Subject, nodes: &[Box<str>]) -> Result<Filtered, String>;

    /// Scores from 0 to 10; a node that is not named gets none.
    fn prioritize(&mut self, pod: &Subject, nodes: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, String>;

    /// Where room may be made for the pod, and who has to go then. Nodes that are not named are out.
    fn preempt(&mut self, pod: &Subject, candidates: &[Candidate]) -> Result<Vec<Kept>, String>;
}

/// What an extender answers about nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filtered {
    pub passed: Vec<Box<str>>,
    /// Why others did not pass; preemption may help.
    pub failed: BTreeMap<Box<str>, String>,
    /// Why others did not pass, whoever is taken away. Counts before `failed`.
    pub unresolvable: BTreeMap<Box<str>, String>,
}

/// A node where room can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub node: Box<str>,
    pub victims: Vec<Subject>,
    /// How many of them break a disruption budget.
    pub violations: usize,
}

/// A node where an extender lets room be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub node: Box<str>,
    /// UIDs of the pods that have to go.
    pub victims: Vec<Box<str>>,
    pub violations: usize,
}

/// What an extender said, once for each time that it was asked: the part of a recording that only it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Said {
    Filter(Result<Filtered, String>),
    Prioritize(Result<Vec<(Box<str>, i64)>, String>),
    Preempt(Result<Vec<Kept>, String>),
}

/// The extenders that may be asked in one attempt, in the order they are configured.
pub type Extenders = [Box<dyn Extender>];

/// The place of the one that binds this pod, if one does.
pub(crate) fn binder(extenders: &Extenders, cluster: &Cluster, pod: &Pod) -> Option<usize> {
    extenders.iter().position(|extender| extender.terms().binds && extender.terms().interests(cluster, pod))
}
