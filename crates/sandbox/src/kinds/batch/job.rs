//! What a Job must look like.

use serde_json::Value;

use super::super::rules::{self, Faults};
use super::super::{Fault, FieldError, Path, internal, meta, names, pod_template, quote};
use super::{CONTROLLER_UID, JOB_NAME, spec_path, status};

const PARALLELISM_INDEXED_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
/// Above this many completions, less of everything else is allowed.
const COMPLETIONS_HIGH: i64 = 100_000;
const PARALLELISM_HIGH_MAX: i64 = 10_000;
const FAILED_INDEXES_HIGH_MAX: i64 = 10_000;
const FAILURE_RULES_MAX: i64 = 20;
const EXIT_CODES_MAX: i64 = 255;
const CONDITION_PATTERNS_MAX: i64 = 20;
const MANAGED_BY_MAX: i64 = 63;
const SUCCEEDED_INDEXES_MAX: i64 = 64 * 1024;
const SUCCESS_RULES_MAX: i64 = 20;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

pub(super) fn validate(job: &Value, old: Option<&Value>) -> Faults {
    let path = spec_path();
    let spec = &job["spec"];
    let mut errors = generated_selector(job, old);
    errors.extend(job_spec(spec, &path));
    errors.extend(own_selector(spec, old, &path));
    if spec["completionMode"] == "Indexed"
        && let Some(completions) = spec["completions"].as_i64().filter(|number| *number > 0)
    {
        let host = format!("{}-{}", meta::name(job), completions - 1);
        if !names::is_label(&host).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            let metadata = Path::root("metadata");
            errors.push(FieldError::invalid(&metadata.child("name"), meta::name(job), detail));
        }
    }
    if let Some(old) = old {
        // Kubernetes judges the new spec twice, and lists causes twice.
        errors.extend(job_spec(spec, &path));
        errors.extend(own_selector(spec, Some(old), &path));
        errors.extend(changes(job, old, &path));
    }
    errors
}

/// A selector and template labels that the server made must stay what it made them.
fn generated_selector(job: &Value, old: Option<&Value>) -> Faults {
    if job["spec"]["manualSelector"] == true || job["spec"]["selector"].is_null() {
        return Vec::new();
    }
    let spec = spec_path();
    let template = spec.child("template");
    let metadata = template.child("metadata");
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let had =
        |key: &str| old.is_none_or(|old| rules::is_set(&old["spec"]["template"]["metadata"]["labels"][key]));
    let with_prefix = had(JOB_NAME[1]) && had(CONTROLLER_UID[1]);
    let (name, uid) = (meta::name(job), meta::uid(job));
    let mut expected = vec![(CONTROLLER_UID[0], uid), (JOB_NAME[0], name)];
    if with_prefix {
        expected.extend([(CONTROLLER_UID[1], uid), (JOB_NAME[1], name)]);
    }
    let mut errors = Vec::new();
    for (key, wanted) in &expected {
        let path = metadata.child("labels");
        match labels[*key].as_str() {
            None => errors.push(FieldError::required(&path.key(key), format!("must be '{wanted}'"))),
            Some(found) if found != *wanted => {
                let detail = format!("must be '{wanted}'");
                errors.push(FieldError::invalid(&path.key(key), labels.clone(), detail));
            }
            Some(_) => {}
        }
    }
    let expected = expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let selector = &job["spec"]["selector"];
    let expected: std::collections::BTreeMap<String, String> = expected;
    if rules::selector(selector).is_ok_and(|compiled| !compiled.matches(&expected)) {
        let shown = rules::show_selector(selector);
        errors.push(rules::invalid_as(&spec.child("selector"), &shown, "`selector` not auto-generated"));
    }
    errors
}

fn own_selector(spec: &Value, old: Option<&Value>, path: &Path<'_>) -> Faults {
    let selector = path.child("selector");
    let may_keep = old.is_some_and(|old| rules::has_bad_values(&old["spec"]["selector"]));
    let mut errors = match spec["selector"].is_null() {
        true => vec![FieldError::required(&selector, "")],
        false => rules::label_selector_with(&spec["selector"], may_keep, &selector),
    };
    let labels = &spec["template"]["metadata"]["labels"];
    if rules::selector(&spec["selector"]).is_ok_and(|s| !s.matches(&rules::labels(labels))) {
        let template = path.child("template");
        let metadata = template.child("metadata");
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(&metadata.child("labels"), labels.clone(), detail));
    }
    errors
}

