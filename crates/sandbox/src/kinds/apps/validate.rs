//! What a workload must look like.

use serde_json::{Value, json};

use super::super::rules::{self, Faults};
use super::super::{FieldError, Path, internal, names, pod_template};

const NO_MATCH: &str = "`selector` does not match template `labels`";
const TOO_MANY: &str = "cannot be greater than status.replicas";

pub(super) fn revision(revision: &Value, old: Option<&Value>) -> Faults {
    let data = Path::root("data");
    let mut errors: Faults =
        rules::non_negative(&revision["revision"], &Path::root("revision")).into_iter().collect();
    match (&revision["data"], old) {
        (Value::Object(_), None) => {}
        (Value::Null, None) => errors.push(FieldError::required(&data, "data is mandatory")),
        (_, None) => errors.push(FieldError::required(&data, "data must be a valid JSON object")),
        (new, Some(old)) => errors.extend(rules::immutable(new, &old["data"], &data)),
    }
    errors
}

pub(super) fn deployment(deployment: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &deployment["spec"];
    let mut errors: Faults =
        rules::non_negative(&spec["replicas"], &path.child("replicas")).into_iter().collect();
    errors.extend(selector_and_template(spec, &path));
    errors.extend(deployment_strategy(&spec["strategy"], &path.child("strategy")));
    errors.extend(rules::all_non_negative(spec, &path, &["minReadySeconds", "revisionHistoryLimit"]));
    let deadline = &spec["progressDeadlineSeconds"];
    let deadline_path = path.child("progressDeadlineSeconds");
    errors.extend(rules::non_negative(deadline, &deadline_path));
    if deadline.as_i64().is_some_and(|d| d <= spec["minReadySeconds"].as_i64().unwrap_or(0)) {
        let detail = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(&deadline_path, deadline.clone(), detail));
    }
    errors.extend(old.and_then(|old| same_selector(spec, &old["spec"])));
    errors
}

pub(super) fn replica_set(set: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &set["spec"];
    let mut errors: Faults = rules::all_non_negative(spec, &path, &["replicas", "minReadySeconds"]).collect();
    errors.extend(selector_and_template(spec, &path));
    errors.extend(old.and_then(|old| same_selector(spec, &old["spec"])));
    errors
}

fn same_selector(spec: &Value, old: &Value) -> Option<FieldError> {
    let root = Path::root("spec");
    let (new, old) = (&spec["selector"], &old["selector"]);
    rules::immutable_as(new, old, &rules::show_selector(new), &root.child("selector"))
}

/// What Deployments and ReplicaSets have in common.
fn selector_and_template(spec: &Value, path: &Path<'_>) -> Faults {
    let selector_path = path.child("selector");
    let template_path = path.child("template");
    let mut errors = required_selector(&spec["selector"], "deployment", &selector_path);
    let Ok(selector) = rules::selector(&spec["selector"]) else {
        let shown = rules::show_selector(&spec["selector"]);
        errors.push(rules::invalid_as(&selector_path, &shown, "invalid label selector"));
        return errors;
    };
    let template = &spec["template"];
    if !rules::is_empty_selector(&spec["selector"]) || spec["selector"].is_null() {
        let labels = &template["metadata"]["labels"];
        if !selector.matches(&rules::labels(labels)) {
            let path = template_path.child("metadata");
            errors.push(FieldError::invalid(&path.child("labels"), labels.clone(), NO_MATCH));
        }
    }
    errors.extend(pod_template::validate_template(template, &template_path));
    errors.extend(long_running(template, "ReplicaSet", &template_path));
    errors
}

fn required_selector(selector: &Value, kind: &str, path: &Path<'_>) -> Faults {
    if selector.is_null() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = rules::label_selector(selector, path);
    if rules::is_empty_selector(selector) {
        let detail = format!("empty selector is invalid for {kind}");
        errors.push(rules::invalid_as(path, &rules::show_selector(selector), &detail));
    }
    errors
}

