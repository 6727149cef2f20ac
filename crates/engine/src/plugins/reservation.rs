//! Reservation: room held for pods that are still to come. Spec: scheduler-reservation-loadaware A.
//!
//! The ledger is the cluster's (`cluster::reservations`). Here: which reservations a pod may use (`seek`), whether it fits
//! into one or beside it (`fit`), which one it takes and what that makes of a node's score (`nominate`), taking it
//! (`reserve`), what users are told (`told`); and for the pods that stand for reservations, which pods they take in with
//! them (`pre_allocation`). A pod looks through the pods of reservations that it may use (`Restore`); plugins that hold
//! more than amounts for reservations have their say by `InReservation`.

use std::sync::Arc;

use koord_api::keys::pod::label::DISABLE_PREEMPTIBLE;

use crate::cluster::{Cluster, Row};
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::parts::FilterPart;
use crate::framework::{
    Code, Cycle, Delta, Demand, Filter, Glance, Hooks, InReservation, NodeView, Nominating, PostFilter,
    PostFilterInput, PostFiltered, PreFilter, Preparation, Reason, Restore, Scope, Status, restored,
};
use crate::pod::reservation::Policy;
use crate::pod::{Class, Pod};
use crate::profile::args::{CandidateLimits, ReservationArgs};
use crate::random::Random;

use super::default_preemption::{self, Method};

mod fit;
mod glance;
mod nominate;
mod pre_allocation;
mod reserve;
mod seek;
mod told;

use nominate::OwnRules;
use seek::Seeker;

pub const NAME: &str = "Reservation";
/// Reservations as events name them.
pub const RESOURCE: &str = "reservations.v1alpha1.scheduling.koordinator.sh";

/// What users and tools know.
mod reason {
    pub(super) const NO_MATCH: &str = "node(s) no reservations match reservation affinity";
    pub(super) const NONE_MEETS: &str = "node(s) no reservation(s) to meet the requirements";
    pub(super) const OTHER_NODE: &str = "node(s) didn't match the nodeName specified by reservation";
    pub(super) const POLICY_CONFLICT: &str = "node(s) reservation allocate policy conflict";
    pub(super) const PREEMPTION_FAILED: &str = "node(s) preemption failed due to insufficient resources";
    pub(super) const SPENT: &str = "reservation has allocateOnce enabled and has already been allocated";
    pub(super) const TERMINATING: &str = "target reservation is terminating";
    pub(super) const UNKNOWN: &str = "cannot find target reservation";
    pub(super) const CLUSTER_MODE_OFF: &str =
        "reservation requires cluster mode pre-allocation which is disabled";
    pub(super) const NO_POD_TO_TAKE_IN: &str =
        "node(s) no pod match reservation with pre allocation required";
    pub(super) const NO_POD_MEETS: &str = "node(s) no pod(s) to meet the pre-allocation requirements";
}

/// The plugin, with those who have a say about reservations beside it.
pub fn build(args: &ReservationArgs, partners: Vec<Arc<dyn InReservation>>) -> Hooks {
    let own: Arc<dyn InReservation> = Arc::new(OwnRules);
    let partners = std::iter::once(own).chain(partners).collect();
    let plugin = Arc::new(Reserving { settings: Settings::of(args), partners });
    let hooks = Hooks::new(NAME)
        .pre_filter(plugin.clone())
        .restore(plugin.clone())
        .filter(plugin.clone())
        .post_filter(plugin.clone())
        .score(plugin.clone())
        .reserve(plugin.clone())
        .pre_bind(plugin);
    hooks.woken_by(vec![
        Registration::always(Resource::Pod, Action::DELETE | Action::UPDATE_POD_SCALE_DOWN),
        Registration::always(
            Resource::Custom(RESOURCE.into()),
            Action::ADD | Action::DELETE | Action::UPDATE,
        ),
    ])
}

/// How the plugin is set.
#[derive(Clone, Debug)]
struct Settings {
    /// Gate OmitNodeLabelsForReservation.
    omits_node_labels: bool,
    /// Gate SkipReservationFitsNode.
    skips_node_fit: bool,
    takes_in_cluster_wide: bool,
    prefers_taking_none: bool,
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
    /// Whether room is made by taking pods away, and how many nodes are looked at.
    preempts: Option<CandidateLimits>,
}

