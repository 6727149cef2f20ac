//! NodeMetric: what one node and its pods really use. Spec: crds 4.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::crd::device::DeviceInfo;
use crate::crd::schema;
use crate::crd::wire::{object, open_enum, wire};
use crate::duration::GoDuration;
use crate::quantity::ResourceList;
use crate::time::Time;

object! {
    /// What the node of the same name and its pods really use.
    pub struct NodeMetric = "slo.koordinator.sh" / "v1alpha1", "nodemetrics", ClusterResourceScope {
        /// How to measure. Written by koord-manager.
        pub spec: Option<NodeMetricSpec>,
        /// The measurements. Written by koordlet.
        pub status: Option<NodeMetricStatus>,
    }
}

wire! {
    /// How to measure.
    pub struct NodeMetricSpec {
        pub metric_collect_policy: Option<MetricCollectPolicy>,
    }

    /// Windows and intervals of measurement.
    pub struct MetricCollectPolicy {
        /// Window of the plain averages.
        pub aggregate_duration_seconds: Option<i64>,
        /// How often koordlet reports.
        pub report_interval_seconds: Option<i64>,
        /// Windows of the percentiles.
        pub node_aggregate_policy: Option<AggregatePolicy>,
        /// What counts as used memory. A word that we do not know counts as absent.
        #[serde(deserialize_with = "known_policy")]
        pub node_memory_collect_policy: Option<NodeMemoryCollectPolicy>,
    }

    /// Windows of the percentiles.
    pub struct AggregatePolicy {
        pub durations: Vec<GoDuration>,
    }

    /// An amount of everything: plain resources and devices.
    pub struct ResourceMap {
        pub resources: ResourceList,
        pub devices: Vec<DeviceInfo>,
    }

    /// The measurements.
    pub struct NodeMetricStatus {
        /// When they were last reported.
        pub update_time: Option<Time>,
        /// The whole node.
        pub node_metric: Option<NodeMetricInfo>,
        /// Each pod.
        pub pods_metric: Vec<PodMetricInfo>,
        /// Each application outside Kubernetes.
        pub host_application_metric: Vec<HostApplicationMetricInfo>,
        /// What prod pods have requested but are predicted not to need.
        pub prod_reclaimable_metric: Option<PredictedMetric>,
        /// The most that prod pods are predicted to need.
        pub prod_peak_metric: Option<PredictedMetric>,
    }

    /// What the whole node uses.
    pub struct NodeMetricInfo {
        /// Everything.
        pub node_usage: ResourceMap,
        /// Everything, by window and percentile.
        pub aggregated_node_usages: Vec<AggregatedUsage>,
        /// What neither pods nor known host applications use.
        pub system_usage: ResourceMap,
        /// The same, by window and percentile.
        pub aggregated_system_usages: Vec<AggregatedUsage>,
        /// Each NUMA node.
        pub numa_usages: Vec<NumaUsage>,
    }

    /// Use over one window.
    pub struct AggregatedUsage {
        /// By `avg`, `p99`, `p95`, `p90`, `p50`.
        pub usage: BTreeMap<AggregationType, ResourceMap>,
        /// Length of the window.
        pub duration: GoDuration,
    }

    /// What one NUMA node uses.
    #[schemars(extend("required" = ["numaNodeID"]))]
    pub struct NumaUsage {
        #[serde(rename = "numaNodeID")]
        pub numa_node_id: i32,
        pub node_usage: ResourceMap,
        pub system_usage: ResourceMap,
    }

    /// What one pod uses.
    pub struct PodMetricInfo {
        pub name: String,
        pub namespace: String,
        pub pod_usage: ResourceMap,
        /// Koordinator priority class.
        pub priority: String,
        /// Koordinator QoS class.
        pub qos: String,
        /// Measurements of third parties, kept as they are.
        #[schemars(schema_with = "schema::free_object")]
        pub extensions: Option<Map<String, Value>>,
    }

    /// What one application outside Kubernetes uses.
    pub struct HostApplicationMetricInfo {
        pub name: String,
        pub usage: ResourceMap,
        /// Koordinator priority class.
        pub priority: String,
        /// Koordinator QoS class.
        pub qos: String,
    }

    /// A predicted amount.
    pub struct PredictedMetric {
        pub resource: ResourceMap,
    }
}

/// What counts as used memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodeMemoryCollectPolicy {
    UsageWithHotPageCache,
    UsageWithoutPageCache,
    UsageWithPageCache,
}

fn known_policy<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<NodeMemoryCollectPolicy>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.and_then(|word| serde_json::from_value(Value::String(word)).ok()))
}

open_enum! {
    /// How the samples of a window become one number.
    pub enum AggregationType {
        Avg = "avg",
        P99 = "p99",
        P95 = "p95",
        P90 = "p90",
        P50 = "p50",
    }
}
