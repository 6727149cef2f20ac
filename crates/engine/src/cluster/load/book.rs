//! The sums of one plugin: what each node uses, and what the pods add that are not seen in it yet. Spec: B3 to B6c.
//!
//! Sums change with every pod that comes or goes, and are made anew with every measurement. What a pod adds follows from
//! the measurement, its class and its times alone, so that taking it away again takes away the same.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use koord_api::annotation::load_aware::UsageThresholds;
use koord_api::annotation::node::RawAllocatable;
use koord_api::annotation::read;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::resource::{ResourceId, ResourceTable};

use super::super::{Node, Row};
use super::estimate::PodLoad;
use super::metric::{Known, Metric};
use super::settings::{Levels, Limits, Settings};
use super::sheet::{Line, Sheet, State};
use crate::number::{nearest, truncated};
use crate::pod::Pod;
use crate::time::Time;

/// What one plugin keeps of all nodes.
#[derive(Debug)]
pub struct Book {
    settings: Arc<Settings>,
    /// Among all books: the place of its estimates in a class.
    number: usize,
    ids: Box<[ResourceId]>,
    rows: Vec<NodeLoad>,
    /// The same in short.
    sheet: Sheet,
    /// Whether nodes are told apart by score at all.
    is_scoring: bool,
    /// When measurements run out, never late; one that is not a row's own any more has no meaning.
    timers: BinaryHeap<Reverse<(Time, Row)>>,
}

/// One node.
#[derive(Debug, Default)]
struct NodeLoad {
    pods: Vec<Assigned>,
    metric: Option<Box<Metric>>,
    /// The metric tells of the node itself.
    is_measured: bool,
    /// Limits of its own.
    limits: Option<Box<Limits>>,
    /// One for each resource.
    usage: Box<[Usage]>,
    /// Pods that the measurement does not show in full.
    in_flight: usize,
    prod_in_flight: usize,
    filters_by: Source,
    scores_by: Source,
    is_expired: bool,
    timer: Option<Time>,
}

/// A pod on the node, and since when.
#[derive(Clone, Debug)]
struct Assigned {
    pod: Arc<Pod>,
    since: Time,
}

/// One resource of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    allocatable: i64,
    /// As measured.
    filter_base: i64,
    score_base: i64,
    prod_usage: i64,
    /// What pods in flight are expected to add.
    node_delta: i64,
    prod_delta: i64,
    /// What all pods are expected to use.
    node_estimated: i64,
}

/// What a node's use is taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Measured, and estimates of pods in flight.
    #[default]
    Measured,
    /// Estimates of all pods: what was asked for is not measured.
    Estimated,
    /// Of prod pods alone.
    Prod,
}

/// Why a node does not take a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its measurements are too old.
    Expired {
        measured: Option<Time>,
    },
    Over(Excess),
}

/// A node that would be too busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The place of the resource among those of the settings.
    pub resource: usize,
    pub is_aggregated: bool,
    pub source: Source,
    /// Percent.
    pub threshold: i64,
    /// Percent, with the pod.
    pub expected: i64,
    pub measured: Option<Time>,
    /// Amounts: as measured, of pods in flight, of the pod itself, and all there is.
    pub base: i64,
    pub in_flight: i64,
    pub incoming: i64,
    pub allocatable: i64,
    /// How many pods are in flight.
    pub in_flight_pods: usize,
}

impl Refusal {
    /// Refusals of one cause read alike.
    pub fn cause(&self) -> u64 {
        match self {
            Refusal::Expired { .. } => 0,
            Refusal::Over(excess) => {
                let resource = u64::try_from(excess.resource).unwrap_or(u64::MAX >> 2);
                1 + 2 * resource + u64::from(excess.is_aggregated)
            }
        }
    }
}

/// What is kept of one node, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The earliest first.
    pub pods: Vec<(Time, PodName)>,
    /// None without a measurement.
    pub sums: Option<AccountSums>,
}

/// `namespace/name` and uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

