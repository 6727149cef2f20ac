//! A Reservation as scheduling needs it, compiled once from the object, or from a pod that acts as one.

use std::collections::BTreeMap;
use std::num::NonZeroI64;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use koord_api::annotation::node_reservation::{NodeReservation, ReservedCpus};
use koord_api::annotation::reservation::{ReservationAllocated, RestrictedOptions, order};
use koord_api::annotation::{Annotation as _, read};
use koord_api::crd::reservation::{
    OwnerMatcher, PreAllocationMode, Reservation, ReservationAllocatePolicy, ReservationPhase,
    ReservationSpec,
};
use koord_api::keys::reservation::label::PRE_ALLOCATION_REQUIRED;
use koord_api::quantity::ResourceList;
use koord_api::resource::{ResourceId, ResourceTable, ResourceVector};

use super::owners::are_alike;
use crate::intern::Names;
use crate::pod::reservation::{Policy, PreAllocation, Reserve};
use crate::pod::{Compiler, Pod};
use crate::time::Time;

/// How far a reservation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No node yet.
    Pending,
    /// On a node, and usable.
    Available,
    /// On a node that has not enough room yet.
    Waiting,
    Succeeded,
    Failed,
}

impl Phase {
    /// It will never hold anything again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

/// What stands behind a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A Reservation object; its pod exists in the scheduler only.
    Object,
    /// A running pod in operating mode Reservation. Spec: scheduler-reservation-loadaware A12.
    Pod,
}

/// One reservation.
#[derive(Clone, Debug)]
pub struct Reserved {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub source: Source,
    /// The pod that stands for it; `pod.uid` is `uid`, `pod.node` is `status.nodeName`.
    pub pod: Arc<Pod>,
    pub phase: Phase,
    pub is_deleting: bool,
    pub is_unschedulable: bool,
    pub taints: Box<[Taint]>,
    pub labels: BTreeMap<String, String>,
    /// Smaller is used first; none leaves it to the scores.
    pub order: Option<NonZeroI64>,
    /// Seconds since the epoch.
    pub created: i64,
    /// When it expires, for people.
    pub expires: Option<Time>,
    pub policy: Policy,
    /// Its first owner consumes it.
    pub is_once: bool,
    /// Somebody uses it already who is no pod that we could count.
    pub is_taken: bool,
    pub pre_allocation: Option<PreAllocation>,
    /// What is held: `status.allocatable` once it is available, what the template asks for before.
    pub allocatable: ResourceVector,
    /// The resources that owners are counted in, ascending by name.
    pub names: Box<[ResourceId]>,
    /// What is never given to owners.
    pub inner: ResourceVector,
    /// The annotation of those who use it.
    pub mark: Box<str>,
    /// Who may use it; the fault of a list that cannot be read, or of restricted options.
    pub owners: Result<OwnerMatcher, String>,
}

impl Reserved {
    /// Reads an object; `validate` has found nothing wrong with it but perhaps its owners.
    pub(super) fn of_object(
        object: &Reservation,
        compiler: &mut Compiler,
        names: &mut Names,
        resources: &mut ResourceTable,
    ) -> Reserved {
        let empty = ReservationSpec::default();
        let spec = object.spec.as_ref().unwrap_or(&empty);
        let annotations = object.metadata.annotations.as_ref();
        let policy = match spec.allocate_policy {
            None => Policy::Default,
            Some(ReservationAllocatePolicy::Aligned) => Policy::Aligned,
            Some(ReservationAllocatePolicy::Restricted) => Policy::Restricted,
        };
        let pre_allocation = pre_allocation(object, spec);
        let template = spec.template.as_ref().and_then(|template| template.spec.as_ref());
        let pinned = template.and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty());
        let reserve = Reserve { node: pinned.map(Into::into), policy, pre_allocation };
        let name: Box<str> = object.metadata.name.as_deref().unwrap_or_default().into();
        let pod = compiler.reserve_pod(object, reserve, names, resources);
        let held = match object.status.as_ref().filter(|_| object.is_available()) {
            Some(status) => status.allocatable.clone(),
            None => spec.requests(),
        };
        let options = match policy {
            Policy::Restricted => read::<RestrictedOptions>(annotations).map_err(|error| error.to_string()),
            Policy::Default | Policy::Aligned => Ok(None),
        };
        let counted = counted(&held, options.as_ref().ok().and_then(Option::as_ref), resources);
        let owners = OwnerMatcher::new(&spec.owners).map_err(|error| error.to_string());
        Reserved {
            mark: mark(&name, &pod.uid),
            uid: pod.uid.clone(),
            source: Source::Object,
            phase: phase(object),
            is_deleting: object.metadata.deletion_timestamp.is_some(),
            is_unschedulable: spec.unschedulable == Some(true),
            taints: spec.taints.clone().into(),
            labels: object.metadata.labels.clone().unwrap_or_default(),
            order: order(object.metadata.labels.as_ref()),
            created: object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            expires: expires(object),
            policy,
            is_once: object.is_allocate_once(),
            is_taken: false,
            pre_allocation,
            inner: inner(read(annotations).ok().flatten(), &counted, resources),
            allocatable: ResourceVector::from_list(&held, resources),
            names: counted,
            owners: options.and(owners),
            pod: Arc::new(pod),
            name,
        }
    }

    /// A running pod that acts as a reservation; none when it does not.
    pub(super) fn of_pod(pod: &Arc<Pod>, resources: &ResourceTable) -> Option<Reserved> {
        let operates = pod.operates.as_ref()?;
        let amounts = &pod.class.requests.amounts;
        let mut all: Vec<ResourceId> = amounts.iter().map(|(id, _)| id).collect();
        all.sort_by_key(|id| resources.name(*id));
        let texts: Vec<&str> = all.iter().map(|id| resources.name(*id)).collect();
        let restricted = operates.restricted.restricted(texts);
        Some(Reserved {
            mark: mark(&pod.key.name, &pod.uid),
            name: pod.key.name.clone(),
            uid: pod.uid.clone(),
            source: Source::Pod,
            pod: pod.clone(),
            phase: if operates.is_ready { Phase::Available } else { Phase::Pending },
            is_deleting: pod.is_deleting,
            is_unschedulable: false,
            taints: Box::default(),
            labels: operates.labels.clone(),
            order: order(Some(&operates.labels)),
            created: operates.created,
            expires: None,
            policy: Policy::Aligned,
            is_once: true,
            is_taken: operates.is_taken,
            pre_allocation: None,
            allocatable: amounts.clone(),
            names: all.iter().copied().filter(|id| restricted.contains(&resources.name(*id))).collect(),
            inner: ResourceVector::new(),
            owners: operates.owners.clone(),
        })
    }

    /// Whether those whom it is for may find more in it than in what it was.
    pub fn offers_more_than(&self, old: &Reserved) -> bool {
        self.phase != old.phase
            || self.is_unschedulable != old.is_unschedulable
            || self.is_taken != old.is_taken
            || self.policy != old.policy
            || self.taints != old.taints
            || self.labels != old.labels
            || self.allocatable != old.allocatable
            || self.names != old.names
            || self.inner != old.inner
            || !are_alike(&self.owners, &old.owners)
    }

    /// Whether owners are counted in this resource.
    pub fn counts(&self, id: ResourceId) -> bool {
        self.names.contains(&id)
    }
}

