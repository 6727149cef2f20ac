//! Every label key, annotation key and resource name we read or write, each spelt once.
//!
//! Find a key by the object that carries it: `keys::<object>::label` or `keys::<object>::annotation`.
//! A key that several objects carry is spelt at its first home and re-exported at the others.
//! Names that start with `OLD_` are earlier spellings: read them, never write them.
//! What a value means lives in `annotation`, `qos`, `priority`. Spec: api 1.1, 3.3, 4, 5.

/// Prefixes of our keys (and of Kubernetes' where we use them). Spec: api 1.1.
pub mod domain {
    pub const BASE: &str = "koordinator.sh/";
    pub const KUBERNETES: &str = "kubernetes.io/";
    pub const SCHEDULING: &str = "scheduling.koordinator.sh/";
    pub const INTERNAL_SCHEDULING: &str = "internal.scheduling.koordinator.sh/";
    pub const NODE: &str = "node.koordinator.sh/";
    pub const POD: &str = "pod.koordinator.sh/";
    pub const QUOTA: &str = "quota.scheduling.koordinator.sh/";
    pub const GANG: &str = "gang.scheduling.koordinator.sh/";
    pub const KUBELET: &str = "kubelet.koordinator.sh/";
    pub const PROFILE: &str = "config.koordinator.sh/";
    pub const DESCHEDULER: &str = "descheduler.koordinator.sh/";
    pub const RUNTIME_PROXY: &str = "runtimeproxy.koordinator.sh/";
}

/// Names of countable things in requests, limits, allocatable and capacity. Spec: api 3.3.
pub mod resource {
    pub const CPU: &str = "cpu";
    pub const MEMORY: &str = "memory";
    pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

    /// Integer milli-cores.
    pub const BATCH_CPU: &str = "kubernetes.io/batch-cpu";
    /// Bytes.
    pub const BATCH_MEMORY: &str = "kubernetes.io/batch-memory";
    /// Integer milli-cores.
    pub const MID_CPU: &str = "kubernetes.io/mid-cpu";
    /// Bytes.
    pub const MID_MEMORY: &str = "kubernetes.io/mid-memory";

    /// Percent of GPUs: 100 is one GPU. Shorthand for core and memory ratio together.
    pub const GPU: &str = "koordinator.sh/gpu";
    pub const GPU_CORE: &str = "koordinator.sh/gpu-core";
    pub const GPU_MEMORY: &str = "koordinator.sh/gpu-memory";
    pub const GPU_MEMORY_RATIO: &str = "koordinator.sh/gpu-memory-ratio";
    pub const GPU_SHARED: &str = "koordinator.sh/gpu.shared";
    pub const RDMA: &str = "koordinator.sh/rdma";
    pub const FPGA: &str = "koordinator.sh/fpga";

    pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
    pub const AMD_GPU: &str = "amd.com/gpu";
    pub const HYGON_DCU: &str = "dcu.com/gpu";
    pub const HUAWEI_NPU_CORE: &str = "huawei.com/npu-core";
    pub const HUAWEI_NPU_CPU: &str = "huawei.com/npu-cpu";
    pub const HUAWEI_NPU_DVPP: &str = "huawei.com/npu-dvpp";

    pub const OLD_BATCH_CPU: &str = "koordinator.sh/batch-cpu";
    pub const OLD_BATCH_MEMORY: &str = "koordinator.sh/batch-memory";
    pub const OLD_GPU: &str = "kubernetes.io/gpu";
    pub const OLD_GPU_CORE: &str = "kubernetes.io/gpu-core";
    pub const OLD_GPU_MEMORY: &str = "kubernetes.io/gpu-memory";
    pub const OLD_GPU_MEMORY_RATIO: &str = "kubernetes.io/gpu-memory-ratio";
    pub const OLD_RDMA: &str = "kubernetes.io/rdma";
    pub const OLD_FPGA: &str = "kubernetes.io/fpga";

