//! What is allowed in a pod spec but probably not meant.

use serde_json::Value;

use super::super::check::parse_ip;
use super::super::resources::amount;
use super::super::tree::{entries, has, int, list, part, text, texts};
use super::super::{Path, names, quote};
use super::spec::{entry, visit_containers};

const LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];
const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const VOLUMES: &[(&str, &str, &str)] = &[
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Warnings about a pod, or about a template at `place` (`spec.template`).
pub(crate) fn warnings(object: &Value, place: Option<&Path<'_>>) -> Vec<String> {
    let (root_spec, root_metadata);
    let (spec_path, metadata_path) = match place {
        Some(place) => (place.child("spec"), place.child("metadata")),
        None => {
            (root_spec, root_metadata) = (Path::root("spec"), Path::root("metadata"));
            (root_spec, root_metadata)
        }
    };
    let (spec, metadata) = (&object["spec"], &object["metadata"]);
    let mut out = Vec::new();
    node_labels(spec, &spec_path, &mut out);
    let annotations = metadata_path.child("annotations");
    for (key, message) in ANNOTATIONS {
        if entry(metadata, "annotations", key).is_some() {
            out.push(format!("{}: {message}", annotations.key(key)));
        }
    }
    volumes(spec, &spec_path, &mut out);
    repeated(spec, "hostAliases", "ip", &spec_path, &mut out);
    repeated(spec, "imagePullSecrets", "name", &spec_path, &mut out);
    let secrets = spec_path.child("imagePullSecrets");
    for (i, _) in
        list(spec, "imagePullSecrets").iter().enumerate().filter(|(_, s)| text(s, "name").is_empty())
    {
        out.push(format!("{}: invalid empty name \"\"", secrets.index(i).child("name")));
    }
    fractions(spec, "overhead", &spec_path, &mut out);
    containers(metadata, spec, &spec_path, &annotations, &mut out);
    ports(spec, &spec_path, &mut out);
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|s| s < 0) {
        let path = spec_path.child("terminationGracePeriodSeconds");
        out.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    null_selectors(spec, &spec_path, &mut out);
    addresses(spec, &spec_path, &mut out);
    out
}

/// What became of a node label, when it is an old one.
pub(crate) fn label_message(key: &str) -> Option<&'static str> {
    LABELS.iter().find(|(label, _)| *label == key).map(|(_, message)| *message)
}

fn node_labels(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let at = path.child("nodeSelector");
    for (key, _) in entries(spec, "nodeSelector") {
        if let Some(message) = label_message(key) {
            out.push(format!("{}: {message}", at.key(key)));
        }
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let at = path.child("affinity");
    let at = at.child("nodeAffinity");
    let required = at.child(REQUIRED);
    let required = required.child("nodeSelectorTerms");
    for (i, term) in list(&affinity[REQUIRED], "nodeSelectorTerms").iter().enumerate() {
        node_term(term, false, &required.index(i), out);
    }
    let preferred = at.child(PREFERRED);
    for (i, term) in list(affinity, PREFERRED).iter().enumerate() {
        node_term(&term["preference"], true, &preferred.index(i).child("preference"), out);
    }
    let at = path.child("topologySpreadConstraints");
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let at = at.index(i);
        let key = text(constraint, "topologyKey");
        if let Some(message) = label_message(key) {
            out.push(format!("{}: {key} is {message}", at.child("topologyKey")));
        }
        if !has(constraint, "labelSelector") {
            out.push(format!(
                "{}: a null labelSelector results in matching no pod",
                at.child("labelSelector")
            ));
        }
    }
}

pub(crate) fn node_term(term: &Value, with_values: bool, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("matchExpressions");
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        let path = path.index(i);
        let key = text(expression, "key");
        if let Some(message) = label_message(key) {
            out.push(format!("{}: {key} is {message}", path.child("key")));
        }
        let path = path.child("values");
        for (i, value) in texts(expression, "values").into_iter().enumerate().filter(|_| with_values) {
            let faults = names::is_label_value(value).into_iter();
            out.extend(faults.map(|fault| format!("{}: {value} is invalid, {fault}", path.index(i))));
        }
    }
}

fn volumes(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("volumes");
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        let path = path.index(i);
        for (field, shown, message) in VOLUMES {
            if has(volume, field) {
                out.push(format!("{}: {message}", path.child(shown)));
            }
        }
        if let Some(template) = part(&volume["ephemeral"], "volumeClaimTemplate") {
            let path = path.child("ephemeral");
            let path = path.child("volumeClaimTemplate");
            claim(&template["spec"], &path.child("spec"), out);
        }
    }
}

/// Warnings about a claim's spec.
pub(crate) fn claim(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("resources");
    for field in ["requests", "limits"] {
        let size = &spec["resources"][field]["storage"];
        if amount(size).milli_value() % 1000 != 0 {
            out.push(fraction(&path.child(field).key("storage"), size));
        }
    }
}

fn fraction(path: &Path<'_>, value: &Value) -> String {
    let value = quote(value.as_str().unwrap_or_default());
    format!("{path}: fractional byte value {value} is invalid, must be an integer")
}

fn fractions(parent: &Value, field: &str, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child(field);
    for name in ["memory", "ephemeral-storage"] {
        if let Some(value) = part(&parent[field], name).filter(|v| amount(v).milli_value() % 1000 != 0) {
            out.push(fraction(&path.key(name), value));
        }
    }
}

fn repeated(spec: &Value, field: &str, key: &str, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child(field);
    let mut seen: Vec<&str> = Vec::new();
    for (i, item) in list(spec, field).iter().enumerate() {
        let value = text(item, key);
        if seen.contains(&value) {
            out.push(format!("{}: duplicate {key} {}", path.index(i).child(key), quote(value)));
        }
        seen.push(value);
    }
}

