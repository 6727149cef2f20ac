//! What the engine wants done: writes to the API, in the order given for one pod, side by side for different pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;

use crate::pod::{Pod, PodKey};
use crate::time::Time;

/// One thing to do. Those with an outcome are answered by `Input::Outcome` for the same uid.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Writes that come before a bind. Outcome: prepared or not. A pod without any has no such command.
    Prepare(Box<BindPlan>),
    /// Posts the binding. Outcome: bound or not.
    Bind(Binding),
    /// Patches the status of a pod that waits. No outcome: what fails is tried again by the outside, then let go.
    PatchStatus(Box<StatusPatch>),
    /// Marks the victims, deletes them, and tells of it on each. Outcome: preempted or not.
    Preempt(Box<PreemptOrder>),
    Tell(Box<Note>),
    /// Something for the log that users of the cluster need not see.
    Warn(String),
}

/// Which pod a command is about; an event can also be about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub key: PodKey,
    pub uid: Box<str>,
}

impl Subject {
    pub fn of(pod: &Pod) -> Subject {
        Subject { key: pod.key.clone(), uid: pod.uid.clone() }
    }

    /// A node, which has no namespace.
    pub fn node(name: &str, uid: &str) -> Subject {
        Subject { key: PodKey { namespace: "".into(), name: name.into() }, uid: uid.into() }
    }

    pub fn is_node(&self) -> bool {
        self.key.namespace.is_empty()
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
            && self.settles_until.is_none()
    }
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
