//! An object as finished JSON, cut where the server needs to reach in.

use std::io::Write;

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};

use super::Change;
use crate::kinds::{Text, meta};

/// An object ready to be committed: everything but its revision.
#[derive(Clone, Debug)]
pub struct Draft {
    key: Box<str>,
    namespace_len: u32,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[(Text, Box<str>)]>,
    /// JSON before and after the digits of resourceVersion.
    head: Vec<u8>,
    tail: Vec<u8>,
    spans: Spans,
}

/// Places in the JSON object, counted from its first byte.
#[derive(Clone, Copy, Debug, Default)]
struct Spans {
    /// After `"kind":…,"apiVersion":…,`, which items of a list leave out.
    rest: u32,
    meta_start: u32,
    /// In the tail, counted from its first byte.
    meta_end_in_tail: u32,
}

/// An object at rest. Immutable.
#[derive(Clone, Debug)]
pub struct Stored {
    key: Box<str>,
    namespace_len: u32,
    uid: Box<str>,
    revision: u64,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[(Text, Box<str>)]>,
    /// `{"type":"ADDED","object":{…}}` and a newline.
    frame: Bytes,
    /// Where the object begins in the frame; it ends two bytes before the frame does.
    start: u32,
    /// Where the digits of resourceVersion begin and end in the frame.
    digits: (u32, u32),
    spans: Spans,
}

const FRAME_END: &[u8] = b"}\n";

/// The key of an object: `namespace/name`, or the name of a cluster-scoped one.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

impl Draft {
    /// Encodes an object; its own resourceVersion is left out. `fields` are those a field selector
    /// may ask for besides name and namespace.
    pub fn new(object: &Value, fields: Vec<(Text, String)>) -> Draft {
        let namespace = meta::namespace(object);
        let labels = meta::of(object).and_then(|m| m.get("labels")).and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let labels = labels.filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into())));
        let (head, tail, spans) = encode(object);
        Draft {
            key: key(namespace, meta::name(object)).into(),
            namespace_len: count(namespace.len()),
            uid: meta::uid(object).into(),
            labels: labels.collect(),
            fields: fields.into_iter().map(|(k, v)| (k, v.into())).collect(),
            head,
            tail,
            spans,
        }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// What `stamp` would say is the same object, revision aside: a write that changes nothing.
    pub fn is_same_as(&self, stored: &Stored) -> bool {
        let (start, (digits, after)) = (stored.at(stored.start), stored.digits);
        let object = stored.frame.len() - FRAME_END.len();
        self.head == stored.frame[start..stored.at(digits)]
            && self.tail == stored.frame[stored.at(after)..object]
    }

    pub(super) fn stamp(self, revision: u64, change: Change) -> Stored {
        let (frame, start, digits) = frame(change, &self.head, revision, &self.tail);
        Stored {
            key: self.key,
            namespace_len: self.namespace_len,
            uid: self.uid,
            revision,
            labels: self.labels,
            fields: self.fields,
            frame,
            start,
            digits,
            spans: self.spans,
        }
    }

    /// The object as it would read at `revision`, without committing it: for dry runs.
    pub fn preview(self, revision: u64) -> Stored {
        self.stamp(revision, Change::Added)
    }
}

impl Stored {
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn namespace(&self) -> &str {
        &self.key[..self.at(self.namespace_len)]
    }

