//! Which nodes can take the pod.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Attempt, Framework, Lack, LeftOut, Nominated, Room, Sampling, extend};
use crate::cluster::Row;
use crate::framework::{
    Code, Cycle, Delta, NodeView, PluginName, Preparation, Restored, Sieve, Status, restored, timing,
};
use crate::pod::Pod;

/// Below this many nodes all are looked at.
const NODES_MIN: usize = 100;
/// The adaptive percentage never goes below this.
const PERCENT_MIN: usize = 5;

/// What looking at the pod alone brought.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// Filters that have nothing to say about this pod.
    skipped: Vec<PluginName>,
    /// The nodes that come into question, when plugins named some.
    only: Option<Vec<Row>>,
    /// The plugins that named them, by name.
    narrowing: Vec<PluginName>,
}

/// The pod is refused whatever the node.
pub(super) enum Refused {
    Pod(Status),
    Error(Status),
}

/// What the search brought.
pub(super) struct Found {
    /// In visiting order.
    pub(super) feasible: Vec<Row>,
    pub(super) sieve: Sieve,
    pub(super) left_out: LeftOut,
}

/// How many of `nodes` are enough. Spec: scheduler-core 3.3.
pub fn nodes_to_find(nodes: usize, percentage: i64) -> usize {
    if nodes < NODES_MIN {
        return nodes;
    }
    let percent = match usize::try_from(percentage) {
        Ok(percent) if percent > 0 => percent,
        _ => PERCENT_MIN.max(50usize.saturating_sub(nodes / 125)),
    };
    NODES_MIN.max(nodes.saturating_mul(percent) / 100).min(nodes)
}

/// Asks every plugin that looks at the pod first.
pub(super) fn prepare(
    framework: &Framework,
    cycle: &mut Cycle<'_>,
    prepared: &mut Prepared,
) -> Result<(), Refused> {
    let begun = framework.timing.begin();
    let result = prepare_all(framework, cycle, prepared);
    let code = match &result {
        Ok(()) => Code::Success,
        Err(Refused::Pod(status) | Refused::Error(status)) => status.code,
    };
    framework.timing.end(begun, POINT_PREPARE, code.word());
    if let Some(query) = cycle.get::<timing::IndexQuery>() {
        framework.timing.queried(*query);
    }
    result
}

const POINT_PREPARE: &str = "PreFilter";
const POINT_FILTER: &str = "Filter";
/// Koordinator's names for what happens beside the points of Kubernetes. Spec: scheduler-core 8.3.
const POINT_RESTORE: &str = "BeforePreFilter";
const POINT_PREFER: &str = "PreferNodesPlugin";

fn prepare_all(framework: &Framework, cycle: &mut Cycle<'_>, prepared: &mut Prepared) -> Result<(), Refused> {
    let mut refusal: Option<Status> = None;
    for hooks in &framework.pre_filters {
        let Some(plugin) = &hooks.pre_filter else { continue };
        let begun = framework.timing.begin_plugin();
        let answer = plugin.prepare(cycle);
        let is_skipped = matches!(answer, Ok(Preparation::Skip));
        let word = if is_skipped { Code::Skip.word() } else { timing::word(&answer) };
        framework.timing.end_plugin(begun, POINT_PREPARE, hooks.name, word);
        framework.timing.asked(hooks.name, POINT_PREPARE, usize::from(!is_skipped));
        match answer {
            Ok(Preparation::Go) => {}
            Ok(Preparation::Skip) => prepared.skipped.push(hooks.name),
            Ok(Preparation::Only(rows)) => {
                prepared.narrow(hooks.name, rows);
                if let Some(status) = prepared.emptied() {
                    return Err(Refused::Pod(status));
                }
            }
            // The others still run: preemption needs what they keep.
            Err(status) if status.code == Code::Unschedulable => refusal = Some(status),
            Err(status) if status.code == Code::Unresolvable => return Err(Refused::Pod(status)),
            Err(status) => return Err(Refused::Error(framed(&status, "PreFilter plugin"))),
        }
    }
    match refusal {
        Some(status) => Err(Refused::Pod(status)),
        None => Ok(()),
    }
}

