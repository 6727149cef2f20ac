//! Every plugin asked about every node: what stands against a pod, not only the first thing of it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::cluster::{Cluster, Row};
use crate::framework::{
    Code, Cycle, Delta, Facts, Filter, NodeView, PluginName, Preparation, Reason, Status,
};
use crate::plugins::{load_aware, taint_toleration};
use crate::pod::Pod;
use crate::schedule::{Framework, Nominated};

/// Nodes shown as the nearest.
pub(crate) const NEAREST: usize = 3;

/// Whom a pod is tried on, and by whom.
#[derive(Clone, Copy)]
pub(crate) struct Judges<'a> {
    pub(crate) framework: &'a Framework,
    pub(crate) nominated: &'a Nominated,
    pub(crate) cluster: &'a Cluster,
    /// All nodes, in visiting order.
    pub(crate) order: &'a [Row],
}

/// One pod, tried on single nodes without consequences.
pub(crate) struct Trial<'a> {
    judges: Judges<'a>,
    cycle: Cycle<'a>,
    asked: Vec<(PluginName, &'a Arc<dyn Filter>)>,
    /// What is said about the pod whatever the node.
    refusals: Vec<Status>,
    /// Nodes outside of these do not come into question.
    only: Vec<(PluginName, HashSet<Row>)>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(judges: Judges<'a>, pod: &'a Arc<Pod>) -> Trial<'a> {
        let mut cycle = Cycle::new(judges.cluster, pod);
        let (mut refusals, mut only, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for hooks in &judges.framework.pre_filters {
            let Some(plugin) = &hooks.pre_filter else { continue };
            match plugin.prepare(&mut cycle) {
                Ok(Preparation::Go) => {}
                Ok(Preparation::Skip) => silent.push(hooks.name),
                Ok(Preparation::Only(rows)) => only.push((hooks.name, rows.into_iter().collect())),
                Err(status) => {
                    silent.push(hooks.name);
                    refusals.push(status);
                }
            }
        }
        let filters = judges.framework.filters.iter().filter(|hooks| !silent.contains(&hooks.name));
        let asked = filters.filter_map(|hooks| Some((hooks.name, hooks.filter.as_ref()?))).collect();
        Trial { judges, cycle, asked, refusals, only }
    }

    /// The same without the pods that are promised nodes.
    pub(super) fn cycle(&self) -> &Cycle<'a> {
        &self.cycle
    }

    /// Everything that is said against one node, in the order plugins are asked.
    fn verdicts(&self, row: Row) -> Vec<Status> {
        let mut verdicts = Vec::new();
        for (plugin, _) in self.only.iter().filter(|(_, rows)| !rows.contains(&row)) {
            let text = format!("node(s) didn't satisfy plugin(s) [{plugin}]");
            verdicts.push(Status::unresolvable(plugin, text));
        }
        let seen = self.judges.framework.seen(&self.cycle, row);
        if let Some((cycle, delta)) = self.beside_promised(&self.cycle, row, &seen) {
            self.ask(&cycle, &NodeView::supposing(self.judges.cluster, row, &delta), &mut verdicts);
        }
        self.ask(&self.cycle, &NodeView::supposing(self.judges.cluster, row, &seen), &mut verdicts);
        verdicts
    }

    fn ask(&self, cycle: &Cycle<'_>, node: &NodeView<'_>, verdicts: &mut Vec<Status>) {
        for (name, plugin) in &self.asked {
            if verdicts.iter().any(|status| status.plugin == *name) {
                continue;
            }
            if let Err(status) = plugin.check(cycle, node) {
                verdicts.push(with_all_taints(cycle, node, status));
            }
        }
    }

    /// The node as it will be when those have come whom it is promised; none when nobody is.
    fn beside_promised(&self, cycle: &Cycle<'a>, row: Row, delta: &Delta) -> Option<(Cycle<'a>, Delta)> {
        let promised = || self.judges.nominated.before(self.cycle.pod, row);
        promised().next()?;
        let (mut supposed, mut delta) = (cycle.clone(), delta.clone());
        for other in promised() {
            delta.add(self.judges.cluster, row, other);
            for plugin in
                self.judges.framework.pre_filters.iter().filter_map(|hooks| hooks.pre_filter.as_ref())
            {
                plugin.add_pod(&mut supposed, other, row);
            }
        }
        Some((supposed, delta))
    }

    /// Whether the pod fits on a node once one pod there is gone, or as it is.
    pub(super) fn fits(&self, row: Row, gone: Option<&Arc<Pod>>) -> bool {
        if !self.comes_into_question(row) {
            return false;
        }
        let mut delta = self.judges.framework.seen(&self.cycle, row);
        let Some(gone) = gone else { return self.fits_with(&self.cycle, row, &delta) };
        let mut cycle = self.cycle.clone();
        delta.remove(self.judges.cluster, row, gone);
        self.suppose_gone(&mut cycle, gone, row);
        self.fits_with(&cycle, row, &delta)
    }

    pub(super) fn suppose_gone(&self, cycle: &mut Cycle<'a>, gone: &Arc<Pod>, row: Row) {
        for plugin in self.judges.framework.pre_filters.iter().filter_map(|hooks| hooks.pre_filter.as_ref()) {
            plugin.remove_pod(cycle, gone, row);
        }
    }

    pub(super) fn comes_into_question(&self, row: Row) -> bool {
        self.refusals.is_empty() && self.only.iter().all(|(_, rows)| rows.contains(&row))
    }

    fn fits_with(&self, cycle: &Cycle<'a>, row: Row, delta: &Delta) -> bool {
        let beside = self.beside_promised(cycle, row, delta);
        beside.is_none_or(|(cycle, delta)| self.passes(&cycle, row, &delta)) && self.passes(cycle, row, delta)
    }

    /// Whether all plugins let the node pass as it is supposed to be.
    pub(super) fn passes(&self, cycle: &Cycle<'a>, row: Row, delta: &Delta) -> bool {
        let node = NodeView::supposing(self.judges.cluster, row, delta);
        self.asked.iter().all(|(_, plugin)| plugin.check(cycle, &node).is_ok())
    }

    /// The same for a node that does not exist yet, so that nobody has measured its load.
    pub(super) fn passes_if_new(&self, cycle: &Cycle<'a>, row: Row, delta: &Delta) -> bool {
        let node = NodeView::supposing(self.judges.cluster, row, delta);
        let mut asked = self.asked.iter().filter(|(name, _)| *name != load_aware::NAME);
        asked.all(|(_, plugin)| plugin.check(cycle, &node).is_ok())
    }
}

