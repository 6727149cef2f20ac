//! Extension points: one small trait each, plain values in and out.

use std::sync::Arc;

use super::{Cycle, NodeView, PluginName, Sieve, Status};
use crate::cluster::Row;
use crate::pod::{Class, Pod};

/// Where one plugin takes part.
#[derive(Clone, Default)]
pub struct Hooks {
    pub name: PluginName,
    pub pre_filter: Option<Arc<dyn PreFilter>>,
    pub filter: Option<Arc<dyn Filter>>,
    pub score: Option<Arc<dyn Score>>,
}

impl Hooks {
    pub fn new(name: PluginName) -> Hooks {
        Hooks { name, ..Hooks::default() }
    }

    pub fn pre_filter(mut self, plugin: Arc<dyn PreFilter>) -> Hooks {
        self.pre_filter = Some(plugin);
        self
    }

    pub fn filter(mut self, plugin: Arc<dyn Filter>) -> Hooks {
        self.filter = Some(plugin);
        self
    }

    pub fn score(mut self, plugin: Arc<dyn Score>) -> Hooks {
        self.score = Some(plugin);
        self
    }
}

/// What a plugin's answers about a pod of a class depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// It has nothing to say: the same answer for every node.
    Nothing,
    /// Only the node's own row: answers stay true until the row changes.
    Row,
    /// Other nodes or objects too: answers are of one cycle.
    Cluster,
}

/// What looking at the pod alone brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Preparation {
    /// Filters of this plugin are to be asked.
    Go,
    /// This plugin has nothing to filter for this pod.
    Skip,
    /// Only these nodes come into question.
    Only(Vec<Row>),
}

/// Looks at the pod before any node, and keeps what the filters need in the cycle.
pub trait PreFilter: Send + Sync {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status>;

    /// The cycle's state as if `other` were on `row` too.
    fn add_pod(&self, _cycle: &mut Cycle<'_>, _other: &Arc<Pod>, _row: Row) {}

    /// The cycle's state as if `other` were not on `row`.
    fn remove_pod(&self, _cycle: &mut Cycle<'_>, _other: &Arc<Pod>, _row: Row) {}
}

/// Says which nodes a pod cannot run on.
pub trait Filter: Send + Sync {
    fn scope(&self, class: &Class) -> Scope;

    /// One node: the meaning of the plugin.
    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status>;

    /// All nodes left; a plugin that can do better than one by one does so, with the same outcome.
    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        sieve.retain(|row| self.check(cycle, &NodeView::of(cycle.cluster, row)));
    }
}

/// Rates the nodes that are left, 0 to 100 after normalising.
pub trait Score: Send + Sync {
    fn scope(&self, class: &Class) -> Scope;

    /// Prepares the cycle; false when the plugin adds nothing to any node.
    fn prepare(&self, _cycle: &mut Cycle<'_>, _rows: &[Row]) -> Result<bool, Status> {
        Ok(true)
    }

    /// One node: the meaning of the plugin.
    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64;

    /// All nodes at once; `out` has one entry for each row.
    fn rate(&self, cycle: &Cycle<'_>, rows: &[Row], out: &mut [i64]) {
        for (row, score) in rows.iter().zip(out) {
            *score = self.score(cycle, &NodeView::of(cycle.cluster, *row));
        }
    }

    /// From raw scores to 0..=100.
    fn normalize(&self, _cycle: &Cycle<'_>, _rows: &[Row], _scores: &mut [i64]) {}
}

/// Scales to 100 by the highest; reversed, the highest becomes 0. Spec: scheduler-core 6.
pub fn normalize_by_max(scores: &mut [i64], is_reversed: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        *score = match (max, is_reversed) {
            (0, false) => continue,
            (0, true) => 100,
            (_, false) => 100 * *score / max,
            (_, true) => 100 - 100 * *score / max,
        };
    }
}
