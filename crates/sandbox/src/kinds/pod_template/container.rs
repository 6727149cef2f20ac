//! Containers: what all share, and what regular, init and ephemeral ones may have.

use serde_json::Value;

use super::super::check::{Faults, dns_label, one_of, one_of_required, port, port_name, rule};
use super::super::tree::{flag, has, int, is_empty, list, part, text};
use super::super::{FieldError, Path};
use super::volume::{self, Volumes};
use super::{env, probe, requirements, security, spec::visit_containers};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const MESSAGE_POLICIES: &[&str] = &["File", "FallbackToLogsOnError"];
pub(super) const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Fields an ephemeral container may not have, as Kubernetes lists them.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];
const PROBES: &[&str] = &["livenessProbe", "readinessProbe", "startupProbe"];

/// What a container is judged against.
pub(super) struct Context<'a> {
    pub spec: &'a Value,
    pub volumes: &'a Volumes<'a>,
    pub claims: Vec<&'a str>,
}

impl<'a> Context<'a> {
    pub(super) fn new(spec: &'a Value, volumes: &'a Volumes<'a>) -> Context<'a> {
        let claims = list(spec, "resourceClaims").iter().map(|c| text(c, "name"));
        Context { spec, volumes, claims: claims.filter(|name| !name.is_empty()).collect() }
    }

    fn grace(&self) -> Option<i64> {
        int(self.spec, "terminationGracePeriodSeconds")
    }
}

pub(super) fn check_regular(context: &Context<'_>, path: &Path<'_>, out: &mut Faults) {
    let containers = list(context.spec, "containers");
    if containers.is_empty() {
        return out.push(FieldError::required(path, ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        check_common(context, container, &path, out);
        unique_name(container, &mut seen, true, &path, out);
        probe::check_all(context, container, context.grace(), &path, out);
        restart_policy(container, &path, out);
    }
    host_ports(containers, path, out);
}

pub(super) fn check_init(context: &Context<'_>, path: &Path<'_>, out: &mut Faults) {
    let mut seen: Vec<&str> = list(context.spec, "containers").iter().map(|c| text(c, "name")).collect();
    for (i, container) in list(context.spec, "initContainers").iter().enumerate() {
        let at = path.index(i);
        check_common(context, container, &at, out);
        let policy = text(container, "restartPolicy");
        match (policy, is_empty(container, "restartPolicyRules")) {
            ("Always", false) => {
                let detail =
                    "restartPolicyRules are not allowed for init containers with restart policy Always";
                out.push(FieldError::forbidden(&at.child("restartPolicyRules"), detail));
            }
            ("Always", true) => {}
            _ => restart_policy(container, &at, out),
        }
        unique_name(container, &mut seen, false, &at, out);
        host_ports(std::slice::from_ref(container), path, out);
        if policy == "Always" {
            probe::check_all(context, container, context.grace(), &at, out);
            continue;
        }
        let others = std::iter::once(&"lifecycle").chain(PROBES);
        for field in others.filter(|field| has(container, field)) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            out.push(FieldError::forbidden(&at.child(field), detail));
        }
    }
}

pub(super) fn check_ephemeral(context: &Context<'_>, path: &Path<'_>, out: &mut Faults) {
    let names = |field: &str| list(context.spec, field).iter().map(|c| text(c, "name")).collect::<Vec<_>>();
    let others = [names("containers"), names("initContainers")].concat();
    let mut seen = others.clone();
    for (i, container) in list(context.spec, "ephemeralContainers").iter().enumerate() {
        let path = path.index(i);
        check_common(context, container, &path, out);
        image_spaces(container, &path, out);
        unique_name(container, &mut seen, true, &path, out);
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(&target) {
            out.push(FieldError::not_found(&path.child("targetContainerName"), target));
        }
        for field in NOT_EPHEMERAL.iter().filter(|field| !is_empty(container, field)) {
            out.push(FieldError::forbidden(&path.child(field), "cannot be set for an Ephemeral Container"));
        }
        let mounts = path.child("volumeMounts");
        for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    let detail = "cannot be set for an Ephemeral Container";
                    out.push(FieldError::forbidden(&mounts.index(i).child(field), detail));
                }
            }
        }
    }
}

/// A name no other has; init containers do not remember empty ones.
fn unique_name<'a>(
    container: &'a Value,
    seen: &mut Vec<&'a str>,
    with_empty: bool,
    path: &Path<'_>,
    out: &mut Faults,
) {
    let name = text(container, "name");
    if seen.contains(&name) {
        out.push(FieldError::duplicate(&path.child("name"), name));
    } else if with_empty || !name.is_empty() {
        seen.push(name);
    }
}