/// A node is refused for the first taint; people want to know of all.
fn with_all_taints(cycle: &Cycle<'_>, node: &NodeView<'_>, status: Status) -> Status {
    if status.plugin != taint_toleration::NAME {
        return status;
    }
    let Some(text) = status.reasons.first().map(|reason| reason.text.clone()) else { return status };
    let hard = |effect: &str| effect == "NoSchedule" || effect == "NoExecute";
    let taints = node.node().taints.iter().filter(|taint| hard(&taint.effect));
    let reasons = taints.filter(|taint| !cycle.pod.class.tolerates(taint, |_| true)).map(|taint| {
        let facts = Facts::Taint {
            key: taint.key.as_str().into(),
            value: taint.value.as_deref().unwrap_or_default().into(),
            effect: taint.effect.as_str().into(),
        };
        Reason::with(text.clone(), facts)
    });
    Status { reasons: reasons.collect(), ..status }
}

/// What stands against a pod on every node.
pub(crate) struct Survey {
    /// About the pod itself.
    pub(crate) pod: Vec<Status>,
    /// Nodes that could take it.
    pub(crate) fit: Vec<Row>,
    /// The others, in visiting order.
    pub(crate) unfit: Vec<Against>,
}

/// What stands against one node.
pub(crate) struct Against {
    pub(crate) row: Row,
    /// In the order plugins are asked; the first one is what the message counts.
    pub(crate) verdicts: Vec<Status>,
}

