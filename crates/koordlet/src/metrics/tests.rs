//! Worked examples of koordlet-observe 13.9, and the table as a whole.

use koord_kit::metrics::Format;

use super::*;

fn seen() -> KoordletMetrics {
    let metrics = KoordletMetrics::new("n1");
    metrics.node_seen();
    metrics
}

fn has(page: &str, line: &str) {
    assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
}

#[test]
fn names_are_unique_and_prefixed() {
    let mut names: Vec<&str> = Metric::ALL.iter().map(|metric| metric.row().name).collect();
    let all = names.len();
    assert!(names.iter().all(|name| name.starts_with("koordlet_") || name.starts_with("prometheus_tsdb_")));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    for (index, metric) in Metric::ALL.iter().enumerate() {
        assert_eq!(metric.index(), index);
    }
}

#[test]
fn nothing_about_the_node_before_it_was_seen() {
    let metrics = KoordletMetrics::new("n1");
    metrics.set(Metric::StartTime, &[], 5.0);
    metrics.set(Metric::NodeUsedCpuCores, &[], 1.5);
    let page = metrics.internal().render(Format::Prometheus);
    has(&page, "koordlet_start_time{node=\"n1\"} 5.0");
    assert!(!page.contains("koordlet_node_used_cpu_cores{"), "{page}");
    metrics.node_seen();
    metrics.set(Metric::NodeUsedCpuCores, &[], 1.5);
    has(&metrics.internal().render(Format::Prometheus), "koordlet_node_used_cpu_cores{node=\"n1\"} 1.5");
}

#[test]
fn details_of_an_eviction_leave_after_a_while() {
    let metrics = seen();
    metrics.count(Metric::PodEviction, &["evicted"]);
    metrics.count(Metric::PodEvictionDetail, &["default", "web", "evicted"]);
    let page = metrics.internal().render(Format::Prometheus);
    has(&page, "# TYPE koordlet_pod_eviction counter");
    has(&page, "koordlet_pod_eviction{node=\"n1\",reason=\"evicted\"} 1");
    has(
        &page,
        "koordlet_pod_eviction_detail{node=\"n1\",pod_namespace=\"default\",pod_name=\"web\",reason=\"evicted\"} 1",
    );
    // Five minutes later the detail is gone, the sum stays.
    metrics.sweep(Instant::now() + Duration::from_secs(301));
    let page = metrics.internal().render(Format::Prometheus);
    assert!(!page.contains("koordlet_pod_eviction_detail{"), "{page}");
    has(&page, "koordlet_pod_eviction{node=\"n1\",reason=\"evicted\"} 1");
}

#[test]
fn a_family_can_start_anew() {
    let metrics = seen();
    metrics.set(Metric::ResctrlLlc, &["0", "BE"], 7.0);
    metrics.reset(Metric::ResctrlLlc);
    metrics.set(Metric::ResctrlLlc, &["1", "LS"], 8.0);
    let page = metrics.external().render(Format::Prometheus);
    has(&page, "koordlet_resctrl_llc_occupancy{node=\"n1\",cache_id=\"1\",qos=\"LS\"} 8.0");
    assert!(!page.contains("qos=\"BE\""), "{page}");
    assert!(!metrics.internal().render(Format::Prometheus).contains("resctrl"));
}

type SpecRow = (&'static str, Kind, Page, Stay, &'static str);

const MILLIS: Kind = Kind::Histogram(&[0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84]);
const SECONDS: Kind = Kind::Histogram(&[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096]);

