//! What the status of a Job may say, and how it may move on.

use serde_json::Value;

use super::super::rules::{self, Faults};
use super::super::{Fault, FieldError, Path, internal};

pub(super) fn validate(job: &Value, old: &Value) -> Faults {
    let path = Path::root("status");
    let change = Change { job, old };
    let mut errors = counters(&job["status"], &path);
    errors.extend(conditions_and_times(&change, &path));
    errors.extend(finished(&change, &path));
    errors.extend(indexes(&change, &path));
    errors.extend(pods(&change, &path));
    errors.extend(criteria(&change, &path));
    errors.extend(moves(&change, &path));
    errors
}

/// A job before and after.
struct Change<'a> {
    job: &'a Value,
    old: &'a Value,
}

impl Change<'_> {
    fn has(&self, kind: &str) -> bool {
        rules::has_condition(self.job, kind)
    }

    fn had(&self, kind: &str) -> bool {
        rules::has_condition(self.old, kind)
    }

    /// Whether one of these conditions turned.
    fn turned(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.has(kind) != self.had(kind))
    }

    /// Whether one of these fields of the status changed.
    fn changed(&self, fields: &[&str]) -> bool {
        let value = |job: &Value, field: &str| job["status"].get(field).cloned().unwrap_or_default();
        fields.iter().any(|field| {
            let (new, old) = (value(self.job, field), value(self.old, field));
            let is_zero = |v: &Value| v.is_null() || v == 0 || v == "";
            let is_pointer = ["ready", "terminating", "failedIndexes"].contains(field);
            new != old && (is_pointer || !(is_zero(&new) && is_zero(&old)))
        })
    }

    fn is_finished(&self) -> bool {
        self.has("Complete") || self.has("Failed")
    }

    fn finish_turned(&self) -> bool {
        self.is_finished() != (self.had("Complete") || self.had("Failed"))
    }

    fn status(&self) -> &Value {
        &self.job["status"]
    }

    fn spec(&self) -> &Value {
        &self.job["spec"]
    }
}

fn conditions_fault(path: &Path<'_>, detail: &str) -> FieldError {
    FieldError::new(Fault::Invalid, &path.child("conditions"), None, detail)
}

fn counters(status: &Value, path: &Path<'_>) -> Faults {
    let numbers = ["active", "succeeded", "failed", "ready", "terminating"];
    let mut errors: Faults = rules::all_non_negative(status, path, &numbers).collect();
    let at = path.child("uncountedTerminatedPods");
    let mut seen: Vec<&str> = Vec::new();
    for list in ["succeeded", "failed"] {
        let at = at.child(list);
        for (i, uid) in rules::list(&status["uncountedTerminatedPods"][list]).iter().enumerate() {
            match rules::text(uid) {
                "" => errors.push(FieldError::invalid(&at.index(i), "", "must not be empty")),
                uid if seen.contains(&uid) => errors.push(FieldError::duplicate(&at.index(i), uid)),
                uid => seen.push(uid),
            }
        }
    }
    errors
}

