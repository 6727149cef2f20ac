//! Soft constraints: nodes in domains with fewer pods of the kind score higher.

use std::sync::Arc;

use super::{Constraints, PodTopologySpread, column, count};
use crate::cluster::domains::{KeyColumn, at};
use crate::cluster::matching::SetId;
use crate::cluster::{Cluster, Row};
use crate::framework::parts::ScorePart;
use crate::framework::{Cycle, NodeView, Scope, Score, Status};
use crate::intern::Sym;
use crate::number::{nearest, truncated};
use crate::pod::{Class, SpreadConstraint};

/// Counted on each node by itself, whatever other nodes have the same name.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The soft constraints of a cycle.
#[derive(Clone, Default)]
struct Soft {
    parts: Vec<Part<Counted>>,
    /// By row: nodes that lack a key and get nothing. Empty when there are none.
    ignored: Vec<bool>,
}

/// A constraint with the weight that its topology has at the moment.
#[derive(Clone)]
pub(super) struct Part<C> {
    key: Sym,
    counts: C,
    /// Domains of larger topologies have fewer pods each, so their counts weigh more.
    weight: f64,
    /// What the skew that is allowed adds to every node.
    allowance: f64,
}

#[derive(Clone)]
enum Counted {
    Domains(Vec<Option<i64>>),
    /// On the node alone, of this set; a set that nobody follows has no pods.
    Node(Option<SetId>),
}

impl Soft {
    fn ignores(&self, row: Row) -> bool {
        self.ignored.get(row.index()).copied().unwrap_or(false)
    }
}

impl<C> Part<C> {
    /// `size` is the number of domains.
    pub(super) fn new(constraint: &SpreadConstraint, counts: C, size: usize) -> Part<C> {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        Part {
            key: constraint.topology_key,
            counts,
            weight: nearest(size.saturating_add(2)).ln(),
            allowance: nearest((constraint.max_skew - 1).max(0)),
        }
    }

    pub(super) fn rated(&self, count: i64) -> f64 {
        nearest(count) * self.weight + self.allowance
    }
}

pub(super) fn is_hostname(cluster: &Cluster, constraint: &SpreadConstraint) -> bool {
    cluster.names.text(constraint.topology_key) == HOSTNAME
}

/// Matching pods on a row, those being deleted left out.
pub(super) fn on_row(cluster: &Cluster, set: Option<SetId>, row: Row) -> i64 {
    set.map_or(0, |id| cluster.matching().all(id).on(row) - cluster.matching().deleting(id).on(row))
}

/// Those of them that the pod of the cycle looks through.
fn lifted_from(cycle: &Cycle<'_>, set: Option<SetId>, row: Row) -> i64 {
    let (Some(id), matching) = (set, cycle.cluster.matching()) else { return 0 };
    let names = &cycle.cluster.names;
    let lifted = cycle.lifted().iter().filter(|(at, pod)| *at == row && !pod.is_deleting);
    let counted = lifted.filter(|(_, pod)| matching.contains(matching.pods(id), &pod.class, names));
    i64::try_from(counted.count()).unwrap_or(i64::MAX)
}

/// The same for all rows.
fn on_rows(cluster: &Cluster, set: Option<SetId>) -> Vec<i64> {
    let mut counts = vec![0; cluster.columns.rows()];
    let Some(id) = set else { return counts };
    for (of, sign) in [(cluster.matching().all(id), 1), (cluster.matching().deleting(id), -1)] {
        of.rows().for_each(|(row, count)| counts[row.index()] += sign * count);
    }
    counts
}

/// How many values of the key there are among these nodes; to have none is one, too.
fn values_among(column: Option<&KeyColumn>, rows: impl Iterator<Item = Row>) -> usize {
    let Some(column) = column else { return 0 };
    let mut seen = vec![false; column.len()];
    rows.for_each(|row| seen[at(column.of(row))] = true);
    seen.iter().filter(|seen| **seen).count()
}

impl Score for PodTopologySpread {
    /// Of a pod without own constraints only the cluster knows whether it is of a kind.
    fn scope(&self, class: &Class) -> Scope {
        let is_concerned = match class.spread.is_empty() {
            true => self.has_soft_default,
            false => class.spread.iter().any(|constraint| !constraint.is_hard),
        };
        if is_concerned { Scope::Cluster } else { Scope::Nothing }
    }

