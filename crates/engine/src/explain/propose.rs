//! Which single changes might make a pod fit. Each is tried on the plugins before anybody hears of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use koord_api::selector::Relaxed;

use super::amount;
use super::cause::port_text;
use super::change::{Change, Fix};
use super::holder::Holder;
use super::new_node;
use super::survey::{Against, Judges, Survey, Trial};
use crate::cluster::{Cluster, Row};
use crate::framework::Facts;
use crate::plugins::{
    inter_pod_affinity, node_affinity, node_ports, node_unschedulable, pod_topology_spread, taint_toleration,
};
use crate::pod::term::all_of;
use crate::pod::{Class, HostPort, Pod, PodTerm, Toleration};

/// Changes of one kind that are tried; pods may have a thousand terms.
const TRIED_MAX: usize = 16;
/// Nodes on which single pods are looked for whose leaving would help.
const ROWS_TO_CLEAR: usize = 16;
/// Pods looked at on each of them.
const PODS_TO_CLEAR: usize = 32;
/// Pods from this priority on belong to the system.
const SYSTEM_PRIORITY: i32 = 2_000_000_000;
/// The taint that cordoned nodes have, or count as having.
const CORDONED: (&str, &str) = ("node.kubernetes.io/unschedulable", "NoSchedule");

/// A change that has yet to prove itself.
pub(crate) struct Proposal {
    pub(super) change: Change,
    pub(super) cost: u32,
    /// The pod as it would be.
    pub(crate) pod: Arc<Pod>,
    pub(super) test: Test,
}

/// What has to hold.
pub(super) enum Test {
    /// One of these takes the pod, once `gone` has left it.
    Rows { rows: Vec<Row>, gone: Option<Arc<Pod>> },
    /// An empty node like this one takes it; none when any node does.
    NewNode(Option<Row>),
}

impl Proposal {
    fn rows(change: Change, cost: u32, pod: Arc<Pod>, rows: Vec<Row>) -> Proposal {
        Proposal { change, cost, pod, test: Test::Rows { rows, gone: None } }
    }

    /// What can be claimed of it.
    pub(crate) fn verify(&self, judges: Judges<'_>) -> Option<Fix> {
        let trial = Trial::new(judges, &self.pod);
        let (nodes, example) = match &self.test {
            Test::Rows { rows, gone } => {
                let fitting: Vec<Row> =
                    rows.iter().copied().filter(|row| trial.fits(*row, gone.as_ref())).collect();
                (fitting.len(), fitting.first().map(|row| judges.cluster.node(*row).name.to_string())?)
            }
            Test::NewNode(template) => {
                let fits = template.is_none_or(|row| new_node::fits(judges, &trial, row));
                (fits.then_some(1)?, String::new())
            }
        };
        let text = self.change.text();
        Some(Fix { change: self.change.clone(), text, cost: self.cost, nodes, example })
    }
}

/// Everything worth trying.
pub(crate) fn propose(judges: Judges<'_>, survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let mut all = lower_requests(judges.cluster, survey, pod);
    all.extend(taints(judges.cluster, survey, pod));
    all.extend(node_conditions(survey, pod));
    all.extend(spread(judges.cluster, survey, pod));
    all.extend(pod_terms(judges.cluster, survey, pod));
    all.extend(ports(survey, pod));
    all.extend(leaving(judges, survey, pod));
    all.extend(new_node::propose(judges, survey, pod));
    all
}

/// The pod with something else in its class.
pub(super) fn variant(pod: &Arc<Pod>, change: impl FnOnce(&mut Class)) -> Arc<Pod> {
    let mut class = (*pod.class).clone();
    change(&mut class);
    Arc::new(Pod { class: Arc::new(class), ..(**pod).clone() })
}

fn rows_of(all: &[&Against]) -> Vec<Row> {
    all.iter().map(|against| against.row).collect()
}

