//! How much of a node batch and mid pods may use: `colocation-config`. Spec: api 7.3.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::document::Shape;
use super::strategy::Strategy;
use super::{defaults, key};
use crate::crd::node_metric::{AggregatePolicy, MetricCollectPolicy, NodeMemoryCollectPolicy};
use crate::gojson::{Kind, Value};

/// How a node is measured, and how much of it is offered to batch and mid pods.
///
/// Also the content of the Node annotation `node.koordinator.sh/colocation-strategy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ColocationStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_aggregate_duration_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_report_interval_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_aggregate_policy: Option<AggregatePolicy>,
    /// A word of [`NodeMemoryCollectPolicy`], or one that we do not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_memory_collect_policy: Option<String>,
    /// May exceed 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_reclaim_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_calculate_policy: Option<CalculatePolicy>,
    /// May exceed 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_reclaim_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_calculate_policy: Option<CalculatePolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degrade_time_minutes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time_threshold_seconds: Option<i64>,
    /// A fraction: 0.1 is ten percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_diff_threshold: Option<f64>,
    /// Only `static` has a meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_reclaim_mode: Option<String>,
    #[serde(rename = "midCPUThresholdPercent", skip_serializing_if = "Option::is_none")]
    pub mid_cpu_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_memory_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_unallocated_percent: Option<i64>,
    #[serde(rename = "midStaticCPUReservedPercent", skip_serializing_if = "Option::is_none")]
    pub mid_static_cpu_reserved_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_static_memory_reserved_percent: Option<i64>,
    #[serde(rename = "batchCPUThresholdPercent", skip_serializing_if = "Option::is_none")]
    pub batch_cpu_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_memory_threshold_percent: Option<i64>,
    /// Over how long the highest demand of other pods counts against batch resources, so that they
    /// shrink at once and grow slowly; 0 or unset is upstream's behaviour, which has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_stabilization_window_seconds: Option<i64>,
    /// Settings of third parties, carried along.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, serde_json::Value>,
}

impl Strategy for ColocationStrategy {
    type Partial = Self;
    const KEY: &'static str = key::COLOCATION;
    const SHAPE: Shape = Shape::Flat;
    const UNREADABLE: (&'static str, &'static str) = ("ColocationCfgUnmarshalFailed", "colocation config");
    const EMPTY_IS_DEFAULT: bool = true;

    fn built_in() -> Self {
        defaults::colocation()
    }

    /// The runtime ranges of api 7.3, on a strategy that already holds the defaults.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |field: &str, value: Option<i64>, min: i64, max: i64| match value {
            Some(value) if value < min => {
                problems.push(format!("{field} is {value}, must be at least {min}"))
            }
            Some(value) if value > max => problems.push(format!("{field} is {value}, must be at most {max}")),
            _ => {}
        };
        let any = i64::MAX;
        check("metricAggregateDurationSeconds", self.metric_aggregate_duration_seconds, 1, any);
        check("metricReportIntervalSeconds", self.metric_report_interval_seconds, 1, any);
        check("cpuReclaimThresholdPercent", self.cpu_reclaim_threshold_percent, 0, any);
        check("memoryReclaimThresholdPercent", self.memory_reclaim_threshold_percent, 0, any);
        check("degradeTimeMinutes", self.degrade_time_minutes, 1, any);
        check("updateTimeThresholdSeconds", self.update_time_threshold_seconds, 1, any);
        check("midCPUThresholdPercent", self.mid_cpu_threshold_percent, 0, 100);
        check("midMemoryThresholdPercent", self.mid_memory_threshold_percent, 0, 100);
        check("midUnallocatedPercent", self.mid_unallocated_percent, 0, 100);
        check("midStaticCPUReservedPercent", self.mid_static_cpu_reserved_percent, 0, any);
        check("midStaticMemoryReservedPercent", self.mid_static_memory_reserved_percent, 0, any);
        check("batchCPUThresholdPercent", self.batch_cpu_threshold_percent, 0, any);
        check("batchMemoryThresholdPercent", self.batch_memory_threshold_percent, 0, any);
        check("batchStabilizationWindowSeconds", self.batch_stabilization_window_seconds, 0, any);
        if let Some(value) = self.resource_diff_threshold.filter(|value| *value <= 0.0) {
            problems.push(format!("resourceDiffThreshold is {value}, must be greater than 0"));
        }
        if self.metric_memory_collect_policy.as_deref() == Some("") {
            problems.push("metricMemoryCollectPolicy is empty".to_owned());
        }
        problems
    }
}

impl ColocationStrategy {
    /// How a node is measured under this strategy.
    ///
    /// Differs: an unknown memory policy is measured as by default, where upstream writes it and
    /// the API server refuses the whole NodeMetric.
    pub fn metric_policy(&self) -> MetricCollectPolicy {
        let memory = Value::from(Kind::String(self.metric_memory_collect_policy.clone().unwrap_or_default()));
        let memory: NodeMemoryCollectPolicy =
            memory.decode().unwrap_or(NodeMemoryCollectPolicy::UsageWithoutPageCache);
        MetricCollectPolicy {
            aggregate_duration_seconds: self.metric_aggregate_duration_seconds,
            report_interval_seconds: self.metric_report_interval_seconds,
            node_aggregate_policy: self.metric_aggregate_policy.clone(),
            node_memory_collect_policy: Some(memory),
        }
    }
}

/// What counts as taken by prod pods when batch resources are computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum CalculatePolicy {
    Usage,
    Request,
    MaxUsageRequest,
    /// A word that we do not know; it means the same as `usage`.
    Other(String),
}

impl CalculatePolicy {
    /// The word on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            CalculatePolicy::Usage => "usage",
            CalculatePolicy::Request => "request",
            CalculatePolicy::MaxUsageRequest => "maxUsageRequest",
            CalculatePolicy::Other(word) => word,
        }
    }
}

impl From<String> for CalculatePolicy {
    fn from(word: String) -> CalculatePolicy {
        match word.as_str() {
            "usage" => CalculatePolicy::Usage,
            "request" => CalculatePolicy::Request,
            "maxUsageRequest" => CalculatePolicy::MaxUsageRequest,
            _ => CalculatePolicy::Other(word),
        }
    }
}

impl From<CalculatePolicy> for String {
    fn from(policy: CalculatePolicy) -> String {
        policy.to_string()
    }
}

impl fmt::Display for CalculatePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
