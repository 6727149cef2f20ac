//! Every metric: its name, labels, kind and page. Names and labels are API.

use Kind::{Counter, Gauge, Histogram};
use Page::{External, Internal};
use Stay::{Always, WhileTold};

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Gauge,
    Counter,
    /// Upper bounds of its buckets.
    Histogram(&'static [f64]),
}

/// Where a metric is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// koordlet's own health and decisions.
    Internal,
    /// Workloads and resources.
    External,
}

/// How long a series stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    Always,
    /// It leaves when it was not told for a while.
    WhileTold,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub name: &'static str,
    pub kind: Kind,
    pub page: Page,
    pub stay: Stay,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

macro_rules! metrics {
    ($($variant:ident = $name:literal, $kind:expr, $page:expr, $stay:expr, [$($label:literal),*], $help:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric { $($variant,)* }

        impl Metric {
            pub const ALL: &'static [Metric] = &[$(Metric::$variant,)*];

            pub fn row(self) -> Row {
                match self {
                    $(Metric::$variant => Row {
                        name: $name, kind: $kind, page: $page, stay: $stay, labels: &[$($label),*], help: $help,
                    },)*
                }
            }

            pub(super) fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// 0.01 times powers of four, in milliseconds.
const MILLIS: &[f64] = &[0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84];
/// 0.001 times powers of four, in seconds.
const SECONDS: &[f64] = &[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096];

metrics! {
    StartTime = "koordlet_start_time", Gauge, Internal, Always, ["node"],
        "the start time of koordlet";
    CollectNodeCpuInfoStatus = "koordlet_collect_node_cpu_info_status", Counter, Internal, Always, ["node", "status"],
        "the count of CollectNodeCPUInfo status";
    CollectNodeNumaInfoStatus = "koordlet_collect_node_numa_info_status", Counter, Internal, Always,
        ["node", "status"], "the count of CollectNodeNUMAInfo status";
    CollectNodeStorageInfoStatus = "koordlet_collect_node_local_storage_info_status", Counter, Internal, Always,
        ["node", "status"], "the count of CollectNodeLocalStorageInfo status";
    NodeUsedCpuCores = "koordlet_node_used_cpu_cores", Gauge, Internal, Always, ["node"],
        "Number of cpu cores used by node in realtime";
    NodeUsedMemoryBytes = "koordlet_node_used_memory_bytes", Gauge, Internal, Always, ["node"],
        "Memory used by node in realtime";
    PodEviction = "koordlet_pod_eviction", Counter, Internal, Always, ["node", "reason"],
        "Number of eviction launched by koordlet";
    PodEvictionDetail = "koordlet_pod_eviction_detail", Counter, Internal, WhileTold,
        ["node", "pod_namespace", "pod_name", "reason"], "evict detail launched by koordlet";
    BeSuppressCpuCores = "koordlet_be_suppress_cpu_cores", Gauge, Internal, Always, ["node", "type"],
        "Number of cores suppress by koordlet";
    BeSuppressLsUsedCpuCores = "koordlet_be_suppress_ls_used_cpu_cores", Gauge, Internal, Always, ["node"],
        "Number of cpu cores used by LS";
    BeSuppressBeUsedCpuCores = "koordlet_be_suppress_be_used_cpu_cores", Gauge, Internal, Always, ["node"],
        "Number of cpu cores used by BE";
    ContainerScaledCfsBurst = "koordlet_container_scaled_cfs_burst_us", Gauge, Internal, Always,
        ["node", "pod_namespace", "pod_name", "container_id", "container_name"],
        "The maximum accumulated CPU time (microseconds) of container set by koordlet";
    ContainerScaledCfsQuota = "koordlet_container_scaled_cfs_quota_us", Gauge, Internal, Always,
        ["node", "pod_namespace", "pod_name", "container_id", "container_name"],
        "Run-time replenished within a period (in microseconds) of container set by koordlet";
    SharePoolCpuCores = "koordlet_cpuset_share_pool_cpu_cores", Gauge, Internal, Always, ["node"],
        "Number of CPUs that LS pods share";
    BeSharePoolCpuCores = "koordlet_cpuset_be_share_pool_cpu_cores", Gauge, Internal, Always, ["node"],
        "Number of CPUs that BE pods share";
    SharePoolInfo = "koordlet_cpuset_share_pool_info", Gauge, Internal, Always, ["node", "cpu"],
        "1 for each CPU that LS pods share";
    BeSharePoolInfo = "koordlet_cpuset_be_share_pool_info", Gauge, Internal, Always, ["node", "cpu"],
        "1 for each CPU that BE pods share";
    PredictedReclaimable = "koordlet_node_predicted_resource_reclaimable", Gauge, Internal, Always,
        ["node", "predictor", "resource", "unit"], "the node resource reclaimable predicted by koordlet";
    PredictedPeak = "koordlet_node_predicted_resource_peak", Gauge, Internal, Always,
        ["node", "predictor", "resource", "unit"], "the node resource peak predicted by koordlet";
    NodeMetricNodeUsage = "koordlet_node_metric_node_usage", Gauge, Internal, Always, ["node", "resource", "unit"],
        "the node's usage as NodeMetric reports it";
    NodeMetricSystemUsage = "koordlet_node_metric_system_usage", Gauge, Internal, Always,
        ["node", "resource", "unit"], "the system's usage as NodeMetric reports it";
    NodeMetricNumaNodeUsage = "koordlet_node_metric_numa_node_usage", Gauge, Internal, Always,
        ["node", "numa_node_id", "resource", "unit"], "usage of NUMA nodes as NodeMetric reports it";
    NodeMetricNumaSystemUsage = "koordlet_node_metric_numa_system_usage", Gauge, Internal, Always,
        ["node", "numa_node_id", "resource", "unit"], "the system's usage of NUMA nodes as NodeMetric reports it";
    NodeMetricReportStatus = "koordlet_node_metric_report_status", Counter, Internal, Always, ["node", "status"],
        "Reports of NodeMetric by what became of them";
    CoreSchedCookie = "koordlet_container_core_sched_cookie", Gauge, Internal, WhileTold,
        ["node", "pod_name", "pod_namespace", "pod_uid", "container_name", "container_id", "core_sched_group",
         "core_sched_cookie"], "the core scheduling cookie of the container";
    CoreSchedManageStatus = "koordlet_core_sched_cookie_manage_status", Counter, Internal, WhileTold,
        ["node", "core_sched_group", "status"], "the manage status of the core scheduling cookie";
    OomScoreAdj = "koordlet_container_oom_score_adj", Gauge, Internal, WhileTold,
        ["node", "pod_name", "pod_namespace", "pod_uid", "container_name"], "the OOM score of the container";
    ResourceUpdateDuration = "koordlet_resource_update_duration_milliseconds", Histogram(MILLIS), Internal, Always,
        ["type", "status"], "time duration of resource update";
    KubeletRequestDuration = "koordlet_kubelet_request_duration_seconds", Histogram(SECONDS), Internal, Always,
        ["verb", "path", "code"], "kubelet request duration in seconds";
    RuntimeHookDuration = "koordlet_runtime_hook_invoked_duration_milliseconds", Histogram(MILLIS), Internal, Always,
        ["node", "hook", "stage", "status"], "time duration of invocations of runtime hook plugins";
    ReconcilerDuration = "koordlet_runtime_hook_reconciler_invoked_duration_milliseconds", Histogram(MILLIS),
        Internal, Always, ["node", "level", "resource_type", "status"],
        "time duration of invocations of runtime hook reconciler plugins";
    HostApplicationUsage = "koordlet_host_application_resource_usage", Gauge, Internal, Always,
        ["node", "host_application_name", "resource", "priority_class", "qos"],
        "the usage of host applications: cores and bytes";
    StrategyHealth = "koordlet_qos_strategy_status", Counter, Internal, Always, ["node", "strategy", "status"],
        "Turns of strategies by what became of them";

    NodeChange = "koordlet_node_change", Counter, Internal, Always, ["node", "kind", "status"],
        "Changes of the node that are no value of a file: threads and groups of resctrl, cookies, traffic";

    NodeResourceAllocatable = "koordlet_node_resource_allocatable", Gauge, External, Always,
        ["node", "resource", "unit"], "the node allocatable of resources updated by koordinator";
    NodePriorityReclaimable = "koordlet_node_priority_resource_reclaimable", Gauge, External, Always,
        ["node", "priority", "resource", "unit"], "the node resource reclaimable of a priority class";
    NodePriorityReclaimableStatus = "koordlet_node_resource_priority_reclaimable_status", Gauge, External, Always,
        ["node", "priority"], "0 where the reclaimable resources could be predicted, 1 elsewhere";
    ContainerRequests = "koordlet_container_resource_requests", Gauge, External, Always,
        ["node", "resource", "unit", "pod_uid", "pod_name", "pod_namespace", "container_id", "container_name"],
        "the container requests of resources updated by koordinator";
    ContainerLimits = "koordlet_container_resource_limits", Gauge, External, Always,
        ["node", "resource", "unit", "pod_uid", "pod_name", "pod_namespace", "container_id", "container_name"],
        "the container limits of resources updated by koordinator";
    ContainerCpi = "koordlet_container_cpi", Gauge, External, Always,
        ["node", "container_id", "container_name", "pod_uid", "pod_name", "pod_namespace", "cpi_field"],
        "Container cpi collected by koordlet";
    ContainerPsi = "koordlet_container_psi", Gauge, External, Always,
        ["node", "container_id", "container_name", "pod_uid", "pod_name", "pod_namespace", "psi_resource_type",
         "psi_precision", "psi_degree", "cpu_full_supported"], "Container psi collected by koordlet";
    PodPsi = "koordlet_pod_psi", Gauge, External, Always,
        ["node", "pod_uid", "pod_name", "pod_namespace", "psi_resource_type", "psi_precision", "psi_degree",
         "cpu_full_supported"], "Pod psi collected by koordlet";
    ResctrlLlc = "koordlet_resctrl_llc_occupancy", Gauge, External, Always, ["node", "cache_id", "qos"],
        "resctrl default qos's resctrl llc occupancy collected by koordlet";
    ResctrlMb = "koordlet_resctrl_memory_bandwidth", Gauge, External, Always,
        ["node", "cache_id", "qos", "mb_type"], "resctrl default qos's memory bandwidth collected by koordlet";
    StoreSeries = "prometheus_tsdb_head_series", Gauge, External, Always, [], "Series of the store";
    StoreChunks = "prometheus_tsdb_head_chunks", Gauge, External, Always, [], "Chunks of the store";
    StoreSamples = "prometheus_tsdb_head_samples_appended_total", Counter, External, Always, [],
        "Samples that the store took";
    StoreBlocks = "prometheus_tsdb_blocks_loaded", Gauge, External, Always, [], "Blocks of the store";
    StoreBytes = "prometheus_tsdb_storage_blocks_bytes", Gauge, External, Always, [], "Bytes of the store";
    StoreOutOfOrder = "prometheus_tsdb_out_of_order_samples_total", Counter, External, Always, [],
        "Samples that came too late for the store";
    StoreMemory = "koordlet_store_memory_bytes", Gauge, External, Always, [], "Memory that the store's samples take";
    StoreShed = "koordlet_store_shed_chunks_total", Counter, External, Always, [],
        "Chunks that the store dropped before their time, for want of memory";
}
