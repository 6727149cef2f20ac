//! What is kept of Nodes, NodeMetrics and NodeResourceTopologies. Spec: manager 3.1, 5.3.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
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

use super::report::{NodeInfo, Report, Status};
use crate::amounts::Amounts;

/// What plugins see and change of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
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

    /// Makes the change from `before` to this in the labels and annotations of a Node; all else stays as it is spelled.
    pub fn write_meta(&self, before: &NodeView, node: &mut Node) {
        carry(&before.labels, &self.labels, &mut node.metadata.labels, String::clone);
        carry(&before.annotations, &self.annotations, &mut node.metadata.annotations, String::clone);
    }

    /// Makes the change from `before` to this in a Node: its metadata, capacity and allocatable.
    pub fn write(&self, before: &NodeView, node: &mut Node) {
        self.write_meta(before, node);
        let status = node.status.get_or_insert_default();
        let wire = |amount: &Quantity| WireQuantity::from(*amount);
        for (before, after, lists) in [
            (&before.capacity, &self.capacity, &mut status.capacity),
            (&before.allocatable, &self.allocatable, &mut status.allocatable),
        ] {
            if let (Some(before), Some(after)) = (before, after) {
                carry(before, after, lists, wire);
            }
        }
    }
}

/// Sets and removes those entries that differ.
fn carry<A: PartialEq, B>(
    before: &BTreeMap<String, A>,
    after: &BTreeMap<String, A>,
    target: &mut Option<BTreeMap<String, B>>,
    convert: impl Fn(&A) -> B,
) {
    for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(*value)) {
        target.get_or_insert_default().insert(key.clone(), convert(value));
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        if let Some(target) = target {
            target.remove(key);
        }
    }
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
            zones: topology.zones.iter().map(zone).collect(),
            cpu_basic_info: annotations.and_then(|all| all.get(CPU_BASIC_INFO)).cloned(),
        }
    }
}
