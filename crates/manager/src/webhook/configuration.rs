//! What the two webhook configurations have to look like for the API server to find us. Spec: manager 14.2.
//!
//! Pure, over JSON trees: fields that a newer chart or API server knows stay. The list of entries comes from the
//! annotation `template`, which holds it as it was installed; so entries that a gate switches off can come back.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::certificates::validity;
use super::paths::{ENTRIES, Side};
use super::settings::Settings;

const TEMPLATE: &str = "template";

/// Every namespace carries its name under this label.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// For so long after an authority came into use, those before it are still trusted: certificates of other replicas,
/// and connections being made, may still stem from them.
const OVERLAP_HOURS: i64 = 1;

/// What entries are to say.
pub struct Wanted<'a> {
    pub settings: &'a Settings,
    /// Whether somebody answers at a path.
    pub is_served: &'a (dyn Fn(&str) -> bool + Sync),
    /// The authority of the server's certificate, PEM. None where somebody else tells the API server of it.
    pub ca_cert: Option<&'a str>,
    /// Whether replicas come to another authority one after the other, and not all of them by one Secret.
    pub is_staggered: bool,
    /// Since when this replica goes by that authority. It may have been made long before: Secrets come back from
    /// backups.
    pub since: Timestamp,
    pub now: Timestamp,
}

/// A configuration that cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error("annotation {TEMPLATE} of {kind} {name} is not the JSON of a list of webhooks")]
    Template { kind: &'static str, name: String, source: serde_json::Error },
}

/// The configuration as it should be; none when it already is.
pub fn keep(
    side: Side,
    configuration: &Value,
    wanted: &Wanted<'_>,
) -> Result<Option<Value>, ConfigurationError> {
    let current = configuration.get("webhooks").and_then(Value::as_array).cloned().unwrap_or_default();
    let template = configuration
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(TEMPLATE)?.as_str())
        .unwrap_or_default();
    let mut kept = configuration.clone();
    let mut entries: Vec<Value> = if template.is_empty() {
        let entries = complete(side, current.clone(), wanted.settings);
        kept["metadata"]["annotations"][TEMPLATE] = Value::String(Value::from(entries.clone()).to_string());
        entries
    } else {
        serde_json::from_str::<Option<Vec<Value>>>(template)
            .map_err(|source| {
                let name = wanted.settings.configuration_name(side).to_owned();
                ConfigurationError::Template { kind: side.kind(), name, source }
            })?
            .unwrap_or_default()
    };
    entries.retain(|entry| path(entry).is_some_and(|path| (wanted.is_served)(&path)));
    let ours = wanted.ca_cert.map(|ca_cert| STANDARD.encode(bundle(&current, ca_cert, wanted)));
    for entry in &mut entries {
        let bundle = ours.clone().map(Value::from).or_else(|| standing_bundle(&current, entry));
        aim(entry, bundle, wanted.settings);
        spare_the_cluster(entry, &wanted.settings.namespace);
        set_defaults(entry, side);
    }
    if !(entries.is_empty() && current.is_empty()) {
        kept["webhooks"] = Value::from(entries);
    }
    Ok((kept != *configuration).then_some(kept))
}

/// Adds the entries that a list without template may have lost.
///
/// A list that we have kept before lacks those whose gate is off. As installed it has them all, or leaves some out on
/// purpose; that one is recognised by the empty line that the chart gives it for an authority.
///
/// Differs: upstream takes the reduced list for the template, and the entries are gone (manager 26, DB-36).
fn complete(side: Side, mut entries: Vec<Value>, settings: &Settings) -> Vec<Value> {
    let was_kept = entries.iter().any(|entry| !bundle_of(entry).is_empty());
    if was_kept {
        for known in ENTRIES.iter().filter(|known| known.side == side) {
            if !entries.iter().any(|entry| entry["name"] == known.name) {
                entries.push(known.wire(&settings.namespace, &settings.service_name));
            }
        }
    }
    entries
}

/// The path at which an entry calls, by Service or by URL.
fn path(entry: &Value) -> Option<String> {
    let client = entry.get("clientConfig")?;
    if let Some(path) = client.pointer("/service/path").and_then(Value::as_str) {
        return Some(path.to_owned());
    }
    let url: http::Uri = client.get("url")?.as_str()?.parse().ok()?;
    Some(url.path().to_owned())
}

/// What an entry trusts as it stands; one that comes back trusts what the others do.
fn standing_bundle(current: &[Value], entry: &Value) -> Option<Value> {
    let same = current.iter().find(|standing| standing["name"] == entry["name"]);
    same.or(current.first())?.pointer("/clientConfig/caBundle").cloned()
}

