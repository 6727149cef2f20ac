//! Kernel settings of the whole node. Spec: crds 5.9.

use std::collections::BTreeMap;

use crate::crd::wire::wire;
use crate::quantity::Quantity;

wire! {
    /// Kernel settings of the whole node. Absent ones are left alone.
    pub struct SystemStrategy {
        /// vm.min_free_kbytes in ten-thousandths of total memory.
        pub min_free_kbytes_factor: Option<i64>,
        /// vm.watermark_scale_factor.
        pub watermark_scale_factor: Option<i64>,
        /// Whether the kernel reaps dead memory cgroups: 0 off, 1 on.
        pub memcg_reap_back_ground: Option<i64>,
        /// Whether the kernel schedules by group identity: 0 off, 1 on.
        pub sched_group_identity_enabled: Option<i64>,
        /// Idle time, in nanoseconds, that the scheduler saves for expelled tasks.
        pub sched_idle_saver_wmark: Option<i64>,
        /// Scheduler features of the kernel to switch on or off.
        pub sched_features: BTreeMap<String, bool>,
        /// Whether the page cache of containers is limited: 0 off, 1 on.
        pub page_cache_limit_enabled: Option<i64>,
        /// Network bandwidth of the node in bits per second.
        pub total_network_bandwidth: Quantity,
    }
}