/// Lets the pod look through those who hold room for it, on every node at once.
pub(super) fn restore(framework: &Framework, cycle: &mut Cycle<'_>, prepared: &Prepared) {
    if !framework.restores.iter().any(|plugin| plugin.concerns(cycle.cluster, cycle.pod)) {
        return;
    }
    let begun = framework.timing.begin_plugin();
    let restored = Restored::of(&framework.restores, cycle);
    let name = framework.pre_filters.iter().find(|hooks| hooks.restore.is_some()).map(|hooks| hooks.name);
    framework.timing.end_plugin(begun, POINT_RESTORE, name.unwrap_or_default(), Code::Success.word());
    for (row, pod) in restored.lifted() {
        framework.suppose_removed(prepared, cycle, pod, *row);
    }
    cycle.set(restored);
}

fn framed(status: &Status, point: &str) -> Status {
    Status::error(status.plugin, format!("running {point} \"{}\": {status}", status.plugin))
}

impl Prepared {
    fn narrow(&mut self, plugin: PluginName, rows: Vec<Row>) {
        self.narrowing.push(plugin);
        self.narrowing.sort_unstable();
        self.only = Some(match self.only.take() {
            None => rows,
            Some(before) => before.into_iter().filter(|row| rows.contains(row)).collect(),
        });
    }

    /// Sets that have no node in common refuse the pod; one that names only strangers does not.
    fn emptied(&self) -> Option<Status> {
        let is_empty = self.only.as_ref().is_some_and(Vec::is_empty);
        if !is_empty || self.narrowing.len() < 2 {
            return None;
        }
        let text = format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", self.narrowing.join(" "));
        Some(Status::unresolvable("", text))
    }

    /// The plugins that named the nodes they want, by name.
    pub(super) fn narrowing(&self) -> &[PluginName] {
        &self.narrowing
    }

    /// Whether the plugin's filter has something to say about this pod.
    pub fn is_asked(&self, plugin: PluginName) -> bool {
        !self.skipped.contains(&plugin)
    }
}

/// Filters nodes in visiting order until enough have passed.
pub(super) fn run(
    attempt: &mut Attempt<'_>,
    cycle: &Cycle<'_>,
    prepared: &Prepared,
) -> Result<Found, Status> {
    let all = attempt.order.len();
    for first in [nominated_first, preferred_first] {
        let Some(mut found) = first(attempt, cycle, prepared) else { continue };
        // Extenders that fail now are asked again about all nodes.
        let is_said = extend::narrow(attempt.extenders, cycle, &mut found).is_ok();
        if is_said && !found.feasible.is_empty() {
            return Ok(found);
        }
    }
    let candidates: Vec<Row> = match &prepared.only {
        None => attempt.order.to_vec(),
        // Where all are looked at and the pick is random, the order decides nothing.
        Some(only) if attempt.is_unordered() => {
            let is_real = &cycle.cluster.columns.is_real;
            only.iter().copied().filter(|row| is_real[row.index()]).collect()
        }
        Some(only) => attempt.order.iter().copied().filter(|row| only.contains(row)).collect(),
    };
    let left_out = LeftOut { plugins: prepared.narrowing.clone(), count: all - candidates.len() };
    let count = candidates.len();
    let is_any_enough = attempt.framework.scores.is_empty() && !extend::choose(attempt.extenders);
    let wanted = match is_any_enough {
        true => count.min(1),
        false => match attempt.framework.sampling {
            Sampling::All => count,
            Sampling::Percent(percentage) => nodes_to_find(count, percentage),
        },
    };
    let begin = if count == 0 { 0 } else { *attempt.start % count };
    let visiting = candidates[begin..].iter().chain(&candidates[..begin]).copied();
    let mut visiting: std::vec::IntoIter<Row> = visiting.collect::<Vec<Row>>().into_iter();
    let (mut feasible, mut sieve) = (Vec::new(), Sieve::default());
    while feasible.len() < wanted {
        // So many can pass at most, so the search never goes further than one node at a time would.
        let chunk: Vec<Row> = visiting.by_ref().take(wanted - feasible.len()).collect();
        if chunk.is_empty() {
            break;
        }
        sieve.refill(chunk);
        filter(attempt, cycle, prepared, &mut sieve);
        feasible.extend(sieve.take_left());
    }
    *attempt.start = (begin + feasible.len() + sieve.rejected_count()) % all.max(1);
    match sieve.first_error() {
        Some(status) => {
            let text = format!("running \"{}\" filter plugin: {status}", status.plugin);
            Err(Status::error(status.plugin, text))
        }
        None => {
            let mut found = Found { feasible, sieve, left_out };
            extend::narrow(attempt.extenders, cycle, &mut found)?;
            Ok(found)
        }
    }
}

