//! The discovery.k8s.io group: where a Service's endpoints are.

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::Value;

use super::rules::{self, Faults};
use super::{Column, FieldError, Hooks, Kind, Path, cell, check, meta, names, pod_template, quote};

const ENDPOINTS_MAX: i64 = 1000;
const ADDRESSES_MAX: i64 = 100;
const PORTS_MAX: i64 = 20_000;
const HINTS_MAX: i64 = 8;
/// Addresses and ports shown in a Table.
const SHOWN: usize = 3;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLERS: [&str; 2] =
    ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind::builtin("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
            .generation()
            .columns(columns())
            .hooks(Hooks {
                default: default_ports,
                prepare_create: drop_topology,
                prepare_update: |slice, old| {
                    drop_topology(slice);
                    count_labels(slice, old);
                },
                validate,
                warn,
                row,
                ..Hooks::default()
            }),
    ]
}

fn default_ports(slice: &mut Value) {
    for port in rules::each(slice, "ports") {
        rules::default(port, "name", "");
        rules::default(port, "protocol", "TCP");
    }
}

/// Only versions of old could write this field.
fn drop_topology(slice: &mut Value) {
    for endpoint in rules::each(slice, "endpoints") {
        if let Some(fields) = endpoint.as_object_mut() {
            fields.remove("deprecatedTopology");
        }
    }
}

/// Labels tell whose endpoints these are, so they count as a change of what is wanted.
fn count_labels(slice: &mut Value, old: &Value) {
    let labels = |object: &Value| object["metadata"].get("labels").cloned().unwrap_or_default();
    if !rules::same(&labels(slice), &labels(old)) {
        meta::set(slice, "generation", Some(Value::from(meta::generation(old) + 1)));
    }
}

fn validate(slice: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("addressType");
    let kind = rules::text(&slice["addressType"]);
    let mut errors = Vec::new();
    match kind {
        "" => errors.push(FieldError::required(&path, "")),
        _ => errors.extend(rules::one_of(&slice["addressType"], &["FQDN", "IPv4", "IPv6"], &path)),
    }
    errors.extend(ports(&slice["ports"], &Path::root("ports")));
    if old.is_none_or(|old| !rules::same(&old["endpoints"], &slice["endpoints"])) {
        errors.extend(endpoints(&slice["endpoints"], kind, &Path::root("endpoints")));
    }
    errors.extend(old.and_then(|old| rules::immutable(&slice["addressType"], &old["addressType"], &path)));
    errors
}

fn count(list: &[Value]) -> i64 {
    i64::try_from(list.len()).unwrap_or(i64::MAX)
}

fn ports(ports: &Value, path: &Path<'_>) -> Faults {
    let ports = rules::list(ports);
    if count(ports) > PORTS_MAX {
        return vec![FieldError::too_many(path, count(ports), PORTS_MAX)];
    }
    let mut errors = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let at = path.index(i);
        let name = rules::text(&port["name"]);
        if !name.is_empty() {
            errors.extend(rules::faults(names::is_label(name), name, &at.child("name")));
        }
        if ports[..i].iter().any(|other| other["name"] == name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        errors.extend(rules::one_of(&port["protocol"], &["SCTP", "TCP", "UDP"], &at.child("protocol")));
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.extend(rules::faults(
                names::is_qualified_name(protocol),
                protocol,
                &at.child("appProtocol"),
            ));
        }
    }
    errors
}

fn endpoints(endpoints: &Value, kind: &str, path: &Path<'_>) -> Faults {
    let endpoints = rules::list(endpoints);
    if count(endpoints) > ENDPOINTS_MAX {
        return vec![FieldError::too_many(path, count(endpoints), ENDPOINTS_MAX)];
    }
    let each = endpoints.iter().enumerate();
    each.flat_map(|(i, found)| endpoint(found, kind, &path.index(i))).collect()
}

fn endpoint(endpoint: &Value, kind: &str, path: &Path<'_>) -> Faults {
    let at = path.child("addresses");
    let addresses = rules::list(&endpoint["addresses"]);
    let mut errors = Vec::new();
    if addresses.is_empty() {
        errors.push(FieldError::required(&at, "must contain at least 1 address"));
    } else if count(addresses) > ADDRESSES_MAX {
        errors.push(FieldError::too_many(&at, count(addresses), ADDRESSES_MAX));
    }
    for (i, address) in addresses.iter().map(rules::text).enumerate() {
        match kind {
            "IPv4" | "IPv6" => errors.extend(ip_address(address, kind == "IPv4", i, &at)),
            "FQDN" => errors.extend(domain(address, &at.index(i))),
            _ => {}
        }
    }
    if let Some(node) = endpoint["nodeName"].as_str() {
        errors.extend(rules::faults(names::is_subdomain(node), node, &path.child("nodeName")));
    }
    if let Some(host) = endpoint["hostname"].as_str() {
        errors.extend(rules::faults(names::is_label(host), host, &path.child("hostname")));
    }
    errors.extend(hints(&endpoint["hints"], &path.child("hints")));
    errors
}

