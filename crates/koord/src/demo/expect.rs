//! Whether the world is as a step wants it, and if not, what is still missing. Pure.
//!
//! A verdict is always a sentence about what was found, so that progress, success and failure are told alike.

use std::collections::BTreeMap;

use koord_api::quantity::Quantity;
use serde_json::Value;

use super::scenario::{Count, Expectation, Labelled, ObjectRef, PodState, Pods, Which};
use super::world::{Node, Pod, World};

/// What was found, and whether it is what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) is_met: bool,
    pub(super) found: String,
}

/// Looks at one expectation.
pub(super) fn judge(expectation: &Expectation, world: &World) -> Verdict {
    match expectation {
        Expectation::Ready { object, count } => ready(object, *count, world),
        Expectation::Pods { pods, state, count, matches } => {
            pods_in_state(pods, *state, *count, matches.as_ref(), world)
        }
        Expectation::Spread { pods, over, max_skew, domains_min } => {
            spread(pods, over, *max_skew, *domains_min, world)
        }
        Expectation::OnNodes { pods, nodes } => on_nodes(pods, nodes, world),
        Expectation::Unschedulable { pods, count, message, pattern } => {
            let says = |text: &str| {
                message.as_ref().is_none_or(|part| text.contains(part.as_str()))
                    && pattern.as_ref().is_none_or(|pattern| pattern.is_match(text))
            };
            unschedulable(pods, *count, &says, world)
        }
        Expectation::Preempted { pods, count, by } => preempted(pods, *count, by.as_ref(), world),
        Expectation::Gone { pods } => gone(pods, world),
        Expectation::Allocatable { resource, nodes, least, most } => {
            allocatable(resource, nodes.as_ref(), *least, *most, world)
        }
        Expectation::Usage { pods, resource, least, most } => usage(pods, resource, *least, *most, world),
        Expectation::Object { object, matches } => object_matches(object, matches, world),
    }
}

/// The objects that an expectation looks at besides pods and nodes.
pub(super) fn objects(expectation: &Expectation) -> Option<&ObjectRef> {
    match expectation {
        Expectation::Ready { object, .. } | Expectation::Object { object, .. } => Some(object),
        _ => None,
    }
}

/// Whether the labels of nodes matter.
pub(super) fn needs_nodes(expectation: &Expectation) -> bool {
    matches!(expectation, Expectation::Spread { .. } | Expectation::OnNodes { .. })
}

/// Whether amounts of nodes matter, which change all the time.
pub(super) fn needs_amounts(expectation: &Expectation) -> bool {
    matches!(expectation, Expectation::Allocatable { .. })
}

/// Whether it matters what pods use.
pub(super) fn needs_usage(expectation: &Expectation) -> bool {
    matches!(expectation, Expectation::Usage { .. })
}

/// Whether events matter.
pub(super) fn needs_events(expectation: &Expectation) -> bool {
    matches!(expectation, Expectation::Preempted { .. })
}

/// The words for a group of pods.
pub(super) fn name(pods: &Pods) -> String {
    match &pods.which {
        Which::Named(name) => format!("pod {name}"),
        Which::Selected(Labelled { text, .. }) => format!("pods {text}"),
    }
}

fn verdict(is_met: bool, found: String) -> Verdict {
    Verdict { is_met, found }
}

fn object_of<'w>(object: &ObjectRef, world: &'w World) -> Option<&'w Value> {
    world.objects.get(object).and_then(Option::as_ref)
}

/// The pods meant that are not on their way out.
fn alive<'w>(pods: &Pods, world: &'w World) -> Vec<&'w Pod> {
    world.pods.iter().filter(|pod| !pod.is_terminating && pod.is_one_of(pods)).collect()
}

impl Count {
    /// Whether `found` out of `total` is enough.
    fn is_met(self, found: usize, total: usize) -> bool {
        match self {
            Count::All => total > 0 && found == total,
            Count::Exactly(wanted) => found == wanted,
            Count::AtLeast(wanted) => found >= wanted,
        }
    }

