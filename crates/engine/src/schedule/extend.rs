//! What extenders have to say in an attempt: nodes, scores, and whether room may be made. Spec: scheduler-core 3.5.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::search::Found;
use crate::cluster::{Cluster, Row};
use crate::engine::command::Subject;
use crate::extender::{Candidate, Extender, Extenders, NAME, SCORE_SCALE};
use crate::framework::{Code, Cycle, Nominating, PostFiltered, Preemption, Status};
use crate::pod::Pod;

/// Whether any of them has a say about the pod.
pub(super) fn concerns(extenders: &Extenders, cluster: &Cluster, pod: &Pod) -> bool {
    extenders.iter().any(|extender| extender.terms().interests(cluster, pod))
}

fn interested<'e>(
    extenders: &'e mut Extenders,
    cycle: &Cycle<'e>,
) -> impl Iterator<Item = &'e mut Box<dyn Extender>> {
    let (cluster, pod) = (cycle.cluster, cycle.pod);
    extenders.iter_mut().filter(move |extender| extender.terms().interests(cluster, pod))
}

fn names(cluster: &Cluster, rows: &[Row]) -> Vec<Box<str>> {
    rows.iter().map(|row| cluster.node(*row).name.clone()).collect()
}

/// Takes out of the nodes that passed those that extenders refuse; each sees what the one before it left.
pub(super) fn narrow(extenders: &mut Extenders, cycle: &Cycle<'_>, found: &mut Found) -> Result<(), Status> {
    let subject = Subject::of(cycle.pod);
    for extender in interested(extenders, cycle).filter(|extender| extender.terms().filters) {
        if found.feasible.is_empty() {
            break;
        }
        let answer = match extender.filter(&subject, &names(cycle.cluster, &found.feasible)) {
            Ok(answer) => answer,
            Err(_) if extender.terms().is_ignorable => continue,
            Err(text) => return Err(Status::error(NAME, text)),
        };
        let passed: HashSet<&str> = answer.passed.iter().map(|name| &**name).collect();
        for row in std::mem::take(&mut found.feasible) {
            let name = &*cycle.cluster.node(row).name;
            let said = |by: &BTreeMap<Box<str>, String>| by.get(name).cloned();
            if passed.contains(name) {
                found.feasible.push(row);
            } else if let Some(text) = said(&answer.unresolvable) {
                found.sieve.judge(row, Err(Status::unresolvable(NAME, text)));
            } else if let Some(text) = said(&answer.failed) {
                found.sieve.judge(row, Err(Status::unschedulable(NAME, text)));
            } else {
                // It is out without a word, and nobody knows whether preemption would help.
                let silent = Status { code: Code::Unresolvable, reasons: Vec::new(), plugin: NAME };
                found.sieve.judge(row, Err(silent));
            }
        }
    }
    Ok(())
}

/// Adds the scores of extenders to the totals. Those that fail give none.
pub(super) fn add_scores(extenders: &mut Extenders, cycle: &Cycle<'_>, rows: &[Row], totals: &mut [i64]) {
    let subject = Subject::of(cycle.pod);
    let mut asked: Option<Vec<Box<str>>> = None;
    for extender in interested(extenders, cycle) {
        let Some(weight) = extender.terms().weight else { continue };
        let asked = asked.get_or_insert_with(|| names(cycle.cluster, rows));
        let Ok(scores) = extender.prioritize(&subject, asked) else { continue };
        // A node that is named twice counts twice, as upstream adds up what it is told.
        let mut sums: HashMap<&str, i64> = HashMap::new();
        for (name, score) in &scores {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(score.saturating_mul(weight).saturating_mul(SCORE_SCALE));
        }
        for (name, total) in asked.iter().zip(totals.iter_mut()) {
            *total = total.saturating_add(sums.get(&**name).copied().unwrap_or_default());
        }
    }
}

/// Lets extenders have their say about the room that is to be made. Spec: scheduler-core 6.13.5.
// Differs: upstream offers every candidate before the best is taken; here it is the best alone, and one that drops it
// ends this try. Keeping all candidates would cost every preemption what few need.
pub(super) fn approve(extenders: &mut Extenders, cycle: &Cycle<'_>, answer: PostFiltered) -> PostFiltered {
    let plugin = answer.status.plugin;
    let Some(mut preemption) = answer.preemption.clone() else { return answer };
    let subject = Subject::of(cycle.pod);
    let node = &cycle.cluster.node(preemption.row).name;
    for extender in interested(extenders, cycle).filter(|extender| extender.terms().preempts) {
        let candidate = Candidate {
            node: node.clone(),
            victims: preemption.victims.iter().map(|victim| Subject::of(victim)).collect(),
            violations: preemption.violations,
        };
        let is_ignorable = extender.terms().is_ignorable;
        let said = extender.preempt(&subject, &candidate);
        match said.and_then(|kept| kept.map(|kept| replaced(cycle, preemption.row, &kept)).transpose()) {
            Ok(Some(kept)) if !kept.victims.is_empty() => preemption = kept,
            Ok(Some(_)) if !is_ignorable => {
                let text = format!("preemption: expected at least one victim pod on node {node:?}");
                return refused(Status::error(plugin, text));
            }
            Ok(_) => {
                return refused(Status::unschedulable(
                    plugin,
                    "preemption: no candidate node for preemption",
                ));
            }
            Err(_) if is_ignorable => {}
            Err(text) => return refused(Status::error(plugin, format!("preemption: {text}"))),
        }
    }
    PostFiltered { preemption: Some(preemption), ..answer }
}

fn refused(status: Status) -> PostFiltered {
    PostFiltered { status, nominating: Nominating::Keep, preemption: None }
}

/// The victims that an extender names, most important first.
fn replaced(cycle: &Cycle<'_>, row: Row, kept: &Candidate) -> Result<Preemption, String> {
    let all = &cycle.cluster.node(row).pods.all;
    for named in &kept.victims {
        if !all.iter().any(|pod| pod.uid == named.uid) {
            return Err(format!(
                "an extender claims to preempt pod (UID: {}) on node: {}, but the pod is not found on that node",
                named.uid, kept.node
            ));
        }
    }
    let is_named = |pod: &&Arc<Pod>| kept.victims.iter().any(|named| named.uid == pod.uid);
    let victims = all.iter().filter(is_named).cloned().collect();
    Ok(Preemption { row, victims, violations: kept.violations })
}

/// Whether extenders choose among several nodes: then one that passes is not enough.
pub(super) fn choose(extenders: &Extenders) -> bool {
    extenders.iter().any(|extender| {
        let terms = extender.terms();
        terms.filters || terms.weight.is_some()
    })
}
