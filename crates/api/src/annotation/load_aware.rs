//! Load-aware scheduling: thresholds of one node, estimates of one pod. Spec: api 5.11.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Annotation, Empty, Fault, OnError, json_annotation};
use crate::crd::wire::{Omit, empty_as_none, open_enum};
use crate::duration::GoDuration;
use crate::keys::node::annotation::USAGE_THRESHOLDS;
use crate::keys::pod::annotation::{
    LOAD_ESTIMATED_SCALING_FACTORS, LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED,
    LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED,
};

/// Percent of a resource, by its name.
pub type Percents = BTreeMap<String, i64>;

/// Thresholds of one node in place of the plugin's, as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UsageThresholds {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub usage_thresholds: Percents,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub prod_usage_thresholds: Percents,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub aggregated_usage: Option<AggregatedUsage>,
}

json_annotation!(UsageThresholds, USAGE_THRESHOLDS, Broken, Absent);

/// Thresholds for a percentile over some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AggregatedUsage {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub usage_thresholds: Percents,
    #[serde(skip_serializing_if = "Omit::omit", deserialize_with = "empty_as_none")]
    pub usage_aggregation_type: Option<AggregationType>,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub usage_aggregated_duration: Option<GoDuration>,
}

open_enum! {
    /// Which figure of a series counts.
    pub enum AggregationType {
        Avg = "avg",
        P50 = "p50",
        P90 = "p90",
        P95 = "p95",
        P99 = "p99",
    }
}

impl UsageThresholds {
    /// What counts as given: no half aggregation, and none at all when nothing is left.
    pub fn given(mut self) -> Option<UsageThresholds> {
        self.aggregated_usage = self
            .aggregated_usage
            .filter(|usage| !usage.usage_thresholds.is_empty() && usage.usage_aggregation_type.is_some());
        (self != UsageThresholds::default()).then_some(self)
    }
}

/// Percent of its request that a pod is expected to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EstimatedScalingFactors(pub Percents);

json_annotation!(EstimatedScalingFactors, LOAD_ESTIMATED_SCALING_FACTORS, Absent, Absent);

/// Seconds after scheduling in which a pod's use is estimated. Absent and broken are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimatedAfterPodScheduled(pub i64);

/// Seconds after initialisation in which a pod's use is estimated. Absent and broken are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimatedAfterInitialized(pub i64);

/// Declares a whole number of seconds as the text under a key.
macro_rules! seconds_annotation {
    ($type:ident, $key:expr) => {
        impl Annotation for $type {
            const KEY: &'static str = $key;
            const EMPTY: Empty = Empty::Absent;
            const ON_ERROR: OnError = OnError::Absent;

            fn parse(text: &str) -> Result<Self, Fault> {
                let fault = |error| Fault::Value(format!("invalid seconds {text:?}: {error}"));
                text.parse().map($type).map_err(fault)
            }

            fn text(&self) -> String {
                self.0.to_string()
            }
        }
    };
}

seconds_annotation!(EstimatedAfterPodScheduled, LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED);
seconds_annotation!(EstimatedAfterInitialized, LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{Annotations, OrAbsent, read};

    #[test]
    fn usage_thresholds() {
        for (text, is_logged) in [("{", true), ("{}", false), (r#"{"usageThresholds":{"cpu":"65"}}"#, true)] {
            let annotations = Annotations::from([(USAGE_THRESHOLDS.to_string(), text.to_string())]);
            let mut logged = false;
            let read = read::<UsageThresholds>(&annotations).or_absent(|_| logged = true);
            assert_eq!(read.and_then(UsageThresholds::given), None, "api#10.43 {text}");
            assert_eq!(logged, is_logged, "api#10.43 {text}");
        }
        let text = r#"{"usageThresholds":{"cpu":65},"prodUsageThresholds":{"cpu":55},"aggregatedUsage":{"usageThresholds":{"cpu":70},"usageAggregationType":"p95","usageAggregatedDuration":"5m0s"}}"#;
        let full = UsageThresholds::parse(text).unwrap();
        assert_eq!(full.text(), text);
        assert_eq!(full.clone().given(), Some(full));
        let half = r#"{"aggregatedUsage":{"usageAggregationType":"p95"}}"#;
        assert_eq!(UsageThresholds::parse(half).unwrap().given(), None);
    }

    #[test]
    fn the_error_names_key_path_and_position() {
        let text = r#"{"usageThresholds":{"cpu":"65"}}"#;
        let annotations = Annotations::from([(USAGE_THRESHOLDS.to_string(), text.to_string())]);
        let error = read::<UsageThresholds>(&annotations).unwrap_err();
        assert_eq!(error.path(), "usageThresholds.cpu");
        assert_eq!(error.offset(), Some(26));
        assert!(
            error.to_string().starts_with("annotation scheduling.koordinator.sh/usage-thresholds: json: ")
        );
    }

    #[test]
    fn estimates() {
        let text = r#"{"cpu":80}"#;
        assert_eq!(EstimatedScalingFactors::parse(text).unwrap().text(), text);
        assert_eq!(EstimatedAfterInitialized::parse("15").unwrap().0, 15);
        assert!(EstimatedAfterPodScheduled::parse("1m").is_err());
        let empty =
            Annotations::from([(LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED.to_string(), String::new())]);
        assert_eq!(read::<EstimatedAfterInitialized>(&empty), Ok(None));
    }
}
