//! What a report says of the node and the system, as metrics too. Spec: koordlet-observe 11.1, gate NodeMetricPromMetrics.

use koord_api::crd::node_metric::{NodeMetricStatus, ResourceMap};
use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::number::nearest;

use crate::metrics::{KoordletMetrics, Metric};

const ALL: [Metric; 4] = [
    Metric::NodeMetricNodeUsage,
    Metric::NodeMetricSystemUsage,
    Metric::NodeMetricNumaNodeUsage,
    Metric::NodeMetricNumaSystemUsage,
];

/// Shows the last report, and nothing of those before.
pub fn show(metrics: &KoordletMetrics, status: &NodeMetricStatus) {
    ALL.into_iter().for_each(|metric| metrics.reset(metric));
    let Some(info) = &status.node_metric else { return };
    set(metrics, Metric::NodeMetricNodeUsage, None, &info.node_usage);
    set(metrics, Metric::NodeMetricSystemUsage, None, &info.system_usage);
    for numa in &info.numa_usages {
        let id = Some(numa.numa_node_id.to_string());
        set(metrics, Metric::NodeMetricNumaNodeUsage, id.as_deref(), &numa.node_usage);
        set(metrics, Metric::NodeMetricNumaSystemUsage, id.as_deref(), &numa.system_usage);
    }
}

/// CPU in cores and memory in bytes, as far as they were measured.
fn set(metrics: &KoordletMetrics, metric: Metric, numa: Option<&str>, usage: &ResourceMap) {
    let cores = usage.resources.get(CPU).map(|cpu| nearest(cpu.milli_value()) / 1000.0);
    let bytes = usage.resources.get(MEMORY).map(|memory| nearest(memory.value()));
    for (resource, unit, value) in [(CPU, "core", cores), (MEMORY, "byte", bytes)] {
        let Some(value) = value else { continue };
        match numa {
            Some(id) => metrics.set(metric, &[id, resource, unit], value),
            None => metrics.set(metric, &[resource, unit], value),
        }
    }
}

#[cfg(test)]
mod tests {
    use koord_api::crd::node_metric::NodeMetricInfo;
    use koord_kit::metrics::Format;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_in_metrics() {
        let metrics = KoordletMetrics::new("n1");
        metrics.node_seen();
        let shown = |info: serde_json::Value| {
            let info: NodeMetricInfo = serde_json::from_value(info).unwrap();
            show(&metrics, &NodeMetricStatus { node_metric: Some(info), ..NodeMetricStatus::default() });
            let page = metrics.internal().render(Format::Prometheus);
            let lines = page.lines().filter(|line| line.starts_with("koordlet_node_metric_"));
            lines.map(str::to_owned).collect::<Vec<String>>()
        };
        let usage = |cpu: &str| json!({ "resources": { "cpu": cpu, "memory": "1Ki" } });
        let all = shown(json!({ "nodeUsage": usage("1500m"), "systemUsage": usage("200m"),
            "numaUsages": [{ "numaNodeID": 1, "nodeUsage": usage("1"), "systemUsage": {} }] }));
        for line in [
            r#"koordlet_node_metric_node_usage{node="n1",resource="cpu",unit="core"} 1.5"#,
            r#"koordlet_node_metric_node_usage{node="n1",resource="memory",unit="byte"} 1024.0"#,
            r#"koordlet_node_metric_system_usage{node="n1",resource="cpu",unit="core"} 0.2"#,
            r#"koordlet_node_metric_numa_node_usage{node="n1",numa_node_id="1",resource="cpu",unit="core"} 1.0"#,
        ] {
            assert!(all.iter().any(|found| found == line), "{line} in {all:#?}");
        }
        assert_eq!(all.len(), 6, "what was not measured is not shown: {all:#?}");
        let few = shown(json!({ "nodeUsage": usage("1"), "systemUsage": {} }));
        assert_eq!(few.len(), 2, "what was shown before is gone: {few:#?}");
    }
}
