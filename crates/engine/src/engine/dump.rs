//! What is kept of single decisions for the logs, when somebody asks for it. Spec: scheduler-core 9.14.
//!
//! Asked of the plugins anew, beside the decision: switching a dump on changes no choice.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Engine;
use crate::cluster::Row;
use crate::framework::{PluginName, Sieve};
use crate::pod::Pod;
use crate::queue::ProfileId;
use crate::schedule::{self, Choice, Failure};

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumps {
    /// How many of the best nodes; 0 is off.
    pub top_scores: usize,
    pub refusals: bool,
}

/// What was kept of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// None when no scores were asked for, or there was no choice.
    pub scores: Option<ScoreTable>,
    pub refusals: Vec<Refusal>,
}

/// The weighted scores of nodes, the best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoreTable {
    pub plugins: Vec<PluginName>,
    pub rows: Vec<ScoreRow>,
    /// How many nodes could take the pod.
    pub feasible: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoreRow {
    pub node: Box<str>,
    pub total: i64,
    /// One for each plugin.
    pub parts: Vec<i64>,
}

/// Why a node did not take the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub node: Box<str>,
    pub plugin: PluginName,
    pub reason: String,
}

impl Dumps {
    pub(super) fn are_on(self) -> bool {
        self.top_scores > 0 || self.refusals
    }
}

impl Engine {
    /// What attempts keep from now on.
    pub fn set_dumps(&mut self, dumps: Dumps) {
        self.dumps = dumps;
    }

    pub(super) fn dump(
        &self,
        profile: ProfileId,
        pod: &Arc<Pod>,
        found: &Result<Choice, Failure>,
    ) -> Option<Box<Dumped>> {
        let Dumps { top_scores, refusals } = self.dumps;
        if top_scores == 0 && !refusals {
            return None;
        }
        let (scores, refused) = match found {
            Ok(choice) => (self.scores(profile, pod, &choice.feasible, top_scores), Some(&choice.refused)),
            Err(Failure::Unfit(unfit)) => (None, Some(&unfit.diagnosis.nodes)),
            Err(_) => (None, None),
        };
        let refusals = refused.filter(|_| refusals).map(|sieve| self.refusals(sieve)).unwrap_or_default();
        Some(Box::new(Dumped { scores, refusals }))
    }

    fn scores(
        &self,
        profile: ProfileId,
        pod: &Arc<Pod>,
        feasible: &[(Row, i64)],
        top: usize,
    ) -> Option<ScoreTable> {
        if top == 0 || feasible.len() < 2 {
            return None;
        }
        let cluster = &self.world.cluster;
        let rows: Vec<Row> = feasible.iter().map(|(row, _)| *row).collect();
        let parts = schedule::score_parts(self.world.framework(profile), cluster, pod, &rows);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // Stable: among equals, the order in which they were visited.
        order.sort_by_key(|at| Reverse(feasible[*at].1));
        let row = |at: usize| ScoreRow {
            node: cluster.node(rows[at]).name.clone(),
            total: feasible[at].1,
            parts: parts.iter().map(|(_, scores)| scores[at]).collect(),
        };
        Some(ScoreTable {
            plugins: parts.iter().map(|(name, _)| *name).collect(),
            rows: order.into_iter().take(top).map(row).collect(),
            feasible: feasible.len(),
        })
    }

    fn refusals(&self, refused: &Sieve) -> Vec<Refusal> {
        let refusal = |(row, status): (Row, &crate::framework::Status)| Refusal {
            node: self.world.cluster.node(row).name.clone(),
            plugin: status.plugin,
            reason: status.to_string(),
        };
        refused.rejected().map(refusal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::Lab;
    use serde_json::json;

    #[test]
    fn a_dump_shows_the_best_nodes_and_every_refusal_and_changes_nothing() {
        let choose = |dumps: Dumps| {
            let mut lab = Lab::new();
            lab.engine.set_dumps(dumps);
            for (name, cpu) in [("a", "4"), ("b", "8"), ("c", "1")] {
                lab.node(name, cpu);
            }
            lab.add("p", "2", json!({}));
            lab.engine.step(lab.now).unwrap()
        };
        let dumps = Dumps { top_scores: 1, refusals: true };
        let (with, without) = (choose(dumps), choose(Dumps::default()));
        assert_eq!((&with.verdict, without.dumped), (&without.verdict, None));
        let dumped = with.dumped.unwrap();
        let table = dumped.scores.unwrap();
        assert_eq!(table.feasible, 2);
        assert_eq!(table.rows.len(), 1);
        assert_eq!(&*table.rows[0].node, "b");
        assert_eq!(table.rows[0].parts.iter().sum::<i64>(), table.rows[0].total);
        assert!(table.plugins.contains(&"NodeResourcesFit"), "{table:?}");
        let refusal =
            Refusal { node: "c".into(), plugin: "NodeResourcesFit", reason: "Insufficient cpu".into() };
        assert_eq!(dumped.refusals, [refusal]);
    }
}
