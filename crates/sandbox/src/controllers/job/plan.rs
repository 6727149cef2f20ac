//! What becomes of a Job's pods, and what its status says of them. Pure.
//!
//! A pod is counted once, however it ends: first its UID is noted in the status, then its tracking
//! finalizer goes, then the counter moves. `plan` decides, `settle` writes the counters.

use std::collections::{BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::pod::{Phase, Pod, by_deletion};
use super::super::shell::time;
use super::super::view::find_condition;
use super::{Backoff, Job, indexes};

/// Pods made, deleted or counted in one pass.
const PASS_MAX: usize = 500;
/// Before the next pod after a failure: at first, and at most.
const BACKOFF_MIN: SignedDuration = SignedDuration::from_secs(10);
const BACKOFF_MAX: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Indexes of pods to make; None for pods without.
    pub(super) create: Vec<Option<i64>>,
    /// Pods to delete: key, UID, and whether they are let go first, not to count as failed.
    pub(super) delete: Vec<(String, Box<str>, bool)>,
    /// Pods to let go: key and UID.
    pub(super) release: Vec<(String, Box<str>)>,
    pub(super) status: Value,
    /// The last condition, once all is counted.
    pub(super) finish: Option<End>,
    /// Reasons and texts of events.
    pub(super) events: Vec<(&'static str, &'static str)>,
    pub(super) backoff: Backoff,
    pub(super) next: Option<Timestamp>,
}

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) is_success: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

/// The pods, counted.
struct Count<'a> {
    active: Vec<&'a Pod>,
    ready: usize,
    terminating: usize,
    new_succeeded: Vec<&'a Pod>,
    new_failed: Vec<&'a Pod>,
    succeeded: i64,
    failed: i64,
    done: BTreeSet<i64>,
}

pub(super) fn plan(job: &Job, pods: &[&Pod], backoff: &Backoff, now: Timestamp) -> Plan {
    let count = count(job, pods);
    let mut plan =
        Plan { status: job.status.clone(), backoff: next_backoff(backoff, &count), ..Plan::default() };
    if job.start_time.is_none() && !job.is_suspended {
        plan.status["startTime"] = time(now);
    }
    let started = job.start_time.or((!job.is_suspended).then_some(now));
    let mut active = count.active.len();
    let mut ready = count.ready;
    let mut finish = end(job, &count, pods, started, now, &mut plan.next);
    if finish.is_some() {
        plan.delete = count.active.iter().map(|pod| (pod.key(), pod.uid.clone(), false)).collect();
        (active, ready) = (0, 0);
    } else if !job.meta.is_deleting() {
        manage(job, &count, &mut plan, now);
        active = active + plan.create.len() - plan.delete.len();
        let deleted: HashSet<&str> = plan.delete.iter().map(|(_, uid, _)| &**uid).collect();
        ready = count.active.iter().filter(|pod| pod.is_ready() && !deleted.contains(&*pod.uid)).count();
        let is_complete = active == 0
            && match job.completions {
                None => count.succeeded > 0,
                Some(wanted) => count.succeeded >= wanted,
            };
        if is_complete {
            finish = Some(End {
                is_success: true,
                reason: "CompletionsReached".to_owned(),
                message: "Reached expected number of succeeded pods".to_owned(),
            });
        } else {
            note_suspension(job, &mut plan, now);
        }
    }
    let terminating = count.terminating + plan.delete.len();
    track(job, pods, &count, finish.as_ref(), &mut plan, now);
    note_counts(&mut plan.status, active, ready, terminating);
    if let Some(end) = finish {
        note_end(&mut plan.status, &end, now);
        // What is still leaving is waited for.
        plan.finish = (terminating == 0).then_some(end);
    }
    plan
}

