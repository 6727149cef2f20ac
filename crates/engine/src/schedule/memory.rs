//! What attempts remember of each other, so that most of the work is done once and not for every pod and node.
//!
//! Pods of a class that comes again are placed by how every node stands with that class (`standing`); pods that are
//! like no other and only ask for room are placed among states of nodes (`alike`). Both follow the cluster's
//! log of changed rows. What plugins let us remember is in `framework::parts`; whatever they do not, and
//! sampling and the pick of kube-scheduler's heap, is done by asking about every node. The outcome is the same: the
//! tests beside this file compare.

use std::sync::Arc;

use super::search::{self, Prepared};
use super::{Attempt, Choice, Diagnosis, Failure, Framework, LeftOut, Sampling, Ties};
use crate::cluster::{Cluster, Row};
use crate::framework::{Cycle, Delta, Preparation, Sieve, Status};
use crate::hash::{Quick, QuickMap};
use crate::pod::Pod;

mod alike;
mod arithmetic;
mod assess;
mod standing;

use alike::{Alike, Search};
use arithmetic::Ask;
use assess::Assessor;
use standing::{Outcome, Standing};

/// What attempts of one profile on one cluster remember.
#[derive(Default)]
pub struct Memory {
    standings: Vec<Kept>,
    /// Places in `standings`, by address of the class.
    places: QuickMap<usize, usize>,
    /// Addresses of classes met lately, each at a place of its own or over another.
    met: Vec<usize>,
    alike: Alike,
    attempts: u64,
}

struct Kept {
    standing: Standing,
    /// The last attempt that used it.
    used: u64,
}

/// Room for all standings together. A fraction of what pods and nodes themselves take.
const BYTES_MAX: usize = 24 << 20;
/// Kept whatever they take.
const STANDINGS_MIN: usize = 12;
const MET_MAX: usize = 1024;

impl Memory {
    /// The outcome of an attempt; none when it has to be found by asking about every node.
    pub(super) fn attempt(
        &mut self,
        attempt: &mut Attempt<'_>,
        cluster: &Cluster,
        pod: &Arc<Pod>,
    ) -> Option<Result<Choice, Failure>> {
        let framework = attempt.framework;
        let is_kept = framework.sampling == Sampling::All && framework.ties == Ties::Random;
        if !is_kept || framework.scores.is_empty() || framework.filters.len() > 128 || !pod.node.is_empty() {
            return None;
        }
        let mut cycle = Cycle::new(cluster, pod);
        let skipped = prepare(framework, &mut cycle)?;
        let promised = Promised::of(attempt, cluster, pod)?;
        if let Some(row) = promised.own {
            return Some(Ok(chosen(&mut cycle, row, 1, 1)));
        }
        self.attempts += 1;
        match self.way(framework, &cycle, skipped) {
            Way::Standing(at) => {
                let kept = &mut self.standings[at];
                kept.used = self.attempts;
                by_standing(&mut kept.standing, attempt, &mut cycle, &promised)
            }
            Way::New(assessor) => self.by_new_standing(*assessor, skipped, attempt, &mut cycle, &promised),
            Way::Alike(mut assessor, ask) => {
                match by_states(&mut self.alike, &mut assessor, ask, attempt, &mut cycle, &promised) {
                    None => self.by_new_standing(*assessor, skipped, attempt, &mut cycle, &promised),
                    outcome => outcome,
                }
            }
            Way::Plain => None,
        }
    }

    fn by_new_standing(
        &mut self,
        assessor: Assessor,
        skipped: u128,
        attempt: &mut Attempt<'_>,
        cycle: &mut Cycle<'_>,
        promised: &Promised,
    ) -> Option<Result<Choice, Failure>> {
        let mut standing = Standing::new(&cycle.pod.class, assessor, skipped);
        let outcome = by_standing(&mut standing, attempt, cycle, promised);
        self.keep(standing, cycle.cluster.columns.rows());
        outcome
    }