fn containers(
    metadata: &Value,
    spec: &Value,
    path: &Path<'_>,
    annotations: &Path<'_>,
    out: &mut Vec<String>,
) {
    let message = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    let pod_key = "seccomp.security.alpha.kubernetes.io/pod";
    if !has(&spec["securityContext"], "seccompProfile") && entry(metadata, "annotations", pod_key).is_some() {
        out.push(format!("{}: {message}", annotations.key(pod_key)));
    }
    visit_containers(spec, path, &mut |container, path| {
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{}", text(container, "name"));
        let has_field = has(&container["securityContext"], "seccompProfile");
        if !has_field && entry(metadata, "annotations", &key).is_some() {
            out.push(format!("{}: {message}", annotations.key(&key)));
        }
        let resources = path.child("resources");
        for name in ["memory", "ephemeral-storage"] {
            for field in ["limits", "requests"] {
                let value = &container["resources"][field][name];
                if amount(value).milli_value() % 1000 != 0 {
                    out.push(fraction(&resources.child(field).key(name), value));
                }
            }
        }
        let env = path.child("env");
        let mut seen: Vec<&str> = Vec::new();
        for (i, variable) in list(container, "env").iter().enumerate() {
            let (name, value) = (text(variable, "name"), text(variable, "value"));
            let reference = format!("$({name})");
            let hides = has(variable, "valueFrom") || value == reference || !value.contains(&reference);
            if seen.contains(&name) && hides {
                out.push(format!(
                    "{}: hides previous definition of {}, which may be dropped when using apply",
                    env.index(i),
                    quote(name)
                ));
            }
            seen.push(name);
        }
    });
}

/// A port met before: where, and its host side.
struct Met<'a> {
    place: String,
    key: String,
    host_ip: &'a str,
    host_port: i64,
}

fn ports(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let mut met: Vec<Met<'_>> = Vec::new();
    let mut named: Vec<(&str, String)> = Vec::new();
    let mut names = Vec::new();
    visit_containers(spec, path, &mut |container, path| {
        let path = path.child("ports");
        for (i, port) in list(container, "ports").iter().enumerate() {
            let number = int(port, "containerPort").unwrap_or(0);
            let new = Met {
                place: path.index(i).to_string(),
                key: format!("{number}/{}", text(port, "protocol")),
                host_ip: text(port, "hostIP"),
                host_port: int(port, "hostPort").unwrap_or(0),
            };
            for old in met.iter().filter(|old| old.key == new.key) {
                let is_same_port = old.host_port == new.host_port;
                let word = if is_same_port && old.host_ip == new.host_ip {
                    "duplicate"
                } else if new.host_port == 0 || old.host_port == 0 {
                    "overlapping"
                } else if is_same_port && old.host_ip.is_empty() != new.host_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                out.push(format!("{}: {word} port definition with {}", new.place, old.place));
            }
            let name = text(port, "name");
            match named.iter().find(|(known, _)| !name.is_empty() && *known == name) {
                Some((_, other)) => names.push(format!(
                    "{}: duplicate port name {} with {other}, services and probes that select ports by name will use \
                     {other}",
                    new.place,
                    quote(name)
                )),
                None => named.push((name, new.place.clone())),
            }
            met.push(new);
        }
    });
    out.extend(names);
}

fn null_selectors(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("affinity");
    for field in ["podAffinity", "podAntiAffinity"] {
        let pods = &spec["affinity"][field];
        let path = path.child(field);
        let at = path.child(REQUIRED);
        for (i, _) in list(pods, REQUIRED).iter().enumerate().filter(|(_, t)| !has(t, "labelSelector")) {
            out.push(format!(
                "{}: a null labelSelector results in matching no pod",
                at.index(i).child("labelSelector")
            ));
        }
        let at = path.child(PREFERRED);
        let terms = list(pods, PREFERRED).iter().enumerate();
        for (i, _) in terms.filter(|(_, t)| !has(&t["podAffinityTerm"], "labelSelector")) {
            let at = at.index(i);
            let at = at.child("podAffinityTerm");
            out.push(format!(
                "{}: a null labelSelector results in matching no pod",
                at.child("labelSelector")
            ));
        }
    }
}

fn addresses(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let at = path.child("dnsConfig");
    let at = at.child("nameservers");
    for (i, server) in texts(&spec["dnsConfig"], "nameservers").into_iter().enumerate() {
        out.extend(address(server, &at.index(i)));
    }
    let at = path.child("hostAliases");
    for (i, alias) in list(spec, "hostAliases").iter().enumerate() {
        out.extend(address(text(alias, "ip"), &at.index(i).child("ip")));
    }
}

/// An address that is not written as it should be.
pub(crate) fn address(value: &str, path: &Path<'_>) -> Option<String> {
    let ip = parse_ip(value)?;
    let strict: Option<std::net::IpAddr> = value.parse().ok();
    let mapped = match ip {
        std::net::IpAddr::V6(ip) => ip.to_ipv4_mapped().map(std::net::IpAddr::V4),
        std::net::IpAddr::V4(_) => None,
    };
    if strict.is_none() || mapped.is_some() {
        let good = mapped.unwrap_or(ip);
        return Some(format!(
            "{path}: non-standard IP address {} will be considered invalid in a future Kubernetes release: use \"{good}\"",
            quote(value)
        ));
    }
    (ip.is_ipv6() && ip.to_string() != value).then(|| {
        format!("{path}: IPv6 address {} should be in RFC 5952 canonical format (\"{ip}\")", quote(value))
    })
}
