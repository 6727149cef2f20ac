//! Whether a pod fits into a reservation, and beyond it into the node. Spec: scheduler-reservation-loadaware A7.4, A8.

use std::collections::BTreeSet;
use std::sync::Arc;

use koord_api::resource::{ResourceId, ResourceVector};

use super::seek::Seeker;
use super::{NAME, Settings, reason};
use crate::cluster::columns::is_scalar;
use crate::cluster::reservations::{Entry, Source};
use crate::cluster::{Cluster, Row};
use crate::framework::{Code, Cycle, Facts, InReservation, NodeView, Reason, Status};
use crate::pod::reservation::Policy;

/// What is asked of nodes and reservations.
pub(super) fn asked(
    cluster: &Cluster,
    amounts: &ResourceVector,
    settings: &Settings,
) -> Vec<(ResourceId, i64)> {
    let is_asked = |(id, units): &(ResourceId, i64)| *units > 0 && is_checked(cluster, settings, *id);
    amounts.iter().filter(is_asked).collect()
}

/// Whether a resource counts when it is asked whether a pod fits.
pub(super) fn is_checked(cluster: &Cluster, settings: &Settings, id: ResourceId) -> bool {
    match id {
        ResourceId::CPU | ResourceId::MEMORY | ResourceId::EPHEMERAL_STORAGE => true,
        id => {
            let name = cluster.resources.name(id);
            is_scalar(name) && !settings.ignores(name)
        }
    }
}

/// A resource that a node is short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) id: ResourceId,
    pub(super) wanted: i64,
    pub(super) used: i64,
    pub(super) allocatable: i64,
}

/// What a node lacks for these amounts and one pod more, when so much is used there.
pub(super) fn lacking(
    node: &NodeView<'_>,
    asked: &[(ResourceId, i64)],
    used: impl Fn(ResourceId) -> i64,
) -> Vec<Shortage> {
    let pods = [(ResourceId::PODS, 1)];
    let all = asked.iter().chain(&pods).map(|(id, wanted)| {
        let used = if *id == ResourceId::PODS { node.requested(*id) } else { used(*id) };
        Shortage { id: *id, wanted: *wanted, used, allocatable: node.allocatable(*id) }
    });
    all.filter(|short| short.wanted > short.allocatable.saturating_sub(short.used)).collect()
}

/// A pod on a node with the reservations there that it may use. The node is seen without their pods.
pub(super) struct Fitting<'a> {
    pub(super) seeker: &'a Seeker<'a>,
    pub(super) cycle: &'a Cycle<'a>,
    pub(super) node: &'a NodeView<'a>,
    pub(super) matched: &'a [&'a Entry],
    pub(super) settings: &'a Settings,
    pub(super) partners: &'a [Arc<dyn InReservation>],
    asked: Vec<(ResourceId, i64)>,
}

impl<'a> Fitting<'a> {
    pub(super) fn new(
        seeker: &'a Seeker<'a>,
        cycle: &'a Cycle<'a>,
        node: &'a NodeView<'a>,
        matched: &'a [&'a Entry],
        settings: &'a Settings,
        partners: &'a [Arc<dyn InReservation>],
    ) -> Fitting<'a> {
        let asked = asked(seeker.cluster, &seeker.pod.class.requests.amounts, settings);
        Fitting { seeker, cycle, node, matched, settings, partners, asked }
    }

    /// What the node lacks when the pod uses this reservation, or none at all.
    fn node_lacks(&self, entry: Option<&Entry>) -> Vec<Shortage> {
        if entry.is_some() && self.settings.skips_node_fit && self.matched.len() <= 1 {
            return Vec::new();
        }
        lacking(self.node, &self.asked, |id| {
            let own = entry.map_or(0, |entry| available(entry, self.node.used(entry, id), id));
            // What the matched reservations together still hold.
            let held = self.matched.iter().map(|entry| rest(self.node, entry, id));
            let held = held.fold(0, i64::saturating_add);
            self.node.requested(id).saturating_add(held).saturating_sub(own)
        })
    }

    /// What a restricted reservation itself lacks.
    fn reservation_lacks(&self, entry: &Entry) -> Vec<Reason> {
        if entry.record.policy != Policy::Restricted {
            return Vec::new();
        }
        let is_detailed = self.seeker.wanted_name().is_some();
        let used = |id| self.node.used(entry, id);
        lacks(self.seeker.cluster, &self.asked, entry, (used, self.node.owners(entry)), is_detailed)
    }

    /// Whether a reservation has anything that the pod asks for.
    fn is_shared(&self, entry: &Entry) -> bool {
        let amounts = &self.seeker.pod.class.requests.amounts;
        entry.record.names.iter().any(|id| amounts.get(*id) > 0)
    }

    /// Everything that speaks against one reservation.
    fn refusals(&self, entry: &Entry) -> (Vec<Shortage>, Vec<Reason>) {
        let node = self.node_lacks(Some(entry));
        let mut own = self.reservation_lacks(entry);
        for partner in self.partners {
            if let Err(status) = partner.check(self.cycle, self.node, entry) {
                own.extend(status.reasons);
            }
        }
        (node, own)
    }

    /// Whether the pod can use a reservation, as nomination asks.
    pub(super) fn takes(&self, entry: &Entry) -> bool {
        if self.seeker.affinity().is_none() && !self.is_shared(entry) {
            return false;
        }
        let (node, own) = self.refusals(entry);
        node.is_empty() && own.is_empty()
    }

    /// The verdict on the node.
    pub(super) fn check(&self) -> Result<(), Status> {
        let must_use_one = self.seeker.affinity().is_some();
        let (mut short, mut own): (BTreeSet<&str>, Vec<Reason>) = (BTreeSet::new(), Vec::new());
        let mut facts = Vec::new();
        for entry in self.matched {
            if !must_use_one && !self.is_shared(entry) {
                continue;
            }
            let (node, reasons) = self.refusals(entry);
            if node.is_empty() && reasons.is_empty() {
                return Ok(());
            }
            for shortage in node {
                if short.insert(self.seeker.cluster.resources.name(shortage.id)) {
                    facts.push(shortage);
                }
            }
            own.extend(reasons);
        }
        if !must_use_one {
            own.clear();
            if facts.is_empty() {
                facts = self.node_lacks(None);
            }
            if facts.is_empty() {
                return Ok(());
            }
        }
        let mut reasons = node_reasons(self.seeker.cluster, facts);
        reasons.extend(own);
        if reasons.is_empty() {
            reasons.push(Reason::new(reason::NONE_MEETS));
        }
        Err(Status { code: Code::Unschedulable, reasons, plugin: NAME })
    }
}

