//! PodTopologySpread: pods of a kind evenly over zones, nodes or what else. Spec: scheduler-core 6.10.

use std::sync::Arc;

use crate::cluster::domains::{Domain, KeyColumn, at};
use crate::cluster::matching::{Counts, SetId};
use crate::cluster::{Cluster, Row};
use crate::framework::{
    Code, Cycle, Facts, Filter, Hooks, NodeView, PreFilter, Preparation, Reason, Scope, Score, Status,
};
use crate::number::{nearest, truncated};
use crate::pod::{Class, Pod, SpreadConstraint};

pub const NAME: &str = "PodTopologySpread";

pub fn build() -> Hooks {
    let plugin = Arc::new(PodTopologySpread);
    Hooks::new(NAME).pre_filter(plugin.clone()).filter(plugin.clone()).score(plugin)
}

struct PodTopologySpread;

/// One constraint at work in a cycle.
#[derive(Clone)]
struct Working {
    constraint: SpreadConstraint,
    /// Matching pods per domain, on nodes that count; a domain no such node is in has none.
    counts: Vec<Option<i64>>,
    /// 1 when the pod counts itself.
    itself: i64,
}

/// The hard constraints of a cycle.
#[derive(Clone, Default)]
struct Hard {
    constraints: Vec<Working>,
}

impl Working {
    /// The fewest pods that any domain has; 0 while there are too few domains.
    fn fewest(&self) -> i64 {
        let present = self.counts.iter().flatten();
        let domains = i64::try_from(present.clone().count()).unwrap_or(i64::MAX);
        match domains < self.constraint.min_domains {
            true => 0,
            false => present.copied().min().unwrap_or(0),
        }
    }

    fn count(&self, domain: Domain) -> i64 {
        self.counts.get(at(domain)).copied().flatten().unwrap_or(0)
    }
}

/// The column of a constraint's key. It is followed since the pod is attended to.
fn column<'a>(cluster: &'a Cluster, constraint: &SpreadConstraint) -> Option<&'a KeyColumn> {
    cluster.domains().key(constraint.topology_key)
}

/// Whether pods on a node count for a constraint.
fn counts_here(cluster: &Cluster, class: &Class, constraint: &SpreadConstraint, row: Row) -> bool {
    let node = cluster.node(row);
    if constraint.honors_affinity {
        let affinity = class.node_affinity.as_ref();
        if affinity.is_some_and(|affinity| !affinity.matches(&node.labels, &node.name).unwrap_or(false)) {
            return false;
        }
    }
    let is_hard = |effect: &str| effect == "NoSchedule" || effect == "NoExecute";
    let mut taints = node.taints.iter().filter(|taint| is_hard(&taint.effect));
    !constraint.honors_taints || taints.all(|taint| class.tolerates(taint, |_| true))
}

/// Matching pods on a row, those being deleted left out.
fn live(all: &Counts, deleting: &Counts, row: Row) -> i64 {
    all.on(row) - deleting.on(row)
}

/// Counts the pods of each constraint per domain, over nodes that have all keys and count.
fn working(cycle: &Cycle<'_>, constraints: &[SpreadConstraint], needs_all_keys: bool) -> Vec<Working> {
    let (cluster, class) = (cycle.cluster, &cycle.pod.class);
    let columns: Vec<Option<&KeyColumn>> = constraints.iter().map(|c| column(cluster, c)).collect();
    let real = || (0..cluster.columns.rows()).filter(|at| cluster.columns.is_real[*at]).map(Row::from_index);
    let has_all_keys =
        |row: Row| columns.iter().all(|column| column.is_some_and(|column| column.of(row) != 0));
    constraints
        .iter()
        .zip(&columns)
        .map(|(constraint, column)| {
            let set = cluster.matching().set(&constraint.pods(&class.namespace));
            let mut counts: Vec<Option<i64>> = vec![None; column.map_or(0, |column| column.len())];
            for row in real() {
                let Some(domain) = column.map(|column| column.of(row)).filter(|domain| *domain != 0) else {
                    continue;
                };
                let is_in =
                    (!needs_all_keys || has_all_keys(row)) && counts_here(cluster, class, constraint, row);
                if is_in {
                    *counts[at(domain)].get_or_insert(0) += on_row(cluster, set, row);
                }
            }
            let itself =
                cluster.matching().contains(&constraint.pods(&class.namespace), class, &cluster.names);
            Working { constraint: constraint.clone(), counts, itself: i64::from(itself) }
        })
        .collect()
}

fn on_row(cluster: &Cluster, set: Option<SetId>, row: Row) -> i64 {
    set.map_or(0, |id| live(cluster.matching().all(id), cluster.matching().deleting(id), row))
}

impl Hard {
    fn simulate(&mut self, cycle_pod: &Pod, cluster: &Cluster, other: &Pod, row: Row, by: i64) {
        if other.is_deleting || other.key.namespace != cycle_pod.key.namespace {
            return;
        }
        for working in &mut self.constraints {
            let pods = working.constraint.pods(&cycle_pod.class.namespace);
            let counts = cluster.matching().contains(&pods, &other.class, &cluster.names)
                && counts_here(cluster, &cycle_pod.class, &working.constraint, row);
            let place = column(cluster, &working.constraint).map_or(0, |column| column.of(row));
            if let Some(Some(count)) = working.counts.get_mut(at(place)).filter(|_| counts) {
                *count += by;
            }
        }
    }
}