    /// Old batch names and what they are called today.
    pub const OLD_BATCH_NAMES: [(&str, &str); 2] =
        [(OLD_BATCH_CPU, BATCH_CPU), (OLD_BATCH_MEMORY, BATCH_MEMORY)];

    /// Old device names and what they are called today.
    pub const OLD_DEVICE_NAMES: [(&str, &str); 6] = [
        (OLD_RDMA, RDMA),
        (OLD_FPGA, FPGA),
        (OLD_GPU, GPU),
        (OLD_GPU_CORE, GPU_CORE),
        (OLD_GPU_MEMORY, GPU_MEMORY),
        (OLD_GPU_MEMORY_RATIO, GPU_MEMORY_RATIO),
    ];
}

/// Carried by Pods.
pub mod pod {
    /// Spec: api 4.1.
    pub mod label {
        pub use crate::keys::gang::label::{MIN_AVAILABLE, OLD_POD_GROUP_NAME, POD_GROUP};
        pub use crate::keys::quota::label::{NAME as QUOTA_NAME, TREE_ID as QUOTA_TREE_ID};

        pub const QOS_CLASS: &str = "koordinator.sh/qosClass";
        /// Sub-priority inside one priority class.
        pub const PRIORITY: &str = "koordinator.sh/priority";
        pub const PRIORITY_CLASS: &str = "koordinator.sh/priority-class";
        pub const MUTATING_UPDATE: &str = "pod.koordinator.sh/mutating-update";
        pub const SKIP_ENHANCED_VALIDATION: &str = "pod.koordinator.sh/skip-enhanced-validation";
        pub const IS_PRE_ALLOCATABLE: &str = "pod.koordinator.sh/is-pre-allocatable";
        pub const EVICTION_ENABLED: &str = "koordinator.sh/eviction-enabled";
        pub const OPERATING_MODE: &str = "scheduling.koordinator.sh/operating-mode";
        pub const RESERVATION_IGNORED: &str = "scheduling.koordinator.sh/reservation-ignored";
        pub const PREEMPTION_POLICY: &str = "scheduling.koordinator.sh/preemption-policy";
        pub const DISABLE_PREEMPTIBLE: &str = "scheduling.koordinator.sh/disable-preemptible";
        pub const SCHEDULER_NAME: &str = "scheduling.koordinator.sh/scheduler-name";
        pub const TOPOLOGY_KEY_TO_EXPLAIN: &str = "scheduling.koordinator.sh/topology-key-to-explain";
        /// `"false"`: not preemptible, limited by the quota's min.
        pub const QUOTA_PREEMPTIBLE: &str = "quota.scheduling.koordinator.sh/preemptible";
        pub const CORE_SCHED_GROUP_ID: &str = "koordinator.sh/core-sched-group-id";
        pub const CORE_SCHED_POLICY: &str = "koordinator.sh/core-sched-policy";
        pub const GPU_ISOLATION_PROVIDER: &str = "koordinator.sh/gpu-isolation-provider";
        pub const HAMI_VGPU_NODE: &str = "hami.io/vgpu-node";
        pub const SKIP_HOOK_SERVER: &str = "runtimeproxy.koordinator.sh/skip-hookserver";
        pub const BINDING_ADMISSION_BYPASS: &str = "koordinator.sh/binding-admission-bypass";
    }

    /// Spec: api 5.1, 5.5 to 5.8, 5.10, 5.11.
    pub mod annotation {
        pub const RESOURCE_SPEC: &str = "scheduling.koordinator.sh/resource-spec";
        pub const RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";
        pub const NUMA_TOPOLOGY_SPEC: &str = "scheduling.koordinator.sh/numa-topology-spec";

