//! What users are told of reservations when a pod fits nowhere. Spec: scheduler-reservation-loadaware A7.5.

use std::collections::BTreeMap;

use super::seek::{Mismatch, Seeker};
use crate::cluster::Row;
use crate::framework::Status;
use crate::schedule::Diagnosis;

/// How the reservations of one node fared, of those that the pod owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) owned: i64,
    pub(super) named: i64,
    pub(super) other_names: i64,
    pub(super) unschedulable: i64,
    pub(super) affinity: i64,
    pub(super) not_exact: i64,
    pub(super) taints: BTreeMap<String, i64>,
}

impl Tally {
    fn count(&mut self, mismatch: Option<Mismatch>, has_name: bool) {
        self.owned += 1;
        self.named += i64::from(has_name && mismatch != Some(Mismatch::Name));
        match mismatch {
            None => {}
            Some(Mismatch::Name) => self.other_names += 1,
            Some(Mismatch::Unschedulable) => self.unschedulable += 1,
            Some(Mismatch::Taint(taint)) => *self.taints.entry(taint).or_default() += 1,
            Some(Mismatch::Affinity) => self.affinity += 1,
            Some(Mismatch::Exact) => self.not_exact += 1,
        }
    }

    /// Those that only the node kept from the pod.
    fn left(&self) -> i64 {
        let taints: i64 = self.taints.values().sum();
        self.owned - self.other_names - self.unschedulable - self.affinity - self.not_exact - taints
    }

    fn add(&mut self, other: &Tally) {
        self.owned += other.owned;
        self.named += other.named;
        self.other_names += other.other_names;
        self.unschedulable += other.unschedulable;
        self.affinity += other.affinity;
        self.not_exact += other.not_exact;
        for (taint, count) in &other.taints {
            *self.taints.entry(taint.clone()).or_default() += count;
        }
    }
}

/// The tallies of all nodes that have something for the pod.
pub(super) fn tallies(seeker: &Seeker<'_>) -> BTreeMap<Row, Tally> {
    let mut tallies: BTreeMap<Row, Tally> = BTreeMap::new();
    if seeker.is_ignoring() {
        return tallies;
    }
    let has_name = seeker.wanted_name().is_some();
    for (entry, row) in seeker.allowed() {
        tallies.entry(row).or_default().count(seeker.mismatch(entry), has_name);
    }
    tallies
}

/// What is told, in this order; nothing when no reservation is the pod's and it needs none.
pub(super) fn reasons<'a>(
    tallies: &BTreeMap<Row, Tally>,
    verdict: impl Fn(Row) -> Option<&'a Status>,
    has_affinity: bool,
) -> Vec<String> {
    let mut all = Tally::default();
    let mut by_nodes: BTreeMap<&str, i64> = BTreeMap::new();
    for (row, tally) in tallies {
        all.add(tally);
        let reasons = verdict(*row).map_or(&[][..], |status| &status.reasons);
        let (own, others): (Vec<_>, Vec<_>) =
            reasons.iter().partition(|reason| reason.text.starts_with("Reservation(s) "));
        let left = tally.left() - i64::try_from(own.len()).unwrap_or(i64::MAX);
        if left > 0 {
            others.iter().for_each(|reason| *by_nodes.entry(&reason.text).or_default() += left);
        }
    }
    if all.owned == 0 && !has_affinity {
        return Vec::new();
    }
    let counts = [
        (all.named, "exactly matches the requested reservation name"),
        (all.other_names, "didn't match the requested reservation name"),
        (all.affinity, "didn't match affinity rules"),
        (all.unschedulable, "is unschedulable"),
        (all.not_exact, "is not exact matched"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let mut told: Vec<String> =
        counts.map(|(count, text)| format!("{count} Reservation(s) {text}")).collect();
    let taints = all
        .taints
        .iter()
        .map(|(taint, count)| format!("{count} Reservation(s) had untolerated taint {taint}"));
    told.extend(taints);
    let nodes = by_nodes.iter();
    told.extend(nodes.map(|(text, count)| format!("{count} Reservation(s) for node reason that {text}")));
    told.push(format!("{} Reservation(s) matched owner total", all.owned));
    told
}

/// The verdict that a diagnosis has on a node.
pub(super) fn verdict_on(diagnosis: &Diagnosis, row: Row) -> Option<&Status> {
    diagnosis.nodes.rejected().find(|(known, _)| *known == row).map(|(_, status)| status)
}
