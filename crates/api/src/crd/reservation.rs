//! Reservation: resources held on a node for pods that are still to come. Spec: crds 1.

mod owner;
mod reserve_pod;
mod status;
mod validate;

pub use owner::{OwnedPod, OwnerError, OwnerMark, OwnerMatcher, Reference};
pub use reserve_pod::FAKE_CONTAINER;
pub use status::reason;
pub use validate::{InvalidReservation, ValidReservation, validate};

use k8s_openapi::api::core::v1::{ObjectReference, PodTemplateSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::condition::ConditionStatus;
use crate::crd::decode::schemaless;
use crate::crd::schema;
use crate::crd::wire::{empty_as_none, object, open_enum, wire, wire_required};
use crate::duration::GoDuration;
use crate::quantity::ResourceList;
use crate::time::Time;

object! {
    /// Resources held on a node for pods that are still to come.
    pub struct Reservation = "scheduling.koordinator.sh" / "v1alpha1", "reservations", ClusterResourceScope {
        /// What is held, for whom and for how long.
        pub spec: Option<ReservationSpec>,
        /// Where it is held and by whom it is used. Written by koord-scheduler.
        pub status: Option<ReservationStatus>,
    }
}

wire! {
    /// What is held, for whom and for how long.
    #[schemars(extend("required" = ["owners", "template"]))]
    pub struct ReservationSpec {
        /// The pod that the resources are held for; scheduled like a pod. A node name in it pins
        /// the reservation to that node.
        #[serde(deserialize_with = "schemaless")]
        #[schemars(schema_with = "schema::any")]
        pub template: Option<PodTemplateSpec>,
        /// Who may use the resources. A pod needs to match one entry.
        #[schemars(length(min = 1))]
        pub owners: Vec<ReservationOwner>,
        /// Time to live from creation on. 0s never expires, whatever `expires` says.
        #[schemars(extend("x-koord-default" = "24h"))]
        pub ttl: Option<GoDuration>,
        /// When it expires. Note that the default of `ttl` holds beside it.
        pub expires: Option<Time>,
        /// Whether more may be reserved than is free now; the reservation then waits.
        pub pre_allocation: Option<bool>,
        /// Whether the first owner consumes the reservation.
        #[schemars(extend("x-koord-default" = true))]
        pub allocate_once: Option<bool>,
        /// Aligned: take from the reservation first, the rest from the node. Restricted: what the
        /// reservation holds is taken from it alone. Absent counts as Aligned.
        pub allocate_policy: Option<ReservationAllocatePolicy>,
        /// Whether new pods are kept from using it.
        pub unschedulable: Option<bool>,
        /// Taints that a pod must tolerate to use it.
        #[schemars(schema_with = "schema::taints")]
        pub taints: Vec<Taint>,
        /// Which pods may be counted in when preAllocation is on.
        pub pre_allocation_policy: Option<PreAllocationPolicy>,
    }

    /// One description of pods; all fields given must match.
    #[schemars(extend("minProperties" = 1))]
    pub struct ReservationOwner {
        /// One pod, by the given ones of uid, name, namespace and apiVersion.
        #[schemars(schema_with = "schema::object_reference")]
        pub object: Option<ObjectReference>,
        /// Pods of a controller.
        pub controller: Option<ReservationControllerReference>,
        /// Pods with these labels.
        #[schemars(schema_with = "schema::label_selector")]
        pub label_selector: Option<LabelSelector>,
    }

    /// Which pods may be counted in when preAllocation is on.
    pub struct PreAllocationPolicy {
        /// Default: pods that match `owners`. Cluster: pods that carry the cluster-wide label.
        #[schemars(extend("x-koord-default" = "Default"))]
        pub mode: Option<PreAllocationMode>,
        /// Whether several pods may be counted in together.
        #[schemars(extend("x-koord-default" = false))]
        pub enable_multiple: Option<bool>,
    }

    /// Where the resources are held and by whom they are used.
    pub struct ReservationStatus {
        /// Pending, Available, Waiting, Succeeded or Failed. Absent counts as Pending.
        #[serde(deserialize_with = "empty_as_none")]
        #[schemars(extend("x-koord-default" = "Pending"))]
        pub phase: Option<ReservationPhase>,
        /// What happened last.
        pub conditions: Vec<ReservationCondition>,
        /// Pods that use a share now.
        #[schemars(schema_with = "schema::object_references")]
        pub current_owners: Vec<ObjectReference>,
        /// The node.
        pub node_name: String,
        /// What is held.
        pub allocatable: ResourceList,
        /// What the current owners use of it.
        pub allocated: ResourceList,
    }

    /// One thing that happened to a reservation.
    pub struct ReservationCondition {
        /// Scheduled or Ready.
        #[serde(rename = "type")]
        pub condition_type: ReservationConditionType,
        /// True, False or Unknown.
        pub status: ConditionStatus,
        /// Why, in one word.
        pub reason: String,
        /// Why, for people.
        pub message: String,
        /// When this was last looked at.
        pub last_probe_time: Option<Time>,
        /// When the status last changed.
        pub last_transition_time: Option<Time>,
    }
}

wire_required! {
    /// Pods of a controller: an owner reference, and where the pod lives. Empty text matches anything.
    #[schemars(extend("required" = ["apiVersion", "kind", "name", "uid"], "x-kubernetes-map-type" = "atomic"))]
    pub struct ReservationControllerReference {
        pub api_version: String,
        pub kind: String,
        pub name: String,
        pub uid: String,
        /// Compared when given.
        pub controller: Option<bool>,
        /// Not compared.
        pub block_owner_deletion: Option<bool>,
        /// Namespace of the pod.
        pub namespace: Option<String>,
    }
}

/// Where the resources of an owner are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReservationAllocatePolicy {
    Aligned,
    Restricted,
}

/// Which pods may be counted in when preAllocation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PreAllocationMode {
    Default,
    Cluster,
}

open_enum! {
    /// How far a reservation has come.
    pub enum ReservationPhase {
        /// Not scheduled yet.
        Pending = "Pending",
        /// Scheduled and usable.
        Available = "Available",
        /// Scheduled, but its resources are not free yet.
        Waiting = "Waiting",
        /// Consumed by its one owner.
        Succeeded = "Succeeded",
        /// Expired or unusable.
        Failed = "Failed",
        /// Written by v0.5 where Failed is written now.
        Expired = "Expired",
    }

    /// What a condition of a reservation is about.
    pub enum ReservationConditionType {
        Scheduled = "Scheduled",
        Ready = "Ready",
    }
}
