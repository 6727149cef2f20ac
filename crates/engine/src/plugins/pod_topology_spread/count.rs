//! How many pods of a constraint each domain has, on the nodes that count for it.

use super::column;
use crate::cluster::domains::{Domain, KeyColumn, at};
use crate::cluster::matching::Counts;
use crate::cluster::{Cluster, Row};
use crate::framework::Cycle;
use crate::pod::{Class, SpreadConstraint};

/// Pods of each constraint per domain, over nodes that have the labels (all of them, or at least its own) and that
/// its policies let in. A domain that no such node is in has no count; a constraint that is not `wanted` has none.
pub(super) fn by_domain(
    cycle: &Cycle<'_>,
    constraints: &[SpreadConstraint],
    needs_all_keys: bool,
    is_wanted: impl Fn(&SpreadConstraint) -> bool,
) -> Vec<Vec<Option<i64>>> {
    let nodes = Nodes::of(cycle, constraints, needs_all_keys);
    let counts = constraints.iter().zip(&nodes.columns).map(|(constraint, column)| match column {
        _ if !is_wanted(constraint) => Vec::new(),
        None => Vec::new(),
        Some(column) if nodes.all_count(constraint) => of_all(cycle.cluster, constraint, column),
        Some(column) => of_some(cycle.cluster, constraint, column, |row| nodes.counts(constraint, row)),
    });
    let mut counts: Vec<Vec<Option<i64>>> = counts.collect();
    // Those that the pod looks through are not there for it.
    for (row, pod) in cycle.lifted().iter().filter(|(_, pod)| !pod.is_deleting) {
        for ((constraint, column), counts) in constraints.iter().zip(&nodes.columns).zip(&mut counts) {
            let (cluster, place) = (cycle.cluster, column.map_or(0, |column| column.of(*row)));
            let is_counted = nodes.counts(constraint, *row)
                && cluster.matching().contains(&constraint.pods, &pod.class, &cluster.names);
            if let Some(Some(count)) = counts.get_mut(at(place)).filter(|_| is_counted) {
                *count -= 1;
            }
        }
    }
    counts
}

/// Whether pods on a node count for a constraint; labels aside.
pub(super) fn counts_here(cluster: &Cluster, class: &Class, constraint: &SpreadConstraint, row: Row) -> bool {
    let node = cluster.node(row);
    let fits = || {
        let affinity = class.node_affinity.as_ref();
        affinity.is_none_or(|affinity| affinity.matches(&node.labels, &node.name).unwrap_or(false))
    };
    (!constraint.honors_affinity || fits()) && (!constraint.honors_taints || tolerates(class, &node.taints))
}

fn tolerates(class: &Class, taints: &[k8s_openapi::api::core::v1::Taint]) -> bool {
    let mut hard = taints.iter().filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
    hard.all(|taint| class.tolerates(taint, |_| true))
}

/// What decides whether a node counts, looked up once for all constraints.
struct Nodes<'a> {
    cluster: &'a Cluster,
    columns: Vec<Option<&'a KeyColumn>>,
    needs_all_keys: bool,
    /// By row, whether the pod's affinity takes the node; none when it takes every node.
    fits: Option<Vec<bool>>,
    /// By set of taints, whether the pod tolerates them; none when no node has any.
    tolerates: Option<Vec<bool>>,
}

impl<'a> Nodes<'a> {
    fn of(cycle: &Cycle<'a>, constraints: &[SpreadConstraint], needs_all_keys: bool) -> Nodes<'a> {
        let (cluster, class) = (cycle.cluster, &cycle.pod.class);
        let affinity = class.node_affinity.as_ref().filter(|_| constraints.iter().any(|c| c.honors_affinity));
        let fits = affinity.map(|affinity| {
            let fits = |row: Row| {
                let node = cluster.node(row);
                node.is_real && affinity.matches(&node.labels, &node.name).unwrap_or(false)
            };
            (0..cluster.columns.rows()).map(|at| fits(Row::from_index(at))).collect()
        });
        let sets = cluster.taint_sets();
        let looks_at_taints = !sets.is_empty() && constraints.iter().any(|c| c.honors_taints);
        let tolerated = looks_at_taints.then(|| {
            let mut tolerated = vec![true; sets.len()];
            for (id, set) in sets.used() {
                tolerated[usize::try_from(id).unwrap_or(0)] = tolerates(class, &set.taints);
            }
            tolerated
        });
        let columns = constraints.iter().map(|constraint| column(cluster, constraint)).collect();
        Nodes { cluster, columns, needs_all_keys, fits, tolerates: tolerated }
    }

    /// Whether every node with the constraint's label counts.
    fn all_count(&self, constraint: &SpreadConstraint) -> bool {
        let has_all_keys =
            || self.columns.iter().all(|column| column.is_some_and(|column| column.nodes(0) == 0));
        (!constraint.honors_affinity || self.fits.is_none())
            && (!constraint.honors_taints || self.tolerates.is_none())
            && (!self.needs_all_keys || self.columns.len() == 1 || has_all_keys())
    }

    fn counts(&self, constraint: &SpreadConstraint, row: Row) -> bool {
        let has_key = |column: &Option<&KeyColumn>| column.is_some_and(|column| column.of(row) != 0);
        let set = usize::try_from(self.cluster.columns.taint_set[row.index()]).unwrap_or(0);
        (!self.needs_all_keys || self.columns.iter().all(has_key))
            && (!constraint.honors_affinity || self.fits.as_ref().is_none_or(|fits| fits[row.index()]))
            && (!constraint.honors_taints || self.tolerates.as_ref().is_none_or(|tolerates| tolerates[set]))
    }
}

/// The counts as the cluster keeps them.
fn of_all(cluster: &Cluster, constraint: &SpreadConstraint, column: &KeyColumn) -> Vec<Option<i64>> {
    let matching = cluster.matching();
    let set = matching.set(&constraint.pods);
    let kept = |counts: &'_ Counts| counts.by_domain(constraint.topology_key).map(<[i64]>::to_vec);
    let all = set.and_then(|id| kept(matching.all(id))).unwrap_or_default();
    let deleting = set.and_then(|id| kept(matching.deleting(id))).unwrap_or_default();
    let get = |counts: &[i64], domain: Domain| counts.get(at(domain)).copied().unwrap_or(0);
    let of = |domain: Domain| {
        let is_there = domain != 0 && column.nodes(domain) > 0;
        is_there.then(|| get(&all, domain) - get(&deleting, domain))
    };
    (0..).take(column.len()).map(of).collect()
}

/// The counts of the nodes that are let in.
fn of_some(
    cluster: &Cluster,
    constraint: &SpreadConstraint,
    column: &KeyColumn,
    is_in: impl Fn(Row) -> bool,
) -> Vec<Option<i64>> {
    let mut counts: Vec<Option<i64>> = vec![None; column.len()];
    let real = (0..cluster.columns.rows()).filter(|at| cluster.columns.is_real[*at]).map(Row::from_index);
    for row in real {
        let count = &mut counts[at(column.of(row))];
        if count.is_none() && column.of(row) != 0 && is_in(row) {
            *count = Some(0);
        }
    }
    let matching = cluster.matching();
    let Some(id) = matching.set(&constraint.pods) else { return counts };
    for (of, sign) in [(matching.all(id), 1), (matching.deleting(id), -1)] {
        for (row, count) in of.rows() {
            if let Some(sum) = counts[at(column.of(row))].as_mut().filter(|_| is_in(row)) {
                *sum += sign * count;
            }
        }
    }
    counts
}