fn check_common(context: &Context<'_>, container: &Value, path: &Path<'_>, out: &mut Faults) {
    match text(container, "name") {
        "" => out.push(FieldError::required(&path.child("name"), "")),
        name => dns_label(name, &path.child("name"), out),
    }
    if text(container, "image").is_empty() {
        out.push(FieldError::required(&path.child("image"), ""));
    }
    let policy = text(container, "terminationMessagePolicy");
    one_of_required(policy, MESSAGE_POLICIES, &path.child("terminationMessagePolicy"), out);
    ports(container, &path.child("ports"), out);
    env::check(container, path, out);
    volume::check_mounts(container, context.volumes, &path.child("volumeMounts"), out);
    volume::check_devices(container, context.volumes, &path.child("volumeDevices"), out);
    one_of_required(text(container, "imagePullPolicy"), PULL_POLICIES, &path.child("imagePullPolicy"), out);
    let resources = part(container, "resources").unwrap_or(&Value::Null);
    requirements::check(
        resources,
        requirements::Of::Container,
        &context.claims,
        &path.child("resources"),
        out,
    );
    resize_policy(container, text(context.spec, "restartPolicy"), &path.child("resizePolicy"), out);
    security::check_container(container, context.spec, &path.child("securityContext"), out);
}

fn ports(container: &Value, path: &Path<'_>, out: &mut Faults) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, found) in list(container, "ports").iter().enumerate() {
        let path = path.index(i);
        let name = text(found, "name");
        if !name.is_empty() {
            let at = path.child("name");
            let faults = port_name(name);
            if !faults.is_empty() {
                rule(faults, name, &at, out);
            } else if seen.contains(&name) {
                out.push(FieldError::duplicate(&at, name));
            } else {
                seen.push(name);
            }
        }
        match int(found, "containerPort").unwrap_or(0) {
            0 => out.push(FieldError::required(&path.child("containerPort"), "")),
            number => port(number, &path.child("containerPort"), out),
        }
        match int(found, "hostPort").unwrap_or(0) {
            0 => {}
            number => port(number, &path.child("hostPort"), out),
        }
        one_of_required(text(found, "protocol"), PROTOCOLS, &path.child("protocol"), out);
    }
}

/// Each host port of a group of containers once.
fn host_ports(containers: &[Value], path: &Path<'_>, out: &mut Faults) {
    let mut seen: Vec<String> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        let path = path.child("ports");
        for (i, found) in list(container, "ports").iter().enumerate() {
            let Some(number) = int(found, "hostPort").filter(|n| *n != 0) else { continue };
            let key = format!("{}/{}/{number}", text(found, "protocol"), text(found, "hostIP"));
            if seen.contains(&key) {
                out.push(FieldError::duplicate(&path.index(i).child("hostPort"), key));
            } else {
                seen.push(key);
            }
        }
    }
}

fn resize_policy(container: &Value, pod_policy: &str, path: &Path<'_>, out: &mut Faults) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, policy) in list(container, "resizePolicy").iter().enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if seen.contains(&resource) {
            out.push(FieldError::duplicate(&path.index(i), resource));
        }
        seen.push(resource);
        one_of_required(resource, &["cpu", "memory"], path, out);
        one_of_required(restart, &["NotRequired", "RestartContainer"], path, out);
        if pod_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            out.push(FieldError::invalid(path, restart, detail));
        }
    }
}

fn restart_policy(container: &Value, path: &Path<'_>, out: &mut Faults) {
    let rules = list(container, "restartPolicyRules");
    let at = path.child("restartPolicy");
    match container.get("restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => out.push(FieldError::required(&at, "must specify restartPolicy when restart rules are used")),
        Some(policy) => one_of(policy, RESTART_POLICIES, &at, out),
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > RESTART_RULES_MAX {
        out.push(FieldError::too_long(&path, 20));
    }
    for (i, found) in rules.iter().enumerate() {
        let path = path.index(i);
        one_of(text(found, "action"), &["Restart"], &path.child("action"), out);
        let path = path.child("exitCodes");
        let Some(codes) = part(found, "exitCodes") else {
            out.push(FieldError::required(&path, "must be specified"));
            continue;
        };
        one_of(text(codes, "operator"), &["In", "NotIn"], &path.child("operator"), out);
        if list(codes, "values").len() > EXIT_CODES_MAX {
            out.push(FieldError::too_long(&path.child("values"), 255));
        }
    }
}

pub(super) fn image_spaces(container: &Value, path: &Path<'_>, out: &mut Faults) {
    let image = text(container, "image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        out.push(FieldError::invalid(&path.child("image"), image, detail));
    }
}

/// Variables read from files need an emptyDir.
pub(super) fn file_keys(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    visit_containers(spec, path, &mut |container, path| {
        let path = path.child("env");
        for (i, variable) in list(container, "env").iter().enumerate() {
            let Some(file) = part(&variable["valueFrom"], "fileKeyRef") else { continue };
            let path = path.index(i);
            let path = path.child("valueFrom");
            let path = path.child("fileKeyRef");
            let path = path.child("volumeName");
            let name = text(file, "volumeName");
            match list(spec, "volumes").iter().rfind(|v| text(v, "name") == name) {
                None => out.push(FieldError::not_found(&path, name)),
                Some(volume) if !has(volume, "emptyDir") => {
                    let detail = "referenced volume must be of type emptyDir";
                    out.push(FieldError::invalid(&path, name, detail));
                }
                Some(_) => {}
            }
        }
    });
}

/// An init container that runs beside the others.
pub(super) fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// Privileged as the container's security context says.
pub(super) fn is_privileged(container: &Value) -> bool {
    part(container, "securityContext").is_some_and(|context| flag(context, "privileged"))
}
