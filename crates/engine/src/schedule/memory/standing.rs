//! How every node stands with one class of pods, kept up to date by the log of changed rows.
//!
//! Rows that pass are kept in stacks: one for each key (what followers and raw scores make of a row) and each sum of
//! scores that depend on the row alone. What depends on the rest of the cluster is worked out per key, not per row,
//! so an attempt costs as much as there are keys and rows that changed, and not as there are nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::Framework;
use super::Promises;
use super::alike::Alike;
use super::assess::Assessor;
use crate::cluster::{Cluster, Row};
use crate::framework::hooks::normalize_by_max;
use crate::framework::parts::Normal;
use crate::framework::{Cycle, Delta, NodeView, Sieve, restored};
use crate::hash::QuickMap;
use crate::pod::Class;
use crate::random::Random;

/// All nodes as pods of a class see them.
pub(super) struct Standing {
    pub(super) class: Arc<Class>,
    pub(super) assessor: Assessor,
    /// Filters that had nothing to say when this was made.
    pub(super) skipped: u128,
    /// Whether pods of the class look through others on some nodes.
    pub(super) is_restored: bool,
    /// How far the logs of rows and of promises have been read.
    read_to: u64,
    promises_read_to: u64,
    rows: Vec<Place>,
    groups: Vec<Group>,
    group_ids: QuickMap<Box<[i64]>, u32>,
    /// Rows per verdict.
    refused: Vec<usize>,
    /// Rows that were judged for one pod alone, so that what is kept of them is of one attempt.
    judged_once: Vec<Row>,
    /// A score was out of bounds: nothing here can be used.
    is_broken: bool,
    scratch: Scratch,
}

/// Where a row is kept.
#[derive(Clone, Copy)]
struct Place {
    base: i64,
    group: u32,
    /// In its stack.
    at: u32,
    standing: Stand,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// No node.
    Gone,
    Passed,
    Refused(u32),
    /// Refused by a filter that is asked after the judges; its group tells what they say.
    RefusedLate(u32),
}

const GONE: Place = Place { base: 0, group: 0, at: 0, standing: Stand::Gone };

/// What there is to say of a row by itself.
#[derive(Clone, Copy)]
enum Found {
    Gone,
    Refused(u32),
    RefusedLate(u32),
    /// With the sum of scores of the row alone.
    Passed(i64),
    /// A score is out of bounds.
    Broken,
}

/// What rows are looked at with.
pub(super) struct Look<'a, 'b, 'c> {
    pub(super) framework: &'a Framework,
    pub(super) cycle: &'a Cycle<'b>,
    pub(super) promises: &'a mut Promises<'c>,
    /// Every node by its state, up to date; when at hand.
    pub(super) states: Option<&'a Alike>,
}

/// Rows with one key.
#[derive(Default)]
struct Group {
    key: Box<[i64]>,
    /// Stacks by sum; none is empty.
    stacks: BTreeMap<i64, Vec<Row>>,
    rows: usize,
}

/// Groups that nobody is in any more pile up until there are so many for each row.
const GROUPS_PER_ROW_MAX: usize = 2;

/// Buffers of an attempt.
#[derive(Default)]
struct Scratch {
    key: Vec<i64>,
    /// What the row at hand looks like to the pod, where that is not as it is counted.
    seen: Option<Delta>,
    /// What the plugin scores that lets the pod look through others there, where that was told at a glance.
    glanced: Option<i64>,
    /// Groups that have rows and pass.
    groups: Vec<u32>,
    keys: Vec<u32>,
    counts: Vec<usize>,
    is_refused: Vec<bool>,
    scores: Vec<i64>,
    sums: Vec<i64>,
}

/// What an attempt brought.
pub(super) enum Outcome {
    Chosen {
        row: Row,
        feasible: usize,
    },
    /// Nobody passed.
    Nobody,
    /// The attempt has to be made the plain way.
    Unknown,
}