/// One amount for each resource of the settings, and the pods behind them, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountSums {
    pub prod_usage: Vec<i64>,
    pub node_delta: Vec<i64>,
    pub prod_delta: Vec<i64>,
    pub node_estimated: Vec<i64>,
    pub node_delta_pods: Vec<String>,
    pub prod_delta_pods: Vec<String>,
    pub node_estimated_pods: Vec<String>,
}

/// What one pod adds to its node.
struct Share<'a> {
    estimate: &'a [i64],
    /// What it was seen to use, and the same if it was seen as prod.
    used: Option<&'a [i64]>,
    prod_used: Option<&'a [i64]>,
    is_in_flight: bool,
    is_prod_in_flight: bool,
}

impl<'a> Share<'a> {
    /// None for pods that were read before anybody wanted to know.
    fn of(metric: &'a Metric, assigned: &'a Assigned, number: usize) -> Option<Share<'a>> {
        let pod = &assigned.pod;
        let load = pod.class.load.as_deref()?;
        let estimate = load.in_book(number)?;
        let seconds = |from: Time, seconds: i64| {
            Time::from_nanos(from.nanos().saturating_add(seconds.saturating_mul(1_000_000_000)))
        };
        let initialized = pod.initialized.map(|at| Time::from_seconds(at.get()));
        let deadline = match (estimate.after_initialized, initialized) {
            (Some(lasting), Some(at)) => Some(seconds(at, lasting)),
            _ => estimate.after_scheduled.map(|lasting| seconds(assigned.since, lasting)),
        };
        let is_too_early = metric.is_too_early(assigned.since, deadline);
        let found = metric.pod(&pod.key.namespace, &pod.key.name);
        let used = found.map(|found| &*found.usage);
        let prod_used = found.filter(|found| found.is_prod && load.is_prod()).map(|found| &*found.usage);
        let is_estimated = estimate.amounts.iter().any(|amount| *amount != 0);
        Some(Share {
            estimate: &estimate.amounts,
            used,
            prod_used,
            is_in_flight: is_estimated && (used.is_none() || is_too_early),
            // Use that was reported under another class is not in the sum for prod.
            is_prod_in_flight: is_estimated && load.is_prod() && (prod_used.is_none() || is_too_early),
        })
    }

    /// How much more than it was seen to use it is expected to use.
    fn delta(&self, resource: usize, used: Option<&[i64]>) -> i64 {
        (self.estimate[resource] - used.map_or(0, |used| used[resource])).max(0)
    }

    fn has_delta(&self, used: Option<&[i64]>) -> bool {
        (0..self.estimate.len()).any(|resource| self.delta(resource, used) > 0)
    }

    fn counts_as_in_flight(&self) -> bool {
        self.is_in_flight && self.has_delta(self.used)
    }

    fn counts_as_prod_in_flight(&self) -> bool {
        self.is_prod_in_flight && self.has_delta(self.prod_used)
    }
}

impl NodeLoad {
    fn new(resources: usize) -> NodeLoad {
        NodeLoad { usage: vec![Usage::default(); resources].into(), ..NodeLoad::default() }
    }

    /// Adds what a pod adds `times` over: 1, or -1 to take it away.
    fn count(&mut self, assigned: &Assigned, number: usize, times: i64) {
        let Some(metric) = self.metric.as_deref() else { return };
        let Some(share) = Share::of(metric, assigned, number) else { return };
        for (resource, usage) in self.usage.iter_mut().enumerate() {
            usage.prod_usage += times * share.prod_used.map_or(0, |used| used[resource]);
            usage.node_estimated += times * share.estimate[resource];
            if share.is_in_flight {
                usage.node_delta += times * share.delta(resource, share.used);
            }
            if share.is_prod_in_flight {
                usage.prod_delta += times * share.delta(resource, share.prod_used);
            }
        }
        let shift = |count: &mut usize, is_counted: bool| match (is_counted, times > 0) {
            (true, true) => *count += 1,
            (true, false) => *count -= 1,
            (false, _) => {}
        };
        shift(&mut self.in_flight, share.counts_as_in_flight());
        shift(&mut self.prod_in_flight, share.counts_as_prod_in_flight());
    }

