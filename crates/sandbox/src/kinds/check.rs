//! Checks that many kinds share: names, labels, selectors, ports, addresses, numbers.
//!
//! Each adds its faults to `out`, with Kubernetes' texts.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::Value;

use super::tree::{list, text, texts};
use super::{FieldError, Path, meta, names};

pub(super) type Faults = Vec<FieldError>;

pub(super) const IMMUTABLE: &str = "field is immutable";
const NEGATIVE: &str = "must be greater than or equal to 0";
const NOT_POSITIVE: &str = "must be greater than zero";

/// The faults of one value, as a rule states them.
pub(super) fn rule(faults: Vec<String>, value: &str, path: &Path<'_>, out: &mut Faults) {
    out.extend(faults.into_iter().map(|fault| FieldError::invalid(path, value, fault)));
}

pub(super) fn dns_label(value: &str, path: &Path<'_>, out: &mut Faults) {
    rule(names::is_label(value), value, path, out);
}

pub(super) fn subdomain(value: &str, path: &Path<'_>, out: &mut Faults) {
    rule(names::is_subdomain(value), value, path, out);
}

pub(super) fn qualified_name(value: &str, path: &Path<'_>, out: &mut Faults) {
    rule(names::is_qualified_name(value), value, path, out);
}

pub(super) fn labels(value: &Value, field: &str, path: &Path<'_>, out: &mut Faults) {
    out.extend(meta::validate_labels(value.get(field), &path.child(field)));
}

pub(super) fn nonnegative(value: i64, path: &Path<'_>, out: &mut Faults) {
    if value < 0 {
        out.push(FieldError::invalid(path, value, NEGATIVE));
    }
}

pub(super) fn positive(value: i64, path: &Path<'_>, out: &mut Faults) {
    if value <= 0 {
        out.push(FieldError::invalid(path, value, NOT_POSITIVE));
    }
}

pub(super) fn required(value: &Value, field: &str, path: &Path<'_>, out: &mut Faults) {
    if text(value, field).is_empty() {
        out.push(FieldError::required(&path.child(field), ""));
    }
}

/// A value of a closed list, or a fault that names the list.
pub(super) fn one_of(value: &str, supported: &[&str], path: &Path<'_>, out: &mut Faults) {
    if !supported.contains(&value) {
        out.push(FieldError::not_supported(path, value, supported.iter().copied()));
    }
}

/// As `one_of`, with a fault of its own for the empty text.
pub(super) fn one_of_required(value: &str, supported: &[&str], path: &Path<'_>, out: &mut Faults) {
    match value {
        "" => out.push(FieldError::required(path, "")),
        _ => one_of(value, supported, path, out),
    }
}

pub(super) fn range(value: i64, low: i64, high: i64, path: &Path<'_>, out: &mut Faults) {
    if !(low..=high).contains(&value) {
        out.push(FieldError::invalid(path, value, between(low, high)));
    }
}

pub(super) fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

pub(super) fn port(value: i64, path: &Path<'_>, out: &mut Faults) {
    range(value, 1, 65535, path, out);
}

pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push(names::max_length(15));
    }
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || !name.bytes().all(is_word) {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// A port as number or name.
pub(super) fn port_or_name(value: Option<&Value>, path: &Path<'_>, out: &mut Faults) {
    match value {
        Some(Value::String(name)) => rule(port_name(name), name, path, out),
        other => port(other.and_then(Value::as_i64).unwrap_or(0), path, out),
    }
}

/// A key of a ConfigMap or Secret.
pub(super) fn config_key(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if key.len() > names::SUBDOMAIN_MAX {
        faults.push(names::max_length(names::SUBDOMAIN_MAX));
    }
    let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if key.is_empty() || !key.bytes().all(is_word) {
        faults.push(names::regex_fault(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match key {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// An address as older fields take it: leading zeros are forgiven.
pub(super) fn parse_ip(value: &str) -> Option<IpAddr> {
    if let Ok(ip) = value.parse() {
        return Some(ip);
    }
    let octets: Vec<&str> = value.split('.').collect();
    let is_number = |octet: &&str| !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit());
    if octets.len() != 4 || !octets.iter().all(is_number) {
        return None;
    }
    let plain: Vec<&str> = octets
        .iter()
        .map(|o| Some(o.trim_start_matches('0')).filter(|o| !o.is_empty()).unwrap_or("0"))
        .collect();
    plain.join(".").parse().ok()
}

pub(super) fn ip(value: &str, path: &Path<'_>, out: &mut Faults) {
    if parse_ip(value).is_none() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        out.push(FieldError::invalid(path, value, detail));
    }
}

/// IPv4, also when it is written inside an IPv6 address.
pub(super) fn is_ipv4(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => Ipv6Addr::to_ipv4_mapped(&ip).is_some(),
    }
}

/// `metav1.LabelSelector`.
pub(super) fn label_selector(selector: Option<&Value>, path: &Path<'_>, out: &mut Faults) {
    let Some(selector) = selector.filter(|s| !s.is_null()) else { return };
    labels(selector, "matchLabels", path, out);
    let expressions = path.child("matchExpressions");
    for (i, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = expressions.index(i);
        let values = texts(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                out.push(FieldError::required(&path.child("values"), detail));
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                out.push(FieldError::forbidden(&path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" => {}
            other => {
                let detail = "not a valid selector operator";
                out.push(FieldError::invalid(&path.child("operator"), other, detail));
            }
        }
        qualified_name(text(expression, "key"), &path.child("key"), out);
        let path = path.child("values");
        for (i, value) in values.into_iter().enumerate() {
            rule(names::is_label_value(value), value, &path.index(i), out);
        }
    }
}

/// Equal, with absent, null and empty taken alike at the top.
pub(super) fn is_same(new: Option<&Value>, old: Option<&Value>) -> bool {
    let known = |value: Option<&Value>| -> Option<Value> {
        value
            .filter(|v| match v {
                Value::Null => false,
                Value::String(text) => !text.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            })
            .cloned()
    };
    new == old || known(new) == known(old)
}

/// A finalizer of Kubernetes' own kinds: of a domain, or a name that Kubernetes knows.
pub(super) fn finalizer_name(finalizer: &str, path: &Path<'_>, out: &mut Faults) {
    if !finalizer.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        out.push(FieldError::invalid(path, finalizer, detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_of_ports_and_keys() {
        for (name, faults) in [
            ("http", 0),
            ("a-1", 0),
            ("", 2),
            ("80", 1),
            ("-a", 1),
            ("a--b", 1),
            ("A", 2),
            ("sixteen-letters-x", 1),
        ] {
            assert_eq!(port_name(name).len(), faults, "{name}");
        }
        for (key, faults) in [("a.b-c_D", 0), ("", 1), (".", 1), ("..", 1), ("..a", 1), ("a b", 1)] {
            assert_eq!(config_key(key).len(), faults, "{key}");
        }
    }

    #[test]
    fn addresses_with_leading_zeros_are_forgiven() {
        for (text, want) in [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.0.01", Some("10.0.0.1")),
            ("fe80::1", Some("fe80::1")),
            ("1.2.3", None),
            ("1.2.3.256", None),
            ("a", None),
        ] {
            assert_eq!(parse_ip(text).map(|ip| ip.to_string()).as_deref(), want, "{text}");
        }
        assert!(is_ipv4("::ffff:1.2.3.4".parse().unwrap()));
    }

    #[test]
    fn empty_and_absent_are_the_same() {
        for (new, old, want) in [
            (None, Some(json!([])), true),
            (Some(json!({})), None, true),
            (Some(json!("")), Some(json!(null)), true),
            (Some(json!("a")), None, false),
            (Some(json!(0)), None, false),
        ] {
            assert_eq!(is_same(new.as_ref(), old.as_ref()), want, "{new:?} {old:?}");
        }
    }

    #[test]
    fn selectors() {
        let path = Path::root("s");
        let mut out = Faults::new();
        let selector =
            json!({"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "x"}]});
        label_selector(Some(&selector), &path, &mut out);
        let texts: Vec<String> = out.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "s.matchExpressions[1].operator: Invalid value: \"x\": not a valid selector operator",
            ]
        );
    }
}