impl Standing {
    pub(super) fn new(class: &Arc<Class>, assessor: Assessor, skipped: u128, is_restored: bool) -> Standing {
        Standing {
            class: class.clone(),
            assessor,
            skipped,
            is_restored,
            read_to: u64::MAX,
            promises_read_to: 0,
            rows: Vec::new(),
            groups: Vec::new(),
            group_ids: QuickMap::default(),
            refused: Vec::new(),
            judged_once: Vec::new(),
            is_broken: false,
            scratch: Scratch::default(),
        }
    }

    /// Whether it can go on from where it is.
    pub(super) fn is_current(&self, cluster: &Cluster, promises: &Promises<'_>) -> bool {
        !self.is_broken
            && cluster.changes().since(self.read_to).is_some()
            && promises.nominated.changes().since(self.promises_read_to).is_some()
            && self.groups.len() <= 64 + GROUPS_PER_ROW_MAX * self.rows.len()
            && self.assessor.is_current(cluster)
            && !(self.is_restored && self.assessor.are_judging(cluster))
    }

    /// Whether no row has been looked at yet.
    pub(super) fn is_new(&self) -> bool {
        self.read_to == u64::MAX
    }

    /// Bytes kept for each row of the cluster, about.
    pub(super) const ROW_BYTES: usize = size_of::<Place>() + size_of::<Row>();

    /// Looks at every row that changed since, or at all of them the first time.
    pub(super) fn catch_up(&mut self, look: &mut Look<'_, '_, '_>) {
        let columns = &look.cycle.cluster.columns;
        self.assessor.refresh_taints(look.cycle.cluster);
        let (log, promise_log) = (look.cycle.cluster.changes(), look.promises.nominated.changes());
        match (log.since(self.read_to), promise_log.since(self.promises_read_to)) {
            (Some(changed), Some(promised)) => {
                // What was judged for one pod alone, and what is promised to this one.
                let once = std::mem::take(&mut self.judged_once);
                let own = look.promises.own_row.filter(|row| row.index() < columns.rows());
                let mut last = None;
                for row in once.into_iter().chain(promised).chain(own).chain(changed) {
                    if last.replace(row) != Some(row) {
                        self.look_at(look, row);
                    }
                }
            }
            _ => self.look_at_all(look),
        }
        (self.read_to, self.promises_read_to) = (log.end(), promise_log.end());
        if !self.assessor.is_of_rows() {
            self.judge_promised(look.promises);
        }
    }

    fn look_at_all(&mut self, look: &mut Look<'_, '_, '_>) {
        let rows = look.cycle.cluster.columns.rows();
        self.rows.resize(rows, GONE);
        match look.states.filter(|_| self.assessor.is_of_states()) {
            None => (0..rows).map(Row::from_index).for_each(|row| self.look_at(look, row)),
            Some(states) => states.alike_rows().for_each(|rows| self.look_at_alike(look, rows)),
        }
    }

    fn look_at(&mut self, look: &mut Look<'_, '_, '_>, row: Row) {
        let found = self.find(look, row);
        self.settle(look, row, found);
    }

    /// Looks for the first time at rows that are in the same state, and so are found the same.
    fn look_at_alike(&mut self, look: &mut Look<'_, '_, '_>, rows: &[Row]) {
        let (framework, cycle, is_restored) = (look.framework, look.cycle, self.is_restored);
        // Rows that are promised, or that look different to the pod, are looked at one by one.
        let is_special = |row: &Row| {
            look.promises.matter_to(*row)
                || is_restored && restored::is_seen_otherwise(&framework.restores, cycle, *row)
        };
        let (special, plain): (Vec<Row>, Vec<Row>) = rows.iter().partition(|row| is_special(row));
        special.into_iter().for_each(|row| self.look_at(look, row));
        let mut rows = plain.into_iter();
        let Some(first) = rows.next() else { return };
        let found = self.find(look, first);
        self.settle(look, first, found);
        if !self.assessor.has_keys_of_taints(look.cycle.cluster) {
            return rows.for_each(|row| self.settle(look, row, found));
        }
        // Nothing else makes a difference between them: they belong together.
        let Place { base, group, standing, .. } = self.rows[first.index()];
        match standing {
            Stand::Passed => self.put_in(rows, group, base),
            Stand::Refused(number) => rows.for_each(|row| self.refuse(row, number)),
            Stand::RefusedLate(_) => rows.for_each(|row| self.settle(look, row, found)),
            Stand::Gone => {}
        }
    }

