//! LoadAwareScheduling. Spec: scheduler-reservation-loadaware B1.

use std::collections::BTreeMap;

use koord_api::annotation::load_aware::AggregationType;
use koord_api::duration::GoDuration;
use koord_api::keys::resource::{CPU, MEMORY};

/// Percentages or weights by resource name.
pub type Percents = BTreeMap<String, i64>;

#[derive(Clone, Debug, PartialEq)]
pub struct LoadAwareSchedulingArgs {
    /// Refuse nodes whose metrics are too old.
    pub filter_expired_node_metrics: bool,
    pub node_metric_expiration: GoDuration,
    pub enable_schedule_when_node_metrics_expired: bool,
    /// From 1 to 100 each; every name has a factor.
    pub resource_weights: Percents,
    /// From 0 to 100.
    pub dominant_resource_weight: i64,
    /// From 0 to 100 each; 0 is off.
    pub usage_thresholds: Percents,
    /// From 0 to 100 each; 0 is off.
    pub prod_usage_thresholds: Percents,
    pub prod_usage_include_sys: bool,
    pub score_according_prod_usage: bool,
    /// From 1 to 100 each.
    pub estimated_scaling_factors: Percents,
    /// How long after these moments a pod's use is estimated whatever is measured; none is off.
    pub estimated_after_pod_scheduled: Option<GoDuration>,
    pub estimated_after_initialized: Option<GoDuration>,
    /// Whether pods may bring their own factors and times.
    pub allow_customize_estimation: bool,
    pub aggregated: Option<Aggregated>,
    /// Names besides those that stand in the other fields.
    pub supported_resources: Vec<String>,
}

/// Use as a percentile over some time, in place of the latest figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aggregated {
    pub usage_thresholds: Percents,
    pub usage_type: Option<AggregationType>,
    /// Not negative; none or 0 takes the longest that is measured.
    pub usage_duration: Option<GoDuration>,
    pub score_type: Option<AggregationType>,
    pub score_duration: Option<GoDuration>,
}

impl LoadAwareSchedulingArgs {
    pub fn default_weights() -> Percents {
        percents(1, 1)
    }

    pub fn default_thresholds() -> Percents {
        percents(65, 95)
    }

    pub fn default_factors() -> Percents {
        percents(85, 70)
    }
}

fn percents(cpu: i64, memory: i64) -> Percents {
    Percents::from([(CPU.to_owned(), cpu), (MEMORY.to_owned(), memory)])
}

impl Default for LoadAwareSchedulingArgs {
    fn default() -> LoadAwareSchedulingArgs {
        LoadAwareSchedulingArgs {
            filter_expired_node_metrics: true,
            node_metric_expiration: GoDuration::from_seconds(180),
            enable_schedule_when_node_metrics_expired: false,
            resource_weights: LoadAwareSchedulingArgs::default_weights(),
            dominant_resource_weight: 0,
            usage_thresholds: LoadAwareSchedulingArgs::default_thresholds(),
            prod_usage_thresholds: Percents::new(),
            prod_usage_include_sys: false,
            score_according_prod_usage: false,
            estimated_scaling_factors: LoadAwareSchedulingArgs::default_factors(),
            estimated_after_pod_scheduled: None,
            estimated_after_initialized: None,
            allow_customize_estimation: false,
            aggregated: None,
            supported_resources: Vec::new(),
        }
    }
}
