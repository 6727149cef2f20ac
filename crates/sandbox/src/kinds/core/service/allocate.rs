//! Addresses and node ports for services: kept on update, given where none is asked for.
//!
//! There is no ledger: what is in use is read from the services there are. The search begins at a
//! place that depends on the name, so that services made at the same time do not meet.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::super::super::check::{Faults, is_ipv4, parse_ip};
use super::super::super::tree::{has, int, is_empty, list, part, set, text, texts};
use super::super::super::{Admission, FieldError, Operation, Path, meta};
use super::rules::cluster_ips;
use super::{NO_IP, has_cluster_ip, has_health_port, has_node_ports, is_headless, wants_node_ports};
use crate::status::ApiError;

/// 10.96.0.0/16: the first address is the API server's own.
const FIRST_IP: u32 = u32::from_be_bytes([10, 96, 0, 2]);
const LAST_IP: u32 = u32::from_be_bytes([10, 96, 255, 254]);
const RESERVED_IP: &str = "10.96.0.1";
const PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.operation == Operation::Delete || !admission.subresource.is_empty() {
        return Ok(());
    }
    if let Some(old) = admission.old {
        keep(&mut admission.object["spec"], &old["spec"]);
    } else if is_empty(&admission.object["spec"], "clusterIPs") {
        let ip = text(&admission.object["spec"], "clusterIP").to_owned();
        if !ip.is_empty() {
            set(&mut admission.object["spec"], "clusterIPs", json!([ip]));
        }
    }
    let others = Others::new(admission);
    let seed = seed(admission);
    let invalid =
        |object: &Value, errors: &[FieldError]| ApiError::invalid("", "Service", meta::name(object), errors);
    let mut errors = Faults::new();
    let known = admission.old.map(|old| &old["spec"]);
    cluster_ips(&admission.object["spec"], known, &Path::root("spec"), &mut errors);
    if errors.is_empty() {
        errors = families(&mut admission.object["spec"]);
    }
    if !errors.is_empty() {
        return Err(invalid(admission.object, &errors));
    }
    let errors = addresses(&mut admission.object["spec"], admission.old, &others, seed);
    if !errors.is_empty() {
        return Err(invalid(admission.object, &errors));
    }
    let errors = node_ports(&mut admission.object["spec"], admission.old, &others, seed);
    match errors.is_empty() {
        true => Ok(()),
        false => Err(invalid(admission.object, &errors)),
    }
}

fn seed(admission: &Admission<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (admission.namespace, meta::name(admission.object), meta::text(admission.object, "generateName"))
        .hash(&mut hasher);
    hasher.finish()
}

/// What other services use.
struct Others {
    ips: BTreeSet<String>,
    ports: BTreeSet<i64>,
}

impl Others {
    fn new(admission: &Admission<'_>) -> Others {
        let mut ips = BTreeSet::from([RESERVED_IP.to_owned()]);
        let mut ports = BTreeSet::new();
        for service in admission.cluster.list("", "services", "") {
            let is_self = meta::namespace(&service) == admission.namespace
                && meta::name(&service) == meta::name(admission.object);
            if is_self {
                continue;
            }
            let spec = &service["spec"];
            ips.extend(texts(spec, "clusterIPs").into_iter().filter(|ip| *ip != NO_IP).map(str::to_owned));
            ports.extend(list(spec, "ports").iter().filter_map(|p| int(p, "nodePort")).filter(|p| *p != 0));
            ports.extend(int(spec, "healthCheckNodePort").filter(|p| *p != 0));
        }
        Others { ips, ports }
    }
}

/// An update that leaves out what was given before means to keep it.
fn keep(spec: &mut Value, old: &Value) {
    let (new_ip, old_ip) = (text(spec, "clusterIP").to_owned(), text(old, "clusterIP").to_owned());
    if has_cluster_ip(old) && has_cluster_ip(spec) {
        if new_ip.is_empty() {
            set(spec, "clusterIP", old_ip.as_str());
        }
        if is_empty(spec, "clusterIPs") && !is_empty(old, "clusterIPs") {
            set(spec, "clusterIPs", old["clusterIPs"].clone());
        }
    }
    if !new_ip.is_empty() && new_ip != old_ip && spec.get("clusterIPs") == old.get("clusterIPs") {
        set(spec, "clusterIPs", json!([new_ip]));
    }
    if has_node_ports(old) && has_node_ports(spec) {
        let ports = |spec: &Value| -> Vec<(String, i64)> {
            let named = list(spec, "ports").iter();
            named.map(|p| (text(p, "name").to_owned(), int(p, "nodePort").unwrap_or(0))).collect()
        };
        let (known, taken) = (ports(old), ports(spec));
        for port in super::list_mut(spec, "ports").filter(|p| int(p, "nodePort").unwrap_or(0) == 0) {
            let found = known.iter().rfind(|(name, _)| name == text(port, "name")).map(|(_, n)| *n);
            if let Some(number) = found.filter(|n| *n != 0 && !taken.iter().any(|(_, t)| t == n)) {
                set(port, "nodePort", number);
            }
        }
    }
    if has_health_port(old)
        && has_health_port(spec)
        && int(spec, "healthCheckNodePort").unwrap_or(0) == 0
        && let Some(port) = part(old, "healthCheckNodePort").cloned()
    {
        set(spec, "healthCheckNodePort", port);
    }
    if has_cluster_ip(spec) && !has(spec, "ipFamilyPolicy") {
        for field in ["ipFamilyPolicy", "ipFamilies"] {
            if let Some(known) = part(old, field).filter(|_| is_empty(spec, field)).cloned() {
                set(spec, field, known);
            }
        }
    }
}

