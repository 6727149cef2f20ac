//! Pods: defaults, rules, admission, and how they are shown.

mod admit;
mod qos;
mod status;
mod table;
mod update;
mod warn;

use koord_api::quantity::ResourceList;
use serde_json::{Map, Value, json};

use super::super::check::Faults;
use super::super::pod_template::{default_spec, defaults, limits_sum, requests_sum};
use super::super::pod_template::{validate_new_pod, validate_pod_spec};
use super::super::resources::{is_huge_pages, is_overcommittable};
use super::super::tree::{entries, fill, flag, has, int, list, list_mut, map_mut, part, part_mut, set, text};
use super::super::{FieldError, Hooks, Kind, Subresource, meta};
use super::columns;

/// Seconds a pod may take to end when nobody says otherwise.
const GRACE_SECONDS: i64 = 30;

const FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "Pod", "pods")
        .short(&["po"])
        .category("all")
        .status()
        .generation()
        .subresource(Subresource::Binding)
        .subresource(Subresource::Eviction)
        .subresource(Subresource::EphemeralContainers)
        .subresource(Subresource::Resize)
        .columns(columns::pods())
        .hooks(Hooks {
            default,
            prepare_create,
            prepare_status: status::prepare,
            validate,
            validate_status: status::validate,
            validate_part: Some(update::validate_part),
            admit: admit::admit,
            approve: admit::approve,
            warn: warn::warn,
            fields,
            field_names: FIELDS,
            row: table::row,
            row_conditions: table::conditions,
            grace,
            ..Hooks::default()
        });
    kind.returns_deleted = true;
    kind
}

fn default(pod: &mut Value) {
    if !pod["spec"].is_object() {
        set(pod, "spec", json!({}));
    }
    let Some(spec) = part_mut(pod, "spec") else { return };
    defaults::requests_from_limits(spec);
    pod_resources(spec);
    fill(spec, "enableServiceLinks", true);
    if flag(spec, "hostNetwork") {
        defaults::host_ports(spec);
    }
    default_spec(spec);
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        set(spec, "terminationGracePeriodSeconds", 1);
    }
    if let Some(status) = part_mut(pod, "status") {
        pod_ips(status);
    }
}

/// One address or several: the single field wins when they differ, for older writers know only it.
fn pod_ips(status: &mut Value) {
    let one = text(status, "podIP").to_owned();
    let first = list(status, "podIPs").first().map(|ip| text(ip, "ip").to_owned()).unwrap_or_default();
    if !one.is_empty() && one != first {
        set(status, "podIPs", json!([{"ip": one}]));
    } else if one.is_empty() && !first.is_empty() {
        set(status, "podIP", first);
    }
}

/// Requests and limits of the whole pod, where it states some of them.
fn pod_resources(spec: &mut Value) {
    let Some(resources) = part(spec, "resources") else { return };
    let is_set = |field: &str| entries(resources, field).next().is_some();
    let (has_limits, has_requests) = (is_set("limits"), is_set("requests"));
    if !has_limits && !has_requests {
        return;
    }
    let is_known = |name: &str| ["cpu", "memory"].contains(&name) || is_huge_pages(name);
    let huge: ResourceList = limits_sum(spec)
        .into_iter()
        .filter(|(name, _)| is_huge_pages(name) && !has(&resources["requests"], name))
        .collect();
    let requests: ResourceList = requests_sum(spec)
        .into_iter()
        .filter(|(name, _)| is_known(name) && is_overcommittable(name))
        .collect();
    let Some(resources) = part_mut(spec, "resources") else { return };
    if !huge.is_empty() {
        fill_amounts(map_mut(resources, "limits"), huge);
    }
    let limits: Vec<(String, Value)> = entries(resources, "limits")
        .filter(|(name, _)| is_known(name))
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    if limits.is_empty() {
        return;
    }
    fill_amounts(map_mut(resources, "requests"), requests);
    if let Some(requests) = map_mut(resources, "requests") {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn fill_amounts(list: Option<&mut Map<String, Value>>, amounts: ResourceList) {
    if let Some(list) = list {
        for (name, amount) in amounts {
            list.entry(name).or_insert_with(|| amount.to_string().into());
        }
    }
}

fn prepare_create(pod: &mut Value) {
    let mut status = json!({"phase": "Pending", "qosClass": qos::class(&pod["spec"])});
    if !list(&pod["spec"], "schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": pod["metadata"]["creationTimestamp"],
        }]);
    }
    set(pod, "status", status);
    merge_label_keys(pod);
    admit::app_armor_fields(pod);
}

