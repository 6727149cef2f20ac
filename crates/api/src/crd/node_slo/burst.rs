//! How far containers may burst above their CPU limit. Spec: crds 5.8.

use crate::crd::wire::{empty_as_none, open_enum, wire};

wire! {
    /// How far containers may burst above their CPU limit.
    pub struct CpuBurstStrategy {
        /// `none` (default), `cpuBurstOnly`, `cfsQuotaBurstOnly` or `auto`.
        #[serde(deserialize_with = "empty_as_none")]
        pub policy: Option<CpuBurstPolicy>,
        /// CPU time that may be saved up, in percent of the limit.
        #[schemars(range(min = 0, max = 10000))]
        pub cpu_burst_percent: Option<i64>,
        /// How far the quota may be raised, in percent of the limit.
        pub cfs_quota_burst_percent: Option<i64>,
        /// How long the quota may stay raised; -1 is without limit.
        pub cfs_quota_burst_period_seconds: Option<i64>,
        /// Use of the shared CPUs, in percent, above which raised quotas are lowered again.
        pub share_pool_threshold_percent: Option<i64>,
    }
}

open_enum! {
    /// Which of the two ways to burst are on.
    pub enum CpuBurstPolicy {
        None = "none",
        /// Save up unused time in the kernel.
        CpuBurstOnly = "cpuBurstOnly",
        /// Raise the quota of throttled containers.
        CfsQuotaBurstOnly = "cfsQuotaBurstOnly",
        /// Both.
        Auto = "auto",
    }
}