        pub const DEVICE_ALLOCATED: &str = "scheduling.koordinator.sh/device-allocated";
        pub const DEVICE_ALLOCATE_HINT: &str = "scheduling.koordinator.sh/device-allocate-hint";
        pub const DEVICE_JOINT_ALLOCATE: &str = "scheduling.koordinator.sh/device-joint-allocate";
        pub const GPU_PARTITION_SPEC: &str = "scheduling.koordinator.sh/gpu-partition-spec";
        pub const BIND_TIMESTAMP: &str = "scheduling.koordinator.sh/bind-timestamp";
        pub const GPU_MINORS: &str = "scheduling.koordinator.sh/gpu-minors";
        pub const HUAWEI_PREDICATE_TIME: &str = "predicate-time";
        pub use crate::keys::resource::HUAWEI_NPU_CORE;
        pub const HUAWEI_ASCEND_310P: &str = "huawei.com/Ascend310P";
        /// The vendor spells it so.
        pub const CAMBRICON_DSMLU_ASSIGHED: &str = "CAMBRICON_DSMLU_ASSIGHED";
        pub const CAMBRICON_DSMLU_PROFILE: &str = "CAMBRICON_DSMLU_PROFILE";
        pub const METAX_GPU_DEVICES_ALLOCATED: &str = "metax-tech.com/gpu-devices-allocated";

        pub const RESERVATION_ALLOCATED: &str = "scheduling.koordinator.sh/reservation-allocated";
        pub const RESERVATION_AFFINITY: &str = "scheduling.koordinator.sh/reservation-affinity";
        pub const EXACT_MATCH_RESERVATION: &str = "scheduling.koordinator.sh/exact-match-reservation";
        pub const RESERVATION_OWNERS: &str = "scheduling.koordinator.sh/reservation-owners";
        pub const RESERVATION_CURRENT_OWNER: &str = "scheduling.koordinator.sh/reservation-current-owner";
        /// On the stand-in pod of a Reservation, in memory only; refused on real pods.
        pub const RESERVE_POD: &str = "scheduling.koordinator.sh/reserve-pod";
        pub const RESERVATION_NAME: &str = "scheduling.koordinator.sh/reservation-name";
        pub const RESERVATION_NODE: &str = "scheduling.koordinator.sh/reservation-node";
        pub const IS_PRE_ALLOCATION: &str = "scheduling.koordinator.sh/is-pre-allocation";
        pub const PRE_ALLOCATABLE_PRIORITY: &str = "pod.koordinator.sh/pre-allocatable-priority";

        pub const EVICTION_COST: &str = "scheduling.koordinator.sh/eviction-cost";
        pub const SOFT_EVICTION: &str = "scheduling.koordinator.sh/soft-eviction";
        pub const EVICTION_POLICY: &str = "koordinator.sh/eviction-policy";
        pub const EVICTION_PRIORITY: &str = "koordinator.sh/eviction-priority";
        pub const ARBITRATING: &str = "descheduler.koordinator.sh/pod-arbitrating";

        pub const NETWORK_TOPOLOGY_SELECTOR: &str = "scheduling.koordinator.sh/network-topology-selector";
        pub const BIND_GANG_GROUP_ID: &str = "internal.scheduling.koordinator.sh/bind-gang-group-id";
        pub const OLD_BIND_GANG_GROUP_ID: &str = "scheduling.koordinator.sh/bind-gang-group-id";
        pub const BIND_GANG_MEMBER_COUNT: &str = "internal.scheduling.koordinator.sh/bind-gang-member-count";
        pub const OLD_BIND_GANG_MEMBER_COUNT: &str = "scheduling.koordinator.sh/bind-gang-member-count";
        pub const SCHEDULING_HINT: &str = "internal.scheduling.koordinator.sh/scheduling-hint";
        pub const OLD_SCHEDULING_HINT: &str = "scheduling.koordinator.sh/scheduling-hint";
        pub const ORIGINAL_SCHEDULER_NAME: &str =
            "internal.scheduling.koordinator.sh/original-scheduler-name";

