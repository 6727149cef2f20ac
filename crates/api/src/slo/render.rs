//! Strategies for one node: the ConfigMap's rules, then the Node's annotations and labels.
//!
//! Precedence, lowest to highest: built-in, cluster, node item, Node annotation, Node label.
//! Spec: api 7.2, 5.4, 4.2.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Map;

use super::colocation::ColocationStrategy;
use super::config::{SloConfig, Slot};
use super::cpu::{CpuNormalizationStrategy, ResourceAmplificationStrategy};
use super::explain::{self, Layer, Parameter};
use super::strategy::Strategy;
use super::{defaults, key};
use crate::crd::node_metric::MetricCollectPolicy;
use crate::crd::node_slo::{NetworkQos, NodeSloSpec, ResourceQos, SystemStrategy};
use crate::gojson::{self, Kind, Value};
use crate::keys::node::annotation::{COLOCATION_STRATEGY, NETWORK_BANDWIDTH};
use crate::keys::node::label;
use crate::quantity::Quantity;

/// What of a Node decides its strategies.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    pub labels: &'a BTreeMap<String, String>,
    pub annotations: &'a BTreeMap<String, String>,
}

/// A result, and what on the Node was left out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered<T> {
    pub value: T,
    pub ignored: Vec<Ignored>,
}

/// An annotation or label of a Node that we do not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    pub key: &'static str,
    pub value: String,
    pub reason: String,
}

impl SloConfig {
    /// The NodeSLO of a node. `present` is what the node has now.
    ///
    /// Differs: a key that has never been readable keeps its present content, where upstream
    /// writes the defaults to every node (api 7.2 rule 3).
    pub fn node_slo_spec(&self, node: NodeFacts<'_>, present: Option<&NodeSloSpec>) -> Rendered<NodeSloSpec> {
        let mut ignored = Vec::new();
        let present = present.cloned().unwrap_or_default();
        let system = pick(&self.system, node, present.system_strategy);
        let host_applications = match self.host_applications.rules() {
            Some(rules) => rules.for_node(node.labels).applications.clone(),
            None => present.host_applications,
        };
        let mut value = NodeSloSpec {
            resource_used_threshold_with_be: Some(pick(
                &self.threshold,
                node,
                present.resource_used_threshold_with_be,
            )),
            resource_qos_strategy: Some(pick(&self.qos, node, present.resource_qos_strategy)),
            cpu_burst_strategy: Some(pick(&self.burst, node, present.cpu_burst_strategy)),
            system_strategy: Some(with_bandwidth(system, node, &mut ignored)),
            host_applications,
            extensions: None,
        };
        let mut extensions = Map::new();
        for (name, rules) in &self.extensions {
            if let Some(strategy) = rules.for_node(node.labels) {
                extensions.insert(name.clone(), strategy.clone());
            }
        }
        value.set_extensions(extensions);
        Rendered { value, ignored }
    }

    /// How a node is colocated; nothing while the config is not available.
    pub fn colocation_strategy(&self, node: NodeFacts<'_>) -> Option<Rendered<ColocationStrategy>> {
        let mut value = self.colocation.rules()?.for_node(node.labels).clone();
        let mut ignored = Vec::new();
        if let Some(text) = node.annotations.get(COLOCATION_STRATEGY) {
            match annotated(&value, text) {
                Ok(merged) => value = merged,
                Err(reason) => {
                    ignored.push(Ignored { key: COLOCATION_STRATEGY, value: text.clone(), reason });
                }
            }
        }
        labelled(&mut value, node, &mut ignored);
        Some(Rendered { value, ignored })
    }

    /// How a node is measured; nothing when the present policy is to stay as it is.
    pub fn metric_policy(
        &self,
        node: NodeFacts<'_>,
        present: Option<&MetricCollectPolicy>,
    ) -> Option<MetricCollectPolicy> {
        if self.colocation.has_error() && present.is_some() {
            return None;
        }
        let mut strategy = self.colocation.rules()?.for_node(node.labels).clone();
        // Here an annotation that can be read counts even where it makes the strategy unusable (manager 3).
        let annotation = node.annotations.get(COLOCATION_STRATEGY).map(|text| gojson::from_str(text));
        if let Some(Ok(annotation)) = annotation {
            strategy = strategy.over(&annotation);
        }
        labelled(&mut strategy, node, &mut Vec::new());
        // A node that is not colocated is still measured, at the built-in pace.
        let is_usable = strategy.enable == Some(true) && strategy.problems().is_empty();
        let strategy = if is_usable { strategy } else { defaults::colocation() };
        Some(strategy.metric_policy())
    }

