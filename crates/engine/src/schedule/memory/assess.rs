//! What a profile does with pods of one class, put together from what its plugins say of themselves.

use std::sync::Arc;

use koord_api::resource::ResourceId;

use super::super::Framework;
use super::arithmetic::{Amounts, Ask, is_exact};
use crate::cluster::reservations::Overdrawn;
use crate::cluster::{Cluster, Columns, Row};
use crate::framework::parts::{ColumnScore, FilterPart, Formula, Judge, Normal, Rate, Room, ScorePart};
use crate::framework::{Cycle, NodeView, Status};
use crate::hash::QuickMap;
use crate::number::{nearest, truncated};
use crate::pod::Class;

/// Filters and scores of one class. Numbers of plugins are places in the framework's lists.
pub(super) struct Assessor {
    checks: Vec<(usize, Check)>,
    /// Those that are asked after a judge: what they say is told only where no judge refuses the row.
    late: Vec<(usize, Check)>,
    pub(super) judges: Vec<(usize, Box<dyn Judge>)>,
    /// Final scores of the row alone, with weights.
    columns: Vec<(usize, Box<dyn ColumnScore>, i64)>,
    finals: Vec<(usize, i64)>,
    /// Scores of the row alone that are normalised over all feasible nodes.
    pub(super) raws: Vec<Raw>,
    pub(super) raters: Vec<(Box<dyn Rate>, i64)>,
    /// Judges and raters that have nothing to say, unless they are no longer current.
    fixed: Vec<Fixed>,
    /// Room and scores of the row alone in one go, where they are the usual ones.
    lean: Option<Lean>,
    /// Of `raws` the one whose plugin tells its score at a glance, where all others go by taints.
    glanced: Option<usize>,
    verdicts: Verdicts,
    /// Of the taint sets that numbers below stand for.
    taints_version: u64,
    is_of_rows: bool,
}

/// Kept only to be asked whether it is current.
enum Fixed {
    Judge(Box<dyn Judge>),
    Rate(Box<dyn Rate>),
}

/// The usual checks and scores.
struct Lean {
    ask: Ask,
    /// Nothing is asked for when zero.
    storage: i64,
}

/// A filter that looks at the row alone.
enum Check {
    Cordoned,
    Taints,
    Room(Room),
    Row,
}

/// A score that has to be normalised.
pub(super) struct Raw {
    plugin: usize,
    pub(super) weight: i64,
    pub(super) normal: Normal,
    /// By taint set, where it depends on nothing else.
    by_taints: Option<QuickMap<u32, i64>>,
}

/// Verdicts, each once.
#[derive(Default)]
pub(super) struct Verdicts {
    statuses: Vec<Status>,
    /// By filter and what it found: most verdicts need no text to be told apart.
    codes: QuickMap<(usize, u64), u32>,
}

/// How the usual scores are weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fused {
    least_weight: i64,
    cpu_weight: i64,
    memory_weight: i64,
    balanced_weight: i64,
}

impl Assessor {
    /// None when some plugin has to be asked about every node every time. `skipped` are filters, by place, that
    /// have nothing to say about the pod.
    pub(super) fn new(
        framework: &Framework,
        cluster: &Cluster,
        class: &Arc<Class>,
        skipped: u128,
    ) -> Option<Assessor> {
        let mut assessor = Assessor {
            checks: Vec::new(),
            late: Vec::new(),
            judges: Vec::new(),
            columns: Vec::new(),
            finals: Vec::new(),
            raws: Vec::new(),
            raters: Vec::new(),
            fixed: Vec::new(),
            lean: None,
            glanced: None,
            verdicts: Verdicts::default(),
            taints_version: cluster.taint_sets().version(),
            is_of_rows: true,
        };
        for (at, hooks) in framework.filters.iter().enumerate() {
            let Some(plugin) = hooks.filter.as_ref().filter(|_| skipped >> at & 1 == 0) else { continue };
            let check = match plugin.part(cluster, class) {
                FilterPart::Nothing => continue,
                FilterPart::Tracked(judge) if judge.is_fixed() => {
                    assessor.fixed.push(Fixed::Judge(judge));
                    continue;
                }
                FilterPart::Tracked(judge) => {
                    assessor.judges.push((at, judge));
                    continue;
                }
                FilterPart::Opaque => return None,
                FilterPart::Cordoned => Check::Cordoned,
                FilterPart::Taints => Check::Taints,
                FilterPart::Room(room) => Check::Room(room),
                FilterPart::Row => Check::Row,
            };
            // The first refusal is the one that is told.
            match assessor.judges.is_empty() {
                true => assessor.checks.push((at, check)),
                false => assessor.late.push((at, check)),
            }
        }
        assessor.is_of_rows = assessor.judges.is_empty();
        assessor.add_scores(framework, cluster, class)?;
        assessor.lean = assessor.lean(class);
        assessor.glanced = assessor.glanced(framework);
        Some(assessor)
    }

