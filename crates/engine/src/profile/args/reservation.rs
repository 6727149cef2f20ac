//! Reservation. Spec: scheduler-reservation-loadaware A10.

use koord_api::duration::GoDuration;
use koord_api::keys::pod::annotation::PRE_ALLOCATABLE_PRIORITY;
use koord_api::keys::pod::label::IS_PRE_ALLOCATABLE;

use super::CandidateLimits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationArgs {
    /// Whether a reservation may preempt.
    pub enable_preemption: bool,
    pub candidates: CandidateLimits,
    pub controller_workers: usize,
    /// How long an ended reservation is kept. Above 0.
    pub gc_duration: GoDuration,
    /// Above 0.
    pub gc_interval: GoDuration,
    /// Above 0.
    pub resync_interval: GoDuration,
    pub disable_garbage_collection: bool,
    pub pre_allocation: PreAllocation,
    /// Extended resources that the fit check leaves out.
    pub ignored_resources: Vec<String>,
    /// Prefixes before `/` whose resources the fit check leaves out.
    pub ignored_resource_groups: Vec<String>,
    pub selector_index: SelectorIndex,
    /// Gate OmitNodeLabelsForReservation: only a reservation's own labels are looked at.
    pub omit_node_labels: bool,
    /// Gate SkipReservationFitsNode: with one reservation the node is left to NodeResourcesFit.
    pub skip_fits_node: bool,
    /// Gate CleanExpiredReservationAllocated: pods lose the mark of a reservation that is deleted.
    pub clean_allocated: bool,
}

/// Placing a reservation under pods that run already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreAllocation {
    pub enable_cluster_mode: bool,
    /// The label that marks pods for it in cluster mode.
    pub cluster_label_key: String,
    /// The annotation that ranks them.
    pub cluster_priority_annotation_key: String,
    pub prefer_no_pre_allocated_pods: bool,
}

/// Which keys of reservation selectors are indexed. No entry is blank, none stands twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorIndex {
    pub enabled: bool,
    pub key_prefixes: Vec<String>,
    pub keys: Vec<String>,
}

impl Default for PreAllocation {
    fn default() -> PreAllocation {
        PreAllocation {
            enable_cluster_mode: false,
            cluster_label_key: IS_PRE_ALLOCATABLE.to_owned(),
            cluster_priority_annotation_key: PRE_ALLOCATABLE_PRIORITY.to_owned(),
            prefer_no_pre_allocated_pods: false,
        }
    }
}

impl Default for ReservationArgs {
    fn default() -> ReservationArgs {
        ReservationArgs {
            enable_preemption: false,
            candidates: CandidateLimits::default(),
            controller_workers: 1,
            gc_duration: GoDuration::from_seconds(86_400),
            gc_interval: GoDuration::from_seconds(60),
            resync_interval: GoDuration::from_seconds(60),
            disable_garbage_collection: false,
            pre_allocation: PreAllocation::default(),
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            selector_index: SelectorIndex::default(),
            omit_node_labels: false,
            skip_fits_node: false,
            clean_allocated: false,
        }
    }
}