impl PreFilter for PodTopologySpread {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        let hard: Vec<SpreadConstraint> =
            cycle.pod.class.spread.iter().filter(|c| c.is_hard).cloned().collect();
        if hard.is_empty() {
            return Ok(Preparation::Skip);
        }
        let constraints = working(cycle, &hard, true);
        cycle.set(Hard { constraints });
        Ok(Preparation::Go)
    }

    fn only_serves_filter(&self, _class: &Class) -> bool {
        true
    }

    fn add_pod(&self, cycle: &mut Cycle<'_>, other: &Arc<Pod>, row: Row) {
        let (pod, cluster) = (cycle.pod, cycle.cluster);
        if let Some(hard) = cycle.get_mut::<Hard>() {
            hard.simulate(pod, cluster, other, row, 1);
        }
    }

    fn remove_pod(&self, cycle: &mut Cycle<'_>, other: &Arc<Pod>, row: Row) {
        let (pod, cluster) = (cycle.pod, cycle.cluster);
        if let Some(hard) = cycle.get_mut::<Hard>() {
            hard.simulate(pod, cluster, other, row, -1);
        }
    }
}

impl Filter for PodTopologySpread {
    fn scope(&self, class: &Class) -> Scope {
        if class.spread.iter().any(|constraint| constraint.is_hard) { Scope::Cluster } else { Scope::Nothing }
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        let Some(hard) = cycle.get::<Hard>() else { return Ok(()) };
        for working in &hard.constraints {
            let constraint = &working.constraint;
            let column = column(cycle.cluster, constraint);
            let place = column.map_or(0, |column| column.of(node.row));
            if place == 0 {
                let text = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(Status::unresolvable(NAME, text));
            }
            let (count, fewest) = (working.count(place), working.fewest());
            if count + working.itself - fewest > constraint.max_skew {
                let facts = Facts::Domain {
                    key: cycle.cluster.names.text(constraint.topology_key).into(),
                    value: column.map_or("", |column| column.name(place)).into(),
                    count,
                    limit: fewest + constraint.max_skew - working.itself,
                };
                let reason = Reason::with("node(s) didn't match pod topology spread constraints", facts);
                return Err(Status::new(Code::Unschedulable, NAME, reason));
            }
        }
        Ok(())
    }
}

/// The soft constraints of a cycle.
#[derive(Clone, Default)]
struct Soft {
    constraints: Vec<(Working, f64)>,
    /// Nodes that lack a key: they get nothing.
    ignored: Vec<Row>,
}

const HOSTNAME: &str = "kubernetes.io/hostname";

impl Score for PodTopologySpread {
    fn scope(&self, class: &Class) -> Scope {
        if class.spread.iter().all(|constraint| constraint.is_hard) { Scope::Nothing } else { Scope::Cluster }
    }

    fn prepare(&self, cycle: &mut Cycle<'_>, rows: &[Row]) -> Result<bool, Status> {
        let soft: Vec<SpreadConstraint> =
            cycle.pod.class.spread.iter().filter(|c| !c.is_hard).cloned().collect();
        if soft.is_empty() {
            return Ok(false);
        }
        let cluster = cycle.cluster;
        let lacks =
            |row: &Row| soft.iter().any(|c| column(cluster, c).is_none_or(|column| column.of(*row) == 0));
        let (ignored, scored): (Vec<Row>, Vec<Row>) = rows.iter().partition(|row| lacks(row));
        let constraints = working(cycle, &soft, true).into_iter().map(|working| {
            let size = domains_among(cluster, &working.constraint, &scored);
            (working, (nearest(size) + 2.0).ln())
        });
        let constraints = constraints.collect();
        cycle.set(Soft { constraints, ignored });
        Ok(true)
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let Some(soft) = cycle.get::<Soft>() else { return 0 };
        if soft.ignored.contains(&node.row) {
            return 0;
        }
        let cluster = cycle.cluster;
        let of = |(working, weight): &(Working, f64)| {
            let constraint = &working.constraint;
            let count = if cluster.names.text(constraint.topology_key) == HOSTNAME {
                on_row(
                    cluster,
                    cluster.matching().set(&constraint.pods(&cycle.pod.class.namespace)),
                    node.row,
                )
            } else {
                working.count(column(cluster, constraint).map_or(0, |column| column.of(node.row)))
            };
            nearest(count) * weight + nearest(constraint.max_skew - 1)
        };
        truncated(soft.constraints.iter().map(of).sum::<f64>().round())
    }

    fn normalize(&self, cycle: &Cycle<'_>, rows: &[Row], scores: &mut [i64]) {
        let Some(soft) = cycle.get::<Soft>() else { return };
        let counted = || rows.iter().zip(scores.iter()).filter(|(row, _)| !soft.ignored.contains(row));
        let (min, max) =
            counted().fold((i64::MAX, 0), |(min, max), (_, score)| (min.min(*score), max.max(*score)));
        for (row, score) in rows.iter().zip(scores) {
            *score = match max {
                _ if soft.ignored.contains(row) => 0,
                0 => 100,
                max => 100 * (max + min - *score) / max,
            };
        }
    }
}

/// How many domains of the key there are among these nodes.
fn domains_among(cluster: &Cluster, constraint: &SpreadConstraint, rows: &[Row]) -> i64 {
    let count = match cluster.names.text(constraint.topology_key) == HOSTNAME {
        true => rows.len(),
        false => {
            let Some(column) = column(cluster, constraint) else { return 0 };
            let mut seen = vec![false; column.len()];
            rows.iter().for_each(|row| seen[at(column.of(*row))] = true);
            seen.iter().skip(1).filter(|seen| **seen).count()
        }
    };
    i64::try_from(count).unwrap_or(i64::MAX)
}