    /// The one raw score that does not go by taints, if its plugin is the one that lets pods look through others.
    fn glanced(&self, framework: &Framework) -> Option<usize> {
        let mut by_rows = self.raws.iter().enumerate().filter(|(_, raw)| raw.by_taints.is_none());
        let (Some((place, raw)), None) = (by_rows.next(), by_rows.next()) else { return None };
        let is_restoring = framework.scores.get(raw.plugin).is_some_and(|(hooks, _)| hooks.restore.is_some());
        is_restoring.then_some(place)
    }

    fn add_scores(&mut self, framework: &Framework, cluster: &Cluster, class: &Arc<Class>) -> Option<()> {
        for (at, (hooks, weight)) in framework.scores.iter().enumerate() {
            let Some(plugin) = &hooks.score else { continue };
            let raw = |normal, by_taints| Raw { plugin: at, weight: *weight, normal, by_taints };
            match plugin.part(cluster, class) {
                ScorePart::Nothing => {}
                ScorePart::Columns(score) => self.columns.push((at, score, *weight)),
                ScorePart::Row(Normal::Final) => self.finals.push((at, *weight)),
                ScorePart::Row(normal) => self.raws.push(raw(normal, None)),
                ScorePart::Taints(normal) => self.raws.push(raw(normal, Some(QuickMap::default()))),
                ScorePart::Tracked(rater) if rater.is_fixed() => self.fixed.push(Fixed::Rate(rater)),
                ScorePart::Tracked(rater) => self.raters.push((rater, *weight)),
                ScorePart::Opaque => return None,
            }
        }
        Some(())
    }

    /// Whether every follower still follows what matters.
    pub(super) fn is_current(&self, cluster: &Cluster) -> bool {
        self.judges.iter().all(|(_, judge)| judge.is_current(cluster))
            && self.raters.iter().all(|(rater, _)| rater.is_current(cluster))
            && self.fixed.iter().all(|fixed| match fixed {
                Fixed::Judge(judge) => judge.is_current(cluster),
                Fixed::Rate(rater) => rater.is_current(cluster),
            })
    }

    /// Whether verdicts depend on more than rows at the moment.
    pub(super) fn are_judging(&self, cluster: &Cluster) -> bool {
        self.judges.iter().any(|(_, judge)| !judge.is_idle(cluster))
    }

    /// Whether filters of rows are asked after a judge.
    pub(super) fn has_late_checks(&self) -> bool {
        !self.late.is_empty()
    }

    /// Whether verdicts depend on rows alone.
    pub(super) fn is_of_rows(&self) -> bool {
        self.is_of_rows
    }

    /// Numbers of taint sets may have got another meaning since.
    pub(super) fn refresh_taints(&mut self, cluster: &Cluster) {
        let version = cluster.taint_sets().version();
        if self.taints_version != version {
            self.taints_version = version;
            self.verdicts.codes.clear();
            self.raws.iter_mut().filter_map(|raw| raw.by_taints.as_mut()).for_each(QuickMap::clear);
        }
    }

    /// The number of the verdict of the first filter of rows that refuses this one, before any judge is asked.
    pub(super) fn refusal(&mut self, framework: &Framework, cycle: &Cycle<'_>, row: Row) -> Option<u32> {
        let verdicts = &mut self.verdicts;
        self.checks.iter().find_map(|(plugin, check)| check.refusal(verdicts, framework, *plugin, cycle, row))
    }

    /// The same of those that only the plugins themselves can tell.
    pub(super) fn row_refusal(&mut self, framework: &Framework, cycle: &Cycle<'_>, row: Row) -> Option<u32> {
        let verdicts = &mut self.verdicts;
        let mut asked = self.checks.iter().filter(|(_, check)| matches!(check, Check::Row));
        asked.find_map(|(plugin, check)| check.refusal(verdicts, framework, *plugin, cycle, row))
    }

    /// The same of those that are asked after a judge.
    pub(super) fn late_refusal(&mut self, framework: &Framework, cycle: &Cycle<'_>, row: Row) -> Option<u32> {
        let verdicts = &mut self.verdicts;
        self.late.iter().find_map(|(plugin, check)| check.refusal(verdicts, framework, *plugin, cycle, row))
    }