impl Settings {
    fn of(args: &ReservationArgs) -> Settings {
        Settings {
            omits_node_labels: args.omit_node_labels,
            skips_node_fit: args.skip_fits_node,
            takes_in_cluster_wide: args.pre_allocation.enable_cluster_mode,
            prefers_taking_none: args.pre_allocation.prefer_no_pre_allocated_pods,
            ignored: args.ignored_resources.clone(),
            ignored_groups: args.ignored_resource_groups.clone(),
            preempts: args.enable_preemption.then_some(args.candidates),
        }
    }

    fn ignores(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or("", |(group, _)| group);
        self.ignored.iter().any(|ignored| ignored == name)
            || self.ignored_groups.iter().any(|ignored| !group.is_empty() && ignored == group)
    }
}

struct Reserving {
    settings: Settings,
    partners: Vec<Arc<dyn InReservation>>,
}

impl Reserving {
    /// What a node looks like to the pod.
    fn seen(&self, cycle: &Cycle<'_>, row: Row) -> Delta {
        if let Some(restored) = cycle.get::<restored::Restored>() {
            return restored.on(row).cloned().unwrap_or_default();
        }
        let mut delta = Delta::default();
        self.lifted(cycle, row).iter().for_each(|pod| delta.remove(cycle.cluster, row, pod));
        delta
    }
}

impl PreFilter for Reserving {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        if cycle.pod.class.reserve.is_some() {
            return self.prepare_reserve_pod(cycle);
        }
        if let Some(wants) = &cycle.pod.class.wants {
            let faults = [
                wants.affinity.as_ref().and_then(|a| a.as_ref().err()),
                wants.exact.as_ref().and_then(|e| e.as_ref().err()),
            ];
            if let Some(fault) = faults.into_iter().flatten().next() {
                return Err(Status::error(NAME, fault.to_string()));
            }
        }
        let seeker = Seeker::new(cycle.cluster, cycle.pod, &self.settings);
        if seeker.affinity().is_some() && !seeker.is_ignoring() {
            let (rows, query) = (seeker.rows(), seeker.index_query());
            query.into_iter().for_each(|query| cycle.set(query));
            return match rows.is_empty() {
                true => Err(Status::unresolvable(NAME, reason::NO_MATCH)),
                false => Ok(Preparation::Only(rows)),
            };
        }
        let is_operating = cycle.pod.class.wants.as_ref().is_some_and(|wants| wants.is_operating);
        Ok(if seeker.is_concerned() || is_operating { Preparation::Go } else { Preparation::Skip })
    }

    fn speaks_of_class(&self, cluster: &Cluster, pod: &Arc<Pod>) -> bool {
        if let Some(reserve) = &pod.class.reserve {
            return reserve.pre_allocation.is_none() || reserve.may_wait();
        }
        if cluster.reservations().is_empty() {
            return true;
        }
        let owned = cluster.reservations().owned_by(pod, &cluster.names);
        owned.is_empty()
            || !(owned.is_personal()
                || cluster.reservations().are_ordered()
                || seek::is_entangled(cluster, pod, &owned))
    }
}

impl Restore for Reserving {
    fn concerns(&self, cluster: &Cluster, pod: &Arc<Pod>) -> bool {
        match &pod.class.reserve {
            Some(reserve) => reserve.pre_allocation.is_some() && !reserve.may_wait(),
            None => {
                !cluster.reservations().is_empty() && Seeker::new(cluster, pod, &self.settings).is_concerned()
            }
        }
    }

    fn rows(&self, cycle: &Cycle<'_>) -> Vec<Row> {
        match cycle.pod.class.reserve.is_some() {
            true => self.rows_to_take_in(cycle),
            false => Seeker::new(cycle.cluster, cycle.pod, &self.settings).rows(),
        }
    }

    fn lifted(&self, cycle: &Cycle<'_>, row: Row) -> Vec<Arc<Pod>> {
        if cycle.pod.class.reserve.is_some() {
            return self.lifted_for_reserve_pod(cycle.cluster, cycle.pod, row);
        }
        let seeker = Seeker::new(cycle.cluster, cycle.pod, &self.settings);
        seeker.matched_on(row).into_iter().map(|entry| entry.record.pod.clone()).collect()
    }

