//! Our decoder and encoder against Go's `encoding/json`.

use std::collections::BTreeMap;

use koord_api::gojson;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::random::Random;
use crate::{ask, random, report};

/// The peer's struct of the same name, field by field.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Outer {
    #[serde(skip_serializing_if = "Option::is_none")]
    enable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<i64>,
    count: i32,
    ratio: f64,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    inner: Inner,
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<Inner>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    table: BTreeMap<String, Inner>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by_number: BTreeMap<i32, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    list: Vec<Inner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    any: Option<gojson::Value>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Inner {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_qos: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_qos: Option<i64>,
}

#[derive(Deserialize)]
struct Reply {
    text: Option<String>,
    syntax: Option<String>,
    offset: usize,
}

#[test]
fn documents() {
    let (mut random, count) = random("gojson");
    let documents: Vec<String> = (0..count).map(|_| document(&mut random)).collect();
    let requests: Vec<Value> = documents.iter().map(|document| json!({"document": document})).collect();
    let Some(replies) = ask::<Reply>("gojson", &requests) else { return };
    let differences: Vec<_> =
        documents.iter().zip(&replies).filter_map(|(document, reply)| difference(document, reply)).collect();
    report(&differences);
    let read = replies.iter().filter(|reply| reply.text.is_some()).count();
    assert!(read > count / 4, "only {read} documents are readable: the cases say little");
}

fn difference(document: &str, reply: &Reply) -> Option<String> {
    let ours = gojson::from_str::<Outer>(document);
    let fits = match (&ours, &reply.text, &reply.syntax) {
        (Ok(outer), Some(text), _) => gojson::to_string(outer).ok().as_ref() == Some(text),
        (Err(error), None, Some(syntax)) => error.is_syntax() && same_place(error, syntax, reply.offset),
        (Err(error), None, None) => !error.is_syntax(),
        _ => false,
    };
    let ours = ours.map(|outer| gojson::to_string(&outer));
    (!fits).then(|| {
        format!("{document}\n  ours {ours:?}\n  Go's {:?} {:?} {}", reply.text, reply.syntax, reply.offset)
    })
}

/// Go counts the bytes read, the offending one included, and shows bytes where we show characters.
/// Inside a word or number it reports the end of the text as a space.
fn same_place(error: &gojson::Error, syntax: &str, read: usize) -> bool {
    let ours = error.to_string();
    let text = ours.split(" (at byte ").next().unwrap_or_default();
    let at = error.offset().unwrap_or_default();
    let ends = ours == "unexpected end of JSON input" && syntax.starts_with("invalid character ' ' in ");
    (text == syntax && (at + 1 == read || ours == syntax)) || ends || !syntax.is_ascii()
}

/// A document that is mostly right. A field that comes twice has values of its own type only, for
/// what a later `null` clears is not looked at again; lists do not come twice, for Go mixes them.
fn document(random: &mut Random) -> String {
    if random.once_in(30) {
        let odd = ["null", "[]", "1", r#""x""#, "", " ", "{} {}", "nul", "[1,]", r#"{"a":1,}"#, "{,}", "01"];
        return random.pick(&odd).to_owned();
    }
    let repeats = random.once_in(2);
    let mut members = Vec::new();
    for field in FIELDS {
        if random.below(3) > 0 {
            continue;
        }
        let times = if field == "list" || !repeats { 1 } else { 1 + random.below(3) };
        for _ in 0..times {
            let value = match times {
                1 if random.once_in(25) => any(random, 2),
                1 if field != "any" && random.once_in(10) => random.pick(&WRONG).to_owned(),
                _ => value(random, field),
            };
            let at = random.below(members.len() + 1);
            members.insert(at, format!("{}:{value}", key(random, field)));
        }
    }
    if random.once_in(8) {
        members.push(format!(r#""unknown":{}"#, any(random, 2)));
    }
    let space = random.pick(&["", " ", "\n\t"]);
    let text = format!("{space}{{{}}}{space}", members.join(&format!("{space},")));
    if repeats { text } else { random.spoil(text, "{}[]:,\"\\0 1.e-xtn") }
}

const FIELDS: [&str; 11] =
    ["enable", "percent", "count", "ratio", "name", "inner", "pointer", "table", "byNumber", "list", "any"];

fn key(random: &mut Random, name: &str) -> String {
    let name = match random.below(4) {
        0 => name.to_ascii_uppercase(),
        1 => name.to_ascii_lowercase(),
        _ => name.to_owned(),
    };
    format!("\"{name}\"")
}

/// Numbers that not every field takes, and texts that some take for numbers.
const WRONG: [&str; 9] = [
    "5.0",
    "1e1",
    "2147483648",
    "9223372036854775808",
    "1e400",
    "\"5\"",
    r#"{"x":""}"#,
    r#"{"":""}"#,
    "[[]]",
];

fn value(random: &mut Random, field: &str) -> String {
    if random.once_in(6) {
        return "null".to_owned();
    }
    match field {
        "enable" => random.pick(&["true", "false"]).to_owned(),
        "percent" => random.pick(&["0", "1", "-1", "9223372036854775807", "-9223372036854775808"]).to_owned(),
        "count" => random.pick(&["0", "-0", "7", "-2147483648", "2147483647"]).to_owned(),
        "ratio" => {
            random.pick(&["0", "-0.0", "1.5", "1e20", "1e21", "1e-7", "123456789.125", "0.1e1"]).to_owned()
        }
        "name" => string(random),
        "inner" | "pointer" => inner(random),
        "table" => object(random, |random| (string(random), inner(random))),
        "byNumber" => object(random, |random| {
            let key = random.pick(&["1", "2", "10", "-3", "+4", "007"]).to_owned();
            (format!("\"{key}\""), string(random))
        }),
        "list" => {
            let items: Vec<_> = (0..random.below(4)).map(|_| inner(random)).collect();
            format!("[{}]", items.join(","))
        }
        _ => any(random, 3),
    }
}

fn inner(random: &mut Random) -> String {
    if random.once_in(8) {
        return "null".to_owned();
    }
    object(random, |random| {
        let name = random.pick(&["cpuQos", "memoryQos", "other"]);
        let value = if random.once_in(4) { "null".to_owned() } else { random.below(5).to_string() };
        (key(random, name), value)
    })
}

fn object(random: &mut Random, mut member: impl FnMut(&mut Random) -> (String, String)) -> String {
    let members: Vec<_> = (0..random.below(4))
        .map(|_| {
            let (key, value) = member(random);
            format!("{key}:{value}")
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn string(random: &mut Random) -> String {
    let parts = [
        "a",
        "B",
        "<",
        "&",
        ">",
        "é",
        "😀",
        r"\n",
        r"\u003c",
        r"\ud83d\ude00",
        r"\ud83d",
        r"\/",
        r#"\""#,
        "\u{2028}",
        "\u{7f}",
        r"\u0000",
        r"\b",
    ];
    let text: String = (0..random.below(4)).map(|_| random.pick(&parts)).collect();
    format!("\"{text}\"")
}

/// Anything; only numbers that Go's float64 writes as they were.
fn any(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 4 } else { 6 }) {
        0 => random.pick(&["null", "true", "false"]).to_owned(),
        1 => random.pick(&["0", "12", "-3", "1.5"]).to_owned(),
        2 | 3 => string(random),
        4 => {
            let items: Vec<_> = (0..random.below(3)).map(|_| any(random, depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
        _ => object(random, |random| (string(random), any(random, depth - 1))),
    }
}
