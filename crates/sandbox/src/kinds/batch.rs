//! The batch group: Jobs, and CronJobs as data.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Hooks, Kind, Path, apps, cell, meta, pod_template, rules};

mod cron;
mod job;
mod schedule;
mod status;

/// Labels of a job's pods, the names of old first.
const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Beyond these numbers Kubernetes cannot promise to track every index.
const COMPLETIONS_WARN: i64 = 100_000;
const PARALLELISM_WARN: i64 = 10_000;

pub(super) fn kinds() -> Vec<Kind> {
    let mut job = Kind::builtin("batch/v1", "Job", "jobs")
        .category("all")
        .generation()
        .status()
        .columns(job_columns())
        .hooks(Hooks {
            default: default_job,
            prepare_create: generate_selector,
            validate: job::validate,
            validate_status: status::validate,
            warn: warn_of_job,
            fields: |job| {
                vec![("status.successful", job["status"]["succeeded"].as_i64().unwrap_or(0).to_string())]
            },
            field_names: &["status.successful"],
            row: job_row,
            ..Hooks::default()
        });
    job.orphans_by_default = true;
    let cron = Kind::builtin("batch/v1", "CronJob", "cronjobs")
        .short(&["cj"])
        .category("all")
        .generation()
        .status()
        .columns(cron_columns())
        .hooks(Hooks {
            default: default_cron_job,
            validate: cron::validate,
            warn: warn_of_cron_job,
            row: cron_row,
            ..Hooks::default()
        });
    vec![cron, job]
}

fn default_job(job: &mut Value) {
    let spec = &mut job["spec"];
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        spec["completions"] = json!(1);
    }
    rules::default(spec, "parallelism", 1);
    let backoff = if rules::is_set(&spec["backoffLimitPerIndex"]) { i32::MAX } else { 6 };
    rules::default(spec, "backoffLimit", backoff);
    rules::default(spec, "completionMode", "NonIndexed");
    rules::default(spec, "suspend", false);
    let replacement = match spec["podFailurePolicy"].is_null() {
        true => "TerminatingOrFailed",
        false => "Failed",
    };
    rules::default(spec, "podReplacementPolicy", replacement);
    rules::default(spec, "manualSelector", false);
    default_job_spec(spec);
    // A new job gets them with those that are still to be generated.
    if !meta::uid(job).is_empty() {
        default_labels(job);
    }
}

/// A job without labels bears those of its pods.
fn default_labels(job: &mut Value) {
    let labels = job["spec"]["template"]["metadata"]["labels"].clone();
    let has_labels = job["metadata"].get("labels").and_then(Value::as_object).is_some_and(|l| !l.is_empty());
    if labels.is_object() && !has_labels {
        meta::set(job, "labels", Some(labels));
    }
}

/// What also holds for the template of a CronJob.
fn default_job_spec(spec: &mut Value) {
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for rule in rules::each(policy, "rules") {
            for pattern in rules::each(rule, "onPodConditions") {
                rules::default_text(pattern, "status", "True");
            }
        }
    }
    pod_template::default_spec(&mut spec["template"]["spec"]);
}

fn default_cron_job(cron: &mut Value) {
    let spec = &mut cron["spec"];
    rules::default_text(spec, "concurrencyPolicy", "Allow");
    rules::default(spec, "suspend", false);
    rules::default(spec, "successfulJobsHistoryLimit", 3);
    rules::default(spec, "failedJobsHistoryLimit", 1);
    default_job_spec(&mut spec["jobTemplate"]["spec"]);
}

/// A job selects its own pods, by its UID, unless its author knows better.
fn generate_selector(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return default_labels(job);
    }
    let (name, uid) = (meta::name(job).to_owned(), meta::uid(job).to_owned());
    let labels = &mut job["spec"]["template"]["metadata"]["labels"];
    for (keys, value) in [(JOB_NAME, &name), (CONTROLLER_UID, &uid)] {
        keys.iter().for_each(|key| rules::default(labels, key, value.as_str()));
    }
    rules::default(&mut job["spec"]["selector"]["matchLabels"], CONTROLLER_UID[1], uid);
    default_labels(job);
}

fn warn_of_job(job: &Value, old: Option<&Value>) -> Vec<String> {
    let is_changed = old.is_none_or(|old| meta::generation(old) != meta::generation(job));
    let mut warnings = apps::warn_of_name(job, old);
    if is_changed {
        warnings.extend(warn_of_size(&job["spec"], "spec"));
    }
    warnings.extend(apps::warn_of_template(job, old, &job["spec"]["template"], "spec.template"));
    warnings
}

