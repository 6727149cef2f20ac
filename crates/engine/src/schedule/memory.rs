//! What attempts remember of each other, so that most of the work is done once and not for every pod and node.
//!
//! Pods of a class that comes again are placed by how every node stands with that class (`standing`); pods that are
//! like no other and only ask for room are placed among states of nodes (`alike`). Both follow the cluster's
//! log of changed rows. What plugins let us remember is in `framework::parts`; whatever they do not, and
//! sampling and the pick of kube-scheduler's heap, is done by asking about every node. The outcome is the same: the
//! tests beside this file compare.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::search::{self, Prepared};
use super::{Attempt, Choice, Diagnosis, Failure, Framework, LeftOut, Nominated};
use crate::cluster::{Cluster, Row};
use crate::framework::{Cycle, Delta, Preparation, Sieve, Status};
use crate::hash::QuickMap;
use crate::pod::{Class, Pod};

mod alike;
mod arithmetic;
mod assess;
mod shelves;
mod standing;

use alike::{Alike, Search};
use arithmetic::Ask;
use assess::Assessor;
use standing::{Look, Outcome, Standing};

/// What attempts of one profile on one cluster remember.
#[derive(Default)]
pub struct Memory {
    standings: Vec<Kept>,
    /// Places in `standings`, by address of the class.
    places: QuickMap<usize, usize>,
    /// Classes met lately that have no standing, in the order they were met; and by address.
    met: VecDeque<Weak<Class>>,
    met_at: QuickMap<usize, ()>,
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
/// Pods of one kind come close together; a class that comes again later is met anew.
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
        if !attempt.is_unordered()
            || framework.scores.is_empty()
            || framework.filters.len() > 128
            || !pod.node.is_empty()
        {
            return None;
        }
        let mut plugins = framework.pre_filters.iter().filter_map(|hooks| hooks.pre_filter.as_ref());
        if !plugins.all(|plugin| plugin.speaks_of_class(cluster, pod)) {
            return None;
        }
        let mut cycle = Cycle::new(cluster, pod);
        let skipped = prepare(framework, &mut cycle)?;
        let mut promises = Promises::new(attempt, cluster, pod);
        if attempt.nominated_row.is_some() {
            let (cycle, prepared) = promises.prepared().ok()?;
            let found = search::nominated_first(attempt, cycle, prepared);
            if let Some(row) = found.and_then(|found| found.feasible.first().copied()) {
                return Some(Ok(Choice {
                    row,
                    feasible_count: 1,
                    feasible: Vec::new(),
                    evaluated: 1,
                    slots: cycle.slots.clone(),
                    refused: Sieve::default(),
                }));
            }
        }
        if promises.is_anything_preferred() {
            return None;
        }
        self.attempts += 1;
        match self.way(framework, &cycle, &promises, skipped) {
            Way::Standing(at) => {
                let kept = &mut self.standings[at];
                kept.used = self.attempts;
                let states = kept.standing.is_new().then(|| self.alike.caught_up(cluster));
                by_standing(&mut kept.standing, attempt, &mut cycle, &mut promises, states)
            }
            Way::New(assessor) => {
                self.by_new_standing(*assessor, skipped, attempt, &mut cycle, &mut promises)
            }
            Way::Alike(mut assessor, ask) => {
                match by_states(&mut self.alike, &mut assessor, ask, attempt, &mut cycle, &mut promises) {
                    None => self.by_new_standing(*assessor, skipped, attempt, &mut cycle, &mut promises),
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
        promises: &mut Promises<'_>,
    ) -> Option<Result<Choice, Failure>> {
        let mut standing = Standing::new(&cycle.pod.class, assessor, skipped, promises.are_restored());
        let states = Some(self.alike.caught_up(cycle.cluster));
        let outcome = by_standing(&mut standing, attempt, cycle, promises, states);
        self.keep(standing, cycle.cluster.columns.rows());
        outcome
    }

    /// How to go about an attempt.
    fn way(
        &mut self,
        framework: &Framework,
        cycle: &Cycle<'_>,
        promises: &Promises<'_>,
        skipped: u128,
    ) -> Way {
        let (cluster, class) = (cycle.cluster, &cycle.pod.class);
        let address = Arc::as_ptr(class).addr();
        if let Some(at) = self.places.get(&address).copied() {
            let standing = &self.standings[at].standing;
            let is_alike = standing.skipped == skipped && standing.is_restored == promises.are_restored();
            if is_alike && standing.is_current(cluster, promises) {
                return Way::Standing(at);
            }
            let Some(assessor) = Assessor::new(framework, cluster, class, skipped) else {
                return Way::Plain;
            };
            let is_restored = promises.are_restored();
            if is_restored && assessor.are_judging(cluster) {
                return Way::Plain;
            }
            self.standings[at].standing = Standing::new(class, assessor, skipped, is_restored);
            return Way::Standing(at);
        }
        let is_known = self.meet(class);
        let Some(assessor) = Assessor::new(framework, cluster, class, skipped).map(Box::new) else {
            return Way::Plain;
        };
        let is_restored = promises.are_restored();
        // What such a pod sees of a node is worked out for the row alone.
        if is_restored && assessor.are_judging(cluster) {
            return Way::Plain;
        }
        match assessor.ask(cluster).filter(|_| !is_known && !is_restored) {
            Some(ask) => Way::Alike(assessor, ask),
            None => Way::New(assessor),
        }
    }

    /// Whether a class was met before, lately. As long as it is remembered nothing else can have its address.
    fn meet(&mut self, class: &Arc<Class>) -> bool {
        if self.met_at.insert(Arc::as_ptr(class).addr(), ()).is_some() {
            return true;
        }
        self.met.push_back(Arc::downgrade(class));
        if self.met.len() > MET_MAX
            && let Some(old) = self.met.pop_front()
        {
            self.met_at.remove(&old.as_ptr().addr());
        }
        false
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
        if plugin.only_serves(&cycle.pod.class) {
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
struct Promises<'a> {
    framework: &'a Framework,
    cluster: &'a Cluster,
    pod: &'a Arc<Pod>,
    nominated: &'a Nominated,
    /// The node that was promised to the pod.
    own_row: Option<Row>,
    /// Made when it is needed first.
    prepared: Option<Box<(Cycle<'a>, Prepared)>>,
}

impl<'a> Promises<'a> {
    fn new(attempt: &Attempt<'a>, cluster: &'a Cluster, pod: &'a Arc<Pod>) -> Promises<'a> {
        let (framework, nominated) = (attempt.framework, attempt.nominated);
        Promises { framework, cluster, pod, nominated, own_row: nominated.row_of(&pod.uid), prepared: None }
    }

    /// Whether a plugin would rather have some nodes than others, and so wants them tried first.
    fn is_anything_preferred(&mut self) -> bool {
        let plugins = || self.framework.pre_filters.iter().filter_map(|hooks| hooks.prefer.as_ref());
        if plugins().next().is_none() {
            return false;
        }
        let framework = self.framework;
        let mut plugins = framework.pre_filters.iter().filter_map(|hooks| hooks.prefer.as_ref());
        self.prepared().is_ok_and(|(cycle, _)| plugins.any(|plugin| !plugin.prefer(cycle).is_empty()))
    }

    /// Whether anybody was promised the row.
    fn matter_to(&self, row: Row) -> bool {
        !self.nominated.is_empty() && self.nominated.is_promised(row)
    }

    /// Whether others have been promised the row before.
    fn are_before(&self, row: Row) -> bool {
        !self.nominated.is_empty() && self.nominated.before(self.pod, row).next().is_some()
    }

    /// All filters on a row beside those who were promised it.
    fn check(&mut self, row: Row) -> Result<(), Status> {
        let framework = self.framework;
        let (cycle, _) = self.prepared()?;
        let seen = framework.seen(cycle, row);
        self.check_seen(row, &seen)
    }

    /// The same on a row that looks like this to the pod.
    fn check_seen(&mut self, row: Row, seen: &Delta) -> Result<(), Status> {
        let (framework, nominated) = (self.framework, self.nominated);
        let (cycle, prepared) = self.prepared()?;
        framework.check_beside_nominated(nominated, prepared, cycle, row, seen)
    }

    /// Whether the pod looks through others on some nodes.
    fn are_restored(&self) -> bool {
        self.framework.restores.iter().any(|plugin| plugin.concerns(self.cluster, self.pod))
    }

    /// Every row that does not take the pod beside those who were promised it; none when something went wrong.
    fn refusals(&mut self) -> Option<Vec<(Row, Status)>> {
        let mut refused = Vec::new();
        for row in self.nominated.rows() {
            let is_real = self.cluster.columns.is_real.get(row.index()) == Some(&true);
            if !is_real || !self.are_before(row) {
                continue;
            }
            if let Err(status) = self.check(row) {
                status.code.is_rejected().then(|| refused.push((row, status)))?;
            }
        }
        Some(refused)
    }

    /// A cycle in which every plugin has had its say.
    fn prepared(&mut self) -> Result<&(Cycle<'a>, Prepared), Status> {
        if self.prepared.is_none() {
            let (mut cycle, mut prepared) = (Cycle::new(self.cluster, self.pod), Prepared::default());
            match search::prepare(self.framework, &mut cycle, &mut prepared) {
                Ok(()) => self.prepared = Some(Box::new((cycle, prepared))),
                Err(search::Refused::Pod(status) | search::Refused::Error(status)) => return Err(status),
            }
        }
        self.prepared.as_deref().ok_or_else(Status::skip)
    }
}

/// None when the attempt has to be made the plain way.
fn by_standing(
    standing: &mut Standing,
    attempt: &mut Attempt<'_>,
    cycle: &mut Cycle<'_>,
    promises: &mut Promises<'_>,
    states: Option<&Alike>,
) -> Option<Result<Choice, Failure>> {
    let framework = attempt.framework;
    standing.catch_up(&mut Look { framework, cycle, promises, states });
    match standing.choose(cycle.cluster, attempt.random) {
        Outcome::Unknown => None,
        Outcome::Chosen { row, feasible } => Some(Ok(chosen(cycle, row, feasible, attempt.order.len()))),
        Outcome::Nobody => {
            let (cycle, prepared) = promises.prepared().ok()?;
            let sieve = standing.refusals(attempt.framework, cycle, attempt.order);
            Some(Err(failed(attempt, cycle, prepared, sieve)))
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
    promises: &mut Promises<'_>,
) -> Option<Result<Choice, Failure>> {
    alike.caught_up(cycle.cluster);
    let refused = promises.refusals()?;
    refused.iter().for_each(|(row, _)| alike.set_aside(*row));
    let mut search = Search::new(attempt.framework, cycle, assessor, ask);
    match search.choose(alike, attempt.random) {
        Outcome::Unknown => None,
        Outcome::Chosen { row, feasible } => Some(Ok(chosen(cycle, row, feasible, attempt.order.len()))),
        Outcome::Nobody => {
            let mut sieve = search.refusals(alike);
            refused.into_iter().for_each(|(row, status)| sieve.judge(row, Err(status)));
            let (cycle, prepared) = promises.prepared().ok()?;
            Some(Err(failed(attempt, cycle, prepared, sieve)))
        }
    }
}

fn chosen(cycle: &mut Cycle<'_>, row: Row, feasible_count: usize, evaluated: usize) -> Choice {
    let slots = std::mem::take(&mut cycle.slots);
    Choice { row, feasible_count, feasible: Vec::new(), evaluated, slots, refused: Sieve::default() }
}

fn failed(attempt: &mut Attempt<'_>, cycle: &Cycle<'_>, prepared: &Prepared, sieve: Sieve) -> Failure {
    let diagnosis = Diagnosis::of_nodes(sieve, LeftOut::default(), attempt.order.len());
    attempt.help(cycle, prepared, diagnosis)
}

#[cfg(test)]
mod tests;