fn count<'a>(job: &Job, pods: &[&'a Pod]) -> Count<'a> {
    let active: Vec<&Pod> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    let is_new = |pod: &&&Pod, known: &HashSet<Box<str>>| {
        pod.is_tracked && !known.contains(&pod.uid) && job.counts_index(pod)
    };
    let new_succeeded: Vec<&Pod> = pods
        .iter()
        .filter(|pod| is_new(pod, &job.uncounted_succeeded) && pod.phase == Phase::Succeeded)
        .copied()
        .collect();
    let new_failed: Vec<&Pod> =
        pods.iter().filter(|pod| is_new(pod, &job.uncounted_failed) && job.is_failed(pod)).copied().collect();
    let mut done = BTreeSet::new();
    if job.is_indexed {
        done = indexes::parse(&job.completed_indexes, job.completions.unwrap_or(0));
        done.extend(new_succeeded.iter().filter_map(|pod| pod.index));
    }
    let length = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let succeeded = match job.is_indexed {
        true => length(done.len()),
        false => job.succeeded + length(new_succeeded.len() + job.uncounted_succeeded.len()),
    };
    Count {
        ready: active.iter().filter(|pod| pod.is_ready()).count(),
        terminating: pods.iter().filter(|pod| pod.is_terminating()).count(),
        succeeded,
        failed: job.failed + length(new_failed.len() + job.uncounted_failed.len()),
        active,
        new_succeeded,
        new_failed,
        done,
    }
}