    fn limits<'a>(&'a self, settings: &'a Settings) -> &'a Limits {
        self.limits.as_deref().unwrap_or(&settings.limits)
    }

    /// Makes all sums anew.
    fn rebuild(&mut self, settings: &Settings, number: usize) {
        let limits = self.limits.as_deref().unwrap_or(&settings.limits);
        let metric = self.metric.as_deref();
        let filter_window = limits.aggregated.as_ref().map(|(_, window)| window);
        let filter_base = metric.and_then(|metric| metric.usage(filter_window));
        let score_base = metric.and_then(|metric| metric.usage(settings.score_window.as_ref()));
        let source = |base: Option<&[i64]>| match base {
            Some(_) => Source::Measured,
            None => Source::Estimated,
        };
        (self.filters_by, self.scores_by) = (source(filter_base), source(score_base));
        let system = metric.filter(|_| settings.prod_includes_system).map(|metric| &*metric.system_usage);
        for (resource, usage) in self.usage.iter_mut().enumerate() {
            *usage = Usage {
                allocatable: usage.allocatable,
                filter_base: filter_base.map_or(0, |base| base[resource]),
                score_base: score_base.map_or(0, |base| base[resource]),
                prod_usage: system.map_or(0, |used| used[resource]),
                ..Usage::default()
            };
        }
        (self.in_flight, self.prod_in_flight) = (0, 0);
        let pods = std::mem::take(&mut self.pods);
        pods.iter().for_each(|assigned| self.count(assigned, number, 1));
        self.pods = pods;
    }

    fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.metric.is_none()
    }
}

impl Usage {
    /// What counts as measured, and what is in flight beside it.
    fn parts(&self, source: Source, base: i64) -> (i64, i64) {
        match source {
            Source::Measured => (base, self.node_delta),
            Source::Estimated => (0, self.node_estimated),
            Source::Prod => (self.prod_usage, self.prod_delta),
        }
    }
}

impl Book {
    pub(super) fn new(
        settings: &Arc<Settings>,
        number: usize,
        rows: usize,
        table: &mut ResourceTable,
    ) -> Book {
        let ids = settings.names.iter().map(|name| table.intern(name)).collect();
        let resources = settings.names.len();
        Book {
            number,
            ids,
            rows: (0..rows).map(|_| NodeLoad::new(resources)).collect(),
            sheet: Sheet::new(resources, rows),
            is_scoring: settings.scores(),
            settings: settings.clone(),
            timers: BinaryHeap::new(),
        }
    }