        pub const EXTENDED_RESOURCE_SPEC: &str = "node.koordinator.sh/extended-resource-spec";
        pub const CPU_BURST: &str = "koordinator.sh/cpuBurst";
        pub const MEMORY_QOS: &str = "koordinator.sh/memoryQOS";
        pub const OLD_MEMORY_QOS: &str = "koordinator.sh/memoryQoS";
        pub const CPU_QOS: &str = "koordinator.sh/cpuQOS";
        pub const BLKIO_QOS: &str = "koordinator.sh/blkioQOS";
        pub const NETWORK_QOS: &str = "koordinator.sh/networkQOS";
        pub const RESCTRL: &str = "node.koordinator.sh/resctrl";
        pub const OOM_SCORE_ADJ: &str = "koordinator.sh/oom-score-adj";
        pub const OOM_SCORE_ADJ_SPEC: &str = "koordinator.sh/oom-score-adj-spec";
        pub const REPLACE_RESOURCES: &str = "pod.koordinator.sh/replace-resources";

        pub const LOAD_ESTIMATED_SCALING_FACTORS: &str =
            "scheduling.koordinator.sh/load-estimated-scaling-factors";
        pub const LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED: &str =
            "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled";
        pub const LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED: &str =
            "scheduling.koordinator.sh/load-estimated-seconds-after-initialized";
        /// The name of a lease follows: when its holder last began to lead.
        pub const SYNC_BARRIER_PREFIX: &str = "scheduling.koordinator.sh/sync-barrier-";
    }
}

/// Carried by Pods that belong to a gang, and by PodGroups. Spec: api 4.1, 5.8.
pub mod gang {
    pub mod label {
        /// Gang membership by PodGroup name, the first choice.
        pub const POD_GROUP: &str = "pod-group.scheduling.sigs.k8s.io";
        /// Gang name of the deprecated lightweight coscheduling, the second choice.
        pub const OLD_POD_GROUP_NAME: &str = "pod-group.scheduling.sigs.k8s.io/name";
        pub const MIN_AVAILABLE: &str = "pod-group.scheduling.sigs.k8s.io/min-available";
    }

    pub mod annotation {
        pub const NAME: &str = "gang.scheduling.koordinator.sh/name";
        pub const MIN_AVAILABLE: &str = "gang.scheduling.koordinator.sh/min-available";
        pub const TOTAL_NUMBER: &str = "gang.scheduling.koordinator.sh/total-number";
        pub const MODE: &str = "gang.scheduling.koordinator.sh/mode";
        pub const MATCH_POLICY: &str = "gang.scheduling.koordinator.sh/match-policy";
        /// Read when `MATCH_POLICY` is empty.
        pub const ALIAS_MATCH_POLICY: &str = "pod-group.scheduling.sigs.k8s.io/match-policy";
        pub const WAITING_TIME: &str = "gang.scheduling.koordinator.sh/waiting-time";
        pub const GROUPS: &str = "gang.scheduling.koordinator.sh/groups";
        /// Set by old schedulers when a gang timed out.
        pub const OLD_TIMEOUT: &str = "gang.scheduling.koordinator.sh/timeout";
        pub const NETWORK_TOPOLOGY_INDEX: &str = "gang.scheduling.koordinator.sh/network-topology-index";
        pub const NETWORK_TOPOLOGY_SPEC: &str = "gang.scheduling.koordinator.sh/network-topology-spec";
    }
}

