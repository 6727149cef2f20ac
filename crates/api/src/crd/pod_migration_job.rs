//! PodMigrationJob: move one pod, with its new place reserved before the old one is given up. Spec: crds 2.

mod event;
mod status;

pub use event::{ACTION, JobEvent, REPORTER, RESERVATION_EXPIRED_MESSAGE, reason};
pub use status::COMPLETE;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};

use crate::crd::condition::ConditionStatus;
use crate::crd::decode::schemaless;
use crate::crd::reservation::ReservationSpec;
use crate::crd::schema;
use crate::crd::wire::{empty_as_none, object, open_enum, wire};
use crate::duration::GoDuration;
use crate::time::Time;

object! {
    /// Moves one pod, with its new place reserved before the old one is given up.
    pub struct PodMigrationJob = "scheduling.koordinator.sh" / "v1alpha1", "podmigrationjobs", ClusterResourceScope {
        /// Which pod, and how.
        pub spec: Option<PodMigrationJobSpec>,
        /// How far it has come. Written by koord-descheduler.
        pub status: Option<PodMigrationJobStatus>,
    }
}

wire! {
    /// Which pod is moved, and how.
    #[schemars(extend("required" = ["podRef"]))]
    pub struct PodMigrationJobSpec {
        /// Whether the job is left alone.
        pub paused: Option<bool>,
        /// Time to finish in, from creation on. Absent or 0 is without limit.
        pub ttl: Option<GoDuration>,
        /// ReservationFirst (default) or EvictDirectly.
        #[serde(deserialize_with = "empty_as_none")]
        pub mode: Option<MigrationMode>,
        /// The pod to move.
        #[schemars(schema_with = "schema::object_reference")]
        pub pod_ref: Option<ObjectReference>,
        /// The reservation for the new pod.
        pub reservation_options: Option<ReservationOptions>,
        /// How pods are deleted.
        #[schemars(schema_with = "schema::delete_options")]
        pub delete_options: Option<DeleteOptions>,
    }

    /// The reservation for the new pod.
    pub struct ReservationOptions {
        /// A reservation that exists; filled in when the job creates one.
        #[schemars(schema_with = "schema::object_reference")]
        pub reservation_ref: Option<ObjectReference>,
        /// The reservation to create.
        #[serde(deserialize_with = "schemaless")]
        #[schemars(schema_with = "schema::any")]
        pub template: Option<ReservationTemplate>,
        /// Nothing yet.
        pub preemption_options: Option<PreemptionOptions>,
    }

    /// The reservation to create.
    pub struct ReservationTemplate {
        #[schemars(schema_with = "schema::object_meta")]
        pub metadata: ObjectMeta,
        pub spec: Option<ReservationSpec>,
    }

    /// Nothing yet.
    pub struct PreemptionOptions {}

    /// How far the job has come.
    pub struct PodMigrationJobStatus {
        /// Pending, Running, Succeeded, Failed or Aborted. Absent counts as Pending.
        #[serde(deserialize_with = "empty_as_none")]
        pub phase: Option<PodMigrationJobPhase>,
        /// Type of the last condition, or Complete.
        pub status: String,
        /// Reason of the last condition.
        pub reason: String,
        /// Message of the last condition.
        pub message: String,
        /// What happened so far.
        pub conditions: Vec<PodMigrationJobCondition>,
        /// The node of the new pod.
        pub node_name: String,
        /// The new pod.
        #[schemars(schema_with = "schema::object_reference")]
        pub pod_ref: Option<ObjectReference>,
        /// Pods that had to go.
        #[schemars(schema_with = "schema::object_references")]
        pub preempted_pods_ref: Vec<ObjectReference>,
        /// Reservations for the pods that had to go.
        pub preempted_pods_reservation: Vec<PreemptedReservation>,
    }

    /// One step of a job.
    #[schemars(extend("required" = ["status", "type"]))]
    pub struct PodMigrationJobCondition {
        /// The step.
        #[serde(rename = "type")]
        pub condition_type: PodMigrationJobConditionType,
        /// True, False or Unknown.
        pub status: ConditionStatus,
        /// When this was last looked at.
        #[schemars(extend("nullable" = true))]
        pub last_probe_time: Option<Time>,
        /// When the status last changed.
        #[schemars(extend("nullable" = true))]
        pub last_transition_time: Option<Time>,
        /// Why, in one word.
        pub reason: String,
        /// Why, for people.
        pub message: String,
    }

    /// A reservation for a pod that had to go.
    pub struct PreemptedReservation {
        pub namespace: String,
        pub name: String,
        pub node_name: String,
        pub phase: String,
        /// The pod that had to go.
        #[schemars(schema_with = "schema::object_reference")]
        pub preempted_pod_ref: Option<ObjectReference>,
        /// Pods that use the reservation.
        #[schemars(schema_with = "schema::object_references")]
        pub pods_ref: Vec<ObjectReference>,
    }
}

open_enum! {
    /// In which order a pod is moved.
    pub enum MigrationMode {
        /// Reserve the new place, then evict.
        ReservationFirst = "ReservationFirst",
        /// Evict at once.
        EvictDirectly = "EvictDirectly",
    }

    /// How far a job has come.
    pub enum PodMigrationJobPhase {
        Pending = "Pending",
        Running = "Running",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Aborted = "Aborted",
        /// Written by v0.6 where Succeeded is written now.
        Succeed = "Succeed",
    }

    /// The steps of a job.
    pub enum PodMigrationJobConditionType {
        ReservationCreated = "ReservationCreated",
        ReservationScheduled = "ReservationScheduled",
        Preemption = "Preemption",
        Eviction = "Eviction",
        PodScheduled = "PodScheduled",
        PodBoundReservation = "PodBoundReservation",
        BoundPodReady = "BoundPodReady",
        ReservationBound = "ReservationBound",
    }
}
