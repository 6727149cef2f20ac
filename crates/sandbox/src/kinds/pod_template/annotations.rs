//! Annotations that mean something to a pod.

use serde_json::Value;

use super::super::check::Faults;
use super::super::quote;
use super::super::tree::{part, text, text_entries};
use super::super::{FieldError, Path};
use super::spec::{entry, has_container, visit_containers};
use super::volume::local_path;

pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(crate) fn pod_annotations(metadata: &Value, spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let get = |key: &str| entry(metadata, "annotations", key);
    if let Some(value) = get(MIRROR).filter(|_| text(spec, "nodeName").is_empty()) {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        out.push(FieldError::invalid(&path.key(MIRROR), value, detail));
    }
    if let Some(cost) = get(DELETION_COST).filter(|cost| !is_cost(cost)) {
        out.push(FieldError::invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer"));
    }
    if let Some(profile) = get(SECCOMP_POD) {
        seccomp(profile, &path.child(SECCOMP_POD), out);
    }
    for (key, value) in text_entries(metadata, "annotations") {
        if key.starts_with(SECCOMP_CONTAINER) {
            seccomp(value, &path.child(key), out);
        }
    }
    for (key, value) in text_entries(metadata, "annotations") {
        let Some(container) = key.strip_prefix(APP_ARMOR) else { continue };
        if !has_container(spec, container) {
            out.push(FieldError::invalid(&path.key(key), container, "container not found"));
        }
        let is_known =
            ["", "runtime/default", "unconfined"].contains(&value) || value.starts_with("localhost/");
        if !is_known {
            let detail = format!("invalid AppArmor profile name: {}", quote(value));
            out.push(FieldError::invalid(&path.key(key), value, detail));
        }
    }
}

/// A 32 bit number without a plus sign or leading zeros.
fn is_cost(cost: &str) -> bool {
    let digits = cost.strip_prefix('-').unwrap_or(cost);
    let is_plain =
        digits.starts_with(|c: char| c.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    is_plain && cost.parse::<i32>().is_ok()
}

fn seccomp(profile: &str, path: &Path<'_>, out: &mut Faults) {
    if ["runtime/default", "docker/default", "unconfined"].contains(&profile) {
        return;
    }
    match profile.strip_prefix("localhost/") {
        Some(file) => local_path(file, path, out),
        None => out.push(FieldError::invalid(path, profile, "must be a valid seccomp profile")),
    }
}

/// Annotations and fields that say the same must agree.
pub(super) fn agree(metadata: &Value, spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let pod_context = &spec["securityContext"];
    if let (Some(value), Some(profile)) =
        (entry(metadata, "annotations", SECCOMP_POD), part(pod_context, "seccompProfile"))
    {
        let path = path.child("securityContext");
        profiles_agree(value, profile, "seccomp", &path.child("seccompProfile"), out);
    }
    visit_containers(spec, path, &mut |container, path| {
        let key = format!("{SECCOMP_CONTAINER}{}", text(container, "name"));
        let profile = part(&container["securityContext"], "seccompProfile");
        if let (Some(value), Some(profile)) = (entry(metadata, "annotations", &key), profile) {
            let path = path.child("securityContext");
            profiles_agree(value, profile, "seccomp", &path.child("seccompProfile"), out);
        }
    });
    if text(&spec["os"], "name") == "windows" {
        return;
    }
    visit_containers(spec, path, &mut |container, path| {
        let key = format!("{APP_ARMOR}{}", text(container, "name"));
        let own = part(&container["securityContext"], "appArmorProfile");
        let profile = own.or_else(|| part(pod_context, "appArmorProfile"));
        if let (Some(value), Some(profile)) = (entry(metadata, "annotations", &key), profile) {
            let path = path.child("securityContext");
            profiles_agree(value, profile, "apparmor", &path.child("appArmorProfile"), out);
        }
    });
}

fn profiles_agree(annotation: &str, profile: &Value, noun: &str, path: &Path<'_>, out: &mut Faults) {
    let is_same_type = match text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || noun == "seccomp" && annotation == "docker/default"
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    if !is_same_type {
        let detail = format!("{noun} type in annotation and field must match");
        out.push(FieldError::forbidden(&path.child("type"), detail));
    } else if text(profile, "type") == "Localhost"
        && annotation.strip_prefix("localhost/") != profile.get("localhostProfile").and_then(Value::as_str)
    {
        let detail = format!("{noun} profile in annotation and field must match");
        out.push(FieldError::forbidden(&path.child("localhostProfile"), detail));
    }
}
