//! When best-effort pods give way. Spec: crds 5.2.

use crate::crd::wire::{empty_as_none, open_enum, wire};

wire! {
    /// When best-effort pods are suppressed or evicted.
    pub struct ResourceThresholdStrategy {
        /// Master switch for suppression and eviction.
        pub enable: Option<bool>,
        /// CPU use of the node, in percent, above which best-effort pods are suppressed.
        #[schemars(range(min = 0, max = 100))]
        pub cpu_suppress_threshold_percent: Option<i64>,
        /// CPU that best-effort pods keep in any case, in percent of the node.
        #[schemars(range(min = 0, max = 100))]
        pub cpu_suppress_min_percent: Option<i64>,
        /// `cpuset` (default) or `cfsQuota`.
        #[serde(deserialize_with = "empty_as_none")]
        pub cpu_suppress_policy: Option<CpuSuppressPolicy>,
        /// Memory use of the node, in percent, above which best-effort pods are evicted.
        #[schemars(range(min = 0, max = 100))]
        pub memory_evict_threshold_percent: Option<i64>,
        /// Memory use, in percent, down to which eviction goes. Two below the threshold by default.
        #[schemars(range(min = 0, max = 100))]
        pub memory_evict_lower_percent: Option<i64>,
        /// Requested memory in percent of allocatable above which pods are evicted.
        #[schemars(range(min = 0))]
        pub memory_allocatable_evict_threshold_percent: Option<i64>,
        /// Requested memory in percent of allocatable down to which eviction goes.
        #[schemars(range(min = 0))]
        pub memory_allocatable_evict_lower_percent: Option<i64>,
        /// Satisfaction of best-effort CPU requests, in percent, above which eviction stops.
        #[serde(rename = "cpuEvictBESatisfactionUpperPercent")]
        pub cpu_evict_be_satisfaction_upper_percent: Option<i64>,
        /// Satisfaction of best-effort CPU requests, in percent, below which eviction starts.
        #[serde(rename = "cpuEvictBESatisfactionLowerPercent")]
        pub cpu_evict_be_satisfaction_lower_percent: Option<i64>,
        /// CPU use of best-effort pods, in percent of what they may use, needed to start eviction.
        #[serde(rename = "cpuEvictBEUsageThresholdPercent")]
        pub cpu_evict_be_usage_threshold_percent: Option<i64>,
        /// Length of the averaging window for CPU eviction.
        pub cpu_evict_time_window_seconds: Option<i64>,
        /// CPU use of the node, in percent, above which pods are evicted.
        #[schemars(range(min = 0, max = 100))]
        pub cpu_evict_threshold_percent: Option<i64>,
        /// CPU use, in percent, down to which eviction goes. Two below the threshold by default.
        #[schemars(range(min = 0, max = 100))]
        pub cpu_evict_lower_percent: Option<i64>,
        /// Requested CPU in percent of allocatable above which pods are evicted.
        #[schemars(range(min = 0))]
        pub cpu_allocatable_evict_threshold_percent: Option<i64>,
        /// Requested CPU in percent of allocatable down to which eviction goes.
        #[schemars(range(min = 0))]
        pub cpu_allocatable_evict_lower_percent: Option<i64>,
        /// `evictByRealLimit` (default) or `evictByAllocatable`.
        #[serde(deserialize_with = "empty_as_none")]
        pub cpu_evict_policy: Option<CpuEvictPolicy>,
        /// Highest pod priority that may be evicted.
        pub evict_enabled_priority_threshold: Option<i32>,
        /// Highest pod priority that may be evicted for requests over allocatable; below koord-prod.
        pub allocatable_evict_priority_threshold: Option<i32>,
    }
}

open_enum! {
    /// How best-effort pods are held below their CPU budget.
    pub enum CpuSuppressPolicy {
        /// Fewer CPUs.
        Cpuset = "cpuset",
        /// Less time on all CPUs.
        CfsQuota = "cfsQuota",
    }

    /// What CPU satisfaction is measured against.
    pub enum CpuEvictPolicy {
        /// The CPU that best-effort pods may really use now.
        EvictByRealLimit = "evictByRealLimit",
        /// The batch CPU that the node offers.
        EvictByAllocatable = "evictByAllocatable",
    }
}
