//! The status of a pod: what a writer may leave out, and what it may not say.

use serde_json::{Value, json};

use super::super::super::check::{Faults, IMMUTABLE, ip, is_ipv4, parse_ip, qualified_name, subdomain};
use super::super::super::tree::{has, int, list, list_mut, part, part_mut, set, text};
use super::super::super::{FieldError, Path, meta};
use super::update::annotation_updates;

/// Conditions with names of Kubernetes' own.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

pub(super) fn prepare(pod: &mut Value, old: &Value) {
    let owners = meta::of(old).and_then(|m| m.get("ownerReferences")).cloned();
    meta::set(pod, "ownerReferences", owners);
    if !pod["status"].is_object() {
        set(pod, "status", json!({}));
    }
    let old = &old["status"];
    let Some(status) = part_mut(pod, "status") else { return };
    for field in ["qosClass", "observedGeneration"] {
        if let Some(known) = part(old, field).filter(|_| !has(status, field)) {
            set(status, field, known.clone());
        }
    }
    keep_observed(status, old);
}

/// A condition that does not say which generation it saw, saw the one it said before.
fn keep_observed(status: &mut Value, old: &Value) {
    let known = |kind: &str, at: usize| {
        let same = list(old, "conditions").iter().filter(|c| text(c, "type") == kind);
        same.into_iter().nth(at).and_then(|c| int(c, "observedGeneration")).filter(|g| *g != 0)
    };
    let mut seen: Vec<String> = Vec::new();
    for condition in list_mut(status, "conditions") {
        let kind = text(condition, "type").to_owned();
        let at = seen.iter().filter(|s| **s == kind).count();
        if int(condition, "observedGeneration").unwrap_or(0) == 0
            && let Some(generation) = known(&kind, at)
        {
            set(condition, "observedGeneration", generation);
        }
        seen.push(kind);
    }
}

pub(super) fn validate(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut out = Faults::new();
    annotation_updates(pod, old, &mut out);
    let path = Path::root("status");
    let (status, before) = (&pod["status"], &old["status"]);
    conditions(status, &path.child("conditions"), &mut out);
    let nominated = text(status, "nominatedNodeName");
    if nominated != text(before, "nominatedNodeName") && !nominated.is_empty() {
        let path = path.child("nominatedNodeName");
        subdomain(nominated, &path, &mut out);
        if !text(&old["spec"], "nodeName").is_empty() {
            let detail = "may not be set on pods that are already bound to a node";
            out.push(FieldError::forbidden(&path, detail));
        }
    }
    observed(status, &path, &mut out);
    if text(status, "qosClass") != text(before, "qosClass") {
        out.push(FieldError::invalid(&path.child("qosClass"), text(status, "qosClass"), IMMUTABLE));
    }
    for (field, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        transitions(status, before, field, containers, &old["spec"], &path.child(field), &mut out);
    }
    claim_statuses(status, &pod["spec"], &path.child("resourceClaimStatuses"), &mut out);
    addresses(status, before, "podIPs", &path.child("podIPs"), &mut out);
    host_addresses(status, before, &path.child("hostIPs"), &mut out);
    out
}

fn observed(value: &Value, path: &Path<'_>, out: &mut Faults) {
    if let Some(generation) = int(value, "observedGeneration").filter(|g| *g < 0) {
        let detail = "must be a non-negative integer";
        out.push(FieldError::invalid(&path.child("observedGeneration"), generation, detail));
    }
}

fn conditions(status: &Value, path: &Path<'_>, out: &mut Faults) {
    for (i, condition) in list(status, "conditions").iter().enumerate() {
        observed(condition, &path.index(i), out);
        let kind = text(condition, "type");
        if !SYSTEM_CONDITIONS.contains(&kind) {
            qualified_name(kind, &path.index(i).child("Type"), out);
        }
    }
}

/// A container that has ended runs again only if its policy says so.
fn transitions(
    status: &Value,
    before: &Value,
    field: &str,
    containers: &str,
    spec: &Value,
    path: &Path<'_>,
    out: &mut Faults,
) {
    for (i, old) in list(before, field).iter().enumerate() {
        let Some(ended) = part(&old["state"], "terminated") else { continue };
        let revived = |new: &&Value| new["name"] == old["name"] && !has(&new["state"], "terminated");
        if !list(status, field).iter().any(|new| revived(&new)) {
            continue;
        }
        let container = list(spec, containers).iter().find(|c| c["name"] == old["name"]);
        let code = int(ended, "exitCode").unwrap_or(0);
        if !container.is_some_and(|c| may_restart(c, spec, code)) {
            let detail = "may not be transitioned to non-terminated state";
            out.push(FieldError::forbidden(&path.index(i).child("state"), detail));
        }
    }
}

fn may_restart(container: &Value, spec: &Value, code: i64) -> bool {
    if has(container, "restartPolicy") {
        let matches = |rule: &&Value| {
            let codes = &rule["exitCodes"];
            let is_listed = list(codes, "values").iter().any(|v| v.as_i64() == Some(code));
            match text(codes, "operator") {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            }
        };
        if let Some(rule) = list(container, "restartPolicyRules").iter().find(|r| matches(r)) {
            return text(rule, "action") == "Restart";
        }
    }
    let own = text(container, "restartPolicy");
    match if own.is_empty() { text(spec, "restartPolicy") } else { own } {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn claim_statuses(status: &Value, spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, claim) in list(status, "resourceClaimStatuses").iter().enumerate() {
        let path = path.index(i);
        let path = path.child("name");
        let name = text(claim, "name");
        if !list(spec, "resourceClaims").iter().any(|c| text(c, "name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            out.push(FieldError::invalid(&path, name, detail));
        }
        if seen.contains(&name) {
            out.push(FieldError::duplicate(&path, name));
        }
        seen.push(name);
        if let Some(claim) = claim.get("resourceClaimName").and_then(Value::as_str) {
            subdomain(claim, &path, out);
        }
    }
}

/// One address of each family, each of them real; those that were there may stay.
fn addresses(status: &Value, before: &Value, field: &str, path: &Path<'_>, out: &mut Faults) {
    let ips =
        |v: &Value| -> Vec<String> { list(v, field).iter().map(|ip| text(ip, "ip").to_owned()).collect() };
    let (found, known) = (ips(status), ips(before));
    for (i, address) in found.iter().enumerate().filter(|(_, a)| !known.contains(a)) {
        ip(address, &path.index(i), out);
    }
    if found.len() < 2 {
        return;
    }
    let parsed: Vec<_> = found.iter().map(|a| parse_ip(a)).collect();
    if let Some(at) = parsed.iter().position(Option::is_none) {
        let detail = format!("failed to check for dual stack with error:invalid IP[{at}]: {}", found[at]);
        out.push(FieldError::internal(path, detail));
    }
    let count = |v4: bool| parsed.iter().flatten().filter(|ip| is_ipv4(**ip) == v4).count();
    if found.len() > 2 || count(true) != 1 || count(false) != 1 {
        let shown: Vec<Value> = found.iter().map(|ip| json!({"IP": ip})).collect();
        let detail = "may specify no more than one IP for each IP family";
        out.push(FieldError::invalid(path, shown, detail));
    }
}

fn host_addresses(status: &Value, before: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(first) = list(status, "hostIPs").first() else { return };
    if text(first, "ip") != text(status, "hostIP") {
        let detail = "must be equal to `hostIP`";
        out.push(FieldError::invalid(&path.index(0).child("ip"), text(first, "ip"), detail));
    }
    addresses(status, before, "hostIPs", path, out);
}