    /// Rows that were promised, where verdicts are not of the row alone.
    fn judge_promised(&mut self, promises: &mut Promises<'_>) {
        for row in promises.nominated.rows() {
            let is_node = self.rows.get(row.index()).is_some_and(|place| place.standing != Stand::Gone);
            if !is_node || !promises.are_before(row) {
                continue;
            }
            if let Err(status) = promises.check(row) {
                self.take_out(row);
                let number = self.assessor.number(status);
                self.refuse(row, number);
                self.judged_once.push(row);
            }
        }
    }

    /// What a row looks like to the pod, into the scratch. True when that is not as it is counted.
    fn see(&mut self, look: &Look<'_, '_, '_>, row: Row) -> bool {
        let is_node = look.cycle.cluster.columns.is_real[row.index()];
        let seen =
            (self.is_restored && is_node).then(|| restored::seen(&look.framework.restores, look.cycle, row));
        self.scratch.seen = seen.flatten();
        self.scratch.seen.is_some()
    }

    fn find(&mut self, look: &mut Look<'_, '_, '_>, row: Row) -> Found {
        self.scratch.glanced = None;
        if self.is_restored
            && look.cycle.cluster.columns.is_real[row.index()]
            && !look.promises.matter_to(row)
            && let Some((base, score)) = self.assessor.glance(look.framework, look.cycle, row)
        {
            (self.scratch.seen, self.scratch.glanced) = (None, Some(score));
            return Found::Passed(base);
        }
        self.see(look, row);
        self.find_seen(look, row)
    }

    /// What there is to say of a row by itself, as the pod sees it.
    fn find_seen(&mut self, look: &mut Look<'_, '_, '_>, row: Row) -> Found {
        let Look { framework, cycle, promises, .. } = look;
        if !cycle.cluster.columns.is_real[row.index()] {
            return Found::Gone;
        }
        if let Some(seen) = &self.scratch.seen {
            if promises.matter_to(row) {
                self.judged_once.push(row);
            }
            if let Err(status) = promises.check_seen(row, seen) {
                return Found::Refused(self.assessor.number(status));
            }
            let node = NodeView::supposing(cycle.cluster, row, seen);
            return self.assessor.base_seen(framework, cycle, &node).map_or(Found::Broken, Found::Passed);
        }
        let is_promised = promises.matter_to(row) && self.assessor.is_of_rows();
        if !is_promised && let Some(base) = self.assessor.quick_base(&cycle.cluster.columns, row) {
            return self.find_more(look, row, base);
        }
        if is_promised && promises.own_row == Some(row) {
            self.judged_once.push(row);
        }
        let refusal = match is_promised && promises.are_before(row) {
            true => promises.check(row).err().map(|status| self.assessor.number(status)),
            false => self.assessor.refusal(framework, cycle, row),
        };
        match refusal {
            Some(number) => Found::Refused(number),
            None => match self.assessor.late_refusal(framework, cycle, row) {
                Some(number) => Found::RefusedLate(number),
                None => self.assessor.base(framework, cycle, row).map_or(Found::Broken, Found::Passed),
            },
        }
    }

    /// What there is to say of a row with this sum that no plain check refuses.
    fn find_more(&mut self, look: &Look<'_, '_, '_>, row: Row, base: i64) -> Found {
        let (framework, cycle, assessor) = (look.framework, look.cycle, &mut self.assessor);
        if let Some(number) = assessor.row_refusal(framework, cycle, row) {
            return Found::Refused(number);
        }
        match assessor.late_refusal(framework, cycle, row) {
            Some(number) => Found::RefusedLate(number),
            None => assessor.with_finals(base, framework, cycle, row).map_or(Found::Broken, Found::Passed),
        }
    }

