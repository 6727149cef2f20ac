//! TaintToleration: hard taints keep pods off, soft ones make nodes less wanted. Spec: scheduler-core 6.3.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;

use crate::cluster::{Cluster, Node, Row};
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::hooks::normalize_by_max;
use crate::framework::parts::{FilterPart, Normal, ScorePart};
use crate::framework::{
    Change, Code, Cycle, Demand, Facts, Filter, HintInput, Hooks, NodeView, Reason, Scope, Score, Sieve,
    Status, wakes_if,
};
use crate::pod::Class;

pub const NAME: &str = "TaintToleration";

/// How a refusal reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wording {
    /// As kube-scheduler 1.35.
    #[default]
    Plain,
    /// As kube-scheduler up to 1.34, with the taint: tools and people use it.
    Named,
}

pub fn build(wording: Wording) -> Hooks {
    let plugin = Arc::new(TaintToleration { wording });
    Hooks::new(NAME).filter(plugin.clone()).score(plugin).woken_by(vec![
        Registration::with(Resource::Node, Action::ADD | Action::UPDATE_NODE_TAINT, wakes_if(after_node)),
        Registration::with(Resource::Pod, Action::UPDATE_POD_TOLERATION, wakes_if(|input| input.is_own())),
    ])
}

/// A node that the pod tolerates came, or one changed into such a node.
fn after_node(input: &HintInput<'_>) -> bool {
    let Change::Node { old, new: Some(new) } = input.change else { return true };
    let is_tolerated = |node: &Node| untolerated(&input.pod.class, &node.taints).is_none();
    is_tolerated(new) && !old.as_deref().is_some_and(is_tolerated)
}

struct TaintToleration {
    wording: Wording,
}

impl TaintToleration {
    fn refusal(&self, taint: &Taint) -> Status {
        let value = taint.value.as_deref().unwrap_or_default();
        let facts = Facts::Taint {
            key: taint.key.as_str().into(),
            value: value.into(),
            effect: taint.effect.as_str().into(),
        };
        let reason = match self.wording {
            Wording::Plain => Reason::with("node(s) had untolerated taint(s)", facts),
            Wording::Named => {
                Reason::with(format!("node(s) had untolerated taint {{{}: {value}}}", taint.key), facts)
            }
        };
        Status::new(Code::Unresolvable, NAME, reason)
    }
}

/// The first taint that keeps the pod off.
fn untolerated<'a>(class: &Class, taints: &'a [Taint]) -> Option<&'a Taint> {
    let mut hard = taints.iter().filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
    hard.find(|taint| !class.tolerates(taint, |_| true))
}

/// How many soft taints the pod does not tolerate.
fn soft_count(class: &Class, taints: &[Taint]) -> i64 {
    let counts = |effect: &str| effect.is_empty() || effect == "PreferNoSchedule";
    let soft = taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    let left = soft.filter(|taint| !class.tolerates(taint, |toleration| counts(&toleration.effect)));
    i64::try_from(left.count()).unwrap_or(i64::MAX)
}

impl Filter for TaintToleration {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    fn demand(&self, _cycle: &Cycle<'_>) -> Demand {
        Demand::Nothing
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        untolerated(&cycle.pod.class, &node.node().taints).map_or(Ok(()), |taint| Err(self.refusal(taint)))
    }

    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        let sets = cycle.cluster.taint_sets();
        if sets.is_empty() {
            return;
        }
        let mut verdicts = vec![None; sets.len()];
        for (id, set) in sets.used() {
            let verdict =
                untolerated(&cycle.pod.class, &set.taints).map(|taint| sieve.verdict(self.refusal(taint)));
            verdicts[usize::try_from(id).unwrap_or(0)] = verdict;
        }
        if verdicts.iter().all(Option::is_none) {
            return;
        }
        let sets = &cycle.cluster.columns.taint_set;
        sieve.retain_numbered(|row| verdicts[usize::try_from(sets[row.index()]).unwrap_or(0)]);
    }

    fn part(&self, _cluster: &Cluster, _class: &Arc<Class>) -> FilterPart {
        FilterPart::Taints
    }
}

impl Score for TaintToleration {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        soft_count(&cycle.pod.class, &node.node().taints)
    }

    fn rate(&self, cycle: &Cycle<'_>, rows: &[Row], out: &mut [i64]) {
        let sets = cycle.cluster.taint_sets();
        out.fill(0);
        if sets.is_empty() {
            return;
        }
        let mut counts = vec![0; sets.len()];
        for (id, set) in sets.used() {
            counts[usize::try_from(id).unwrap_or(0)] = soft_count(&cycle.pod.class, &set.taints);
        }
        let sets = &cycle.cluster.columns.taint_set;
        for (row, score) in rows.iter().zip(out) {
            *score = counts[usize::try_from(sets[row.index()]).unwrap_or(0)];
        }
    }

    fn normalize(&self, _cycle: &Cycle<'_>, _rows: &[Row], scores: &mut [i64]) {
        normalize_by_max(scores, true);
    }

    fn part(&self, _cluster: &Cluster, _class: &Arc<Class>) -> ScorePart {
        ScorePart::Taints(Normal::ByMax { is_reversed: true })
    }
}
