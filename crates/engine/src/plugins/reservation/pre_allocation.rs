//! Reservations that take in pods which run already. Spec: scheduler-reservation-loadaware A11.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use koord_api::crd::reservation::OwnedPod;
use koord_api::resource::{ResourceId, ResourceVector};

use super::fit::{self, Shortage};
use super::nominate::most_allocated;
use super::{NAME, Reserving, reason, seek};
use crate::cluster::matching::ClassLabels;
use crate::cluster::reservations::Entry;
use crate::cluster::{Cluster, Row};
use crate::framework::{Code, Cycle, NodeView, Preparation, Reason, Status};
use crate::pod::reservation::PreAllocation;
use crate::pod::{Class, Pod};

/// What taking pods in came to on a node.
type Selection = Result<Vec<Arc<Pod>>, Status>;

impl Reserving {
    /// How pods are taken in by the reservation that this pod stands for; none for others, and for those that wait.
    fn taking_in<'a>(&self, cluster: &'a Cluster, pod: &Pod) -> Option<(&'a Entry, PreAllocation)> {
        let reserve = pod.class.reserve.as_ref().filter(|reserve| !reserve.may_wait())?;
        Some((cluster.reservations().get(&pod.uid)?, reserve.pre_allocation?))
    }

    /// Looks at the pod of a reservation before any node. Spec: scheduler-reservation-loadaware A4.3.
    pub(super) fn prepare_reserve_pod(&self, cycle: &Cycle<'_>) -> Result<Preparation, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        if cluster.reservations().get(&pod.uid).is_none() {
            let name = pod.reserves.as_deref().unwrap_or_default();
            let text = format!(
                "cannot get reservation, err: reservation.scheduling.koordinator.sh \"{name}\" not found"
            );
            return Err(Status::error(NAME, text));
        }
        let Some((entry, how)) = self.taking_in(cluster, pod) else { return Ok(Preparation::Go) };
        if let Err(fault) = &entry.record.owners {
            return Err(Status::unresolvable(NAME, fault.clone()));
        }
        if how.is_cluster_wide && !self.settings.takes_in_cluster_wide {
            return Err(Status::unresolvable(NAME, reason::CLUSTER_MODE_OFF));
        }
        if !how.is_required {
            return Ok(Preparation::Go);
        }
        let rows = self.candidate_rows(cluster, entry, how);
        let rows: Vec<Row> =
            rows.into_iter().filter(|row| !self.candidates(cluster, entry, how, *row).is_empty()).collect();
        match rows.is_empty() {
            true => Err(Status::unresolvable(NAME, reason::NO_POD_TO_TAKE_IN)),
            false => Ok(Preparation::Only(rows)),
        }
    }

    /// Nodes with pods that might be taken in.
    pub(super) fn rows_to_take_in(&self, cycle: &Cycle<'_>) -> Vec<Row> {
        let Some((entry, how)) = self.taking_in(cycle.cluster, cycle.pod) else { return Vec::new() };
        self.candidate_rows(cycle.cluster, entry, how).into_iter().collect()
    }

    fn candidate_rows(&self, cluster: &Cluster, entry: &Entry, how: PreAllocation) -> BTreeSet<Row> {
        let placed = cluster.matching().placed();
        let meant = placed.filter(|(class, _)| how.is_cluster_wide || is_selected(cluster, class, entry));
        meant.flat_map(|(_, rows)| rows).collect()
    }

    /// The pods on a node that may be taken in, in the order they are tried.
    pub(super) fn candidates(
        &self,
        cluster: &Cluster,
        entry: &Entry,
        how: PreAllocation,
        row: Row,
    ) -> Vec<Arc<Pod>> {
        let used = |pod: &Pod| cluster.reservations().used_by(&pod.uid).is_some();
        // Differs: upstream takes pods that use another reservation already, in cluster mode.
        let free = cluster.node(row).pods.all.iter().filter(|pod| pod.class.reserve.is_none() && !used(pod));
        if how.is_cluster_wide {
            let ranked = free.filter_map(|pod| Some((Reverse(pod.pre_allocatable?), &pod.uid, pod)));
            let mut ranked: Vec<_> = ranked.collect();
            ranked.sort_unstable_by_key(|(rank, uid, _)| (*rank, *uid));
            return ranked.into_iter().map(|(_, _, pod)| pod.clone()).collect();
        }
        let is_meant = |pod: &Pod| {
            is_selected(cluster, &pod.class, entry)
                && owns(cluster, entry, pod)
                && seek::mismatch(cluster, pod, entry, Some(row), &self.settings).is_none()
        };
        let mut pods: Vec<Arc<Pod>> = free.filter(|pod| is_meant(pod)).cloned().collect();
        let score = |pod: &Arc<Pod>| most_allocated(entry, |_| 0, &pod.class.requests.amounts);
        pods.sort_by(|a, b| score(b).cmp(&score(a)).then_with(|| a.uid.cmp(&b.uid)));
        pods
    }

    /// The pods that are looked through on a node.
    pub(super) fn lifted_for_reserve_pod(&self, cluster: &Cluster, pod: &Pod, row: Row) -> Vec<Arc<Pod>> {
        let Some((entry, how)) = self.taking_in(cluster, pod) else { return Vec::new() };
        self.candidates(cluster, entry, how, row)
    }

    /// Whether the reservation fits on a node, taking pods in. The node is seen without those who might be.
    pub(super) fn check_taking_in(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        match self.taking_in(cycle.cluster, cycle.pod) {
            None => Ok(()),
            Some((entry, how)) => self.select(cycle, node, entry, how).map(drop),
        }
    }

    /// The pods that are taken in on a node.
    fn select(&self, cycle: &Cycle<'_>, node: &NodeView<'_>, entry: &Entry, how: PreAllocation) -> Selection {
        let cluster = cycle.cluster;
        let pods = self.candidates(cluster, entry, how, node.row);
        let mut taking = Taking::new(self, cycle, node, entry, &pods);
        if !how.is_required && self.settings.prefers_taking_none && taking.node_lacks(&[]).is_empty() {
            return Ok(Vec::new());
        }
        let selected = if how.takes_several { taking.several(&pods) } else { taking.one(&pods) };
        if let Some(selected) = selected {
            return Ok(selected);
        }
        let mut short = std::mem::take(&mut taking.short);
        let mut own = std::mem::take(&mut taking.own);
        if !how.is_required {
            own.clear();
            if short.is_empty() && !pods.is_empty() {
                short = taking.node_lacks(&[]);
            }
            if short.is_empty() {
                return Ok(Vec::new());
            }
        }
        let mut reasons = fit::node_reasons(cluster, short);
        reasons.extend(own);
        if reasons.is_empty() {
            reasons.push(Reason::new(reason::NO_POD_MEETS));
        }
        Err(Status { code: Code::Unschedulable, reasons, plugin: NAME })
    }

    /// The score of a node for a reservation that takes pods in.
    // Differs: upstream leaves out the score where several pods are taken in.
    pub(super) fn pre_allocation_score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let Some((entry, how)) = self.taking_in(cycle.cluster, cycle.pod) else { return 0 };
        let selected = self.select(cycle, node, entry, how).unwrap_or_default();
        if how.takes_several {
            return 100 / (1 + i64::try_from(selected.len()).unwrap_or(99));
        }
        selected.first().map_or(0, |pod| most_allocated(entry, |_| 0, &pod.class.requests.amounts))
    }

    /// The reservation has a place: the pods it takes in use it from now on.
    pub(super) fn take_in(&self, cluster: &mut Cluster, pod: &Arc<Pod>, row: Row) -> Result<(), Status> {
        let selected = {
            let cycle = Cycle::new(cluster, pod);
            let Some((entry, how)) = self.taking_in(cluster, pod) else { return Ok(()) };
            let mut seen = self.seen(&cycle, row);
            seen.remove(cluster, row, pod);
            self.select(&cycle, &NodeView::supposing(cluster, row, &seen), entry, how)?
        };
        for taken in selected {
            cluster.use_reservation(&taken.uid, &pod.uid);
        }
        Ok(())
    }

    /// The reservation lost its place: those it took in are on their own again.
    pub(super) fn let_go(&self, cluster: &mut Cluster, pod: &Arc<Pod>) {
        let owners = cluster.reservations().get(&pod.uid).map_or(&[][..], |entry| &entry.owners);
        let taken: Vec<Box<str>> = owners
            .iter()
            .filter(|owner| owner.pod.uses.is_none())
            .map(|owner| owner.pod.uid.clone())
            .collect();
        for uid in taken {
            cluster.leave_reservation(&uid);
        }
    }
}