/// `matchLabelKeys` become expressions of the label selector beside them.
fn merge_label_keys(pod: &mut Value) {
    let labels = pod["metadata"].get("labels").cloned().unwrap_or(Value::Null);
    let Some(spec) = part_mut(pod, "spec") else { return };
    if let Some(affinity) = part_mut(spec, "affinity") {
        for field in ["podAffinity", "podAntiAffinity"] {
            let Some(pods) = part_mut(affinity, field) else { continue };
            for term in list_mut(pods, "preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = part_mut(term, "podAffinityTerm") {
                    merge_term(term, &labels);
                }
            }
            for term in list_mut(pods, "requiredDuringSchedulingIgnoredDuringExecution") {
                merge_term(term, &labels);
            }
        }
    }
    list_mut(spec, "topologySpreadConstraints").for_each(|constraint| merge_term(constraint, &labels));
}

fn merge_term(term: &mut Value, labels: &Value) {
    let mut expressions = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in list(term, field).iter().filter_map(Value::as_str) {
            if let Some(value) = part(labels, key) {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let Some(selector) = part_mut(term, "labelSelector").filter(|_| !expressions.is_empty()) else { return };
    match selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        Some(list) => list.extend(expressions),
        None => set(selector, "matchExpressions", expressions),
    }
}

fn validate(pod: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    validate_pod_spec(pod, &mut out);
    match old {
        None => validate_new_pod(pod, &mut out),
        Some(old) => update::validate(pod, old, &mut out),
    }
    out
}

fn fields(pod: &Value) -> Vec<(&'static str, String)> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let ips: Vec<&str> = list(status, "podIPs").iter().map(|ip| text(ip, "ip")).collect();
    let ip = ips.first().copied().unwrap_or_else(|| text(status, "podIP"));
    vec![
        ("spec.nodeName", text(spec, "nodeName").to_owned()),
        ("spec.restartPolicy", text(spec, "restartPolicy").to_owned()),
        ("spec.schedulerName", text(spec, "schedulerName").to_owned()),
        ("spec.serviceAccountName", text(spec, "serviceAccountName").to_owned()),
        ("spec.hostNetwork", flag(spec, "hostNetwork").to_string()),
        ("status.phase", text(status, "phase").to_owned()),
        ("status.podIP", ip.to_owned()),
        ("status.podIPs", ip.to_owned()),
        ("status.nominatedNodeName", text(status, "nominatedNodeName").to_owned()),
    ]
}

/// What was asked for or the pod's own period; none for a pod that is not on a node or has ended.
fn grace(pod: &Value, requested: Option<i64>) -> Option<i64> {
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(GRACE_SECONDS);
    let is_placed = !text(&pod["spec"], "nodeName").is_empty();
    let is_over = ["Succeeded", "Failed"].contains(&text(&pod["status"], "phase"));
    match is_placed && !is_over {
        true => Some(requested.unwrap_or(own)).map(|seconds| if seconds < 0 { 1 } else { seconds }),
        false => Some(0),
    }
}

/// Whether the kubelet made this pod from a file of its own.
fn is_mirror(pod: &Value) -> bool {
    meta::of(pod)
        .and_then(|m| m.get("annotations"))
        .is_some_and(|annotations| has(annotations, super::super::pod_template::MIRROR))
}