    /// How to go about an attempt.
    fn way(&mut self, framework: &Framework, cycle: &Cycle<'_>, skipped: u128) -> Way {
        let (cluster, class) = (cycle.cluster, &cycle.pod.class);
        let address = Arc::as_ptr(class).addr();
        if let Some(at) = self.places.get(&address).copied() {
            let standing = &self.standings[at].standing;
            if standing.skipped == skipped && standing.is_current(cluster) {
                return Way::Standing(at);
            }
            let Some(assessor) = Assessor::new(framework, cluster, class, skipped) else {
                return Way::Plain;
            };
            self.standings[at].standing = Standing::new(class, assessor, skipped);
            return Way::Standing(at);
        }
        let is_known = self.meet(address);
        let Some(assessor) = Assessor::new(framework, cluster, class, skipped).map(Box::new) else {
            return Way::Plain;
        };
        let ask = assessor.fused(cluster).filter(|_| !is_known).and_then(|fused| alike::ask(class, fused));
        match ask {
            Some(ask) => Way::Alike(assessor, ask),
            None => Way::New(assessor),
        }
    }

    /// Whether a class was met before, lately.
    fn meet(&mut self, address: usize) -> bool {
        use std::hash::{BuildHasher, BuildHasherDefault};
        self.met.resize(MET_MAX, 0);
        let hash = BuildHasherDefault::<Quick>::default().hash_one(address);
        let at = usize::try_from(hash).unwrap_or(0) % MET_MAX;
        std::mem::replace(&mut self.met[at], address) == address
    }

    /// Keeps a standing, in place of the one that was not used for longest. While all are in use it is let go: better
    /// some classes without than all of them made again and again.
    fn keep(&mut self, standing: Standing, rows: usize) {
        let count_max = (BYTES_MAX / (Standing::ROW_BYTES * rows.max(1))).max(STANDINGS_MIN);
        let address = Arc::as_ptr(&standing.class).addr();
        let kept = Kept { standing, used: self.attempts };
        if self.standings.len() < count_max {
            self.places.insert(address, self.standings.len());
            self.standings.push(kept);
            return;
        }
        let oldest = self.standings.iter().enumerate().min_by_key(|(_, kept)| kept.used);
        let Some((at, old)) = oldest.map(|(at, kept)| (at, kept.used)) else { return };
        let idle = self.attempts - old;
        if idle > u64::try_from(count_max).unwrap_or(u64::MAX).saturating_mul(2) {
            self.places.remove(&Arc::as_ptr(&self.standings[at].standing.class).addr());
            self.places.insert(address, at);
            self.standings[at] = kept;
        }
    }
}

/// How an attempt is made.
enum Way {
    /// By a standing that is kept.
    Standing(usize),
    /// By a standing that has to be made.
    New(Box<Assessor>),
    /// Among states.
    Alike(Box<Assessor>, Ask),
    Plain,
}

/// Asks the plugins that look at the pod first, as far as they do more than serve filters. Returns the filters that
/// have nothing to say, by place; none when the pod is refused or pinned.
fn prepare(framework: &Framework, cycle: &mut Cycle<'_>) -> Option<u128> {
    let mut skipped = 0;
    for hooks in &framework.pre_filters {
        let Some(plugin) = &hooks.pre_filter else { continue };
        if plugin.only_serves_filter(&cycle.pod.class) {
            continue;
        }
        match plugin.prepare(cycle) {
            Ok(Preparation::Go) => {}
            Ok(Preparation::Skip) => {
                let at = framework.filters.iter().position(|filter| filter.name == hooks.name);
                skipped |= at.map_or(0, |at| 1 << at);
            }
            Ok(Preparation::Only(_)) | Err(_) => return None,
        }
    }
    Some(skipped)
}

/// What promises to this pod and to others mean for it.
#[derive(Default)]
struct Promised {
    /// The node it was promised, when that takes it.
    own: Option<Row>,
    /// Nodes that do not take it beside those who were promised them.
    refused: Vec<(Row, Status)>,
}