/// Carried by Nodes.
pub mod node {
    /// Spec: api 4.2.
    pub mod label {
        pub const CPU_BIND_POLICY: &str = "node.koordinator.sh/cpu-bind-policy";
        pub const NUMA_ALLOCATE_STRATEGY: &str = "node.koordinator.sh/numa-allocate-strategy";
        pub const NUMA_TOPOLOGY_POLICY: &str = "node.koordinator.sh/numa-topology-policy";
        pub const CPU_RECLAIM_RATIO: &str = "node.koordinator.sh/cpu-reclaim-ratio";
        pub const MEMORY_RECLAIM_RATIO: &str = "node.koordinator.sh/memory-reclaim-ratio";
        pub const MID_STATIC_CPU_RESERVED_RATIO: &str = "node.koordinator.sh/mid-static-cpu-reserved-ratio";
        pub const MID_STATIC_MEMORY_RESERVED_RATIO: &str =
            "node.koordinator.sh/mid-static-memory-reserved-ratio";
        pub const CPU_NORMALIZATION_ENABLED: &str = "node.koordinator.sh/cpu-normalization-enabled";
        pub const ENABLE_NUMA_RESERVATION: &str = "node.koordinator.sh/enable-numa-reservation";
        pub const GPU_VENDOR: &str = "node.koordinator.sh/gpu-vendor";
        pub const GPU_MODEL: &str = "node.koordinator.sh/gpu-model";
        pub const GPU_DRIVER_VERSION: &str = "node.koordinator.sh/gpu-driver-version";
        /// The v1.0 name of `GPU_MODEL`; written beside it.
        pub const KUBERNETES_GPU_MODEL: &str = "kubernetes.io/gpu-model";
        /// The v1.0 name of `GPU_DRIVER_VERSION`; written beside it.
        pub const KUBERNETES_GPU_DRIVER: &str = "kubernetes.io/gpu-driver";
        pub const GPU_PARTITION_POLICY: &str = "node.koordinator.sh/gpu-partition-policy";
    }

    /// Spec: api 5.3, 5.4.
    pub mod annotation {
        pub const RESERVATION: &str = "node.koordinator.sh/reservation";
        pub const SYSTEM_QOS_RESOURCE: &str = "node.koordinator.sh/system-qos-resource";
        pub const COLOCATION_STRATEGY: &str = "node.koordinator.sh/colocation-strategy";
        pub const NETWORK_BANDWIDTH: &str = "node.koordinator.sh/network-bandwidth";
        pub const CPU_NORMALIZATION_RATIO: &str = "node.koordinator.sh/cpu-normalization-ratio";
        pub const RESOURCE_AMPLIFICATION_RATIO: &str = "node.koordinator.sh/resource-amplification-ratio";
        pub const RAW_ALLOCATABLE: &str = "node.koordinator.sh/raw-allocatable";
        pub const ORIGIN_EXTENDED_ALLOCATABLE: &str = "node.koordinator.sh/originExtendedAllocatable";
        pub const THIRD_PARTY_ALLOCATIONS: &str = "node.koordinator.sh/thirdPartyAllocations";
        pub const USAGE_THRESHOLDS: &str = "scheduling.koordinator.sh/usage-thresholds";
        pub const HAMI_LOCK: &str = "hami.io/mutex.lock";
        pub const CAMBRICON_LOCK: &str = "cambricon.com/dsmlu.lock";
    }
}

/// Carried by NodeResourceTopology objects. Spec: api 4.4, 5.2.
pub mod node_topology {
    pub mod label {
        pub use crate::keys::node::label::ENABLE_NUMA_RESERVATION;

        pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    }

    pub mod annotation {
        pub use crate::keys::node::annotation::{RESERVATION, SYSTEM_QOS_RESOURCE};

        pub const CPU_TOPOLOGY: &str = "node.koordinator.sh/cpu-topology";
        pub const CPU_SHARED_POOLS: &str = "node.koordinator.sh/cpu-shared-pools";
        pub const BE_CPU_SHARED_POOLS: &str = "node.koordinator.sh/be-cpu-shared-pools";
        pub const POD_CPU_ALLOCS: &str = "node.koordinator.sh/pod-cpu-allocs";
        pub const CPU_MANAGER_POLICY: &str = "kubelet.koordinator.sh/cpu-manager-policy";
        pub const CPU_BASIC_INFO: &str = "node.koordinator.sh/cpu-basic-info";
    }
}

