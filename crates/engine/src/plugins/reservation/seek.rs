//! Which reservations a pod may use: owners first, then what the pod and the reservation ask of each other.
//! Spec: scheduler-reservation-loadaware A6, A7.1.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use koord_api::annotation::reservation::{ReservationAffinity, ReservationLabels};

use super::Settings;
use crate::cluster::reservations::{Entry, Owned, ReservationId, Reservations};
use crate::cluster::{Cluster, Row};
use crate::framework::timing::IndexQuery;
use crate::pod::reservation::{Affinity, Wants};
use crate::pod::{Class, Pod};

/// A pod that looks for reservations.
pub(super) struct Seeker<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) pod: &'a Pod,
    pub(super) owned: Owned<'a>,
    wants: Option<&'a Wants>,
    settings: &'a Settings,
}

/// Why a reservation that the pod owns is not for it. The first one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    Name,
    Unschedulable,
    /// As it is told.
    Taint(String),
    Affinity,
    Exact,
}

impl<'a> Seeker<'a> {
    pub(super) fn new(cluster: &'a Cluster, pod: &'a Pod, settings: &'a Settings) -> Seeker<'a> {
        let owned = cluster.reservations().owned_by(pod, &cluster.names);
        Seeker { cluster, pod, owned, wants: pod.class.wants.as_deref(), settings }
    }

    fn reservations(&self) -> &'a Reservations {
        self.cluster.reservations()
    }

    /// It uses what reservations leave and is nobody's owner.
    pub(super) fn is_ignoring(&self) -> bool {
        self.wants.is_some_and(|wants| wants.is_ignoring)
    }

    /// It must use a reservation.
    pub(super) fn affinity(&self) -> Option<&'a Affinity> {
        self.wants.and_then(Wants::readable_affinity)
    }

    /// The one reservation that it wants, if it names one.
    pub(super) fn wanted_name(&self) -> Option<&'a str> {
        self.affinity().map(|affinity| affinity.spec.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Whether it sees any node otherwise than others do.
    pub(super) fn is_concerned(&self) -> bool {
        match self.is_ignoring() {
            true => !self.reservations().is_empty(),
            false => !self.owned.is_empty(),
        }
    }

    /// The reservations that it may use on a node, ascending by name.
    pub(super) fn matched_on(&self, row: Row) -> Vec<&'a Entry> {
        if !self.is_concerned() {
            return Vec::new();
        }
        self.matches_on(row).collect()
    }

    /// The same, one after the other.
    pub(super) fn matches_on<'s>(&'s self, row: Row) -> impl Iterator<Item = &'a Entry> + use<'s, 'a> {
        self.reservations().on(row).filter(|entry| self.matches(entry))
    }

    fn matches(&self, entry: &Entry) -> bool {
        let is_open = |entry: &Entry| self.owned.contains(entry.id) && self.mismatch(entry).is_none();
        entry.is_matchable && (self.is_ignoring() || is_open(entry))
    }

    /// Usable reservations on nodes that the pod could be on, owned or not as `is_meant` says; in the order they came.
    fn usable(&self, ids: impl Iterator<Item = ReservationId>) -> impl Iterator<Item = (&'a Entry, Row)> {
        let entries = ids.filter_map(|id| self.reservations().entry(id));
        let placed = entries.filter(|entry| entry.is_matchable).filter_map(|entry| Some((entry, entry.row?)));
        placed.filter(|(_, row)| is_reachable(self.cluster, &self.pod.class, *row))
    }

    /// The reservations that its owners allow it, with where they are. One that it names narrows them to that node.
    pub(super) fn allowed(&self) -> Vec<(&'a Entry, Row)> {
        let named = self.wanted_name().and_then(|name| self.reservations().by_name(name)?.row);
        let mut allowed: Vec<(&Entry, Row)> = self.usable(self.owned.iter()).collect();
        if let Some(named) = named {
            allowed.retain(|(_, row)| *row == named);
        }
        allowed
    }

    /// Nodes with reservations that it may use, ascending.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = match self.is_ignoring() {
            true => {
                self.reservations().all().filter(|entry| entry.is_matchable).filter_map(|e| e.row).collect()
            }
            false => {
                let selected = self.selected();
                let is_selected =
                    |id: ReservationId| selected.as_ref().is_none_or(|ids| ids.binary_search(&id).is_ok());
                let allowed = self.allowed().into_iter();
                let open =
                    allowed.filter(|(entry, _)| is_selected(entry.id) && self.mismatch(entry).is_none());
                open.map(|(_, row)| row).collect()
            }
        };
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// What the index of labels is asked for, where it is.
    // Differs: upstream asks the index though labels of nodes count too, and finds nothing where one of them is meant.
    fn selector(&self) -> Option<&'a BTreeMap<String, String>> {
        let affinity = self.affinity().filter(|_| self.settings.omits_node_labels)?;
        let is_asked = self.wanted_name().is_none() && !self.reservations().selectors().is_empty();
        is_asked.then_some(&affinity.spec.selector)
    }

    /// What the index of labels leaves of all reservations.
    fn selected(&self) -> Option<Vec<ReservationId>> {
        self.reservations().selectors().candidates(self.selector()?)
    }

    /// The question to the index of labels and what came of it; none when it is not asked.
    pub(super) fn index_query(&self) -> Option<IndexQuery> {
        let selected = self.reservations().selectors().candidates(self.selector()?);
        let rows = |ids: Vec<ReservationId>| -> BTreeSet<Row> {
            ids.into_iter().filter_map(|id| self.reservations().entry(id)?.row).collect()
        };
        Some(IndexQuery { candidates: selected.map(|ids| rows(ids).len()) })
    }

    /// The first thing that speaks against a reservation that the pod owns.
    pub(super) fn mismatch(&self, entry: &Entry) -> Option<Mismatch> {
        mismatch(self.cluster, self.pod, entry, entry.row, self.settings)
    }
}

