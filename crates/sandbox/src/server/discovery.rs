//! What the server serves, told in both ways clients ask.

use serde_json::{Value, json};

use crate::kinds::{Group, Kind, Registry, Subresource, Version};

/// `/version`: the Kubernetes whose behaviour this is.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "35", "gitVersion": "v1.35.4+koord", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "emulationMajor": "1", "emulationMinor": "35", "minCompatibilityMajor": "1", "minCompatibilityMinor": "34",
        "platform": format!("{}/{}", std::env::consts::OS, platform()),
    })
}

/// The processor as Go names it.
fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `/api`.
pub(super) fn core_versions(address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]})
}

/// Groups in the order Kubernetes lists its own; all others follow by name.
const ORDER: [&str; 14] = [
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
];

fn named_groups(registry: &Registry) -> Vec<(&str, &Group)> {
    let mut groups: Vec<(&str, &Group)> = registry.groups().filter(|(name, _)| !name.is_empty()).collect();
    groups.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
    groups
}

/// Subresources in order of name.
fn parts(kind: &Kind) -> Vec<&Subresource> {
    let mut parts: Vec<&Subresource> = kind.subresources.iter().collect();
    parts.sort_by_key(|part| part.name());
    parts
}

/// `/apis`.
pub(super) fn groups(registry: &Registry) -> Value {
    let named = named_groups(registry).into_iter();
    let groups: Vec<Value> = named.map(|(name, group)| group_entry(name, group)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(super) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let mut entry = group_entry(name, registry.group(name)?);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

fn group_entry(name: &str, group: &Group) -> Value {
    let version = |v: &Version| json!({"groupVersion": format!("{name}/{}", v.name), "version": v.name});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(super) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let found = registry.group(group)?.versions.iter().find(|v| v.name == version)?;
    let mut list = Vec::new();
    for kind in found.kinds.values() {
        list.push(resource(kind));
        list.extend(parts(kind).into_iter().map(|part| subresource(kind, part)));
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list}))
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": kind.verbs});
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    entry
}

fn subresource(kind: &Kind, part: &Subresource) -> Value {
    let (group, version, name) = response_kind(kind, part);
    let mut entry = json!({"name": format!("{}/{}", kind.plural, part.name()), "singularName": "",
        "namespaced": kind.namespaced, "kind": name, "verbs": verbs(part)});
    if group != kind.group {
        entry["group"] = json!(group);
        entry["version"] = json!(version);
    }
    entry
}

/// Group, version and kind that a subresource speaks.
pub(super) fn response_kind<'a>(kind: &'a Kind, part: &Subresource) -> (&'a str, &'a str, &'a str) {
    match part {
        Subresource::Scale(_) => ("autoscaling", "v1", "Scale"),
        Subresource::Binding => ("", "v1", "Binding"),
        Subresource::Eviction => ("policy", "v1", "Eviction"),
        _ => (&kind.group, &kind.version, &kind.kind),
    }
}

pub(super) fn verbs(part: &Subresource) -> &'static [&'static str] {
    match part {
        Subresource::Binding | Subresource::Eviction => &["create"],
        Subresource::Finalize => &["update"],
        _ => &["get", "patch", "update"],
    }
}

/// `/api` (core) or `/apis` (the rest) in one document.
pub(super) fn aggregated(registry: &Registry, core: bool, version: &str) -> Value {
    let chosen = match core {
        true => registry.group("").map(|group| ("", group)).into_iter().collect(),
        false => named_groups(registry),
    };
    let items: Vec<Value> = chosen
        .into_iter()
        .map(|(name, group)| {
            let metadata = if core { json!({}) } else { json!({"name": name}) };
            let versions: Vec<Value> = group.versions.iter().map(aggregated_version).collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items})
}

fn aggregated_version(version: &Version) -> Value {
    let resources: Vec<Value> = version.kinds.values().map(|kind| aggregated_resource(kind)).collect();
    json!({"version": version.name, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(kind: &Kind) -> Value {
    // What a built-in kind speaks in its own group and version goes without saying.
    let type_ = |(group, version, name): (&str, &str, &str)| {
        let (group, version) = match kind.custom.is_none() && group == kind.group {
            true => ("", ""),
            false => (group, version),
        };
        json!({"group": group, "version": version, "kind": name})
    };
    let scope = if kind.namespaced { "Namespaced" } else { "Cluster" };
    let mut entry = json!({
        "resource": kind.plural, "responseKind": type_((&kind.group, &kind.version, &kind.kind)), "scope": scope,
        "singularResource": kind.singular, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    let parts = parts(kind).into_iter().map(|part| {
        json!({"subresource": part.name(), "responseKind": type_(response_kind(kind, part)), "verbs": verbs(part)})
    });
    let parts: Vec<Value> = parts.collect();
    if !parts.is_empty() {
        entry["subresources"] = json!(parts);
    }
    entry
}
