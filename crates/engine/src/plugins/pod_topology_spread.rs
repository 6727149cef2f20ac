//! PodTopologySpread: pods of a kind evenly over zones, nodes or what else. Spec: scheduler-core 6.10.
//!
//! Constraints are the pod's own or its profile's (`cluster::workloads`); counts are those that the cluster keeps
//! (`cluster::matching`), read by domain where every node counts and node by node where not (`count`). The hard ones
//! filter, the soft ones score (`soft`); `wake` says which changes may help a pod that was refused.

use std::sync::Arc;

use crate::cluster::domains::{Domain, KeyColumn, at};
use crate::cluster::workloads::DefaultSpread;
use crate::cluster::{Cluster, Row};
use crate::framework::parts::FilterPart;
use crate::framework::{
    Code, Cycle, Facts, Filter, Hooks, NodeView, PreFilter, Preparation, Reason, Scope, Sieve, Status,
};
use crate::pod::{Class, Pod, SpreadConstraint};
use crate::profile::args::DefaultConstraints;

mod count;
mod follow;
mod soft;
mod wake;

pub const NAME: &str = "PodTopologySpread";

/// The defaults themselves are the cluster's, which knows the pods they speak of (`Cluster::set_default_spread`).
pub fn build(defaults: &DefaultConstraints) -> Hooks {
    let (has_hard_default, has_soft_default) = match defaults {
        DefaultConstraints::System => (false, true),
        DefaultConstraints::List(list) => {
            let has = |action: &str| list.iter().any(|constraint| constraint.when_unsatisfiable == action);
            (has("DoNotSchedule"), has("ScheduleAnyway"))
        }
    };
    let plugin = Arc::new(PodTopologySpread { has_hard_default, has_soft_default });
    Hooks::new(NAME)
        .pre_filter(plugin.clone())
        .filter(plugin.clone())
        .score(plugin)
        .woken_by(wake::registrations())
}

struct PodTopologySpread {
    has_hard_default: bool,
    has_soft_default: bool,
}

/// The constraints of a pod.
enum Constraints {
    Own(Arc<Class>),
    Default(Arc<DefaultSpread>),
    None,
}

impl Constraints {
    fn of(cluster: &Cluster, class: &Arc<Class>) -> Constraints {
        match class.spread.is_empty() {
            false => Constraints::Own(class.clone()),
            true => cluster.default_spread(class).map_or(Constraints::None, Constraints::Default),
        }
    }

    fn all(&self) -> &[SpreadConstraint] {
        match self {
            Constraints::Own(class) => &class.spread,
            Constraints::Default(spread) => &spread.constraints,
            Constraints::None => &[],
        }
    }

    fn hard(&self) -> Vec<SpreadConstraint> {
        self.all().iter().filter(|constraint| constraint.is_hard).cloned().collect()
    }

    fn soft(&self) -> Vec<SpreadConstraint> {
        self.all().iter().filter(|constraint| !constraint.is_hard).cloned().collect()
    }

    /// Whether a node without one of the labels still takes part under the others.
    fn takes_any_key(&self) -> bool {
        matches!(self, Constraints::Default(spread) if spread.is_system)
    }
}

/// The column of a constraint's key. It is followed since the pod is attended to.
fn column<'a>(cluster: &'a Cluster, constraint: &SpreadConstraint) -> Option<&'a KeyColumn> {
    cluster.domains().key(constraint.topology_key)
}

/// One hard constraint at work in a cycle.
#[derive(Clone)]
struct Working {
    constraint: SpreadConstraint,
    /// Matching pods per domain, on nodes that count; a domain no such node is in has none.
    counts: Vec<Option<i64>>,
    /// The fewest pods that any domain has; 0 while there are too few domains.
    fewest: i64,
    /// 1 when the pod counts itself.
    itself: i64,
}

impl Working {
    fn new(cycle: &Cycle<'_>, constraint: SpreadConstraint, counts: Vec<Option<i64>>) -> Working {
        let cluster = cycle.cluster;
        let itself = cluster.matching().contains(&constraint.pods, &cycle.pod.class, &cluster.names);
        let mut working = Working { constraint, counts, fewest: 0, itself: i64::from(itself) };
        working.find_fewest();
        working
    }

    fn find_fewest(&mut self) {
        let present = || self.counts.iter().flatten();
        let domains = i64::try_from(present().count()).unwrap_or(i64::MAX);
        self.fewest = match domains < self.constraint.min_domains {
            true => 0,
            false => present().copied().min().unwrap_or(0),
        };
    }