    /// Keeps a row where it belongs.
    fn settle(&mut self, look: &Look<'_, '_, '_>, row: Row, found: Found) {
        if self.rows.len() <= row.index() {
            self.rows.resize(row.index() + 1, GONE);
        }
        let was_node = self.rows[row.index()].standing != Stand::Gone;
        self.take_out(row);
        if let Found::Gone = found {
            if was_node {
                self.assessor.forget(row);
            }
            return;
        }
        let mut key = std::mem::take(&mut self.scratch.key);
        key.clear();
        // Followers count pods on nodes that are refused, too.
        self.assessor.followed_key(look.cycle.cluster, row, &mut key);
        match found {
            Found::Gone => {}
            Found::Refused(number) => self.refuse(row, number),
            Found::RefusedLate(number) => {
                let node = NodeView::of(look.cycle.cluster, row);
                self.assessor.raw_key(look.framework, look.cycle, &node, None, &mut key);
                let group = self.group_of(&key);
                self.refuse(row, number);
                let place = &mut self.rows[row.index()];
                (place.group, place.standing) = (group, Stand::RefusedLate(number));
            }
            Found::Broken => self.is_broken = true,
            Found::Passed(base) => {
                let node = match &self.scratch.seen {
                    Some(seen) => NodeView::supposing(look.cycle.cluster, row, seen),
                    None => NodeView::of(look.cycle.cluster, row),
                };
                let glanced = self.scratch.glanced;
                self.assessor.raw_key(look.framework, look.cycle, &node, glanced, &mut key);
                let group = self.group_of(&key);
                self.put_in([row], group, base);
            }
        }
        self.scratch.key = key;
    }

    fn refuse(&mut self, row: Row, number: u32) {
        let at = index(number);
        if self.refused.len() <= at {
            self.refused.resize(at + 1, 0);
        }
        self.refused[at] += 1;
        self.rows[row.index()].standing = Stand::Refused(number);
    }

    fn group_of(&mut self, key: &[i64]) -> u32 {
        // Nearly always there is one group, or the one looked for is among the first.
        let first = self.groups.iter().take(2).position(|group| *group.key == *key);
        if let Some(first) = first.and_then(|at| u32::try_from(at).ok()) {
            return first;
        }
        if let Some(known) = self.group_ids.get(key) {
            return *known;
        }
        let id = u32::try_from(self.groups.len()).expect("fewer groups than changes of rows");
        self.groups.push(Group { key: key.into(), ..Group::default() });
        self.group_ids.insert(key.into(), id);
        id
    }

    fn put_in(&mut self, rows: impl IntoIterator<Item = Row>, group: u32, base: i64) {
        let kept = &mut self.groups[index(group)];
        let stack = kept.stacks.entry(base).or_default();
        for row in rows {
            kept.rows += 1;
            let at = u32::try_from(stack.len()).expect("fewer than 2^32 nodes");
            stack.push(row);
            self.rows[row.index()] = Place { base, group, at, standing: Stand::Passed };
        }
    }

    /// Takes a row from where it is kept.
    fn take_out(&mut self, row: Row) {
        let place = std::mem::replace(&mut self.rows[row.index()], GONE);
        match place.standing {
            Stand::Gone => {}
            Stand::Refused(number) | Stand::RefusedLate(number) => self.refused[index(number)] -= 1,
            Stand::Passed => {
                let group = &mut self.groups[index(place.group)];
                group.rows -= 1;
                let Some(stack) = group.stacks.get_mut(&place.base) else { return };
                stack.swap_remove(index(place.at));
                if let Some(moved) = stack.get(index(place.at)) {
                    self.rows[moved.index()].at = place.at;
                }
                if stack.is_empty() {
                    group.stacks.remove(&place.base);
                }
            }
        }
    }