/// The node that the pod is promised, if it takes the pod. Spec: scheduler-core 3.2.5.
pub(super) fn nominated_first(
    attempt: &Attempt<'_>,
    cycle: &Cycle<'_>,
    prepared: &Prepared,
) -> Option<Found> {
    let row =
        attempt.nominated_row.filter(|row| cycle.cluster.columns.is_real.get(row.index()) == Some(&true))?;
    if prepared.only.as_ref().is_some_and(|only| !only.contains(&row)) {
        return None;
    }
    let seen = attempt.framework.seen(cycle, row);
    attempt.framework.check_beside_nominated(attempt.nominated, prepared, cycle, row, &seen).ok()?;
    Some(Found { feasible: vec![row], sieve: Sieve::default(), left_out: LeftOut::default() })
}

/// The first node that a plugin would rather have and that takes the pod. Spec: scheduler-core 9.7.
fn preferred_first(attempt: &Attempt<'_>, cycle: &Cycle<'_>, prepared: &Prepared) -> Option<Found> {
    let timing = &attempt.framework.timing;
    let mut rows = attempt.framework.pre_filters.iter().flat_map(|hooks| {
        let Some(plugin) = &hooks.prefer else { return Vec::new() };
        let begun = timing.begin_plugin();
        let rows = plugin.prefer(cycle);
        let code = if rows.is_empty() { Code::Skip } else { Code::Success };
        timing.end_plugin(begun, POINT_PREFER, hooks.name, code.word());
        rows
    });
    let row = rows.find(|row| {
        let is_candidate = prepared.only.as_ref().is_none_or(|only| only.contains(row));
        let takes_it = || {
            let (framework, nominated) = (attempt.framework, attempt.nominated);
            let seen = framework.seen(cycle, *row);
            framework.check_beside_nominated(nominated, prepared, cycle, *row, &seen).is_ok()
        };
        is_candidate && takes_it()
    })?;
    Some(Found { feasible: vec![row], sieve: Sieve::default(), left_out: LeftOut::default() })
}

fn filter(attempt: &Attempt<'_>, cycle: &Cycle<'_>, prepared: &Prepared, sieve: &mut Sieve) {
    let Attempt { framework, nominated, .. } = attempt;
    let restored = cycle.get::<Restored>().filter(|restored| !restored.is_empty());
    if nominated.is_empty() && restored.is_none() {
        return sift(framework, cycle, prepared, sieve, |_, _| {});
    }
    let check = |row| {
        let seen = framework.seen(cycle, row);
        framework.check_beside_nominated(nominated, prepared, cycle, row, &seen)
    };
    if let Some(room) = Room::of(framework, prepared, cycle, nominated).filter(|_| restored.is_none()) {
        // Whoever fits beside the promises fits without them, so only those who do not are taken out here.
        return sift(framework, cycle, prepared, sieve, |filter, sieve| {
            if filter == room.filter {
                let lack = |row| room.lack_beside_promised(row).map(|Lack(bits)| bits);
                sieve.retain_by_cause(lack, |row| check(row).err());
            }
        });
    }
    let order = sieve.left().to_vec();
    let held_back = sieve.set_aside(|row| {
        nominated.before(cycle.pod, row).next().is_some()
            || restored.is_some_and(|restored| restored.on(row).is_some())
    });
    sift(framework, cycle, prepared, sieve, |_, _| {});
    if held_back.is_empty() {
        return;
    }
    held_back.into_iter().for_each(|row| sieve.judge(row, check(row)));
    // Back to visiting order, which decides among equals.
    let places: HashMap<Row, usize> = order.into_iter().zip(0..).collect();
    sieve.sort_left_by_key(|row| places.get(&row).copied());
}