    /// `12 of 30`.
    fn tell(self, found: usize, total: usize) -> String {
        match self {
            Count::All => format!("{found} of {total}"),
            Count::Exactly(wanted) => format!("{found} of {wanted}"),
            Count::AtLeast(wanted) => format!("{found} of at least {wanted}"),
        }
    }
}

fn ready(object: &ObjectRef, count: Option<u64>, world: &World) -> Verdict {
    let ObjectRef { kind, name, .. } = object;
    let Some(found) = object_of(object, world) else {
        return verdict(false, format!("{kind} {name} does not exist yet"));
    };
    let (spec, status) = (&found["spec"], &found["status"]);
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    // A status that speaks of an older spec says nothing about this one.
    let is_current = number(&status["observedGeneration"]) >= number(&found["metadata"]["generation"]);
    let (wanted, done, is_settled) = match kind.as_str() {
        "Job" => {
            let wanted = spec["completions"].as_u64().unwrap_or(1);
            return verdict_of_job(object, count.unwrap_or(wanted), status);
        }
        "DaemonSet" => {
            let wanted = count.unwrap_or_else(|| number(&status["desiredNumberScheduled"]));
            let updated = number(&status["updatedNumberScheduled"]);
            (wanted, number(&status["numberReady"]), is_current && updated == wanted)
        }
        _ => {
            let wanted = count.unwrap_or_else(|| spec["replicas"].as_u64().unwrap_or(1));
            // ReplicaSets have no such field: their pods are never of another template.
            let updated = status.get("updatedReplicas").map_or(0, number);
            let is_updated = kind == "ReplicaSet" || kind == "ReplicationController" || updated == wanted;
            // While old pods are still there, a rollout is not over.
            let is_settled = is_current && is_updated && number(&status["replicas"]) == wanted;
            (wanted, number(&status["readyReplicas"]), is_settled)
        }
    };
    let rest = if done >= wanted && !is_settled { ", still rolling out" } else { "" };
    verdict(done == wanted && is_settled, format!("{kind} {name}: {done} of {wanted} pods ready{rest}"))
}

fn verdict_of_job(object: &ObjectRef, wanted: u64, status: &Value) -> Verdict {
    let done = status["succeeded"].as_u64().unwrap_or(0);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let is_complete = conditions.into_iter().any(|it| it["type"] == "Complete" && it["status"] == "True");
    verdict(is_complete && done >= wanted, format!("Job {}: {done} of {wanted} pods succeeded", object.name))
}

fn pods_in_state(
    pods: &Pods,
    state: PodState,
    count: Count,
    matches: Option<&Value>,
    world: &World,
) -> Verdict {
    let alive = alive(pods, world);
    let is_in_state = |pod: &&&Pod| match state {
        PodState::Scheduled => pod.node.is_some(),
        PodState::Pending => pod.phase == "Pending",
        PodState::Running => pod.phase == "Running",
        PodState::Ready => pod.phase == "Running" && pod.is_ready,
        PodState::Succeeded => pod.phase == "Succeeded",
        PodState::Failed => pod.phase == "Failed",
    };
    let differs = |pod: &Pod| matches.and_then(|wanted| difference(wanted, &pod.object, ""));
    let in_state: Vec<_> = alive.iter().filter(is_in_state).collect();
    let found = in_state.iter().filter(|pod| differs(pod).is_none()).count();
    let word = match state {
        PodState::Scheduled => "scheduled",
        PodState::Pending => "pending",
        PodState::Running => "running",
        PodState::Ready => "ready",
        PodState::Succeeded => "succeeded",
        PodState::Failed => "failed",
    };
    let mut told = format!("{}: {} {word}", name(pods), count.tell(found, alive.len()));
    if matches.is_some() {
        told.push_str(" and as wanted");
    }
    if let Some((pod, difference)) = in_state.iter().find_map(|pod| Some((pod, differs(pod)?))) {
        told.push_str(&format!("; of {} {difference}", pod.name));
    }
    verdict(count.is_met(found, alive.len()), told)
}