/// The tables of koordlet-observe 11, row by row.
const SPEC: &[SpecRow] = &[
    ("start_time", Kind::Gauge, Page::Internal, Stay::Always, "node"),
    ("collect_node_cpu_info_status", Kind::Counter, Page::Internal, Stay::Always, "node,status"),
    ("collect_node_numa_info_status", Kind::Counter, Page::Internal, Stay::Always, "node,status"),
    ("collect_node_local_storage_info_status", Kind::Counter, Page::Internal, Stay::Always, "node,status"),
    ("node_used_cpu_cores", Kind::Gauge, Page::Internal, Stay::Always, "node"),
    ("node_used_memory_bytes", Kind::Gauge, Page::Internal, Stay::Always, "node"),
    ("pod_eviction", Kind::Counter, Page::Internal, Stay::Always, "node,reason"),
    (
        "pod_eviction_detail",
        Kind::Counter,
        Page::Internal,
        Stay::WhileTold,
        "node,pod_namespace,pod_name,reason",
    ),
    ("be_suppress_cpu_cores", Kind::Gauge, Page::Internal, Stay::Always, "node,type"),
    ("be_suppress_ls_used_cpu_cores", Kind::Gauge, Page::Internal, Stay::Always, "node"),
    ("be_suppress_be_used_cpu_cores", Kind::Gauge, Page::Internal, Stay::Always, "node"),
    (
        "container_scaled_cfs_burst_us",
        Kind::Gauge,
        Page::Internal,
        Stay::Always,
        "node,pod_namespace,pod_name,container_id,container_name",
    ),
    (
        "container_scaled_cfs_quota_us",
        Kind::Gauge,
        Page::Internal,
        Stay::Always,
        "node,pod_namespace,pod_name,container_id,container_name",
    ),
    ("cpuset_share_pool_cpu_cores", Kind::Gauge, Page::Internal, Stay::Always, "node"),
    ("cpuset_be_share_pool_cpu_cores", Kind::Gauge, Page::Internal, Stay::Always, "node"),
    ("cpuset_share_pool_info", Kind::Gauge, Page::Internal, Stay::Always, "node,cpu"),
    ("cpuset_be_share_pool_info", Kind::Gauge, Page::Internal, Stay::Always, "node,cpu"),
    (
        "node_predicted_resource_reclaimable",
        Kind::Gauge,
        Page::Internal,
        Stay::Always,
        "node,predictor,resource,unit",
    ),
    (
        "node_predicted_resource_peak",
        Kind::Gauge,
        Page::Internal,
        Stay::Always,
        "node,predictor,resource,unit",
    ),
    ("node_metric_node_usage", Kind::Gauge, Page::Internal, Stay::Always, "node,resource,unit"),
    ("node_metric_system_usage", Kind::Gauge, Page::Internal, Stay::Always, "node,resource,unit"),
    (
        "node_metric_numa_node_usage",
        Kind::Gauge,
        Page::Internal,
        Stay::Always,
        "node,numa_node_id,resource,unit",
    ),
    (
        "node_metric_numa_system_usage",
        Kind::Gauge,
        Page::Internal,
        Stay::Always,
        "node,numa_node_id,resource,unit",
    ),
    (
        "container_core_sched_cookie",
        Kind::Gauge,
        Page::Internal,
        Stay::WhileTold,
        "node,pod_name,pod_namespace,pod_uid,container_name,container_id,core_sched_group,core_sched_cookie",
    ),
    (
        "core_sched_cookie_manage_status",
        Kind::Counter,
        Page::Internal,
        Stay::WhileTold,
        "node,core_sched_group,status",
    ),
    (
        "container_oom_score_adj",
        Kind::Gauge,
        Page::Internal,
        Stay::WhileTold,
        "node,pod_name,pod_namespace,pod_uid,container_name",
    ),
    ("resource_update_duration_milliseconds", MILLIS, Page::Internal, Stay::Always, "type,status"),
    ("kubelet_request_duration_seconds", SECONDS, Page::Internal, Stay::Always, "verb,path,code"),
    (
        "runtime_hook_invoked_duration_milliseconds",
        MILLIS,
        Page::Internal,
        Stay::Always,
        "node,hook,stage,status",
    ),
    (
        "runtime_hook_reconciler_invoked_duration_milliseconds",
        MILLIS,
        Page::Internal,
        Stay::Always,
        "node,level,resource_type,status",
    ),
    (
        "host_application_resource_usage",
        Kind::Gauge,
        Page::Internal,
        Stay::Always,
        "node,host_application_name,resource,priority_class,qos",
    ),
    ("node_resource_allocatable", Kind::Gauge, Page::External, Stay::Always, "node,resource,unit"),
    (
        "node_priority_resource_reclaimable",
        Kind::Gauge,
        Page::External,
        Stay::Always,
        "node,priority,resource,unit",
    ),
    ("node_resource_priority_reclaimable_status", Kind::Gauge, Page::External, Stay::Always, "node,priority"),
    (
        "container_resource_requests",
        Kind::Gauge,
        Page::External,
        Stay::Always,
        "node,resource,unit,pod_uid,pod_name,pod_namespace,container_id,container_name",
    ),
    (
        "container_resource_limits",
        Kind::Gauge,
        Page::External,
        Stay::Always,
        "node,resource,unit,pod_uid,pod_name,pod_namespace,container_id,container_name",
    ),
    (
        "container_cpi",
        Kind::Gauge,
        Page::External,
        Stay::Always,
        "node,container_id,container_name,pod_uid,pod_name,pod_namespace,cpi_field",
    ),
    (
        "container_psi",
        Kind::Gauge,
        Page::External,
        Stay::Always,
        "node,container_id,container_name,pod_uid,pod_name,pod_namespace,psi_resource_type,psi_precision,psi_degree,cpu_full_supported",
    ),
    (
        "pod_psi",
        Kind::Gauge,
        Page::External,
        Stay::Always,
        "node,pod_uid,pod_name,pod_namespace,psi_resource_type,psi_precision,psi_degree,cpu_full_supported",
    ),
    ("resctrl_llc_occupancy", Kind::Gauge, Page::External, Stay::Always, "node,cache_id,qos"),
    ("resctrl_memory_bandwidth", Kind::Gauge, Page::External, Stay::Always, "node,cache_id,qos,mb_type"),
];

