//! What becomes of a Deployment's ReplicaSets: created, scaled, annotated, cleaned up.
//!
//! Pure. The names and roundings are kube-controller-manager's, so that the two can be compared.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::hash::{TEMPLATE_HASH, template_hash};
use super::super::replicaset::ReplicaSet;
use super::super::view;
use super::status::{self, TIMES};
use super::{DESIRED_REPLICAS, Deployment, MAX_REPLICAS, REVISION, REVISION_HISTORY, Strategy};

/// Annotations that stay with the object they are on.
const NOT_COPIED: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];
/// All revisions a ReplicaSet remembers to have been, as text.
const HISTORY_MAX_BYTES: usize = 2000;
/// A ReplicaSet's name is a label value.
const NAME_MAX: usize = 253;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Create {
        set: Value,
        replicas: i64,
    },
    Annotate {
        key: String,
        uid: Box<str>,
        annotations: BTreeMap<String, String>,
        min_ready_seconds: i64,
    },
    /// Also notes the Deployment's size on the ReplicaSet; `from` may equal `to`.
    Scale {
        key: String,
        uid: Box<str>,
        from: i64,
        to: i64,
    },
    Delete {
        key: String,
        uid: Box<str>,
    },
}

pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) status: Value,
    /// For the Deployment's own annotation.
    pub(super) revision: Option<String>,
    pub(super) next: Option<Timestamp>,
}

/// The working state of one decision.
struct Rollout<'a> {
    d: &'a Deployment,
    new: Option<ReplicaSet>,
    /// Oldest first.
    old: Vec<ReplicaSet>,
    /// The Deployment's status so far, conditions in particular.
    current: Value,
    steps: Vec<Step>,
    revision: Option<String>,
    now: Timestamp,
}

pub(super) fn plan(d: &Deployment, mut sets: Vec<ReplicaSet>, occupied: &[Box<str>], now: Timestamp) -> Plan {
    sets.sort_by(|a, b| (a.meta.created(), &a.meta.name).cmp(&(b.meta.created(), &b.meta.name)));
    let new = sets.iter().position(|set| set.template == d.template_digest).map(|at| sets.remove(at));
    let current = d.status.clone();
    let mut rollout = Rollout { d, new, old: sets, current, steps: Vec::new(), revision: None, now };
    if d.meta.is_deleting() {
        return rollout.finish(false);
    }
    status::note_pause(d, &mut rollout.current, now);
    if d.is_paused || rollout.is_scaling() {
        rollout.annotate_new();
        rollout.scale();
        if d.is_paused {
            rollout.clean_up();
        }
        return rollout.finish(false);
    }
    match d.strategy {
        Strategy::Rolling { .. } => rollout.roll(),
        Strategy::Recreate => rollout.recreate(occupied),
    }
    rollout.finish(true)
}

