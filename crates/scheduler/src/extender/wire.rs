//! Bodies that extenders are sent and that they answer with.
//!
//! kube-scheduler's types carry no names for JSON: it sends the names of the fields as they are and reads them in any
//! case, so extenders in the field answer in any.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use koord_engine::engine::command::Binding;
use koord_engine::extender::{Candidate, Filtered, Kept};
use serde_json::{Map, Value, json};

/// Filter and prioritize, for one that knows the nodes.
pub(super) fn about_names(pod: &str, nodes: &[Box<str>]) -> String {
    format!(r#"{{"Pod":{pod},"Nodes":null,"NodeNames":{}}}"#, json!(nodes))
}

/// Filter and prioritize, for one that does not. The objects are JSON already.
pub(super) fn about_nodes(pod: &str, nodes: &[Arc<str>]) -> String {
    let items = nodes.join(",");
    format!(r#"{{"Pod":{pod},"Nodes":{{"metadata":{{}},"items":[{items}]}},"NodeNames":null}}"#)
}

/// Preempt, for one that knows the pods.
pub(super) fn about_victim_uids(pod: &str, candidates: &[Candidate]) -> String {
    let victims = |candidate: &Candidate| {
        let pods: Vec<Value> = candidate.victims.iter().map(|victim| json!({"UID": victim.uid})).collect();
        let victims = json!({"Pods": pods, "NumPDBViolations": candidate.violations});
        (candidate.node.to_string(), victims)
    };
    let victims: Value = candidates.iter().map(victims).collect::<Map<String, Value>>().into();
    format!(r#"{{"Pod":{pod},"NodeNameToVictims":null,"NodeNameToMetaVictims":{victims}}}"#)
}

/// Preempt, for one that does not; `object` gives the JSON of a victim by its UID, if it is still there.
pub(super) fn about_victims(
    pod: &str,
    candidates: &[Candidate],
    object: impl Fn(&str) -> Option<Arc<str>>,
) -> String {
    let victims = |candidate: &Candidate| {
        let pods: Vec<Arc<str>> = candidate.victims.iter().filter_map(|victim| object(&victim.uid)).collect();
        let (node, pods, violations) = (json!(candidate.node), pods.join(","), candidate.violations);
        format!(r#"{node}:{{"Pods":[{pods}],"NumPDBViolations":{violations}}}"#)
    };
    let victims: Vec<String> = candidates.iter().map(victims).collect();
    let victims = victims.join(",");
    format!(r#"{{"Pod":{pod},"NodeNameToVictims":{{{victims}}},"NodeNameToMetaVictims":null}}"#)
}

pub(super) fn binding(binding: &Binding) -> String {
    let pod = &binding.pod;
    json!({
        "PodName": pod.key.name,
        "PodNamespace": &*pod.key.namespace,
        "PodUID": pod.uid,
        "Node": binding.node,
    })
    .to_string()
}

/// A field that says something, under its name in any case; the exact one counts first.
fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let fields = value.as_object()?;
    let in_any_case =
        || fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    fields.get(name).or_else(in_any_case).filter(|value| !value.is_null())
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    field(value, name).and_then(Value::as_str)
}

fn odd(what: &str) -> String {
    format!("an extender's answer cannot be read: {what}")
}

/// What the extender complains about itself.
fn complaint(answer: &Value) -> Result<(), String> {
    match text(answer, "Error") {
        Some(error) if !error.is_empty() => Err(error.to_owned()),
        _ => Ok(()),
    }
}

pub(super) fn bound(answer: &Value) -> Result<(), String> {
    complaint(answer)
}

// Differs: upstream takes over nodes that a filter answers with though it was not asked about them, unless only names
// are sent; here they are an error either way.
pub(super) fn filtered(
    answer: &Value,
    is_node_cache_capable: bool,
    asked: &[Box<str>],
    url: &str,
) -> Result<Filtered, String> {
    complaint(answer)?;
    let names = field(answer, "NodeNames").filter(|_| is_node_cache_capable);
    let passed: Vec<Box<str>> = match (names, field(answer, "Nodes")) {
        (Some(names), _) => strings(names).ok_or_else(|| odd("NodeNames"))?,
        (None, Some(nodes)) => {
            let items =
                field(nodes, "items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let name = |item: &Value| {
                field(item, "metadata").and_then(|meta| text(meta, "name")).map(Box::<str>::from)
            };
            items.iter().map(name).collect::<Option<Vec<_>>>().ok_or_else(|| odd("Nodes"))?
        }
        (None, None) => Vec::new(),
    };
    let known: HashSet<&str> = asked.iter().map(|name| &**name).collect();
    if let Some(stranger) = passed.iter().find(|name| !known.contains(&***name)) {
        return Err(format!(
            "extender {url:?} claims a filtered node {stranger:?} which is not found in the input node list"
        ));
    }
    Ok(Filtered {
        passed,
        failed: reasons(answer, "FailedNodes")?,
        unresolvable: reasons(answer, "FailedAndUnresolvableNodes")?,
    })
}

fn strings(value: &Value) -> Option<Vec<Box<str>>> {
    value.as_array()?.iter().map(|item| item.as_str().map(Box::<str>::from)).collect()
}

fn reasons(answer: &Value, name: &str) -> Result<BTreeMap<Box<str>, String>, String> {
    let Some(map) = field(answer, name) else { return Ok(BTreeMap::new()) };
    let map = map.as_object().ok_or_else(|| odd(name))?;
    let reason =
        |(node, why): (&String, &Value)| Some((Box::<str>::from(node.as_str()), why.as_str()?.to_owned()));
    map.iter().map(reason).collect::<Option<_>>().ok_or_else(|| odd(name))
}

pub(super) fn scores(answer: &Value) -> Result<Vec<(Box<str>, i64)>, String> {
    if answer.is_null() {
        return Ok(Vec::new());
    }
    let score = |item: &Value| {
        let score = field(item, "Score").map_or(Some(0), Value::as_i64)?;
        Some((Box::<str>::from(text(item, "Host").unwrap_or_default()), score))
    };
    let items = answer.as_array().ok_or_else(|| odd("no list of scores"))?;
    items.iter().map(score).collect::<Option<_>>().ok_or_else(|| odd("a score"))
}

/// A candidate as one would name it that has nothing against it.
pub(super) fn as_offered(candidate: &Candidate) -> Kept {
    Kept {
        node: candidate.node.clone(),
        victims: candidate.victims.iter().map(|victim| victim.uid.clone()).collect(),
        violations: candidate.violations,
    }
}

/// The nodes that are left: those that were offered, in that order, then others by name.
pub(super) fn kept(answer: &Value, candidates: &[Candidate]) -> Result<Vec<Kept>, String> {
    let Some(nodes) = field(answer, "NodeNameToMetaVictims") else { return Ok(Vec::new()) };
    let nodes = nodes.as_object().ok_or_else(|| odd("NodeNameToMetaVictims"))?;
    let mut kept =
        nodes.iter().map(|(node, victims)| kept_on(node, victims)).collect::<Result<Vec<_>, _>>()?;
    let place = |node: &str| candidates.iter().position(|candidate| *candidate.node == *node);
    kept.sort_by_cached_key(|kept| (place(&kept.node).unwrap_or(usize::MAX), kept.node.clone()));
    Ok(kept)
}

fn kept_on(node: &str, victims: &Value) -> Result<Kept, String> {
    let pods = field(victims, "Pods").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let uid = |pod: &Value| text(pod, "UID").map(Box::<str>::from);
    let violations = field(victims, "NumPDBViolations").and_then(Value::as_u64).unwrap_or_default();
    Ok(Kept {
        node: node.into(),
        victims: pods.iter().map(uid).collect::<Option<_>>().ok_or_else(|| odd("Pods"))?,
        violations: usize::try_from(violations).unwrap_or(usize::MAX),
    })
}
