//! The apps group: workloads and their history.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Hooks, Kind, Path, ScalePaths, Subresource, cell, meta, names, pod_template, rules};

mod validate;

/// Where apps/v1 keeps the template's generation, which only older versions had as a field.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn kinds() -> Vec<Kind> {
    let workload = |kind, plural, short: &'static str| {
        Kind::builtin("apps/v1", kind, plural).short(&[short]).category("all").generation()
    };
    let scaled = |kind: Kind| kind.subresource(Subresource::Scale(ScalePaths::workload())).status();
    vec![
        Kind::builtin("apps/v1", "ControllerRevision", "controllerrevisions")
            .columns(revision_columns())
            .hooks(Hooks { validate: validate::revision, row: revision_row, ..Hooks::default() }),
        workload("DaemonSet", "daemonsets", "ds").status().columns(daemon_set_columns()).hooks(Hooks {
            default: default_daemon_set,
            prepare_create: prepare_daemon_set,
            prepare_update: prepare_daemon_set_update,
            validate: validate::daemon_set,
            validate_status: validate::daemon_set_status,
            warn: warn_of_daemon_set,
            row: daemon_set_row,
            ..Hooks::default()
        }),
        scaled(workload("Deployment", "deployments", "deploy")).columns(deployment_columns()).hooks(Hooks {
            default: default_deployment,
            prepare_update: count_annotations,
            prepare_status: keep_labels,
            validate: validate::deployment,
            validate_status: validate::deployment_status,
            warn,
            row: deployment_row,
            ..Hooks::default()
        }),
        scaled(workload("ReplicaSet", "replicasets", "rs")).columns(replica_set_columns()).hooks(Hooks {
            default: default_replica_set,
            validate: validate::replica_set,
            validate_status: validate::replica_set_status,
            warn,
            row: replica_set_row,
            ..Hooks::default()
        }),
        scaled(workload("StatefulSet", "statefulsets", "sts")).columns(stateful_set_columns()).hooks(Hooks {
            name: names::label,
            default: default_stateful_set,
            prepare_create: drop_max_unavailable,
            prepare_update: |set, _| drop_max_unavailable(set),
            validate: validate::stateful_set,
            validate_status: validate::stateful_set_status,
            warn: warn_of_stateful_set,
            row: stateful_set_row,
            ..Hooks::default()
        }),
    ]
}

/// The path of a workload's template.
const TEMPLATE: &str = "spec.template";

/// Warnings of a template, once for each wish.
pub(super) fn warn_of_template(
    object: &Value,
    old: Option<&Value>,
    template: &Value,
    place: &str,
) -> Vec<String> {
    match old.is_none_or(|old| meta::generation(old) != meta::generation(object)) {
        true => pod_template::warnings(template, Some(&Path::root(place))),
        false => Vec::new(),
    }
}

fn warn(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = warn_of_name(object, old);
    warnings.extend(warn_of_template(object, old, &object["spec"]["template"], TEMPLATE));
    warnings
}

fn warn_of_daemon_set(set: &Value, old: Option<&Value>) -> Vec<String> {
    let is_changed = old.is_none_or(|old| template_generation(old) != template_generation(set));
    match is_changed {
        true => pod_template::warnings(&set["spec"]["template"], Some(&Path::root(TEMPLATE))),
        false => Vec::new(),
    }
}

/// Names of pods and hosts are made from the workload's name.
pub(super) fn warn_of_name(object: &Value, old: Option<&Value>) -> Vec<String> {
    let faults = names::is_label(meta::name(object));
    if old.is_some() || faults.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
         label is recommended: [{}]",
        faults.join(" ")
    )]
}

fn warn_of_stateful_set(set: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = warn_of_template(set, old, &set["spec"]["template"], TEMPLATE);
    for (i, claim) in rules::list(&set["spec"]["volumeClaimTemplates"]).iter().enumerate() {
        // Kubernetes spells the two places differently.
        let below = if old.is_some() { ".Spec" } else { "" };
        let place = format!("spec.volumeClaimTemplates[{i}]{below}");
        pod_template::claim_warnings(&claim["spec"], &Path::root(&place), &mut warnings);
    }
    if let Some(..0) = set["spec"]["revisionHistoryLimit"].as_i64() {
        let warning = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                       recommended";
        warnings.push(warning.to_owned());
    }
    warnings
}

fn default_deployment(deployment: &mut Value) {
    let spec = &mut deployment["spec"];
    rules::default(spec, "replicas", 1);
    let strategy = &mut spec["strategy"];
    rules::default_text(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        rules::default(&mut strategy["rollingUpdate"], "maxUnavailable", "25%");
        rules::default(&mut strategy["rollingUpdate"], "maxSurge", "25%");
    }
    rules::default(spec, "revisionHistoryLimit", 10);
    rules::default(spec, "progressDeadlineSeconds", 600);
    pod_template::default_spec(&mut spec["template"]["spec"]);
}