impl Rollout<'_> {
    fn finish(self, is_rollout: bool) -> Plan {
        let Rollout { d, new, old, current, steps, revision, now } = self;
        let (status, next) = match is_rollout {
            true => status::of_rollout(d, &current, &old, new.as_ref(), now),
            false => (status::calculate(d, &current, &old, new.as_ref(), now), None),
        };
        Plan { steps, status, revision, next }
    }

    fn roll(&mut self) {
        self.ensure_new();
        if self.grow_new() || self.shrink_old() {
            return;
        }
        if status::is_complete(self.d, &self.d.status) {
            self.clean_up();
        }
    }

    fn recreate(&mut self, occupied: &[Box<str>]) {
        self.annotate_new();
        let mut is_scaled = false;
        for at in 0..self.old.len() {
            is_scaled |= self.scale_old(at, 0);
        }
        if is_scaled {
            return;
        }
        let new = self.new.as_ref().map(|set| &set.meta.uid);
        let counted: i64 = self.old.iter().map(|set| set.status.replicas).sum();
        if counted > 0 || occupied.iter().any(|uid| Some(uid) != new) {
            return;
        }
        self.ensure_new();
        self.scale_new(self.d.replicas);
        if status::is_complete(self.d, &self.d.status) {
            self.clean_up();
        }
    }

    /// Whether a user changed the size since it was last noted on the ReplicaSets.
    fn is_scaling(&self) -> bool {
        let active = self.old.iter().chain(&self.new).filter(|set| set.replicas > 0);
        let mut noted = active.filter_map(|set| number(set, DESIRED_REPLICAS));
        noted.any(|desired| desired != self.d.replicas)
    }

    fn total(&self) -> i64 {
        self.old.iter().chain(&self.new).map(|set| set.replicas).sum()
    }

    fn next_revision(&self) -> i64 {
        let revisions = self.old.iter().filter_map(revision);
        revisions.max().unwrap_or(0) + 1
    }

    /// Brings the annotations of the new ReplicaSet up to date, if there is one.
    fn annotate_new(&mut self) {
        let next = self.next_revision();
        let Some(set) = &mut self.new else { return };
        let mut annotations: BTreeMap<String, String> = as_map(set);
        let is_changed =
            annotate(self.d, &mut annotations, next) || set.min_ready_seconds != self.d.min_ready_seconds;
        self.revision = annotations.get(REVISION).cloned();
        if is_changed {
            self.steps.push(Step::Annotate {
                key: set.meta.key(),
                uid: set.meta.uid.clone(),
                annotations,
                min_ready_seconds: self.d.min_ready_seconds,
            });
        }
        if self.d.deadline.is_some() && view::find_condition(&self.current, "Progressing").is_none() {
            let text = format!("Found new replica set {}", crate::kinds::quote(&set.meta.name));
            let found = view::condition("Progressing", "True", "FoundNewReplicaSet", &text);
            view::set_condition(&mut self.current, found, TIMES, self.now);
        }
    }

    /// The new ReplicaSet, created where there is none.
    fn ensure_new(&mut self) {
        if self.new.is_some() {
            return self.annotate_new();
        }
        let (d, next) = (self.d, self.next_revision());
        let replicas = self.room_for_new(0);
        let mut annotations = BTreeMap::new();
        annotate(d, &mut annotations, next);
        annotations.insert(DESIRED_REPLICAS.to_owned(), d.replicas.to_string());
        annotations.insert(MAX_REPLICAS.to_owned(), (d.replicas + d.max_surge()).to_string());
        let set = new_set(d, replicas, &annotations);
        let name = set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.revision = Some(next.to_string());
        if d.deadline.is_some() {
            let text = format!("Created new replica set {}", crate::kinds::quote(&name));
            let made = view::condition("Progressing", "True", "NewReplicaSetCreated", &text);
            view::set_condition(&mut self.current, made, TIMES, self.now);
        }
        let mut made = ReplicaSet { replicas, template: d.template_digest, ..ReplicaSet::default() };
        made.meta.name = name.into();
        made.meta.namespace = d.meta.namespace.clone();
        self.new = Some(made);
        self.steps.push(Step::Create { set, replicas });
    }

    /// How large the new ReplicaSet may be now, being `size`.
    fn room_for_new(&self, size: i64) -> i64 {
        let max = match self.d.strategy {
            Strategy::Recreate => return self.d.replicas,
            Strategy::Rolling { surge, .. } => self.d.replicas + surge,
        };
        let total = self.total();
        match total >= max {
            true => size,
            false => size + (max - total).min(self.d.replicas - size),
        }
    }

    fn grow_new(&mut self) -> bool {
        let Some(size) = self.new.as_ref().map(|set| set.replicas) else { return false };
        let wanted = self.d.replicas;
        match size.cmp(&wanted) {
            std::cmp::Ordering::Equal => false,
            std::cmp::Ordering::Greater => self.scale_new(wanted),
            std::cmp::Ordering::Less => {
                let room = self.room_for_new(size);
                self.scale_new(room)
            }
        }
    }

    fn shrink_old(&mut self) -> bool {
        let old: i64 = self.old.iter().map(|set| set.replicas).sum();
        if old == 0 {
            return false;
        }
        let available_min = self.d.replicas - self.d.max_unavailable();
        let unready = self.new.as_ref().map_or(0, |set| set.replicas - set.status.available_replicas);
        let max = self.total() - available_min - unready;
        if max <= 0 {
            return false;
        }
        // Pods that are not available are no loss.
        let mut unhealthy = 0;
        for at in 0..self.old.len() {
            let set = &self.old[at];
            let loss = (set.replicas - set.status.available_replicas).min(max - unhealthy);
            if loss > 0 && set.replicas > 0 {
                unhealthy += loss;
                let to = set.replicas - loss;
                self.scale_old(at, to);
            }
        }
        let available: i64 = self.old.iter().chain(&self.new).map(|set| set.status.available_replicas).sum();
        let mut spare = (available - available_min).max(0);
        for at in 0..self.old.len() {
            let size = self.old[at].replicas;
            let loss = size.min(spare);
            if loss > 0 {
                spare -= loss;
                unhealthy += loss;
                self.scale_old(at, size - loss);
            }
        }
        unhealthy > 0
    }

    fn scale_old(&mut self, at: usize, to: i64) -> bool {
        let set = &mut self.old[at];
        set.replicas != to && scale_set(&mut self.steps, set, to)
    }

    fn scale_new(&mut self, to: i64) -> bool {
        let Some(set) = &mut self.new else { return false };
        set.replicas != to && scale_set(&mut self.steps, set, to)
    }

    /// Spreads a change of size over the active ReplicaSets, in proportion.
    fn scale(&mut self) {
        let d = self.d;
        let is_active = |set: &&ReplicaSet| set.replicas > 0;
        let active = self.old.iter().chain(&self.new).filter(is_active).count();
        if active <= 1 {
            return self.scale_only(active);
        }
        if self.new.as_ref().is_some_and(|set| is_saturated(d, set)) {
            for at in 0..self.old.len() {
                self.scale_old(at, 0);
            }
            return;
        }
        if d.strategy == Strategy::Recreate {
            return;
        }
        let allowed = if d.replicas > 0 { d.replicas + d.max_surge() } else { 0 };
        let to_add = allowed - self.total();
        let mut sets: Vec<&mut ReplicaSet> =
            self.old.iter_mut().chain(&mut self.new).filter(|set| set.replicas > 0).collect();
        sets.sort_by(|a, b| {
            let by_age = (a.meta.created(), &a.meta.name).cmp(&(b.meta.created(), &b.meta.name));
            let by_age = if to_add > 0 { by_age.reverse() } else { by_age };
            b.replicas.cmp(&a.replicas).then(by_age)
        });
        let mut added = 0;
        let mut sizes: Vec<i64> = Vec::new();
        for set in &sets {
            let share = proportion(d, set, to_add, added);
            added += share;
            sizes.push(set.replicas + share);
        }
        if let Some(largest) = sizes.first_mut() {
            *largest = (*largest + to_add - added).max(0);
        }
        for (set, size) in sets.into_iter().zip(sizes) {
            if set.replicas != size || !has_size_noted(d, set) {
                scale_set(&mut self.steps, set, size);
            }
        }
    }

    /// With one active ReplicaSet or none there is nothing to spread.
    fn scale_only(&mut self, active: usize) {
        let to = self.d.replicas;
        let at = match active {
            0 if self.new.is_none() => self.old.len().checked_sub(1),
            0 => None,
            _ => self.old.iter().position(|set| set.replicas > 0),
        };
        match at {
            Some(at) => self.scale_old(at, to),
            None => self.scale_new(to),
        };
    }

    /// Deletes old ReplicaSets beyond the history limit.
    fn clean_up(&mut self) {
        let Some(limit) = self.d.history_limit else { return };
        let limit = usize::try_from(limit).unwrap_or(0);
        let mut sets: Vec<&ReplicaSet> = self.old.iter().filter(|set| !set.meta.is_deleting()).collect();
        let excess = sets.len().saturating_sub(limit);
        sets.sort_by_key(|set| revision(set).unwrap_or(0));
        for set in sets.into_iter().take(excess) {
            let is_observed = set.meta.generation <= set.status.observed_generation;
            if set.status.replicas == 0 && set.replicas == 0 && is_observed {
                self.steps.push(Step::Delete { key: set.meta.key(), uid: set.meta.uid.clone() });
            }
        }
    }
}