fn conditions_and_times(change: &Change<'_>, path: &Path<'_>) -> Faults {
    let status = change.status();
    let (started, completed) = (&status["startTime"], &status["completionTime"]);
    let completed_path = path.child("completionTime");
    let mut errors = Vec::new();
    let mut fault = |applies: bool, detail: &str| {
        if applies {
            errors.push(conditions_fault(path, detail));
        }
    };
    fault(
        change.turned(&["Complete", "Failed"]) && change.has("Complete") && change.has("Failed"),
        "cannot set Complete=True and Failed=true conditions",
    );
    fault(
        change.turned(&["Complete", "FailureTarget"])
            && change.has("Complete")
            && change.has("FailureTarget"),
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    let end_moved = change.turned(&["Complete"]) || change.changed(&["completionTime"]);
    if end_moved && rules::is_set(completed) && !change.has("Complete") {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        errors.push(FieldError::invalid(&completed_path, completed.clone(), detail));
    }
    if end_moved && completed.is_null() && change.has("Complete") {
        let detail = "completionTime is required for Complete jobs";
        errors.push(FieldError::required(&completed_path, detail));
    }
    // Times are written in one form, which sorts as text.
    let is_early =
        rules::is_set(started) && rules::is_set(completed) && rules::text(completed) < rules::text(started);
    if change.changed(&["startTime", "completionTime"]) && is_early {
        let detail = "must be equal to or after `startTime`";
        errors.push(FieldError::invalid(&completed_path, completed.clone(), detail));
    }
    let mut fault = |applies: bool, detail: &str| {
        if applies {
            errors.push(conditions_fault(path, detail));
        }
    };
    let failed_moved = change.turned(&["Failed"]) || change.changed(&["failedIndexes"]);
    fault(
        failed_moved && change.has("Failed") && !change.has("FailureTarget"),
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    fault(
        change.turned(&["Complete", "SuccessCriteriaMet"])
            && change.has("Complete")
            && !change.has("SuccessCriteriaMet"),
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    errors
}

fn finished(change: &Change<'_>, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    if !change.is_finished() {
        return errors;
    }
    let status = change.status();
    let turned = change.finish_turned();
    let active = status["active"].as_i64().unwrap_or(0);
    if (turned || change.changed(&["active"])) && active > 0 {
        let detail = "active>0 is invalid for finished job";
        errors.push(FieldError::invalid(&path.child("active"), active, detail));
    }
    let never_began = change.spec()["suspend"] == true && change.spec()["completions"] == 0;
    let start_matters = (turned || change.changed(&["startTime"])) && !never_began;
    if start_matters && status["startTime"].is_null() {
        let detail = "startTime is required for finished job";
        errors.push(FieldError::required(&path.child("startTime"), detail));
    }
    let uncounted = &status["uncountedTerminatedPods"];
    let count = rules::list(&uncounted["failed"]).len() + rules::list(&uncounted["succeeded"]).len();
    if (turned || change.changed(&["uncountedTerminatedPods"])) && count > 0 {
        let shown = internal::compact("UncountedTerminatedPods", uncounted);
        let detail = "must be empty for finished job";
        errors.push(rules::invalid_as(&path.child("uncountedTerminatedPods"), &shown, detail));
    }
    errors
}

fn indexes(change: &Change<'_>, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let (status, spec) = (change.status(), change.spec());
    let completions = spec["completions"].as_i64();
    let done = rules::text(&status["completedIndexes"]);
    let failed = status["failedIndexes"].as_str();
    let (done_path, failed_path) = (path.child("completedIndexes"), path.child("failedIndexes"));
    let (done_changed, failed_changed) =
        (change.changed(&["completedIndexes"]), change.changed(&["failedIndexes"]));
    let has_limit = rules::is_set(&spec["backoffLimitPerIndex"]);
    if let Some(completions) = completions {
        if done_changed && let Err(why) = count_indexes(done, completions) {
            let detail = format!("error parsing completedIndexes: {why}");
            errors.push(FieldError::invalid(&done_path, done, detail));
        }
        if let Some(failed) = failed.filter(|_| failed_changed && has_limit)
            && let Err(why) = count_indexes(failed, completions)
        {
            let detail = format!("error parsing failedIndexes: {why}");
            errors.push(FieldError::invalid(&failed_path, failed, detail));
        }
    }
    if done_changed && !done.is_empty() && spec["completionMode"] != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(FieldError::invalid(&done_path, done, detail));
    }
    let Some(failed) = failed else { return errors };
    if failed_changed && !has_limit {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(FieldError::invalid(&failed_path, failed, detail));
    }
    if let Some(completions) = completions.filter(|_| done_changed || failed_changed)
        && let Some(at) = overlap(done, failed, completions)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {at}");
        errors.push(FieldError::invalid(&failed_path, failed, detail));
    }
    errors
}

fn pods(change: &Change<'_>, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let status = change.status();
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let ends = change.finish_turned() || change.changed(&["terminating"]);
    if ends && number("terminating") > 0 && change.is_finished() {
        let detail = "terminating>0 is invalid for finished job";
        errors.push(FieldError::invalid(&path.child("terminating"), number("terminating"), detail));
    }
    let moved = change.changed(&["ready", "active"]);
    if moved && rules::is_set(&status["ready"]) && number("ready") > number("active") {
        let detail = "cannot set more ready pods than active";
        errors.push(FieldError::invalid(&path.child("ready"), number("ready"), detail));
    }
    errors
}

