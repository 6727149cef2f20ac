//! Admission of Nodes: allocatable is amplified where it is written, and no label may let two strategies pick a node.
//!
//! Pure, over the JSON trees of a review, so that fields we do not know stay. Spec: manager 9.2, 19.

use koord_api::annotation::node::RawAllocatable;
use koord_api::annotation::ratio::AmplificationRatios;
use koord_api::annotation::{Annotation, Fault};
use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::quantity::{Quantity, ResourceList};
use koord_api::slo::admission::{NodeLabels, admit_node};
use serde_json::{Map, Value};

use super::denial::Denial;
use super::facts::{Facts, Texts};
use super::handler::Aside;
use super::review::{Answer, Operation, Request, Verdict};
use crate::amounts::scale_milli_trunc;

/// Names of the steps in metrics.
const AMPLIFICATION: &str = "NodeResourceAmplificationPlugin";
const CONFIG_CONFLICT: &str = "SLOManagerConfigConflictForNode";

/// What is amplified. Everything else in allocatable is as it was sent.
const AMPLIFIED: [&str; 2] = [CPU, MEMORY];

/// Answers `/mutate-node-status`.
pub fn mutate(request: &Request, _: &Facts, aside: &mut Aside<'_>) -> Answer {
    if !is_node(request, "status") || request.operation != Operation::Update {
        return Answer::allow();
    }
    let mut node = request.object.clone();
    let amplified = amplify(&request.old_object, &mut node);
    (aside.step)(AMPLIFICATION, amplified.is_ok());
    match amplified {
        Ok(()) => Answer::change(node),
        Err(denial) => Answer::from(Verdict::Denied(denial)),
    }
}

/// Answers `/validate-node`.
pub fn validate(request: &Request, facts: &Facts, aside: &mut Aside<'_>) -> Answer {
    let old = match request.operation {
        Operation::Create => None,
        Operation::Update => Some(&request.old_object),
        Operation::Delete | Operation::Connect => return Answer::allow(),
    };
    if !is_node(request, "") {
        return Answer::allow();
    }
    let checked = check_labels(old, &request.object, facts.config.as_deref());
    (aside.step)(CONFIG_CONFLICT, checked.is_ok());
    match checked {
        Err(conflict) if old.is_none() => {
            tracing::warn!(node = name(&request.object), conflict = conflict.message, "new node");
            let mut answer = Answer::allow();
            answer.warnings.push(conflict.message);
            answer
        }
        checked => Answer::from(checked),
    }
}

fn is_node(request: &Request, sub_resource: &str) -> bool {
    request.resource.resource == "nodes" && request.sub_resource == sub_resource
}

/// What an UPDATE of `nodes/status` becomes: the node keeps what kubelet reported as its raw allocatable, and shows
/// that times the ratios it is annotated with.
///
/// Only kubelet writes cpu and memory: a review in which they differ from the stored node carries new raw values,
/// any other one echoes what we made of the old ones.
fn amplify(old: &Value, new: &mut Value) -> Result<(), Denial> {
    let ratios = annotation(new, AmplificationRatios::KEY).filter(|text| !text.is_empty());
    let ratios = ratios.map(str::to_owned);
    let raw_text = annotation(new, RawAllocatable::KEY).map(str::to_owned);
    let is_echo = amounts(old) == amounts(new);
    let Some(ratios) = ratios else {
        // Differs: the raw values come back at once, where upstream shows amplified ones until kubelet's next write
        // (manager 26, DB-34).
        if let Some(raw) = raw_text.filter(|_| is_echo).and_then(|text| RawAllocatable::parse(&text).ok()) {
            show(new, &raw.0, &AmplificationRatios::default());
        }
        remove_annotation(new, RawAllocatable::KEY);
        return Ok(());
    };
    if allocatable(new).is_none() {
        return Ok(());
    }
    let raw = match raw_text.filter(|_| is_echo) {
        Some(text) => {
            RawAllocatable::parse(&text).map_err(|fault| unreadable("node raw allocatable", &fault))?
        }
        None => {
            let raw = RawAllocatable(amounts(new).into_iter().filter_map(known).collect());
            if !raw.0.is_empty() {
                set_annotation(new, RawAllocatable::KEY, raw.text());
            }
            raw
        }
    };
    let ratios = AmplificationRatios::parse(&ratios)
        .map_err(|fault| unreadable("node resource amplification ratio", &fault))?;
    show(new, &raw.0, &ratios);
    Ok(())
}

/// Refuses labels that let several items of one document of slo-controller-config pick the node.
fn check_labels(old: Option<&Value>, new: &Value, config: Option<&Texts>) -> Result<(), Denial> {
    let Some(config) = config else { return Ok(()) };
    let labels = labels(new);
    if old.is_some_and(|old| self::labels(old) == labels) {
        return Ok(());
    }
    let node = NodeLabels { name: name(new), labels: &labels };
    admit_node(config, node).map_err(|conflict| Denial { code: conflict.code, message: conflict.text })
}

fn name(node: &Value) -> &str {
    node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Shows each raw amount times its ratio; ratios up to 1 change nothing.
///
/// Differs: an amount whose ratio is gone is shown raw again (manager 26, DB-34).
fn show(node: &mut Value, raw: &ResourceList, ratios: &AmplificationRatios) {
    let Some(allocatable) = node.pointer_mut("/status/allocatable").and_then(Value::as_object_mut) else {
        return;
    };
    for name in AMPLIFIED {
        let Some(raw) = raw.get(name) else { continue };
        let shown = match ratios.0.get(name).filter(|ratio| ratio.value() > 1.0) {
            Some(ratio) => scale_milli_trunc(*raw, ratio.value()),
            None => *raw,
        };
        // An equal amount keeps its spelling.
        if allocatable.get(name).and_then(quantity) != Some(shown) {
            allocatable.insert(name.to_owned(), Value::String(shown.to_string()));
        }
    }
}

fn unreadable(what: &str, fault: &Fault) -> Denial {
    Denial { code: 500, message: format!("failed to unmarshal {what}: {fault}") }
}

fn allocatable(node: &Value) -> Option<&Map<String, Value>> {
    node.pointer("/status/allocatable")?.as_object()
}

/// The amounts that may be amplified, as written and as understood.
fn amounts(node: &Value) -> Vec<Held> {
    let held = |name: &'static str| {
        let written = allocatable(node)?.get(name)?;
        Some(Held { name, amount: quantity(written).ok_or_else(|| written.to_string()) })
    };
    AMPLIFIED.into_iter().filter_map(held).collect()
}

/// An amount in allocatable; its text where it is none.
#[derive(PartialEq)]
struct Held {
    name: &'static str,
    amount: Result<Quantity, String>,
}

fn known(held: Held) -> Option<(String, Quantity)> {
    Some((held.name.to_owned(), held.amount.ok()?))
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

fn labels(node: &Value) -> Texts {
    let Some(labels) = node.pointer("/metadata/labels").and_then(Value::as_object) else {
        return Texts::new();
    };
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.iter().filter_map(text).collect()
}

fn annotation<'n>(node: &'n Value, key: &str) -> Option<&'n str> {
    node.pointer("/metadata/annotations")?.get(key)?.as_str()
}

fn set_annotation(node: &mut Value, key: &str, text: String) {
    let Some(metadata) = node.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(key.to_owned(), Value::String(text));
    }
}

fn remove_annotation(node: &mut Value, key: &str) {
    if let Some(annotations) = node.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(key);
    }
}

#[cfg(test)]
mod tests;
