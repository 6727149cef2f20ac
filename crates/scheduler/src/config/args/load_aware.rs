//! LoadAwareSchedulingArgs. Spec: scheduler-reservation-loadaware B1 and B6b.

use koord_api::annotation::load_aware::AggregationType;
use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_engine::profile::args::{Aggregated, Args, LoadAwareSchedulingArgs as Engine, Percents};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json, listed};
use crate::config::field::{Fault, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LoadAwareSchedulingArgs {
    filter_expired_node_metrics: Option<bool>,
    node_metric_expiration_seconds: Option<i64>,
    enable_schedule_when_node_metrics_expired: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_weights: Option<Percents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dominant_resource_weight: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_thresholds: Option<Percents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prod_usage_thresholds: Option<Percents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prod_usage_include_sys: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score_according_prod_usage: Option<bool>,
    /// There is one estimator, whatever its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_scaling_factors: Option<Percents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_seconds_after_pod_scheduled: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_seconds_after_initialized: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_customize_estimation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregated: Option<RawAggregated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supported_resources: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct RawAggregated {
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_thresholds: Option<Percents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_aggregation_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_aggregated_duration: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score_aggregation_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score_aggregated_duration: Option<GoDuration>,
}

/// A map that the file may leave out.
fn mapped(map: &Option<Percents>) -> Percents {
    map.clone().unwrap_or_default()
}

fn is_empty(map: &Option<Percents>) -> bool {
    map.as_ref().is_none_or(Percents::is_empty)
}

impl RawArgs for LoadAwareSchedulingArgs {
    fn set_defaults(&mut self, _: &Gates) {
        self.filter_expired_node_metrics.get_or_insert(true);
        self.enable_schedule_when_node_metrics_expired.get_or_insert(false);
        self.node_metric_expiration_seconds.get_or_insert(180);
        if is_empty(&self.resource_weights) && self.dominant_resource_weight.unwrap_or_default() == 0 {
            self.resource_weights = Some(Engine::default_weights());
        }
        if is_empty(&self.usage_thresholds) {
            self.usage_thresholds = Some(Engine::default_thresholds());
        }
        let factors = self.estimated_scaling_factors.get_or_insert_default();
        for (name, factor) in Engine::default_factors() {
            factors.entry(name).or_insert(factor);
        }
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let mut faults = self.check_numbers(at);
        let factors = mapped(&self.estimated_scaling_factors);
        for name in mapped(&self.resource_weights).keys().filter(|name| !factors.contains_key(*name)) {
            faults.push(Fault::not_found(below(at, "estimatedScalingFactors"), name));
        }
        let aggregated = self.aggregated.as_ref().map(|raw| raw.check(&below(at, "aggregated"), &mut faults));
        let positive_seconds =
            |seconds: Option<i64>| seconds.filter(|seconds| *seconds > 0).map(GoDuration::from_seconds);
        out.load_aware_scheduling = Engine {
            filter_expired_node_metrics: self.filter_expired_node_metrics.unwrap_or_default(),
            node_metric_expiration: GoDuration::from_seconds(
                self.node_metric_expiration_seconds.unwrap_or_default(),
            ),
            enable_schedule_when_node_metrics_expired: self
                .enable_schedule_when_node_metrics_expired
                .unwrap_or_default(),
            resource_weights: mapped(&self.resource_weights),
            dominant_resource_weight: self.dominant_resource_weight.unwrap_or_default(),
            usage_thresholds: mapped(&self.usage_thresholds),
            prod_usage_thresholds: mapped(&self.prod_usage_thresholds),
            prod_usage_include_sys: self.prod_usage_include_sys.unwrap_or_default(),
            score_according_prod_usage: self.score_according_prod_usage.unwrap_or_default(),
            estimated_scaling_factors: factors,
            estimated_after_pod_scheduled: positive_seconds(self.estimated_seconds_after_pod_scheduled),
            estimated_after_initialized: positive_seconds(self.estimated_seconds_after_initialized),
            allow_customize_estimation: self.allow_customize_estimation.unwrap_or_default(),
            aggregated,
            supported_resources: listed(&self.supported_resources).to_vec(),
        };
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}

impl LoadAwareSchedulingArgs {
    fn check_numbers(&self, at: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        let expiration = self.node_metric_expiration_seconds.unwrap_or_default();
        if expiration <= 0 {
            // Upstream's own name of the field here.
            let path = below(at, "nodeMetricExpiredSeconds");
            let detail = "nodeMetricExpiredSeconds should be a positive value";
            faults.push(Fault::invalid(path, expiration, detail));
        }
        let weight = Limits { what: "resource Weight", least: 1 };
        faults.extend(weight.check(below(at, "resourceWeights"), &self.resource_weights));
        let dominant = self.dominant_resource_weight.unwrap_or_default();
        if !(0..=100).contains(&dominant) {
            let rule = if dominant < 0 { "not be a negative value" } else { "be less than 100" };
            let detail = format!("dominantResourceWeight should {rule}");
            faults.push(Fault::invalid(below(at, "dominantResourceWeight"), dominant, &detail));
        }
        faults.extend(THRESHOLD.check(below(at, "usageThresholds"), &self.usage_thresholds));
        // Differs: upstream takes any number here, so that 200 switches the check off without a word.
        faults.extend(THRESHOLD.check(below(at, "prodUsageThresholds"), &self.prod_usage_thresholds));
        let factor = Limits { what: "estimated resource ScalingFactor", least: 1 };
        faults.extend(factor.check(below(at, "estimatedScalingFactors"), &self.estimated_scaling_factors));
        faults
    }
}

const THRESHOLD: Limits = Limits { what: "resource Threshold", least: 0 };

/// From `least` to 100, for every resource.
struct Limits {
    what: &'static str,
    least: i64,
}

impl Limits {
    fn check(&self, path: String, map: &Option<Percents>) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (name, value) in map.iter().flatten() {
            let rule = match *value {
                value if value < self.least => "a positive value",
                value if value > 100 => "less than 100",
                _ => continue,
            };
            let detail = format!("{} of {name} should be {rule}, got {value}", self.what);
            faults.push(Fault::invalid(&path, json(map), &detail));
        }
        faults
    }
}

impl RawAggregated {
    fn check(&self, at: &str, faults: &mut Vec<Fault>) -> Aggregated {
        faults.extend(THRESHOLD.check(below(at, "usageThresholds"), &self.usage_thresholds));
        let mut kind = |field: &str, text: &Option<String>| {
            let text = text.as_deref().filter(|text| !text.is_empty())?;
            let kind = AggregationType::from(text);
            if matches!(kind, AggregationType::Other(_)) {
                let known: Vec<&str> = AggregationType::KNOWN.iter().map(AggregationType::as_str).collect();
                faults.push(Fault::unsupported(below(at, field), text, &known));
            }
            Some(kind)
        };
        let usage_type = kind("usageAggregationType", &self.usage_aggregation_type);
        let score_type = kind("scoreAggregationType", &self.score_aggregation_type);
        for (field, duration) in [
            ("usageAggregatedDuration", self.usage_aggregated_duration),
            ("scoreAggregatedDuration", self.score_aggregated_duration),
        ] {
            if let Some(duration) = duration.filter(|duration| *duration < GoDuration::ZERO) {
                faults.push(Fault::invalid(below(at, field), duration, "duration must be >= 0"));
            }
        }
        Aggregated {
            usage_thresholds: mapped(&self.usage_thresholds),
            usage_type,
            usage_duration: self.usage_aggregated_duration,
            score_type,
            score_duration: self.score_aggregated_duration,
        }
    }
}
