//! What plugins say, with the numbers behind it in units that people read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::amount::{readable, readable_pair};
use super::busy::{LoadLack, age};
use super::survey::{Against, Survey};
use crate::cluster::Cluster;
use crate::framework::{Code, Facts, PluginName, Reason, Status};
use crate::plugins::{
    inter_pod_affinity, load_aware, node_affinity, node_name, node_ports, node_unschedulable,
    taint_toleration,
};
use crate::time::Time;

/// One thing that a plugin says against some nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Empty when no plugin in particular says it.
    pub plugin: String,
    /// As the message has it.
    pub text: String,
    /// Nodes that are refused for this before anything else.
    pub nodes: usize,
    /// Whether taking other pods away could help.
    pub preemption_may_help: bool,
    /// The same with numbers, for people; empty when there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The numbers of the node that comes closest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closest: Option<Lack>,
    /// That node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closest_node: Option<String>,
}

/// One thing that a plugin says against one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub plugin: String,
    pub text: String,
    pub preemption_may_help: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lack: Option<Lack>,
}

/// What is missing, or in the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Lack {
    Resource {
        resource: String,
        wanted: String,
        free: String,
        allocatable: String,
        missing: String,
    },
    Taint {
        key: String,
        value: String,
        effect: String,
    },
    /// A port of the host that another pod has.
    Port {
        protocol: String,
        address: String,
        port: i32,
    },
    /// So many pods that count are in a domain that may have at most `limit` for this pod to come.
    Domain {
        key: String,
        value: String,
        count: i64,
        limit: i64,
    },
    /// The node is too busy, or would be.
    Load(Box<LoadLack>),
    /// What is known of the node's load is too old.
    OldMetric {
        /// None when nobody says when it was measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        measured_at: Option<Time>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        age_seconds: Option<u64>,
    },
    /// Another object is in the way or not there.
    Object {
        object_kind: String,
        name: String,
    },
}

impl Lack {
    pub(super) fn of(cluster: &Cluster, facts: &Facts) -> Option<Lack> {
        let table = &cluster.resources;
        Some(match facts {
            Facts::None => return None,
            Facts::Shortage { resource, wanted, used, allocatable } => {
                let free = allocatable.saturating_sub(*used);
                let (wanted_text, free_text) = readable_pair(table, resource, *wanted, free);
                Lack::Resource {
                    resource: resource.to_string(),
                    wanted: wanted_text,
                    free: free_text,
                    allocatable: readable(table, resource, *allocatable),
                    missing: readable(table, resource, wanted.saturating_sub(free)),
                }
            }
            Facts::Taint { key, value, effect } => {
                Lack::Taint { key: key.to_string(), value: value.to_string(), effect: effect.to_string() }
            }
            Facts::Port { protocol, address, port } => {
                Lack::Port { protocol: protocol.to_string(), address: address.to_string(), port: *port }
            }
            Facts::Domain { key, value, count, limit } => {
                Lack::Domain { key: key.to_string(), value: value.to_string(), count: *count, limit: *limit }
            }
            Facts::Load(facts) => Lack::Load(Box::new(LoadLack::of(cluster, facts))),
            Facts::OldMetric { measured } => {
                Lack::OldMetric { measured_at: *measured, age_seconds: age(cluster, *measured) }
            }
            Facts::Object { kind, name } => {
                Lack::Object { object_kind: (*kind).to_owned(), name: name.to_string() }
            }
        })
    }
}

/// A taint as kubectl writes it.
pub(super) fn taint_text(key: &str, value: &str, effect: &str) -> String {
    if value.is_empty() { format!("{key}:{effect}") } else { format!("{key}={value}:{effect}") }
}

/// A port as people write it.
pub(super) fn port_text(protocol: &str, address: &str, port: i32) -> String {
    match address {
        "" | "0.0.0.0" => format!("{port}/{protocol}"),
        address => format!("{address}:{port}/{protocol}"),
    }
}

/// What the numbers say, in a few words.
pub(super) fn in_words(lack: &Lack) -> String {
    match lack {
        Lack::Resource { resource, wanted, free, allocatable, .. } if resource == "pods" => {
            format!("room for {wanted} more is wanted, {free} of {allocatable} free")
        }
        Lack::Resource { resource, wanted, free, allocatable, .. } => {
            format!("wants {wanted} {resource}, {free} of {allocatable} free")
        }
        Lack::Taint { key, value, effect } => taint_text(key, value, effect),
        Lack::Port { protocol, address, port } => {
            format!("{} is taken", port_text(protocol, address, *port))
        }
        Lack::Domain { key, value, count, limit } => {
            format!("{key} {value} has {count} of them, at most {} allowed", (*limit).max(0))
        }
        Lack::Load(lack) => lack.in_words(),
        Lack::OldMetric { age_seconds: Some(age), .. } => {
            format!("what is known of its load was measured {age} s ago")
        }
        Lack::OldMetric { age_seconds: None, .. } => "nobody knows when its load was measured".to_owned(),
        Lack::Object { object_kind, name } => format!("{object_kind} {name}"),
    }
}