/// Asking for less of one resource: as much as some node has that lacks nothing else.
fn lower_requests(cluster: &Cluster, survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let table = &cluster.resources;
    let mut found = Vec::new();
    if !survey.pod.is_empty() {
        return found;
    }
    for (id, wanted) in pod.class.requests.amounts.iter().filter(|(_, wanted)| *wanted > 0) {
        let name = table.name(id);
        let free_where_alone = |against: &Against| -> Option<(Row, i64)> {
            let reasons = against.verdicts.iter().map(|status| status.reasons.len()).sum::<usize>();
            let shortages = against.shortages();
            let is_alone =
                reasons == shortages.len() && shortages.iter().all(|(lacking, _)| *lacking == name);
            let missing = shortages.iter().map(|(_, missing)| *missing).max().filter(|_| is_alone)?;
            Some((against.row, wanted.saturating_sub(missing)))
        };
        let rows: Vec<(Row, i64)> = survey.unfit.iter().filter_map(free_where_alone).collect();
        let most = rows.iter().map(|(_, free)| *free).max().unwrap_or(0);
        let to = amount::round_down(table, id, most);
        if to <= 0 {
            continue;
        }
        let less = variant(pod, |class| {
            class.requests.amounts.set(id, to);
            cluster.estimate_again(class);
        });
        let change = Change::LowerRequest {
            resource: name.to_owned(),
            from: amount::exact(table, id, wanted),
            to: amount::exact(table, id, to),
        };
        let given_up = i128::from(wanted - to) * 60 / i128::from(wanted);
        let cost = 10 + u32::try_from(given_up).unwrap_or(60);
        let rows = rows.into_iter().filter(|(_, free)| *free >= to).map(|(row, _)| row).collect();
        found.push(Proposal::rows(change, cost, less, rows));
    }
    found
}

fn is_hard(effect: &str) -> bool {
    effect == "NoSchedule" || effect == "NoExecute"
}

type TaintKey = (String, String, String);

/// Tolerating a taint, or uncordoning a node.
fn taints(cluster: &Cluster, survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let plugins = [taint_toleration::NAME, node_unschedulable::NAME, pod_topology_spread::NAME];
    let mut by_taint: BTreeMap<TaintKey, Vec<Row>> = BTreeMap::new();
    for against in survey.only_against(&plugins) {
        let node = cluster.node(against.row);
        let hard = node.taints.iter().filter(|taint| is_hard(&taint.effect));
        let mut keys: Vec<TaintKey> = hard
            .filter(|taint| !pod.class.tolerates(taint, |_| true))
            .map(|taint| (taint.key.clone(), taint.value.clone().unwrap_or_default(), taint.effect.clone()))
            .collect();
        let is_refused_as_cordoned =
            against.verdicts.iter().any(|status| status.plugin == node_unschedulable::NAME);
        if is_refused_as_cordoned {
            keys.push((CORDONED.0.to_owned(), String::new(), CORDONED.1.to_owned()));
        }
        keys.sort();
        keys.dedup();
        if let [only] = keys.as_slice() {
            by_taint.entry(only.clone()).or_default().push(against.row);
        }
    }
    let mut by_taint: Vec<(TaintKey, Vec<Row>)> = by_taint.into_iter().collect();
    by_taint.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    by_taint.into_iter().take(TRIED_MAX).filter_map(|(taint, rows)| lift(cluster, pod, taint, rows)).collect()
}

fn lift(cluster: &Cluster, pod: &Arc<Pod>, taint: TaintKey, rows: Vec<Row>) -> Option<Proposal> {
    let (key, value, effect) = taint;
    let tolerating = variant(pod, |class| {
        let mut all = class.tolerations.to_vec();
        all.push(Toleration {
            key: key.as_str().into(),
            operator: "Equal".into(),
            value: value.as_str().into(),
            effect: effect.as_str().into(),
        });
        class.tolerations = all.into();
    });
    if (key.as_str(), effect.as_str()) != CORDONED {
        // Taints of Kubernetes itself say that something is wrong with the node.
        let cost = if key.starts_with("node.kubernetes.io/") { 80 } else { 20 };
        return Some(Proposal::rows(Change::Tolerate { key, value, effect }, cost, tolerating, rows));
    }
    // Tolerating counts all cordoned nodes in, uncordoning only one: not the same where taints are honoured.
    if pod.class.spread.iter().any(|constraint| constraint.is_hard && constraint.honors_taints) {
        return None;
    }
    let first = rows.into_iter().min_by_key(|row| &cluster.node(*row).name)?;
    let change = Change::Uncordon { node: cluster.node(first).name.to_string() };
    Some(Proposal::rows(change, 10, tolerating, vec![first]))
}