fn spread(pods: &Pods, over: &str, max_skew: usize, domains_min: usize, world: &World) -> Verdict {
    let domain_of = |node: &str| {
        let node = world.nodes.iter().find(|known| known.name == node);
        node.and_then(|node| node.labels.get(over)).map(String::as_str)
    };
    // Nodes that take no pods do not make a domain that pods are missing from.
    let mut domains: BTreeMap<&str, usize> = BTreeMap::new();
    for node in world.nodes.iter().filter(|node| node.takes_pods()) {
        if let Some(domain) = node.labels.get(over) {
            domains.entry(domain).or_default();
        }
    }
    let alive = alive(pods, world);
    let mut elsewhere = 0;
    for pod in &alive {
        match pod.node.as_deref().and_then(domain_of) {
            Some(domain) => *domains.entry(domain).or_default() += 1,
            None => elsewhere += 1,
        }
    }
    let most = domains.values().max().copied().unwrap_or(0);
    let least = domains.values().min().copied().unwrap_or(0);
    let mut told = format!("{} over {over}: {}", name(pods), tell_domains(&domains, least, most));
    if elsewhere > 0 {
        told.push_str(&format!(", {elsewhere} in none"));
    }
    let is_met = !alive.is_empty()
        && elsewhere == 0
        && domains.len() >= domains_min.max(1)
        && most - least <= max_skew;
    verdict(is_met, told)
}

/// Each domain by name while that fits a line.
fn tell_domains(domains: &BTreeMap<&str, usize>, least: usize, most: usize) -> String {
    const NAMED_MAX: usize = 6;
    if domains.is_empty() {
        return "no node has this label".to_owned();
    }
    if domains.len() > NAMED_MAX && least == most {
        return format!("{most} in each of {} domains", domains.len());
    }
    if domains.len() > NAMED_MAX {
        return format!("{least} to {most} in each of {} domains", domains.len());
    }
    let parts: Vec<String> = domains.iter().map(|(domain, count)| format!("{domain} {count}")).collect();
    parts.join(", ")
}

fn on_nodes(pods: &Pods, wanted: &Labelled, world: &World) -> Verdict {
    let alive = alive(pods, world);
    let is_right = |pod: &&&Pod| {
        let node = world.nodes.iter().find(|node| Some(&node.name) == pod.node.as_ref());
        node.is_some_and(|node| wanted.selector.matches(&node.labels))
    };
    let found = alive.iter().filter(is_right).count();
    let told = format!("{}: {found} of {} on nodes {}", name(pods), alive.len(), wanted.text);
    verdict(Count::All.is_met(found, alive.len()), told)
}

fn unschedulable(pods: &Pods, count: Count, says: &dyn Fn(&str) -> bool, world: &World) -> Verdict {
    let alive = alive(pods, world);
    let refused = |pod: &&&Pod| {
        let said = pod.unscheduled.as_ref().filter(|_| pod.is_waiting());
        said.is_some_and(|said| said.reason == "Unschedulable" && says(&said.message))
    };
    let found = alive.iter().filter(refused).count();
    let is_met = count.is_met(found, alive.len());
    let mut told = format!("{}: {} fit on no node", name(pods), count.tell(found, alive.len()));
    let other = alive.iter().filter_map(|pod| pod.unscheduled.as_ref()).find(|said| !says(&said.message));
    if let Some(said) = other.filter(|_| !is_met) {
        told.push_str(&format!("; one is told {:?}", said.message));
    }
    verdict(is_met, told)
}

fn preempted(pods: &Pods, count: Count, by: Option<&Pods>, world: &World) -> Verdict {
    let takers: Option<Vec<&str>> = by
        .map(|by| world.seen.values().filter(|pod| pod.is_one_of(by)).map(|pod| pod.uid.as_str()).collect());
    let mut victims: Vec<&str> = world
        .preempted
        .iter()
        .filter(|event| world.seen.get(&event.pod_uid).is_some_and(|pod| pod.is_one_of(pods)))
        .filter(|event| takers.as_ref().is_none_or(|uids| uids.iter().any(|uid| event.note.contains(uid))))
        .map(|event| event.pod_uid.as_str())
        .collect();
    victims.sort_unstable();
    victims.dedup();
    let found = victims.len();
    let for_whom = by.map(|by| format!(" for {}", name(by))).unwrap_or_default();
    let told = format!("{}: {} made room{for_whom}", name(pods), count.tell(found, found));
    verdict(count.is_met(found, found), told)
}

