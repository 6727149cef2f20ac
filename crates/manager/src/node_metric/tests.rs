//! The worked examples of manager 2.4 and 3.

use std::collections::BTreeMap;

use koord_api::crd::node_metric::NodeMemoryCollectPolicy;
use koord_api::slo::key::COLOCATION;
use serde_json::json;

use super::*;

const STRATEGY: &str = "node.koordinator.sh/colocation-strategy";

/// The strategies of a process that has seen these documents one after the other; `None` is no ConfigMap.
fn seen(documents: &[Option<&str>]) -> SloConfig {
    let mut config = SloConfig::default();
    for document in documents {
        let data = document.map(|text| BTreeMap::from([(COLOCATION.to_owned(), text.to_owned())]));
        config.load(data.as_ref());
    }
    config
}

fn annotated(strategy: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(STRATEGY.to_owned(), strategy.to_owned())])
}

fn spec(report: i64) -> NodeMetricSpec {
    serde_json::from_value(json!({"metricCollectPolicy": {
        "aggregateDurationSeconds": 300,
        "reportIntervalSeconds": report,
        "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }}))
    .unwrap()
}

fn plan_of(
    config: &SloConfig,
    annotations: &BTreeMap<String, String>,
    present: Option<&NodeMetricSpec>,
) -> Plan<NodeMetricSpec> {
    let labels = BTreeMap::new();
    plan(config, Some(NodeFacts { labels: &labels, annotations }), present.map(Some))
}

const REPORT_30: &str = r#"{"enable":true,"metricReportIntervalSeconds":30}"#;

#[test]
fn a_new_node_gets_its_policy() {
    let off = r#"{"enable":false,"metricReportIntervalSeconds":30}"#;
    let odd = r#"{"ENABLE":true,"MetricReportIntervalSeconds":31,"unknown":1}"#;
    let item_off = r#"{"enable":true,"metricReportIntervalSeconds":30,"nodeConfigs":[{"nodeSelector":{},"enable":false}]}"#;
    for (name, document, annotation, report) in [
        ("manager#3.M1", Some(REPORT_30), "", 30),
        ("manager#3.M2", Some(off), "", 60),
        ("manager#3.M3", Some(REPORT_30), r#"{"metricReportIntervalSeconds":20}"#, 20),
        ("manager#3.M6", None, "", 60),
        ("manager#3.M8", Some(REPORT_30), r#"{"metricReportIntervalSeconds":0}"#, 60),
        ("manager#3.M9", Some(off), r#"{"enable":true,"metricReportIntervalSeconds":20}"#, 20),
        ("manager#3.M11", Some(odd), "", 31),
        ("manager#3.M12", Some(item_off), "", 60),
        ("an annotation that cannot be read counts for nothing", Some(REPORT_30), "{bad", 30),
    ] {
        let annotations = if annotation.is_empty() { BTreeMap::new() } else { annotated(annotation) };
        let plan = plan_of(&seen(&[document]), &annotations, None);
        assert_eq!(plan, Plan::Create(spec(report)), "{name}");
    }
}

#[test]
fn lists_are_replaced_and_durations_printed() {
    let document = r#"{"enable":true,"metricAggregatePolicy":{"durations":["1m"]},"metricMemoryCollectPolicy":"usageWithPageCache"}"#;
    let Plan::Create(spec) = plan_of(&seen(&[Some(document)]), &BTreeMap::new(), None) else {
        panic!("manager#3.M13: nothing is created")
    };
    let policy = spec.metric_collect_policy.unwrap();
    assert_eq!(json!(policy.node_aggregate_policy), json!({"durations": ["1m0s"]}), "manager#3.M13");
    assert_eq!(policy.node_memory_collect_policy, Some(NodeMemoryCollectPolicy::UsageWithPageCache));
}

#[test]
fn a_present_policy_follows_or_stays() {
    let invalid = r#"{"enable":true,"metricReportIntervalSeconds":0}"#;
    for (name, documents, want) in [
        ("nothing to do", vec![Some(REPORT_30)], Plan::Nothing),
        ("manager#3.M4", vec![Some(REPORT_30), Some("{bad")], Plan::Nothing),
        ("manager#3.M5", vec![None], Plan::Nothing),
        ("manager#3.M10", vec![Some(REPORT_30), Some(invalid)], Plan::Nothing),
        ("manager#3.M10 emptied", vec![Some(REPORT_30), Some(invalid), Some("")], Plan::Update(spec(60))),
        ("manager#26.DB-19: gone, as absent at start", vec![Some(REPORT_30), None], Plan::Nothing),
    ] {
        assert_eq!(plan_of(&seen(&documents), &BTreeMap::new(), Some(&spec(30))), want, "{name}");
    }
    // Without policy it is as good as new, and gets one even while the ConfigMap is bad.
    let bare = NodeMetricSpec::default();
    let plan = plan_of(&seen(&[None]), &BTreeMap::new(), Some(&bare));
    assert_eq!(plan, Plan::Update(spec(60)));
}

#[test]
fn a_deleted_config_map_gives_new_nodes_the_defaults() {
    let config = seen(&[Some(REPORT_30), None]);
    let plan = plan_of(&config, &BTreeMap::new(), None);
    assert_eq!(plan, Plan::Create(spec(60)), "manager#26.DB-19");
}

#[test]
fn a_node_s_metric_goes_with_it() {
    let config = seen(&[Some(REPORT_30)]);
    let present = spec(30);
    assert_eq!(plan(&config, None, Some(Some(&present))), Plan::Delete, "manager#3.M7");
    assert_eq!(plan(&config, None, Some(None)), Plan::Delete);
    assert_eq!(plan(&config, None, None), Plan::Nothing);
}

#[test]
fn nothing_is_touched_while_the_config_was_never_good() {
    for document in ["{bad", r#"{"enable":true,"metricReportIntervalSeconds":0}"#] {
        let config = seen(&[Some(document)]);
        let present = spec(30);
        assert_eq!(plan_of(&config, &BTreeMap::new(), None), Plan::Nothing, "manager#3.M14 {document}");
        assert_eq!(plan_of(&config, &BTreeMap::new(), Some(&present)), Plan::Nothing, "manager#3.M14");
        assert_eq!(plan(&config, None, Some(Some(&present))), Plan::Nothing, "manager#3.M14 {document}");
    }
    assert_eq!(
        plan_of(&SloConfig::default(), &BTreeMap::new(), None),
        Plan::Nothing,
        "before the first list"
    );
}

#[test]
fn ratio_labels_become_percents() {
    // The cluster has 60; what upstream gives where it differs is in the specification.
    for (name, ratio, want) in [
        ("manager#2.4.R1", "0.55", 55),
        ("manager#2.4.R2 manager#26.DB-9", "0.29", 29),
        ("manager#2.4.R3", "1.2", 120),
        ("manager#2.4.R4", "-0.1", 60),
        ("manager#2.4.R5", "80%", 60),
        ("manager#2.4.R6", "", 60),
        ("manager#2.4.R7", "1e-1", 10),
        ("manager#2.4.R8 manager#26.DB-9", "0.57", 57),
        ("manager#2.4.R9", "0", 0),
        ("manager#2.4.R10 manager#26.DB-35", "NaN", 60),
        ("manager#2.4.R10 manager#26.DB-35", "Inf", 60),
        ("manager#26.DB-35", "-Inf", 60),
    ] {
        let labels = BTreeMap::from([("node.koordinator.sh/cpu-reclaim-ratio".to_owned(), ratio.to_owned())]);
        let annotations = BTreeMap::new();
        let facts = NodeFacts { labels: &labels, annotations: &annotations };
        let strategy = seen(&[Some("{}")]).colocation_strategy(facts).unwrap();
        assert_eq!(strategy.value.cpu_reclaim_threshold_percent, Some(want), "{name} {ratio:?}");
        assert_eq!(strategy.ignored.is_empty(), want != 60, "{name} {ratio:?}");
    }
}

#[test]
fn an_annotation_that_makes_the_strategy_unusable_is_left_out() {
    // For what a node lends; how it is measured is M8.
    for annotation in [r#"{"cpuReclaimThresholdPercent":-5}"#, r#"{"degradeTimeMinutes":0}"#, "{bad"] {
        let (labels, annotations) = (BTreeMap::new(), annotated(annotation));
        let facts = NodeFacts { labels: &labels, annotations: &annotations };
        let config = seen(&[Some(REPORT_30)]);
        let rendered = config.colocation_strategy(facts).unwrap();
        let plain = NodeFacts { labels: &labels, annotations: &labels };
        assert_eq!(rendered.value, config.colocation_strategy(plain).unwrap().value, "manager#26.DB-32");
        assert_eq!((rendered.ignored.len(), rendered.ignored[0].key), (1, STRATEGY), "manager#26.DB-32");
    }
}
