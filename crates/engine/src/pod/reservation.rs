//! What a pod has to do with reservations: which it wants, which it uses, and what it holds itself.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::annotation::read;
use koord_api::annotation::reservation::{
    CompiledAffinity, ExactMatch, ReservationAffinity, ReservationAllocated,
};
use koord_api::keys::pod::annotation::RESERVATION_AFFINITY;
use koord_api::keys::pod::label::RESERVATION_IGNORED;

/// The reservation that a pod uses, as its annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub name: Box<str>,
    pub uid: Box<str>,
}

/// An owner reference, as owners of reservations are compared with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub controller: Option<bool>,
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

/// Taking in pods that run already. Spec: scheduler-reservation-loadaware A11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PreAllocation {
    /// Pods with the cluster's label, whoever they are; otherwise those that own the reservation.
    pub is_cluster_wide: bool,
    pub takes_several: bool,
    /// It must take in one at least.
    pub is_required: bool,
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
    let references = object.metadata.owner_references.iter().flatten();
    references
        .map(|reference| Reference {
            api_version: reference.api_version.as_str().into(),
            kind: reference.kind.as_str().into(),
            name: reference.name.as_str().into(),
            uid: reference.uid.as_str().into(),
            controller: reference.controller,
        })
        .collect()
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
    let is_ignoring =
        labels.and_then(|labels| labels.get(RESERVATION_IGNORED)).is_some_and(|value| value == "true");
    let wants = Wants { affinity, exact, is_ignoring };
    (wants != Wants::default()).then(|| Arc::new(wants))
}

fn affinity(object: &core::Pod, spec: ReservationAffinity) -> Result<Affinity, Box<str>> {
    let text = object.metadata.annotations.as_ref().and_then(|all| all.get(RESERVATION_AFFINITY));
    let compiled = spec.compile().map_err(|error| error.to_string().into_boxed_str())?;
    let text = text.map(String::as_str).unwrap_or_default().into();
    Ok(Affinity { text, spec: Arc::new(spec), compiled: Arc::new(compiled) })
}