impl Promised {
    fn of(attempt: &Attempt<'_>, cluster: &Cluster, pod: &Arc<Pod>) -> Option<Promised> {
        if attempt.nominated.is_empty() && attempt.nominated_row.is_none() {
            return Some(Promised::default());
        }
        let (cycle, prepared) = fully_prepared(attempt.framework, cluster, pod)?;
        if let Some(found) = search::nominated_first(attempt, &cycle, &prepared) {
            return Some(Promised { own: found.feasible.first().copied(), refused: Vec::new() });
        }
        let mut refused = Vec::new();
        for row in attempt.nominated.rows() {
            let is_meant = cluster.columns.is_real.get(row.index()) == Some(&true)
                && attempt.nominated.before(pod, row).next().is_some();
            if !is_meant {
                continue;
            }
            let none = Delta::default();
            let verdict =
                attempt.framework.check_beside_nominated(attempt.nominated, &prepared, &cycle, row, &none);
            match verdict {
                Ok(()) => {}
                Err(status) if status.code.is_rejected() => refused.push((row, status)),
                Err(_) => return None,
            }
        }
        Some(Promised { own: None, refused })
    }
}

/// A cycle in which every plugin has had its say; none when the pod is refused whatever the node.
fn fully_prepared<'a>(
    framework: &Framework,
    cluster: &'a Cluster,
    pod: &'a Arc<Pod>,
) -> Option<(Cycle<'a>, Prepared)> {
    let (mut cycle, mut prepared) = (Cycle::new(cluster, pod), Prepared::default());
    search::prepare(framework, &mut cycle, &mut prepared).ok()?;
    Some((cycle, prepared))
}

/// None when the attempt has to be made the plain way.
fn by_standing(
    standing: &mut Standing,
    attempt: &mut Attempt<'_>,
    cycle: &mut Cycle<'_>,
    promised: &Promised,
) -> Option<Result<Choice, Failure>> {
    standing.catch_up(attempt.framework, cycle);
    for (row, status) in &promised.refused {
        standing.refuse_once(*row, status.clone());
    }
    match standing.choose(cycle.cluster, attempt.random) {
        Outcome::Unknown => None,
        Outcome::Chosen { row, feasible } => Some(Ok(chosen(cycle, row, feasible, attempt.order.len()))),
        Outcome::Nobody => {
            let (cycle, prepared) = fully_prepared(attempt.framework, cycle.cluster, cycle.pod)?;
            let sieve = standing.refusals(attempt.framework, &cycle, attempt.order);
            Some(Err(failed(attempt, &cycle, &prepared, sieve)))
        }
    }
}

/// None when states say too little.
fn by_states(
    alike: &mut Alike,
    assessor: &mut Assessor,
    ask: Ask,
    attempt: &mut Attempt<'_>,
    cycle: &mut Cycle<'_>,
    promised: &Promised,
) -> Option<Result<Choice, Failure>> {
    alike.catch_up(cycle.cluster);
    promised.refused.iter().for_each(|(row, _)| alike.set_aside(*row));
    let mut search = Search::new(attempt.framework, cycle, assessor, ask);
    match search.choose(alike, attempt.random) {
        Outcome::Unknown => None,
        Outcome::Chosen { row, feasible } => Some(Ok(chosen(cycle, row, feasible, attempt.order.len()))),
        Outcome::Nobody => {
            let mut sieve = search.refusals(alike);
            promised.refused.iter().for_each(|(row, status)| sieve.judge(*row, Err(status.clone())));
            let (cycle, prepared) = fully_prepared(attempt.framework, cycle.cluster, cycle.pod)?;
            Some(Err(failed(attempt, &cycle, &prepared, sieve)))
        }
    }
}

fn chosen(cycle: &mut Cycle<'_>, row: Row, feasible_count: usize, evaluated: usize) -> Choice {
    let slots = std::mem::take(&mut cycle.slots);
    Choice { row, feasible_count, feasible: Vec::new(), evaluated, slots }
}

fn failed(attempt: &mut Attempt<'_>, cycle: &Cycle<'_>, prepared: &Prepared, sieve: Sieve) -> Failure {
    let diagnosis = Diagnosis::of_nodes(sieve, LeftOut::default(), attempt.order.len());
    attempt.help(cycle, prepared, diagnosis)
}

#[cfg(test)]
mod tests;
