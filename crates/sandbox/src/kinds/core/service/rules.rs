//! What a service may say.

use serde_json::Value;

use super::super::super::check::{Faults, dns_label, ip, is_ipv4, one_of, one_of_required};
use super::super::super::check::{parse_ip, port, port_or_name, qualified_name, subdomain};
use super::super::super::tree::{has, int, is_empty, list, part, text, text_entries, texts};
use super::super::super::{FieldError, Path, meta};
use super::super::endpoints::endpoint_ip;
use super::{NO_IP, has_health_port, is_external, is_headless};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// A client cannot be kept longer than a day.
const AFFINITY_SECONDS_MAX: i64 = 86_400;
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(super) fn validate(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    if let Some(old) = old {
        update(&service["spec"], &old["spec"], &mut out);
    }
    let spec = &service["spec"];
    let path = Path::root("spec");
    by_type(spec, &path, &mut out);
    ports(spec, &path.child("ports"), &mut out);
    out.extend(meta::validate_labels(spec.get("selector"), &path.child("selector")));
    affinity(spec, &path, &mut out);
    cluster_ips(spec, old.map(|old| &old["spec"]), &path, &mut out);
    let known = old.map(|old| texts(&old["spec"], "externalIPs")).unwrap_or_default();
    let at = path.child("externalIPs");
    for (i, address) in texts(spec, "externalIPs").into_iter().enumerate() {
        let count = out.len();
        if !known.contains(&address) {
            ip(address, &at.index(i), &mut out);
        }
        if out.len() == count {
            endpoint_ip(address, &at.index(i), &mut out);
        }
    }
    one_of_required(text(spec, "type"), TYPES, &path.child("type"), &mut out);
    port_numbers(spec, &path.child("ports"), &mut out);
    source_ranges(service, &path, &mut out);
    balancer(spec, &path, &mut out);
    traffic(spec, &path, &mut out);
    out
}

fn by_type(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let kind = text(spec, "type");
    if list(spec, "ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        out.push(FieldError::required(&path.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            out.push(FieldError::invalid(&path.child("clusterIPs").index(0), NO_IP, detail));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !is_empty(spec, field) {
                    let detail = "may not be set for ExternalName services";
                    out.push(FieldError::forbidden(&path.child(field), detail));
                }
            }
            let name = text(spec, "externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => out.push(FieldError::required(&path.child("externalName"), "")),
                name => subdomain(name, &path.child("externalName"), out),
            }
        }
        _ => {}
    }
}

fn ports(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let ports = list(spec, "ports");
    let mut seen: Vec<&str> = Vec::new();
    for (i, found) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = text(found, "name");
        if name.is_empty() && ports.len() > 1 {
            out.push(FieldError::required(&path.child("name"), ""));
        } else if !name.is_empty() {
            dns_label(name, &path.child("name"), out);
            if seen.contains(&name) {
                out.push(FieldError::duplicate(&path.child("name"), name));
            }
            seen.push(name);
        }
        port(int(found, "port").unwrap_or(0), &path.child("port"), out);
        one_of_required(text(found, "protocol"), &["SCTP", "TCP", "UDP"], &path.child("protocol"), out);
        port_or_name(found.get("targetPort"), &path.child("targetPort"), out);
        if let Some(protocol) = found.get("appProtocol").and_then(Value::as_str) {
            qualified_name(protocol, &path.child("appProtocol"), out);
        }
    }
}

