//! A pod spec as a whole: its parts in Kubernetes' order, and the rules between them.

use serde_json::Value;

use super::super::check::{Faults, dns_label, ip, one_of, one_of_required, range, rule, subdomain};
use super::super::internal::compact;
use super::super::tree::{entries, flag, has, int, list, part, text, texts};
use super::super::{FieldError, Path, meta, names};
use super::{Place, affinity, container, requirements, scheduling, security, volume};

const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARS_MAX: usize = 2048;

pub(super) fn check(spec: &Value, place: Place<'_>, path: &Path<'_>, out: &mut Faults) {
    if !has(spec, "terminationGracePeriodSeconds") {
        out.push(FieldError::required(&path.child("terminationGracePeriodSeconds"), ""));
    }
    let volumes = volume::check_all(spec, place, &path.child("volumes"), out);
    resource_claims(spec, &path.child("resourceClaims"), out);
    let context = container::Context::new(spec, &volumes);
    container::check_regular(&context, &path.child("containers"), out);
    container::check_init(&context, &path.child("initContainers"), out);
    container::check_ephemeral(&context, &path.child("ephemeralContainers"), out);
    requirements::check_pod(spec, path, out);
    host_network(spec, place, path, out);
    let restart = text(spec, "restartPolicy");
    one_of_required(restart, &["Always", "OnFailure", "Never"], &path.child("restartPolicy"), out);
    one_of_required(text(spec, "dnsPolicy"), DNS_POLICIES, &path.child("dnsPolicy"), out);
    out.extend(meta::validate_labels(spec.get("nodeSelector"), &path.child("nodeSelector")));
    security::check_pod(spec, &path.child("securityContext"), out);
    affinity::check(spec, &path.child("affinity"), out);
    dns_config(spec, &path.child("dnsConfig"), out);
    scheduling::gates(spec, path, out);
    scheduling::spread(spec, &path.child("topologySpreadConstraints"), out);
    security::host_users(spec, path, out);
    host_name(spec, path, out);
    names_of_others(spec, path, out);
    rest(spec, path, out);
    container::file_keys(spec, path, out);
}

/// Names of other objects, and numbers.
fn names_of_others(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    for field in ["serviceAccountName", "nodeName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            subdomain(name, &path.child(field), out);
        }
    }
    if let Some(seconds) = int(spec, "activeDeadlineSeconds") {
        range(seconds, 1, i64::from(i32::MAX), &path.child("activeDeadlineSeconds"), out);
    }
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            dns_label(name, &path.child(field), out);
        }
    }
}

fn rest(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    scheduling::tolerations(spec, &path.child("tolerations"), out);
    let aliases = path.child("hostAliases");
    for (i, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = aliases.index(i);
        ip(text(alias, "ip"), &path.child("ip"), out);
        let names = path.child("hostnames");
        for (i, name) in texts(alias, "hostnames").into_iter().enumerate() {
            subdomain(name, &names.index(i), out);
        }
    }
    let class = text(spec, "priorityClassName");
    if !class.is_empty() {
        subdomain(class, &path.child("priorityClassName"), out);
    }
    if let Some(class) = spec.get("runtimeClassName").and_then(Value::as_str) {
        subdomain(class, &path.child("runtimeClassName"), out);
    }
    if let Some(policy) = spec.get("preemptionPolicy").and_then(Value::as_str) {
        let supported = &["PreemptLowerPriority", "Never"];
        one_of_required(policy, supported, &path.child("preemptionPolicy"), out);
    }
    requirements::check_overhead(spec, &path.child("overhead"), out);
    if let Some(os) = part(spec, "os") {
        let path = path.child("os");
        match text(os, "name") {
            "" => out.push(FieldError::required(&path.child("name"), "")),
            name => one_of(name, &["linux", "windows"], &path, out),
        }
    }
    security::check_os(spec, path, out);
}

fn resource_claims(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, claim) in list(spec, "resourceClaims").iter().enumerate() {
        let path = path.index(i);
        let name = text(claim, "name");
        let at = path.child("name");
        if name.is_empty() {
            out.push(FieldError::required(&at, ""));
        } else if seen.contains(&name) {
            out.push(FieldError::duplicate(&at, name));
        } else {
            dns_label(name, &at, out);
            seen.push(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let detail = match sources.iter().filter(|s| has(claim, s)).count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        if !detail.is_empty() {
            let error = FieldError::invalid(&path, claim.clone(), detail);
            out.push(error.showing(compact("PodResourceClaim", claim)));
        }
        for field in sources {
            if let Some(name) = claim.get(field).and_then(Value::as_str) {
                subdomain(name, &path.child(field), out);
            }
        }
    }
}

/// On the host's network a container port is the host's port.
fn host_network(spec: &Value, place: Place<'_>, path: &Path<'_>, out: &mut Faults) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    let path = path.child("containers");
    for (i, container) in list(spec, "containers").iter().enumerate() {
        let path = path.index(i);
        let path = path.child("ports");
        for (i, port) in list(container, "ports").iter().enumerate() {
            let (host, own) = (int(port, "hostPort").unwrap_or(0), int(port, "containerPort").unwrap_or(0));
            if (place != Place::Template || host != 0) && host != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                out.push(FieldError::invalid(&path.index(i).child("hostPort"), host, detail));
            }
        }
    }
}

