//! What the engine wants done: writes to the API, in the order given for one pod, side by side for different pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::quantity::ResourceList;

use crate::pod::{Pod, PodKey};
use crate::time::Time;

/// One thing to do. Those with an outcome are answered by `Input::Outcome` for the same uid.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Writes that come before a bind. Outcome: prepared or not. A pod without any has no such command.
    Prepare(Box<BindPlan>),
    /// Posts the binding; of a Reservation, writes its status. Outcome: bound or not.
    Bind(Binding),
    /// Patches the status of a pod that waits. No outcome: what fails is tried again by the outside, then let go.
    PatchStatus(Box<StatusPatch>),
    /// Marks the victims, deletes them, and tells of it on each. Outcome: preempted or not.
    Preempt(Box<PreemptOrder>),
    /// Takes annotations off a pod again whose bind failed. No outcome.
    Unmark(Box<Unmark>),
    Tell(Box<Note>),
    /// Changes the status of a Reservation. Outcome: written or not, but none for a refusal, which the next attempt says
    /// again.
    WriteReservation(Box<ReservationWrite>),
    /// Deletes a Reservation that has ended long ago, if it still has this UID. No outcome.
    DeleteReservation {
        name: Box<str>,
        uid: Box<str>,
    },
    /// Something for the log that users of the cluster need not see.
    Warn(String),
}

/// Which pod, or which Reservation, a command is about; an event can also be about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub key: PodKey,
    pub uid: Box<str>,
    /// The name of the Reservation that the pod stands for. Then there is no such pod, and everything that the command
    /// says of it is meant for the Reservation with this name and `uid`: annotations, events.
    pub reserves: Option<Arc<str>>,
}

impl Subject {
    pub fn of(pod: &Pod) -> Subject {
        Subject { key: pod.key.clone(), uid: pod.uid.clone(), reserves: pod.reserves.clone() }
    }

    /// As people know it: `namespace/name`, or the name of the Reservation.
    pub fn name(&self) -> String {
        self.reserves.as_ref().map_or_else(|| self.key.to_string(), |name| name.to_string())
    }

    /// A node, which has no namespace.
    pub fn node(name: &str, uid: &str) -> Subject {
        Subject { key: PodKey { namespace: "".into(), name: name.into() }, uid: uid.into(), reserves: None }
    }

    pub fn is_node(&self) -> bool {
        self.key.namespace.is_empty() && self.reserves.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub pod: Subject,
    pub node: Box<str>,
    /// The profile that chose, for events and metrics.
    pub scheduler: Box<str>,
    /// The place in the configured list of the extender that binds it, if one does.
    pub extender: Option<usize>,
    /// A Reservation whose room on the node is not free yet.
    pub waits_for_room: bool,
}

/// What has to be written before a bind, by all plugins together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BindPlan {
    pub pod: Option<Subject>,
    pub node: Box<str>,
    /// Writes `status.nominatedNodeName` first, so that others know while the rest takes its time.
    pub nominates: bool,
    /// Whole objects to update, in order; metadata carries the version they were read at.
    pub volumes: Vec<core::PersistentVolume>,
    pub claims: Vec<core::PersistentVolumeClaim>,
    /// One patch of the pod for all plugins; a value of none removes the key.
    pub annotations: BTreeMap<String, Option<String>>,
    pub labels: BTreeMap<String, Option<String>>,
    /// Other pods that get annotations too: those that a reservation takes in with it.
    pub others: Vec<Marked>,
    /// How long plugins may take to settle.
    pub settles_until: Option<Time>,
}

impl BindPlan {
    /// Whether nothing has to be written or waited for.
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty()
            && self.claims.is_empty()
            && self.annotations.is_empty()
            && self.labels.is_empty()
            && self.others.is_empty()
            && self.settles_until.is_none()
    }
}

/// Annotations that a pod got for a node that it did not come to. Another pod of its name is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmark {
    pub pod: Subject,
    /// A pod that is there keeps them; empty for one that must not keep them anywhere.
    pub node: Box<str>,
    pub annotations: Vec<String>,
}

/// Annotations for a pod; it must still have this UID.
#[derive(Clone, Debug, PartialEq)]
pub struct Marked {
    pub pod: Subject,
    pub annotations: BTreeMap<String, Option<String>>,
}

/// A change of a waiting pod's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPatch {
    pub pod: Subject,
    /// The condition `PodScheduled`.
    pub condition: Option<Condition>,
    /// `status.nominatedNodeName`; empty clears it.
    pub nominated: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub reason: &'static str,
    pub message: String,
    pub observed_generation: i64,
    /// There was none before: its status changes now, not only its text.
    pub is_new: bool,
}

/// Pods that have to go for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptOrder {
    pub preemptor: Subject,
    pub scheduler: Box<str>,
    pub node: Box<str>,
    /// The last one goes after all others.
    pub victims: Vec<Subject>,
}

/// A change of a Reservation's status, made to the object as it then is. One that has ended is left alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationWrite {
    pub name: Box<str>,
    /// An object of this name with another UID is left alone.
    pub uid: Box<str>,
    pub change: ReservationChange,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ReservationChange {
    /// No node can take it.
    Unschedulable { message: String },
    /// What it waited for is free.
    Available,
    /// Its time is over, or its node is gone.
    Expired,
    /// These pods use so much of it now.
    Owners {
        /// Ascending by UID.
        owners: Vec<Subject>,
        allocated: ResourceList,
        /// It was for one owner, and has had that.
        is_consumed: bool,
    },
}

/// An event for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub about: Subject,
    pub related: Option<Subject>,
    pub scheduler: Box<str>,
    pub is_warning: bool,
    pub reason: &'static str,
    pub action: &'static str,
    /// At most 1024 bytes.
    pub note: String,
}