    fn prepare(&self, cycle: &mut Cycle<'_>, rows: &[Row]) -> Result<bool, Status> {
        if Score::scope(self, &cycle.pod.class) == Scope::Nothing {
            return Ok(false);
        }
        let cluster = cycle.cluster;
        let constraints = Constraints::of(cluster, &cycle.pod.class);
        let soft = constraints.soft();
        if soft.is_empty() {
            return Ok(false);
        }
        let needs_all_keys = !constraints.takes_any_key();
        let columns: Vec<Option<&KeyColumn>> = soft.iter().map(|c| column(cluster, c)).collect();
        let lacks = |row: Row| columns.iter().any(|column| column.is_none_or(|column| column.of(row) == 0));
        let mut ignored = Vec::new();
        if needs_all_keys && columns.iter().any(|column| column.is_none_or(|column| column.nodes(0) > 0)) {
            ignored.resize(cluster.columns.rows(), false);
            rows.iter().for_each(|row| ignored[row.index()] = lacks(*row));
        }
        let mut state = Soft { parts: Vec::new(), ignored };
        let scored = || rows.iter().copied().filter(|row| !state.ignores(*row));
        let counts = count::by_domain(cycle, &soft, needs_all_keys, |c| !is_hostname(cluster, c));
        let parts = soft.iter().zip(columns).zip(counts).map(|((constraint, column), counts)| {
            match is_hostname(cluster, constraint) {
                true => {
                    let on_node = Counted::Node(cluster.matching().set(&constraint.pods));
                    Part::new(constraint, on_node, scored().count())
                }
                false => Part::new(constraint, Counted::Domains(counts), values_among(column, scored())),
            }
        });
        state.parts = parts.collect();
        cycle.set(state);
        Ok(true)
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let Some(soft) = cycle.get::<Soft>().filter(|soft| !soft.ignores(node.row)) else { return 0 };
        let rated = soft.parts.iter().filter_map(|part| {
            let place = cycle.cluster.domains().key(part.key)?.of(node.row);
            let count = match &part.counts {
                _ if place == 0 => return None,
                Counted::Domains(counts) => counts.get(at(place)).copied().flatten().unwrap_or(0),
                Counted::Node(set) => {
                    on_row(cycle.cluster, *set, node.row) - lifted_from(cycle, *set, node.row)
                }
            };
            Some(part.rated(count))
        });
        truncated(rated.sum::<f64>().round())
    }

    fn rate(&self, cycle: &Cycle<'_>, rows: &[Row], out: &mut [i64]) {
        out.fill(0);
        let Some(soft) = cycle.get::<Soft>() else { return };
        let mut sums = vec![0.0; rows.len()];
        for part in &soft.parts {
            let Some(column) = cycle.cluster.domains().key(part.key) else { continue };
            let by_domain = |counts: &Vec<Option<i64>>| -> Vec<f64> {
                counts.iter().map(|count| part.rated(count.unwrap_or(0))).collect()
            };
            let mut add = |rated: &dyn Fn(Row) -> f64| {
                for (row, sum) in rows.iter().zip(&mut sums) {
                    if column.of(*row) != 0 {
                        *sum += rated(*row);
                    }
                }
            };
            match &part.counts {
                Counted::Domains(counts) => {
                    let rated = by_domain(counts);
                    add(&|row| rated.get(at(column.of(row))).copied().unwrap_or(part.allowance));
                }
                Counted::Node(set) => {
                    let counts = on_rows(cycle.cluster, *set);
                    add(&|row| part.rated(counts[row.index()]));
                }
            }
        }
        for ((row, sum), score) in rows.iter().zip(sums).zip(out) {
            if !soft.ignores(*row) {
                *score = truncated(sum.round());
            }
        }
    }

    fn normalize(&self, cycle: &Cycle<'_>, rows: &[Row], scores: &mut [i64]) {
        let Some(soft) = cycle.get::<Soft>() else { return };
        normalize(scores, |at| soft.ignores(rows[at]));
    }

    fn part(&self, cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        self.score_part(cluster, class)
    }
}

/// The fewer pods the better; those that are ignored get nothing.
pub(super) fn normalize(scores: &mut [i64], is_ignored: impl Fn(usize) -> bool) {
    let counted = scores.iter().enumerate().filter(|(at, _)| !is_ignored(*at));
    let (min, max) = counted.fold((i64::MAX, 0), |(min, max), (_, score)| (min.min(*score), max.max(*score)));
    for (at, score) in scores.iter_mut().enumerate() {
        *score = match max {
            _ if is_ignored(at) => 0,
            0 => 100,
            max => 100 * (max + min - *score) / max,
        };
    }
}