fn affinity(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let kind = text(spec, "sessionAffinity");
    one_of_required(kind, &["ClientIP", "None"], &path.child("sessionAffinity"), out);
    let path = path.child("sessionAffinityConfig");
    match (kind, part(spec, "sessionAffinityConfig")) {
        ("ClientIP", config) => {
            let detail = "when session affinity type is ClientIP";
            let Some(config) = config else { return out.push(FieldError::required(&path, detail)) };
            let path = path.child("clientIP");
            let Some(client) = part(config, "clientIP") else {
                return out.push(FieldError::required(&path, detail));
            };
            let path = path.child("timeoutSeconds");
            match int(client, "timeoutSeconds") {
                None => out.push(FieldError::required(&path, detail)),
                Some(1..=AFFINITY_SECONDS_MAX) => {}
                Some(seconds) => {
                    let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                    out.push(FieldError::invalid(&path, seconds, detail));
                }
            }
        }
        ("None", Some(_)) => {
            out.push(FieldError::forbidden(&path, "must not be set when session affinity is None"));
        }
        _ => {}
    }
}

/// Addresses, families and policy must go together.
pub(super) fn cluster_ips(spec: &Value, old: Option<&Value>, path: &Path<'_>, out: &mut Faults) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let at = path.child("clusterIPs");
    let ips = texts(spec, "clusterIPs");
    let shown = || spec.get("clusterIPs").cloned().unwrap_or(Value::Null);
    match (text(spec, "clusterIP"), ips.first()) {
        ("", Some(_)) => {
            out.push(FieldError::invalid(&at, shown(), "must be empty when `clusterIP` is not specified"));
        }
        ("", None) => {}
        (_, None) => out.push(FieldError::required(&at, "")),
        (one, Some(first)) if one != *first => {
            out.push(FieldError::invalid(&at, shown(), "first value must match `clusterIP`"));
        }
        _ => {}
    }
    let families = texts(spec, "ipFamilies");
    let family_path = path.child("ipFamilies");
    for (i, family) in families.iter().enumerate() {
        one_of(family, &["IPv4", "IPv6"], &family_path.index(i), out);
        if families[..i].contains(family) {
            out.push(FieldError::duplicate(&family_path.index(i), *family));
        }
    }
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str) {
        let supported = &["PreferDualStack", "RequireDualStack", "SingleStack"];
        one_of(policy, supported, &path.child("ipFamilyPolicy"), out);
    }
    let known = old.map(|old| texts(old, "clusterIPs")).unwrap_or_default();
    let count = out.len();
    for (i, address) in ips.iter().enumerate() {
        if i == 0 && *address == NO_IP {
            if ips.len() > 1 {
                out.push(FieldError::invalid(&at, shown(), "'None' must be the first and only value"));
            }
        } else if !known.contains(address) {
            ip(address, &at.index(i), out);
        }
    }
    let is_sound = out.len() == count;
    if ips.len() > 2 {
        out.push(FieldError::invalid(&at, shown(), "may only hold up to 2 values"));
    }
    if !is_sound {
        return;
    }
    let kinds: Vec<bool> = ips.iter().filter_map(|a| parse_ip(a)).map(is_ipv4).collect();
    if ips.len() > 1 && !(kinds.contains(&true) && kinds.contains(&false)) {
        let detail = "may specify no more than one IP for each IP family";
        out.push(FieldError::invalid(&at, shown(), detail));
    }
    if is_headless(spec) {
        return;
    }
    for (i, (family, is_v4)) in families.iter().zip(kinds).enumerate() {
        if (*family == "IPv4") != is_v4 {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            out.push(FieldError::invalid(&at.index(i), ips[i], detail));
        }
    }
}

/// Node ports only where they mean something, and no port twice.
fn port_numbers(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let ports = list(spec, "ports");
    let node = |port: &Value| int(port, "nodePort").unwrap_or(0);
    for (i, _) in ports.iter().enumerate().filter(|(_, p)| text(spec, "type") == "ClusterIP" && node(p) != 0)
    {
        let detail = "may not be used when `type` is 'ClusterIP'";
        out.push(FieldError::forbidden(&path.index(i).child("nodePort"), detail));
    }
    let protocol = |port: &Value| text(port, "protocol").to_owned();
    for (i, port) in ports.iter().enumerate().filter(|(_, p)| node(p) != 0) {
        if ports[..i].iter().any(|p| node(p) == node(port) && protocol(p) == protocol(port)) {
            out.push(FieldError::duplicate(&path.index(i).child("nodePort"), node(port)));
        }
    }
    for (i, port) in ports.iter().enumerate() {
        let number = int(port, "port").unwrap_or(0);
        let is_same = |p: &Value| int(p, "port").unwrap_or(0) == number && protocol(p) == protocol(port);
        if ports[..i].iter().any(is_same) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{}\",\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\
                 \"NodePort\":0}}",
                protocol(port)
            );
            out.push(FieldError::duplicate(&path.index(i), number).showing(shown));
        }
    }
}