pub(crate) fn checks(cluster: &Cluster, against: &Against) -> Vec<Check> {
    let check = |status: &Status, reason: &Reason| Check {
        plugin: status.plugin.to_owned(),
        text: reason.text.clone().into_owned(),
        preemption_may_help: status.code == Code::Unschedulable,
        lack: Lack::of(cluster, &reason.facts),
    };
    let verdicts = against.verdicts.iter();
    verdicts.flat_map(|status| status.reasons.iter().map(move |reason| check(status, reason))).collect()
}

/// All nodes that one text is said of first.
struct Said<'a> {
    nodes: usize,
    may_be_cured: bool,
    facts: Vec<(&'a Against, &'a Facts)>,
}

/// What the message counts: on each node the first plugin that refuses it. Most nodes first.
pub(crate) fn causes(cluster: &Cluster, survey: &Survey) -> Vec<Cause> {
    let mut said: BTreeMap<(PluginName, &str), Said<'_>> = BTreeMap::new();
    if !survey.pod.is_empty() {
        return survey.pod.iter().map(|status| of_pod(cluster, status, survey.node_count())).collect();
    }
    for against in &survey.unfit {
        let Some(first) = against.verdicts.first() else { continue };
        let mut texts: Vec<&str> = Vec::new();
        for reason in &first.reasons {
            let empty = Said { nodes: 0, may_be_cured: false, facts: Vec::new() };
            let entry = said.entry((first.plugin, &reason.text)).or_insert(empty);
            entry.may_be_cured |= first.code == Code::Unschedulable;
            entry.facts.push((against, &reason.facts));
            if !texts.contains(&&*reason.text) {
                entry.nodes += 1;
                texts.push(&reason.text);
            }
        }
    }
    let mut causes: Vec<Cause> =
        said.into_iter().map(|((plugin, text), said)| of_nodes(cluster, plugin, text, &said)).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.nodes));
    causes
}

fn of_pod(cluster: &Cluster, status: &Status, nodes: usize) -> Cause {
    let closest = status.reasons.iter().find_map(|reason| Lack::of(cluster, &reason.facts));
    Cause {
        plugin: status.plugin.to_owned(),
        text: status.to_string(),
        nodes,
        preemption_may_help: status.code == Code::Unschedulable,
        detail: String::new(),
        closest,
        closest_node: None,
    }
}

fn of_nodes(cluster: &Cluster, plugin: PluginName, text: &str, said: &Said<'_>) -> Cause {
    // How far from enough; the first of those alike.
    let distance = |facts: &Facts| match facts {
        Facts::Shortage { wanted, used, allocatable, .. } => {
            wanted.saturating_sub(allocatable.saturating_sub(*used))
        }
        Facts::Domain { count, limit, .. } => count.saturating_sub(*limit),
        Facts::Load(load) => load.expected.saturating_sub(load.threshold),
        _ => 0,
    };
    let name = |against: &Against| cluster.node(against.row).name.clone();
    let closest = said.facts.iter().min_by_key(|(against, facts)| (distance(facts), name(against)));
    let detail = match closest {
        Some((against, Facts::Shortage { resource, wanted, .. })) => {
            shortage(cluster, resource, *wanted, &name(against), said)
        }
        Some((_, Facts::Taint { .. })) => taints(said),
        Some((against, facts @ Facts::Load(_))) => {
            let lack = Lack::of(cluster, facts);
            lack.map(|lack| format!("{}: {}", name(against), in_words(&lack))).unwrap_or_default()
        }
        Some((_, facts)) => Lack::of(cluster, facts).as_ref().map(in_words).unwrap_or_default(),
        None => String::new(),
    };
    Cause {
        plugin: plugin.to_owned(),
        text: text.to_owned(),
        nodes: said.nodes,
        preemption_may_help: said.may_be_cured,
        detail,
        closest: closest.and_then(|(_, facts)| Lack::of(cluster, facts)),
        closest_node: closest.map(|(against, _)| name(against).into()),
    }
}

