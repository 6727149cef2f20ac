//! Serde's view of the tree: strict about fields, and every error knows its node.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};

use super::tree::{NodeId, Tree, Value};
use crate::flags::distance;

/// The name by which a [`Raw`] asks for its node's id.
const RAW_MARKER: &str = "koord_kit::config::Raw";

/// Fields further apart than this are not offered as what the user may have meant.
const SUGGESTION_DISTANCE_MAX: usize = 3;

/// A part of a document to be decoded later, by [`super::Document::decode_raw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw {
    pub(super) id: NodeId,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part of a configuration document")
            }

            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Raw, E> {
                usize::try_from(id).map(|id| Raw { id }).map_err(E::custom)
            }
        }
        deserializer.deserialize_newtype_struct(RAW_MARKER, IdVisitor)
    }
}

/// Why a value does not fit, and which node it is about.
#[derive(Debug)]
pub(super) struct Fault {
    /// The value that does not fit, or the map that lacks a field.
    pub(super) node: NodeId,
    pub(super) missing: bool,
    pub(super) message: String,
}

/// Decodes one node. Returns also the unknown fields met on the way, with what to say of each.
pub(super) fn run<T: DeserializeOwned>(
    tree: &Tree,
    id: NodeId,
    skipped: &BTreeSet<NodeId>,
) -> (Result<T, Fault>, Vec<(NodeId, String)>) {
    let context = Context { tree, skipped, unknown: RefCell::new(Vec::new()), root: id };
    let result = T::deserialize(At { context: &context, id }).map_err(|fault| fault.at(id));
    (result, context.unknown.into_inner())
}

struct Context<'t> {
    tree: &'t Tree,
    skipped: &'t BTreeSet<NodeId>,
    unknown: RefCell<Vec<(NodeId, String)>>,
    root: NodeId,
}

/// A fault on its way up: it gets its node at the first level that knows one.
#[derive(Debug)]
pub(super) struct Rising {
    node: Option<NodeId>,
    missing: bool,
    message: String,
}

impl Rising {
    fn at(self, within: NodeId) -> Fault {
        Fault { node: self.node.unwrap_or(within), missing: self.missing, message: self.message }
    }

    /// Names the node, unless a deeper level did.
    fn named(mut self, id: NodeId) -> Rising {
        self.node.get_or_insert(id);
        self
    }
}

impl fmt::Display for Rising {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Rising {}

impl de::Error for Rising {
    fn custom<T: fmt::Display>(message: T) -> Rising {
        Rising { node: None, missing: false, message: message.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn de::Expected) -> Rising {
        de::Error::custom(format!("{} is not accepted, expected {}", shown(found), expected(wanted)))
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn de::Expected) -> Rising {
        de::Error::custom(format!("{} is not accepted, expected {}", shown(found), expected(wanted)))
    }

    fn unknown_variant(found: &str, wanted: &'static [&'static str]) -> Rising {
        de::Error::custom(format!("{found:?} is not accepted, expected {}", wanted.join(", ")))
    }

    fn missing_field(field: &'static str) -> Rising {
        Rising { node: None, missing: true, message: format!("field {field} is required") }
    }
}

fn shown(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Str(value) => format!("{value:?}"),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        other => other.to_string(),
    }
}

/// Rust's type names in words that a user of YAML knows.
fn expected(wanted: &dyn de::Expected) -> String {
    let text = wanted.to_string();
    let is_integer = |name: &str| {
        let digits = name.trim_start_matches(['i', 'u']);
        name.len() > digits.len() && digits.chars().all(|c| c.is_ascii_digit()) || name.ends_with("size")
    };
    match text.as_str() {
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text".to_owned(),
        "a sequence" => "a list".to_owned(),
        name if name.starts_with('u') && is_integer(name) => {
            "an integer that is not negative and not too large".to_owned()
        }
        name if is_integer(name) => "an integer".to_owned(),
        name if name.starts_with("struct ") => "a map of fields".to_owned(),
        name => name.to_owned(),
    }
}

#[derive(Clone, Copy)]
struct At<'c, 't> {
    context: &'c Context<'t>,
    id: NodeId,
}

impl<'c, 't> At<'c, 't> {
    fn value(self) -> &'t Value {
        &self.context.tree.node(self.id).value
    }

    fn fields(self, strict: Option<&'static [&'static str]>) -> Option<Fields<'c, 't>> {
        let entries = match self.value() {
            Value::Map(entries) => entries.as_slice(),
            // An empty section, `plugins:` with nothing below, is a map without fields.
            Value::Null => &[],
            _ => return None,
        };
        if let Some(known) = strict {
            for (key, id) in entries {
                let is_header = self.id == self.context.root && matches!(key.as_str(), "apiVersion" | "kind");
                if !known.contains(&key.as_str()) && !is_header && !self.context.skipped.contains(id) {
                    self.context.unknown.borrow_mut().push((*id, unknown_field(key, known)));
                }
            }
        }
        Some(Fields { context: self.context, entries: entries.iter(), strict, value: None })
    }

    fn unexpected(self) -> Unexpected<'t> {
        match self.value() {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Int(value) => Unexpected::Signed(*value),
            Value::Unsigned(value) => Unexpected::Unsigned(*value),
            Value::Float(value) => Unexpected::Float(*value),
            Value::Text(value) => Unexpected::Str(value),
            Value::List(_) => Unexpected::Seq,
            Value::Map(_) => Unexpected::Map,
        }
    }
}

