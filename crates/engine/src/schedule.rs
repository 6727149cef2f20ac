//! One attempt: from a pod and the cluster to a node, or to the reasons why not. Spec: scheduler-core 3.2.
//!
//! Pure: nothing is assumed here and nothing is remembered. `search` finds the nodes that can take the pod,
//! `rank` chooses among them, `diagnosis` keeps what was said against the others.

use std::sync::Arc;

use crate::cluster::{Cluster, Row};
use crate::framework::{Cycle, Hooks, PluginName, Status};
use crate::pod::Pod;
use crate::random::Random;

mod diagnosis;
mod rank;
mod search;

pub use diagnosis::Diagnosis;
pub use search::nodes_to_find;

/// The plugins of one profile, point by point, in the order they run.
#[derive(Default)]
pub struct Framework {
    pub scheduler: Box<str>,
    pub pre_filters: Vec<Hooks>,
    pub filters: Vec<Hooks>,
    /// With their weights.
    pub scores: Vec<(Hooks, i64)>,
    /// Percent of nodes to look for; 0 adapts to the size of the cluster.
    pub percentage: i64,
    pub ties: Ties,
}

/// How one of several best nodes is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// Each as likely as any other.
    #[default]
    Random,
    /// Exactly as kube-scheduler 1.35 with parallelism 1.
    Heap,
}

/// Pods that were promised room, by the node that will have it.
#[derive(Debug, Default)]
pub struct Nominated {
    by_row: std::collections::HashMap<Row, Vec<Arc<Pod>>>,
}

impl Nominated {
    pub fn insert(&mut self, row: Row, pod: Arc<Pod>) {
        self.by_row.entry(row).or_default().push(pod);
    }

    pub fn is_empty(&self) -> bool {
        self.by_row.is_empty()
    }

    /// Those whose room must be left alone by `pod`.
    fn before<'a>(&'a self, pod: &'a Pod, row: Row) -> impl Iterator<Item = &'a Arc<Pod>> {
        let there = self.by_row.get(&row).into_iter().flatten();
        there.filter(move |other| other.class.priority >= pod.class.priority && other.uid != pod.uid)
    }
}

/// A node was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub row: Row,
    /// The nodes that passed, with their totals; no totals when only one passed.
    pub feasible: Vec<(Row, i64)>,
    /// Nodes looked at.
    pub evaluated: usize,
}

/// Why there is none.
#[derive(Debug)]
pub enum Failure {
    /// Plugins refused every node.
    Unfit(Diagnosis),
    /// Something went wrong.
    Error(Status),
    NoNodes,
}

/// What an attempt needs beside the cluster.
pub struct Attempt<'a> {
    pub framework: &'a Framework,
    pub nominated: &'a Nominated,
    pub order: &'a [Row],
    /// Where the search begins; moved on for the next attempt.
    pub start: &'a mut usize,
    pub random: &'a mut Random,
}

impl Attempt<'_> {
    /// Tries to find a node for the pod.
    pub fn run(mut self, cluster: &Cluster, pod: &Arc<Pod>) -> Result<Choice, Failure> {
        if self.order.is_empty() {
            return Err(Failure::NoNodes);
        }
        let mut cycle = Cycle::new(cluster, pod);
        let prepared = search::prepare(self.framework, &mut cycle).map_err(|refused| match refused {
            search::Refused::Error(status) => Failure::Error(status),
            search::Refused::Pod(status) => Failure::Unfit(Diagnosis::of_pod(status, self.order.len())),
        })?;
        let found = search::run(&mut self, &cycle, &prepared).map_err(Failure::Error)?;
        let evaluated = found.feasible.len() + found.sieve.rejected_count();
        match found.feasible.as_slice() {
            [] => Err(Failure::Unfit(Diagnosis::of_nodes(found.sieve, found.left_out, self.order.len()))),
            [row] => Ok(Choice { row: *row, feasible: vec![(*row, 0)], evaluated }),
            rows => {
                let totals = rank::totals(self.framework, &mut cycle, rows).map_err(Failure::Error)?;
                let at = rank::pick(&totals, self.framework.ties, self.random);
                let feasible: Vec<(Row, i64)> = rows.iter().copied().zip(totals).collect();
                Ok(Choice { row: feasible[at].0, feasible, evaluated })
            }
        }
    }
}

/// Nodes that a plugin's node set leaves out, and the plugins that left them out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub plugins: Vec<PluginName>,
    pub count: usize,
}

#[cfg(test)]
mod tests;