    /// The weighted sum of scores of the row alone; none when one of them is out of bounds.
    pub(super) fn base(&self, framework: &Framework, cycle: &Cycle<'_>, row: Row) -> Option<i64> {
        let mut sum = 0;
        for (_, score, weight) in &self.columns {
            let score = score.score(&cycle.cluster.columns, row);
            sum += Some(score).filter(|score| (0..=100).contains(score))? * weight;
        }
        self.with_finals(sum, framework, cycle, row)
    }

    /// A sum with the scores that only the plugins themselves can tell; none when one of them is out of bounds.
    pub(super) fn with_finals(
        &self,
        mut sum: i64,
        framework: &Framework,
        cycle: &Cycle<'_>,
        row: Row,
    ) -> Option<i64> {
        for (at, weight) in &self.finals {
            let plugin = framework.scores.get(*at).and_then(|(hooks, _)| hooks.score.as_ref());
            let score = plugin.map_or(0, |plugin| plugin.score(cycle, &NodeView::of(cycle.cluster, row)));
            sum += Some(score).filter(|score| (0..=100).contains(score))? * weight;
        }
        Some(sum)
    }

    /// As `base`, of a row that looks different to the pod.
    pub(super) fn base_seen(
        &self,
        framework: &Framework,
        cycle: &Cycle<'_>,
        node: &NodeView<'_>,
    ) -> Option<i64> {
        let columns = self.columns.iter().map(|(at, _, weight)| (*at, *weight));
        let mut sum = 0;
        for (at, weight) in columns.chain(self.finals.iter().copied()) {
            let plugin = framework.scores.get(at).and_then(|(hooks, _)| hooks.score.as_ref());
            let score = plugin.map_or(0, |plugin| plugin.score(cycle, node));
            sum += Some(score).filter(|score| (0..=100).contains(score))? * weight;
        }
        Some(sum)
    }

    /// The part of a row's key that raw scores make.
    pub(super) fn raw_key(
        &mut self,
        framework: &Framework,
        cycle: &Cycle<'_>,
        node: &NodeView<'_>,
        glanced: Option<i64>,
        key: &mut Vec<i64>,
    ) {
        for (place, raw) in self.raws.iter_mut().enumerate() {
            if let Some(score) = glanced.filter(|_| self.glanced == Some(place)) {
                key.push(score);
                continue;
            }
            let score = || {
                let plugin = framework.scores.get(raw.plugin).and_then(|(hooks, _)| hooks.score.as_ref());
                plugin.map_or(0, |plugin| plugin.score(cycle, node))
            };
            key.push(match &mut raw.by_taints {
                None => score(),
                Some(known) => {
                    *known.entry(cycle.cluster.columns.taint_set[node.row.index()]).or_insert_with(score)
                }
            });
        }
    }

    /// The part of a row's key that followers make.
    pub(super) fn followed_key(&mut self, cluster: &Cluster, row: Row, key: &mut Vec<i64>) {
        key.extend(self.judges.iter_mut().map(|(_, judge)| i64::from(judge.key(cluster, row))));
        key.extend(self.raters.iter_mut().map(|(rater, _)| i64::from(rater.key(cluster, row))));
    }

    pub(super) fn forget(&mut self, row: Row) {
        self.judges.iter_mut().for_each(|(_, judge)| judge.forget(row));
        self.raters.iter_mut().for_each(|(rater, _)| rater.forget(row));
    }

    /// Whether, at the moment, rows with the same taints have the same key.
    pub(super) fn has_keys_of_taints(&self, cluster: &Cluster) -> bool {
        self.judges.iter().all(|(_, judge)| judge.is_uniform(cluster))
            && self.raters.iter().all(|(rater, _)| rater.is_uniform(cluster))
            && self.raws.iter().all(|raw| raw.by_taints.is_some())
    }

    /// Whether what rows say by themselves is the same for nodes in the same state.
    pub(super) fn is_of_states(&self) -> bool {
        self.checks.iter().all(|(_, check)| check.is_plain())
            && self.late.is_empty()
            && self.finals.is_empty()
            && self.columns.iter().all(|(_, score, _)| score.formula() != Formula::Own)
    }

    /// What pods of the class ask of states, when nothing but room counts for them at the moment.
    pub(super) fn ask(&self, cluster: &Cluster) -> Option<Ask> {
        let is_idle = self.raws.iter().all(|raw| raw.by_taints.is_some())
            && self.judges.iter().all(|(_, judge)| judge.is_idle(cluster))
            && self.raters.iter().all(|(rater, _)| rater.is_idle(cluster));
        self.lean.as_ref().filter(|_| is_idle && self.is_of_states()).map(|lean| lean.ask)
    }

