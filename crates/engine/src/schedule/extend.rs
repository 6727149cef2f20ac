//! What extenders have to say in an attempt: nodes, scores, and whether room may be made. Spec: scheduler-core 3.5.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::search::Found;
use crate::cluster::{Cluster, Row};
use crate::engine::command::Subject;
use crate::extender::{Candidate, Extender, Extenders, Kept, NAME, SCORE_SCALE};
use crate::framework::{Agreement, Code, Cycle, Preemption, Status};
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

/// What extenders say about room that is to be made for a pod. Spec: scheduler-core 6.13.5.
pub(super) struct Say<'a> {
    extenders: RefCell<&'a mut Extenders>,
    cycle: &'a Cycle<'a>,
}

impl<'a> Say<'a> {
    /// None when nobody wants to be asked about the pod.
    pub(super) fn about_room(extenders: &'a mut Extenders, cycle: &'a Cycle<'a>) -> Option<Say<'a>> {
        let is_asked = extenders.iter().any(|extender| is_asked_about_room(&**extender, cycle));
        is_asked.then(|| Say { extenders: RefCell::new(extenders), cycle })
    }
}

fn is_asked_about_room(extender: &dyn Extender, cycle: &Cycle<'_>) -> bool {
    extender.terms().preempts && extender.terms().interests(cycle.cluster, cycle.pod)
}

impl Agreement for Say<'_> {
    /// Each sees what the one before it left.
    fn agree(&self, mut candidates: Vec<Preemption>) -> Result<Vec<Preemption>, String> {
        let (subject, cluster) = (Subject::of(self.cycle.pod), self.cycle.cluster);
        for extender in self.extenders.borrow_mut().iter_mut() {
            if candidates.is_empty() {
                break;
            }
            if !is_asked_about_room(&**extender, self.cycle) {
                continue;
            }
            let asked: Vec<Candidate> = candidates.iter().map(|room| candidate(cluster, room)).collect();
            let said = extender.preempt(&subject, &asked);
            let rooms = said.and_then(|kept| kept.iter().map(|kept| replaced(cluster, kept)).collect());
            let is_ignorable = extender.terms().is_ignorable;
            let mut rooms: Vec<Preemption> = match rooms {
                Ok(rooms) => rooms,
                Err(_) if is_ignorable => continue,
                Err(text) => return Err(text),
            };
            let idle = rooms.iter().find(|room| room.victims.is_empty() && !is_ignorable);
            if let Some(idle) = idle {
                let node = &cluster.node(idle.row).name;
                return Err(format!("expected at least one victim pod on node {node:?}"));
            }
            rooms.retain(|room| !room.victims.is_empty());
            candidates = rooms;
        }
        Ok(candidates)
    }
}

fn candidate(cluster: &Cluster, room: &Preemption) -> Candidate {
    Candidate {
        node: cluster.node(room.row).name.clone(),
        victims: room.victims.iter().map(|victim| Subject::of(victim)).collect(),
        violations: room.violations,
    }
}

/// The room that an extender wants made, the most important victim first.
fn replaced(cluster: &Cluster, kept: &Kept) -> Result<Preemption, String> {
    let row = cluster.row(&kept.node).filter(|row| cluster.node(*row).is_real);
    let row = row.ok_or_else(|| format!("nodeinfo not found for node name {:?}", kept.node))?;
    let all = &cluster.node(row).pods.all;
    for named in &kept.victims {
        if !all.iter().any(|pod| pod.uid == *named) {
            return Err(format!(
                "an extender claims to preempt pod (UID: {named}) on node: {}, but the pod is not found on that node",
                kept.node
            ));
        }
    }
    let victims = all.iter().filter(|pod| kept.victims.contains(&pod.uid)).cloned().collect();
    Ok(Preemption { row, victims, violations: kept.violations })
}

/// Whether extenders choose among several nodes: then one that passes is not enough.
pub(super) fn choose(extenders: &Extenders) -> bool {
    extenders.iter().any(|extender| {
        let terms = extender.terms();
        terms.filters || terms.weight.is_some()
    })
}