fn is_cidr(range: &str) -> bool {
    let Some((address, bits)) = range.split_once('/') else { return false };
    let most = match parse_ip(address) {
        Some(ip) if is_ipv4(ip) => 32,
        Some(_) => 128,
        None => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn source_ranges(service: &Value, path: &Path<'_>, out: &mut Faults) {
    let spec = &service["spec"];
    let is_balanced = text(spec, "type") == "LoadBalancer";
    let ranges = texts(spec, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = path.child("LoadBalancerSourceRanges");
        if !is_balanced {
            out.push(FieldError::forbidden(&path, ONLY_BALANCED));
        }
        for (i, range) in ranges.into_iter().map(str::trim).enumerate().filter(|(_, r)| !is_cidr(r)) {
            out.push(FieldError::invalid(&path.index(i), range, CIDR));
        }
        return;
    }
    let annotation = text_entries(&service["metadata"], "annotations").find(|(key, _)| *key == RANGES);
    let Some((_, value)) = annotation else { return };
    let metadata = Path::root("metadata");
    let path = metadata.child("annotations");
    let path = path.key(RANGES);
    if !is_balanced {
        out.push(FieldError::forbidden(&path, ONLY_BALANCED));
    }
    let ranges = value.trim().split(',').map(str::trim).filter(|r| !value.trim().is_empty() && !is_cidr(r));
    out.extend(ranges.map(|range| FieldError::invalid(&path, range, CIDR)));
}

fn balancer(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let is_balanced = text(spec, "type") == "LoadBalancer";
    if has(spec, "allocateLoadBalancerNodePorts") && !is_balanced {
        out.push(FieldError::forbidden(&path.child("allocateLoadBalancerNodePorts"), ONLY_BALANCED));
    }
    let at = path.child("loadBalancerClass");
    match spec.get("loadBalancerClass").and_then(Value::as_str) {
        Some(class) if is_balanced => qualified_name(class, &at, out),
        Some(_) => out.push(FieldError::forbidden(&at, ONLY_BALANCED)),
        None => {}
    }
}

fn traffic(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let at = path.child("externalTrafficPolicy");
    let policy = text(spec, "externalTrafficPolicy");
    match (is_external(spec), policy) {
        (false, "") => {}
        (false, _) => {
            let detail = "may only be set for externally-accessible services";
            out.push(FieldError::invalid(&at, policy, detail));
        }
        (true, _) => one_of_required(policy, &["Cluster", "Local"], &at, out),
    }
    let at = path.child("healthCheckNodePort");
    match (has_health_port(spec), int(spec, "healthCheckNodePort").unwrap_or(0)) {
        (false, 0) => {}
        (false, number) => {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            out.push(FieldError::invalid(&at, number, detail));
        }
        (true, 0) => out.push(FieldError::required(&at, "")),
        (true, number) => port(number, &at, out),
    }
    let at = path.child("internalTrafficPolicy");
    match spec.get("internalTrafficPolicy").and_then(Value::as_str) {
        None if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&text(spec, "type")) => {
            out.push(FieldError::required(&at, ""));
        }
        None => {}
        Some(policy) => one_of(policy, &["Cluster", "Local"], &at, out),
    }
    if let Some(wish) = spec.get("trafficDistribution").and_then(Value::as_str) {
        let supported = &["PreferClose", "PreferSameZone", "PreferSameNode"];
        one_of(wish, supported, &path.child("trafficDistribution"), out);
    }
}

fn update(spec: &Value, old: &Value, out: &mut Faults) {
    let path = Path::root("spec");
    let is_alias = |spec: &Value| text(spec, "type") == "ExternalName";
    let has_addresses = !is_alias(spec) && !is_alias(old);
    let was_headless = is_headless(spec) && is_headless(old);
    if has_addresses && !was_headless {
        let (ips, known) = (texts(spec, "clusterIPs"), texts(old, "clusterIPs"));
        let at = path.child("clusterIPs");
        if ips.is_empty() && !known.is_empty() {
            let value = Value::Array(Vec::new());
            out.push(FieldError::invalid(&at.index(0), value, "primary clusterIP can not be unset"));
        }
        for (i, (ip, known)) in ips.iter().zip(&known).enumerate() {
            if ip != known && (i == 0 || ips.len() == known.len()) {
                out.push(FieldError::invalid(
                    &at.index(i),
                    spec["clusterIPs"].clone(),
                    "may not change once set",
                ));
            }
        }
    }
    if has_addresses && !is_headless(spec) && !is_headless(old) {
        let (families, known) = (texts(spec, "ipFamilies"), texts(old, "ipFamilies"));
        if families.first().is_some_and(|f| known.first().is_some_and(|k| f != k)) {
            let at = path.child("ipFamilies");
            out.push(FieldError::invalid(
                &at.index(0),
                spec["ipFamilies"].clone(),
                "may not change once set",
            ));
        }
    }
    let is_balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    let class = "loadBalancerClass";
    if is_balanced(spec) && is_balanced(old) && spec.get(class) != old.get(class) {
        let value = spec.get(class).cloned().unwrap_or(Value::Null);
        out.push(FieldError::invalid(&path.child(class), value, "may not change once set"));
    }
    let health = "healthCheckNodePort";
    if has_health_port(spec) && has_health_port(old) && int(spec, health) != int(old, health) {
        out.push(FieldError::forbidden(&path.child(health), "field is immutable"));
    }
}

pub(super) fn validate_status(service: &Value, old: &Value) -> Vec<FieldError> {
    let mut out = Faults::new();
    let ingress = list(&service["status"]["loadBalancer"], "ingress");
    let root = Path::root("status");
    let path = root.child("loadBalancer");
    let path = path.child("ingress");
    if text(&service["spec"], "type") != "LoadBalancer" {
        if !ingress.is_empty() {
            let detail = "may only be used when `spec.type` is 'LoadBalancer'";
            out.push(FieldError::forbidden(&path, detail));
        }
        return out;
    }
    let known: Vec<&str> =
        list(&old["status"]["loadBalancer"], "ingress").iter().map(|i| text(i, "ip")).collect();
    for (i, found) in ingress.iter().enumerate() {
        let path = path.index(i);
        let address = text(found, "ip");
        if !address.is_empty() && !known.contains(&address) {
            ip(address, &path.child("ip"), &mut out);
        }
        let at = path.child("ipMode");
        match (found.get("ipMode").and_then(Value::as_str), address.is_empty()) {
            (None, false) => out.push(FieldError::required(&at, "must be specified when `ip` is set")),
            (Some(_), true) => {
                out.push(FieldError::forbidden(&at, "may not be specified when `ip` is not set"));
            }
            (Some(mode), false) => one_of(mode, &["Proxy", "VIP"], &at, &mut out),
            (None, true) => {}
        }
        let host = text(found, "hostname");
        if !host.is_empty() {
            subdomain(host, &path.child("hostname"), &mut out);
            if parse_ip(host).is_some() {
                let detail = "must be a DNS name, not an IP address";
                out.push(FieldError::invalid(&path.child("hostname"), host, detail));
            }
        }
    }
    out
}