    /// Chooses among the rows that pass.
    pub(super) fn choose(&mut self, cluster: &Cluster, random: &mut Random) -> Outcome {
        if self.is_broken || self.has_errors() {
            return Outcome::Unknown;
        }
        self.judge(cluster);
        let feasible = self.scratch.groups.iter().map(|group| self.groups[index(*group)].rows).sum();
        if feasible == 0 {
            return Outcome::Nobody;
        }
        if self.rate(cluster).is_none() {
            return Outcome::Unknown;
        }
        let totals = || {
            let groups = self.scratch.groups.iter().zip(&self.scratch.sums);
            groups.filter_map(|(group, sum)| {
                let (base, stack) = self.groups[index(*group)].stacks.last_key_value()?;
                Some((base + sum, stack))
            })
        };
        let best = totals().map(|(total, _)| total).max().unwrap_or(0);
        let best = || totals().filter(|(total, _)| *total == best).map(|(_, stack)| stack);
        let mut drawn = random.below(best().map(Vec::len).sum());
        for stack in best() {
            match stack.get(drawn) {
                Some(row) => return Outcome::Chosen { row: *row, feasible },
                None => drawn -= stack.len(),
            }
        }
        Outcome::Unknown
    }

    /// Something went wrong in a filter; that is no verdict.
    fn has_errors(&self) -> bool {
        let statuses = self.assessor.statuses().iter().zip(&self.refused);
        statuses.into_iter().any(|(status, rows)| *rows > 0 && !status.code.is_rejected())
    }

    /// Which groups pass, into the scratch.
    fn judge(&mut self, cluster: &Cluster) {
        let scratch = &mut self.scratch;
        scratch.groups.clear();
        let used = (0..).zip(&self.groups).filter(|(_, group)| group.rows > 0).map(|(id, _)| id);
        scratch.groups.extend(used);
        for (at, (_, judge)) in self.assessor.judges.iter_mut().enumerate() {
            if judge.is_idle(cluster) {
                continue;
            }
            part_keys(&self.groups, &scratch.groups, at, &mut scratch.keys);
            scratch.is_refused.clear();
            scratch.is_refused.resize(scratch.keys.len(), false);
            judge.judge(cluster, &scratch.keys, &mut scratch.is_refused);
            let mut is_refused = scratch.is_refused.iter();
            scratch.groups.retain(|_| !is_refused.next().copied().unwrap_or(false));
        }
    }

    /// What each group that passes gets beside its rows' own sums, into the scratch; none when a score is out of
    /// bounds.
    fn rate(&mut self, cluster: &Cluster) -> Option<()> {
        let scratch = &mut self.scratch;
        let groups = &self.groups;
        scratch.sums.clear();
        scratch.sums.resize(scratch.groups.len(), 0);
        scratch.counts.clear();
        scratch.counts.extend(scratch.groups.iter().map(|group| groups[index(*group)].rows));
        let judges = self.assessor.judges.len();
        for (at, (rater, weight)) in self.assessor.raters.iter_mut().enumerate() {
            if rater.is_idle(cluster) {
                continue;
            }
            part_keys(groups, &scratch.groups, judges + at, &mut scratch.keys);
            scratch.scores.clear();
            scratch.scores.resize(scratch.keys.len(), 0);
            if rater.rate(cluster, &scratch.keys, &scratch.counts, &mut scratch.scores) {
                add(&mut scratch.sums, &scratch.scores, *weight)?;
            }
        }
        let raters = self.assessor.raters.len();
        for (at, raw) in self.assessor.raws.iter().enumerate() {
            let part = judges + raters + at;
            scratch.scores.clear();
            scratch.scores.extend(scratch.groups.iter().map(|group| groups[index(*group)].key[part]));
            if let Normal::ByMax { is_reversed } = raw.normal {
                normalize_by_max(&mut scratch.scores, is_reversed);
            }
            add(&mut scratch.sums, &scratch.scores, raw.weight)?;
        }
        Some(())
    }

