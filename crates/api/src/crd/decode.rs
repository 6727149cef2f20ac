//! One object at a time, with an error that names the object, the field and the value.
//!
//! The API server stores what its schema lets pass, and that is more than the types can hold: a
//! `ttl` of "abc", a minor number of three billion. One such object must not hide all others, so
//! lists are decoded element by element. Spec: crds 14.

use std::fmt;

use k8s_openapi::Resource;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// An object that its type cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {object}: {field}: {reason}, got {value}")]
pub struct DecodeError {
    pub kind: &'static str,
    /// `namespace/name`, or `name` of what lives in no namespace.
    pub object: String,
    /// As users write it: `spec.devices[2].minor`.
    pub field: String,
    /// The value as JSON, shortened when long.
    pub value: String,
    /// What is wrong, and what is accepted.
    pub reason: String,
}

/// Reads one object. A `null` field reads as absent.
pub fn decode_object<K: Resource + DeserializeOwned>(value: &Value) -> Result<K, DecodeError> {
    from_value(value).map_err(|fault| DecodeError {
        kind: K::KIND,
        object: object_name(value),
        field: if fault.path.is_empty() { "(whole object)".to_owned() } else { fault.path },
        value: fault.value,
        reason: fault.reason,
    })
}

/// Reads what is part of an object, by the same rules.
pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Fault> {
    T::deserialize(Cursor { value, path: &Path::Root }).map_err(|fault| fault.at(&Path::Root, value))
}

/// Reads a field that the API server stores without looking: quantities may be numbers there, and
/// fields may be null.
pub(crate) fn schemaless<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    from_value(&value).map_err(de::Error::custom)
}

fn object_name(value: &Value) -> String {
    let text = |key: &str| value.get("metadata")?.get(key)?.as_str();
    match (text("namespace"), text("name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (_, name) => name.unwrap_or("(without a name)").to_owned(),
    }
}

/// What went wrong, and where. The place is filled in on the way out, by the innermost value.
#[derive(Debug)]
pub(crate) struct Fault {
    located: bool,
    path: String,
    value: String,
    reason: String,
}

impl Fault {
    fn at(self, path: &Path<'_>, value: &Value) -> Fault {
        if self.located {
            return self;
        }
        Fault { located: true, path: path.to_string(), value: shorten(value), ..self }
    }
}

/// Bound on the text of a value in an error, for a whole object may stand there.
const VALUE_CHARS_MAX: usize = 80;

fn shorten(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.reason);
        }
        write!(f, "{}: {}, got {}", self.path, self.reason, self.value)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault { located: false, path: String::new(), value: String::new(), reason: message.to_string() }
    }
}

enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A JSON value that knows where it stands.
struct Cursor<'a> {
    value: &'a Value,
    path: &'a Path<'a>,
}

impl<'a> Cursor<'a> {
    fn located<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| fault.at(self.path, self.value))
    }

    fn visit<'de, V: Visitor<'de>>(&self, visitor: V, fields: Fields) -> Result<V::Value, Fault> {
        self.located(match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => visit_number(number, visitor),
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => visitor.visit_seq(Items { items: items.iter(), next: 0, path: self.path }),
            Value::Object(map) => visitor.visit_map(Entries::new(map, self.path, fields)),
        })
    }
}

fn visit_number<'de, V: Visitor<'de>>(number: &serde_json::Number, visitor: V) -> Result<V::Value, Fault> {
    if let Some(value) = number.as_i64() {
        visitor.visit_i64(value)
    } else if let Some(value) = number.as_u64() {
        visitor.visit_u64(value)
    } else {
        visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN))
    }
}

impl<'de> Deserializer<'de> for Cursor<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.visit(visitor, Fields::All)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.visit(visitor, Fields::NotNull)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.value {
            // k8s_openapi keeps quantities as text, and manifests say `cpu: 2`.
            Value::Number(number) if name == "Quantity" => {
                let text = number.to_string();
                let text: StrDeserializer<'_, Fault> = text.as_str().into_deserializer();
                let result = visitor.visit_newtype_struct(text);
                result.map_err(|fault| fault.at(self.path, self.value))
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let result = match self.value {
            Value::String(text) => visitor.visit_enum(StrDeserializer::<Fault>::new(text)),
            _ => Err(de::Error::custom("expected a string")),
        };
        self.located(result)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier
    }
}

struct Items<'a> {
    items: std::slice::Iter<'a, Value>,
    next: usize,
    path: &'a Path<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let path = Path::Index(self.path, self.next);
        self.next += 1;
        seed.deserialize(Cursor { value, path: &path }).map_err(|fault| fault.at(&path, value)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// Which entries of a JSON object are shown: a struct does not see its null fields.
#[derive(Clone, Copy, PartialEq)]
enum Fields {
    All,
    NotNull,
}

struct Entries<'a> {
    entries: serde_json::map::Iter<'a>,
    current: Option<(&'a String, &'a Value)>,
    path: &'a Path<'a>,
    fields: Fields,
}

impl<'a> Entries<'a> {
    fn new(map: &'a Map<String, Value>, path: &'a Path<'a>, fields: Fields) -> Self {
        Entries { entries: map.iter(), current: None, path, fields }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let show_null = self.fields == Fields::All;
        self.current = self.entries.find(|(_, value)| show_null || !value.is_null());
        let Some((key, _)) = self.current else { return Ok(None) };
        seed.deserialize(StrDeserializer::<Fault>::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (key, value) = self.current.take().ok_or_else(|| de::Error::custom("a value without a key"))?;
        let path = Path::Field(self.path, key);
        seed.deserialize(Cursor { value, path: &path }).map_err(|fault| fault.at(&path, value))
    }
}

#[cfg(test)]
mod tests;
