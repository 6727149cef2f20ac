//! Whether a change of slo-controller-config is admitted, in upstream's words. Spec: api 7.9.
//!
//! Pure: old and new data, the labels of all nodes. Ranges of fields are in `range`, the rules
//! of networkQOS in `network`, selectors that pick one node twice in `overlap`.

mod network;
mod overlap;
mod range;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use super::colocation::ColocationStrategy;
use super::document::Document;
use super::key;
use super::strategy::{Strategy, SystemPartial};
use crate::crd::node_slo::{
    CpuBurstStrategy, ResourceQosStrategy, ResourceThresholdStrategy, SystemStrategy,
};
use crate::gojson;
use crate::selector::Selector;

/// Texts by key, as a ConfigMap holds them.
pub type Data = BTreeMap<String, String>;

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct AdmissionError {
    /// HTTP status of the answer.
    pub code: u16,
    pub text: String,
}

/// What the check needs to know beside the data.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the ConfigMap lies; named in error texts.
    pub namespace: String,
    pub name: String,
    /// `--node-strategy-name-need-check`: every node item must have a name of its own.
    pub names_required: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            namespace: super::CONFIG_NAMESPACE.to_owned(),
            name: super::CONFIG_NAME.to_owned(),
            names_required: false,
        }
    }
}

/// A node, as far as selectors see it.
#[derive(Clone, Copy, Debug)]
pub struct NodeLabels<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
}