fn unknown_field(key: &str, known: &[&'static str]) -> String {
    let near = known
        .iter()
        .map(|name| (distance(&key.to_lowercase(), &name.to_lowercase()), *name))
        .filter(|(steps, name)| *steps <= SUGGESTION_DISTANCE_MAX.min(name.len() / 2))
        .min();
    let hint = near.map(|(_, name)| format!("did you mean {name}? ")).unwrap_or_default();
    format!("unknown field; {hint}accepted: {}", known.join(", "))
}

impl<'de> Deserializer<'de> for At<'_, '_> {
    type Error = Rising;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Rising> {
        match self.value() {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_str(value),
            Value::List(items) => visitor.visit_seq(Items { context: self.context, items: items.iter() }),
            Value::Map(_) => match self.fields(None) {
                Some(fields) => visitor.visit_map(fields),
                None => visitor.visit_unit(),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Rising> {
        match self.value() {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Rising> {
        if name == RAW_MARKER {
            return visitor.visit_u64(u64::try_from(self.id).unwrap_or(u64::MAX));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Rising> {
        match self.value() {
            Value::List(items) => visitor.visit_seq(Items { context: self.context, items: items.iter() }),
            Value::Null => visitor.visit_seq(Items { context: self.context, items: [].iter() }),
            _ => Err(de::Error::invalid_type(self.unexpected(), &visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Rising> {
        match self.fields(None) {
            Some(fields) => visitor.visit_map(fields),
            None => Err(de::Error::invalid_type(self.unexpected(), &visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Rising> {
        match self.fields(Some(fields)) {
            Some(fields) => visitor.visit_map(fields).map_err(|fault| fault.named_if_missing(self.id)),
            None => Err(de::Error::invalid_type(self.unexpected(), &visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Rising> {
        match self.value() {
            Value::Text(name) => visitor.visit_enum(Variant { name, body: None }),
            Value::Map(entries) if entries.len() == 1 => {
                let (name, id) = &entries[0];
                visitor.visit_enum(Variant { name, body: Some(At { context: self.context, id: *id }) })
            }
            _ => Err(de::Error::invalid_type(self.unexpected(), &visitor)),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct identifier ignored_any
    }
}

impl Rising {
    fn named_if_missing(self, id: NodeId) -> Rising {
        if self.missing { self.named(id) } else { self }
    }
}

struct Fields<'c, 't> {
    context: &'c Context<'t>,
    entries: std::slice::Iter<'t, (String, NodeId)>,
    strict: Option<&'static [&'static str]>,
    value: Option<NodeId>,
}

impl<'de> MapAccess<'de> for Fields<'_, '_> {
    type Error = Rising;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Rising> {
        for (key, id) in self.entries.by_ref() {
            let is_unknown = self.strict.is_some_and(|known| !known.contains(&key.as_str()));
            if is_unknown || self.context.skipped.contains(id) {
                continue;
            }
            self.value = Some(*id);
            let key: StrDeserializer<'_, Rising> = key.as_str().into_deserializer();
            return seed.deserialize(key).map(Some).map_err(|fault| fault.named(*id));
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Rising> {
        let id = self
            .value
            .take()
            .ok_or_else(|| <Rising as de::Error>::custom("value asked for before its key"))?;
        seed.deserialize(At { context: self.context, id }).map_err(|fault| fault.named(id))
    }
}

struct Items<'c, 't> {
    context: &'c Context<'t>,
    items: std::slice::Iter<'t, NodeId>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Rising;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Rising> {
        for id in self.items.by_ref() {
            if self.context.skipped.contains(id) {
                continue;
            }
            let item = At { context: self.context, id: *id };
            return seed.deserialize(item).map(Some).map_err(|fault| fault.named(*id));
        }
        Ok(None)
    }
}

struct Variant<'c, 't> {
    name: &'t str,
    body: Option<At<'c, 't>>,
}

impl<'de, 'c, 't> EnumAccess<'de> for Variant<'c, 't> {
    type Error = Rising;
    type Variant = Body<'c, 't>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Body<'c, 't>), Rising> {
        let name: StrDeserializer<'_, Rising> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, Body(self.body)))
    }
}

struct Body<'c, 't>(Option<At<'c, 't>>);

impl<'de> VariantAccess<'de> for Body<'_, '_> {
    type Error = Rising;

    fn unit_variant(self) -> Result<(), Rising> {
        match self.0 {
            None => Ok(()),
            Some(_) => Err(de::Error::custom("this word takes no value")),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Rising> {
        seed.deserialize(self.needed()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Rising> {
        self.needed()?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Rising> {
        self.needed()?.deserialize_struct("", fields, visitor)
    }
}

impl<'c, 't> Body<'c, 't> {
    fn needed(self) -> Result<At<'c, 't>, Rising> {
        self.0.ok_or_else(|| de::Error::custom("this word needs a value"))
    }
}
