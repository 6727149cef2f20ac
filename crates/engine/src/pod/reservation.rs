//! What a pod has to do with reservations: which it wants, which it uses, and what it holds itself.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::annotation::read;
use koord_api::annotation::reservation::{
    CompiledAffinity, ExactMatch, ReservationAffinity, ReservationAllocated, ReservationCurrentOwner,
    ReservationOwners, RestrictedOptions,
};
use koord_api::crd::reservation::OwnerMatcher;
pub use koord_api::crd::reservation::Reference;
use koord_api::keys::pod::annotation::RESERVATION_AFFINITY;
use koord_api::keys::pod::label::{OPERATING_MODE, RESERVATION_IGNORED};

/// The operating mode in which a pod is a reservation.
const OPERATES_AS_RESERVATION: &str = "Reservation";

/// The reservation that a pod uses, as its annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub name: Box<str>,
    pub uid: Box<str>,
}

/// What a pod says of reservations that it might use. Spec: scheduler-reservation-loadaware A1.2, A6.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wants {
    /// It must use a reservation, one that fits this; or the text that cannot be read, and why.
    pub affinity: Option<Result<Affinity, Box<str>>>,
    /// Names of resources in which it and the reservation must be equal; or why that cannot be read.
    pub exact: Option<Result<Box<[Box<str>]>, Box<str>>>,
    /// It uses what reservations leave unused, and none of them in particular.
    pub is_ignoring: bool,
    /// It will be a reservation itself.
    pub is_operating: bool,
}

/// A reservation affinity. Two are equal when they are written alike.
#[derive(Clone, Debug)]
pub struct Affinity {
    pub text: Box<str>,
    pub spec: Arc<ReservationAffinity>,
    pub compiled: Arc<CompiledAffinity>,
}

impl PartialEq for Affinity {
    fn eq(&self, other: &Affinity) -> bool {
        self.text == other.text
    }
}

impl Eq for Affinity {}

impl Hash for Affinity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// What makes the pod of a Reservation differ from others alike. The rest stands in the ledger, by its UID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reserve {
    /// The only node that it may be on, if its template names one.
    pub node: Option<Box<str>>,
    pub policy: Policy,
    pub pre_allocation: Option<PreAllocation>,
}

/// What a pod in operating mode Reservation is for others. Spec: scheduler-reservation-loadaware A12.
#[derive(Clone, Debug)]
pub struct Operating {
    /// Running and ready: only then it can be used.
    pub is_ready: bool,
    /// Its annotation names somebody who uses it.
    pub is_taken: bool,
    pub owners: Result<OwnerMatcher, String>,
    pub restricted: RestrictedOptions,
    pub labels: BTreeMap<String, String>,
    /// Seconds since the epoch.
    pub created: i64,
}

/// Where what an owner asks for is taken from. Spec: scheduler-reservation-loadaware A8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// As Aligned, but not beside other policies on one node.
    #[default]
    Default,
    /// The reservation first, the rest of the node beyond it.
    Aligned,
    /// The reservation alone, for all resources that it restricts.
    Restricted,
}

/// How pods are marked that any reservation may take in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreAllocatableMarks {
    pub label: String,
    pub annotation: String,
}

/// Taking in pods that run already. Spec: scheduler-reservation-loadaware A11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PreAllocation {
    /// Pods with the cluster's label, whoever they are; otherwise those that own the reservation.
    pub is_cluster_wide: bool,
    pub takes_several: bool,
    /// It must take in one at least.
    pub is_required: bool,
}

impl Reserve {
    /// It may be placed before there is room for it, and then waits. Spec: scheduler-reservation-loadaware A11.4.
    pub fn may_wait(&self) -> bool {
        self.pre_allocation.is_some() && self.policy != Policy::Restricted
    }
}

impl Wants {
    /// The affinity, where there is one that can be read.
    pub fn readable_affinity(&self) -> Option<&Affinity> {
        self.affinity.as_ref().and_then(|affinity| affinity.as_ref().ok())
    }
}

/// What the annotation for a reservation in use says; one that cannot be read says nothing.
pub(super) fn uses(object: &core::Pod) -> Option<Arc<Use>> {
    let allocated = read::<ReservationAllocated>(object.metadata.annotations.as_ref()).ok()??;
    Some(Arc::new(Use { name: allocated.name.into(), uid: allocated.uid.into() }))
}

pub(super) fn references(object: &core::Pod) -> Box<[Reference]> {
    object.metadata.owner_references.iter().flatten().map(Reference::from).collect()
}

/// What a pod is as a reservation. Owners that cannot be read are nobody.
pub(super) fn operates(object: &core::Pod) -> Option<Arc<Operating>> {
    let labels = object.metadata.labels.as_ref()?;
    if labels.get(OPERATING_MODE).is_none_or(|mode| mode != OPERATES_AS_RESERVATION) {
        return None;
    }
    let annotations = object.metadata.annotations.as_ref();
    let owners = read::<ReservationOwners>(annotations).ok().flatten().unwrap_or_default();
    let owner = read::<ReservationCurrentOwner>(annotations).ok().flatten();
    let status = object.status.as_ref();
    let is_running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    Some(Arc::new(Operating {
        is_ready: is_running && is_ready,
        is_taken: owner.is_some(),
        owners: OwnerMatcher::new(&owners.0).map_err(|error| error.to_string()),
        restricted: read::<RestrictedOptions>(annotations).ok().flatten().unwrap_or_default(),
        labels: labels.clone(),
        created: object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
    }))
}

/// The rank of a pod that any reservation may take in: what its annotation says, or 0. None without the label.
pub(super) fn pre_allocatable(object: &core::Pod, marks: &PreAllocatableMarks) -> Option<i64> {
    let metadata = &object.metadata;
    metadata.labels.as_ref()?.get(&marks.label).filter(|value| *value == "true")?;
    let rank = metadata.annotations.as_ref().and_then(|all| all.get(&marks.annotation));
    Some(rank.and_then(|rank| rank.parse().ok()).unwrap_or(0))
}

/// What a pod says of reservations; none for one that says nothing.
pub(super) fn wants(object: &core::Pod) -> Option<Arc<Wants>> {
    let annotations = object.metadata.annotations.as_ref();
    let affinity = match read::<ReservationAffinity>(annotations) {
        Ok(None) => None,
        Ok(Some(spec)) => Some(affinity(object, spec)),
        Err(error) => Some(Err(error.reason().into())),
    };
    let exact = match read::<ExactMatch>(annotations) {
        Ok(None) => None,
        Ok(Some(exact)) => Some(Ok(exact.resource_names.into_iter().map(String::into_boxed_str).collect())),
        Err(error) => Some(Err(error.reason().into())),
    };
    let labels = object.metadata.labels.as_ref();
    let has = |key: &str, wanted: &str| {
        labels.and_then(|labels| labels.get(key)).is_some_and(|value| value == wanted)
    };
    let wants = Wants {
        affinity,
        exact,
        is_ignoring: has(RESERVATION_IGNORED, "true"),
        is_operating: has(OPERATING_MODE, OPERATES_AS_RESERVATION),
    };
    (wants != Wants::default()).then(|| Arc::new(wants))
}

fn affinity(object: &core::Pod, spec: ReservationAffinity) -> Result<Affinity, Box<str>> {
    let text = object.metadata.annotations.as_ref().and_then(|all| all.get(RESERVATION_AFFINITY));
    let compiled = spec.compile().map_err(|error| error.to_string().into_boxed_str())?;
    let text = text.map(String::as_str).unwrap_or_default().into();
    Ok(Affinity { text, spec: Arc::new(spec), compiled: Arc::new(compiled) })
}