fn mark(name: &str, uid: &str) -> Box<str> {
    ReservationAllocated { name: name.to_owned(), uid: uid.to_owned() }.text().into()
}

fn phase(object: &Reservation) -> Phase {
    match object.phase() {
        ReservationPhase::Succeeded => Phase::Succeeded,
        ReservationPhase::Failed | ReservationPhase::Expired => Phase::Failed,
        ReservationPhase::Available if object.node_name().is_some() => Phase::Available,
        ReservationPhase::Waiting if object.node_name().is_some() => Phase::Waiting,
        _ => Phase::Pending,
    }
}

fn pre_allocation(object: &Reservation, spec: &ReservationSpec) -> Option<PreAllocation> {
    let policy = spec.pre_allocation_policy.as_ref();
    let template = spec.template.as_ref().and_then(|template| template.metadata.as_ref());
    let lists = [object.metadata.labels.as_ref(), template.and_then(|metadata| metadata.labels.as_ref())];
    let value = lists.into_iter().flatten().find_map(|labels| labels.get(PRE_ALLOCATION_REQUIRED));
    spec.pre_allocation.unwrap_or_default().then(|| PreAllocation {
        is_cluster_wide: policy.and_then(|policy| policy.mode) == Some(PreAllocationMode::Cluster),
        takes_several: policy.and_then(|policy| policy.enable_multiple).unwrap_or_default(),
        is_required: value.is_some_and(|value| value == "true"),
    })
}

fn expires(object: &Reservation) -> Option<Time> {
    let nanos = i64::try_from(object.expires_at()?.0.as_nanosecond()).unwrap_or(i64::MAX);
    Some(Time::from_nanos(nanos))
}

/// The names of what is held, those of restricted options alone where there are some. Ascending.
fn counted(
    held: &ResourceList,
    options: Option<&RestrictedOptions>,
    resources: &mut ResourceTable,
) -> Box<[ResourceId]> {
    let all = held.keys().map(String::as_str);
    let mut names: Vec<&str> = match options {
        Some(options) => options.restricted(all),
        None => all.collect(),
    };
    names.sort_unstable();
    names.into_iter().map(|name| resources.intern(name)).collect()
}

/// What owners never get. A list of CPUs counts in place of the cpu amount.
fn inner(
    reservation: Option<NodeReservation>,
    counted: &[ResourceId],
    resources: &mut ResourceTable,
) -> ResourceVector {
    let Some(reservation) = reservation else { return ResourceVector::new() };
    let mut amounts = ResourceVector::from_list(&reservation.resources, resources);
    if let ReservedCpus::Cpus(cpus) = reservation.cpus() {
        let count = i64::try_from(cpus.len()).unwrap_or(i64::MAX);
        amounts.set(ResourceId::CPU, count.saturating_mul(1000));
    }
    let mut inner = ResourceVector::new();
    for id in counted {
        inner.set(*id, amounts.get(*id).max(0));
    }
    inner
}