    pub fn name(&self) -> &str {
        let skip = if self.namespace_len == 0 { 0 } else { self.at(self.namespace_len) + 1 };
        &self.key[skip..]
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| **k == *key).map(|(_, v)| &**v)
    }

    /// The value a field selector sees; empty when there is none.
    pub fn field(&self, field: &str) -> &str {
        match field {
            "metadata.name" => self.name(),
            "metadata.namespace" => self.namespace(),
            _ => self.fields.iter().find(|(k, _)| k == field).map_or("", |(_, v)| v),
        }
    }

    /// The object as JSON.
    pub fn json(&self) -> Bytes {
        self.frame.slice(self.at(self.start)..self.frame.len() - FRAME_END.len())
    }

    /// The object's JSON after its opening brace, kind and apiVersion: as an item of a list.
    pub fn json_untyped(&self) -> &[u8] {
        &self.frame[self.at(self.start + self.spans.rest)..self.frame.len() - FRAME_END.len()]
    }

    /// The value of `metadata` as JSON.
    pub fn json_metadata(&self) -> &[u8] {
        let start = self.at(self.start + self.spans.meta_start);
        &self.frame[start..self.at(self.digits.1 + self.spans.meta_end_in_tail)]
    }

    /// The watch event of the commit that made this state.
    pub fn frame(&self) -> Bytes {
        self.frame.clone()
    }

    /// The object as a tree.
    pub fn value(&self) -> Value {
        let start = self.at(self.start);
        let json = &self.frame[start..self.frame.len() - FRAME_END.len()];
        serde_json::from_slice(json).expect("written by encode")
    }

    /// The same state under another revision: a removal, or a departure from someone's selection.
    pub fn at_revision(&self, revision: u64, change: Change) -> Stored {
        let head = &self.frame[self.at(self.start)..self.at(self.digits.0)];
        let tail = &self.frame[self.at(self.digits.1)..self.frame.len() - FRAME_END.len()];
        let (frame, start, digits) = frame(change, head, revision, tail);
        Stored { frame, start, digits, revision, ..self.clone() }
    }

    pub(super) fn size(&self) -> usize {
        self.frame.len()
    }

    fn at(&self, place: u32) -> usize {
        usize::try_from(place).expect("bodies are limited to a few MiB")
    }
}

fn frame(change: Change, head: &[u8], revision: u64, tail: &[u8]) -> (Bytes, u32, (u32, u32)) {
    let revision = revision.to_string();
    let change = change.text();
    let mut out = BytesMut::with_capacity(head.len() + tail.len() + revision.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(change.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    let start = count(out.len());
    out.extend_from_slice(head);
    let digits = count(out.len());
    out.extend_from_slice(revision.as_bytes());
    let after = count(out.len());
    out.extend_from_slice(tail);
    out.extend_from_slice(FRAME_END);
    (out.freeze(), start, (digits, after))
}

/// `{"kind":…,"apiVersion":…,"metadata":{…,"resourceVersion":"|",…},…}`, cut at the bar.
fn encode(object: &Value) -> (Vec<u8>, Vec<u8>, Spans) {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = meta::of(object).unwrap_or(&empty);
    let mut spans = Spans::default();
    let mut head = Vec::with_capacity(1024);
    head.push(b'{');
    for typed in ["kind", "apiVersion"] {
        if let Some(value) = fields.get(typed) {
            member(&mut head, typed, value);
            head.push(b',');
        }
    }
    spans.rest = count(head.len());
    head.extend_from_slice(b"\"metadata\":");
    spans.meta_start = count(head.len());
    head.push(b'{');
    let (before, after): (Vec<_>, Vec<_>) = metadata
        .iter()
        .filter(|(key, value)| *key != "resourceVersion" && !value.is_null())
        .partition(|(key, _)| key.as_str() < "resourceVersion");
    for (key, value) in before {
        member(&mut head, key, value);
        head.push(b',');
    }
    head.extend_from_slice(b"\"resourceVersion\":\"");
    let mut tail = Vec::with_capacity(4096);
    tail.push(b'"');
    for (key, value) in after {
        tail.push(b',');
        member(&mut tail, key, value);
    }
    tail.push(b'}');
    spans.meta_end_in_tail = count(tail.len());
    let rest = fields.iter().filter(|(key, _)| !["kind", "apiVersion", "metadata"].contains(&key.as_str()));
    for (key, value) in rest {
        tail.push(b',');
        member(&mut tail, key, value);
    }
    tail.push(b'}');
    (head, tail, spans)
}

fn member(out: &mut Vec<u8>, key: &str, value: &Value) {
    serde_json::to_writer(&mut *out, key).expect("a Vec takes all bytes");
    out.write_all(b":").expect("a Vec takes all bytes");
    serde_json::to_writer(out, value).expect("a tree of plain values");
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("bodies are limited to a few MiB")
}