/// Checks the keys that are not empty and have changed, in a fixed order; the first fault decides.
/// `old` is absent on create.
pub fn admit(
    old: Option<&Data>,
    new: &Data,
    nodes: &[NodeLabels<'_>],
    options: &Options,
) -> Result<(), AdmissionError> {
    let changed = |key: &str| {
        let text = new.get(key).filter(|text| !text.is_empty())?;
        (old.and_then(|old| old.get(key)) != Some(text)).then_some(text.as_str())
    };
    let mut checked = Vec::new();
    if let Some(text) = changed(key::COLOCATION) {
        let document = parse::<ColocationStrategy>(text, "colocation", options)?;
        checked.push(check::<ColocationStrategy>(&document, options, range::colocation, |_| Ok(()))?);
    }
    if let Some(text) = changed(key::RESOURCE_THRESHOLD) {
        let document = parse::<ResourceThresholdStrategy>(text, "resourceThreshold", options)?;
        checked.push(check::<ResourceThresholdStrategy>(&document, options, range::threshold, |_| Ok(()))?);
    }
    if let Some(text) = changed(key::RESOURCE_QOS) {
        let document = parse::<ResourceQosStrategy>(text, "ResourceQOS", options)?;
        let system = system_document(new, options)?;
        let network = |document: &_| network::check(document, &system);
        checked.push(check::<ResourceQosStrategy>(&document, options, range::qos, network)?);
    }
    if let Some(text) = changed(key::SYSTEM) {
        let document = parse::<SystemStrategy>(text, "System", options)?;
        checked.push(check::<SystemStrategy>(&document, options, range::system, |_| Ok(()))?);
    }
    if let Some(text) = changed(key::CPU_BURST) {
        let document = parse::<CpuBurstStrategy>(text, "CpuBurst", options)?;
        checked.push(check::<CpuBurstStrategy>(&document, options, range::burst, |_| Ok(()))?);
    }
    nodes.iter().try_for_each(|node| checked.iter().try_for_each(|items| items.check_node(*node)))
}

/// Whether two items of one document would match a node whose labels change. Documents that
/// cannot be read are left to their own check.
pub fn admit_node(data: &Data, node: NodeLabels<'_>) -> Result<(), AdmissionError> {
    let items = [
        lenient_items::<ColocationStrategy>(data),
        lenient_items::<ResourceThresholdStrategy>(data),
        lenient_items::<ResourceQosStrategy>(data),
        lenient_items::<SystemStrategy>(data),
        lenient_items::<CpuBurstStrategy>(data),
    ];
    items.iter().try_for_each(|items| items.check_node(node))
}

type Faults = BTreeMap<String, String>;

fn parse<S: Strategy>(
    text: &str,
    subject: &str,
    options: &Options,
) -> Result<Document<S::Partial>, AdmissionError> {
    Document::parse(text, S::SHAPE).map_err(|error| {
        let Options { namespace, name, .. } = options;
        let message =
            format!("Failed to parse {subject} config in configmap {namespace}/{name}, err: {error}");
        framed("ParseConfigFail", &message)
    })
}

/// Differs: a missing system-config is an empty one, where upstream refuses every change of
/// resource-qos-config without it (api 11, item 2).
fn system_document(new: &Data, options: &Options) -> Result<Document<SystemPartial>, AdmissionError> {
    match new.get(key::SYSTEM).filter(|text| !text.is_empty()) {
        Some(text) => parse::<SystemStrategy>(text, "System", options),
        None => Ok(Document::default()),
    }
}

fn check<S: Strategy>(
    document: &Document<S::Partial>,
    options: &Options,
    ranges: impl FnOnce(&Document<S::Partial>) -> Faults,
    more: impl FnOnce(&Document<S::Partial>) -> Result<(), AdmissionError>,
) -> Result<Items, AdmissionError> {
    let mut items = Items { key: S::KEY, items: Vec::new() };
    for item in &document.nodes {
        items.push(&item.name, item.selector.as_ref())?;
    }
    let faults = ranges(document);
    if !faults.is_empty() {
        return Err(framed(PARAM_INVALID, &faults));
    }
    more(document)?;
    if options.names_required {
        items.check_names()?;
    }
    items.check_overlap()?;
    Ok(items)
}

fn lenient_items<S: Strategy>(data: &Data) -> Items {
    let mut items = Items { key: S::KEY, items: Vec::new() };
    let text = data.get(S::KEY).filter(|text| !text.is_empty());
    let document = text.and_then(|text| Document::<S::Partial>::parse(text, S::SHAPE).ok());
    let mut all = document.iter().flat_map(|document| &document.nodes);
    // A document of which the check would refuse one item picks no node here.
    match all.try_for_each(|item| items.push(&item.name, item.selector.as_ref())) {
        Ok(()) => items,
        Err(_) => Items { key: S::KEY, items: Vec::new() },
    }
}

/// The node items of one document.
struct Items {
    key: &'static str,
    items: Vec<Item>,
}

struct Item {
    name: String,
    written: LabelSelector,
    selector: Selector,
}

impl Items {
    fn push(&mut self, name: &str, written: Option<&LabelSelector>) -> Result<(), AdmissionError> {
        let key = self.key;
        let is_empty = |selector: &&LabelSelector| {
            let labels = selector.match_labels.as_ref().is_none_or(|labels| labels.is_empty());
            labels && selector.match_expressions.as_ref().is_none_or(|all| all.is_empty())
        };
        let Some(written) = written.filter(|selector| !is_empty(selector)) else {
            let message = format!(
                "nodeConfigs NodeSelector must not empty error! configType: {key},nodeConfig name:{name}"
            );
            return Err(framed(PARAM_INVALID, &message));
        };
        let selector = Selector::new(Some(written)).map_err(|error| {
            let shown = go_text(written);
            let message = format!(
                "failed to parse node selector {shown},configType: {key},nodeConfig name:{name}, err: {error}"
            );
            framed(PARAM_INVALID, &message)
        })?;
        self.items.push(Item { name: name.to_owned(), written: written.clone(), selector });
        Ok(())
    }

    fn check_names(&self) -> Result<(), AdmissionError> {
        let key = self.key;
        for (index, item) in self.items.iter().enumerate() {
            if item.name.is_empty() {
                return Err(framed(PARAM_INVALID, &format!("nodeConfig Name need! configType:{key}")));
            }
            if self.items[..index].iter().any(|earlier| earlier.name == item.name) {
                // Upstream's spelling, down to the space at the end.
                let message =
                    format!("nodeConfig Name confilict, configType:{key},nodeConfig Name:{}! ", item.name);
                return Err(framed(PARAM_INVALID, &message));
            }
        }
        Ok(())
    }

    fn check_overlap(&self) -> Result<(), AdmissionError> {
        for labels in self.items.iter().flat_map(|item| overlap::virtual_nodes(&item.written)) {
            let strategies = self.matching(&labels);
            if strategies.len() > 1 {
                let message = Conflict { config: self.key, strategies, example_nodes: Vec::new() };
                return Err(framed("NodeStrategiesOverlap", &message));
            }
        }
        Ok(())
    }

    fn check_node(&self, node: NodeLabels<'_>) -> Result<(), AdmissionError> {
        let strategies = self.matching(node.labels);
        if strategies.len() < 2 {
            return Ok(());
        }
        let message = Conflict { config: self.key, strategies, example_nodes: vec![node.name] };
        Err(framed("ExistNodeConfict", &message))
    }

    fn matching(&self, labels: &BTreeMap<String, String>) -> Vec<&str> {
        let matching = self.items.iter().filter(|item| item.selector.matches(labels));
        matching.map(|item| item.name.as_str()).collect()
    }
}

/// A selector as Go prints it, which is part of upstream's text.
fn go_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let all = selector.match_expressions.iter().flatten();
    let all = all.map(|one| {
        let values = one.values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    let all: String = all.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{all}}},}}"
    )
}

const PARAM_INVALID: &str = "ConfigParamInvalid";

#[derive(Serialize)]
struct Conflict<'a> {
    config: &'a str,
    strategies: Vec<&'a str>,
    #[serde(rename = "exampleNodes", skip_serializing_if = "Vec::is_empty")]
    example_nodes: Vec<&'a str>,
}

/// `___{"reason":…,"message":…}___`: the frame that upstream's console looks for.
fn framed(reason: &str, message: &(impl Serialize + ?Sized)) -> AdmissionError {
    #[derive(Serialize)]
    struct Frame<'a, M: ?Sized> {
        reason: &'a str,
        message: &'a M,
    }
    let frame = gojson::to_string(&Frame { reason, message }).unwrap_or_default();
    refused(format!("___{frame}___"))
}

fn refused(text: String) -> AdmissionError {
    AdmissionError { code: 400, text }
}