fn scale_set(steps: &mut Vec<Step>, set: &mut ReplicaSet, to: i64) -> bool {
    let (key, uid) = (set.meta.key(), set.meta.uid.clone());
    let from = std::mem::replace(&mut set.replicas, to);
    // Scaled twice in one decision: users are told once.
    if let Some(Step::Scale { to: before, .. }) =
        steps.iter_mut().find(|step| matches!(step, Step::Scale { uid: u, .. } if *u == uid))
    {
        *before = to;
    } else {
        steps.push(Step::Scale { key, uid, from, to });
    }
    true
}

fn as_map(set: &ReplicaSet) -> BTreeMap<String, String> {
    set.meta.annotations.0.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

fn number(set: &ReplicaSet, annotation: &str) -> Option<i64> {
    let number: i64 = set.meta.annotation(annotation)?.parse().ok()?;
    i32::try_from(number).ok().filter(|n| *n >= 0).map(i64::from)
}

fn revision(set: &ReplicaSet) -> Option<i64> {
    set.meta.annotation(REVISION)?.parse().ok()
}

fn has_size_noted(d: &Deployment, set: &ReplicaSet) -> bool {
    number(set, DESIRED_REPLICAS) == Some(d.replicas)
        && number(set, MAX_REPLICAS) == Some(d.replicas + d.max_surge())
}

fn is_saturated(d: &Deployment, set: &ReplicaSet) -> bool {
    set.replicas == d.replicas
        && number(set, DESIRED_REPLICAS) == Some(d.replicas)
        && set.status.available_replicas == d.replicas
}

/// A ReplicaSet's share of the replicas to add or take.
fn proportion(d: &Deployment, set: &ReplicaSet, to_add: i64, added: i64) -> i64 {
    if set.replicas == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = fraction(d, set);
    match to_add > 0 {
        true => fraction.min(to_add - added),
        false => fraction.max(to_add - added),
    }
}

fn fraction(d: &Deployment, set: &ReplicaSet) -> i64 {
    if d.replicas == 0 {
        return -set.replicas;
    }
    let before = number(set, MAX_REPLICAS).filter(|max| *max > 0).unwrap_or_else(|| d.number("replicas"));
    if before == 0 {
        return 0;
    }
    let product = set.replicas * (d.replicas + d.max_surge());
    // Half away from zero; nothing here is negative.
    (2 * product + before) / (2 * before) - set.replicas
}

/// Copies the Deployment's annotations and counts the revision; whether anything changed.
fn annotate(d: &Deployment, annotations: &mut BTreeMap<String, String>, next: i64) -> bool {
    let mut is_changed = false;
    for (key, value) in &d.meta.annotations.0 {
        let is_same = annotations.get(&**key).is_some_and(|v| **v == **value);
        if !NOT_COPIED.contains(&&**key) && !is_same {
            annotations.insert(key.to_string(), value.to_string());
            is_changed = true;
        }
    }
    let old = annotations.get(REVISION).cloned();
    let Ok(was) = old.as_deref().unwrap_or("0").parse::<i64>() else { return is_changed };
    if was >= next {
        return is_changed;
    }
    annotations.insert(REVISION.to_owned(), next.to_string());
    if let Some(old) = old {
        let history = annotations.get(REVISION_HISTORY).map(String::as_str).unwrap_or_default();
        let mut all: Vec<&str> = history.split(',').filter(|r| !r.is_empty()).collect();
        all.push(&old);
        while all.join(",").len() > HISTORY_MAX_BYTES {
            all.remove(0);
        }
        let joined = all.join(",");
        annotations.insert(REVISION_HISTORY.to_owned(), joined);
    }
    true
}

/// The ReplicaSet for the Deployment's template.
fn new_set(d: &Deployment, replicas: i64, annotations: &BTreeMap<String, String>) -> Value {
    let mut template = d.spec["template"].clone();
    let hash = template_hash(&template, d.status["collisionCount"].as_i64());
    template["metadata"]["labels"][TEMPLATE_HASH] = json!(hash);
    let mut selector = d.spec["selector"].clone();
    selector["matchLabels"][TEMPLATE_HASH] = json!(hash);
    let mut base: &str = &d.meta.name;
    while base.len() + 1 + hash.len() > NAME_MAX {
        base = &base[..base.len() - 1];
    }
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{base}-{hash}"),
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [view::controller_ref("apps/v1", "Deployment", &d.meta)],
        },
        "spec": {
            "replicas": replicas, "minReadySeconds": d.min_ready_seconds,
            "selector": selector, "template": template,
        },
    })
}
