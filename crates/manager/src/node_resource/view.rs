//! What is kept of Nodes, NodeMetrics and NodeResourceTopologies. Spec: manager 3.1, 5.3.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use koord_api::annotation::Annotation;
use koord_api::annotation::node::OriginExtendedAllocatable;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::node_resource_topology::Zone;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::keys::node_topology::annotation::CPU_BASIC_INFO;
use koord_api::pod::resource_list;
use koord_api::priority::PriorityClass;
use koord_api::qos::Qos;
use koord_api::quantity::{Quantity, ResourceList};
use koord_api::slo::NodeFacts;
use koord_kit::cache::Pool;
use serde_json::{Map, Value, json};

use super::report::{NodeInfo, Report, Status};
use crate::amounts::Amounts;

/// What plugins see and change of a Node.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct NodeView {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// None while the kubelet has not reported; nothing is written then.
    pub capacity: Option<ResourceList>,
    /// As `capacity`.
    pub allocatable: Option<ResourceList>,
}

impl NodeView {
    pub fn of(node: &Node) -> NodeView {
        let status = node.status.as_ref();
        let list = |list: Option<&BTreeMap<String, WireQuantity>>| list.map(|list| resource_list(Some(list)));
        NodeView {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            annotations: node.metadata.annotations.clone().unwrap_or_default(),
            capacity: list(status.and_then(|status| status.capacity.as_ref())),
            allocatable: list(status.and_then(|status| status.allocatable.as_ref())),
        }
    }

    /// A number that two views share only if they are equal, as far as chance allows.
    pub fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether a node changed so is one that no plugin would change again: nothing moved that plugins read but what batch
    /// resources there are.
    pub fn settles(&self, before: &NodeView) -> bool {
        let origin = OriginExtendedAllocatable::KEY;
        let [now, then] =
            [self, before].map(|view| view.annotations.iter().filter(|(key, _)| *key != origin));
        self.labels == before.labels && now.eq(then)
    }

    /// What decides the node's strategies.
    pub fn facts(&self) -> NodeFacts<'_> {
        NodeFacts { labels: &self.labels, annotations: &self.annotations }
    }

    /// Sets a resource in capacity and allocatable, or takes it off both.
    pub fn set_resource(&mut self, name: &str, amount: Option<Quantity>) {
        for list in [&mut self.capacity, &mut self.allocatable].into_iter().flatten() {
            match amount {
                Some(amount) => _ = list.insert(name.to_owned(), amount),
                None => _ = list.remove(name),
            }
        }
    }

    pub fn allocatable(&self, name: &str) -> Option<Quantity> {
        self.allocatable.as_ref()?.get(name).copied()
    }

    /// The JSON merge patch of the change from `before` to this in the labels and annotations of a Node. What did not change
    /// is not in it, so that it stays as it is spelled.
    pub fn meta_patch(&self, before: &NodeView) -> Value {
        json!({"metadata": self.meta_fields(before)})
    }

    /// As [`NodeView::meta_patch`], with capacity and allocatable.
    pub fn patch(&self, before: &NodeView) -> Value {
        let mut status = Map::new();
        for (field, before, after) in [
            ("capacity", &before.capacity, &self.capacity),
            ("allocatable", &before.allocatable, &self.allocatable),
        ] {
            if let (Some(before), Some(after)) = (before, after) {
                put(&mut status, field, changes(before, after, |amount| json!(amount)));
            }
        }
        json!({"metadata": self.meta_fields(before), "status": status})
    }

    fn meta_fields(&self, before: &NodeView) -> Map<String, Value> {
        let mut fields = Map::new();
        put(&mut fields, "labels", changes(&before.labels, &self.labels, |text| json!(text)));
        put(&mut fields, "annotations", changes(&before.annotations, &self.annotations, |text| json!(text)));
        fields
    }
}

fn put(fields: &mut Map<String, Value>, name: &str, changes: Map<String, Value>) {
    if !changes.is_empty() {
        fields.insert(name.to_owned(), Value::Object(changes));
    }
}

/// Entries that are new or differ, and null for those that went.
fn changes<A: PartialEq>(
    before: &BTreeMap<String, A>,
    after: &BTreeMap<String, A>,
    wire: impl Fn(&A) -> Value,
) -> Map<String, Value> {
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let changed = changed.map(|(key, value)| (key.clone(), wire(value)));
    changed.chain(gone.map(|key| (key.clone(), Value::Null))).collect()
}

/// What is kept of a NodeMetric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricEntry {
    /// Without its status.
    pub object: NodeMetric,
    pub view: Arc<MetricView>,
}