/// Carried by Device objects. Spec: api 4.2, 5.5.
pub mod device {
    pub mod label {
        pub use crate::keys::node::label::{GPU_DRIVER_VERSION, GPU_MODEL, GPU_PARTITION_POLICY, GPU_VENDOR};

        pub const SECONDARY_DEVICE_WELL_PLANNED: &str = "node.koordinator.sh/secondary-device-well-planned";
    }

    pub mod annotation {
        pub const GPU_PARTITIONS: &str = "scheduling.koordinator.sh/gpu-partitions";
    }
}

/// Carried by Reservations. Spec: api 4.3, 5.6.
pub mod reservation {
    pub mod label {
        pub use crate::keys::pod::label::PRIORITY;

        pub const ORDER: &str = "scheduling.koordinator.sh/reservation-order";
        pub const PRE_ALLOCATION_REQUIRED: &str = "scheduling.koordinator.sh/pre-allocation-required";
        pub const CREATED_BY: &str = "app.kubernetes.io/created-by";
    }

    pub mod annotation {
        pub const RESTRICTED_OPTIONS: &str = "scheduling.koordinator.sh/reservation-restricted-options";
        pub const RESIZE_ALLOCATABLE: &str = "scheduling.koordinator.sh/reservation-resize-allocatable";
    }
}

/// Carried by PodMigrationJobs. Spec: api 4.1, 5.7.
pub mod migration_job {
    pub mod label {
        pub const EVICT_POLICY: &str = "koordinator.sh/evict-policy";
    }

    pub mod annotation {
        pub const EVICT_REASON: &str = "koordinator.sh/evict-reason";
        pub const EVICT_TRIGGER: &str = "koordinator.sh/evict-trigger";
        pub const CREATED_BY: &str = "koordinator.sh/job-created-by";
        pub const PASSED_ARBITRATION: &str = "descheduler.koordinator.sh/passed-arbitration";
    }
}

/// Carried by ElasticQuotas and ElasticQuotaProfiles. Spec: api 4.5, 5.9.
pub mod quota {
    pub mod label {
        /// On pods: the quota a pod belongs to.
        pub const NAME: &str = "quota.scheduling.koordinator.sh/name";
        pub const IS_PARENT: &str = "quota.scheduling.koordinator.sh/is-parent";
        pub const PARENT: &str = "quota.scheduling.koordinator.sh/parent";
        pub const ALLOW_LENT_RESOURCE: &str = "quota.scheduling.koordinator.sh/allow-lent-resource";
        pub const IS_ROOT: &str = "quota.scheduling.koordinator.sh/is-root";
        pub const TREE_ID: &str = "quota.scheduling.koordinator.sh/tree-id";
        pub const IGNORE_DEFAULT_TREE: &str = "quota.scheduling.koordinator.sh/ignore-default-tree";
        pub const ALLOW_FORCE_UPDATE: &str = "quota.scheduling.koordinator.sh/allow-force-update";
        pub const PROFILE: &str = "quota.scheduling.koordinator.sh/profile";
    }

