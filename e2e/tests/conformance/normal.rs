//! Makes answers of two servers comparable: what may differ gets a name by order of appearance.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use crate::case::Step;
use crate::side::Reply;
use crate::talk::find;

/// Headers that clients act on.
const HEADERS: [&str; 4] = ["content-type", "warning", "retry-after", "allow"];

/// What stands before the values in messages about faults.
const QUOTED: &str = "Invalid value: ";

/// Columns of Tables that tell how long ago something was.
const AGES: [&str; 5] = ["Age", "Duration", "Last Seen", "First Seen", "Last Schedule"];

static UID: LazyLock<Regex> =
    LazyLock::new(|| regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| regex(r"127\.0\.0\.1:\d+"));
static CURRENT: LazyLock<Regex> = LazyLock::new(|| regex(r"current: \d+"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of our own")
}

/// Names given so far to one server's values in one case.
#[derive(Default)]
pub(crate) struct Names {
    uids: Vec<String>,
    versions: Vec<String>,
    suffixes: Vec<String>,
    /// Which columns of the last Table are ages: later events of a watch do not repeat the columns.
    ages: Vec<bool>,
}

impl Names {
    /// The answer as it is compared: `{code, headers, body}`.
    pub(crate) fn reply(&mut self, step: &Step, reply: &Reply) -> Value {
        let mut headers = Map::new();
        for name in HEADERS {
            let mut values: Vec<Value> = Vec::new();
            for value in reply.headers.get_all(name) {
                values.push(self.text(&String::from_utf8_lossy(value.as_bytes())).into());
            }
            if !values.is_empty() {
                headers.insert(name.to_owned(), Value::Array(values));
            }
        }
        let is_yaml = reply.headers.get("content-type").is_some_and(|media| media == "application/yaml");
        let mut body = match serde_saphyr::from_str::<Value>(&reply.text) {
            // YAML has many ways to write the same.
            Ok(tree) if is_yaml => self.body(&tree.to_string()),
            _ => self.body(&reply.text),
        };
        if !step.pick.is_empty() {
            let picked =
                |pointer: &String| (pointer.clone(), find(&body, pointer).cloned().unwrap_or_default());
            body = Value::Object(step.pick.iter().map(picked).collect());
        }
        if step.unordered {
            forget_order(&mut body);
        }
        json!({"code": reply.code, "headers": headers, "body": body})
    }

    fn body(&mut self, text: &str) -> Value {
        let whole = serde_json::from_str::<Value>(text).ok();
        let lines = || text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>().ok();
        let mut body = match whole.or_else(|| lines().map(Value::Array)) {
            Some(body) => body,
            None => return Value::from(self.text(text)),
        };
        self.collect_suffixes(&body);
        self.value(&mut body);
        body
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => match echoed(text) {
                Some((before, mut echo)) => {
                    self.value(&mut echo);
                    *value = json!([self.text(before), echo]);
                }
                None => *text = self.text(text),
            },
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => self.object(fields),
            _ => {}
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>) {
        self.hide_ages(fields);
        tell_once(fields);
        sort_managers(fields);
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        let is_whole = kind.ends_with("List") || kind == "Table";
        let is_bookmark = fields.get("type").is_some_and(|t| t == "BOOKMARK");
        if is_whole && let Some(metadata) = fields.get_mut("metadata") {
            hide(metadata, "resourceVersion");
        }
        if is_bookmark && let Some(metadata) = fields.get_mut("object").and_then(|o| o.get_mut("metadata")) {
            hide(metadata, "resourceVersion");
        }
        hide_field(fields, "continue");
        hide_field(fields, "caBundle");
        for (key, value) in fields.iter_mut() {
            match value {
                Value::String(text) if key == "resourceVersion" && !text.starts_with('<') => {
                    *text = name_of(&mut self.versions, text, "version");
                }
                other => self.value(other),
            }
        }
    }

    fn hide_ages(&mut self, table: &mut Map<String, Value>) {
        if let Some(columns) = table.get("columnDefinitions").and_then(Value::as_array) {
            let is_age = |c: &Value| {
                c["type"] == "date" || c["name"].as_str().is_some_and(|name| AGES.contains(&name))
            };
            self.ages = columns.iter().map(is_age).collect();
        }
        for row in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
            for (cell, is_age) in row["cells"].as_array_mut().into_iter().flatten().zip(&self.ages) {
                if *is_age && cell.as_str().is_some_and(|text| text != "<unknown>") {
                    *cell = Value::from("<age>");
                }
            }
        }
    }

    /// Objects quoted in messages: the order of their fields is Go's, and means nothing.
    fn quoted(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(QUOTED) {
            out.push_str(before);
            out.push_str(QUOTED);
            let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
            let first = values.next().and_then(Result::ok);
            let end = values.byte_offset();
            let tree = match first {
                Some(Value::String(text)) => serde_json::from_str(&text).ok(),
                other => other,
            };
            rest = after;
            if let Some(mut tree @ (Value::Object(_) | Value::Array(_))) = tree {
                self.value(&mut tree);
                out.push_str(&tree.to_string());
                rest = &after[end..];
            }
        }
        out.push_str(rest);
        out
    }

    fn text(&mut self, text: &str) -> String {
        let text = &self.quoted(text);
        let mut text = UID
            .replace_all(text, |found: &Captures<'_>| name_of(&mut self.uids, &found[0], "uid"))
            .into_owned();
        text = TIME
            .replace_all(&text, |found: &Captures<'_>| match found.get(1) {
                Some(_) => "<time with fraction>",
                None => "<time>",
            })
            .into_owned();
        text = ADDRESS.replace_all(&text, "<address>").into_owned();
        text = CURRENT.replace_all(&text, "current: <version>").into_owned();
        for (index, name) in self.suffixes.iter().enumerate() {
            text = text.replace(name, &format!("<generated {}>", index + 1));
        }
        text
    }

    /// Names that the server made from a `generateName`.
    fn collect_suffixes(&mut self, value: &Value) {
        let children: Box<dyn Iterator<Item = &Value>> = match value {
            Value::Array(items) => Box::new(items.iter()),
            Value::Object(fields) => Box::new(fields.values()),
            _ => return,
        };
        let (base, name) = (value["generateName"].as_str(), value["name"].as_str());
        if let (Some(base), Some(name)) = (base, name)
            && name.starts_with(base)
            && !self.suffixes.iter().any(|known| known == name)
        {
            self.suffixes.push(name.to_owned());
        }
        children.for_each(|child| self.collect_suffixes(child));
    }
}

