//! Whether one more node would help, told from the nodes there are.
//!
//! A node like another one has its labels, taints and size, no pods, and a host name of its own. Only what follows from
//! that with certainty is claimed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amount;
use super::change::Change;
use super::propose::{Proposal, Test, variant};
use super::survey::{Judges, Survey, Trial};
use crate::cluster::{Cluster, Row};
use crate::framework::Delta;
use crate::pod::{Class, Pod};

/// The label that tells nodes apart.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// A name that no node has.
const NEW_NAME: &str = "a new node";
/// Nodes looked at as models.
const MODELS_MAX: usize = 64;
/// Of these, of different size.
const SIZES_MAX: usize = 4;
/// Hardware costs most.
const COST: u32 = 90;
/// Of a size that was not bought before, even more.
const LARGER_COST: u32 = 95;

/// One more node of a size that exists; one of a size that does not.
pub(super) fn propose(judges: Judges<'_>, survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let (cluster, class) = (judges.cluster, &pod.class);
    if !class.volumes.is_empty() || class.pinned.is_some() || !survey.pod.is_empty() || !survey.fit.is_empty()
    {
        return Vec::new();
    }
    if judges.order.is_empty() {
        let is_easy = class.node_affinity.is_none() && class.affinity.is_empty() && class.spread.is_empty();
        let at_least = sizes(cluster, class, |_| true);
        let change = Change::AddNode { like: String::new(), at_least };
        let proposal = Proposal { change, cost: COST, pod: pod.clone(), test: Test::NewNode(None) };
        return if is_easy { vec![proposal] } else { Vec::new() };
    }
    let is_apart = |key| cluster.names.text(key) == HOSTNAME;
    if class.affinity.iter().any(|term| is_apart(term.topology_key)) || !counts_stay(judges, class) {
        return Vec::new();
    }
    models(judges, survey, class).into_iter().map(|row| like(cluster, pod, row)).collect()
}

/// The pod's amounts, as far as `is_named` wants them.
fn sizes(cluster: &Cluster, class: &Class, is_named: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let table = &cluster.resources;
    let asked = class.requests.amounts.iter().filter(|(_, units)| *units > 0);
    asked
        .map(|(id, units)| (table.name(id), amount::exact(table, id, units)))
        .filter(|(name, _)| is_named(name))
        .map(|(name, units)| (name.to_owned(), units))
        .collect()
}

/// Constraints over host names are left out of the trial, for an empty node keeps them. The other constraints must
/// count as before, which they do where every node has the label.
fn counts_stay(judges: Judges<'_>, class: &Class) -> bool {
    let is_apart = |key| judges.cluster.names.text(key) == HOSTNAME;
    let hard = || class.spread.iter().filter(|constraint| constraint.is_hard);
    let has_both = hard().any(|c| is_apart(c.topology_key)) && hard().any(|c| !is_apart(c.topology_key));
    !has_both || judges.order.iter().all(|row| judges.cluster.node(*row).labels.contains_key(HOSTNAME))
}

/// Nodes to take as models: the nearest of each size, that would take the pod by their labels.
fn models(judges: Judges<'_>, survey: &Survey, class: &Class) -> Vec<Row> {
    let mut models: Vec<Row> = Vec::new();
    for against in survey.nearest(judges.cluster, MODELS_MAX) {
        let node = judges.cluster.node(against.row);
        let mut labels = node.labels.clone();
        if let Some(name) = labels.get_mut(HOSTNAME) {
            *name = NEW_NAME.to_owned();
        }
        let is_wanted =
            class.node_affinity.as_ref().is_none_or(|a| a.matches(&labels, NEW_NAME).unwrap_or(false));
        let is_known = models.iter().any(|row| judges.cluster.node(*row).allocatable == node.allocatable);
        if is_wanted && !is_known && !node.is_unschedulable && models.len() < SIZES_MAX {
            models.push(against.row);
        }
    }
    models
}

fn like(cluster: &Cluster, pod: &Arc<Pod>, row: Row) -> Proposal {
    let node = cluster.node(row);
    let is_larger = |name: &str| {
        let id = cluster.resources.id(name);
        id.is_some_and(|id| pod.class.requests.amounts.get(id) > node.allocatable.get(id))
    };
    let at_least = sizes(cluster, &pod.class, is_larger);
    // Where the model is too small the new node is larger: there is nothing to check.
    let cut = variant(pod, |class| {
        for (id, units) in pod.class.requests.amounts.iter() {
            class.requests.amounts.set(id, units.min(node.allocatable.get(id)));
        }
        let is_apart = |key| cluster.names.text(key) == HOSTNAME;
        class.anti_affinity =
            class.anti_affinity.iter().filter(|term| !is_apart(term.topology_key)).cloned().collect();
        for constraint in class.spread.iter_mut().filter(|c| is_apart(c.topology_key)) {
            constraint.is_hard = false;
        }
    });
    let cost = if at_least.is_empty() { COST } else { LARGER_COST };
    let change = Change::AddNode { like: node.name.to_string(), at_least };
    Proposal { change, cost, pod: cut, test: Test::NewNode(Some(row)) }
}

/// Whether an empty node like this one takes the pod.
pub(super) fn fits(judges: Judges<'_>, trial: &Trial<'_>, row: Row) -> bool {
    let mut delta = Delta::default();
    let mut cycle = trial.cycle().clone();
    for other in &judges.cluster.node(row).pods.all {
        delta.remove(judges.cluster, row, other);
        if is_only_felt_here(judges.cluster, &trial.cycle().pod.class, other) {
            trial.suppose_gone(&mut cycle, other, row);
        }
    }
    trial.comes_into_question(row) && trial.passes_if_new(&cycle, row, &delta)
}

/// Whether a pod's wish to be alone ends at its node, and nothing else of it is counted for us. Others stay where they
/// are when a node comes, so they are not taken out.
fn is_only_felt_here(cluster: &Cluster, class: &Class, other: &Pod) -> bool {
    let is_apart = |key| cluster.names.text(key) == HOSTNAME;
    let counts =
        |set: &crate::pod::term::PodSet| cluster.matching().contains(set, &other.class, &cluster.names);
    !other.class.anti_affinity.is_empty()
        && other.class.anti_affinity.iter().all(|term| is_apart(term.topology_key))
        && !class.anti_affinity.iter().any(|term| counts(&term.pods))
        && !class.together.as_ref().is_some_and(|set| counts(set))
        && !class.spread.iter().any(|constraint| counts(&constraint.pods))
}
