//! Go's JSON text: `ToValue` turns data into a tree, `write` turns the tree into text.

use std::fmt::{self, Write};

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::error::Error;
use super::value::{Kind, Value};

/// Compact text of a tree, members in their order.
pub(super) fn write(value: &Value, out: &mut impl Write) -> fmt::Result {
    match &value.kind {
        Kind::Null => out.write_str("null"),
        Kind::Bool(value) => write!(out, "{value}"),
        Kind::Number(digits) => out.write_str(digits),
        Kind::String(text) => write_string(text, out),
        Kind::Array(items) => {
            out.write_char('[')?;
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.write_char(',')?;
                }
                write(item, out)?;
            }
            out.write_char(']')
        }
        Kind::Object(entries) => {
            out.write_char('{')?;
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.write_char(',')?;
                }
                write_string(key, out)?;
                out.write_char(':')?;
                write(value, out)?;
            }
            out.write_char('}')
        }
    }
}

fn write_string(text: &str, out: &mut impl Write) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\u{8}' => out.write_str("\\b")?,
            '\u{c}' => out.write_str("\\f")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(c))?;
            }
            _ => out.write_char(c)?,
        }
    }
    out.write_char('"')
}

/// Shortest digits that read back as the same number; exponent only where Go uses one.
pub(super) fn float(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return format!("{value}");
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

/// Serialises into a [`Value`], with the entries of maps sorted by key.
pub(super) struct ToValue;

type Done = Result<Value, Error>;

impl Serializer for ToValue {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Entries;
    type SerializeStruct = Entries;
    type SerializeStructVariant = Entries;

    fn serialize_bool(self, value: bool) -> Done {
        Ok(Kind::Bool(value).into())
    }

    fn serialize_i8(self, value: i8) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Done {
        Ok(Kind::Number(value.to_string()).into())
    }

    fn serialize_u8(self, value: u8) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Done {
        Ok(Kind::Number(value.to_string()).into())
    }

    fn serialize_f32(self, value: f32) -> Done {
        // Through text: the nearest f64 of 0.1f32 has digits that nobody wrote.
        self.serialize_f64(value.to_string().parse().unwrap_or(f64::NAN))
    }

    fn serialize_f64(self, value: f64) -> Done {
        if !value.is_finite() {
            return Err(serde::ser::Error::custom(format!("json: unsupported value: {value}")));
        }
        Ok(Kind::Number(float(value)).into())
    }

    fn serialize_char(self, value: char) -> Done {
        Ok(Kind::String(value.to_string()).into())
    }

    fn serialize_str(self, value: &str) -> Done {
        Ok(Kind::String(value.to_owned()).into())
    }

    fn serialize_bytes(self, value: &[u8]) -> Done {
        value.serialize(self)
    }

    fn serialize_none(self) -> Done {
        Ok(Value::default())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        Ok(Value::default())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        Ok(Value::default())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Done {
        Ok(tagged(Some(variant), value.serialize(self)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items, Error> {
        Ok(Items { variant: None, items: Vec::new() })
    }

    fn serialize_tuple(self, _: usize) -> Result<Items, Error> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items, Error> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items, Error> {
        Ok(Items { variant: Some(variant), items: Vec::new() })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries, Error> {
        Ok(Entries { variant: None, entries: Vec::new(), key: String::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Entries, Error> {
        self.serialize_map(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Entries, Error> {
        Ok(Entries { variant: Some(variant), entries: Vec::new(), key: String::new() })
    }
}

/// An enum variant with content is an object of one member, as serde has it.
fn tagged(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(variant) => Kind::Object(vec![(variant.to_owned(), value)]).into(),
        None => value,
    }
}

/// A list under way.
pub(super) struct Items {
    variant: Option<&'static str>,
    items: Vec<Value>,
}

impl Items {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.items.push(value.serialize(ToValue)?);
        Ok(())
    }

    fn finish(self) -> Done {
        Ok(tagged(self.variant, Kind::Array(self.items).into()))
    }
}

macro_rules! collects_items {
    ($($name:ident, $method:ident;)*) => {$(
        impl $name for Items {
            type Ok = Value;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.push(value)
            }

            fn end(self) -> Done {
                self.finish()
            }
        }
    )*};
}

collects_items! {
    SerializeSeq, serialize_element;
    SerializeTuple, serialize_element;
    SerializeTupleStruct, serialize_field;
    SerializeTupleVariant, serialize_field;
}

/// An object under way.
pub(super) struct Entries {
    variant: Option<&'static str>,
    entries: Vec<(String, Value)>,
    key: String,
}

impl SerializeMap for Entries {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = match key.serialize(ToValue)?.kind {
            Kind::String(text) | Kind::Number(text) => text,
            other => {
                let found = Value::from(other).describe();
                return Err(serde::ser::Error::custom(format!("map key is {found}, not a string")));
            }
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.entries.push((std::mem::take(&mut self.key), value.serialize(ToValue)?));
        Ok(())
    }

    fn end(mut self) -> Done {
        self.entries.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(tagged(self.variant, Kind::Object(self.entries).into()))
    }
}

macro_rules! collects_fields {
    ($($name:ident)*) => {$(
        impl $name for Entries {
            type Ok = Value;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.entries.push((key.to_owned(), value.serialize(ToValue)?));
                Ok(())
            }

            fn end(self) -> Done {
                Ok(tagged(self.variant, Kind::Object(self.entries).into()))
            }
        }
    )*};
}

collects_fields! { SerializeStruct SerializeStructVariant }
