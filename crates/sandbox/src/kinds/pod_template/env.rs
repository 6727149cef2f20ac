//! Environment variables and where they come from.

use serde_json::Value;

use super::super::check::{Faults, config_key, dns_label, qualified_name, rule};
use super::super::resources::amount;
use super::super::tree::{has, list, part, text};
use super::super::{FieldError, Path, names};
use super::volume::path_without_backsteps;

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Field paths that exist at all, wherever they may be used.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: &[&str] =
    &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
const ONE_SOURCE: &str = "may not have more than one field specified at a time";

pub(super) fn check(container: &Value, path: &Path<'_>, out: &mut Faults) {
    let at = path.child("env");
    for (i, variable) in list(container, "env").iter().enumerate() {
        let path = at.index(i);
        match text(variable, "name") {
            "" => out.push(FieldError::required(&path.child("name"), "")),
            name => rule(variable_name(name), name, &path.child("name"), out),
        }
        if let Some(source) = part(variable, "valueFrom") {
            value_from(source, text(variable, "value"), &path.child("valueFrom"), out);
        }
    }
    let at = path.child("envFrom");
    for (i, source) in list(container, "envFrom").iter().enumerate() {
        let path = at.index(i);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            rule(variable_name(prefix), prefix, &path.child("prefix"), out);
        }
        let mut count = 0;
        for field in ["configMapRef", "secretRef"] {
            let Some(reference) = part(source, field) else { continue };
            count += 1;
            let path = path.child(field);
            match text(reference, "name") {
                "" => out.push(FieldError::required(&path.child("name"), "")),
                name => rule(names::subdomain(name, true), name, &path.child("name"), out),
            }
        }
        match count {
            0 => out.push(FieldError::invalid(&at, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => out.push(FieldError::invalid(&at, "", ONE_SOURCE)),
        }
    }
}

fn variable_name(name: &str) -> Vec<String> {
    match name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        true => Vec::new(),
        false => {
            let text = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            vec![text.to_owned()]
        }
    }
}

fn value_from(source: &Value, value: &str, path: &Path<'_>, out: &mut Faults) {
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    if let Some(field) = part(source, "fieldRef") {
        field_ref(field, FIELDS, &path.child("fieldRef"), out);
    }
    if let Some(field) = part(source, "resourceFieldRef") {
        resource_ref(field, false, &path.child("resourceFieldRef"), out);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = part(source, field) {
            key_ref(reference, &path.child(field), out);
        }
    }
    if let Some(file) = part(source, "fileKeyRef") {
        file_ref(file, &path.child("fileKeyRef"), out);
    }
    let count = sources.iter().filter(|field| has(source, field)).count();
    let detail = match (count, value.is_empty()) {
        (0, _) => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        (_, false) => "may not be specified when `value` is not empty",
        (1, true) => return,
        (_, true) => ONE_SOURCE,
    };
    out.push(FieldError::invalid(path, "", detail));
}

/// A field of the pod, out of those the place allows.
pub(super) fn field_ref(field: &Value, allowed: &[&str], path: &Path<'_>, out: &mut Faults) {
    for required in ["apiVersion", "fieldPath"] {
        if text(field, required).is_empty() {
            return out.push(FieldError::required(&path.child(required), ""));
        }
    }
    let (version, place) = (text(field, "apiVersion"), text(field, "fieldPath"));
    let subscript = subscript(place);
    let fault = if version != "v1" {
        Some(format!("unsupported pod version: {version}"))
    } else if let Some((map, _)) = subscript {
        let is_map = ["metadata.annotations", "metadata.labels"].contains(&map);
        (!is_map).then(|| format!("field label does not support subscript: {place}"))
    } else {
        let is_known = KNOWN_FIELDS.contains(&place) || place == "spec.host";
        (!is_known).then(|| format!("field label not supported: {place}"))
    };
    if let Some(fault) = fault {
        let detail = format!("error converting fieldPath: {fault}");
        return out.push(FieldError::invalid(&path.child("fieldPath"), place, detail));
    }
    match subscript {
        Some(("metadata.annotations", key)) => qualified_name(&key.to_lowercase(), path, out),
        Some((_, key)) => qualified_name(key, path, out),
        None => {
            let place = if place == "spec.host" { "spec.nodeName" } else { place };
            if !allowed.contains(&place) {
                let path = path.child("fieldPath");
                out.push(FieldError::not_supported(&path, place, allowed.iter().copied()));
            }
        }
    }
}

/// `metadata.labels['app']` as map and key.
fn subscript(place: &str) -> Option<(&str, &str)> {
    let inner = place.strip_suffix("']")?;
    let (map, key) = inner.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// A resource of a container; in a volume the container must be named.
pub(super) fn resource_ref(field: &Value, in_volume: bool, path: &Path<'_>, out: &mut Faults) {
    let resource = text(field, "resource");
    let is_huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|p| resource.starts_with(p));
    if in_volume && text(field, "containerName").is_empty() {
        out.push(FieldError::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        out.push(FieldError::required(&path.child("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !is_huge {
        out.push(FieldError::not_supported(&path.child("resource"), resource, RESOURCES.iter().copied()));
    }
    let divisor = field.get("divisor").map(amount).unwrap_or_default();
    if divisor.is_zero() {
        return;
    }
    let divisor = divisor.to_string();
    let noun = match resource {
        "limits.cpu" | "requests.cpu" => {
            if !["1m", "1"].contains(&divisor.as_str()) {
                let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
                out.push(FieldError::invalid(&path.child("divisor"), resource, detail));
            }
            return;
        }
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if is_huge => "hugepages",
        _ => return,
    };
    if !BYTE_DIVISORS.contains(&divisor.as_str()) {
        let detail = format!(
            "only divisor's values {} are supported with the {noun} resource",
            BYTE_DIVISORS.join(", ")
        );
        out.push(FieldError::invalid(&path.child("divisor"), resource, detail));
    }
}

fn key_ref(reference: &Value, path: &Path<'_>, out: &mut Faults) {
    let name = text(reference, "name");
    rule(names::is_subdomain(name), name, &path.child("name"), out);
    match text(reference, "key") {
        "" => out.push(FieldError::required(&path.child("key"), "")),
        key => rule(config_key(key), key, &path.child("key"), out),
    }
}

fn file_ref(file: &Value, path: &Path<'_>, out: &mut Faults) {
    match text(file, "key") {
        "" => out.push(FieldError::required(&path.child("key"), "")),
        key => rule(variable_name(key), key, &path.child("key"), out),
    }
    match text(file, "volumeName") {
        "" => out.push(FieldError::required(&path.child("volumeName"), "")),
        name => dns_label(name, &path.child("volumeName"), out),
    }
    match text(file, "path") {
        "" => out.push(FieldError::required(&path.child("path"), "")),
        place => path_without_backsteps(place, &path.child("path"), out),
    }
}