    fn glance<'a>(&self, cycle: &Cycle<'a>, row: Row) -> Option<Glance<'a>> {
        self.glance_at(cycle, row)
    }
}

/// Whether a reservation may be placed beside those on a node. Spec: scheduler-reservation-loadaware A4.4.
fn check_policy(node: &NodeView<'_>, policy: Policy) -> Result<(), Status> {
    let mut others = node.cluster.reservations().on(node.row).filter(|entry| entry.is_matchable);
    let clashes = |other: Policy| (policy == Policy::Default || other == Policy::Default) && policy != other;
    match others.any(|entry| clashes(entry.record.policy)) {
        true => Err(Status::unresolvable(NAME, reason::POLICY_CONFLICT)),
        false => Ok(()),
    }
}

impl Filter for Reserving {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Cluster
    }

    fn demand(&self, cycle: &Cycle<'_>) -> Demand {
        match &cycle.pod.class.reserve {
            // Whatever else is on the node.
            Some(reserve) if reserve.pre_allocation.is_none() => Demand::Nothing,
            _ => Demand::Anything,
        }
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        if let Some(reserve) = &cycle.pod.class.reserve {
            if reserve.node.as_ref().is_some_and(|pinned| *pinned != node.node().name) {
                return Err(Status::unresolvable(NAME, reason::OTHER_NODE));
            }
            check_policy(node, reserve.policy)?;
            return self.check_taking_in(cycle, node);
        }
        // Differs: upstream looks at the policy of a pod in operating mode only where it does not skip it.
        if cycle.pod.class.wants.as_ref().is_some_and(|wants| wants.is_operating) {
            check_policy(node, Policy::Aligned)?;
        }
        let seeker = Seeker::new(cycle.cluster, cycle.pod, &self.settings);
        let matched = seeker.matched_on(node.row);
        match matched.as_slice() {
            [] if seeker.affinity().is_some() => Err(Status::unresolvable(NAME, reason::NO_MATCH)),
            [] => fit::check_cleared(cycle, node, &self.settings),
            _ if seeker.is_ignoring() => Ok(()),
            matched => {
                fit::Fitting::new(&seeker, cycle, node, matched, &self.settings, &self.partners).check()
            }
        }
    }

    fn part(&self, _cluster: &Cluster, class: &Arc<Class>) -> FilterPart {
        if class.reserve.is_some() {
            return FilterPart::Row;
        }
        match class.wants.as_deref() {
            Some(wants) if wants.affinity.is_some() => FilterPart::Opaque,
            Some(wants) if wants.is_operating => FilterPart::Row,
            // Where the pod may use nothing it passes; where it may, the row is asked about as the pod sees it.
            _ => FilterPart::Nothing,
        }
    }
}

impl PostFilter for Reserving {
    fn help(&self, input: &PostFilterInput<'_>, random: &mut Random) -> PostFiltered {
        let seeker = Seeker::new(input.cycle.cluster, input.cycle.pod, &self.settings);
        let reasons = match input.cycle.pod.class.reserve.is_some() {
            true => Vec::new(),
            false => told::reasons(
                &told::tallies(&seeker),
                |row| told::verdict_on(input.diagnosis, row),
                seeker.affinity().is_some(),
            ),
        };
        let reasons = reasons.into_iter().map(Reason::new).collect();
        let told = Status { code: Code::Unschedulable, reasons, plugin: NAME };
        let told = PostFiltered { status: told, nominating: Nominating::Keep, preemption: None };
        let Some(limits) = self.settings.preempts.filter(|_| !input.cycle.pod.class.never_preempts) else {
            return told;
        };
        let spared =
            input.cycle.cluster.names.find(DISABLE_PREEMPTIBLE).zip(input.cycle.cluster.names.find("true"));
        let may_go = |pod: &Pod| spared.is_none_or(|(key, yes)| pod.class.label(key) != Some(yes));
        let mut answer = default_preemption::make_room(NAME, input, limits, Method::Filters, &may_go, random);
        if answer.preemption.is_none() {
            answer.status.reasons = told.status.reasons.into_iter().chain(answer.status.reasons).collect();
        }
        answer
    }
}

#[cfg(test)]
mod tests;
