//! The part of JSONPath that CRDs use: for printer columns, scale paths and selectable fields.
//!
//! `.spec.replicas`, `.items[0]`, `.list[*].name`, `['odd.key']`, `.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Elements whose value at the path equals (or not) the literal.
    Where {
        path: JsonPath,
        equal: bool,
        value: Value,
    },
}

impl JsonPath {
    /// None when the text is not of this part of JSONPath.
    pub(crate) fn parse(text: &str) -> Option<JsonPath> {
        let mut rest = text.trim();
        rest = rest.strip_prefix('{').and_then(|r| r.strip_suffix('}')).unwrap_or(rest);
        rest = rest.strip_prefix('$').unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let (step, tail) = parse_bracket(after)?;
                steps.push(step);
                rest = tail;
                continue;
            }
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let (name, tail) = parse_name(rest)?;
            steps.push(if name == "*" { Step::All } else { Step::Field(name) });
            rest = tail;
        }
        Some(JsonPath(steps))
    }

    /// All values the path leads to.
    pub(crate) fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.follow(value)).collect();
        }
        found
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(index) => {
                let Some(list) = value.as_array() else { return Vec::new() };
                let at = match usize::try_from(*index) {
                    Ok(at) => Some(at),
                    Err(_) => {
                        usize::try_from(index.unsigned_abs()).ok().and_then(|b| list.len().checked_sub(b))
                    }
                };
                at.and_then(|at| list.get(at)).into_iter().collect()
            }
            Step::All => match value {
                Value::Array(list) => list.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Step::Where { path, equal, value: want } => {
                let list = value.as_array().into_iter().flatten();
                list.filter(|item| path.find(item).first().is_some_and(|v| (*v == want) == *equal)).collect()
            }
        }
    }
}

fn parse_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (!name.is_empty()).then_some((name, &text[at..])),
            '\\' => name.push(chars.next()?.1),
            c => name.push(c),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

/// After `[`: a number, `*`, a quoted name or a filter, up to and with `]`.
fn parse_bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(filter) = text.strip_prefix("?(") {
        let end = filter.find(")]")?;
        return Some((parse_filter(&filter[..end])?, &filter[end + 2..]));
    }
    for quote in ['\'', '"'] {
        if let Some(name) = text.strip_prefix(quote) {
            let end = name.find(quote)?;
            let tail = name[end + 1..].strip_prefix(']')?;
            return Some((Step::Field(name[..end].to_owned()), tail));
        }
    }
    let end = text.find(']')?;
    let step = match text[..end].trim() {
        "*" => Step::All,
        number => Step::Index(number.parse().ok()?),
    };
    Some((step, &text[end + 1..]))
}

fn parse_filter(text: &str) -> Option<Step> {
    let (path, equal, literal) = match (text.split_once("=="), text.split_once("!=")) {
        (Some((path, literal)), _) => (path, true, literal),
        (None, Some((path, literal))) => (path, false, literal),
        (None, None) => return None,
    };
    let literal = literal.trim();
    let quoted = ['\'', '"'].iter().find_map(|q| literal.strip_prefix(*q)?.strip_suffix(*q));
    let value = match quoted {
        Some(text) => Value::from(text),
        None => serde_json::from_str(literal).ok()?,
    };
    let path = JsonPath::parse(path.trim().strip_prefix('@')?)?;
    Some(Step::Where { path, equal, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_where_kubernetes_finds_values() {
        let object = json!({"spec": {"replicas": 3, "a.b": 1}, "metadata": {"annotations": {"x.io/y": "z"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Idle", "status": "False"}]}});
        for (path, want) in [
            (".spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            (r".spec.a\.b", json!([1])),
            (".spec['a.b']", json!([1])),
            (r".metadata.annotations.x\.io/y", json!(["z"])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
            (".status.conditions[*].type", json!(["Ready", "Idle"])),
            (".status.conditions[-1].type", json!(["Idle"])),
            (".status.conditions[7].type", json!([])),
            (".nothing.here", json!([])),
        ] {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(json!(found.find(&object)), want, "{path}");
        }
        for bad in [".a[", ".a[x]", ".a[?(@.b)]", ".."] {
            assert_eq!(JsonPath::parse(bad), None, "{bad}");
        }
    }
}