/// What holds for the spec of a Job and inside a CronJob.
pub(super) fn job_spec(spec: &Value, path: &Path<'_>) -> Faults {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    let mut errors: Faults = rules::all_non_negative(spec, path, &numbers).collect();
    if rules::is_set(&spec["maxFailedIndexes"]) && spec["backoffLimitPerIndex"].is_null() {
        let detail = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(&path.child("backoffLimitPerIndex"), detail));
    }
    errors.extend(managed_by(&spec["managedBy"], &path.child("managedBy")));
    errors.extend(completion_mode(spec, path));
    if rules::is_set(&spec["podFailurePolicy"]) {
        errors.extend(failure_policy(spec, &path.child("podFailurePolicy")));
    }
    if rules::is_set(&spec["successPolicy"]) {
        let at = path.child("successPolicy");
        match spec["completionMode"] == "Indexed" {
            true => errors.extend(success_policy(spec, &at)),
            false => {
                let shown = internal::compact("SuccessPolicy", &spec["successPolicy"]);
                errors.push(rules::invalid_as(&at, &shown, "requires indexed completion mode"));
            }
        }
    }
    errors.extend(replacement_policy(spec, &path.child("podReplacementPolicy")));
    let template = path.child("template");
    errors.extend(pod_template::validate_template(&spec["template"], &template));
    errors.extend(restart_policy(spec, &template));
    errors
}

fn managed_by(value: &Value, path: &Path<'_>) -> Faults {
    let Some(name) = value.as_str() else { return Vec::new() };
    let mut errors = rules::domain_prefixed_path(name, path);
    if rules::length(name) > MANAGED_BY_MAX {
        errors.push(FieldError::too_long(path, MANAGED_BY_MAX));
    }
    errors
}

fn completion_mode(spec: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let mode = &spec["completionMode"];
    if rules::is_set(mode) {
        errors.extend(rules::one_of(mode, &["NonIndexed", "Indexed"], &path.child("completionMode")));
    }
    if mode == "Indexed" {
        errors.extend(indexed(spec, path));
    }
    if mode.is_null() || mode == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if rules::is_set(&spec[field]) {
                let detail = "requires indexed completion mode";
                errors.push(FieldError::invalid(&path.child(field), spec[field].clone(), detail));
            }
        }
    }
    errors
}

fn indexed(spec: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let number = |field: &str| spec[field].as_i64();
    let (completions, parallelism) = (number("completions"), number("parallelism"));
    let failed = number("maxFailedIndexes");
    let too_many = |field: &'static str, found: Option<i64>, max: i64, detail: String| {
        let found = found.filter(|found| *found > max)?;
        Some(FieldError::invalid(&path.child(field), found, detail))
    };
    if completions.is_none() {
        errors.push(FieldError::required(&path.child("completions"), "when completion mode is Indexed"));
    }
    let detail =
        format!("must be less than or equal to {PARALLELISM_INDEXED_MAX} when completion mode is Indexed");
    errors.extend(too_many("parallelism", parallelism, PARALLELISM_INDEXED_MAX, detail));
    if let Some(completions) = completions {
        let detail = "must be less than or equal to completions".to_owned();
        errors.extend(too_many("maxFailedIndexes", failed, completions, detail));
    }
    let detail = format!("must be less than or equal to {FAILED_INDEXES_MAX}");
    errors.extend(too_many("maxFailedIndexes", failed, FAILED_INDEXES_MAX, detail));
    if completions.is_some_and(|c| c > COMPLETIONS_HIGH) && number("backoffLimitPerIndex").is_some() {
        if failed.is_none() {
            let detail = format!("must be specified when completions is above {COMPLETIONS_HIGH}");
            errors.push(FieldError::required(&path.child("maxFailedIndexes"), detail));
        }
        let detail = |max: i64| {
            format!(
                "must be less than or equal to {max} when completions are above {COMPLETIONS_HIGH} and used with \
                 backoff limit per index"
            )
        };
        let (most, failed_most) = (PARALLELISM_HIGH_MAX, FAILED_INDEXES_HIGH_MAX);
        errors.extend(too_many("parallelism", parallelism, most, detail(most)));
        errors.extend(too_many("maxFailedIndexes", failed, failed_most, detail(failed_most)));
    }
    errors
}

fn restart_policy(spec: &Value, template: &Path<'_>) -> Option<FieldError> {
    let pod = template.child("spec");
    let path = pod.child("restartPolicy");
    match rules::text(&spec["template"]["spec"]["restartPolicy"]) {
        "" | "Always" => Some(FieldError::required(&path, "valid values: \"OnFailure\", \"Never\"")),
        "Never" => None,
        "OnFailure" if rules::is_set(&spec["podFailurePolicy"]) => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            Some(FieldError::invalid(&path, "OnFailure", detail))
        }
        "OnFailure" => None,
        other => Some(FieldError::not_supported(&path, other, ["OnFailure", "Never"])),
    }
}