/// What a webhook was sent, as its refusal repeats it.
fn echoed(text: &str) -> Option<(&str, Value)> {
    let (before, echo) = text.split_once("ECHO:")?;
    Some((before, serde_json::from_str(echo).ok()?))
}

fn name_of(known: &mut Vec<String>, text: &str, what: &str) -> String {
    let index = known.iter().position(|k| k == text).unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    });
    format!("<{what} {}>", index + 1)
}

/// A value that is there, and whose content nobody can foresee.
fn hide(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        hide_field(fields, field);
    }
}

fn hide_field(fields: &mut Map<String, Value>, field: &str) {
    match fields.get_mut(field) {
        Some(Value::String(text)) if !text.is_empty() => *text = format!("<{field}>"),
        _ => {}
    }
}

/// Sorts the causes of a Status; its message lists them all once more.
fn forget_order(status: &mut Value) {
    let Some(causes) = status.pointer_mut("/details/causes").and_then(Value::as_array_mut) else { return };
    causes.sort_by_key(Value::to_string);
    let text = status["message"].as_str().unwrap_or_default();
    let text = text.split(" is invalid: ").next().unwrap_or_default();
    status["message"] = Value::from(format!("{text} is invalid: <causes>"));
}

/// Managers of the same second are sorted by name, others by time: which of it is the case is chance.
fn sort_managers(metadata: &mut Map<String, Value>) {
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        entries.sort_by_key(|e| {
            ["operation", "manager", "apiVersion", "subresource"].map(|field| text(e, field))
        });
    }
}

/// kube-apiserver checks metadata of updates several times and lists every fault as often; kubectl shows each once.
fn tell_once(details: &mut Map<String, Value>) {
    let Some(causes) = details.get_mut("causes").and_then(Value::as_array_mut) else { return };
    let mut seen: Vec<Value> = Vec::new();
    causes.retain(|cause| {
        let is_new = !seen.contains(cause);
        seen.push(cause.clone());
        is_new
    });
}