/// `wants 4, at most 2.5 free on n3`; and that no node is large enough, when none is.
fn shortage(cluster: &Cluster, resource: &str, wanted: i64, node: &str, said: &Said<'_>) -> String {
    let amounts = said.facts.iter().filter_map(|(_, facts)| match facts {
        Facts::Shortage { used, allocatable, .. } => Some((allocatable.saturating_sub(*used), *allocatable)),
        _ => None,
    });
    let (free, largest) = amounts.fold((i64::MIN, 0), |(free, size), (f, s)| (free.max(f), size.max(s)));
    let (wanted_text, free_text) = readable_pair(&cluster.resources, resource, wanted, free);
    let size = match wanted > largest {
        true => format!("; the largest has {}", readable(&cluster.resources, resource, largest)),
        false => String::new(),
    };
    match resource {
        "pods" => format!("full: {} pods at most", readable(&cluster.resources, resource, largest)),
        _ => format!("wants {wanted_text}, at most {free_text} free on {node}{size}"),
    }
}

/// Taints named at most; the rest is counted.
const TAINTS_NAMED: usize = 3;

/// The taints by how many nodes have them.
fn taints(said: &Said<'_>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (_, facts) in &said.facts {
        if let Facts::Taint { key, value, effect } = facts {
            *counts.entry(taint_text(key, value, effect)).or_default() += 1;
        }
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = counts.len().saturating_sub(TAINTS_NAMED);
    let named = counts.iter().take(TAINTS_NAMED);
    let mut parts: Vec<String> = match counts.len() {
        1 => named.map(|(taint, _)| taint.clone()).collect(),
        _ => named.map(|(taint, count)| format!("{taint} on {count}")).collect(),
    };
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
}

/// Causes named in one line; the rest is in the list.
const CAUSES_NAMED: usize = 3;

/// Why no node takes the pod, in one line.
pub(crate) fn summary(nodes: usize, causes: &[Cause]) -> String {
    if nodes == 0 {
        return "there are no nodes".to_owned();
    }
    let parts: Vec<String> = causes.iter().take(CAUSES_NAMED).map(|cause| plainly(nodes, cause)).collect();
    let more = causes.len().saturating_sub(CAUSES_NAMED);
    let more = if more > 0 { format!("; {more} more reasons") } else { String::new() };
    format!("{}{more}", parts.join("; "))
}

fn plainly(nodes: usize, cause: &Cause) -> String {
    let who = match (cause.nodes, nodes) {
        (1, 1) => "the only node".to_owned(),
        (2, 2) => "both nodes".to_owned(),
        (some, all) if some == all => format!("all {all} nodes"),
        (some, all) => format!("{some} of {all} nodes"),
    };
    let detail = if cause.detail.is_empty() { String::new() } else { format!(" ({})", cause.detail) };
    let verb = |one: &str, many: &str| if cause.nodes == 1 { one.to_owned() } else { many.to_owned() };
    let says = match (cause.plugin.as_str(), &cause.closest) {
        (_, Some(Lack::Resource { resource, .. })) if resource == "pods" => {
            verb("has", "have") + " no room for another pod"
        }
        (_, Some(Lack::Resource { resource, .. })) => format!("{} {resource}", verb("lacks", "lack")),
        (taint_toleration::NAME, _) => verb("has a taint", "have taints") + " that it does not tolerate",
        (node_unschedulable::NAME, _) => verb("is", "are") + " cordoned",
        (node_affinity::NAME, _) => verb("does", "do") + " not match its node selector or affinity",
        (node_name::NAME, _) => verb("is", "are") + " not the one it names",
        (node_ports::NAME, _) => verb("has", "have") + " a port of the host taken that it wants",
        (load_aware::NAME, Some(Lack::Load(_))) => verb("is", "are") + " too busy",
        (load_aware::NAME, Some(Lack::OldMetric { .. })) => {
            verb("has", "have") + " not said lately how busy" + &verb(" it is", " they are")
        }
        (inter_pod_affinity::NAME, _) if cause.text.contains("existing pods") => {
            verb("has", "have") + " pods near that want it away"
        }
        (inter_pod_affinity::NAME, _) if cause.text.contains("anti-affinity") => {
            verb("has", "have") + " pods near that it must keep away from"
        }
        (inter_pod_affinity::NAME, _) => verb("has", "have") + " none of the pods near that it must be with",
        _ => return format!("{who}: {}{detail}", cause.text),
    };
    format!("{who} {says}{detail}")
}
