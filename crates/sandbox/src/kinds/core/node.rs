//! Nodes.

use serde_json::{Value, json};

use super::super::cell::{NONE, age, name, or_none};
use super::super::check::{Faults, is_ipv4, parse_ip, qualified_name};
use super::super::pod_template::{defaults, taint_effect};
use super::super::resources::check_amount;
use super::super::tree::{
    entries, flag, has, is_empty, list, part, part_mut, remove, set, text, text_entries, texts,
};
use super::super::{Admission, Fault, FieldError, Hooks, Kind, Operation, Path, names};
use super::columns;
use crate::status::ApiError;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";
const UNKNOWN: &str = "<unknown>";

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "Node", "nodes")
        .cluster_scoped()
        .short(&["no"])
        .status()
        .columns(columns::nodes())
        .hooks(Hooks {
            default,
            prepare_create: |node| {
                remove(&mut node["spec"], "configSource");
                remove(&mut node["status"], "config");
            },
            validate,
            validate_status: validate_update,
            admit,
            warn: |node, _| warn(node),
            fields: |node| vec![("spec.unschedulable", flag(&node["spec"], "unschedulable").to_string())],
            field_names: &["spec.unschedulable"],
            row,
            ..Hooks::default()
        });
    kind.status_on_create = true;
    kind
}

fn default(node: &mut Value) {
    if let Some(spec) = part_mut(node, "spec") {
        let (one, all) = (text(spec, "podCIDR").to_owned(), texts(spec, "podCIDRs").join(","));
        let first = all.split(',').next().unwrap_or_default();
        // The single field wins when the two differ, for older writers know only that one.
        if !one.is_empty() && one != first {
            set(spec, "podCIDRs", json!([one]));
        } else if one.is_empty() && !first.is_empty() {
            set(spec, "podCIDR", first);
        }
    }
    let Some(status) = part_mut(node, "status") else { return };
    if !has(status, "allocatable")
        && let Some(capacity) = part(status, "capacity").cloned()
    {
        set(status, "allocatable", capacity);
    }
    defaults::round_up(status, "capacity");
    defaults::round_up(status, "allocatable");
}

/// A new node takes no pods until it is seen to be ready.
fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.operation != Operation::Create {
        return Ok(());
    }
    let is_it = |taint: &Value| text(taint, "key") == NOT_READY && text(taint, "effect") == "NoSchedule";
    if list(&admission.object["spec"], "taints").iter().any(is_it) {
        return Ok(());
    }
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    let node = &mut *admission.object;
    if !node["spec"].is_object() {
        set(node, "spec", json!({}));
    }
    let Some(spec) = part_mut(node, "spec") else { return Ok(()) };
    match spec.get_mut("taints").and_then(Value::as_array_mut) {
        Some(taints) => taints.push(taint),
        None => set(spec, "taints", json!([taint])),
    }
    Ok(())
}

fn validate(node: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    taints(node, &mut out);
    resources(node, &mut out);
    cidrs(&node["spec"], &mut out);
    if let Some(old) = old {
        out.extend(validate_update(node, old));
    }
    out
}

fn taints(node: &Value, out: &mut Faults) {
    let metadata = Path::root("metadata");
    let path = metadata.child("taints");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, taint) in list(&node["spec"], "taints").iter().enumerate() {
        let path = path.index(i);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        qualified_name(key, &path.child("key"), out);
        let faults = names::is_label_value(value);
        if !faults.is_empty() {
            out.push(FieldError::invalid(&path.child("value"), value, faults.join(";")));
        }
        match effect {
            "" => out.push(FieldError::required(&path.child("effect"), "")),
            _ => taint_effect(effect, &path.child("effect"), out),
        }
        if seen.contains(&(key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            let shown = format!(
                "{{\"Key\":\"{key}\",\"Value\":\"{value}\",\"Effect\":\"{effect}\",\"TimeAdded\":{}}}",
                taint.get("timeAdded").unwrap_or(&Value::Null)
            );
            let error = FieldError::new(Fault::Duplicate, &path, Some(taint.clone()), detail);
            out.push(error.showing(shown));
        }
        seen.push((key, effect));
    }
}