/// Why the Job is over, if it is; else when its deadline is.
fn end(
    job: &Job,
    count: &Count<'_>,
    pods: &[&Pod],
    started: Option<Timestamp>,
    now: Timestamp,
    next: &mut Option<Timestamp>,
) -> Option<End> {
    let noted = |type_: &str| find_condition(&job.status, type_).filter(|c| c["status"] == "True");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (type_, is_success) in [("SuccessCriteriaMet", true), ("FailureTarget", false)] {
        if let Some(c) = noted(type_) {
            return Some(End { is_success, reason: text(&c["reason"]), message: text(&c["message"]) });
        }
    }
    let failure = |reason: &str, message: &str| {
        Some(End { is_success: false, reason: reason.to_owned(), message: message.to_owned() })
    };
    if count.failed > job.backoff_limit || restarts_too_often(job, pods) {
        return failure("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    let seconds = job.deadline_seconds.filter(|_| !job.is_suspended)?;
    let due = started?.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    if due <= now {
        return failure("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    *next = Some(due);
    None
}

/// Containers that are restarted in place count as failures, too.
fn restarts_too_often(job: &Job, pods: &[&Pod]) -> bool {
    if !job.restarts_in_place {
        return false;
    }
    let alive = pods.iter().filter(|pod| matches!(pod.phase, Phase::Running | Phase::Pending));
    let restarts: i64 = alive.map(|pod| pod.restarts_total).sum();
    if job.backoff_limit == 0 { restarts > 0 } else { restarts >= job.backoff_limit }
}

/// Makes or deletes pods so that as many as wanted are active.
fn manage(job: &Job, count: &Count<'_>, plan: &mut Plan, now: Timestamp) {
    let active = i64::try_from(count.active.len()).unwrap_or(i64::MAX);
    let wanted = match (job.is_suspended, job.completions) {
        (true, _) => 0,
        (false, None) if count.succeeded > 0 => active,
        (false, None) => job.parallelism,
        (false, Some(completions)) => (completions - count.succeeded).clamp(0, job.parallelism.max(0)),
    };
    let excess = usize::try_from(active - wanted).unwrap_or(0);
    let removed = removal(job, &count.active, excess, now);
    if !removed.is_empty() || job.is_suspended {
        let removed = removed.into_iter().take(PASS_MAX);
        plan.delete = removed.map(|pod| (pod.key(), pod.uid.clone(), true)).collect();
        return;
    }
    let leaving = if job.replaces_failed_only { count.terminating } else { 0 };
    let missing = wanted - active - i64::try_from(leaving).unwrap_or(i64::MAX);
    let missing = usize::try_from(missing).unwrap_or(0).min(PASS_MAX);
    if missing == 0 {
        return;
    }
    if let Some(at) = plan.backoff.until().filter(|at| *at > now) {
        plan.next = plan.next.into_iter().chain([at]).min();
        return;
    }
    plan.create = match job.is_indexed {
        false => vec![None; missing],
        true => {
            let taken: HashSet<i64> = count.active.iter().filter_map(|pod| pod.index).collect();
            let all = 0..job.completions.unwrap_or(0);
            let free = all.filter(|index| !count.done.contains(index) && !taken.contains(index));
            free.take(missing).map(Some).collect()
        }
    };
}

/// Pods to go: those of an index that has another or that is not wanted, then whoever can be missed.
fn removal<'a>(job: &Job, active: &[&'a Pod], at_least: usize, now: Timestamp) -> Vec<&'a Pod> {
    let mut pods = active.to_vec();
    pods.sort_by(|a, b| by_deletion((a, 0), (b, 0), now));
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    // The best of an index is met first.
    for pod in pods.into_iter().rev() {
        let is_excess =
            job.is_indexed && (!job.counts_index(pod) || pod.index.is_some_and(|index| !seen.insert(index)));
        if is_excess { removed.push(pod) } else { left.push(pod) }
    }
    let more = at_least.saturating_sub(removed.len());
    removed.extend(left.into_iter().rev().take(more));
    removed
}

fn note_suspension(job: &Job, plan: &mut Plan, now: Timestamp) {
    let is = find_condition(&plan.status, "Suspended").map(|c| c["status"] == "True");
    match (job.is_suspended, is) {
        (true, Some(true)) | (false, None | Some(false)) => {}
        (true, _) => {
            ensure(&mut plan.status, ("Suspended", "True"), "JobSuspended", "Job suspended", now);
            if let Some(status) = plan.status.as_object_mut() {
                status.remove("startTime");
            }
            plan.events.push(("Suspended", "Job suspended"));
        }
        (false, Some(true)) => {
            ensure(&mut plan.status, ("Suspended", "False"), "JobResumed", "Job resumed", now);
            plan.status["startTime"] = time(now);
            plan.events.push(("Resumed", "Job resumed"));
        }
    }
}

/// Notes the pods that ended, and lets them go.
fn track(job: &Job, pods: &[&Pod], count: &Count<'_>, end: Option<&End>, plan: &mut Plan, now: Timestamp) {
    let mut succeeded: Vec<&str> = job.uncounted_succeeded.iter().map(|uid| &**uid).collect();
    let mut failed: Vec<&str> = job.uncounted_failed.iter().map(|uid| &**uid).collect();
    let is_failure = end.is_some_and(|end| !end.is_success);
    for pod in pods.iter().filter(|pod| pod.is_tracked) {
        let is_over = pod.phase == Phase::Succeeded || job.is_failed(pod);
        if !is_over && end.is_none() && !job.meta.is_deleting() {
            continue;
        }
        if plan.release.len() >= PASS_MAX {
            plan.next = Some(now);
            break;
        }
        plan.release.push((pod.key(), pod.uid.clone()));
        if pod.phase == Phase::Succeeded && !job.uncounted_failed.contains(&pod.uid) {
            if !job.is_indexed && !job.uncounted_succeeded.contains(&pod.uid) {
                succeeded.push(&pod.uid);
            }
        } else if (job.is_failed(pod) || is_failure)
            && !job.uncounted_failed.contains(&pod.uid)
            && job.counts_index(pod)
        {
            failed.push(&pod.uid);
        }
    }
    let mut uncounted = json!({});
    for (field, mut uids) in [("succeeded", succeeded), ("failed", failed)] {
        uids.sort_unstable();
        if !uids.is_empty() {
            uncounted[field] = json!(uids);
        }
    }
    plan.status["uncountedTerminatedPods"] = uncounted;
    if job.is_indexed {
        set_number(&mut plan.status, "succeeded", count.done.len());
        let text = indexes::format(&count.done);
        match text.is_empty() {
            true => plan.status.as_object_mut().and_then(|status| status.remove("completedIndexes")),
            false => Some(std::mem::replace(&mut plan.status["completedIndexes"], json!(text))),
        };
    }
}

fn note_counts(status: &mut Value, active: usize, ready: usize, terminating: usize) {
    set_number(status, "active", active);
    status["ready"] = json!(ready);
    status["terminating"] = json!(terminating);
}

/// Zero is left out.
fn set_number(status: &mut Value, field: &str, number: usize) {
    match (number, status.as_object_mut()) {
        (0, Some(status)) => {
            status.remove(field);
        }
        _ => status[field] = json!(number),
    }
}

/// The first of the two conditions an end is told by.
fn note_end(status: &mut Value, end: &End, now: Timestamp) {
    let type_ = if end.is_success { "SuccessCriteriaMet" } else { "FailureTarget" };
    ensure(status, (type_, "True"), &end.reason, &end.message, now);
}

fn ensure(status: &mut Value, (type_, is): (&str, &str), reason: &str, message: &str, now: Timestamp) {
    let new = json!({"type": type_, "status": is, "reason": reason, "message": message,
        "lastProbeTime": time(now), "lastTransitionTime": time(now)});
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == type_) {
        Some(old) if ["status", "reason", "message"].iter().all(|field| old[field] == new[field]) => {}
        Some(old) => *old = new,
        None => list.push(new),
    }
}