/// Pods of these workloads start again and never end by themselves.
fn long_running(template: &Value, kind: &str, path: &Path<'_>) -> Faults {
    let spec = path.child("spec");
    let policy = &template["spec"]["restartPolicy"];
    let mut errors: Faults =
        rules::one_of(policy, &["Always"], &spec.child("restartPolicy")).into_iter().collect();
    if rules::is_set(&template["spec"]["activeDeadlineSeconds"]) {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(&spec.child("activeDeadlineSeconds"), detail));
    }
    errors
}

fn deployment_strategy(strategy: &Value, path: &Path<'_>) -> Faults {
    let rolling = path.child("rollingUpdate");
    match rules::text(&strategy["type"]) {
        "Recreate" if rules::is_set(&strategy["rollingUpdate"]) => {
            vec![FieldError::forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'")]
        }
        "Recreate" => Vec::new(),
        "RollingUpdate" => rolling_deployment(&strategy["rollingUpdate"], &rolling),
        _ => {
            let shown = internal::compact("DeploymentStrategy", strategy);
            vec![unsupported(path, &shown, &["Recreate", "RollingUpdate"])]
        }
    }
}

/// An unsupported value that is a struct of Go's.
fn unsupported(path: &Path<'_>, shown: &str, supported: &[&str]) -> FieldError {
    let mut error = FieldError::not_supported(path, Value::Null, supported.iter().copied());
    error.value = None;
    error.detail = format!("{shown}: {}", error.detail);
    error
}

fn rolling_deployment(rolling: &Value, path: &Path<'_>) -> Faults {
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    let (unavailable_path, surge_path) = (path.child("maxUnavailable"), path.child("maxSurge"));
    let mut errors = Vec::new();
    errors.extend(rules::positive_int_or_percent(unavailable, &unavailable_path));
    errors.extend(rules::positive_int_or_percent(surge, &surge_path));
    if rules::int_or_percent(unavailable) == 0 && rules::int_or_percent(surge) == 0 {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(&unavailable_path, unavailable.clone(), detail));
    }
    errors.extend(rules::at_most_100_percent(unavailable, &unavailable_path));
    errors
}

pub(super) fn daemon_set(set: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &set["spec"];
    let mut errors: Faults = old.and_then(|old| same_selector(spec, &old["spec"])).into_iter().collect();
    let selector_path = path.child("selector");
    let template_path = path.child("template");
    let may_keep = old.is_some_and(|old| rules::has_bad_values(&old["spec"]["selector"]));
    errors.extend(rules::label_selector_with(&spec["selector"], may_keep, &selector_path));
    let labels = &spec["template"]["metadata"]["labels"];
    if rules::selector(&spec["selector"]).is_ok_and(|s| !s.matches(&rules::labels(labels))) {
        let path = template_path.child("metadata");
        errors.push(FieldError::invalid(&path.child("labels"), labels.clone(), NO_MATCH));
    }
    if !spec["selector"].is_null() && rules::is_empty_selector(&spec["selector"]) {
        let detail = "empty selector is invalid for daemonset";
        errors.push(rules::invalid_as(&selector_path, &rules::show_selector(&spec["selector"]), detail));
    }
    errors.extend(pod_template::validate_template(&spec["template"], &template_path));
    errors.extend(long_running(&spec["template"], "DaemonSet", &template_path));
    errors.extend(rules::non_negative(&spec["minReadySeconds"], &path.child("minReadySeconds")));
    errors.extend(daemon_set_strategy(&spec["updateStrategy"], &path.child("updateStrategy")));
    errors.extend(rules::non_negative(&spec["revisionHistoryLimit"], &path.child("revisionHistoryLimit")));
    errors
}

fn daemon_set_strategy(strategy: &Value, path: &Path<'_>) -> Faults {
    match rules::text(&strategy["type"]) {
        "OnDelete" => Vec::new(),
        "RollingUpdate" => rolling_daemon_set(&strategy["rollingUpdate"], &path.child("rollingUpdate")),
        _ => {
            let shown = internal::compact("DaemonSetUpdateStrategy", strategy);
            vec![unsupported(path, &shown, &["RollingUpdate", "OnDelete"])]
        }
    }
}

