//! Request bodies in Kubernetes' protobuf encoding, read into the same trees as JSON.
//!
//! kubectl's typed commands (`create deployment`, `drain`) and most Go controllers send nothing else.
//! `messages.txt` holds the field numbers of Kubernetes v1.35 types: one message per line, `NUMBER=NAME:TYPE`,
//! `!` for a field whose own fields stand in its place, `*` for a list, `%` for a map; scalars are
//! s(tring), i(nteger), b(ool), d(ouble) and y (bytes). Answers are always JSON.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// What such a body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Deeper than any Kubernetes type; bounds the stack for a hostile body.
const DEPTH_MAX: usize = 64;

/// Reads a body: None when it is of a type not known here, or broken.
pub(super) fn read(body: &[u8]) -> Option<Value> {
    let envelope = fields(body.strip_prefix(MAGIC)?)?;
    let bytes = |number: u64| envelope.iter().rev().find(|(n, _)| *n == number).and_then(|(_, v)| v.bytes());
    let types = fields(bytes(1)?)?;
    let text = |number: u64| {
        let found = types.iter().rev().find(|(n, _)| *n == number);
        std::str::from_utf8(found?.1.bytes()?).ok()
    };
    let (version, kind) = (text(1).unwrap_or_default(), text(2)?);
    let mut object = message(&message_name(version, kind), bytes(2).unwrap_or_default(), 0)?;
    let tree = object.as_object_mut()?;
    tree.insert("kind".to_owned(), Value::from(kind));
    tree.insert("apiVersion".to_owned(), Value::from(version));
    Some(object)
}

/// `apps/v1` and `Deployment` make `apps.v1.Deployment`.
fn message_name(api_version: &str, kind: &str) -> String {
    // Options come under the version of what they are for.
    if kind == "DeleteOptions" {
        return "meta.v1.DeleteOptions".to_owned();
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = group.split('.').next().unwrap_or_default();
    format!("{package}.{version}.{kind}")
}

struct Field {
    /// None: its fields stand in its place.
    name: Option<&'static str>,
    shape: Shape,
    of: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    List,
    Map,
}

type Messages = HashMap<&'static str, HashMap<u64, Field>>;

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    let lines = include_str!("protobuf/messages.txt").lines();
    lines.filter_map(|line| line.split_once(' ')).map(|(name, fields)| (name, parse_fields(fields))).collect()
});

fn parse_fields(text: &'static str) -> HashMap<u64, Field> {
    let field = |word: &'static str| {
        let (place, of) = word.split_once(':')?;
        let (number, name) = match place.split_once('=') {
            Some((number, name)) => (number, Some(name)),
            None => (place.strip_suffix('!')?, None),
        };
        let (shape, of) = match (of.strip_prefix('*'), of.strip_prefix('%')) {
            (Some(of), _) => (Shape::List, of),
            (_, Some(of)) => (Shape::Map, of),
            _ => (Shape::One, of),
        };
        Some((number.parse().ok()?, Field { name, shape, of }))
    };
    text.split(' ').filter_map(field).collect()
}

/// A field as it stands on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Wire::Bytes(bytes) => Some(bytes),
            Wire::Number(_) => None,
        }
    }
}

fn fields(mut rest: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let wire = match key & 7 {
            0 => Wire::Number(varint(&mut rest)?),
            1 => Wire::Number(u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                Wire::Bytes(take(&mut rest, length)?)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?))),
            _ => return None,
        };
        found.push((key >> 3, wire));
    }
    Some(found)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    Some(head)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    if let Some(special) = special(name, bytes) {
        return special;
    }
    let known = MESSAGES.get(name)?;
    let mut object = Map::new();
    for (number, wire) in fields(bytes)? {
        // Newer clients may send fields nobody here knows.
        let Some(field) = known.get(&number) else { continue };
        match (field.name, field.shape) {
            (None, _) => {
                let inner = message(field.of, wire.bytes()?, depth + 1)?;
                object.extend(inner.as_object().cloned()?);
            }
            (Some(name), Shape::One) => {
                object.insert(name.to_owned(), value(field.of, &wire, depth)?);
            }
            (Some(name), Shape::List) => {
                let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut()?.push(value(field.of, &wire, depth)?);
            }
            (Some(name), Shape::Map) => {
                let (key, entry) = entry(field.of, wire.bytes()?, depth)?;
                let map = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
                map.as_object_mut()?.insert(key, entry);
            }
        }
    }
    Some(Value::Object(object))
}

fn entry(of: &str, bytes: &[u8], depth: usize) -> Option<(String, Value)> {
    let mut key = String::new();
    let mut found = None;
    for (number, wire) in fields(bytes)? {
        match number {
            1 => key = std::str::from_utf8(wire.bytes()?).ok()?.to_owned(),
            2 => found = Some(value(of, &wire, depth)?),
            _ => {}
        }
    }
    // An empty value is not written: then it is the type's empty one.
    let found = match found {
        Some(found) => found,
        None => value(of, &Wire::Bytes(&[]), depth)?,
    };
    Some((key, found))
}

