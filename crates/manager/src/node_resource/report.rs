//! A NodeMetric as far as the manager reads it. The rest of a report, which is most of it, is passed over undecoded:
//! thousands of nodes report every minute.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Resource};
use koord_api::crd::node_metric::{NodeMetric, NodeMetricSpec};
use koord_api::priority::PriorityClass;
use koord_api::qos::Qos;
use koord_api::quantity::Quantity;
use koord_api::time::Time;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::amounts::Amounts;

/// A NodeMetric.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, expecting = "an object")]
pub struct Report {
    pub metadata: ObjectMeta,
    pub spec: Option<NodeMetricSpec>,
    pub status: Option<Status>,
}

impl Resource for Report {
    const API_VERSION: &'static str = NodeMetric::API_VERSION;
    const GROUP: &'static str = NodeMetric::GROUP;
    const KIND: &'static str = NodeMetric::KIND;
    const VERSION: &'static str = NodeMetric::VERSION;
    const URL_PATH_SEGMENT: &'static str = NodeMetric::URL_PATH_SEGMENT;
    type Scope = ClusterResourceScope;
}

impl k8s_openapi::Metadata for Report {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The measurements.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "an object")]
pub struct Status {
    pub update_time: Option<Time>,
    pub node_metric: Option<NodeInfo>,
    pub pods_metric: Vec<PodInfo>,
    pub host_application_metric: Vec<HostAppInfo>,
    pub prod_reclaimable_metric: Option<Predicted>,
}

/// What the whole node uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "an object")]
pub struct NodeInfo {
    pub node_usage: Usage,
    pub system_usage: Usage,
}

/// What one pod uses.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "an object")]
pub struct PodInfo {
    pub name: Box<str>,
    pub namespace: String,
    pub pod_usage: Usage,
    #[serde(deserialize_with = "class")]
    pub priority: Option<PriorityClass>,
    #[serde(deserialize_with = "qos")]
    pub qos: Option<Qos>,
}

/// What one application outside Kubernetes uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, expecting = "an object")]
pub struct HostAppInfo {
    pub usage: Usage,
    #[serde(deserialize_with = "class")]
    pub priority: Option<PriorityClass>,
}

/// A predicted amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, expecting = "an object")]
pub struct Predicted {
    pub resource: Usage,
}

/// Amounts of resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, expecting = "an object")]
pub struct Usage {
    resources: Native,
}

/// The two that count; none where the report has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, expecting = "an object")]
struct Native {
    #[serde(deserialize_with = "present")]
    cpu: Option<Quantity>,
    #[serde(deserialize_with = "present")]
    memory: Option<Quantity>,
}

impl Usage {
    /// What is not there counts as zero.
    pub fn amounts(self) -> Amounts {
        let Native { cpu, memory } = self.resources;
        Amounts { cpu: cpu.unwrap_or_default(), memory: memory.unwrap_or_default() }
    }

    /// Nothing unless both are there.
    pub fn whole(self) -> Option<Amounts> {
        let Native { cpu, memory } = self.resources;
        Some(Amounts { cpu: cpu?, memory: memory? })
    }
}

/// A null amount is one of zero.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    Quantity::deserialize(deserializer).map(Some)
}

fn class<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PriorityClass>, D::Error> {
    deserializer.deserialize_str(Word(PriorityClass::parse))
}

fn qos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Qos>, D::Error> {
    deserializer.deserialize_str(Word(Qos::parse))
}

/// Reads a word without keeping it.
struct Word<T>(fn(&str) -> Option<T>);

impl<T> Visitor<'_> for Word<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Option<T>, E> {
        Ok((self.0)(word))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(status: Value) -> Result<Status, serde_json::Error> {
        let metric = json!({"metadata": {"name": "n"}, "status": status}).to_string();
        serde_json::from_str::<Report>(&metric).map(|report| report.status.unwrap_or_default())
    }

    #[test]
    fn only_what_counts_is_read() {
        let usage = |cpu: &str| json!({"resources": {"cpu": cpu, "memory": "1Gi", "nvidia.com/gpu": "odd"}, "devices": 3});
        let status = read(json!({
            "nodeMetric": {"nodeUsage": usage("2"), "aggregatedNodeUsages": "passed over"},
            "podsMetric": [{"namespace": "shop", "name": "web", "podUsage": usage("1500m"), "priority": "koord-prod",
                "qos": "odd", "extensions": [1]}],
            "hostApplicationMetric": [{"name": "nginx", "usage": {"resources": {"cpu": null}}, "priority": "koord-mid"}],
        }))
        .unwrap();
        let node = status.node_metric.unwrap();
        assert_eq!(node.node_usage.whole().unwrap().cpu, "2".parse().unwrap());
        assert_eq!(node.system_usage.whole(), None);
        assert_eq!(node.system_usage.amounts(), Amounts::ZERO);
        let [pod] = status.pods_metric.as_slice() else { panic!("one pod") };
        assert_eq!((&*pod.namespace, &*pod.name), ("shop", "web"));
        assert_eq!((pod.priority, pod.qos), (Some(PriorityClass::Prod), None));
        assert_eq!(pod.pod_usage.amounts().cpu, "1500m".parse().unwrap());
        let [app] = status.host_application_metric.as_slice() else { panic!("one application") };
        assert_eq!((app.usage.amounts(), app.priority), (Amounts::ZERO, Some(PriorityClass::Mid)));
        assert_eq!(app.usage.whole(), None);
    }

    #[test]
    fn what_counts_must_make_sense() {
        for status in [
            json!({"nodeMetric": {"nodeUsage": {"resources": {"cpu": "many"}}}}),
            json!({"podsMetric": [{"qos": 1}]}),
            json!({"podsMetric": {}}),
            json!({"updateTime": "yesterday"}),
        ] {
            assert!(read(status.clone()).is_err(), "{status}");
        }
    }
}
