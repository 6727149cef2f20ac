//! What is kept of single decisions for the logs, when somebody asks for it. Spec: scheduler-core 9.14.
//!
//! Asked of the plugins anew, beside the decision: switching a dump on changes no choice.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use crate::cluster::Row;
use crate::framework::{Code, PluginName, Sieve};
use crate::pod::Pod;
use crate::queue::ProfileId;
use crate::schedule::{self, Choice, Failure, Unfit};

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumps {
    /// How many of the best nodes; 0 is off.
    pub top_scores: usize,
    pub refusals: bool,
    /// Of attempts that fail.
    pub diagnosis: bool,
}

/// What was kept of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// None when no scores were asked for, or there was no choice.
    pub scores: Option<ScoreTable>,
    pub refusals: Vec<Refusal>,
    pub diagnosis: Option<Diagnosed>,
}

/// Why no node took a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosed {
    /// The node that it was promised; may be empty.
    pub nominated: Box<str>,
    /// What was said against the pod itself.
    pub of_pod: Option<String>,
    /// By reason and plugin.
    pub details: Vec<Detail>,
    /// What PostFilter plugins said; may be empty.
    pub help: String,
}

/// Nodes that are out for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    pub reason: String,
    pub plugin: PluginName,
    pub preemption_may_help: bool,
    /// Ascending.
    pub nodes: Vec<Box<str>>,
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
        self.top_scores > 0 || self.refusals || self.diagnosis
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
        let Dumps { top_scores, refusals, diagnosis } = self.dumps;
        if !self.dumps.are_on() {
            return None;
        }
        let diagnosis = match found {
            Err(Failure::Unfit(unfit)) if diagnosis => Some(self.diagnosed(pod, unfit)),
            _ => None,
        };
        let (scores, refused) = match found {
            Ok(choice) => (self.scores(profile, pod, &choice.feasible, top_scores), Some(&choice.refused)),
            Err(Failure::Unfit(unfit)) => (None, Some(&unfit.diagnosis.nodes)),
            Err(_) => (None, None),
        };
        let refusals = refused.filter(|_| refusals).map(|sieve| self.refusals(sieve)).unwrap_or_default();
        Some(Box::new(Dumped { scores, refusals, diagnosis }))
    }

    fn diagnosed(&self, pod: &Pod, unfit: &Unfit) -> Diagnosed {
        let mut details: BTreeMap<(String, PluginName, bool), Vec<Box<str>>> = BTreeMap::new();
        for (row, status) in unfit.diagnosis.nodes.rejected() {
            let key = (status.to_string(), status.plugin, status.code != Code::Unresolvable);
            details.entry(key).or_default().push(self.world.cluster.node(row).name.clone());
        }
        let detail = |((reason, plugin, preemption_may_help), mut nodes): (_, Vec<Box<str>>)| {
            nodes.sort_unstable();
            Detail { reason, plugin, preemption_may_help, nodes }
        };
        Diagnosed {
            nominated: pod.nominated.clone(),
            of_pod: unfit.diagnosis.pod.as_ref().map(ToString::to_string),
            details: details.into_iter().map(detail).collect(),
            help: unfit.help.clone(),
        }
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
        let dumps = Dumps { top_scores: 1, refusals: true, diagnosis: false };
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

    #[test]
    fn a_diagnosis_groups_nodes_by_what_is_said_against_them() {
        let mut lab = Lab::new();
        lab.engine.set_dumps(Dumps { diagnosis: true, ..Dumps::default() });
        for (name, cpu) in [("b", "4"), ("a", "4")] {
            lab.node(name, cpu);
        }
        lab.take(
            json!({"type": "node", "object": {"metadata": {"name": "c"}, "spec": {"unschedulable": true},
            "status": {"allocatable": {"cpu": "4", "pods": "9"}}}}),
        );
        lab.add("p", "3", json!({}));
        assert_eq!(lab.engine.step(lab.now).unwrap().dumped.unwrap().diagnosis, None, "it has a node");
        lab.add("q", "5", json!({}));
        let diagnosis = lab.engine.step(lab.now).unwrap().dumped.unwrap().diagnosis.unwrap();
        let detail = |reason: &str, plugin, nodes: &[&str]| Detail {
            reason: reason.to_owned(),
            plugin,
            preemption_may_help: false,
            nodes: nodes.iter().map(|node| (*node).into()).collect(),
        };
        let want = [
            detail("Insufficient cpu", "NodeResourcesFit", &["a", "b"]),
            detail("node(s) were unschedulable", "NodeUnschedulable", &["c"]),
        ];
        assert_eq!(diagnosis.details, want);
        assert!(diagnosis.help.contains("preemption: 0/3 nodes are available: "), "{}", diagnosis.help);
    }
}
