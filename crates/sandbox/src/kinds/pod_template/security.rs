//! Security contexts of pods and containers.

use serde_json::Value;

use super::super::check::{Faults, between, one_of};
use super::super::internal::compact;
use super::super::tree::{flag, has, int, is_empty, list, part, text, texts};
use super::super::{FieldError, Path};
use super::spec::visit_containers;
use super::volume::local_path;

const ID_MAX: i64 = 2_147_483_647;
const SYSCTL_MAX: usize = 253;
const SYSCTL_REGEX: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
const APP_ARMOR_PATH_MAX: i64 = 4095;

/// Fields of a pod's context that Windows has not, and where Kubernetes says so.
const NOT_WINDOWS_POD: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const NOT_WINDOWS_CONTAINER: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn id(context: &Value, field: &str, path: &Path<'_>, out: &mut Faults) {
    if let Some(value) = int(context, field).filter(|v| !(0..=ID_MAX).contains(v)) {
        out.push(FieldError::invalid(&path.child(field), value, between(0, ID_MAX)));
    }
}

pub(super) fn check_pod(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(context) = part(spec, "securityContext") else { return };
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(context, field, path, out);
    }
    let groups = path.child("supplementalGroups");
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        let value = group.as_i64().unwrap_or(0);
        if !(0..=ID_MAX).contains(&value) {
            out.push(FieldError::invalid(&groups.index(i), value, between(0, ID_MAX)));
        }
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        out.push(FieldError::invalid(&path.child("shareProcessNamespace"), true, detail));
    }
    sysctls(spec, context, &path.child("sysctls"), out);
    if let Some(policy) = context.get("fsGroupChangePolicy").and_then(Value::as_str) {
        one_of(policy, &["Always", "OnRootMismatch"], &path.child("fsGroupChangePolicy"), out);
    }
    seccomp(context, path, out);
    app_armor(context, path, out);
    if let Some(policy) = context.get("supplementalGroupsPolicy").and_then(Value::as_str) {
        one_of(policy, &["Merge", "Strict"], &path.child("supplementalGroupsPolicy"), out);
    }
    if let Some(policy) = context.get("seLinuxChangePolicy").and_then(Value::as_str) {
        one_of(policy, &["Recursive"], &path.child("seLinuxChangePolicy"), out);
    }
}

