//! HTTP extenders, checked. Spec: scheduler-core 3.5 and 7.1.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use koord_api::duration::GoDuration;

use super::field::Fault;
use super::raw::{RawExtender, RawExtenderTls};

/// Another process that has a say, over HTTP. A verb that is none is not asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    pub url_prefix: String,
    pub filter_verb: Option<String>,
    pub preempt_verb: Option<String>,
    /// With the weight of its scores, above 0.
    pub prioritize: Option<(String, i64)>,
    /// At most one extender has it.
    pub bind_verb: Option<String>,
    pub enable_https: bool,
    pub tls: Option<ExtenderTls>,
    pub timeout: Duration,
    /// It knows the nodes, so only their names are sent.
    pub node_cache_capable: bool,
    /// Only pods that ask for one of these are sent; empty is all pods.
    pub managed_resources: Vec<ManagedResource>,
    /// Its errors do not fail the pod.
    pub ignorable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedResource {
    pub name: String,
    /// NodeResourcesFit does not check it.
    pub ignored_by_scheduler: bool,
}

/// How an extender is trusted, and how it trusts us. Data counts before files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtenderTls {
    pub insecure: bool,
    pub server_name: Option<String>,
    pub cert: Option<Pem>,
    pub key: Option<Pem>,
    pub ca: Option<Pem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pem {
    File(String),
    Data(Vec<u8>),
}

/// When the file gives none.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn extender(index: usize, raw: &RawExtender) -> Result<Extender, Vec<Fault>> {
    let at = format!("extenders[{index}]");
    let tls = match raw.tls_config.as_ref().map(|tls| tls_config(&format!("{at}.tlsConfig"), tls)) {
        None => None,
        Some(tls) => Some(tls?),
    };
    let timeout = raw.timeout.unwrap_or_default();
    let Some(given) = timeout.to_std() else {
        return Err(vec![Fault::invalid(format!("{at}.httpTimeout"), timeout, "must be non-negative")]);
    };
    let managed = raw.managed_resources.iter().flatten().map(|resource| ManagedResource {
        name: resource.name.clone(),
        ignored_by_scheduler: resource.ignored_by_scheduler.unwrap_or_default(),
    });
    Ok(Extender {
        url_prefix: raw.url_prefix.clone(),
        filter_verb: text(&raw.filter_verb),
        preempt_verb: text(&raw.preempt_verb),
        prioritize: text(&raw.prioritize_verb).map(|verb| (verb, raw.weight.unwrap_or_default())),
        bind_verb: text(&raw.bind_verb),
        enable_https: raw.enable_https.unwrap_or_default(),
        tls,
        timeout: if timeout == GoDuration::ZERO { TIMEOUT } else { given },
        node_cache_capable: raw.node_cache_capable.unwrap_or_default(),
        managed_resources: managed.collect(),
        ignorable: raw.ignorable.unwrap_or_default(),
    })
}

fn text(given: &Option<String>) -> Option<String> {
    given.clone().filter(|text| !text.is_empty())
}

fn tls_config(at: &str, raw: &RawExtenderTls) -> Result<ExtenderTls, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut pem = |field: &str, data: &Option<String>, file: &Option<String>| {
        let Some(data) = text(data) else { return text(file).map(Pem::File) };
        match STANDARD.decode(&data) {
            Ok(bytes) => Some(Pem::Data(bytes)),
            Err(_) => {
                faults
                    .push(Fault::new(format!("{at}.{field}"), format!("{at}.{field}: illegal base64 data")));
                None
            }
        }
    };
    let tls = ExtenderTls {
        insecure: raw.insecure.unwrap_or_default(),
        server_name: text(&raw.server_name),
        cert: pem("certData", &raw.cert_data, &raw.cert_file),
        key: pem("keyData", &raw.key_data, &raw.key_file),
        ca: pem("caData", &raw.ca_data, &raw.ca_file),
    };
    if faults.is_empty() { Ok(tls) } else { Err(faults) }
}
