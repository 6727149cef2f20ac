//! What a name, a label and an annotation key may look like, with Kubernetes' texts.

use koord_api::selector::syntax;

/// A rule for names: the faults of `name`; `is_prefix` when a suffix will be appended.
pub type NameRule = fn(name: &str, is_prefix: bool) -> Vec<String>;

pub const LABEL_MAX: usize = 63;
pub const SUBDOMAIN_MAX: usize = 253;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035_FORMAT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";

/// The common rule: lower case, digits, `-` and `.`.
pub fn subdomain(name: &str, is_prefix: bool) -> Vec<String> {
    let masked = mask(name, is_prefix);
    is_subdomain(&masked)
}

/// The rule for namespaces and others that become a DNS label.
pub fn label(name: &str, is_prefix: bool) -> Vec<String> {
    let masked = mask(name, is_prefix);
    is_label(&masked)
}

/// The rule for Services: a DNS label that starts with a letter.
pub fn label_1035(name: &str, is_prefix: bool) -> Vec<String> {
    let masked = mask(name, is_prefix);
    is_label_1035(&masked)
}

/// The rule for RBAC: anything that can stand in a path.
pub fn path_segment(name: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    let faults = ["/", "%"].into_iter().filter(|bad| name.contains(bad));
    faults.map(|bad| format!("may not contain '{bad}'")).collect()
}

pub fn is_subdomain(value: &str) -> Vec<String> {
    let mut faults = syntax::check_subdomain(value);
    if value.len() > SUBDOMAIN_MAX {
        // The length fault comes first; names count it in characters, label keys in bytes.
        faults[0] = max_length(SUBDOMAIN_MAX);
    }
    faults
}

pub fn is_label(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LABEL_MAX {
        faults.push(max_length(LABEL_MAX));
    }
    if !is_dns_part(value, false) {
        if value.split('.').all(|part| is_dns_part(part, false)) {
            faults.push("must not contain dots".to_owned());
        } else {
            faults.push(regex_fault(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                LABEL_FORMAT,
                &["my-name", "123-abc"],
            ));
        }
    }
    faults
}

pub fn is_label_1035(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LABEL_MAX {
        faults.push(max_length(LABEL_MAX));
    }
    if !is_dns_part(value, true) {
        faults.push(regex_fault(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
             start with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035_FORMAT,
            &["my-name", "abc-123"],
        ));
    }
    faults
}

/// A label key, annotation key or finalizer: `[prefix/]name`.
pub fn is_qualified_name(value: &str) -> Vec<String> {
    syntax::check_key(value)
}

pub fn is_label_value(value: &str) -> Vec<String> {
    syntax::check_value(value)
}

pub fn max_length(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Kubernetes' sentence for a text that fails a pattern.
pub fn regex_fault(rule: &str, format: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{format}')");
    }
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}

/// A trailing dash of a prefix is fine, for the generated suffix follows it.
fn mask(name: &str, is_prefix: bool) -> String {
    match name.strip_suffix('-') {
        Some(head) if is_prefix && !head.is_empty() => {
            let mut masked: String = head.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => name.to_owned(),
    }
}

fn is_dns_part(part: &str, letter_first: bool) -> bool {
    let bytes = part.as_bytes();
    let word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    let first_ok = if letter_first { first.is_ascii_lowercase() } else { word(first) };
    first_ok && word(last) && bytes.iter().all(|b| word(b) || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_pass_or_say_why() {
        let long = "a".repeat(64);
        for (rule, name, is_prefix, faults) in [
            (subdomain as NameRule, "web-1.example", false, 0),
            (subdomain, "Web", false, 1),
            (subdomain, "web-", false, 1),
            (subdomain, "web-", true, 0),
            (subdomain, "a..b", false, 1),
            (subdomain, "", false, 1),
            (label, "a.b", false, 1),
            (label, &long, false, 1),
            (label_1035, "1a", false, 1),
            (path_segment, "system:x", false, 0),
            (path_segment, "a/b%", false, 2),
            (path_segment, "..", false, 1),
        ] {
            assert_eq!(rule(name, is_prefix).len(), faults, "{name}");
        }
        assert_eq!(label("a.b", false), ["must not contain dots"]);
    }

    #[test]
    fn keys_and_values() {
        for (key, faults) in
            [("a", 0), ("x.io/a_b", 0), ("", 2), ("/a", 1), ("A.io/b", 1), ("a/b/c", 1), ("-a", 1)]
        {
            assert_eq!(is_qualified_name(key).len(), faults, "{key}");
        }
        for (value, faults) in [("", 0), ("a_b", 0), ("a b", 1), ("-", 1)] {
            assert_eq!(is_label_value(value).len(), faults, "{value}");
        }
        assert_eq!(
            is_label_value("a b"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
    }
}