fn resources(node: &Value, out: &mut Faults) {
    let path = Path::root("status");
    for field in ["capacity", "allocatable"] {
        let path = path.child(field);
        for (name, value) in entries(&node["status"], field) {
            check_amount(name, value, &path.child(name), out);
        }
    }
}

fn cidrs(spec: &Value, out: &mut Faults) {
    let ranges = texts(spec, "podCIDRs");
    let root = Path::root("spec");
    let path = root.child("podCIDRs");
    for (i, range) in ranges.iter().enumerate() {
        if cidr_family(range).is_none() {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            out.push(FieldError::invalid(&path.index(i), *range, detail));
        }
    }
    if ranges.len() > 1 {
        if let Some(at) = ranges.iter().position(|r| cidr_family(r).is_none()) {
            let detail = format!(
                "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{at}]: <nil> (invalid CIDR \
                 address: {})",
                ranges[at]
            );
            out.push(FieldError::internal(&path, detail));
        }
        let families: Vec<bool> = ranges.iter().filter_map(|r| cidr_family(r)).collect();
        let is_pair = families.len() == 2 && ranges.len() == 2 && families[0] != families[1];
        if !is_pair {
            let detail = "may specify no more than one CIDR for each IP family";
            out.push(FieldError::invalid(&path, spec["podCIDRs"].clone(), detail));
        }
    }
}

/// Whether a range of addresses is IPv4; None when it is no range.
fn cidr_family(range: &str) -> Option<bool> {
    let (address, bits) = range.split_once('/')?;
    let is_v4 = is_ipv4(parse_ip(address)?);
    let bits: u8 = bits.parse().ok()?;
    (bits <= if is_v4 { 32 } else { 128 }).then_some(is_v4)
}

fn validate_update(node: &Value, old: &Value) -> Vec<FieldError> {
    let mut out = Faults::new();
    resources(node, &mut out);
    let status = Path::root("status");
    let path = status.child("addresses");
    let addresses = list(&node["status"], "addresses");
    for (i, address) in addresses.iter().enumerate().filter(|(i, a)| addresses[..*i].contains(a)) {
        let shown = format!(
            "{{\"Type\":\"{}\",\"Address\":\"{}\"}}",
            text(address, "type"),
            text(address, "address")
        );
        out.push(FieldError::duplicate(&path.index(i), address.clone()).showing(shown));
    }
    let root = Path::root("spec");
    let (spec, before) = (&node["spec"], &old["spec"]);
    if !is_empty(before, "podCIDRs") && texts(before, "podCIDRs") != texts(spec, "podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        out.push(FieldError::forbidden(&root.child("podCIDRs"), detail));
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && provider != text(spec, "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        out.push(FieldError::forbidden(&root.child("providerID"), detail));
    }
    taints(node, &mut out);
    if text(spec, "externalID") != text(before, "externalID") {
        out.push(FieldError::forbidden(&root.child("externalID"), "may not be updated"));
    }
    out
}

fn warn(node: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if has(&node["spec"], "configSource") {
        out.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(&node["spec"], "externalID").is_empty() {
        out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    out
}

fn row(node: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let status = &node["status"];
    let ready = list(status, "conditions").iter().rfind(|c| text(c, "type") == "Ready");
    let mut shown = match ready {
        Some(condition) if text(condition, "status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if flag(&node["spec"], "unschedulable") {
        shown.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = text_entries(&node["metadata"], "labels")
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None => (key == ROLE).then_some(value),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let info = &status["nodeInfo"];
    let address = |kind: &str| {
        let found = list(status, "addresses").iter().find(|a| text(a, "type") == kind);
        Value::from(found.map_or(NONE, |a| text(a, "address")))
    };
    let known =
        |field: &str| Value::from(Some(text(info, field)).filter(|t| !t.is_empty()).unwrap_or(UNKNOWN));
    vec![
        name(node),
        shown.into(),
        or_none(&roles.join(",")),
        age(node, now),
        text(info, "kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage"),
        known("kernelVersion"),
        known("containerRuntimeVersion"),
    ]
}
