//! A JSON document as a tree that keeps the order and the place of everything.

use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};

use super::{Error, decode, encode};

/// A node of a document. Two values are equal when their content is, wherever they stood.
#[derive(Clone, Debug, Default)]
pub struct Value {
    pub kind: Kind,
    /// Byte at which the value starts in its document; 0 when it was not read from text.
    pub(super) at: usize,
}

/// What a [`Value`] holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Kind {
    #[default]
    Null,
    Bool(bool),
    /// The digits as written, so that `5.0` and `5` stay apart.
    Number(String),
    String(String),
    Array(Vec<Value>),
    /// In document order, duplicates kept.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Decodes with Go's rules, see [`super::from_str`].
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Error> {
        decode::layers(&[self])
    }

    pub fn is_null(&self) -> bool {
        self.kind == Kind::Null
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            Kind::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match &self.kind {
            Kind::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&[(String, Value)]> {
        match &self.kind {
            Kind::Object(entries) => Some(entries),
            _ => None,
        }
    }

    /// The last entry of an object under exactly this key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let entries = self.as_object()?;
        entries.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// What Go calls this value in an error.
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "null".to_owned(),
            Kind::Bool(_) => "bool".to_owned(),
            Kind::Number(digits) => format!("number {digits}"),
            Kind::String(_) => "string".to_owned(),
            Kind::Array(_) => "array".to_owned(),
            Kind::Object(_) => "object".to_owned(),
        }
    }
}

impl From<Kind> for Value {
    fn from(kind: Kind) -> Value {
        Value { kind, at: 0 }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.kind == other.kind
    }
}

/// Go's text of the value, members in the order they have here.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        encode::write(self, f)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            Kind::Null => serializer.serialize_unit(),
            Kind::Bool(value) => serializer.serialize_bool(*value),
            Kind::Number(digits) => match number(digits) {
                Number::Signed(value) => serializer.serialize_i64(value),
                Number::Unsigned(value) => serializer.serialize_u64(value),
                Number::Float(value) => serializer.serialize_f64(value),
            },
            Kind::String(text) => serializer.serialize_str(text),
            Kind::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Kind::Object(entries) => {
                let mut map = serializer.serialize_map(None)?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    // The last of several equal keys is the one every reader sees.
                    if !entries[index + 1..].iter().any(|(later, _)| later == key) {
                        map.serialize_entry(key, value)?;
                    }
                }
                map.end()
            }
        }
    }
}

/// A number in the narrowest of the forms that serde knows.
pub(super) enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

pub(super) fn number(digits: &str) -> Number {
    if let Ok(value) = digits.parse() {
        Number::Signed(value)
    } else if let Ok(value) = digits.parse() {
        Number::Unsigned(value)
    } else {
        // The parser checked the syntax, and Rust reads all of JSON's numbers.
        Number::Float(digits.parse().unwrap_or(f64::NAN))
    }
}

/// Asks our own decoder for a value with its place and the digits of its number; other decoders
/// take it for a plain newtype.
pub(super) const VALUE_TOKEN: &str = "koord.gojson.Value";

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_newtype_struct(VALUE_TOKEN, PlacedValue)
    }
}

struct PlacedValue;

impl<'de> Visitor<'de> for PlacedValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }

    /// Place, digits, content: what our own decoder sends for the token.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let at = seq.next_element()?.unwrap_or_default();
        let digits: Option<String> = seq.next_element()?.unwrap_or_default();
        match digits {
            Some(digits) => Ok(Value { kind: Kind::Number(digits), at }),
            None => {
                let content = seq.next_element_seed(AnyValue)?.unwrap_or_default();
                Ok(Value { at, ..content })
            }
        }
    }
}

struct AnyValue;

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::default())
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Kind::Bool(value).into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Kind::Number(value.to_string()).into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Kind::Number(value.to_string()).into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Kind::Number(encode::float(value)).into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Kind::String(text.to_owned()).into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Kind::String(text).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Kind::Array(items).into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Kind::Object(entries).into())
    }
}
