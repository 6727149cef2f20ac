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

/// koordlet-observe#13.9.I2
#[test]
fn buckets_of_kubelet_requests() {
    let metrics = seen();
    metrics.observe(Metric::KubeletRequestDuration, &["get", "/pods/", "200"], 0.5);
    let page = metrics.internal().render(Format::Prometheus);
    for (bound, count) in
        [("0.001", 0), ("0.004", 0), ("0.016", 0), ("0.064", 0), ("0.256", 0), ("1.024", 1), ("4.096", 1)]
    {
        let labels = format!("le=\"{bound}\",verb=\"get\",path=\"/pods/\",code=\"200\"");
        has(&page, &format!("koordlet_kubelet_request_duration_seconds_bucket{{{labels}}} {count}"));
    }
}

/// koordlet-observe#13.9.I3
#[test]
fn an_eviction_counts_twice() {
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