fn rolling_daemon_set(rolling: &Value, path: &Path<'_>) -> Faults {
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    let (unavailable_path, surge_path) = (path.child("maxUnavailable"), path.child("maxSurge"));
    let mut errors = Vec::new();
    errors.extend(rules::positive_int_or_percent(unavailable, &unavailable_path));
    errors.extend(rules::positive_int_or_percent(surge, &surge_path));
    errors.extend(rules::at_most_100_percent(unavailable, &unavailable_path));
    errors.extend(rules::at_most_100_percent(surge, &surge_path));
    match (rules::int_or_percent(unavailable) != 0, rules::int_or_percent(surge) != 0) {
        (true, true) => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(FieldError::invalid(&surge_path, surge.clone(), detail));
        }
        (false, false) => {
            errors.push(FieldError::required(&unavailable_path, "cannot be 0 when maxSurge is 0"));
        }
        _ => {}
    }
    errors
}

/// What of a StatefulSet may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

pub(super) fn stateful_set(set: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &set["spec"];
    // What an old object got away with is not held against its next version.
    let skip_template =
        old.is_some_and(|old| !stateful_set_spec(&old["spec"], &path, true, false).is_empty());
    let mut errors = stateful_set_spec(spec, &path, old.is_some(), skip_template);
    let frozen = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            MUTABLE.iter().for_each(|field| drop(fields.remove(*field)));
        }
        spec
    };
    if old.is_some_and(|old| !rules::same(&frozen(spec), &frozen(&old["spec"]))) {
        errors.push(FieldError::forbidden(
            &path,
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
             'minReadySeconds' are forbidden",
        ));
    }
    errors
}

fn stateful_set_spec(spec: &Value, path: &Path<'_>, is_update: bool, skip_template: bool) -> Faults {
    let mut errors = Vec::new();
    let policy = rules::text(&spec["podManagementPolicy"]);
    if !["OrderedReady", "Parallel"].contains(&policy) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(&path.child("podManagementPolicy"), policy, detail));
    }
    errors.extend(stateful_set_strategy(&spec["updateStrategy"], &path.child("updateStrategy")));
    let retention = path.child("persistentVolumeClaimRetentionPolicy");
    for moment in ["whenDeleted", "whenScaled"] {
        let value = &spec["persistentVolumeClaimRetentionPolicy"][moment];
        errors.extend(rules::one_of(value, &["Retain", "Delete"], &retention.child(moment)));
    }
    if !is_update {
        let claims = path.child("volumeClaimTemplates");
        for (i, claim) in rules::list(&spec["volumeClaimTemplates"]).iter().enumerate() {
            pod_template::claim_spec(&claim["spec"], &claims.index(i).child("spec"), &mut errors);
        }
    }
    errors.extend(rules::all_non_negative(spec, path, &["replicas", "minReadySeconds"]));
    errors.extend(rules::non_negative(&spec["ordinals"]["start"], &path.child("ordinals.start")));
    let service = rules::text(&spec["serviceName"]);
    if !is_update && !service.is_empty() {
        errors.extend(rules::faults(names::is_label(service), service, &path.child("serviceName")));
    }
    let selector_path = path.child("selector");
    errors.extend(required_selector(&spec["selector"], "statefulset", &selector_path));
    let template_path = path.child("template");
    match rules::selector(&spec["selector"]) {
        Err(_) => {
            let shown = rules::show_selector(&spec["selector"]);
            errors.push(rules::invalid_as(&selector_path, &shown, ""));
        }
        Ok(selector) => {
            let labels = &spec["template"]["metadata"]["labels"];
            let is_any = !spec["selector"].is_null() && rules::is_empty_selector(&spec["selector"]);
            if !is_any && !selector.matches(&rules::labels(labels)) {
                let path = template_path.child("metadata");
                errors.push(FieldError::invalid(&path.child("labels"), labels.clone(), NO_MATCH));
            }
            if !skip_template {
                errors.extend(pod_template::validate_template(&completed_template(spec), &template_path));
            }
        }
    }
    errors.extend(long_running(&spec["template"], "StatefulSet", &template_path));
    errors
}

