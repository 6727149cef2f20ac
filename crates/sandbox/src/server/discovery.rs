//! What the server serves, told in both ways clients ask.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_rustls::rustls::SupportedCipherSuite;
use tokio_rustls::rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;

use crate::kinds::{Group, Kind, Registry, Subresource, Version};

/// The Kubernetes whose API this is.
pub const KUBERNETES_VERSION: &str = "v1.35.4+koord";

/// The order of Kubernetes' own groups in discovery.
const ORDER: [&str; 18] = [
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
];

/// Of a SHA-256, so many bytes stand in a storage version hash.
const HASH_BYTES: usize = 8;

/// `/version`: the Kubernetes whose behaviour this is.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "35", "gitVersion": KUBERNETES_VERSION, "gitCommit": "", "gitTreeState": "clean",
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

/// Subresources in order of name.
fn parts(kind: &Kind) -> Vec<&Subresource> {
    let mut parts: Vec<&Subresource> = kind.subresources.iter().collect();
    parts.sort_by_key(|part| part.name());
    parts
}

/// `/apis`.
pub(super) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> =
        in_order(registry).into_iter().map(|(name, group)| group_entry(name, group)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Groups beside the core one, the most important first: clients that find a name in several take the first.
fn in_order(registry: &Registry) -> Vec<(&str, &Group)> {
    let mut groups: Vec<(&str, &Group)> = registry.groups().filter(|(name, _)| !name.is_empty()).collect();
    let rank = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
    groups.sort_by_key(|(name, _)| (rank(name), *name));
    groups
}

/// `/`: where to look.
pub(super) fn paths(registry: &Registry) -> Value {
    let mut paths: Vec<String> =
        ["/api", "/api/v1", "/apis", "/apis/", "/healthz", "/livez", "/readyz", "/version"]
            .map(str::to_owned)
            .to_vec();
    paths.extend(["/openapi/v3".to_owned(), "/openapi/v3/".to_owned()]);
    for (name, group) in in_order(registry) {
        paths.push(format!("/apis/{name}"));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{name}/{}", version.name)));
    }
    paths.sort();
    json!({"paths": paths})
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
    let mut document = json!({"kind": "APIResourceList", "groupVersion": name, "resources": list});
    if !group.is_empty() {
        document["apiVersion"] = json!("v1");
    }
    Some(document)
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
    if kind.allows("list") {
        entry["storageVersionHash"] = json!(storage_hash(kind));
    }
    entry
}

/// Tells clients whether two versions of a resource are stored alike.
fn storage_hash(kind: &Kind) -> String {
    let version = match &kind.custom {
        Some(custom) => custom.storage_api_version.rsplit('/').next().unwrap_or_default(),
        // Kubernetes still keeps definitions in the version they first had.
        None if super::crd::is_crd(kind) => "v1beta1",
        None => &kind.version,
    };
    let name = format!("{}/{version}/{}", kind.storage_group, kind.kind);
    let SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else { return String::new() };
    let digest = suite.common.hash_provider.hash(name.as_bytes());
    STANDARD.encode(&digest.as_ref()[..HASH_BYTES])
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
        true => registry.groups().filter(|(name, _)| name.is_empty()).collect(),
        false => in_order(registry),
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
    // Built-in kinds name only a group that is not their own.
    let type_ =
        |(group, version, name): (&str, &str, &str)| match kind.custom.is_none() && group == kind.group {
            true => json!({"group": "", "version": "", "kind": name}),
            false => json!({"group": group, "version": version, "kind": name}),
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
