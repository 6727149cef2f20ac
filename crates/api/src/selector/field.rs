//! Field selectors: `metadata.name=x,spec.nodeName!=y`.

use std::fmt;
use std::str::FromStr;

use super::syntax::SelectorError;

/// A compiled field selector: conditions on fields, ANDed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// `field=value` or `field!=value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldTerm {
    pub field: String,
    pub value: String,
    pub is_equal: bool,
}

impl FieldSelector {
    pub(super) fn all_of(terms: Vec<FieldTerm>) -> FieldSelector {
        FieldSelector { terms }
    }

    /// `value` answers with the value of a field, empty for one the object does not have.
    pub fn matches<'a>(&self, value: impl Fn(&str) -> &'a str) -> bool {
        self.terms.iter().all(|term| (value(&term.field) == term.value) == term.is_equal)
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// The one value that a field must have, when there is one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.is_equal && term.field == field).map(|term| term.value.as_str())
    }
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (field, is_equal, value) = split_term(part).ok_or_else(|| {
                SelectorError::new(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            let value = unescape(value)?;
            // A condition without field and value holds for every object.
            if !field.is_empty() || !value.is_empty() {
                terms.push(FieldTerm { field: field.to_owned(), value, is_equal });
            }
        }
        Ok(FieldSelector { terms })
    }
}

/// Cuts at commas that no backslash guards.
fn split_terms(text: &str) -> Vec<&str> {
    let mut is_guarded = false;
    text.split(|c| {
        let is_cut = c == ',' && !is_guarded;
        is_guarded = c == '\\' && !is_guarded;
        is_cut
    })
    .collect()
}

/// Cuts at the first operator: field, whether it must be equal, value as written.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let bytes = term.as_bytes();
    let at = bytes
        .iter()
        .enumerate()
        .position(|(i, byte)| *byte == b'=' || (*byte == b'!' && bytes.get(i + 1) == Some(&b'=')))?;
    let is_long = bytes.get(at + 1) == Some(&b'=');
    Some((&term[..at], bytes[at] == b'=', &term[at + 1 + usize::from(is_long)..]))
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(SelectorError::new(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            ',' | '=' => {
                // Upstream prints the character's number.
                return Err(SelectorError::new(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                )));
            }
            _ => plain.push(c),
        }
    }
    Ok(plain)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let operator = if term.is_equal { "=" } else { "!=" };
            write!(f, "{}{}{operator}", if i == 0 { "" } else { "," }, term.field)?;
            for c in term.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> FieldSelector {
        text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    fn pod(field: &str) -> &'static str {
        match field {
            "metadata.name" => "web",
            "spec.nodeName" => "n1",
            "odd" => "a,b=c\\",
            _ => "",
        }
    }

    #[test]
    fn matching() {
        for (text, want) in [
            ("", true),
            (",,", true),
            ("metadata.name=web", true),
            ("metadata.name==web,spec.nodeName=n1", true),
            ("metadata.name!=web", false),
            ("spec.nodeName!=n2", true),
            ("spec.nodeName=", false),
            ("status.phase=", true),
            ("status.phase!=", false),
            (r"odd=a\,b\=c\\", true),
            ("=", true),
            ("!=", true),
        ] {
            assert_eq!(read(text).matches(pod), want, "{text}");
        }
        assert!(read("").is_everything());
        assert!(read("=").is_everything());
    }

    #[test]
    fn canonical_text() {
        for (text, want) in [("b==2,,a!=1", "a!=1,b=2"), (r"a=x\,y", r"a=x\,y"), ("a!b=c", "a!b=c")] {
            assert_eq!(read(text).to_string(), want);
        }
        assert_eq!(read("a=1,b!=2").exact("a"), Some("1"));
        assert_eq!(read("a=1,b!=2").exact("b"), None);
    }

    #[test]
    fn wrong_texts() {
        for (text, want) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=1,b", "invalid selector: 'a=1,b'; can't understand 'b'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=\", r"invalid field selector: invalid escape sequence: \"),
        ] {
            assert_eq!(text.parse::<FieldSelector>().unwrap_err().to_string(), want);
        }
    }
}