    fn count(&self, domain: Domain) -> i64 {
        self.counts.get(at(domain)).copied().flatten().unwrap_or(0)
    }

    fn is_met(&self, domain: Domain) -> bool {
        domain != 0 && self.count(domain) + self.itself - self.fewest <= self.constraint.max_skew
    }
}

/// The hard constraints of a cycle.
#[derive(Clone, Default)]
struct Hard {
    constraints: Vec<Working>,
}

impl Hard {
    /// A pod of a simulation comes to a row or leaves it.
    fn simulate(&mut self, class: &Class, cluster: &Cluster, other: &Pod, row: Row, by: i64) {
        let has_all_keys = self
            .constraints
            .iter()
            .all(|working| column(cluster, &working.constraint).is_some_and(|column| column.of(row) != 0));
        if other.is_deleting || !has_all_keys {
            return;
        }
        for working in &mut self.constraints {
            let counts = cluster.matching().contains(&working.constraint.pods, &other.class, &cluster.names)
                && count::counts_here(cluster, class, &working.constraint, row);
            let place = column(cluster, &working.constraint).map_or(0, |column| column.of(row));
            if let Some(Some(count)) = working.counts.get_mut(at(place)).filter(|_| counts) {
                *count += by;
                working.find_fewest();
            }
        }
    }
}

impl PreFilter for PodTopologySpread {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        if Filter::scope(self, &cycle.pod.class) == Scope::Nothing {
            return Ok(Preparation::Skip);
        }
        let hard = Constraints::of(cycle.cluster, &cycle.pod.class).hard();
        if hard.is_empty() {
            return Ok(Preparation::Skip);
        }
        let counts = count::by_domain(cycle, &hard, true, |_| true);
        let working =
            hard.into_iter().zip(counts).map(|(constraint, counts)| Working::new(cycle, constraint, counts));
        let constraints = working.collect();
        cycle.set(Hard { constraints });
        Ok(Preparation::Go)
    }

    fn only_serves(&self, _class: &Class) -> bool {
        true
    }

    fn add_pod(&self, cycle: &mut Cycle<'_>, other: &Arc<Pod>, row: Row) {
        let (pod, cluster) = (cycle.pod, cycle.cluster);
        if let Some(hard) = cycle.get_mut::<Hard>() {
            hard.simulate(&pod.class, cluster, other, row, 1);
        }
    }

    fn remove_pod(&self, cycle: &mut Cycle<'_>, other: &Arc<Pod>, row: Row) {
        let (pod, cluster) = (cycle.pod, cycle.cluster);
        if let Some(hard) = cycle.get_mut::<Hard>() {
            hard.simulate(&pod.class, cluster, other, row, -1);
        }
    }
}

impl Filter for PodTopologySpread {
    /// Of a pod without own constraints only the cluster knows whether it is of a kind.
    fn scope(&self, class: &Class) -> Scope {
        let is_concerned = match class.spread.is_empty() {
            true => self.has_hard_default,
            false => class.spread.iter().any(|constraint| constraint.is_hard),
        };
        if is_concerned { Scope::Cluster } else { Scope::Nothing }
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
            if !working.is_met(place) {
                let facts = Facts::Domain {
                    key: cycle.cluster.names.text(constraint.topology_key).into(),
                    value: column.map_or("", |column| column.name(place)).into(),
                    count: working.count(place),
                    limit: working.fewest + constraint.max_skew - working.itself,
                };
                let reason = Reason::with("node(s) didn't match pod topology spread constraints", facts);
                return Err(Status::new(Code::Unschedulable, NAME, reason));
            }
        }
        Ok(())
    }

    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        let Some(hard) = cycle.get::<Hard>() else { return };
        let columns: Vec<_> =
            hard.constraints.iter().map(|working| column(cycle.cluster, &working.constraint)).collect();
        let is_met = |row: Row| {
            let mut both = hard.constraints.iter().zip(&columns);
            both.all(|(working, column)| working.is_met(column.map_or(0, |column| column.of(row))))
        };
        sieve.retain(|row| match is_met(row) {
            true => Ok(()),
            false => self.check(cycle, &NodeView::of(cycle.cluster, row)),
        });
    }

    fn part(&self, cluster: &Cluster, class: &Arc<Class>) -> FilterPart {
        self.filter_part(cluster, class)
    }
}

#[cfg(test)]
mod tests;
