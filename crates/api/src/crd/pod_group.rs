//! PodGroup: pods that start together or not at all. Spec: crds 9.

use crate::crd::wire::{empty_as_none, object, open_enum, wire};
use crate::quantity::ResourceList;
use crate::time::Time;

object! {
    /// Pods that start together or not at all.
    pub struct PodGroup = "scheduling.sigs.k8s.io" / "v1alpha1", "podgroups", NamespaceResourceScope {
        /// How many must start together.
        pub spec: Option<PodGroupSpec>,
        /// How many run. Written by koord-scheduler.
        pub status: Option<PodGroupStatus>,
    }
}

wire! {
    /// How many pods must start together.
    pub struct PodGroupSpec {
        /// Fewest pods to start.
        pub min_member: Option<i32>,
        /// Fewest resources to start with; not enforced.
        pub min_resources: ResourceList,
        /// How long placed pods wait for the others. 0 or less, and absent, is the scheduler's default.
        pub schedule_timeout_seconds: Option<i32>,
    }

    /// How many pods run.
    pub struct PodGroupStatus {
        /// How far the group has come.
        #[serde(deserialize_with = "empty_as_none")]
        pub phase: Option<PodGroupPhase>,
        /// Owner of the first pod.
        pub occupied_by: String,
        pub scheduled: i32,
        pub running: i32,
        pub succeeded: i32,
        pub failed: i32,
        /// When the first pod was tried.
        pub schedule_start_time: Option<Time>,
    }
}

open_enum! {
    /// How far a group has come.
    pub enum PodGroupPhase {
        Pending = "Pending",
        PreScheduling = "PreScheduling",
        Scheduling = "Scheduling",
        Scheduled = "Scheduled",
        Running = "Running",
        Unknown = "Unknown",
        Finished = "Finished",
        Failed = "Failed",
    }
}