impl MetricEntry {
    /// `texts` shares namespaces among all metrics.
    pub fn of(report: Report, texts: &Pool<str>) -> MetricEntry {
        let Report { mut metadata, spec, status } = report;
        metadata.managed_fields = None;
        let view = status.map(|status| MetricView::of(status, texts)).unwrap_or_default();
        MetricEntry { object: NodeMetric { metadata, spec, status: None }, view: Arc::new(view) }
    }
}

/// What is kept of a NodeMetric's status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricView {
    pub update_time: Option<Timestamp>,
    /// None when the report lacks the node itself.
    pub node: Option<NodeUsage>,
    /// Ascending by namespace and name, each once.
    pub pods: Vec<PodUsage>,
    pub host_apps: Vec<HostAppUsage>,
    /// What prod pods have requested but are predicted not to need.
    pub prod_reclaimable: Amounts,
}

/// What a node uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUsage {
    /// None when the report lacks cpu or memory.
    pub used: Option<Amounts>,
    /// What neither pods nor known host applications use.
    pub system: Amounts,
}

/// What a pod uses.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub used: Amounts,
    /// As koordlet saw it; none when it did not tell.
    pub class: Option<PriorityClass>,
    /// As `class`.
    pub qos: Option<Qos>,
}

/// What an application outside Kubernetes uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostAppUsage {
    pub used: Amounts,
    pub class: Option<PriorityClass>,
}

impl MetricView {
    /// `texts` shares namespaces among all metrics.
    pub fn of(status: Status, texts: &Pool<str>) -> MetricView {
        let mut pods: Vec<PodUsage> = status
            .pods_metric
            .into_iter()
            .map(|pod| PodUsage {
                namespace: texts.text(&pod.namespace),
                name: pod.name,
                used: pod.pod_usage.amounts(),
                class: pod.priority,
                qos: pod.qos,
            })
            .collect();
        // Of two reports about one pod the later counts: a stable sort, reversed, then the first of each.
        pods.reverse();
        pods.sort_by(|a, b| a.key().cmp(&b.key()));
        pods.dedup_by(|a, b| a.key() == b.key());
        let host_app = status
            .host_application_metric
            .iter()
            .map(|app| HostAppUsage { used: app.usage.amounts(), class: app.priority });
        let reclaimable = status.prod_reclaimable_metric;
        MetricView {
            update_time: status.update_time.filter(|time| !time.is_zero()).map(|time| time.0),
            node: status.node_metric.map(NodeUsage::of),
            pods,
            host_apps: host_app.collect(),
            prod_reclaimable: reclaimable.map(|m| m.resource.amounts()).unwrap_or_default(),
        }
    }

    /// What a pod uses, if it was measured.
    pub fn pod(&self, key: (&str, &str)) -> Option<&PodUsage> {
        let at = self.pods.binary_search_by(|pod| pod.key().cmp(&key)).ok()?;
        self.pods.get(at)
    }

    /// What host applications of classes above this one use; those without a class are below all.
    pub fn host_apps_above(&self, class: PriorityClass) -> Amounts {
        let is_above =
            |app: &&HostAppUsage| app.class.is_some_and(|own| own.default_value() > class.default_value());
        self.host_apps.iter().filter(is_above).map(|app| app.used).sum()
    }
}

impl NodeUsage {
    fn of(metric: NodeInfo) -> NodeUsage {
        NodeUsage { used: metric.node_usage.whole(), system: metric.system_usage.amounts() }
    }
}

impl PodUsage {
    pub fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

/// What is kept of a NodeResourceTopology.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopologyView {
    /// Of its node.
    pub name: String,
    /// Of the object that this was taken from.
    pub version: String,
    /// With names and resources only.
    pub zones: Vec<Zone>,
    /// The text of the annotation.
    pub cpu_basic_info: Option<String>,
}

impl TopologyView {
    pub fn of(topology: &NodeResourceTopology) -> TopologyView {
        let zone = |zone: &Zone| Zone {
            name: zone.name.clone(),
            resources: zone.resources.clone(),
            ..Zone::default()
        };
        let annotations = topology.metadata.annotations.as_ref();
        TopologyView {
            name: topology.metadata.name.clone().unwrap_or_default(),
            version: topology.metadata.resource_version.clone().unwrap_or_default(),
            zones: topology.zones.iter().map(zone).collect(),
            cpu_basic_info: annotations.and_then(|all| all.get(CPU_BASIC_INFO)).cloned(),
        }
    }
}