/// Whether the pod's required node affinity lets it on a node.
fn is_reachable(cluster: &Cluster, class: &Class, row: Row) -> bool {
    let node = cluster.node(row);
    let is_pinned_there = class.pinned.as_ref().is_none_or(|pinned| pinned.contains(&node.name));
    let affinity = class.node_affinity.as_ref();
    node.is_real
        && is_pinned_there
        && affinity.is_none_or(|affinity| affinity.matches(&node.labels, &node.name).unwrap_or(false))
}

/// The first thing that speaks against a pod's use of a reservation, owners aside.
pub(super) fn mismatch(
    cluster: &Cluster,
    pod: &Pod,
    entry: &Entry,
    row: Option<Row>,
    settings: &Settings,
) -> Option<Mismatch> {
    let record = &entry.record;
    let wants = pod.class.wants.as_deref();
    let is_exact = || wants.is_none_or(|wants| is_exact(cluster, pod, wants, entry));
    let affinity = wants.and_then(Wants::readable_affinity);
    if let Some(name) = affinity.map(|affinity| &affinity.spec.name).filter(|name| !name.is_empty()) {
        return match **name == *record.name {
            false => Some(Mismatch::Name),
            true => (!is_exact()).then_some(Mismatch::Exact),
        };
    }
    let empty = ReservationAffinity::default();
    // Differs: upstream lets a pod without the annotation use a reservation whose taints it could not tolerate.
    let spec = affinity.map_or(&empty, |affinity| &*affinity.spec);
    if (record.is_unschedulable || record.is_deleting) && !spec.tolerates_unschedulable() {
        return Some(Mismatch::Unschedulable);
    }
    let hard =
        record.taints.iter().filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
    let mut untolerated = hard.filter(|taint| spec.untolerated(std::slice::from_ref(*taint)).is_some());
    if let Some(taint) = untolerated.next() {
        let value = taint.value.as_deref().unwrap_or_default();
        return Some(Mismatch::Taint(format!("{{{}: {value}}}", taint.key)));
    }
    let node = row.filter(|_| !settings.omits_node_labels).map(|row| &cluster.node(row).labels);
    let labels = ReservationLabels { reservation: Some(&record.labels), node };
    if affinity.is_some_and(|affinity| !affinity.compiled.matches(&record.name, &labels)) {
        return Some(Mismatch::Affinity);
    }
    (!is_exact()).then_some(Mismatch::Exact)
}

/// Whether the amounts that must be equal are; one that neither names is.
fn is_exact(cluster: &Cluster, pod: &Pod, wants: &Wants, entry: &Entry) -> bool {
    let Some(Ok(names)) = &wants.exact else { return true };
    // Differs: upstream ends with yes at the first name that both lack.
    names.iter().all(|name| {
        cluster
            .resources
            .id(name)
            .is_none_or(|id| pod.class.requests.amounts.get(id) == entry.record.allocatable.get(id))
    })
}

/// Whether a pod and the pods of reservations that it may use have a say in where the other goes, beyond their node: then
/// looking through them changes more than the rows they are on.
pub(super) fn is_entangled(cluster: &Cluster, pod: &Arc<Pod>, owned: &Owned<'_>) -> bool {
    let (class, matching) = (&pod.class, cluster.matching());
    let spread = if class.spread.is_empty() { cluster.default_spread(class) } else { None };
    let has_wishes = !class.spread.is_empty() || class.has_pod_terms() || spread.is_some();
    if !has_wishes && matching.known_meant_by(class).is_empty() {
        return false;
    }
    let own_sets = class.spread.iter().map(|constraint| &constraint.pods);
    let default_sets = spread.iter().flat_map(|spread| spread.constraints.iter().map(|c| &c.pods));
    let terms = class.affinity.iter().chain(&class.anti_affinity);
    let wished =
        terms.chain(class.preferred_pods.iter().map(|weighted| &weighted.term)).map(|term| &term.pods);
    let sets: Vec<_> = own_sets.chain(default_sets).chain(wished).collect();
    let mut seen: Option<&Arc<Class>> = None;
    owned.iter().filter_map(|id| cluster.reservations().entry(id)).any(|entry| {
        let other = &entry.record.pod.class;
        // Reservations of one kind come together.
        if seen.replace(other).is_some_and(|seen| Arc::ptr_eq(seen, other)) {
            return false;
        }
        let held = other.affinity.iter().chain(&other.anti_affinity);
        let held = held.chain(other.preferred_pods.iter().map(|weighted| &weighted.term));
        sets.iter().any(|set| matching.contains(set, other, &cluster.names))
            || held.map(|term| &term.pods).any(|set| matching.contains(set, class, &cluster.names))
    })
}
