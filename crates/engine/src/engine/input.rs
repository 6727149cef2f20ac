//! What the engine is told: objects as they are now, outcomes of its commands, and that time passed.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::storage::v1 as storage;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::reservation::Reservation;
use serde::{Deserialize, Serialize};

/// One thing that happened. Objects come whole; new or changed is for the engine to see, and one that comes twice or
/// late does no harm. Serializable: a log of inputs with their times is a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Input {
    /// A pod that has not finished. Any scheduler's: those on nodes count.
    Pod {
        object: Box<core::Pod>,
    },
    /// A pod was deleted, or has finished.
    PodGone {
        namespace: String,
        name: String,
        uid: String,
    },
    Node {
        object: Box<core::Node>,
    },
    NodeGone {
        name: String,
    },
    Namespace {
        object: Box<core::Namespace>,
    },
    NamespaceGone {
        name: String,
    },
    /// What a node of the same name uses.
    NodeMetric {
        object: Box<NodeMetric>,
    },
    NodeMetricGone {
        name: String,
    },
    Budget {
        object: Box<policy::PodDisruptionBudget>,
    },
    BudgetGone {
        namespace: String,
        name: String,
    },
    /// Services and owners of pods, whose selectors make the default spreading.
    Workload {
        object: Workload,
    },
    WorkloadGone {
        kind: WorkloadKind,
        namespace: String,
        name: String,
    },
    Storage {
        object: Storage,
    },
    StorageGone {
        kind: StorageKind,
        namespace: String,
        name: String,
    },
    /// A Reservation, in whatever phase.
    Reservation {
        object: Box<Reservation>,
    },
    ReservationGone {
        name: String,
        uid: String,
    },
    /// What became of a command.
    Outcome {
        uid: String,
        outcome: Outcome,
    },
    /// Tries this pod again soon, whatever keeps it waiting.
    Activate {
        namespace: String,
        name: String,
    },
    /// Time passed; nothing else happened.
    Tick,
}

/// Kinds whose selectors make the default spreading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Workload {
    Service(Box<core::Service>),
    ReplicationController(Box<core::ReplicationController>),
    ReplicaSet(Box<apps::ReplicaSet>),
    StatefulSet(Box<apps::StatefulSet>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WorkloadKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

/// Kinds that volume plugins look at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Storage {
    PersistentVolume(Box<core::PersistentVolume>),
    PersistentVolumeClaim(Box<core::PersistentVolumeClaim>),
    StorageClass(Box<storage::StorageClass>),
    CsiNode(Box<storage::CSINode>),
    CsiDriver(Box<storage::CSIDriver>),
    CsiStorageCapacity(Box<storage::CSIStorageCapacity>),
    VolumeAttachment(Box<storage::VolumeAttachment>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StorageKind {
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
}

/// How a command ended. The pod is the one that the command was for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum Outcome {
    /// All writes of `Command::Prepare` succeeded.
    Prepared,
    /// One of them did not; `message` is the whole text, with the plugin that wanted it.
    PrepareFailed {
        message: String,
    },
    Bound,
    /// `message` is what the API said.
    BindFailed {
        message: String,
    },
    /// All victims were told to go.
    Preempted,
    PreemptFailed {
        message: String,
    },
    /// The change of a Reservation was made, or is no longer needed.
    Written,
    WriteFailed {
        message: String,
    },
}