/// The template with what the controller will add to it: one volume per claim, names of its own.
fn completed_template(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims = rules::list(&spec["volumeClaimTemplates"]).iter().map(|c| &c["metadata"]["name"]);
    let claims: Vec<&Value> = claims.collect();
    if let Some(pod) = template["spec"].as_object_mut() {
        pod.remove("subdomain");
        pod.remove("hostname");
        if !claims.is_empty() {
            let volumes = pod.remove("volumes").unwrap_or_default();
            let own = rules::list(&volumes).iter().filter(|v| !claims.contains(&&v["name"])).cloned();
            let added =
                claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
            pod.insert("volumes".to_owned(), added.chain(own).collect());
        }
    }
    template
}

fn stateful_set_strategy(strategy: &Value, path: &Path<'_>) -> Faults {
    let rolling = &strategy["rollingUpdate"];
    let at = path.child("rollingUpdate");
    match rules::text(&strategy["type"]) {
        "OnDelete" if rules::is_set(rolling) => {
            let shown = internal::compact("RollingUpdateStatefulSetStrategy", rolling);
            vec![rules::invalid_as(&at, &shown, "only allowed for updateStrategy 'RollingUpdate'")]
        }
        "OnDelete" => Vec::new(),
        "RollingUpdate" => {
            rules::non_negative(&rolling["partition"], &at.child("partition")).into_iter().collect()
        }
        _ => {
            let shown = internal::compact("StatefulSetUpdateStrategy", strategy);
            vec![rules::invalid_as(path, &shown, "must be 'RollingUpdate' or 'OnDelete'")]
        }
    }
}

/// Numbers of which none may exceed another.
fn not_more(status: &Value, field: &str, than: &str, detail: &str, path: &Path<'_>) -> Option<FieldError> {
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    (number(field) > number(than)).then(|| FieldError::invalid(&path.child(field), number(field), detail))
}

pub(super) fn deployment_status(deployment: &Value, old: &Value) -> Faults {
    let path = Path::root("status");
    let status = &deployment["status"];
    let fields = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    let mut errors: Faults = rules::all_non_negative(status, &path, &fields).collect();
    for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        errors.extend(not_more(status, field, "replicas", TOO_MANY, &path));
    }
    let detail = "cannot be greater than readyReplicas";
    errors.extend(not_more(status, "availableReplicas", "readyReplicas", detail, &path));
    errors.extend(collisions(status, old, &path));
    errors
}

fn collisions(status: &Value, old: &Value, path: &Path<'_>) -> Option<FieldError> {
    let field = "collisionCount";
    rules::not_decremented(&status[field], &old["status"][field], &path.child(field))
}

pub(super) fn replica_set_status(set: &Value, _: &Value) -> Faults {
    let path = Path::root("status");
    let status = &set["status"];
    let fields = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    let mut errors: Faults = rules::all_non_negative(status, &path, &fields).collect();
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        errors.extend(not_more(status, field, "replicas", TOO_MANY, &path));
    }
    let detail = "cannot be greater than readyReplicas";
    errors.extend(not_more(status, "availableReplicas", "readyReplicas", detail, &path));
    errors
}

pub(super) fn stateful_set_status(set: &Value, old: &Value) -> Faults {
    let path = Path::root("status");
    let status = &set["status"];
    let fields = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    let mut errors: Faults = rules::all_non_negative(status, &path, &fields).collect();
    for field in ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"] {
        errors.extend(not_more(status, field, "replicas", TOO_MANY, &path));
    }
    let detail = "cannot be greater than status.readyReplicas";
    errors.extend(not_more(status, "availableReplicas", "readyReplicas", detail, &path));
    errors.extend(collisions(status, old, &path));
    errors
}

pub(super) fn daemon_set_status(set: &Value, old: &Value) -> Faults {
    let path = Path::root("status");
    let status = &set["status"];
    let fields = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    let mut errors: Faults = rules::all_non_negative(status, &path, &fields).collect();
    errors.extend(collisions(status, old, &path));
    errors
}
