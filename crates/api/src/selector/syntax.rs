//! What label keys and values may look like, and the errors that say so.

use std::fmt::{self, Write};

/// Everything that is wrong with a selector, in apimachinery's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SelectorError {
    /// Never empty.
    messages: Vec<String>,
}

impl SelectorError {
    pub(crate) fn new(message: impl Into<String>) -> SelectorError {
        SelectorError { messages: vec![message.into()] }
    }

    /// An error unless there is nothing to report.
    pub(crate) fn check(messages: Vec<String>) -> Result<(), SelectorError> {
        if messages.is_empty() { Ok(()) } else { Err(SelectorError { messages }) }
    }

    /// Each complaint on its own.
    pub fn into_messages(self) -> Vec<String> {
        self.messages
    }
}

impl fmt::Display for SelectorError {
    /// One message stands alone; several different ones are listed in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seen: Vec<&str> = Vec::new();
        for message in &self.messages {
            if !seen.contains(&message.as_str()) {
                seen.push(message);
            }
        }
        match seen[..] {
            [only] => f.write_str(only),
            _ => write!(f, "[{}]", seen.join(", ")),
        }
    }
}

/// `path: Invalid value: "value": detail`
pub(crate) fn invalid(path: &str, value: &str, detail: &str) -> String {
    format!("{path}: Invalid value: {}: {detail}", quote(value))
}

/// As `invalid`, for a list of values as JSON; none is written null.
pub(crate) fn invalid_list(path: &str, values: Option<&[String]>, detail: &str) -> String {
    let mut list = String::from("null");
    if let Some(values) = values {
        let quoted: Vec<String> = values.iter().map(|value| json_string(value)).collect();
        list = format!("[{}]", quoted.join(","));
    }
    format!("{path}: Invalid value: {list}: {detail}")
}

/// `path: Unsupported value: "value": supported values: "a", "b"`
pub(crate) fn unsupported(path: &str, value: &str, supported: &[&str]) -> String {
    let supported: Vec<String> = supported.iter().map(|value| quote(value)).collect();
    format!("{path}: Unsupported value: {}: supported values: {}", quote(value), supported.join(", "))
}

/// A string as Go's encoding/json writes it.
fn json_string(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                json.push_str("\\u");
                push_hex(&mut json, c, 4);
            }
            _ => json.push(c),
        }
    }
    json.push('"');
    json
}

/// Text in double quotes as Go's `%q` writes it.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            ' '..='~' => quoted.push(c),
            '\0'..' ' | '\u{7f}' => {
                quoted.push_str("\\x");
                push_hex(&mut quoted, c, 2);
            }
            _ if is_printable(c) => quoted.push(c),
            '\u{80}'..='\u{ffff}' => {
                quoted.push_str("\\u");
                push_hex(&mut quoted, c, 4);
            }
            _ => {
                quoted.push_str("\\U");
                push_hex(&mut quoted, c, 8);
            }
        }
    }
    quoted.push('"');
    quoted
}

fn push_hex(text: &mut String, c: char, width: usize) {
    write!(text, "{:0width$x}", u32::from(c)).expect("a String takes any text");
}

/// Whether the character stands for itself in quoted text. A letter goes before it, since the
/// standard library escapes a combining mark only at the start.
fn is_printable(c: char) -> bool {
    let mut text = String::from("a");
    text.push(c);
    text.escape_debug().nth(1) == Some(c)
}

const LABEL_LENGTH_MAX: usize = 63;
const SUBDOMAIN_LENGTH_MAX: usize = 253;

const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                        with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
                        used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', \
                          '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
                          or 'my_value',  or '12345', regex used for validation is \
                          '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                              characters, '-' or '.', and must start and end with an alphanumeric character \
                              (e.g. 'example.com', regex used for validation is \
                              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// What is wrong with a label or annotation key (a qualified name); empty when nothing is.
pub fn check_key(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let (prefix, name) = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            errors.extend(check_subdomain(prefix).into_iter().map(|error| format!("prefix part {error}")));
        }
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        errors.push(format!("name part must be no more than {LABEL_LENGTH_MAX} bytes"));
    }
    if !is_label_text(name) {
        errors.push(format!("name part {KEY_RULE}"));
    }
    errors
}

/// What is wrong with a label value; empty when nothing is.
pub fn check_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        errors.push(format!("must be no more than {LABEL_LENGTH_MAX} bytes"));
    }
    if !value.is_empty() && !is_label_text(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    errors
}

/// What is wrong with a DNS subdomain, such as most object names; empty when nothing is.
pub fn check_subdomain(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > SUBDOMAIN_LENGTH_MAX {
        errors.push(format!("must be no more than {SUBDOMAIN_LENGTH_MAX} bytes"));
    }
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if !name.split('.').all(|label| is_bounded(label, is_part, |byte| byte == b'-')) {
        errors.push(SUBDOMAIN_RULE.to_owned());
    }
    errors
}

fn is_label_text(text: &str) -> bool {
    is_bounded(text, |byte| byte.is_ascii_alphanumeric(), |byte| matches!(byte, b'-' | b'_' | b'.'))
}

/// Letters throughout, and links only between letters.
fn is_bounded(text: &str, is_letter: impl Fn(u8) -> bool, is_link: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| is_letter(*byte) || is_link(*byte))
        && bytes.first().is_some_and(|byte| is_letter(*byte))
        && bytes.last().is_some_and(|byte| is_letter(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let long = "a".repeat(64);
        let subdomain = format!("prefix part {SUBDOMAIN_RULE}");
        let rule = format!("name part {KEY_RULE}");
        for (key, want) in [
            ("app", vec![]),
            ("koordinator.sh/qosClass", vec![]),
            ("A-b_c.9", vec![]),
            ("a b", vec![rule.clone()]),
            ("", vec!["name part must be non-empty".to_owned(), rule.clone()]),
            ("/a", vec!["prefix part must be non-empty".to_owned()]),
            ("A/a", vec![subdomain.clone()]),
            ("a..b/-", vec![subdomain, rule.clone()]),
            (&long, vec!["name part must be no more than 63 bytes".to_owned()]),
        ] {
            assert_eq!(check_key(key), want, "{key:?}");
        }
        assert!(check_key("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert_eq!(check_subdomain(&"a".repeat(254)), ["must be no more than 253 bytes"]);
    }

    #[test]
    fn values() {
        let long = "a".repeat(64);
        for (value, want) in [
            ("", vec![]),
            ("a.b_c-1", vec![]),
            ("a/b", vec![VALUE_RULE]),
            ("-a", vec![VALUE_RULE]),
            (&long, vec!["must be no more than 63 bytes"]),
        ] {
            assert_eq!(check_value(value), want, "{value:?}");
        }
    }

    #[test]
    fn quoting() {
        let text = "a\"\\\u{7}\n\0\u{7f}\u{e9}\u{301}\u{a0}\u{10ffff}";
        assert_eq!(quote(text), "\"a\\\"\\\\\\a\\n\\x00\\x7f\u{e9}\u{301}\\u00a0\\U0010ffff\"");
        assert_eq!(json_string("a<\"\u{1}\u{2028}\n"), r#""a\u003c\"\u0001\u2028\n""#);
    }
}