/// Makes an entry call us, and trust these authorities.
fn aim(entry: &mut Value, bundle: Option<Value>, settings: &Settings) {
    let path = path(entry).unwrap_or_default();
    let client = &mut entry["clientConfig"];
    match bundle {
        Some(bundle) => client["caBundle"] = bundle,
        None => _ = client.as_object_mut().map(|client| client.remove("caBundle")),
    }
    match settings.url(&path) {
        Some(url) => {
            client["url"] = json!(url);
            client.as_object_mut().map(|client| client.remove("service"));
        }
        None => {
            client["service"]["namespace"] = json!(settings.namespace);
            client["service"]["name"] = json!(settings.service_name);
            client["service"]["path"] = json!(path);
            client.as_object_mut().map(|client| client.remove("url"));
        }
    }
}

/// While nobody answers, an entry that fails pods or nodes must not keep Kubernetes and ourselves from starting.
///
/// Differs: upstream leaves it to the labels of namespaces, which kube-system does not have; and with nodes that fail,
/// kubelets cannot report, so that all nodes are given up, ours among them.
fn spare_the_cluster(entry: &mut Value, own_namespace: &str) {
    let fails = entry.get("failurePolicy").is_none_or(|policy| policy != "Ignore");
    if fails && is_about(entry, "nodes") {
        // Nodes have no namespace to leave out.
        entry["failurePolicy"] = json!("Ignore");
        return;
    }
    if !fails || !is_about(entry, "pods") {
        return;
    }
    let spared =
        json!({"key": NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", own_namespace]});
    let selector = &mut entry["namespaceSelector"];
    match selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        Some(expressions) if expressions.contains(&spared) => {}
        Some(expressions) => expressions.push(spared),
        None => selector["matchExpressions"] = json!([spared]),
    }
}

/// Whether an entry is called for objects of a kind, or for one of their subresources.
fn is_about(entry: &Value, kind: &str) -> bool {
    let rules = entry.get("rules").and_then(Value::as_array).into_iter().flatten();
    let mut resources = rules.flat_map(|rule| rule["resources"].as_array().into_iter().flatten());
    resources.any(|name| {
        let first = name.as_str().and_then(|name| name.split('/').next());
        first.is_some_and(|first| first == kind || first == "*")
    })
}

/// What the API server fills in, so that a list that lacks it does not look like a change for ever.
fn set_defaults(entry: &mut Value, side: Side) {
    let Some(fields) = entry.as_object_mut() else { return };
    let mut defaults = vec![
        ("failurePolicy", json!("Fail")),
        ("matchPolicy", json!("Equivalent")),
        ("namespaceSelector", json!({})),
        ("objectSelector", json!({})),
        ("timeoutSeconds", json!(10)),
    ];
    if side == Side::Mutating {
        defaults.push(("reinvocationPolicy", json!("Never")));
    }
    for (name, value) in defaults {
        fields.entry(name).or_insert(value);
    }
    for rule in fields.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(rule) = rule.as_object_mut() {
            rule.entry("scope").or_insert(json!("*"));
        }
    }
    let service = fields.get_mut("clientConfig").and_then(|client| client.get_mut("service"));
    if let Some(service) = service.and_then(Value::as_object_mut) {
        service.entry("port").or_insert(json!(443));
    }
}

/// The authorities to trust: the one of today, and for a while those that were trusted before it.
///
/// Where replicas are given theirs one after the other, an authority that is younger than ours is one that another
/// replica has already: whoever has it last must not take it away from the others.
///
/// Differs: upstream replaces one by the other, and whatever the API server does in that moment fails.
fn bundle(current: &[Value], ca_cert: &str, wanted: &Wanted<'_>) -> String {
    // The PEM of others may lack the end of its last line.
    let (mut bundle, now) = (format!("{}\n", ca_cert.trim_end()), wanted.now);
    let is_new = wanted.since.checked_add(OVERLAP_HOURS.hours()).is_ok_and(|until| now < until);
    let made = validity(ca_cert).map(|(from, _)| from);
    for other in current.iter().flat_map(bundle_of) {
        let Some((from, until)) = validity(&other) else { continue };
        let is_valid = from <= now && now < until;
        let is_younger = wanted.is_staggered && made.is_some_and(|made| made < from);
        if is_valid && (is_new || is_younger) && !bundle.contains(other.trim()) {
            bundle.push_str(&other);
        }
    }
    bundle
}

/// The certificates that an entry trusts, each as PEM; what the chart puts there at first holds none.
fn bundle_of(entry: &Value) -> Vec<String> {
    let text = entry.pointer("/clientConfig/caBundle").and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(text).unwrap_or_default();
    let pem = String::from_utf8_lossy(&bytes);
    let is_certificate = |part: &String| CertificateDer::from_pem_slice(part.as_bytes()).is_ok();
    pem.split_inclusive("-----END CERTIFICATE-----")
        .map(|part| format!("{}\n", part.trim()))
        .filter(is_certificate)
        .collect()
}

#[cfg(test)]
mod tests;
