//! What a CronJob must look like.

use serde_json::Value;

use super::super::rules::{self, Faults};
use super::super::{FieldError, Path, meta};
use super::{job, schedule, spec_path};

/// Leaves room for the time that the controller appends to the names of jobs.
const NAME_MAX: usize = 52;
/// The longest part of a time zone's name.
const ZONE_PART_MAX: usize = 14;

pub(super) fn validate(cron: &Value, old: Option<&Value>) -> Faults {
    let path = spec_path();
    let spec = &cron["spec"];
    let mut errors = schedule_faults(spec, old, &path);
    errors.extend(rules::non_negative(
        &spec["startingDeadlineSeconds"],
        &path.child("startingDeadlineSeconds"),
    ));
    if old.is_none_or(|old| old["spec"]["timeZone"] != spec["timeZone"]) {
        errors.extend(spec["timeZone"].as_str().and_then(|zone| time_zone(zone, &path.child("timeZone"))));
    }
    let policies = ["Allow", "Forbid", "Replace"];
    errors.extend(rules::one_of(&spec["concurrencyPolicy"], &policies, &path.child("concurrencyPolicy")));
    errors.extend(job_template(&spec["jobTemplate"]["spec"], &path.child("jobTemplate")));
    let limits = ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
    errors.extend(rules::all_non_negative(spec, &path, &limits));
    let name = meta::name(cron);
    if old.is_none() && name.len() > NAME_MAX {
        let metadata = Path::root("metadata");
        let detail = format!("must be no more than {NAME_MAX} characters");
        errors.push(FieldError::invalid(&metadata.child("name"), name, detail));
    }
    errors
}

fn schedule_faults(spec: &Value, old: Option<&Value>, path: &Path<'_>) -> Faults {
    let path = path.child("schedule");
    let text = rules::text(&spec["schedule"]);
    if text.is_empty() {
        return vec![FieldError::required(&path, "")];
    }
    let parsed = schedule::check(text);
    let mut errors: Faults =
        parsed.err().map(|why| FieldError::invalid(&path, text, why)).into_iter().collect();
    let has_zone = |text: &str| text.contains("TZ");
    let had_zone = old.is_some_and(|old| has_zone(rules::text(&old["spec"]["schedule"])));
    let detail = match (has_zone(text), had_zone) {
        (true, true) if rules::is_set(&spec["timeZone"]) => {
            "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        }
        (true, false) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        _ => return errors,
    };
    errors.push(FieldError::invalid(&path, text, detail));
    errors
}

/// Differs: whether a zone of that name exists is not looked up, for nothing here runs CronJobs.
fn time_zone(zone: &str, path: &Path<'_>) -> Option<FieldError> {
    if zone.is_empty() {
        return Some(FieldError::invalid(path, zone, "timeZone must be nil or non-empty string"));
    }
    let is_fine = |part: &str| {
        let letters = |b: u8| b.is_ascii_alphanumeric() || b".-_+".contains(&b);
        (1..=ZONE_PART_MAX).contains(&part.len())
            && ![".", ".."].contains(&part)
            && !part.starts_with('-')
            && part.bytes().all(letters)
    };
    if !zone.split('/').all(is_fine) {
        return Some(FieldError::invalid(path, zone, format!("unknown time zone {zone}")));
    }
    let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
    zone.eq_ignore_ascii_case("Local").then(|| FieldError::invalid(path, zone, detail))
}

fn job_template(spec: &Value, path: &Path<'_>) -> Faults {
    let path = path.child("spec");
    let mut errors = job::job_spec(spec, &path);
    if rules::is_set(&spec["selector"]) {
        let shown = rules::show_selector(&spec["selector"]);
        errors.push(rules::invalid_as(&path.child("selector"), &shown, "`selector` will be auto-generated"));
    }
    if spec["manualSelector"] == true {
        errors.push(FieldError::not_supported(&path.child("manualSelector"), true, ["nil", "false"]));
    }
    errors
}