    pub mod annotation {
        pub const SHARED_WEIGHT: &str = "quota.scheduling.koordinator.sh/shared-weight";
        pub const RUNTIME: &str = "quota.scheduling.koordinator.sh/runtime";
        pub const REQUEST: &str = "quota.scheduling.koordinator.sh/request";
        pub const CHILD_REQUEST: &str = "quota.scheduling.koordinator.sh/child-request";
        pub const GUARANTEED: &str = "quota.scheduling.koordinator.sh/guaranteed";
        pub const ALLOCATED: &str = "quota.scheduling.koordinator.sh/allocated";
        pub const NON_PREEMPTIBLE_REQUEST: &str = "quota.scheduling.koordinator.sh/non-preemptible-request";
        pub const NON_PREEMPTIBLE_USED: &str = "quota.scheduling.koordinator.sh/non-preemptible-used";
        pub const TOTAL_RESOURCE: &str = "quota.scheduling.koordinator.sh/total-resource";
        pub const UNSCHEDULABLE_RESOURCE: &str = "quota.scheduling.koordinator.sh/unschedulable-resource";
        pub const ADMISSION: &str = "quota.scheduling.koordinator.sh/admission";
        pub const NAMESPACES: &str = "quota.scheduling.koordinator.sh/namespaces";
        pub const RESOURCE_KEYS: &str = "quota.scheduling.koordinator.sh/resource-keys";
        pub const MAX_STRICT_CHECK_RESOURCE_KEYS: &str =
            "quota.scheduling.koordinator.sh/max-strict-check-resource-keys";
    }
}

/// Carried by ClusterColocationProfiles. Spec: api 4.4, 5.12.
pub mod profile {
    pub mod label {
        pub const CONTROLLER_MANAGED: &str = "config.koordinator.sh/controller-managed";
    }

    pub mod annotation {
        /// Its presence, with any value, disables resource translation.
        pub const SKIP_UPDATE_RESOURCES: &str = "config.koordinator.sh/skip-update-resources";
    }
}

/// Carried by the slo-controller-config ConfigMap. Spec: api 4.4.
pub mod config_map {
    pub mod label {
        pub const TYPE: &str = "koordinator.sh/configmap-type";
    }
}

/// Carried by ScheduleExplanations. Spec: api 4.4.
pub mod explanation {
    pub mod label {
        pub const QUESTIONED_OBJECT_KEY: &str = "scheduling.koordinator.sh/questioned-object-key";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The text of this very file up to its tests.
    fn source() -> &'static str {
        let text = include_str!("keys.rs");
        text.split("#[cfg(test)]").next().unwrap_or(text)
    }

    /// Every string literal of a source text.
    fn literals(text: &str) -> Vec<&str> {
        text.lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| line.split('"').skip(1).step_by(2))
            .collect()
    }

    #[test]
    fn no_key_is_spelt_twice() {
        let mut count = BTreeMap::new();
        for key in literals(source()) {
            *count.entry(key).or_insert(0) += 1;
        }
        let twice: Vec<_> = count.iter().filter(|(_, n)| **n > 1).collect();
        assert!(twice.is_empty(), "spelt twice: {twice:?}");
        assert!(count.len() > 150, "the scan found only {} keys", count.len());
    }

    /// What the API server accepts as a label or annotation key.
    fn is_qualified_name(key: &str) -> bool {
        let (prefix, name) = key.split_once('/').map_or((None, key), |(p, n)| (Some(p), n));
        let name_ok = !name.is_empty()
            && name.len() <= 63
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.ends_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let prefix_ok =
            |p: &str| p.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c));
        name_ok && prefix.is_none_or(prefix_ok)
    }

    #[test]
    fn every_key_is_one_the_api_server_accepts() {
        for key in literals(source()).into_iter().filter(|key| !key.ends_with(['/', '-'])) {
            assert!(is_qualified_name(key), "{key}");
        }
    }

    #[test]
    fn keys_live_under_their_domains() {
        let domains = [
            domain::BASE,
            domain::SCHEDULING,
            domain::INTERNAL_SCHEDULING,
            domain::NODE,
            domain::POD,
            domain::QUOTA,
            domain::GANG,
            domain::KUBELET,
            domain::PROFILE,
            domain::DESCHEDULER,
            domain::RUNTIME_PROXY,
        ];
        for key in literals(source()).into_iter().filter(|k| k.contains("koordinator.sh")) {
            assert!(domains.iter().any(|d| key.starts_with(d)), "{key} has no known domain");
        }
        assert!(resource::BATCH_CPU.starts_with(domain::KUBERNETES));
    }
}