    /// How strong a node's CPUs count; nothing while the config is not available.
    pub fn cpu_normalization_strategy(&self, node: NodeFacts<'_>) -> Option<&CpuNormalizationStrategy> {
        Some(self.cpu_normalization.rules()?.for_node(node.labels))
    }

    /// How much more of a node is shown; nothing while the config is not available.
    pub fn amplification_strategy(&self, node: NodeFacts<'_>) -> Option<&ResourceAmplificationStrategy> {
        Some(self.amplification.rules()?.for_node(node.labels))
    }

    /// Every parameter that holds on a node and who set it, by key of the ConfigMap.
    pub fn explain(&self, node: NodeFacts<'_>) -> BTreeMap<&'static str, Vec<Parameter>> {
        let mut all = BTreeMap::new();
        all.insert(key::COLOCATION, self.explain_colocation(node));
        all.insert(key::RESOURCE_THRESHOLD, explain_slot(&self.threshold, node));
        all.insert(key::RESOURCE_QOS, explain_slot(&self.qos, node));
        all.insert(key::CPU_BURST, explain_slot(&self.burst, node));
        all.insert(key::SYSTEM, self.explain_system(node));
        all.insert(key::HOST_APPLICATION, explain_slot(&self.host_applications, node));
        all.insert(key::CPU_NORMALIZATION, explain_slot(&self.cpu_normalization, node));
        all.insert(key::RESOURCE_AMPLIFICATION, explain_slot(&self.amplification, node));
        all
    }

    fn explain_colocation(&self, node: NodeFacts<'_>) -> Vec<Parameter> {
        let (Some(rules), Some(rendered)) = (self.colocation.rules(), self.colocation_strategy(node)) else {
            return Vec::new();
        };
        let mut layers = rules.layers(node.labels);
        let used = |key: &str| !rendered.ignored.iter().any(|ignored| ignored.key == key);
        let annotation = node.annotations.get(COLOCATION_STRATEGY).filter(|_| used(COLOCATION_STRATEGY));
        if let Some(strategy) = annotation.and_then(|text| gojson::from_str::<ColocationStrategy>(text).ok())
        {
            layers.push((Layer::NodeAnnotation(COLOCATION_STRATEGY), encode(&strategy)));
        }
        for (key, field) in RATIO_LABELS {
            if let Some(percent) = node.labels.get(*key).and_then(|text| percent_of_ratio(text)) {
                let mut strategy = ColocationStrategy::default();
                *field(&mut strategy) = Some(percent);
                layers.push((Layer::NodeLabel(key), encode(&strategy)));
            }
        }
        explain::parameters(&encode(&rendered.value), &layers)
    }

    fn explain_system(&self, node: NodeFacts<'_>) -> Vec<Parameter> {
        let Some(rules) = self.system.rules() else { return Vec::new() };
        let mut layers = rules.layers(node.labels);
        let mut ignored = Vec::new();
        let value = with_bandwidth(rules.for_node(node.labels).clone(), node, &mut ignored);
        if node.annotations.contains_key(NETWORK_BANDWIDTH) && ignored.is_empty() {
            let bandwidth = encode(&value.total_network_bandwidth);
            let layer = Kind::Object(vec![("totalNetworkBandwidth".to_owned(), bandwidth)]);
            layers.push((Layer::NodeAnnotation(NETWORK_BANDWIDTH), layer.into()));
        }
        explain::parameters(&encode(&value), &layers)
    }
}

fn pick<S: Strategy>(slot: &Slot<S>, node: NodeFacts<'_>, present: Option<S>) -> S {
    match slot.rules() {
        Some(rules) => rules.for_node(node.labels).clone(),
        None => present.unwrap_or_else(S::built_in),
    }
}

fn explain_slot<S: Strategy>(slot: &Slot<S>, node: NodeFacts<'_>) -> Vec<Parameter> {
    let parameters = |rules: &super::Rules<S>| {
        explain::parameters(&encode(rules.for_node(node.labels)), &rules.layers(node.labels))
    };
    slot.rules().map(parameters).unwrap_or_default()
}

fn encode(value: &impl serde::Serialize) -> Value {
    gojson::to_value(value).unwrap_or_default()
}

/// Differs: a bandwidth that cannot be read is left out, where upstream then drops the whole
/// system strategy (api 5.4).
fn with_bandwidth(
    mut system: SystemStrategy,
    node: NodeFacts<'_>,
    ignored: &mut Vec<Ignored>,
) -> SystemStrategy {
    let Some(text) = node.annotations.get(NETWORK_BANDWIDTH) else { return system };
    match text.parse::<Quantity>() {
        Ok(bandwidth) => system.total_network_bandwidth = bandwidth,
        Err(error) => ignored.push(Ignored {
            key: NETWORK_BANDWIDTH,
            value: text.clone(),
            reason: format!("failed to parse node bandwidth {error}"),
        }),
    }
    system
}

/// Differs: an annotation that makes the strategy unusable is left out, where upstream applies it
/// (api 11, item 20).
fn annotated(strategy: &ColocationStrategy, text: &str) -> Result<ColocationStrategy, String> {
    let annotation: ColocationStrategy = gojson::from_str(text).map_err(|error| error.to_string())?;
    let merged = strategy.over(&annotation);
    match merged.problems() {
        problems if problems.is_empty() => Ok(merged),
        problems => Err(problems.join("; ")),
    }
}

/// Percentages that labels of the node replace.
fn labelled(strategy: &mut ColocationStrategy, node: NodeFacts<'_>, ignored: &mut Vec<Ignored>) {
    for (key, field) in RATIO_LABELS {
        let Some(text) = node.labels.get(*key) else { continue };
        match percent_of_ratio(text) {
            Some(percent) => *field(strategy) = Some(percent),
            None => ignored.push(Ignored {
                key,
                value: text.clone(),
                reason: "not a ratio such as 0.65".to_owned(),
            }),
        }
    }
}

type PercentField = fn(&mut ColocationStrategy) -> &mut Option<i64>;

/// Labels that replace a percentage. Spec: api 4.2.
const RATIO_LABELS: &[(&str, PercentField)] = &[
    (label::CPU_RECLAIM_RATIO, |strategy| &mut strategy.cpu_reclaim_threshold_percent),
    (label::MEMORY_RECLAIM_RATIO, |strategy| &mut strategy.memory_reclaim_threshold_percent),
    (label::MID_STATIC_CPU_RESERVED_RATIO, |strategy| &mut strategy.mid_static_cpu_reserved_percent),
    (label::MID_STATIC_MEMORY_RESERVED_RATIO, |strategy| &mut strategy.mid_static_memory_reserved_percent),
];

/// A ratio as percent, rounded down; none for text that is no ratio from 0 up.
///
/// Differs: `0.29` is 29, where upstream cuts the floating product 28.999… to 28, and `NaN` and
/// `Inf` are refused (api 11, items 21 and 25).
pub fn percent_of_ratio(text: &str) -> Option<i64> {
    let percent = text.parse::<f64>().ok().filter(|ratio| ratio.is_finite() && *ratio >= 0.0)? * 100.0;
    let nearest = percent.round();
    let whole = if (percent - nearest).abs() < 1e-6 { nearest } else { percent.trunc() };
    format!("{whole:.0}").parse().ok()
}

/// Whether writing `rendered` over `stored` would change anything that the API server keeps.
///
/// Differs: defaults of the CRD count as written, and empty as absent; upstream compares the Go
/// values and so sends an update at every turn (api 7.2).
pub fn same_node_slo(rendered: &NodeSloSpec, stored: &NodeSloSpec) -> bool {
    canonical(rendered) == canonical(stored)
}

fn canonical(spec: &NodeSloSpec) -> NodeSloSpec {
    let mut spec = spec.clone();
    let qos = spec.resource_qos_strategy.get_or_insert_default();
    let classes = [
        &mut qos.lsr_class,
        &mut qos.ls_class,
        &mut qos.be_class,
        &mut qos.system_class,
        &mut qos.cgroup_root,
    ];
    for network in
        classes.into_iter().flatten().filter_map(|class: &mut ResourceQos| class.network_qos.as_mut())
    {
        fill_network(network);
    }
    spec.extensions = spec.extensions.filter(|extensions| {
        extensions.values().any(|value| !value.as_object().is_some_and(|inner| inner.is_empty()))
    });
    spec
}

/// What the API server fills in when it stores a networkQOS.
fn fill_network(network: &mut NetworkQos) {
    for request in [&mut network.ingress_request, &mut network.egress_request] {
        request.get_or_insert(IntOrString::Int(0));
    }
    for limit in [&mut network.ingress_limit, &mut network.egress_limit] {
        limit.get_or_insert(IntOrString::Int(100));
    }
}
