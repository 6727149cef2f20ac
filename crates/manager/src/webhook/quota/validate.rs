//! Whether a quota may be created, changed or deleted. Spec: manager 17.4, 17.5.
//!
//! [`judge`] is pure: the tree, the quota and what pods there are. [`admit`] also remembers what it let through.

use jiff::Timestamp;
use koord_api::annotation::quota::Namespaces;
use koord_api::crd::elastic_quota::{DEFAULT_QUOTA, ElasticQuota, ROOT_QUOTA, SYSTEM_QUOTA};
use koord_api::keys::quota::label;

use super::info::{QuotaInfo, QuotaKey, annotation_of, label_of};
use super::topology::Topology;
use super::tree::{self, Before};
use super::{QuotaGates, item};
use crate::webhook::denial::Denial;

/// What pods there are, in any phase.
pub trait BoundPods {
    /// Pods whose label names a quota.
    fn labelled(&self, quota: &str) -> Labelled;
    /// Whether a namespace has pods.
    fn any_in(&self, namespace: &str) -> bool;
}

/// How many pods name a quota, and the first of them in order of namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labelled {
    pub count: usize,
    pub first: Vec<String>,
}

impl Labelled {
    /// How many are called by name.
    pub const NAMED: usize = 2;

    /// Of these pods, given by namespace and name in any order.
    pub fn new<'p>(pods: impl IntoIterator<Item = (&'p str, &'p str)>) -> Labelled {
        let mut pods: Vec<_> = pods.into_iter().collect();
        pods.sort_unstable();
        let first = pods.iter().take(Labelled::NAMED).map(|(_, name)| (*name).to_owned()).collect();
        Labelled { count: pods.len(), first }
    }
}

/// What to do to a quota.
#[derive(Clone, Copy, Debug)]
pub enum Change<'q> {
    Create { quota: &'q ElasticQuota },
    Update { old: &'q ElasticQuota, quota: &'q ElasticQuota },
    Delete,
}

/// What an admitted change will make of the quota.
#[derive(Clone, Debug, PartialEq)]
pub enum Admitted {
    /// Nothing that rules look at.
    Same,
    Becomes(Box<QuotaInfo>),
    Goes,
}

/// Judges a change and, unless it is a dry run, expects it to happen.
pub fn admit(
    topology: &mut Topology,
    key: &QuotaKey,
    change: Change<'_>,
    pods: &dyn BoundPods,
    gates: QuotaGates,
    is_dry_run: bool,
    now: Timestamp,
) -> Result<(), Denial> {
    topology.expire(now);
    let admitted = judge(topology, key, change, pods, gates)?;
    match admitted {
        Admitted::Becomes(info) if !is_dry_run => topology.expect(*info, now),
        Admitted::Goes if !is_dry_run => topology.expect_gone(key.clone(), now),
        _ => {}
    }
    Ok(())
}

/// Judges a change without any trace.
pub fn judge(
    topology: &Topology,
    key: &QuotaKey,
    change: Change<'_>,
    pods: &dyn BoundPods,
    gates: QuotaGates,
) -> Result<Admitted, Denial> {
    match change {
        Change::Create { quota } => judge_create(topology, key, quota, gates),
        Change::Update { old, quota } => judge_update(topology, key, old, quota, pods, gates),
        Change::Delete => judge_delete(topology, key, pods),
    }
}

fn judge_create(
    topology: &Topology,
    key: &QuotaKey,
    quota: &ElasticQuota,
    gates: QuotaGates,
) -> Result<Admitted, Denial> {
    let (ledger, name) = (topology.ledger(), &key.name);
    let is_elsewhere = ledger.places(name).any(|other| other.key != *key);
    if is_elsewhere || topology.is_known(key) {
        return Err(Denial::bad_request(format!("AddQuota quota already exist:{name}")));
    }
    let info = QuotaInfo::new(key.clone(), quota);
    for namespace in &info.namespaces {
        if let Some(other) = ledger.bound_to(namespace).filter(|other| other != name) {
            let text = format!("annotation namespace {namespace} is already bound to quota {other}");
            return Err(Denial::bad_request(format!("AddQuota quota {name}'s {text}")));
        }
    }
    item::check(name, quota)?;
    tree::check(ledger, None, &info, gates)?;
    Ok(Admitted::Becomes(Box::new(info)))
}

fn judge_update(
    topology: &Topology,
    key: &QuotaKey,
    old: &ElasticQuota,
    quota: &ElasticQuota,
    pods: &dyn BoundPods,
    gates: QuotaGates,
) -> Result<Admitted, Denial> {
    if is_unchanged(old, quota) {
        return Ok(Admitted::Same);
    }
    let (ledger, name) = (topology.ledger(), &key.name);
    if name == SYSTEM_QUOTA || name == ROOT_QUOTA {
        return Err(Denial::bad_request(format!("invalid quota {name}")));
    }
    let info = QuotaInfo::new(key.clone(), quota);
    for namespace in &info.namespaces {
        if let Some(other) = ledger.bound_to(namespace).filter(|other| other != name) {
            // Upstream's spelling.
            let text = format!("but namespace {namespace} is already bound to quota {other}");
            return Err(Denial::bad_request(format!("UpdadteQuota, quota {name} update namespaces, {text}")));
        }
    }
    if topology.own(key).is_none() {
        return Err(Denial::bad_request(format!("UpdateQuota quota not exist in quotaInfoMap:{name}")));
    }
    item::check(name, quota)?;
    // The server's old object, not ours: a watch that lags must not hide a change.
    let before = QuotaInfo::new(key.clone(), old);
    tree::check(ledger, Some(&Before { info: &before, pods }), &info, gates)?;
    Ok(Admitted::Becomes(Box::new(info)))
}

/// Whether none of the fields changed that rules look at; amounts compare by value.
fn is_unchanged(old: &ElasticQuota, new: &ElasticQuota) -> bool {
    [label::PARENT, label::IS_PARENT, label::TREE_ID]
        .iter()
        .all(|key| label_of(old, key) == label_of(new, key))
        && annotation_of::<Namespaces>(old) == annotation_of::<Namespaces>(new)
        && old.spec.clone().unwrap_or_default() == new.spec.clone().unwrap_or_default()
}

fn judge_delete(topology: &Topology, key: &QuotaKey, pods: &dyn BoundPods) -> Result<Admitted, Denial> {
    let name = &key.name;
    if [SYSTEM_QUOTA, ROOT_QUOTA, DEFAULT_QUOTA].contains(&name.as_str()) {
        return Err(Denial::bad_request(format!("can not delete quotaGroup :{name}")));
    }
    if topology.own(key).is_none() {
        return Err(Denial::bad_request(format!("not found quota:{name}")));
    }
    let start = format!("delete quota failed, quota {name} has");
    let children = topology.ledger().children_count(name);
    if children > 0 {
        return Err(Denial::bad_request(format!("{start} {children} child quotas")));
    }
    let Labelled { count, first } = pods.labelled(name);
    if count == 0 {
        return Ok(Admitted::Goes);
    }
    let more = if count > first.len() { ", ..." } else { "" };
    Err(Denial::bad_request(format!("{start} {count} child pods: {}{more}", first.join(", "))))
}

#[cfg(test)]
mod tests;