fn warn_of_cron_job(cron: &Value, old: Option<&Value>) -> Vec<String> {
    let is_changed = old.is_none_or(|old| meta::generation(old) != meta::generation(cron));
    let mut warnings = apps::warn_of_name(cron, old);
    let job = &cron["spec"]["jobTemplate"]["spec"];
    if is_changed {
        warnings.extend(warn_of_size(job, "spec.jobTemplate.spec"));
    }
    let place = "spec.jobTemplate.spec.template";
    warnings.extend(apps::warn_of_template(cron, old, &job["template"], place));
    warnings
}

fn warn_of_size(spec: &Value, path: &str) -> Option<String> {
    let number = |field: &str| spec[field].as_i64().unwrap_or(0);
    let is_large = spec["completionMode"] == "Indexed"
        && number("completions") > COMPLETIONS_WARN
        && number("parallelism") > PARALLELISM_WARN;
    is_large.then(|| {
        format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than \
             10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    })
}

fn job_columns() -> Vec<Column> {
    let [containers, images] = cell::template_columns();
    let (spec, status) = ("io.k8s.api.batch.v1.JobSpec", "io.k8s.api.batch.v1.JobStatus");
    vec![
        cell::name_column(),
        Column::new("Status", "string", 0, "Status of the job."),
        cell::documented("Completions", "string", 0, status, "succeeded"),
        Column::new("Duration", "string", 0, "Time required to complete the job."),
        cell::age_column(),
        containers,
        images,
        cell::documented("Selector", "string", 1, spec, "selector"),
    ]
}

fn job_row(job: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = cell::template_containers(&job["spec"]["template"]);
    vec![
        cell::name(job),
        Value::from(job_state(job)),
        Value::from(job_completions(job)),
        Value::from(job_duration(job, now)),
        cell::age(job, now),
        containers,
        images,
        Value::from(cell::selector(&job["spec"]["selector"])),
    ]
}

fn job_state(job: &Value) -> &'static str {
    match job {
        job if rules::has_condition(job, "Complete") => "Complete",
        job if rules::has_condition(job, "Failed") => "Failed",
        job if meta::is_deleting(job) => "Terminating",
        job if rules::has_condition(job, "Suspended") => "Suspended",
        job if rules::has_condition(job, "FailureTarget") => "FailureTarget",
        job if rules::has_condition(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        _ => "Running",
    }
}

fn job_completions(job: &Value) -> String {
    let succeeded = job["status"]["succeeded"].as_i64().unwrap_or(0);
    let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(0);
    match job["spec"]["completions"].as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let time = |field: &str| job["status"][field].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    match time("startTime") {
        Some(started) => meta::format_age(time("completionTime").unwrap_or(now), started),
        None => String::new(),
    }
}

fn cron_columns() -> Vec<Column> {
    let [containers, images] = cell::template_columns();
    let (spec, status) = ("io.k8s.api.batch.v1.CronJobSpec", "io.k8s.api.batch.v1.CronJobStatus");
    vec![
        cell::name_column(),
        cell::documented("Schedule", "string", 0, spec, "schedule"),
        cell::documented("Timezone", "string", 0, spec, "timeZone"),
        cell::documented("Suspend", "boolean", 0, spec, "suspend"),
        cell::documented("Active", "integer", 0, status, "active"),
        cell::documented("Last Schedule", "string", 0, status, "lastScheduleTime"),
        cell::age_column(),
        containers,
        images,
        cell::documented("Selector", "string", 1, "io.k8s.api.batch.v1.JobSpec", "selector"),
    ]
}

fn cron_row(cron: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&cron["spec"], &cron["status"]);
    let job = &spec["jobTemplate"]["spec"];
    let [containers, images] = cell::template_containers(&job["template"]);
    let last = match rules::is_set(&status["lastScheduleTime"]) {
        true => cell::since(&status["lastScheduleTime"], now),
        false => "<none>".to_owned(),
    };
    let suspend = match spec["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    vec![
        cell::name(cron),
        cell::text(&spec["schedule"]),
        Value::from(spec["timeZone"].as_str().unwrap_or("<none>")),
        Value::from(suspend),
        cell::length(&status["active"]),
        Value::from(last),
        cell::age(cron, now),
        containers,
        images,
        Value::from(cell::selector(&job["selector"])),
    ]
}

/// The root of every path here.
fn spec_path() -> Path<'static> {
    Path::root("spec")
}