/// One condition less on the node.
fn node_conditions(survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let Some(affinity) = &pod.class.node_affinity else { return Vec::new() };
    let rows = rows_of(&survey.only_against(&[node_affinity::NAME, pod_topology_spread::NAME]));
    if rows.is_empty() {
        return Vec::new();
    }
    let propose = |(gone, left): (Relaxed, koord_api::selector::RequiredNodeAffinity)| {
        let relaxed = variant(pod, |class| {
            class.node_affinity = (!left.is_everything()).then(|| Arc::new(left));
            // The filter looks at names too; this only narrows the search.
            class.pinned = None;
        });
        let (change, cost) = match gone {
            Relaxed::NodeSelector(labels) => {
                let cost = if labels.contains(',') { 50 } else { 40 };
                (Change::DropNodeSelector { labels }, cost)
            }
            Relaxed::Affinity(condition) => (Change::DropNodeAffinity { condition }, 45),
            Relaxed::WholeAffinity => (Change::DropNodeAffinity { condition: String::new() }, 55),
        };
        Proposal::rows(change, cost, relaxed, rows.clone())
    };
    let relaxations = affinity.relaxations();
    // The last ones drop all of a kind and are worth trying however many there are.
    let skipped = relaxations.len().saturating_sub(TRIED_MAX);
    relaxations.into_iter().skip(skipped).map(propose).collect()
}

/// More skew, or a constraint that may be broken.
fn spread(cluster: &Cluster, survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let near = survey.only_against(&[pod_topology_spread::NAME]);
    let rows = rows_of(&near);
    if rows.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let hard = pod.class.spread.iter().enumerate().filter(|(_, constraint)| constraint.is_hard);
    for (at, constraint) in hard.take(TRIED_MAX) {
        let key = cluster.names.text(constraint.topology_key);
        let excess = near.iter().flat_map(|against| &against.verdicts).flat_map(|status| &status.reasons);
        let excess = excess.filter_map(|reason| match &reason.facts {
            Facts::Domain { key: known, count, limit, .. } if **known == *key => Some(count - limit),
            _ => None,
        });
        if let Some(excess) = excess.filter(|excess| *excess > 0).min() {
            let to = constraint.max_skew.saturating_add(excess);
            let skewed = variant(pod, |class| class.spread[at].max_skew = to);
            let change = Change::RaiseMaxSkew { topology_key: key.to_owned(), from: constraint.max_skew, to };
            let cost = 20 + u32::try_from(excess.min(20)).unwrap_or(20);
            found.push(Proposal::rows(change, cost, skewed, rows.clone()));
        }
        let softened = variant(pod, |class| class.spread[at].is_hard = false);
        let change = Change::SoftenSpread { topology_key: key.to_owned() };
        found.push(Proposal::rows(change, 45, softened, rows.clone()));
    }
    found
}

/// A term about other pods less.
fn pod_terms(cluster: &Cluster, survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let rows = rows_of(&survey.only_against(&[inter_pod_affinity::NAME]));
    if rows.is_empty() {
        return Vec::new();
    }
    let words = |term: &PodTerm| {
        (cluster.names.text(term.topology_key).to_owned(), format!("pods with {}", term.pods.selector))
    };
    let mut found = Vec::new();
    for (at, term) in pod.class.affinity.iter().enumerate().take(TRIED_MAX) {
        let fewer = variant(pod, |class| {
            class.affinity = without(&class.affinity, at);
            class.together = all_of(&class.affinity);
        });
        let (topology_key, pods) = words(term);
        found.push(Proposal::rows(Change::DropPodAffinity { topology_key, pods }, 50, fewer, rows.clone()));
    }
    for (at, term) in pod.class.anti_affinity.iter().enumerate().take(TRIED_MAX) {
        let fewer = variant(pod, |class| class.anti_affinity = without(&class.anti_affinity, at));
        let (topology_key, pods) = words(term);
        let change = Change::DropPodAntiAffinity { topology_key, pods };
        found.push(Proposal::rows(change, 45, fewer, rows.clone()));
    }
    found
}

