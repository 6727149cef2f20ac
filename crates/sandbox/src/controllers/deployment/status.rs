//! What a Deployment tells of its rollout: counts, and the conditions kubectl waits for.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::replicaset::ReplicaSet;
use super::super::view::{Condition, condition, find_condition, remove_condition, set_condition};
use super::{Deployment, deadline};
use crate::kinds::meta::format_time;
use serde::Deserialize;

/// The times a Deployment's conditions carry.
pub(super) const TIMES: &[&str] = &["lastUpdateTime", "lastTransitionTime"];

const PROGRESSING: &str = "Progressing";
const AVAILABLE_REASON: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// Everything as the Deployment wants it, and seen to be.
pub(super) fn is_complete(d: &Deployment, status: &Value) -> bool {
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|f| number(f) == d.replicas)
        && number("observedGeneration") >= d.meta.generation
}

/// A pause stops the clock of the deadline.
pub(super) fn note_pause(d: &Deployment, current: &mut Value, now: Timestamp) {
    if d.deadline.is_none() {
        return;
    }
    let reason = find_condition(current, PROGRESSING).and_then(|c| c["reason"].as_str()).unwrap_or("");
    let new = match (d.is_paused, reason) {
        (_, TIMED_OUT) | (true, PAUSED) => return,
        (true, _) => condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused"),
        (false, PAUSED) => condition(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed"),
        (false, _) => return,
    };
    set_condition(current, new, TIMES, now);
}

/// Counts and availability.
pub(super) fn calculate(
    d: &Deployment,
    current: &Value,
    old: &[ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> Value {
    let sum = |count: fn(&ReplicaSet) -> i64| old.iter().chain(new).map(count).sum::<i64>();
    let available = sum(|set| set.status.available_replicas);
    let mut status = json!({"observedGeneration": d.meta.generation});
    for (field, count) in [
        ("replicas", sum(|set| set.status.replicas)),
        ("updatedReplicas", new.map_or(0, |set| set.status.replicas)),
        ("readyReplicas", sum(|set| set.status.ready_replicas)),
        ("availableReplicas", available),
        ("unavailableReplicas", (sum(|set| set.replicas) - available).max(0)),
    ] {
        if count != 0 {
            status[field] = json!(count);
        }
    }
    let is_counted =
        |set: &ReplicaSet| set.status.terminating_replicas.is_some() || set.status.observed_generation == 0;
    if old.iter().chain(new).all(is_counted) {
        status["terminatingReplicas"] = json!(sum(|set| set.status.terminating_replicas.unwrap_or(0)));
    }
    for kept in ["collisionCount", "conditions"] {
        if let Some(value) = current.get(kept) {
            status[kept] = value.clone();
        }
    }
    let is_available = available >= d.replicas - d.max_unavailable();
    let new = match is_available {
        true => {
            condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        }
        false => condition(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        ),
    };
    set_condition(&mut status, new, TIMES, now);
    status
}

/// As `calculate`, with progress; and when to see whether there was any.
pub(super) fn of_rollout(
    d: &Deployment,
    current: &Value,
    old: &[ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> (Value, Option<Timestamp>) {
    let mut status = calculate(d, current, old, new, now);
    let progress = find_condition(current, PROGRESSING).and_then(|c| Condition::deserialize(c).ok());
    let is_over = status.get("replicas") == status.get("updatedReplicas")
        && progress.as_ref().is_some_and(|c| c.reason == AVAILABLE_REASON);
    match d.deadline {
        None => remove_condition(&mut status, PROGRESSING),
        Some(seconds) if !is_over => {
            let who = match new {
                Some(set) => format!("ReplicaSet {}", crate::kinds::quote(&set.meta.name)),
                None => format!("Deployment {}", crate::kinds::quote(&d.meta.name)),
            };
            note_progress(d, &mut status, (progress.as_ref(), seconds), &who, now);
        }
        Some(_) => {}
    }
    note_failures(&mut status, old, new);
    let next = next_check(d, &status);
    (status, next)
}

fn note_progress(
    d: &Deployment,
    status: &mut Value,
    (progress, seconds): (Option<&Condition>, i64),
    who: &str,
    now: Timestamp,
) {
    if is_complete(d, status) {
        let text = format!("{who} has successfully progressed.");
        return set_condition(status, condition(PROGRESSING, "True", AVAILABLE_REASON, &text), TIMES, now);
    }
    if is_progressing(d, status) {
        let text = format!("{who} is progressing.");
        let mut new = condition(PROGRESSING, "True", "ReplicaSetUpdated", &text);
        let since = progress.filter(|c| c.status == "True").and_then(|c| c.last_transition_time);
        new["lastUpdateTime"] = json!(format_time(now));
        new["lastTransitionTime"] = json!(format_time(since.unwrap_or(now)));
        // The time of the update counts even where nothing else changes.
        remove_condition(status, PROGRESSING);
        return set_condition(status, new, &[], now);
    }
    let Some(progress) = progress else { return };
    let is_late = match progress.reason.as_str() {
        AVAILABLE_REASON => false,
        TIMED_OUT => true,
        _ => deadline(progress.last_update_time, seconds).is_some_and(|due| due < now),
    };
    if is_late {
        let text = format!("{who} has timed out progressing.");
        set_condition(status, condition(PROGRESSING, "False", TIMED_OUT, &text), TIMES, now);
    }
}

/// More new pods, fewer old ones, or more that work.
fn is_progressing(d: &Deployment, new: &Value) -> bool {
    let of = |status: &Value, field: &str| status[field].as_i64().unwrap_or(0);
    let old_pods = |status: &Value| of(status, "replicas") - of(status, "updatedReplicas");
    let grows = |field: &str| of(new, field) > d.number(field);
    grows("updatedReplicas")
        || old_pods(new) < old_pods(&d.status)
        || grows("readyReplicas")
        || grows("availableReplicas")
}

/// A ReplicaSet that cannot make its pods is the Deployment's fault, too.
fn note_failures(status: &mut Value, old: &[ReplicaSet], new: Option<&ReplicaSet>) {
    let failures = new.into_iter().chain(old).flat_map(|set| &set.status.conditions);
    let Some(failure) = failures.into_iter().find(|c| c.r#type == "ReplicaFailure") else {
        return remove_condition(status, "ReplicaFailure");
    };
    let mut copy = condition("ReplicaFailure", &failure.status, &failure.reason, &failure.message);
    let since = failure.last_transition_time.map(format_time);
    copy["lastUpdateTime"] = json!(since);
    copy["lastTransitionTime"] = json!(since);
    set_condition(status, copy, &[], Timestamp::UNIX_EPOCH);
}

/// A second after the deadline of a rollout under way.
fn next_check(d: &Deployment, status: &Value) -> Option<Timestamp> {
    let seconds = d.deadline?;
    let progress = Condition::deserialize(find_condition(status, PROGRESSING)?).ok()?;
    if is_complete(d, status) || progress.reason == TIMED_OUT {
        return None;
    }
    deadline(progress.last_update_time, seconds + 1)
}