/// What a reservation on a node still holds, as its pod counted before it was looked through.
fn rest(node: &NodeView<'_>, entry: &Entry, id: ResourceId) -> i64 {
    match entry.record.source {
        Source::Pod => entry.record.pod.class.requests.amounts.get(id),
        Source::Object => entry.rest_of(id, node.used(entry, id)),
    }
}

/// What owners may still take of a resource when they use so much.
fn available(entry: &Entry, used: i64, id: ResourceId) -> i64 {
    entry.left(id, used).saturating_sub(entry.record.inner.get(id)).max(0)
}

/// What a reservation lacks for these amounts and one owner more, in words.
pub(super) fn lacks(
    cluster: &Cluster,
    asked: &[(ResourceId, i64)],
    entry: &Entry,
    (used, owners): (impl Fn(ResourceId) -> i64, i64),
    is_detailed: bool,
) -> Vec<Reason> {
    let record = &entry.record;
    let detail = |wanted: i64, used: i64, capacity: i64| match is_detailed {
        true => format!(", requested: {wanted}, used: {used}, capacity: {capacity}"),
        false => String::new(),
    };
    let mut reasons = Vec::new();
    let pods = record.allocatable.get(ResourceId::PODS);
    if record.counts(ResourceId::PODS) && owners + 1 > pods {
        let text = format!("Reservation(s) Too many pods{}", detail(1, owners, pods));
        reasons.push(held_reason(entry, text));
    }
    for id in &record.names {
        let Some((_, wanted)) = asked.iter().find(|(known, _)| known == id) else { continue };
        let capacity = record.allocatable.get(*id).saturating_sub(record.inner.get(*id));
        let used = used(*id).max(0);
        if *wanted > capacity.saturating_sub(used) {
            let name = cluster.resources.name(*id);
            let text = format!("Reservation(s) Insufficient {name}{}", detail(*wanted, used, capacity));
            reasons.push(held_reason(entry, text));
        }
    }
    reasons
}

fn held_reason(entry: &Entry, text: String) -> Reason {
    Reason::with(text, Facts::Object { kind: "Reservation", name: entry.record.name.clone() })
}

/// Shortages of a node, ascending by name.
pub(super) fn node_reasons(cluster: &Cluster, mut short: Vec<Shortage>) -> Vec<Reason> {
    let table = &cluster.resources;
    short.sort_by_key(|shortage| table.name(shortage.id));
    let reasons = short.into_iter().map(|shortage| {
        let name = table.name(shortage.id);
        let facts = Facts::Shortage {
            resource: name.into(),
            wanted: shortage.wanted,
            used: shortage.used,
            allocatable: shortage.allocatable,
        };
        Reason::with(format!("Insufficient {name} by node"), facts)
    });
    reasons.collect()
}

/// The verdict on a node where the pod may use nothing, once others are supposed to be gone from it.
pub(super) fn check_cleared(
    cycle: &Cycle<'_>,
    node: &NodeView<'_>,
    settings: &Settings,
) -> Result<(), Status> {
    let has_reservations = |row: Row| cycle.cluster.reservations().are_on(row);
    if !node.is_cleared() || !has_reservations(node.row) {
        return Ok(());
    }
    let asked = asked(cycle.cluster, &cycle.pod.class.requests.amounts, settings);
    match lacking(node, &asked, |id| node.requested(id)).is_empty() {
        true => Ok(()),
        false => Err(Status::unschedulable(NAME, reason::PREEMPTION_FAILED)),
    }
}
