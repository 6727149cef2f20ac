//! Finds where two answers differ, and holds that against the list of accepted differences.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// Characters of a value that a report shows.
const SHOWN_MAX: usize = 1200;

/// One place where the servers disagree.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) case: String,
    pub(crate) step: usize,
    pub(crate) title: String,
    /// JSON pointer into `{code, headers, body}`.
    pub(crate) path: String,
    pub(crate) real: Option<Value>,
    pub(crate) sandbox: Option<Value>,
}

/// One row of `differences.yaml`. `*` in a case or in a segment of a path stands for anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    case: String,
    path: String,
    reason: String,
}

/// All rows, and which of them were needed.
pub(crate) struct Ledger {
    rows: Vec<Accepted>,
    used: BTreeSet<usize>,
}

impl Ledger {
    pub(crate) fn load() -> Result<Ledger> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/differences.yaml");
        let text = std::fs::read_to_string(&path)?;
        let rows: Vec<Accepted> =
            serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        for row in &rows {
            anyhow::ensure!(!row.reason.is_empty(), "{} {}: why?", row.case, row.path);
        }
        Ok(Ledger { rows, used: BTreeSet::new() })
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether this difference is a known one.
    pub(crate) fn accepts(&mut self, difference: &Difference) -> bool {
        let row = self.rows.iter().position(|row| {
            matches(&row.case, &difference.case) && is_at_or_above(&row.path, &difference.path)
        });
        row.is_some_and(|row| {
            self.used.insert(row);
            true
        })
    }

    /// Rows about these cases that nothing needed.
    pub(crate) fn stale(&self, cases: &[&str]) -> Vec<String> {
        let idle = self.rows.iter().enumerate().filter(|(index, _)| !self.used.contains(index));
        idle.filter(|(_, row)| cases.iter().any(|case| matches(&row.case, case)))
            .map(|(_, row)| format!("{} {}", row.case, row.path))
            .collect()
    }
}

/// `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            tail.is_empty()
                || (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(tail, &rest[at..]))
        }),
    }
}

fn is_at_or_above(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() <= path.len() && pattern.iter().zip(&path).all(|(p, s)| matches(p, s))
}

/// All places where two trees differ, with the smallest differing parts. Bodies of answers with different codes are
/// taken as a whole.
pub(crate) fn differences(real: &Value, sandbox: &Value) -> Vec<(String, Option<Value>, Option<Value>)> {
    let mut found = Vec::new();
    if real.get("code") != sandbox.get("code") {
        found.push(("/code".to_owned(), real.get("code").cloned(), sandbox.get("code").cloned()));
        found.push(("/body".to_owned(), real.get("body").cloned(), sandbox.get("body").cloned()));
        return found;
    }
    walk(String::new(), Some(real), Some(sandbox), &mut found);
    found
}

fn walk(
    path: String,
    real: Option<&Value>,
    sandbox: Option<&Value>,
    found: &mut Vec<(String, Option<Value>, Option<Value>)>,
) {
    match (real, sandbox) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let segment = key.replace('~', "~0").replace('/', "~1");
                walk(format!("{path}/{segment}"), a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                walk(format!("{path}/{index}"), a.get(index), b.get(index), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((path, a.cloned(), b.cloned())),
    }
}

/// The report people read.
pub(crate) fn report(differences: &[Difference]) -> String {
    let mut text = String::new();
    let mut last = (String::new(), 0);
    for d in differences {
        if last != (d.case.clone(), d.step) {
            let _ = writeln!(text, "\n{} step {}: {}", d.case, d.step, d.title);
            last = (d.case.clone(), d.step);
        }
        let _ = writeln!(
            text,
            "  {}\n    - real:    {}\n    + sandbox: {}",
            d.path,
            show(&d.real),
            show(&d.sandbox)
        );
    }
    text
}

fn show(value: &Option<Value>) -> String {
    let text = value.as_ref().map_or_else(|| "(absent)".to_owned(), Value::to_string);
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_match_as_a_whole() {
        for (pattern, text, want) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*-b", "a-b", true),
            ("*-b", "a-bc", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
        assert!(is_at_or_above("/body/*/name", "/body/3/name/x"));
        assert!(!is_at_or_above("/body/name", "/body/namespace"));
    }

    #[test]
    fn differences_are_the_smallest_parts() {
        let found = differences(&json!({"a": [1, {"b": 2}], "c": 1}), &json!({"a": [1, {"b": 3}, 4]}));
        let paths: Vec<&str> = found.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["/a/1/b", "/a/2", "/c"]);
    }
}