    /// Room and scores of columns in one go; none when there is more to them, or amounts are too large to be computed
    /// with. What only the plugins themselves can tell of a row comes on top.
    fn lean(&self, class: &Class) -> Option<Lean> {
        let has_room = self.checks.iter().any(|(_, check)| matches!(check, Check::Room(_)));
        let is_known = |check: &Check| check.is_plain() || matches!(check, Check::Row);
        if !has_room || !self.checks.iter().all(|(_, check)| is_known(check)) {
            return None;
        }
        let mut fused = Fused::default();
        for (_, score, weight) in &self.columns {
            match score.formula() {
                Formula::LeastAllocated { cpu_weight, memory_weight }
                    if fused.least_weight == 0 && cpu_weight.min(memory_weight) > 0 =>
                {
                    fused = Fused { least_weight: *weight, cpu_weight, memory_weight, ..fused };
                }
                Formula::Balanced if fused.balanced_weight == 0 => fused.balanced_weight = *weight,
                _ => return None,
            }
        }
        let weights = [fused.least_weight, fused.balanced_weight, fused.cpu_weight, fused.memory_weight];
        let are_small = weights.iter().all(|weight| (0..=Fused::WEIGHT_MAX).contains(weight));
        let ask = ask(class, fused).filter(|_| are_small)?;
        Some(Lean { ask, storage: class.requests.amounts.get(ResourceId::EPHEMERAL_STORAGE).max(0) })
    }

    /// The sum of scores of columns of a row that no plain check refuses, if that can be told in one go.
    pub(super) fn quick_base(&self, columns: &Columns, row: Row) -> Option<i64> {
        let (lean, at) = (self.lean.as_ref()?, row.index());
        let is_overdrawn = columns.overdrawn[at] != Overdrawn::default();
        let is_suspect = columns.taint_set[at] != 0 || columns.is_unschedulable[at] || is_overdrawn;
        let is_short = lean.storage > columns.storage.free(row) && lean.storage > 0;
        if is_suspect || is_short || columns.pods.free(row) < 1 {
            return None;
        }
        let amounts = Amounts {
            allocatable_cpu: columns.cpu.allocatable[at],
            allocatable_memory: columns.memory.allocatable[at],
            used_cpu: columns.cpu.requested[at],
            used_memory: columns.memory.requested[at],
            nonzero_cpu: columns.nonzero_cpu[at],
            nonzero_memory: columns.nonzero_memory[at],
        };
        let total = amounts.are_regular().then(|| lean.ask.total(&amounts))?;
        (total >= 0.0).then(|| truncated(total))
    }

    /// As `quick_base`, with all that the plugins have to say, of a row where the pod looks through another; and what the
    /// plugin that lets it do so scores. None where that cannot be told in one go.
    pub(super) fn glance(&self, framework: &Framework, cycle: &Cycle<'_>, row: Row) -> Option<(i64, i64)> {
        let (lean, [restore]) = (self.lean.as_ref()?, framework.restores.as_slice()) else { return None };
        let is_usual = self.glanced.is_some() && self.is_of_states();
        let glance = if is_usual { restore.glance(cycle, row)? } else { return None };
        let (columns, at, lifted) = (&cycle.cluster.columns, row.index(), glance.lifted);
        let is_suspect = columns.taint_set[at] != 0
            || columns.is_unschedulable[at]
            || columns.overdrawn[at] != lifted.overdrawn;
        let storage_free = columns.storage.free(row) + lifted.amounts.get(ResourceId::EPHEMERAL_STORAGE);
        if is_suspect || lean.storage > storage_free && lean.storage > 0 || columns.pods.free(row) < 0 {
            return None;
        }
        let amounts = Amounts {
            allocatable_cpu: columns.cpu.allocatable[at],
            allocatable_memory: columns.memory.allocatable[at],
            used_cpu: columns.cpu.requested[at] - lifted.amounts.get(ResourceId::CPU),
            used_memory: columns.memory.requested[at] - lifted.amounts.get(ResourceId::MEMORY),
            nonzero_cpu: columns.nonzero_cpu[at] - lifted.nonzero_cpu_milli,
            nonzero_memory: columns.nonzero_memory[at] - lifted.nonzero_memory,
        };
        let total = amounts.are_regular().then(|| lean.ask.total(&amounts))?;
        (total >= 0.0).then(|| (truncated(total), glance.score))
    }