fn is_selected(cluster: &Cluster, class: &Class, entry: &Entry) -> bool {
    let labels = ClassLabels { class, names: &cluster.names };
    let owners = entry.record.owners.as_ref().ok();
    owners.is_some_and(|owners| owners.selectors().any(|selector| selector.matches(&labels)))
}

fn owns(cluster: &Cluster, entry: &Entry, pod: &Pod) -> bool {
    let owned = OwnedPod {
        uid: &pod.uid,
        name: &pod.key.name,
        namespace: &pod.key.namespace,
        references: &pod.class.references,
        labels: &ClassLabels { class: &pod.class, names: &cluster.names },
    };
    entry.record.owners.as_ref().is_ok_and(|owners| owners.owns(&owned))
}

/// A reservation on a node that is seen without the pods it might take in.
struct Taking<'a> {
    plugin: &'a Reserving,
    cycle: &'a Cycle<'a>,
    node: &'a NodeView<'a>,
    entry: &'a Entry,
    asked: Vec<(ResourceId, i64)>,
    /// What the pods ask for that are looked through.
    lifted: ResourceVector,
    short: Vec<Shortage>,
    own: Vec<Reason>,
}

impl<'a> Taking<'a> {
    fn new(
        plugin: &'a Reserving,
        cycle: &'a Cycle<'a>,
        node: &'a NodeView<'a>,
        entry: &'a Entry,
        pods: &[Arc<Pod>],
    ) -> Taking<'a> {
        let asked = fit::asked(cycle.cluster, &cycle.pod.class.requests.amounts, &plugin.settings);
        let mut lifted = ResourceVector::new();
        pods.iter().for_each(|pod| lifted += &pod.class.requests.amounts);
        Taking { plugin, cycle, node, entry, asked, lifted, short: Vec::new(), own: Vec::new() }
    }

    /// What the node lacks for the reservation when these pods are in it.
    fn node_lacks(&self, taken: &[&Arc<Pod>]) -> Vec<Shortage> {
        fit::lacking(self.node, &self.asked, |id| {
            let taken: i64 = taken.iter().map(|pod| pod.class.requests.amounts.get(id)).sum();
            self.node.requested(id).saturating_add(self.lifted.get(id)).saturating_sub(taken)
        })
    }

    /// What the reservation lacks for these pods together.
    fn lacks(&self, taken: &[&Arc<Pod>]) -> Vec<Reason> {
        let mut amounts = ResourceVector::new();
        taken.iter().for_each(|pod| amounts += &pod.class.requests.amounts);
        let asked = fit::asked(self.cycle.cluster, &amounts, &self.plugin.settings);
        let before = i64::try_from(taken.len()).unwrap_or(i64::MAX) - 1;
        let mut reasons = fit::lacks(self.cycle.cluster, &asked, self.entry, (|_| 0, before), false);
        if let Some(last) = taken.last() {
            let cycle = Cycle::new(self.cycle.cluster, last);
            for partner in &self.plugin.partners {
                if let Err(status) = partner.check(&cycle, self.node, self.entry) {
                    reasons.extend(status.reasons);
                }
            }
        }
        reasons
    }

    fn is_shared(&self, pod: &Pod) -> bool {
        self.entry.record.names.iter().any(|id| pod.class.requests.amounts.get(*id) > 0)
    }

    /// The best pod that fits.
    fn one(&mut self, pods: &[Arc<Pod>]) -> Option<Vec<Arc<Pod>>> {
        for pod in pods.iter().filter(|pod| self.is_shared(pod)).collect::<Vec<_>>() {
            let (short, own) = (self.node_lacks(&[pod]), self.lacks(&[pod]));
            if short.is_empty() && own.is_empty() {
                return Some(vec![pod.clone()]);
            }
            for shortage in short {
                if !self.short.iter().any(|known| known.id == shortage.id) {
                    self.short.push(shortage);
                }
            }
            self.own.extend(own);
        }
        None
    }

    /// As many pods as it takes, one after the other.
    fn several(&mut self, pods: &[Arc<Pod>]) -> Option<Vec<Arc<Pod>>> {
        let mut taken: Vec<&Arc<Pod>> = Vec::new();
        for pod in pods.iter().filter(|pod| self.is_shared(pod)).collect::<Vec<_>>() {
            taken.push(pod);
            let own = self.lacks(&taken);
            self.short = self.node_lacks(&taken);
            if !own.is_empty() {
                self.own.extend(own);
                taken.pop();
            } else if self.short.is_empty() {
                return Some(taken.into_iter().cloned().collect());
            }
        }
        None
    }
}
