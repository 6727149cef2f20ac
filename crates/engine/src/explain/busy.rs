//! How busy a node is, with the numbers behind it.

use serde::{Deserialize, Serialize};

use super::amount::readable;
use crate::cluster::Cluster;
use crate::framework::LoadFacts;
use crate::time::Time;

/// What a node uses of one resource, and what keeps a pod off it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadLack {
    pub resource: String,
    /// As measured, in percent of what the node has; rounded.
    pub used_percent: i64,
    pub threshold_percent: i64,
    /// With pods in flight and the pod itself.
    pub expected_percent: i64,
    pub used: String,
    pub allocatable: String,
    /// None when nobody says when it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Pods that came so lately that what was measured does not show them in full, and what they will add.
    pub pods_in_flight: usize,
    pub in_flight: String,
    /// What the pod itself is expected to use.
    pub wanted: String,
    /// Only pods of class prod are counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_prod: bool,
    /// The percentile that counts was not measured, so that everything is estimated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_estimated: bool,
}

impl LoadLack {
    pub(super) fn of(cluster: &Cluster, facts: &LoadFacts) -> LoadLack {
        let text = |units: i64| readable(&cluster.resources, &facts.resource, units);
        let share = i128::from(facts.used) * 1000 / i128::from(facts.allocatable.max(1));
        LoadLack {
            resource: facts.resource.to_string(),
            used_percent: i64::try_from((share + 5) / 10).unwrap_or(i64::MAX),
            threshold_percent: facts.threshold,
            expected_percent: facts.expected,
            used: text(facts.used),
            allocatable: text(facts.allocatable),
            measured_at: facts.measured,
            age_seconds: age(cluster, facts.measured),
            pods_in_flight: facts.in_flight_pods,
            in_flight: text(facts.in_flight),
            wanted: text(facts.incoming),
            is_of_prod: facts.is_of_prod,
            is_estimated: facts.is_estimated,
        }
    }

    pub(super) fn in_words(&self) -> String {
        let LoadLack { threshold_percent, expected_percent, .. } = self;
        let name = match self.resource.as_str() {
            "cpu" => "CPU",
            name => name,
        };
        let whom = if self.is_of_prod { "prod pods" } else { "node" };
        let age = match self.age_seconds {
            Some(age) => format!(", measured {age} s ago"),
            None => String::new(),
        };
        let pods = match self.pods_in_flight {
            1 => "1 pod".to_owned(),
            count => format!("{count} pods"),
        };
        let unit = if self.resource == "cpu" && !self.in_flight.ends_with('m') { " cores" } else { "" };
        let begin = match self.is_estimated {
            true => format!(
                "{pods} estimated at {}{unit} {name} (threshold {threshold_percent} %)",
                self.in_flight
            ),
            false => {
                format!("{whom} at {} % {name} (threshold {threshold_percent} %){age}", self.used_percent)
            }
        };
        let in_flight = match self.pods_in_flight {
            0 => String::new(),
            _ if self.is_estimated => String::new(),
            _ => format!(", plus {pods} in flight estimated at {}{unit}", self.in_flight),
        };
        format!("{begin}{in_flight}; with this pod {expected_percent} %")
    }
}

/// Whole seconds since something was measured.
pub(super) fn age(cluster: &Cluster, measured: Option<Time>) -> Option<u64> {
    Some(cluster.loads().now().since(measured?).as_secs())
}
