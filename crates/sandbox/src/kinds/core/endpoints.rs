//! Endpoints: the addresses behind a service, in the old form.

use serde_json::Value;

use super::super::cell::{NONE, age, name};
use super::super::check::{Faults, dns_label, ip, is_same, one_of_required, parse_ip, port};
use super::super::check::{qualified_name, subdomain};
use super::super::tree::{fill, int, list, list_mut, text};
use super::super::{FieldError, Hooks, Kind, Path};
use super::columns;

/// Addresses shown in a row before the rest is only counted.
const SHOWN_MAX: usize = 3;
const DEPRECATED: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "Endpoints", "endpoints")
        .short(&["ep"])
        .columns(columns::endpoints())
        .hooks(Hooks {
            default: |object| {
                for subset in list_mut(object, "subsets") {
                    list_mut(subset, "ports").for_each(|port| fill(port, "protocol", "TCP"));
                }
            },
            validate,
            warn: |_, _| vec![DEPRECATED.to_owned()],
            row: |object, now| vec![name(object), addresses(object).into(), age(object, now)],
            ..Hooks::default()
        });
    kind.create_on_update = true;
    kind
}

fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    if old.is_some_and(|old| is_same(object.get("subsets"), old.get("subsets"))) {
        return out;
    }
    let root = Path::root("subsets");
    for (i, subset) in list(object, "subsets").iter().enumerate() {
        let path = root.index(i);
        let groups = ["addresses", "notReadyAddresses"];
        if groups.iter().all(|group| list(subset, group).is_empty()) {
            out.push(FieldError::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for group in groups {
            let path = path.child(group);
            for (i, address) in list(subset, group).iter().enumerate() {
                check_address(address, &path.index(i), &mut out);
            }
        }
        let ports = list(subset, "ports");
        let path = path.child("ports");
        for (i, found) in ports.iter().enumerate() {
            check_port(found, ports.len() > 1, &path.index(i), &mut out);
        }
    }
    out
}

fn check_address(address: &Value, path: &Path<'_>, out: &mut Faults) {
    ip(text(address, "ip"), &path.child("ip"), out);
    let host = text(address, "hostname");
    if !host.is_empty() {
        dns_label(host, &path.child("hostname"), out);
    }
    if let Some(node) = address.get("nodeName").and_then(Value::as_str) {
        subdomain(node, &path.child("nodeName"), out);
    }
    endpoint_ip(text(address, "ip"), &path.child("ip"), out);
}

/// An address others can reach.
pub(super) fn endpoint_ip(value: &str, path: &Path<'_>, out: &mut Faults) {
    let Some(found) = parse_ip(value) else {
        return out.push(FieldError::invalid(path, value, "must be a valid IP address"));
    };
    let (is_link_local, is_link_multicast) = match found {
        std::net::IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        std::net::IpAddr::V6(ip) => {
            ((ip.segments()[0] & 0xffc0) == 0xfe80, (ip.segments()[0] & 0xff0f) == 0xff02)
        }
    };
    if found.is_unspecified() {
        out.push(FieldError::invalid(path, value, format!("may not be unspecified ({value})")));
    }
    if found.is_loopback() {
        let detail = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        out.push(FieldError::invalid(path, value, detail));
    }
    if is_link_local {
        let detail = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        out.push(FieldError::invalid(path, value, detail));
    }
    if is_link_multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        out.push(FieldError::invalid(path, value, detail));
    }
}

fn check_port(found: &Value, needs_name: bool, path: &Path<'_>, out: &mut Faults) {
    match text(found, "name") {
        "" if needs_name => out.push(FieldError::required(&path.child("name"), "")),
        "" => {}
        name => dns_label(name, &path.child("name"), out),
    }
    port(int(found, "port").unwrap_or(0), &path.child("port"), out);
    one_of_required(text(found, "protocol"), &["SCTP", "TCP", "UDP"], &path.child("protocol"), out);
    if let Some(protocol) = found.get("appProtocol").and_then(Value::as_str) {
        qualified_name(protocol, &path.child("appProtocol"), out);
    }
}

fn addresses(object: &Value) -> String {
    let subsets = list(object, "subsets");
    if subsets.is_empty() {
        return NONE.to_owned();
    }
    let mut all: Vec<String> = Vec::new();
    for subset in subsets {
        let ips = || list(subset, "addresses").iter().map(|a| text(a, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for found in ports {
            let number = int(found, "port").unwrap_or(0);
            all.extend(ips().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{number}"),
                false => format!("{ip}:{number}"),
            }));
        }
    }
    match all.len() {
        count if count > SHOWN_MAX => {
            format!("{} + {} more...", all[..SHOWN_MAX].join(","), count - SHOWN_MAX)
        }
        _ => all.join(","),
    }
}