    /// Every verdict, once nobody passed. The cycle has been prepared for all filters.
    pub(super) fn refusals(&mut self, framework: &Framework, cycle: &Cycle<'_>, order: &[Row]) -> Sieve {
        // A row that is refused late may have been refused by a judge before.
        let one = match self.assessor.has_late_checks() {
            true => None,
            false => self.refused.iter().position(|rows| *rows > 0 && *rows == order.len()),
        };
        if let (Some(number), [first, ..]) = (one, order) {
            let number = u32::try_from(number).unwrap_or(0);
            let status = self.assessor.told(framework, cycle, *first, number);
            return Sieve::of_one_verdict(status, order.to_vec());
        }
        let by_group = self.group_verdicts(framework, cycle);
        let mut samples: Vec<Option<Row>> = Vec::new();
        let (mut rejected, mut numbers) = (Vec::with_capacity(order.len()), Vec::with_capacity(order.len()));
        for row in order {
            let Some(place) = self.rows.get(row.index()) else { continue };
            let number = match place.standing {
                Stand::Gone => continue,
                Stand::Refused(number) => number,
                Stand::Passed => by_group[index(place.group)].unwrap_or(0),
                Stand::RefusedLate(number) => by_group[index(place.group)].unwrap_or(number),
            };
            if samples.len() <= index(number) {
                samples.resize(index(number) + 1, None);
            }
            samples[index(number)].get_or_insert(*row);
            rejected.push(*row);
            numbers.push(number);
        }
        samples.resize(self.assessor.statuses().len(), None);
        let told = |(at, sample): (usize, &Option<Row>)| match sample {
            Some(row) => self.assessor.told(framework, cycle, *row, u32::try_from(at).unwrap_or(0)),
            None => self.assessor.statuses()[at].clone(),
        };
        let statuses = samples.iter().enumerate().map(told).collect();
        Sieve::of_verdicts(statuses, rejected, numbers)
    }

    /// The verdict on each group that judges refuse.
    fn group_verdicts(&mut self, framework: &Framework, cycle: &Cycle<'_>) -> Vec<Option<u32>> {
        let mut samples = vec![None; self.groups.len()];
        for (at, place) in self.rows.iter().enumerate() {
            if matches!(place.standing, Stand::Passed | Stand::RefusedLate(_)) {
                samples[index(place.group)].get_or_insert(Row::from_index(at));
            }
        }
        let assessor = &mut self.assessor;
        let verdict = |row: Option<Row>| {
            let node = NodeView::of(cycle.cluster, row?);
            let status = assessor.judges.iter().find_map(|(plugin, _)| {
                framework.filters.get(*plugin)?.filter.as_ref()?.check(cycle, &node).err()
            });
            status.map(|status| assessor.number(status))
        };
        samples.into_iter().map(verdict).collect()
    }

    /// Totals of all rows that pass, for tests. To be asked after `choose`.
    #[cfg(test)]
    pub(super) fn totals(&self) -> Vec<(Row, i64)> {
        let groups = self.scratch.groups.iter().zip(&self.scratch.sums);
        let mut totals: Vec<(Row, i64)> = groups
            .flat_map(|(group, sum)| {
                let stacks = self.groups[index(*group)].stacks.iter();
                stacks.flat_map(move |(base, rows)| rows.iter().map(move |row| (*row, base + sum)))
            })
            .collect();
        totals.sort_unstable();
        totals
    }
}

fn part_keys(groups: &[Group], passing: &[u32], part: usize, keys: &mut Vec<u32>) {
    keys.clear();
    keys.extend(passing.iter().map(|group| u32::try_from(groups[index(*group)].key[part]).unwrap_or(0)));
}

/// Adds weighted scores; none when one is out of bounds.
fn add(sums: &mut [i64], scores: &[i64], weight: i64) -> Option<()> {
    for (sum, score) in sums.iter_mut().zip(scores) {
        *sum += Some(*score).filter(|score| (0..=100).contains(score))? * weight;
    }
    Some(())
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