fn replacement_policy(spec: &Value, path: &Path<'_>) -> Option<FieldError> {
    let policy = &spec["podReplacementPolicy"];
    match (policy.is_null(), spec["podFailurePolicy"].is_null()) {
        (true, _) => None,
        (false, false) => rules::one_of(policy, &["Failed"], path),
        (false, true) => rules::one_of(policy, &["Failed", "TerminatingOrFailed"], path),
    }
}

/// The texts a required choice offers, as Go prints a list of them.
fn choices(values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|value| quote(value)).collect();
    format!("valid values: [{}]", values.join(" "))
}

fn too_many(list: &[Value], max: i64, path: &Path<'_>) -> Option<FieldError> {
    let found = i64::try_from(list.len()).unwrap_or(i64::MAX);
    (found > max).then(|| FieldError::too_many(path, found, max))
}

fn failure_policy(spec: &Value, path: &Path<'_>) -> Faults {
    let rules_path = path.child("rules");
    let rules = rules::list(&spec["podFailurePolicy"]["rules"]);
    let mut errors: Faults = too_many(rules, FAILURE_RULES_MAX, &rules_path).into_iter().collect();
    for (i, rule) in rules.iter().enumerate() {
        errors.extend(failure_rule(spec, rule, &rules_path.index(i)));
    }
    errors
}

fn failure_rule(spec: &Value, rule: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let action_path = path.child("action");
    match rules::text(&rule["action"]) {
        "" => errors.push(FieldError::required(&action_path, choices(&ACTIONS))),
        "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid(&action_path, "FailIndex", detail));
        }
        _ => errors.extend(rules::one_of(&rule["action"], &ACTIONS, &action_path)),
    }
    let has_codes = rules::is_set(&rule["onExitCodes"]);
    let patterns = rules::list(&rule["onPodConditions"]);
    if has_codes {
        errors.extend(exit_codes(spec, &rule["onExitCodes"], &path.child("onExitCodes")));
    }
    if !patterns.is_empty() {
        errors.extend(condition_patterns(patterns, &path.child("onPodConditions")));
    }
    let detail = match (has_codes, !patterns.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return errors,
    };
    errors.push(FieldError::new(Fault::Invalid, path, None, detail));
    errors
}

fn condition_patterns(patterns: &[Value], path: &Path<'_>) -> Faults {
    let mut errors: Faults = too_many(patterns, CONDITION_PATTERNS_MAX, path).into_iter().collect();
    for (i, pattern) in patterns.iter().enumerate() {
        let at = path.index(i);
        let kind = rules::text(&pattern["type"]);
        errors.extend(rules::faults(names::is_qualified_name(kind), kind, &at.child("type")));
        match rules::text(&pattern["status"]) {
            "" => errors.push(FieldError::required(&at.child("status"), choices(&STATUSES))),
            _ => errors.extend(rules::one_of(&pattern["status"], &STATUSES, &at.child("status"))),
        }
    }
    errors
}

fn exit_codes(spec: &Value, rule: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let operator = rules::text(&rule["operator"]);
    match operator {
        "" => errors.push(FieldError::required(&path.child("operator"), choices(&OPERATORS))),
        _ => errors.extend(rules::one_of(&rule["operator"], &OPERATORS, &path.child("operator"))),
    }
    if let Some(name) = rule["containerName"].as_str() {
        let pod = &spec["template"]["spec"];
        let mut containers =
            rules::list(&pod["containers"]).iter().chain(rules::list(&pod["initContainers"]));
        if !containers.any(|container| container["name"] == name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(&path.child("containerName"), name, detail));
        }
    }
    let values = rules::list(&rule["values"]);
    let values_path = path.child("values");
    if values.is_empty() {
        let found = Value::Array(Vec::new());
        errors.push(FieldError::invalid(&values_path, found, "at least one value is required"));
    }
    errors.extend(too_many(values, EXIT_CODES_MAX, &values_path));
    for (i, value) in values.iter().enumerate() {
        let at = values_path.index(i);
        if operator == "In" && value == 0 {
            errors.push(FieldError::invalid(&at, value.clone(), "must not be 0 for the In operator"));
        }
        if values[..i].contains(value) {
            errors.push(FieldError::duplicate(&at, value.clone()));
        }
    }
    if !values.is_sorted_by_key(|value| value.as_i64()) {
        errors.push(FieldError::invalid(&values_path, rule["values"].clone(), "must be ordered"));
    }
    errors
}

fn success_policy(spec: &Value, path: &Path<'_>) -> Faults {
    let rules_path = path.child("rules");
    let rules = rules::list(&spec["successPolicy"]["rules"]);
    let mut errors = Vec::new();
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(&rules_path, detail));
    }
    errors.extend(too_many(rules, SUCCESS_RULES_MAX, &rules_path));
    let completions = spec["completions"].as_i64().unwrap_or(0);
    for (i, rule) in rules.iter().enumerate() {
        errors.extend(success_rule(rule, completions, &rules_path.index(i)));
    }
    errors
}