fn value(of: &str, wire: &Wire<'_>, depth: usize) -> Option<Value> {
    Some(match (of, wire) {
        ("s", Wire::Bytes(bytes)) => Value::from(std::str::from_utf8(bytes).ok()?),
        ("y", Wire::Bytes(bytes)) => Value::from(STANDARD.encode(bytes)),
        ("i", Wire::Number(number)) => Value::from(number.cast_signed()),
        ("b", Wire::Number(number)) => Value::from(*number != 0),
        ("d", Wire::Number(number)) => Value::from(f64::from_bits(*number)),
        (message_name, Wire::Bytes(bytes)) => return message(message_name, bytes, depth + 1),
        _ => return None,
    })
}

/// Messages whose JSON is not an object of their fields.
fn special(name: &str, bytes: &[u8]) -> Option<Option<Value>> {
    if !["meta.v1.Time", "meta.v1.MicroTime", "resource.Quantity", "intstr.IntOrString"].contains(&name)
        && !["meta.v1.FieldsV1", "runtime.RawExtension"].contains(&name)
        && !name.ends_with(".v1.ExtraValue")
    {
        return None;
    }
    let Some(found) = fields(bytes) else { return Some(None) };
    let number = |n: u64| match found.iter().rev().find(|(number, _)| *number == n) {
        Some((_, Wire::Number(value))) => value.cast_signed(),
        _ => 0,
    };
    let raw = |n: u64| {
        let wire = found.iter().rev().find(|(number, _)| *number == n);
        wire.and_then(|(_, wire)| wire.bytes()).unwrap_or_default()
    };
    let text = |n: u64| String::from_utf8_lossy(raw(n)).into_owned();
    Some(match name {
        "meta.v1.Time" | "meta.v1.MicroTime" if found.is_empty() => Some(Value::Null),
        "meta.v1.Time" => Timestamp::from_second(number(1)).ok().map(|t| Value::from(t.to_string())),
        "meta.v1.MicroTime" => {
            let time = i32::try_from(number(2)).ok().and_then(|nanos| Timestamp::new(number(1), nanos).ok());
            time.map(|t| Value::from(t.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()))
        }
        "resource.Quantity" => Some(Value::from(text(1))),
        "intstr.IntOrString" if number(1) == 1 => Some(Value::from(text(3))),
        "intstr.IntOrString" => Some(Value::from(number(2))),
        extra if extra.ends_with(".v1.ExtraValue") => {
            let items = found.iter().filter_map(|(_, wire)| std::str::from_utf8(wire.bytes()?).ok());
            Some(Value::Array(items.map(Value::from).collect()))
        }
        _ if raw(1).is_empty() => Some(Value::Null),
        _ => serde_json::from_slice(raw(1)).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn tagged(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length][..], bytes].concat()
    }

    fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [tagged(1, version.as_bytes()), tagged(2, kind.as_bytes())].concat();
        [MAGIC, &tagged(1, &types), &tagged(2, raw)].concat()
    }

    #[test]
    fn objects_read_as_their_json() {
        let meta = [tagged(1, b"a"), tagged(11, &[tagged(1, b"k"), tagged(2, b"v")].concat())].concat();
        let time = [8, 0x80, 0x8b, 0xb1, 0xaf, 0x06];
        let meta = [meta, tagged(8, &time)].concat();
        let data = tagged(2, &[tagged(1, b"x"), tagged(2, b"1")].concat());
        let raw = [tagged(1, &meta), data].concat();
        assert_eq!(
            read(&body("v1", "ConfigMap", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"},
                "metadata": {"name": "a", "labels": {"k": "v"}, "creationTimestamp": "2024-03-09T11:18:24Z"}})
        );
        let limit = [tagged(1, b"cpu"), tagged(2, &tagged(1, b"100m"))].concat();
        let container = [tagged(1, b"c"), tagged(8, &tagged(1, &limit))].concat();
        let secret = tagged(2, &tagged(6, &tagged(1, b"s")));
        let volume = tagged(1, &[tagged(1, b"v"), secret].concat());
        let pod = tagged(2, &[volume, tagged(2, &container)].concat());
        assert_eq!(
            read(&body("v1", "Pod", &pod)).unwrap()["spec"],
            json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}],
                "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}}}]})
        );
    }

    #[test]
    fn every_type_named_is_known() {
        let scalars = ["s", "i", "b", "d", "y"];
        for fields in MESSAGES.values() {
            for field in fields.values() {
                let known = scalars.contains(&field.of)
                    || MESSAGES.contains_key(field.of)
                    || special(field.of, &[]).is_some();
                assert!(known, "{}", field.of);
            }
        }
        assert!(read(&body("x.io/v1", "Thing", b"")).is_none());
    }

    proptest! {
        #[test]
        fn garbage_never_harms(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&raw);
            let envelope = [MAGIC, &raw].concat();
            let _ = read(&envelope);
            if raw.len() < 120 {
                let _ = read(&body("v1", "Pod", &raw));
            }
        }
    }
}