fn sysctls(spec: &Value, context: &Value, path: &Path<'_>, out: &mut Faults) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, sysctl) in list(context, "sysctls").iter().enumerate() {
        let path = path.index(i);
        let path = path.child("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            out.push(FieldError::required(&path, ""));
        } else if !is_sysctl(name) {
            let detail = format!("must have at most {SYSCTL_MAX} characters and match regex {SYSCTL_REGEX}");
            out.push(FieldError::invalid(&path, name, detail));
        } else if seen.contains(&name) {
            out.push(FieldError::duplicate(&path, name));
        }
        let dotted = name.replace('/', ".");
        let is_ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| dotted.starts_with(p))
            || dotted == "kernel.sem";
        if flag(spec, "hostNetwork") && dotted.starts_with("net.") {
            out.push(FieldError::invalid(&path, name, "may not be specified when 'hostNetwork' is true"));
        } else if flag(spec, "hostIPC") && is_ipc {
            out.push(FieldError::invalid(&path, name, "may not be specified when 'hostIPC' is true"));
        }
        seen.push(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(word)
            && bytes.last().is_some_and(word)
            && bytes.iter().all(|b| word(b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= SYSCTL_MAX && name.split(['.', '/']).all(is_part)
}

fn seccomp(context: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(profile) = part(context, "seccompProfile") else { return };
    let path = path.child("seccompProfile");
    let kind = text(profile, "type");
    match kind {
        "" => {
            let detail = "type is required when seccompProfile is set";
            out.push(FieldError::required(&path.child("type"), detail));
        }
        _ => one_of(kind, PROFILE_TYPES, &path.child("type"), out),
    }
    let at = path.child("localhostProfile");
    match (kind, profile.get("localhostProfile").and_then(Value::as_str)) {
        ("Localhost", None) => {
            out.push(FieldError::required(&at, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(file)) => local_path(file, &at, out),
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            let error = FieldError::invalid(&at, profile.clone(), detail);
            out.push(error.showing(compact("SeccompProfile", profile)));
        }
        (_, None) => {}
    }
}

fn app_armor(context: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(profile) = part(context, "appArmorProfile") else { return };
    let path = path.child("appArmorProfile");
    let at = path.child("localhostProfile");
    let file = profile.get("localhostProfile").and_then(Value::as_str);
    match (text(profile, "type"), file) {
        ("Localhost", file) => {
            let missing = "must be set when AppArmor type is Localhost";
            let Some(file) = file else { return out.push(FieldError::required(&at, missing)) };
            if file.trim() != file {
                out.push(FieldError::invalid(&at, file, "must not be padded with whitespace"));
            } else if file.is_empty() {
                out.push(FieldError::required(&at, missing));
            }
            if file.len() > 4095 {
                out.push(FieldError::too_long(&at, APP_ARMOR_PATH_MAX));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            out.push(FieldError::invalid(&at, file, "can only be set when AppArmor type is Localhost"));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            out.push(FieldError::required(&path.child("type"), detail));
        }
        (kind, _) => one_of(kind, PROFILE_TYPES, &path.child("type"), out),
    }
}

pub(super) fn check_container(container: &Value, spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(context) = part(container, "securityContext") else { return };
    for field in ["runAsUser", "runAsGroup"] {
        id(context, field, path, out);
    }
    if let Some(mount) = context.get("procMount").and_then(Value::as_str) {
        let path = path.child("procMount");
        one_of(mount, &["Default", "Unmasked"], &path, out);
        if mount == "Unmasked" && !is_own_users(spec) {
            out.push(FieldError::invalid(&path, mount, "`hostUsers` must be false to use `Unmasked`"));
        }
    }
    seccomp(context, path, out);
    if context.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        let fault = |detail: &str| {
            FieldError::invalid(path, context.clone(), detail).showing(compact("SecurityContext", context))
        };
        if flag(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            out.push(fault(detail));
        }
        if texts(&context["capabilities"], "add").contains(&"CAP_SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            out.push(fault(detail));
        }
    }
    app_armor(context, path, out);
}

/// Whether the pod has user namespaces of its own.
fn is_own_users(spec: &Value) -> bool {
    spec.get("hostUsers") == Some(&Value::Bool(false))
}

/// User namespaces exclude the host's others.
pub(super) fn host_users(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    if !is_own_users(spec) {
        return;
    }
    let detail = "when `hostUsers` is false";
    for (field, name) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, field) {
            out.push(FieldError::forbidden(&path.child(name), detail));
        }
    }
    visit_containers(spec, path, &mut |container, path| {
        if !list(container, "volumeDevices").is_empty() {
            out.push(FieldError::forbidden(&path.child("volumeDevices"), detail));
        }
    });
}

/// What the operating system of a pod rules out.
pub(super) fn check_os(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let at = path.child("securityContext");
    match text(&spec["os"], "name") {
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            if has(&spec["securityContext"], "windowsOptions") {
                out.push(FieldError::forbidden(&at.child("windowsOptions"), detail));
            }
            visit_containers(spec, path, &mut |container, path| {
                if has(&container["securityContext"], "windowsOptions") {
                    let path = path.child("securityContext");
                    out.push(FieldError::forbidden(&path.child("windowsOptions"), detail));
                }
            });
        }
        "windows" => {
            let detail = "cannot be set for a windows pod";
            for field in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
                if flag(spec, field) || has(spec, field) && !field.starts_with("hostP") && field != "hostIPC"
                {
                    out.push(FieldError::forbidden(&path.child(field), detail));
                }
            }
            for field in NOT_WINDOWS_POD.iter().filter(|f| !is_empty(&spec["securityContext"], f)) {
                out.push(FieldError::forbidden(&at.child(field), detail));
            }
            visit_containers(spec, path, &mut |container, path| {
                let path = path.child("securityContext");
                for field in NOT_WINDOWS_CONTAINER.iter().filter(|f| has(&container["securityContext"], f)) {
                    out.push(FieldError::forbidden(&path.child(field), detail));
                }
            });
        }
        _ => {}
    }
}