/// Asks the filters in order; `first` has its say before each.
fn sift(
    framework: &Framework,
    cycle: &Cycle<'_>,
    prepared: &Prepared,
    sieve: &mut Sieve,
    first: impl Fn(PluginName, &mut Sieve),
) {
    for hooks in framework.filters.iter().filter(|hooks| prepared.is_asked(hooks.name)) {
        if let Some(plugin) = &hooks.filter {
            first(hooks.name, sieve);
            framework.timing.asked(hooks.name, POINT_FILTER, sieve.left().len());
            let begun = framework.timing.begin_plugin();
            plugin.sift(cycle, sieve);
            framework.timing.end_plugin(begun, POINT_FILTER, hooks.name, Code::Success.word());
        }
    }
}

impl Framework {
    /// What a node looks like to the pod of a cycle.
    pub fn seen(&self, cycle: &Cycle<'_>, row: Row) -> Delta {
        restored::seen(&self.restores, cycle, row).unwrap_or_default()
    }

    /// The cycle's state as if `other` were on `row` too.
    pub fn suppose_added(&self, prepared: &Prepared, cycle: &mut Cycle<'_>, other: &Arc<Pod>, row: Row) {
        for hooks in self.pre_filters.iter().filter(|hooks| prepared.is_asked(hooks.name)) {
            if let Some(plugin) = &hooks.pre_filter {
                plugin.add_pod(cycle, other, row);
            }
        }
    }

    /// The cycle's state as if `other` were not on `row`.
    pub fn suppose_removed(&self, prepared: &Prepared, cycle: &mut Cycle<'_>, other: &Arc<Pod>, row: Row) {
        for hooks in self.pre_filters.iter().filter(|hooks| prepared.is_asked(hooks.name)) {
            if let Some(plugin) = &hooks.pre_filter {
                plugin.remove_pod(cycle, other, row);
            }
        }
    }

    /// All filters on one node as it is supposed to be, up to the first that refuses; with the pods that are
    /// promised the node and without them.
    pub fn check_beside_nominated(
        &self,
        nominated: &Nominated,
        prepared: &Prepared,
        cycle: &Cycle<'_>,
        row: Row,
        delta: &Delta,
    ) -> Result<(), Status> {
        if nominated.before(cycle.pod, row).next().is_some() {
            let (mut supposed, mut delta) = (cycle.clone(), delta.clone());
            for other in nominated.before(cycle.pod, row) {
                delta.add(cycle.cluster, row, other);
                self.suppose_added(prepared, &mut supposed, other, row);
            }
            check(self, prepared, &supposed, &NodeView::supposing(cycle.cluster, row, &delta))?;
        }
        check(self, prepared, cycle, &NodeView::supposing(cycle.cluster, row, delta))
    }
}

/// All filters on one node, up to the first that refuses.
fn check(
    framework: &Framework,
    prepared: &Prepared,
    cycle: &Cycle<'_>,
    node: &NodeView<'_>,
) -> Result<(), Status> {
    let mut filters = framework.filters.iter().filter(|hooks| prepared.is_asked(hooks.name));
    filters.try_for_each(|hooks| hooks.filter.as_ref().map_or(Ok(()), |plugin| plugin.check(cycle, node)))
}