/// A host port less.
fn ports(survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let rows = rows_of(&survey.only_against(&[node_ports::NAME]));
    if rows.is_empty() {
        return Vec::new();
    }
    let propose = |(at, port): (usize, &HostPort)| {
        let fewer = variant(pod, |class| class.ports = without(&class.ports, at));
        let port = port_text(&port.protocol, &port.address, port.port);
        Proposal::rows(Change::DropHostPort { port }, 30, fewer, rows.clone())
    };
    pod.class.ports.iter().enumerate().take(TRIED_MAX).map(propose).collect()
}

fn without<T: Clone>(list: &[T], at: usize) -> Box<[T]> {
    list.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, item)| item.clone()).collect()
}

/// Whether a pod stays, its priority, and how much of what is short it holds: the smallest goes most easily.
type Weight = (bool, i32, i64);

/// A single pod whose leaving makes room; one that is leaving already is only waited for.
fn leaving(judges: Judges<'_>, survey: &Survey, pod: &Arc<Pod>) -> Vec<Proposal> {
    let trial = Trial::new(judges, pod);
    let cluster = judges.cluster;
    // The least important, then the smallest.
    let rank = |other: &Arc<Pod>, shortages: &[(&str, i64)]| {
        let held = shortages.iter().filter_map(|(name, _)| cluster.resources.id(name));
        let held: i64 = held.map(|id| other.class.requests.amounts.get(id)).fold(0, i64::saturating_add);
        (!other.is_deleting, other.class.priority, held)
    };
    let mut best: Option<(Weight, Row, Arc<Pod>)> = None;
    for against in survey.nearest(cluster, ROWS_TO_CLEAR).into_iter().filter(|against| against.is_curable()) {
        let shortages = against.shortages();
        let mut here: Vec<&Arc<Pod>> = cluster
            .node(against.row)
            .pods
            .all
            .iter()
            .filter(|other| may_go(cluster, other, &shortages))
            .collect();
        here.sort_by_key(|other| (rank(other, &shortages), other.key.clone()));
        let better = here.into_iter().take(PODS_TO_CLEAR).find(|other| {
            best.as_ref().is_none_or(|(known, _, _)| rank(other, &shortages) < *known)
                && trial.fits(against.row, Some(other))
        });
        if let Some(other) = better {
            best = Some((rank(other, &shortages), against.row, other.clone()));
        }
    }
    let Some((_, row, other)) = best else { return Vec::new() };
    let node = cluster.node(row).name.to_string();
    let (change, cost) = match other.is_deleting {
        true => (Change::WaitForPod { pod: other.key.to_string(), node }, 5),
        false => {
            // Somebody more important is not made to go lightly.
            let cost = if other.class.priority > pod.class.priority { 75 } else { 35 };
            let holder = Holder::of(&other, holds(cluster, survey, row, &other));
            (Change::RemovePod { node, holder }, cost)
        }
    };
    vec![Proposal { change, cost, pod: pod.clone(), test: Test::Rows { rows: vec![row], gone: Some(other) } }]
}

/// Whether it makes sense to ask a pod to go, and could help.
fn may_go(cluster: &Cluster, other: &Pod, shortages: &[(&str, i64)]) -> bool {
    let is_bound_to_node = other.class.owner.as_ref().is_some_and(|owner| &*owner.kind == "DaemonSet");
    let frees = |(name, missing): &(&str, i64)| match *name {
        "pods" => true,
        name => cluster.resources.id(name).is_some_and(|id| other.class.requests.amounts.get(id) >= *missing),
    };
    other.reserves.is_none()
        && (other.is_deleting || (!is_bound_to_node && other.class.priority < SYSTEM_PRIORITY))
        && shortages.iter().all(frees)
}

/// What a pod has of what is missing.
fn holds(cluster: &Cluster, survey: &Survey, row: Row, other: &Pod) -> String {
    let shortages = survey.unfit.iter().find(|against| against.row == row).map(Against::shortages);
    let amounts: Vec<String> = shortages
        .unwrap_or_default()
        .iter()
        .filter(|(name, _)| *name != "pods")
        .filter_map(|(name, _)| {
            let units = other.class.requests.amounts.get(cluster.resources.id(name)?);
            Some(format!("{} {name}", amount::readable(&cluster.resources, name, units)))
        })
        .collect();
    if amounts.is_empty() { "in the way".to_owned() } else { amounts.join(", ") }
}