/// What dashboards know of the store.
const STORE: &[(&str, Kind)] = &[
    ("head_series", Kind::Gauge),
    ("head_chunks", Kind::Gauge),
    ("head_samples_appended_total", Kind::Counter),
    ("blocks_loaded", Kind::Gauge),
    ("storage_blocks_bytes", Kind::Gauge),
    ("out_of_order_samples_total", Kind::Counter),
];

/// What upstream does not have.
const OURS: &[SpecRow] = &[
    ("node_metric_report_status", Kind::Counter, Page::Internal, Stay::Always, "node,status"),
    ("qos_strategy_status", Kind::Counter, Page::Internal, Stay::Always, "node,strategy,status"),
    ("node_change", Kind::Counter, Page::Internal, Stay::Always, "node,kind,status"),
    ("store_memory_bytes", Kind::Gauge, Page::External, Stay::Always, ""),
    ("store_shed_chunks_total", Kind::Counter, Page::External, Stay::Always, ""),
];

/// Names, labels, kinds and pages are API.
#[test]
fn the_table_is_the_specifications() {
    let own = SPEC.iter().chain(OURS).map(|(name, kind, page, stay, labels)| {
        (format!("koordlet_{name}"), *kind, *page, *stay, (*labels).to_owned())
    });
    let store = STORE.iter().map(|(name, kind)| {
        (format!("prometheus_tsdb_{name}"), *kind, Page::External, Stay::Always, String::new())
    });
    let mut want: Vec<_> = own.chain(store).collect();
    let row = |metric: &Metric| {
        let row = metric.row();
        (row.name.to_owned(), row.kind, row.page, row.stay, row.labels.join(","))
    };
    let mut found: Vec<_> = Metric::ALL.iter().map(row).collect();
    want.sort_by(|a, b| a.0.cmp(&b.0));
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found.len(), want.len());
    for (found, want) in found.into_iter().zip(want) {
        assert_eq!(found, want);
    }
}