fn default_replica_set(set: &mut Value) {
    rules::default(&mut set["spec"], "replicas", 1);
    pod_template::default_spec(&mut set["spec"]["template"]["spec"]);
}

fn default_daemon_set(set: &mut Value) {
    // There from the start, so that its writer is noted like that of any other field.
    let generation = template_generation(set);
    set_template_generation(set, generation);
    let spec = &mut set["spec"];
    let strategy = &mut spec["updateStrategy"];
    rules::default_text(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        rules::default(&mut strategy["rollingUpdate"], "maxUnavailable", 1);
        rules::default(&mut strategy["rollingUpdate"], "maxSurge", 0);
    }
    rules::default(spec, "revisionHistoryLimit", 10);
    pod_template::default_spec(&mut spec["template"]["spec"]);
}

fn default_stateful_set(set: &mut Value) {
    let spec = &mut set["spec"];
    rules::default_text(spec, "podManagementPolicy", "OrderedReady");
    let strategy = &mut spec["updateStrategy"];
    if rules::text(&strategy["type"]).is_empty() {
        strategy["type"] = json!("RollingUpdate");
        rules::default(strategy, "rollingUpdate", json!({}));
    }
    if strategy["type"] == "RollingUpdate" && rules::is_set(&strategy["rollingUpdate"]) {
        rules::default(&mut strategy["rollingUpdate"], "partition", 0);
    }
    for moment in ["whenDeleted", "whenScaled"] {
        rules::default_text(&mut spec["persistentVolumeClaimRetentionPolicy"], moment, "Retain");
    }
    rules::default(spec, "replicas", 1);
    rules::default(spec, "revisionHistoryLimit", 10);
    for claim in rules::each(spec, "volumeClaimTemplates") {
        rules::default_text(claim, "apiVersion", "v1");
        rules::default_text(claim, "kind", "PersistentVolumeClaim");
        rules::default_text(&mut claim["status"], "phase", "Pending");
        pod_template::defaults::claim_spec(&mut claim["spec"]);
    }
    pod_template::default_spec(&mut spec["template"]["spec"]);
}

/// The field belongs to a feature that is off in this version.
fn drop_max_unavailable(set: &mut Value) {
    let rolling = set["spec"]["updateStrategy"].get_mut("rollingUpdate").and_then(Value::as_object_mut);
    if let Some(rolling) = rolling {
        rolling.remove("maxUnavailable");
    }
}

/// Annotations of a Deployment reach its ReplicaSets, so they count as a change of what is wanted.
fn count_annotations(deployment: &mut Value, old: &Value) {
    let annotations = |object: &Value| object["metadata"].get("annotations").cloned().unwrap_or_default();
    if !rules::same(&annotations(deployment), &annotations(old)) {
        meta::set(deployment, "generation", Some(Value::from(meta::generation(old) + 1)));
    }
}

fn keep_labels(deployment: &mut Value, old: &Value) {
    meta::set(deployment, "labels", old["metadata"].get("labels").cloned());
}