fn success_rule(rule: &Value, completions: i64, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let (count, indexes) = (&rule["succeededCount"], &rule["succeededIndexes"]);
    if count.is_null() && indexes.is_null() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let mut total = 0;
    if let Some(indexes) = indexes.as_str() {
        let at = path.child("succeededIndexes");
        if rules::length(indexes) > SUCCEEDED_INDEXES_MAX {
            errors.push(FieldError::too_long(&at, SUCCEEDED_INDEXES_MAX));
        }
        match status::count_indexes(indexes, completions) {
            Ok(count) => total = count,
            Err(why) => {
                let detail = format!("error parsing succeededIndexes: {why}");
                errors.push(FieldError::invalid(&at, indexes, detail));
            }
        }
    }
    if let Some(count) = count.as_i64() {
        let at = path.child("succeededCount");
        errors.extend(rules::non_negative(&rule["succeededCount"], &at));
        let detail =
            |max: i64, what: &str| format!("must be less than or equal to {max} (the number of {what})");
        if count > completions {
            let detail = detail(completions, "specified completions");
            errors.push(FieldError::invalid(&at, count, detail));
        }
        if indexes.is_string() && count > total {
            let detail = detail(total, "indexes in the specified succeededIndexes field");
            errors.push(FieldError::invalid(&at, count, detail));
        }
    }
    errors
}

/// What of a Job may not change, or only together.
fn changes(job: &Value, old_job: &Value, path: &Path<'_>) -> Faults {
    let (spec, old) = (&job["spec"], &old_job["spec"]);
    let mut errors = completions(spec, old, &path.child("completions"));
    let selector = &spec["selector"];
    let shown = rules::show_selector(selector);
    errors.extend(rules::immutable_as(selector, &old["selector"], &shown, &path.child("selector")));
    errors.extend(template_change(job, old_job, &path.child("template")));
    for (field, kind) in [
        ("completionMode", "*string"),
        ("podFailurePolicy", "*PodFailurePolicy"),
        ("backoffLimitPerIndex", "*int"),
        ("managedBy", "*string"),
        ("successPolicy", "*SuccessPolicy"),
    ] {
        let shown = internal::compact(kind, &spec[field]);
        errors.extend(rules::immutable_as(&spec[field], &old[field], &shown, &path.child(field)));
    }
    errors
}

fn completions(spec: &Value, old: &Value, path: &Path<'_>) -> Faults {
    let completions = &spec["completions"];
    if spec["completionMode"] != "Indexed" {
        return rules::immutable(completions, &old["completions"], path).into_iter().collect();
    }
    let is_alone = completions != &old["completions"] && !completions.is_null();
    if is_alone && completions != &spec["parallelism"] {
        let detail = "can only be modified in tandem with spec.parallelism";
        return vec![FieldError::invalid(path, completions.clone(), detail)];
    }
    Vec::new()
}

/// A job that has not started may still be told where its pods go.
fn template_change(job: &Value, old: &Value, path: &Path<'_>) -> Option<FieldError> {
    let template = &job["spec"]["template"];
    let mut allowed = old["spec"]["template"].clone();
    let is_waiting = old["spec"]["suspend"] == true && old["status"]["startTime"].is_null();
    if is_waiting {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            allowed["spec"][field] = template["spec"][field].clone();
        }
        for field in ["annotations", "labels"] {
            allowed["metadata"][field] = template["metadata"][field].clone();
        }
        let affinity = template["spec"]["affinity"].get("nodeAffinity").cloned().unwrap_or_default();
        allowed["spec"]["affinity"]["nodeAffinity"] = affinity;
        let rest = allowed["spec"]["affinity"].as_object();
        if rest.is_none_or(|rest| rest.values().all(Value::is_null)) {
            allowed["spec"]["affinity"] = template["spec"]["affinity"].clone();
        }
    }
    rules::immutable_as(template, &allowed, &show_template(template), path)
}

/// A template as Go prints it: its metadata's fields stand beside its spec.
fn show_template(template: &Value) -> String {
    let fields =
        ["name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers"];
    let fields = fields.into_iter().filter(|field| rules::is_set(&template["metadata"][*field]));
    let mut parts: Vec<String> =
        fields.map(|field| format!("{}:{}", quote(field), template["metadata"][field])).collect();
    parts.push(format!("\"Spec\":{}", internal::compact("PodSpec", &template["spec"])));
    format!("{{{}}}", parts.join(","))
}