impl Survey {
    pub(crate) fn of(judges: Judges<'_>, pod: &Arc<Pod>) -> Survey {
        let trial = Trial::new(judges, pod);
        let mut survey = Survey { pod: trial.refusals.clone(), fit: Vec::new(), unfit: Vec::new() };
        for row in judges.order {
            let verdicts = trial.verdicts(*row);
            if verdicts.is_empty() && survey.pod.is_empty() {
                survey.fit.push(*row);
            } else {
                survey.unfit.push(Against { row: *row, verdicts });
            }
        }
        survey
    }

    pub(crate) fn node_count(&self) -> usize {
        self.fit.len() + self.unfit.len()
    }

    /// Nodes that nobody but these plugins speaks against.
    pub(super) fn only_against(&self, plugins: &[PluginName]) -> Vec<&Against> {
        let blames = |status: &Status| plugins.contains(&status.plugin);
        if !self.pod.iter().all(blames) {
            return Vec::new();
        }
        self.unfit.iter().filter(|against| against.verdicts.iter().all(blames)).collect()
    }

    /// The nodes that lack the least, the nearest first.
    pub(crate) fn nearest(&self, cluster: &Cluster, count: usize) -> Vec<&Against> {
        let mut all: Vec<(Distance, &str, &Against)> = self
            .unfit
            .iter()
            .map(|against| (against.distance(), &*cluster.node(against.row).name, against))
            .collect();
        let by_distance =
            |a: &(Distance, &str, &Against), b: &(Distance, &str, &Against)| (a.0, a.1).cmp(&(b.0, b.1));
        if all.len() > count && count > 0 {
            all.select_nth_unstable_by(count - 1, by_distance);
            all.truncate(count);
        }
        all.sort_by(by_distance);
        all.into_iter().map(|(_, _, against)| against).collect()
    }
}

/// How far a node is from taking the pod: fewer checks first, then how much of what is wanted is missing.
type Distance = (usize, i64);

impl Against {
    fn distance(&self) -> Distance {
        let reasons = || self.verdicts.iter().flat_map(|status| &status.reasons);
        let missing = reasons().map(|reason| match &reason.facts {
            Facts::Shortage { wanted, used, allocatable, .. } => {
                let missing = wanted.saturating_sub(allocatable.saturating_sub(*used)).max(0);
                let share = i128::from(missing) * 1_000_000 / i128::from((*wanted).max(1));
                i64::try_from(share).unwrap_or(i64::MAX)
            }
            Facts::Domain { count, limit, .. } => count.saturating_sub(*limit).max(0).saturating_mul(100_000),
            Facts::Load(load) => load.expected.saturating_sub(load.threshold).max(0).saturating_mul(10_000),
            // Nothing to measure: as far as all of what is wanted.
            _ => 1_000_000,
        });
        (reasons().count(), missing.fold(0i64, i64::saturating_add))
    }

    /// Whether taking pods away might help.
    pub(super) fn is_curable(&self) -> bool {
        self.verdicts.iter().all(|status| status.code == Code::Unschedulable)
    }

    /// What it lacks of resources: name, how much is missing.
    pub(super) fn shortages(&self) -> Vec<(&str, i64)> {
        let reasons = self.verdicts.iter().flat_map(|status| &status.reasons);
        reasons
            .filter_map(|reason| match &reason.facts {
                Facts::Shortage { resource, wanted, used, allocatable } => {
                    Some((&**resource, wanted.saturating_sub(allocatable.saturating_sub(*used))))
                }
                _ => None,
            })
            .collect()
    }
}