/// The families of addresses a service has. This cluster knows only IPv4.
fn families(spec: &mut Value) -> Vec<FieldError> {
    if !has_cluster_ip(spec) {
        return Vec::new();
    }
    let is_free = is_headless(spec) && is_empty(spec, "selector");
    let policy = match text(spec, "ipFamilyPolicy") {
        "" if is_free => "RequireDualStack",
        "" => "SingleStack",
        policy => policy,
    }
    .to_owned();
    set(spec, "ipFamilyPolicy", policy.as_str());
    let root = Path::root("spec");
    let mut out = Vec::new();
    let mut families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(str::to_owned).collect();
    let path = root.child("clusterIPs");
    for (i, ip) in texts(spec, "clusterIPs").into_iter().enumerate().skip(families.len()) {
        match parse_ip(ip).map(is_ipv4) {
            Some(true) => families.push("IPv4".to_owned()),
            Some(false) => {
                let detail = "IPv6 is not configured on this cluster";
                out.push(FieldError::invalid(&path.index(i), spec["clusterIPs"].clone(), detail));
            }
            None => {}
        }
    }
    if !is_free {
        if policy == "RequireDualStack" {
            let detail = "this cluster is not configured for dual-stack services";
            out.push(FieldError::invalid(&root.child("ipFamilyPolicy"), policy.as_str(), detail));
        }
        let path = root.child("ipFamilies");
        for (i, family) in families.iter().enumerate().filter(|(_, f)| *f == "IPv6") {
            out.push(FieldError::invalid(&path.index(i), family.as_str(), "not configured on this cluster"));
        }
    }
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    if is_free && policy != "SingleStack" && families.len() == 1 {
        families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }.to_owned());
    }
    set(spec, "ipFamilies", families);
    out
}

fn addresses(spec: &mut Value, old: Option<&Value>, others: &Others, seed: u64) -> Vec<FieldError> {
    if !has_cluster_ip(spec) || is_headless(spec) {
        return Vec::new();
    }
    let kept = old.is_some_and(|old| old["spec"].get("clusterIPs") == spec.get("clusterIPs"));
    let wanted = text(spec, "clusterIP").to_owned();
    if wanted.is_empty() {
        if let Some(ip) = free_ip(others, seed) {
            set(spec, "clusterIPs", json!([ip]));
            set(spec, "clusterIP", ip);
        }
        return Vec::new();
    }
    let Some(std::net::IpAddr::V4(ip)) = parse_ip(&wanted).filter(|_| !kept) else { return Vec::new() };
    let why = if ip.octets()[..2] != [10, 96] {
        "the provided network does not match the current range"
    } else if others.ips.contains(&wanted) {
        "provided IP is already allocated"
    } else {
        return Vec::new();
    };
    let detail = format!("failed to allocate IP {wanted}: {why}");
    vec![FieldError::invalid("spec.clusterIPs", spec["clusterIPs"].clone(), detail)]
}

fn free_ip(others: &Others, seed: u64) -> Option<String> {
    let count = u64::from(LAST_IP - FIRST_IP) + 1;
    let candidates = (0..count).map(|step| (seed.wrapping_add(step)) % count);
    let mut texts = candidates
        .filter_map(|offset| u32::try_from(offset).ok())
        .map(|offset| Ipv4Addr::from(FIRST_IP + offset).to_string());
    texts.find(|ip| !others.ips.contains(ip))
}

fn node_ports(spec: &mut Value, old: Option<&Value>, others: &Others, seed: u64) -> Vec<FieldError> {
    let mut out = Vec::new();
    let known: Vec<i64> = old
        .map(|old| list(&old["spec"], "ports").iter().filter_map(|p| int(p, "nodePort")).collect())
        .unwrap_or_default();
    let mut taken = others.ports.clone();
    let root = Path::root("spec");
    let path = root.child("ports");
    let is_used = has_node_ports(spec);
    for (i, port) in list(spec, "ports").iter().enumerate().filter(|_| is_used) {
        let Some(number) = int(port, "nodePort").filter(|n| *n != 0 && !known.contains(n)) else { continue };
        let detail = if !PORTS.contains(&number) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if others.ports.contains(&number) {
            "provided port is already allocated"
        } else {
            continue;
        };
        out.push(FieldError::invalid(&path.index(i).child("nodePort"), number, detail));
    }
    taken.extend(list(spec, "ports").iter().filter_map(|p| int(p, "nodePort")));
    if wants_node_ports(spec) {
        // Ports of one number and different protocols share a node port.
        let mut shared: Vec<(i64, String, i64)> = Vec::new();
        for port in super::list_mut(spec, "ports").filter(|p| int(p, "nodePort").unwrap_or(0) == 0) {
            let (number, protocol) = (int(port, "port").unwrap_or(0), text(port, "protocol").to_owned());
            let same =
                shared.iter().find(|(n, p, _)| *n == number && *p != protocol).map(|(_, _, node)| *node);
            if let Some(free) = same.or_else(|| free_port(&taken, seed)) {
                taken.insert(free);
                shared.push((number, protocol, free));
                set(port, "nodePort", free);
            }
        }
    }
    if has_health_port(spec)
        && int(spec, "healthCheckNodePort").unwrap_or(0) == 0
        && let Some(free) = free_port(&taken, seed)
    {
        set(spec, "healthCheckNodePort", free);
    }
    out
}

fn free_port(taken: &BTreeSet<i64>, seed: u64) -> Option<i64> {
    let count = PORTS.end() - PORTS.start() + 1;
    let offset = i64::try_from(seed % 2768).ok()?;
    (0..count).map(|step| PORTS.start() + (offset + step) % count).find(|port| !taken.contains(port))
}
