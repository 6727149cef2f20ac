//! Objects in the form Kubernetes holds them in memory: Go's field names, every field written.
//!
//! Refusals of changes print both sides in this form. `internal.txt` lists the fields of each type,
//! in order: Go's name, the JSON name (`^` when it stands one level up), and the type.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::tree::part;

/// The fields of a type, in Go's order.
type Fields = Vec<Field>;

struct Field {
    go: &'static str,
    json: &'static str,
    kind: &'static str,
}

static TYPES: LazyLock<HashMap<&'static str, Fields>> = LazyLock::new(|| {
    let mut types: HashMap<&str, Fields> = HashMap::new();
    let mut current = "";
    for line in include_str!("internal.txt").lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(go), Some(json), Some(kind)) => {
                types.entry(current).or_default().push(Field { go, json, kind });
            }
            (Some(name), _, _) => current = name,
            _ => {}
        }
    }
    types
});

/// The object as indented JSON, one line each.
pub(super) fn lines(kind: &str, value: &Value) -> Vec<String> {
    let mut printer = Printer { is_indented: true, lines: Vec::new(), line: String::new() };
    printer.print(kind, Some(value), &Value::Null, 0);
    printer.end();
    printer.lines
}

/// The object as JSON on one line.
pub(super) fn compact(kind: &str, value: &Value) -> String {
    let mut printer = Printer { is_indented: false, lines: Vec::new(), line: String::new() };
    printer.print(kind, Some(value), &Value::Null, 0);
    printer.line
}

struct Printer {
    is_indented: bool,
    lines: Vec<String>,
    line: String,
}

impl Printer {
    fn end(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }

    fn new_line(&mut self, depth: usize) {
        if self.is_indented {
            self.end();
            self.line = " ".repeat(depth);
        }
    }

    fn scalar(&mut self, value: &Value) {
        let text = koord_api::gojson::to_string(value).unwrap_or_else(|_| value.to_string());
        self.line.push_str(&text);
    }

    /// `above` is the object this one stands in.
    fn print(&mut self, kind: &str, value: Option<&Value>, above: &Value, depth: usize) {
        let value = value.filter(|v| !v.is_null());
        if let Some(inner) = kind.strip_prefix('*') {
            return match value {
                Some(value) => self.print(inner, Some(value), above, depth),
                None => self.line.push_str("null"),
            };
        }
        if let Some(inner) = kind.strip_prefix("[]") {
            let Some(items) = value.and_then(Value::as_array) else { return self.line.push_str("null") };
            return self.group('[', ']', items.iter(), depth, |printer, item| {
                printer.print(inner, Some(item), &Value::Null, depth + 1);
            });
        }
        if let Some(inner) = kind.strip_prefix("{}") {
            let Some(map) = value.and_then(Value::as_object) else { return self.line.push_str("null") };
            return self.group('{', '}', map.iter(), depth, |printer, (key, item)| {
                printer.key(key);
                printer.print(inner, Some(item), &Value::Null, depth + 1);
            });
        }
        match kind {
            "string" => self.scalar(value.unwrap_or(&"".into())),
            "bool" => self.scalar(value.unwrap_or(&false.into())),
            "int" | "port" => self.scalar(value.unwrap_or(&0.into())),
            "quantity" => self.scalar(value.unwrap_or(&"0".into())),
            "meta" => self.plain(value.unwrap_or(&Value::Null), depth),
            _ => self.object(kind, value.unwrap_or(&Value::Null), above, depth),
        }
    }

    fn key(&mut self, key: &str) {
        self.scalar(&key.into());
        self.line.push_str(if self.is_indented { ": " } else { ":" });
    }

    fn group<T>(
        &mut self,
        open: char,
        close: char,
        items: impl ExactSizeIterator<Item = T>,
        depth: usize,
        mut print: impl FnMut(&mut Printer, T),
    ) {
        self.line.push(open);
        let count = items.len();
        for (i, item) in items.enumerate() {
            self.new_line(depth + 1);
            print(self, item);
            if i + 1 < count {
                self.line.push(',');
            }
        }
        if count > 0 {
            self.new_line(depth);
        }
        self.line.push(close);
    }

    fn object(&mut self, kind: &str, value: &Value, above: &Value, depth: usize) {
        let none = Fields::new();
        let fields = TYPES.get(kind).unwrap_or(&none);
        self.group('{', '}', fields.iter(), depth, |printer, field| {
            printer.key(field.go);
            let found = match field.json.strip_prefix('^') {
                Some(json) => part(above, json),
                None => part(value, field.json),
            };
            printer.print(field.kind, found, value, depth + 1);
        });
    }

    /// Types that are the same inside and outside, such as label selectors.
    fn plain(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Object(fields) => {
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                // Labels come before expressions in Go.
                fields.sort_by_key(|(key, _)| (*key != "matchLabels", key.to_owned()));
                self.group('{', '}', fields.into_iter(), depth, |printer, (key, value)| {
                    printer.key(key);
                    printer.plain(value, depth + 1);
                });
            }
            Value::Array(items) => {
                self.group('[', ']', items.iter(), depth, |printer, item| printer.plain(item, depth + 1));
            }
            other => self.scalar(other),
        }
    }
}