fn dns_config(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let config = part(spec, "dnsConfig");
    let servers = config.map(|c| texts(c, "nameservers")).unwrap_or_default();
    if text(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            return out.push(FieldError::required(path, detail));
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return out.push(FieldError::required(&path.child("nameservers"), detail));
        }
    }
    let Some(config) = config else { return };
    let at = path.child("nameservers");
    if servers.len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        out.push(FieldError::invalid(&at, config["nameservers"].clone(), detail));
    }
    for (i, server) in servers.iter().enumerate() {
        ip(server, &at.index(i), out);
    }
    searches(config, &path.child("searches"), out);
    let at = path.child("options");
    for (i, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            out.push(FieldError::required(&at.index(i), "must not be empty"));
        }
    }
}

fn searches(config: &Value, path: &Path<'_>, out: &mut Faults) {
    let searches = texts(config, "searches");
    let whole = || config["searches"].clone();
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        out.push(FieldError::invalid(path, whole(), detail));
    }
    if searches.join(" ").len() > SEARCH_CHARS_MAX {
        let detail = format!(
            "must not have more than {SEARCH_CHARS_MAX} characters (including spaces) in the search list"
        );
        out.push(FieldError::invalid(path, whole(), detail));
    }
    for (i, search) in searches.into_iter().enumerate().filter(|(_, s)| *s != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        rule(search_domain(search), search, &path.index(i), out);
    }
}

/// A subdomain whose labels may hold underscores.
fn search_domain(value: &str) -> Vec<String> {
    const PART: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.strip_prefix('_').unwrap_or(part).as_bytes();
        bytes.first().is_some_and(word)
            && bytes.last().is_some_and(word)
            && bytes.iter().all(|b| word(b) || matches!(b, b'-' | b'_'))
    };
    let mut faults = Vec::new();
    if value.len() > names::SUBDOMAIN_MAX {
        faults.push(names::max_length(names::SUBDOMAIN_MAX));
    }
    if !value.split('.').all(is_part) {
        faults.push(names::regex_fault(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            &format!("{PART}(\\.{PART})*"),
            &["example.com"],
        ));
    }
    faults
}

fn host_name(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(name) = spec.get("hostnameOverride").and_then(Value::as_str) else { return };
    let path = path.child("hostnameOverride");
    if flag(spec, "setHostnameAsFQDN") {
        out.push(FieldError::forbidden(&path, "may not be specified when setHostnameAsFQDN is true"));
    }
    if flag(spec, "hostNetwork") {
        out.push(FieldError::forbidden(&path, "may not be specified when hostNetwork is true"));
    }
    if name.len() > 64 {
        out.push(FieldError::too_long(&path, 64));
    }
    subdomain(name, &path, out);
}

/// Rules of pods that templates do not have.
pub(super) fn check_only_pods(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    if text(spec, "serviceAccountName").is_empty() {
        let volumes = path.child("volumes");
        for (i, volume) in list(spec, "volumes").iter().enumerate() {
            let path = volumes.index(i);
            let path = path.child("projected");
            let path = path.child("sources");
            for (i, source) in list(&volume["projected"], "sources").iter().enumerate() {
                if has(source, "serviceAccountToken") {
                    let detail = "must not be specified when serviceAccountName is not set";
                    out.push(FieldError::forbidden(&path.index(i).child("serviceAccountToken"), detail));
                }
            }
        }
    }
    for containers in ["containers", "initContainers"] {
        let path = path.child(containers);
        for (i, container) in list(spec, containers).iter().enumerate() {
            container::image_spaces(container, &path.index(i), out);
        }
    }
}

/// Every container with its place, in Kubernetes' order.
pub(super) fn visit_containers<'a>(
    spec: &'a Value,
    path: &Path<'_>,
    visit: &mut dyn FnMut(&'a Value, &Path<'_>),
) {
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        let path = path.child(containers);
        for (i, container) in list(spec, containers).iter().enumerate() {
            visit(container, &path.index(i));
        }
    }
}

/// Whether any of these containers has this name.
pub(super) fn has_container(spec: &Value, name: &str) -> bool {
    let mut is_found = false;
    visit_containers(spec, &Path::root("spec"), &mut |container, _| {
        is_found |= text(container, "name") == name
    });
    is_found
}

/// A map of texts: the entry, when it is there.
pub(super) fn entry<'a>(value: &'a Value, field: &str, key: &str) -> Option<&'a str> {
    entries(value, field).find(|(found, _)| *found == key).and_then(|(_, value)| value.as_str())
}