fn criteria(change: &Change<'_>, path: &Path<'_>) -> Faults {
    let is_met = change.has("SuccessCriteriaMet");
    let has_policy = rules::is_set(&change.spec()["successPolicy"]);
    let mut errors = Vec::new();
    for (applies, detail) in [
        (is_met && change.has("Failed"), "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (
            is_met && change.has("FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            has_policy && !is_met && change.has("Complete"),
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ] {
        if applies {
            errors.push(conditions_fault(path, detail));
        }
    }
    errors
}

/// What cannot be taken back.
fn moves(change: &Change<'_>, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if change.had(kind) && !change.has(kind) {
            errors
                .push(conditions_fault(path, &format!("cannot disable the terminal {kind}=True condition")));
        }
    }
    let (new, old, spec) = (change.status(), &change.old["status"], change.spec());
    let number = |status: &Value, field: &str| status[field].as_i64().unwrap_or(0);
    let is_elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    for (field, applies) in [("failed", true), ("succeeded", !is_elastic)] {
        if applies && number(new, field) < number(old, field) {
            let detail = format!("cannot decrease the {field} counter");
            errors.push(FieldError::invalid(&path.child(field), number(new, field), detail));
        }
    }
    let completed = &new["completionTime"];
    let both = rules::is_set(completed) && rules::is_set(&old["completionTime"]);
    if both && completed != &old["completionTime"] {
        let path = path.child("completionTime");
        errors.push(FieldError::invalid(&path, completed.clone(), "field is immutable"));
    }
    let conditions = rules::list(&new["conditions"]).iter();
    let is_resuming = change.had("Suspended")
        && conditions.into_iter().any(|c| c["type"] == "Suspended" && c["status"] == "False");
    let restarted = rules::is_set(&old["startTime"]) && new["startTime"] != old["startTime"];
    if restarted && !is_resuming && spec["suspend"] != true {
        let detail = "startTime cannot be removed for unsuspended job";
        errors.push(FieldError::required(&path.child("startTime"), detail));
    }
    if change.had("SuccessCriteriaMet") && !change.has("SuccessCriteriaMet") {
        errors.push(conditions_fault(path, "cannot disable the SuccessCriteriaMet=True condition"));
    }
    if change.had("Complete") && !change.had("SuccessCriteriaMet") && change.has("SuccessCriteriaMet") {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(conditions_fault(path, detail));
    }
    errors
}

/// How many indexes `0,2-4` names; each below `completions`, in ascending order.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut total = 0;
    let mut last: Option<i64> = None;
    for part in text.split(',') {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let limits: Vec<&str> = text.split('-').collect();
    let quoted = super::super::quote(text);
    if limits.len() > 2 {
        return Err(format!(
            "the fragment {quoted} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        ));
    }
    let parse = |text: &str| {
        let quoted = super::super::quote(text);
        let index: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
        match index >= completions {
            true => Err(format!("too large index: {quoted}")),
            false => Ok(index),
        }
    };
    let first = parse(limits[0])?;
    let Some(end) = limits.get(1) else { return Ok((first, first)) };
    let end = parse(end)?;
    match first >= end {
        true => Err(format!("non-increasing order, previous: {first}, current: {end}")),
        false => Ok((first, end)),
    }
}

/// The first index both lists name; parts that cannot be read are passed over.
fn overlap(done: &str, failed: &str, completions: i64) -> Option<i64> {
    let parse = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    if done.is_empty() || failed.is_empty() {
        return None;
    }
    let (done, failed) = (parse(done), parse(failed));
    let (mut i, mut j) = (0, 0);
    while let (Some((a, b)), Some((c, d))) = (done.get(i), failed.get(j)) {
        if a <= d && c <= b {
            return Some(*a.max(c));
        }
        if a <= c { i += 1 } else { j += 1 }
    }
    None
}