fn ip_address(address: &str, wants_v4: bool, at: usize, path: &Path<'_>) -> Faults {
    let place = path.index(at);
    let invalid = |detail: String| FieldError::invalid(&place, address, detail);
    let parsed = if wants_v4 { check::parse_ip(address) } else { address.parse().ok() };
    let Some(parsed) = parsed else {
        let leading_zero = !wants_v4 && check::parse_ip(address).is_some();
        return vec![invalid(match leading_zero {
            true => "must not have leading 0s".to_owned(),
            false => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned(),
        })];
    };
    let mapped = matches!(parsed, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    if !wants_v4 && mapped {
        return vec![invalid("must not be an IPv4-mapped IPv6 address".to_owned())];
    }
    if !wants_v4 && parsed.to_string() != address {
        return vec![invalid(format!("must be in canonical form ({})", quote(&parsed.to_string())))];
    }
    let mut errors = Vec::new();
    if wants_v4 != (parsed.is_ipv4() || mapped) {
        let family = if wants_v4 { "must be an IPv4 address" } else { "must be an IPv6 address" };
        errors.push(FieldError::invalid(path, address, family));
    }
    let plain = parsed.to_canonical();
    let (local, multicast) = match plain {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if plain.is_unspecified() {
        errors.push(invalid(format!("may not be unspecified ({address})")));
    }
    if plain.is_loopback() {
        errors.push(invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()));
    }
    if local {
        errors.push(invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()));
    }
    if multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.push(invalid(detail.to_owned()));
    }
    errors
}

fn domain(name: &str, path: &Path<'_>) -> Option<FieldError> {
    if name.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let faults = names::is_subdomain(name);
    if !faults.is_empty() {
        return Some(FieldError::invalid(path, name, faults.join(",")));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return Some(FieldError::invalid(path, name, detail));
    }
    name.split('.').find_map(|label| {
        let faults = names::is_label(label);
        (!faults.is_empty()).then(|| FieldError::invalid(path, label, faults.join(",")))
    })
}

fn hints(hints: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    for (field, rule) in
        [("forZones", names::is_label_value as fn(&str) -> Vec<String>), ("forNodes", names::is_subdomain)]
    {
        let list = rules::list(&hints[field]);
        let at = path.child(field);
        if count(list) > HINTS_MAX {
            errors.push(FieldError::too_many(&at, count(list), HINTS_MAX));
            return errors;
        }
        for (i, hint) in list.iter().enumerate() {
            let at = at.index(i);
            let name = rules::text(&hint["name"]);
            if list[..i].iter().any(|other| other["name"] == name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            }
            errors.extend(rules::faults(rule(name), name, &at.child("name")));
        }
    }
    errors
}

fn warn(slice: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() && slice["addressType"] == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    if CONTROLLERS.contains(&rules::text(&slice["metadata"]["labels"][MANAGED_BY])) {
        return warnings;
    }
    for (i, endpoint) in rules::list(&slice["endpoints"]).iter().enumerate() {
        for (j, address) in rules::list(&endpoint["addresses"]).iter().map(rules::text).enumerate() {
            let place = format!("endpoints[{i}].addresses[{j}]");
            warnings.extend(pod_template::address_warning(address, &Path::root(&place)));
        }
    }
    warnings
}

/// Columns describe these fields as the version of old did that the Tables were made for.
const ADDRESS_TYPE: &str = "addressType specifies the type of address carried by this EndpointSlice. All addresses in \
    this slice must be the same type. This field is immutable after creation. The following address types are \
    currently supported: * IPv4: Represents an IPv4 Address. * IPv6: Represents an IPv6 Address. * FQDN: Represents \
    a Fully Qualified Domain Name.";
const PORTS: &str = "ports specifies the list of network ports exposed by each endpoint in this slice. Each port must \
    have a unique name. When ports is empty, it indicates that there are no defined ports. When a port is defined \
    with a nil port value, it indicates \"all ports\". Each slice may include a maximum of 100 ports.";

fn columns() -> Vec<Column> {
    let slice = "io.k8s.api.discovery.v1.EndpointSlice";
    vec![
        cell::name_column(),
        Column::new("AddressType", "string", 0, ADDRESS_TYPE),
        Column::new("Ports", "string", 0, PORTS),
        cell::documented("Endpoints", "string", 0, slice, "endpoints"),
        cell::age_column(),
    ]
}

fn row(slice: &Value, now: Timestamp) -> Vec<Value> {
    let ports = rules::list(&slice["ports"]).iter().map(|port| match port["port"].as_i64() {
        Some(number) => number.to_string(),
        None => port["name"].as_str().unwrap_or("*").to_owned(),
    });
    let endpoints = rules::list(&slice["endpoints"]).iter();
    let addresses = endpoints.flat_map(|endpoint| rules::list(&endpoint["addresses"]));
    let addresses: Vec<String> = addresses.map(|address| rules::text(address).to_owned()).collect();
    vec![
        cell::name(slice),
        cell::text(&slice["addressType"]),
        Value::from(cell::first_of(&ports.collect::<Vec<_>>(), SHOWN)),
        Value::from(cell::first_of(&addresses, SHOWN)),
        cell::age(slice, now),
    ]
}