    pub(super) fn is_of(&self, settings: &Arc<Settings>) -> bool {
        Arc::ptr_eq(&self.settings, settings)
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Of the book among all books.
    pub fn number(&self) -> usize {
        self.number
    }

    pub(in super::super) fn grow(&mut self) {
        self.rows.push(NodeLoad::new(self.settings.names.len()));
        self.sheet.grow();
    }

    /// Brings the sheet up to date with a row that has changed.
    fn refresh(&mut self, row: Row) {
        let load = &self.rows[row.index()];
        let state = State {
            has_metric: load.metric.is_some(),
            is_measured: load.is_measured,
            is_expired: load.is_expired,
            has_own_limits: load.limits.is_some(),
        };
        let lines = load.usage.iter().map(|usage| {
            let sum = |source: Source, base: i64| {
                let (base, in_flight) = usage.parts(source, base);
                base + in_flight
            };
            Line {
                allocatable: usage.allocatable,
                filtered: sum(load.filters_by, usage.filter_base),
                scored: sum(load.scores_by, usage.score_base),
                prod: sum(Source::Prod, 0),
            }
        });
        self.sheet.set(row, state, lines);
    }

    pub(super) fn has_metric(&self, row: Row) -> bool {
        self.rows[row.index()].metric.is_some()
    }

    /// What a node object says.
    pub(in super::super) fn set_node(&mut self, row: Row, node: &Node) {
        let known = Known { names: &self.settings.names, ids: &self.ids };
        let load = &mut self.rows[row.index()];
        // What is amplified for scheduling is not more for the kernel.
        let raw = read::<RawAllocatable>(&node.annotations).ok().flatten();
        let own = raw.as_ref().map(|raw| known.amounts(&raw.0));
        for (at, usage) in load.usage.iter_mut().enumerate() {
            let is_own = raw.as_ref().is_some_and(|raw| raw.0.contains_key(&*known.names[at]));
            let overridden = own.as_ref().filter(|_| is_own).map(|own| own[at]);
            usage.allocatable = overridden.unwrap_or_else(|| node.allocatable.get(known.ids[at]));
        }
        let own = read::<UsageThresholds>(&node.annotations).ok().flatten();
        let limits = own.and_then(|own| self.settings.limits_with(own)).map(Box::new);
        if limits != load.limits {
            load.limits = limits;
            load.rebuild(&self.settings, self.number);
        }
        self.refresh(row);
    }

    /// The node object is gone; pods and measurements stay.
    pub(in super::super) fn clear_node(&mut self, row: Row) {
        let load = &mut self.rows[row.index()];
        load.usage.iter_mut().for_each(|usage| usage.allocatable = 0);
        if load.limits.take().is_some() {
            load.rebuild(&self.settings, self.number);
        }
        self.refresh(row);
    }

    /// A Reservation's own pod uses nothing: its owners do, when they come.
    pub(in super::super) fn add_pod(&mut self, row: Row, pod: &Arc<Pod>, since: Time) {
        if pod.reserves.is_some() {
            return;
        }
        let load = &mut self.rows[row.index()];
        let assigned = Assigned { pod: pod.clone(), since };
        load.count(&assigned, self.number, 1);
        load.pods.push(assigned);
        self.refresh(row);
    }

    pub(in super::super) fn remove_pod(&mut self, row: Row, uid: &str) {
        let load = &mut self.rows[row.index()];
        if let Some(at) = load.pods.iter().position(|known| *known.pod.uid == *uid) {
            let assigned = load.pods.swap_remove(at);
            load.count(&assigned, self.number, -1);
            self.refresh(row);
        }
    }

    pub(super) fn set_metric(&mut self, row: Row, object: &NodeMetric, now: Time) {
        let metric = Metric::read(object, Known { names: &self.settings.names, ids: &self.ids });
        let runs_out = metric.updated.map(|updated| self.runs_out(updated));
        let load = &mut self.rows[row.index()];
        load.is_measured = metric.has_node;
        load.metric = Some(Box::new(metric));
        load.is_expired = runs_out.is_none_or(|at| at <= now);
        load.rebuild(&self.settings, self.number);
        // A later end needs no timer of its own: the earlier one is set again when it rings.
        let is_covered = |at: &Time| load.is_expired || load.timer.is_some_and(|set| set <= *at);
        if let Some(at) = runs_out.filter(|at| !is_covered(at)) {
            load.timer = Some(at);
            self.timers.push(Reverse((at, row)));
        }
        self.refresh(row);
    }

    pub(super) fn remove_metric(&mut self, row: Row) {
        let load = &mut self.rows[row.index()];
        (load.metric, load.is_measured) = (None, false);
        load.is_expired = false;
        load.rebuild(&self.settings, self.number);
        self.refresh(row);
    }

    fn runs_out(&self, updated: Time) -> Time {
        Time::from_nanos(updated.nanos().saturating_add(self.settings.expiration))
    }

    /// A row whose measurement has become too old by now, each once.
    pub(super) fn next_run_out(&mut self, now: Time) -> Option<Row> {
        loop {
            let Reverse((at, row)) = *self.timers.peek()?;
            if at > now {
                return None;
            }
            self.timers.pop();
            let updated = self.rows[row.index()].metric.as_ref().and_then(|metric| metric.updated);
            let runs_out = updated.map(|updated| self.runs_out(updated));
            let load = &mut self.rows[row.index()];
            if load.timer != Some(at) {
                continue;
            }
            load.timer = None;
            match runs_out {
                // Measured again since.
                Some(later) if later > now => {
                    load.timer = Some(later);
                    self.timers.push(Reverse((later, row)));
                }
                Some(_) if !load.is_expired => {
                    load.is_expired = true;
                    self.refresh(row);
                    return Some(row);
                }
                _ => {}
            }
        }
    }

    /// Whether a node takes pods once its measurements are too old, however busy it was.
    pub(super) fn opens_when_run_out(&self) -> bool {
        self.settings.filters_expired && self.settings.lets_expired_pass
    }

    pub(super) fn next_timer(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Whether a node plainly takes a pod, seen at a glance; where not, `refusal` tells.
    fn is_at_ease(&self, pod: &PodLoad, row: Row) -> bool {
        let Some(state) = self.sheet.state(row) else { return true };
        let limits = &self.settings.limits;
        let is_prod = pod.is_prod() && limits.prod.is_on;
        let levels = match &limits.aggregated {
            _ if is_prod => &limits.prod,
            Some((levels, _)) => levels,
            None => &limits.plain,
        };
        if !state.has_metric || (!levels.is_on && !state.has_own_limits) {
            return true;
        }
        if state.has_own_limits || state.is_expired || !state.is_measured {
            return false;
        }
        let estimate = pod.amounts(self.number);
        if estimate.len() != levels.percents.len() {
            return false;
        }
        // Most nodes are well below, and that is seen without a quotient.
        self.sheet.lines(row).iter().zip(&levels.percents).zip(estimate).all(|((line, level), incoming)| {
            let used = if is_prod { line.prod } else { line.filtered } + incoming;
            let parts = used.checked_mul(100).zip(level.checked_mul(line.allocatable));
            *level == 0
                || line.allocatable == 0
                || line.allocatable > 0 && parts.is_some_and(|(used, level)| used <= level)
        })
    }

    /// Why the node does not take a pod, if it does not. Spec: B4.
    pub fn refusal(&self, pod: &PodLoad, row: Row) -> Option<Refusal> {
        if pod.is_daemon || self.is_at_ease(pod, row) {
            return None;
        }
        let load = self.rows.get(row.index())?;
        let limits = load.limits(&self.settings);
        let (levels, source, is_aggregated) = match &limits.aggregated {
            _ if pod.is_prod() && limits.prod.is_on => (&limits.prod, Source::Prod, false),
            Some((levels, _)) => (levels, load.filters_by, true),
            None => (&limits.plain, load.filters_by, false),
        };
        let metric = load.metric.as_ref().filter(|_| levels.is_on)?;
        if self.settings.filters_expired && load.is_expired {
            let refusal = Refusal::Expired { measured: metric.updated };
            return (!self.settings.lets_expired_pass).then_some(refusal);
        }
        if !load.is_measured {
            return None;
        }
        let excess = self.excess(pod, load, levels, source)?;
        Some(Refusal::Over(Excess { is_aggregated, measured: metric.updated, ..excess }))
    }

    /// The first resource that would be used beyond its level.
    fn excess(&self, pod: &PodLoad, load: &NodeLoad, levels: &Levels, source: Source) -> Option<Excess> {
        let estimate = pod.amounts(self.number);
        let resources = load.usage.iter().zip(&levels.percents).enumerate();
        let mut limited = resources.filter(|(_, (usage, level))| **level != 0 && usage.allocatable != 0);
        limited.find_map(|(resource, (usage, threshold))| {
            let (base, in_flight) = usage.parts(source, usage.filter_base);
            let incoming = estimate.get(resource).copied().unwrap_or(0);
            let expected = percent(base + in_flight + incoming, usage.allocatable);
            (expected > *threshold).then_some(Excess {
                resource,
                is_aggregated: false,
                source,
                threshold: *threshold,
                expected,
                measured: None,
                base,
                in_flight,
                incoming,
                allocatable: usage.allocatable,
                in_flight_pods: match source {
                    Source::Measured => load.in_flight,
                    Source::Estimated => load.pods.len(),
                    Source::Prod => load.prod_in_flight,
                },
            })
        })
    }

    /// 100 for an idle node, 0 for a busy one and for one that nobody knows of. Spec: B5.
    pub fn score(&self, pod: &PodLoad, row: Row) -> i64 {
        let settings = &*self.settings;
        let state = self.sheet.state(row).unwrap_or_default();
        if state.is_expired || !state.is_measured || !self.is_scoring {
            return 0;
        }
        let is_prod = settings.scores_prod && pod.is_prod();
        let estimate = pod.amounts(self.number);
        let (mut sum, mut weights, mut least) = (0, settings.dominant_weight, 100);
        let meant = settings.weights.iter().zip(&settings.may_dominate);
        for (resource, (line, (weight, may_dominate))) in self.sheet.lines(row).iter().zip(meant).enumerate()
        {
            if *weight == 0 && !may_dominate {
                continue;
            }
            let used = if is_prod { line.prod } else { line.scored };
            let score = least_used(used + estimate.get(resource).copied().unwrap_or(0), line.allocatable);
            sum += weight * score;
            weights += weight;
            least = if *may_dominate { least.min(score) } else { least };
        }
        if weights <= 0 { 0 } else { (sum + settings.dominant_weight * least) / weights }
    }

    /// What is kept of a node; none when that is nothing.
    pub fn account(&self, row: Row) -> Option<Account> {
        let load = self.rows.get(row.index()).filter(|load| !load.is_empty())?;
        let name = |assigned: &Assigned| PodName {
            namespace: (*assigned.pod.key.namespace).into(),
            name: assigned.pod.key.name.clone(),
            uid: assigned.pod.uid.clone(),
        };
        let mut pods: Vec<(Time, PodName)> =
            load.pods.iter().map(|assigned| (assigned.since, name(assigned))).collect();
        pods.sort();
        let sums = load.metric.as_deref().map(|metric| self.account_sums(load, metric));
        Some(Account { pods, sums })
    }

    fn account_sums(&self, load: &NodeLoad, metric: &Metric) -> AccountSums {
        let amounts = |of: fn(&Usage) -> i64| load.usage.iter().map(of).collect();
        let pods = |is_meant: fn(&Share<'_>) -> bool| {
            let meant = |assigned: &&Assigned| {
                Share::of(metric, assigned, self.number).is_some_and(|share| is_meant(&share))
            };
            let mut names: Vec<String> =
                load.pods.iter().filter(meant).map(|assigned| assigned.pod.key.to_string()).collect();
            names.sort();
            names
        };
        AccountSums {
            prod_usage: amounts(|usage| usage.prod_usage),
            node_delta: amounts(|usage| usage.node_delta),
            prod_delta: amounts(|usage| usage.prod_delta),
            node_estimated: amounts(|usage| usage.node_estimated),
            node_delta_pods: pods(|share| share.counts_as_in_flight()),
            prod_delta_pods: pods(|share| share.counts_as_prod_in_flight()),
            node_estimated_pods: pods(|share| share.estimate.iter().any(|amount| *amount != 0)),
        }
    }
}

/// Half away from zero, on floats as upstream has it.
fn percent(used: i64, allocatable: i64) -> i64 {
    truncated((nearest(used) / nearest(allocatable) * 100.0).round())
}

/// What is left, in percent, rounded down.
fn least_used(used: i64, capacity: i64) -> i64 {
    if capacity <= 0 || used > capacity {
        return 0;
    }
    // Use below zero is nobody's; it must not make a node better than idle.
    (capacity - used.max(0)).saturating_mul(100) / capacity
}

#[cfg(test)]
impl Book {
    /// Every sum of every node, and the counts of pods in flight.
    pub(super) fn all_sums(&self) -> Vec<(Option<Account>, usize, usize)> {
        let rows = (0..self.rows.len()).map(Row::from_index);
        rows.map(|row| {
            let load = &self.rows[row.index()];
            (self.account(row), load.in_flight, load.prod_in_flight)
        })
        .collect()
    }

    pub(super) fn allocatable(&self, row: Row) -> Vec<i64> {
        self.rows[row.index()].usage.iter().map(|usage| usage.allocatable).collect()
    }

    pub(super) fn rebuild_all(&mut self) {
        let (settings, number) = (self.settings.clone(), self.number);
        self.rows.iter_mut().for_each(|load| load.rebuild(&settings, number));
        (0..self.rows.len()).map(Row::from_index).for_each(|row| self.refresh(row));
    }
}