fn gone(pods: &Pods, world: &World) -> Verdict {
    let left = world.pods.iter().filter(|pod| pod.is_one_of(pods)).count();
    let told = if left == 0 { "gone".to_owned() } else { format!("{left} still there") };
    verdict(left == 0, format!("{}: {told}", name(pods)))
}

fn allocatable(
    resource: &str,
    nodes: Option<&Labelled>,
    least: Option<Quantity>,
    most: Option<Quantity>,
    world: &World,
) -> Verdict {
    let is_meant = |node: &&Node| match nodes {
        Some(nodes) => node.is_ready && nodes.selector.matches(&node.labels),
        None => node.takes_pods(),
    };
    let meant: Vec<&Node> = world.nodes.iter().filter(is_meant).collect();
    let found: Quantity = meant.iter().filter_map(|node| node.allocatable.get(resource)).copied().sum();
    let is_met = least.is_none_or(|least| found >= least) && most.is_none_or(|most| found <= most);
    let told = format!("{resource} of {} nodes: {found}{}", meant.len(), bounds(least, most));
    verdict(is_met && !meant.is_empty(), told)
}

/// `, at least 2 wanted, at most 3 wanted`
fn bounds(least: Option<Quantity>, most: Option<Quantity>) -> String {
    let bounds = [("at least", least), ("at most", most)];
    bounds.into_iter().filter_map(|(word, bound)| Some(format!(", {word} {} wanted", bound?))).collect()
}

fn usage(
    pods: &Pods,
    resource: &str,
    least: Option<Quantity>,
    most: Option<Quantity>,
    world: &World,
) -> Verdict {
    let alive = alive(pods, world);
    let of = |pod: &&Pod| world.used.get(&pod.key())?.get(resource).copied();
    let found: Vec<Quantity> = alive.iter().filter_map(of).collect();
    if alive.is_empty() || found.len() < alive.len() {
        let told = format!("{}: {} of {} measured so far", name(pods), found.len(), alive.len());
        return verdict(false, told);
    }
    let sum: Quantity = found.into_iter().sum();
    let is_met = least.is_none_or(|least| sum >= least) && most.is_none_or(|most| sum <= most);
    verdict(is_met, format!("{}: {sum} {resource} used{}", name(pods), bounds(least, most)))
}

fn object_matches(object: &ObjectRef, wanted: &Value, world: &World) -> Verdict {
    let ObjectRef { kind, name, .. } = object;
    let Some(found) = object_of(object, world) else {
        return verdict(false, format!("{kind} {name} does not exist yet"));
    };
    match difference(wanted, found, "") {
        None => verdict(true, format!("{kind} {name} is as wanted")),
        Some(difference) => verdict(false, format!("{kind} {name}: {difference}")),
    }
}

/// The first field that is not as wanted. Maps may have more fields, lists more items.
fn difference(wanted: &Value, found: &Value, path: &str) -> Option<String> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, wanted)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            difference(wanted, found.get(key).unwrap_or(&Value::Null), &path)
        }),
        (Value::Array(wanted), Value::Array(found)) => wanted.iter().find_map(|wanted| {
            let is_there = found.iter().any(|item| difference(wanted, item, "").is_none());
            (!is_there).then(|| format!("{path} has no item like {wanted}"))
        }),
        _ if wanted == found => None,
        (_, Value::Null) => Some(format!("{path} is not set, {wanted} wanted")),
        _ => Some(format!("{path} is {found}, {wanted} wanted")),
    }
}

#[cfg(test)]
mod tests;