    /// A verdict that is told later, by its text.
    pub(super) fn number(&mut self, status: Status) -> u32 {
        self.verdicts.number(status)
    }

    /// All verdicts there have been, by number.
    pub(super) fn statuses(&self) -> &[Status] {
        &self.verdicts.statuses
    }

    /// The row's verdict again, with the numbers of today.
    pub(super) fn told(&self, framework: &Framework, cycle: &Cycle<'_>, row: Row, number: u32) -> Status {
        let known = &self.verdicts.statuses[usize::try_from(number).unwrap_or(0)];
        let checks = self.checks.iter().chain(&self.late);
        let again = checks.into_iter().find_map(|(plugin, _)| asked(framework, *plugin, cycle, row));
        again.filter(|status| status.reads_like(known)).unwrap_or_else(|| known.clone())
    }
}

/// What pods of a class ask for; none when the amounts are too large to be computed with.
fn ask(class: &Class, fused: Fused) -> Option<Ask> {
    let requests = &class.requests;
    let (cpu, memory) = (requests.amounts.get(ResourceId::CPU), requests.amounts.get(ResourceId::MEMORY));
    let (nonzero_cpu, nonzero_memory) = (requests.scored_cpu_milli, requests.scored_memory);
    if ![cpu, memory, nonzero_cpu, nonzero_memory].into_iter().all(is_exact) {
        return None;
    }
    // What is not asked for fits even where more is taken than there is.
    let floor = |amount: i64| if amount > 0 { nearest(amount) } else { f64::MIN };
    Some(Ask {
        cpu_floor: floor(cpu),
        memory_floor: floor(memory),
        cpu: nearest(cpu),
        memory: nearest(memory),
        nonzero_cpu: nearest(nonzero_cpu),
        nonzero_memory: nearest(nonzero_memory),
        least_weight: nearest(fused.least_weight),
        cpu_weight: nearest(fused.cpu_weight),
        memory_weight: nearest(fused.memory_weight),
        balanced_weight: nearest(fused.balanced_weight),
    })
}

impl Check {
    /// Whether nodes in the same state are judged the same.
    fn is_plain(&self) -> bool {
        let is_common = |id: &ResourceId| {
            matches!(*id, ResourceId::CPU | ResourceId::MEMORY | ResourceId::EPHEMERAL_STORAGE)
        };
        match self {
            Check::Cordoned | Check::Taints => true,
            Check::Room(room) => room.wanted.iter().all(|(id, _)| is_common(id)),
            Check::Row => false,
        }
    }

    /// The number of the verdict, if the row is refused.
    fn refusal(
        &self,
        verdicts: &mut Verdicts,
        framework: &Framework,
        plugin: usize,
        cycle: &Cycle<'_>,
        row: Row,
    ) -> Option<u32> {
        let columns = &cycle.cluster.columns;
        let code = match self {
            Check::Cordoned if !columns.is_unschedulable[row.index()] => return None,
            Check::Cordoned => 0,
            Check::Room(room) => match room.shortage(columns, row) {
                0 => return None,
                lacking => lacking,
            },
            Check::Taints => match columns.taint_set[row.index()] {
                0 => return None,
                set => u64::from(set),
            },
            Check::Row => return asked(framework, plugin, cycle, row).map(|status| verdicts.number(status)),
        };
        match verdicts.codes.get(&(plugin, code)) {
            Some(number) => Some(*number).filter(|number| *number != Verdicts::PASSED),
            None => {
                let status = asked(framework, plugin, cycle, row);
                let number = status.map_or(Verdicts::PASSED, |status| verdicts.number(status));
                verdicts.codes.insert((plugin, code), number);
                Some(number).filter(|number| *number != Verdicts::PASSED)
            }
        }
    }
}

impl Fused {
    /// Sums of products with such weights are exact in doubles.
    const WEIGHT_MAX: i64 = 1 << 20;
}

impl Verdicts {
    /// For what passed after all.
    const PASSED: u32 = u32::MAX;

    fn number(&mut self, status: Status) -> u32 {
        let known = self.statuses.iter().position(|known| known.reads_like(&status));
        let at = known.unwrap_or_else(|| {
            self.statuses.push(status);
            self.statuses.len() - 1
        });
        u32::try_from(at).unwrap_or(0)
    }
}

fn asked(framework: &Framework, plugin: usize, cycle: &Cycle<'_>, row: Row) -> Option<Status> {
    let filter = framework.filters.get(plugin)?.filter.as_ref()?;
    filter.check(cycle, &NodeView::of(cycle.cluster, row)).err()
}