fn template_generation(set: &Value) -> i64 {
    let annotations = set["metadata"].get("annotations").and_then(|all| all.get(TEMPLATE_GENERATION));
    annotations.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(set: &mut Value, generation: i64) {
    set["metadata"]["annotations"][TEMPLATE_GENERATION] = Value::from(generation.to_string());
}

fn prepare_daemon_set(set: &mut Value) {
    let generation = template_generation(set).max(1);
    set_template_generation(set, generation);
}

fn prepare_daemon_set_update(set: &mut Value, old: &Value) {
    let is_changed = !rules::same(&set["spec"]["template"], &old["spec"]["template"]);
    set_template_generation(set, template_generation(old) + i64::from(is_changed));
}

fn revision_columns() -> Vec<Column> {
    vec![
        cell::name_column(),
        Column::new("Controller", "string", 0, "Controller of the object"),
        Column::new(
            "Revision",
            "string",
            0,
            "revision indicates the revision of the state represented by Data.",
        ),
        cell::age_column(),
    ]
}

fn revision_row(revision: &Value, now: Timestamp) -> Vec<Value> {
    let owners = rules::list(&revision["metadata"]["ownerReferences"]);
    let owner = owners.iter().find(|owner| owner["controller"] == true).map(|owner| {
        let kind = rules::text(&owner["kind"]);
        let kind = match rules::text(&owner["apiVersion"]).split_once('/') {
            Some((group, _)) => format!("{kind}.{group}"),
            None => kind.to_owned(),
        };
        format!("{}/{}", kind.to_lowercase(), rules::text(&owner["name"]))
    });
    vec![
        cell::name(revision),
        Value::from(owner.unwrap_or_else(|| "<none>".to_owned())),
        cell::count(&revision["revision"]),
        cell::age(revision, now),
    ]
}

/// Columns describe these fields as the version of old did that the Tables were made for.
const DAEMON_SET_READY: &str = "The number of nodes that should be running the daemon pod and have one or more of the \
    daemon pod running and ready.";
const DAEMON_SET_SELECTOR: &str = "A label query over pods that are managed by the daemon set. Must match in order to \
    be controlled. If empty, defaulted to labels on Pod template. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";
const DEPLOYMENT_SELECTOR: &str = "Label selector for pods. Existing ReplicaSets whose pods are selected by this will \
    be the ones affected by this deployment.";
const REPLICA_SET_SELECTOR: &str = "Selector is a label query over pods that should match the replica count. If the \
    selector is empty, it is defaulted to the labels present on the pod template. Label keys and values that must \
    match in order to be controlled by this replica set. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

fn daemon_set_columns() -> Vec<Column> {
    let status = "io.k8s.api.apps.v1.DaemonSetStatus";
    let [containers, images] = cell::template_columns();
    vec![
        cell::name_column(),
        cell::documented("Desired", "integer", 0, status, "desiredNumberScheduled"),
        cell::documented("Current", "integer", 0, status, "currentNumberScheduled"),
        Column::new("Ready", "integer", 0, DAEMON_SET_READY),
        cell::documented("Up-to-date", "integer", 0, status, "updatedNumberScheduled"),
        cell::documented("Available", "integer", 0, status, "numberAvailable"),
        cell::documented("Node Selector", "string", 0, "io.k8s.api.core.v1.PodSpec", "nodeSelector"),
        cell::age_column(),
        containers,
        images,
        Column::new("Selector", "string", 1, DAEMON_SET_SELECTOR),
    ]
}

fn daemon_set_row(set: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&set["spec"], &set["status"]);
    let [containers, images] = cell::template_containers(&spec["template"]);
    vec![
        cell::name(set),
        cell::count(&status["desiredNumberScheduled"]),
        cell::count(&status["currentNumberScheduled"]),
        cell::count(&status["numberReady"]),
        cell::count(&status["updatedNumberScheduled"]),
        cell::count(&status["numberAvailable"]),
        Value::from(cell::label_text(&spec["template"]["spec"]["nodeSelector"])),
        cell::age(set, now),
        containers,
        images,
        Value::from(cell::selector(&spec["selector"])),
    ]
}

/// `2/3`: ready of wanted.
fn ready_of(object: &Value) -> Value {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let (ready, wanted) = (&object["status"]["readyReplicas"], &object["spec"]["replicas"]);
    Value::from(format!("{}/{}", number(ready), number(wanted)))
}

fn deployment_columns() -> Vec<Column> {
    let status = "io.k8s.api.apps.v1.DeploymentStatus";
    let [containers, images] = cell::template_columns();
    vec![
        cell::name_column(),
        Column::new("Ready", "string", 0, "Number of the pod with ready state"),
        cell::documented("Up-to-date", "string", 0, status, "updatedReplicas"),
        cell::documented("Available", "string", 0, status, "availableReplicas"),
        cell::age_column(),
        containers,
        images,
        Column::new("Selector", "string", 1, DEPLOYMENT_SELECTOR),
    ]
}

fn deployment_row(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let [containers, images] = cell::template_containers(&spec["template"]);
    let selector = rules::selector(&spec["selector"]).map(|selector| selector.to_string());
    vec![
        cell::name(deployment),
        ready_of(deployment),
        cell::count(&status["updatedReplicas"]),
        cell::count(&status["availableReplicas"]),
        cell::age(deployment, now),
        containers,
        images,
        Value::from(selector.unwrap_or_else(|_| "<invalid>".to_owned())),
    ]
}

fn replica_set_columns() -> Vec<Column> {
    let (status, spec) = ("io.k8s.api.apps.v1.ReplicaSetStatus", "io.k8s.api.apps.v1.ReplicaSetSpec");
    let [containers, images] = cell::template_columns();
    vec![
        cell::name_column(),
        cell::documented("Desired", "integer", 0, spec, "replicas"),
        cell::documented("Current", "integer", 0, status, "replicas"),
        cell::documented("Ready", "integer", 0, status, "readyReplicas"),
        cell::age_column(),
        containers,
        images,
        Column::new("Selector", "string", 1, REPLICA_SET_SELECTOR),
    ]
}

fn replica_set_row(set: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&set["spec"], &set["status"]);
    let [containers, images] = cell::template_containers(&spec["template"]);
    vec![
        cell::name(set),
        cell::count(&spec["replicas"]),
        cell::count(&status["replicas"]),
        cell::count(&status["readyReplicas"]),
        cell::age(set, now),
        containers,
        images,
        Value::from(cell::selector(&spec["selector"])),
    ]
}

fn stateful_set_columns() -> Vec<Column> {
    let [containers, images] = cell::template_columns();
    let ready = Column::new("Ready", "string", 0, "Number of the pod with ready state");
    vec![cell::name_column(), ready, cell::age_column(), containers, images]
}

fn stateful_set_row(set: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = cell::template_containers(&set["spec"]["template"]);
    vec![cell::name(set), ready_of(set), cell::age(set, now), containers, images]
}
