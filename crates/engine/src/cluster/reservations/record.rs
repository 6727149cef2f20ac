//! A Reservation as scheduling needs it, compiled once from the object.

use std::collections::BTreeMap;
use std::num::NonZeroI64;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use koord_api::crd::reservation::OwnerMatcher;
use koord_api::resource::{ResourceId, ResourceVector};

use crate::pod::Pod;
use crate::pod::reservation::{Policy, PreAllocation};
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
    /// A running pod in operating mode Reservation.
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
    pub pre_allocation: Option<PreAllocation>,
    /// What is held: `status.allocatable` once it is available, what the template asks for before.
    pub allocatable: ResourceVector,
    /// The resources that owners are counted in, ascending by name.
    pub names: Box<[ResourceId]>,
    /// What is never given to owners.
    pub inner: ResourceVector,
    /// Who may use it; the fault of a list that cannot be read, or of restricted options.
    pub owners: Result<OwnerMatcher, String>,
}