/// Counts what was let go, and ends the Job once nothing is left to count.
pub(super) fn settle(
    status: &Value,
    released: &HashSet<Box<str>>,
    end: Option<&End>,
    now: Timestamp,
) -> Value {
    let mut status = status.clone();
    let mut is_settled = true;
    for field in ["succeeded", "failed"] {
        let noted = status["uncountedTerminatedPods"][field].as_array().cloned().unwrap_or_default();
        let (gone, left): (Vec<Value>, Vec<Value>) =
            noted.into_iter().partition(|uid| uid.as_str().is_some_and(|uid| released.contains(uid)));
        if !gone.is_empty() {
            let before = status[field].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            set_number(&mut status, field, before + gone.len());
        }
        is_settled &= left.is_empty();
        match (left.is_empty(), status["uncountedTerminatedPods"].as_object_mut()) {
            (true, Some(noted)) => {
                noted.remove(field);
            }
            _ => status["uncountedTerminatedPods"][field] = json!(left),
        }
    }
    if let Some(end) = end.filter(|_| is_settled) {
        let type_ = if end.is_success { "Complete" } else { "Failed" };
        ensure(&mut status, (type_, "True"), &end.reason, &end.message, now);
        if end.is_success {
            status["completionTime"] = time(now);
        }
    }
    status
}

/// Failures since the last success.
fn next_backoff(old: &Backoff, count: &Count<'_>) -> Backoff {
    let latest = |pods: &[&Pod]| pods.iter().filter_map(|pod| finished(pod)).max();
    let failures = count.new_failed.iter().filter_map(|pod| finished(pod));
    match latest(&count.new_succeeded) {
        None if count.new_failed.is_empty() => *old,
        None => Backoff {
            failures: old.failures.saturating_add(u32::try_from(count.new_failed.len()).unwrap_or(u32::MAX)),
            last: latest(&count.new_failed),
        },
        Some(success) => {
            let after: Vec<Timestamp> = failures.filter(|at| *at > success).collect();
            Backoff {
                failures: u32::try_from(after.len()).unwrap_or(u32::MAX),
                last: after.into_iter().max(),
            }
        }
    }
}

fn finished(pod: &Pod) -> Option<Timestamp> {
    pod.finished.or(pod.deleting).or(pod.created)
}

impl Backoff {
    /// When the next pod may be made.
    fn until(&self) -> Option<Timestamp> {
        let last = self.last.filter(|_| self.failures > 0)?;
        let factor = 1i32.checked_shl(self.failures - 1).filter(|f| *f > 0).unwrap_or(i32::MAX);
        let pause = BACKOFF_MIN.checked_mul(factor).unwrap_or(BACKOFF_MAX).min(BACKOFF_MAX);
        last.checked_add(pause).ok()
    }
}

#[cfg(test)]
mod tests;
