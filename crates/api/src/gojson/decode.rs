//! Go's struct rules as a serde deserializer.
//!
//! Go decodes each member of an object over what the field already holds. Serde decodes a field
//! once, so a [`Source`] carries all the values that meet in one place, oldest first, and each
//! type takes from them what Go would have ended up with.

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

use super::error::{Error, Segment};
use super::value::{Kind, Number, VALUE_TOKEN, Value, number};

pub(super) fn layers<T: DeserializeOwned>(layers: &[&Value]) -> Result<T, Error> {
    match layers {
        [] => T::deserialize(Source::from(&Value::default())),
        [first, later @ ..] => {
            let mut source = Source::from(*first);
            later.iter().for_each(|value| source.push(value));
            T::deserialize(source)
        }
    }
}

/// The values that are decoded, one over the other, into one place.
struct Source<'a> {
    earlier: Vec<&'a Value>,
    last: &'a Value,
}

impl<'a> From<&'a Value> for Source<'a> {
    fn from(value: &'a Value) -> Source<'a> {
        Source { earlier: Vec::new(), last: value }
    }
}

impl<'a> Source<'a> {
    fn push(&mut self, value: &'a Value) {
        self.earlier.push(std::mem::replace(&mut self.last, value));
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = &'a Value> + '_ {
        self.earlier.iter().copied().chain([self.last])
    }

    fn is_null(&self) -> bool {
        self.all().all(Value::is_null)
    }

    /// What remains after the last `null`, for types that a `null` clears.
    fn since_null(self) -> Option<Source<'a>> {
        if self.last.is_null() {
            return None;
        }
        let cut = self.earlier.iter().rposition(|value| value.is_null());
        let earlier = cut.map_or(self.earlier.clone(), |cut| self.earlier[cut + 1..].to_vec());
        Some(Source { earlier, last: self.last })
    }

    /// The last value that is not `null`, after reading every one of them: a wrong type is an
    /// error even where a later value would have won.
    fn scalar<T>(&self, wanted: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, Error> {
        let mut result = None;
        for value in self.all().filter(|value| !value.is_null()) {
            match read(value) {
                Some(read) => result = Some(read),
                None => return Err(Error::wrong_type(value.describe(), wanted, value.at)),
            }
        }
        Ok(result)
    }

    fn objects(&self, wanted: &str) -> Result<Vec<&'a [(String, Value)]>, Error> {
        let mut objects = Vec::with_capacity(self.earlier.len() + 1);
        for value in self.all().filter(|value| !value.is_null()) {
            match value.as_object() {
                Some(entries) => objects.push(entries),
                None => return Err(Error::wrong_type(value.describe(), wanted, value.at)),
            }
        }
        Ok(objects)
    }
}

fn digits(value: &Value) -> Option<&str> {
    match &value.kind {
        Kind::Number(digits) => Some(digits),
        _ => None,
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty, $go:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let read = self.scalar($go, |value| digits(value)?.parse::<$type>().ok())?;
            visitor.$visit(read.unwrap_or_default())
        }
    )*};
}

macro_rules! floats {
    ($($method:ident $visit:ident $type:ty, $go:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let finite = |value| digits(value)?.parse::<$type>().ok().filter(|read| read.is_finite());
            visitor.$visit(self.scalar($go, finite)?.unwrap_or_default())
        }
    )*};
}

impl<'de> Deserializer<'de> for Source<'_> {
    type Error = Error;

    integers! {
        deserialize_i8 visit_i8 i8, "int8";
        deserialize_i16 visit_i16 i16, "int16";
        deserialize_i32 visit_i32 i32, "int32";
        deserialize_i64 visit_i64 i64, "int64";
        deserialize_u8 visit_u8 u8, "uint8";
        deserialize_u16 visit_u16 u16, "uint16";
        deserialize_u32 visit_u32 u32, "uint32";
        deserialize_u64 visit_u64 u64, "uint64";
    }

    floats! {
        deserialize_f32 visit_f32 f32, "float32";
        deserialize_f64 visit_f64 f64, "float64";
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let read = self.scalar("bool", |value| match value.kind {
            Kind::Bool(value) => Some(value),
            _ => None,
        })?;
        visitor.visit_bool(read.unwrap_or_default())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.scalar("string", Value::as_str)?.unwrap_or_default())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    /// Types that read any JSON replace what was there, and see `null` as unit.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.last.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Number(digits) => match number(digits) {
                Number::Signed(value) => visitor.visit_i64(value),
                Number::Unsigned(value) => visitor.visit_u64(value),
                Number::Float(value) if value.is_finite() => visitor.visit_f64(value),
                Number::Float(_) => Err(Error::wrong_type(self.last.describe(), "float64", self.last.at)),
            },
            Kind::String(text) => visitor.visit_str(text),
            Kind::Array(items) => visitor.visit_seq(Items::new(items)),
            Kind::Object(entries) => visitor.visit_map(Entries::in_order(entries)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match digits(self.last) {
            // A quantity is read from the digits as written: `1e3` is not `1000`.
            Some(text) if name == "Quantity" => visitor.visit_newtype_struct(Bare { text, at: self.last.at }),
            _ if name == VALUE_TOKEN => visitor.visit_seq(Placed { value: self.last, next: 0 }),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.since_null() {
            Some(source) => visitor.visit_some(source),
            None => visitor.visit_none(),
        }
    }

    /// Differs: a repeated array replaces the earlier one whole, where Go overlays the elements
    /// by index and leaves a mixture of the two (api 11, item 5).
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.scalar("[]", Value::as_array)?;
        visitor.visit_seq(Items::new(self.last.as_array().unwrap_or_default()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    /// Keys are taken as they are; a key that comes again replaces its value.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Some(source) = self.since_null() else {
            return visitor.visit_map(Entries::in_order(&[]));
        };
        // Every entry is decoded, and the reader keeps the last of each key: a wrong type is an
        // error even where a later value replaces it.
        let entries = source.objects("map")?.into_iter().flatten();
        visitor.visit_map(Entries::new(entries.map(|(key, value)| (key.as_str(), value.into()))))
    }

    /// Keys match field names ignoring ASCII case; unknown ones are skipped. A field that only
    /// ever saw `null` counts as missing, so that it keeps its default.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut slots: Vec<Option<Source<'_>>> = fields.iter().map(|_| None).collect();
        for (key, value) in self.objects("object")?.into_iter().flatten() {
            let exact = fields.iter().position(|field| field == key);
            let folded = || fields.iter().position(|field| field.eq_ignore_ascii_case(key));
            match exact.or_else(folded).map(|index| &mut slots[index]) {
                Some(Some(source)) => source.push(value),
                Some(slot) => *slot = Some(value.into()),
                None => {}
            }
        }
        let present = fields.iter().zip(slots).filter_map(|(field, slot)| Some((*field, slot?)));
        visitor.visit_map(Entries::new(present.filter(|(_, source)| !source.is_null())))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.last.as_object().is_some() {
            let entries = Entries::in_order(self.last.as_object().unwrap_or_default());
            return MapAccessDeserializer::new(entries).deserialize_enum(name, variants, visitor);
        }
        let text = self.scalar("string", Value::as_str)?.unwrap_or_default();
        let text: StrDeserializer<'_, Error> = text.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }
}

/// A value for [`Value`]'s own reader: place, digits of a number, content.
struct Placed<'a> {
    value: &'a Value,
    next: u8,
}

impl<'de> SeqAccess<'de> for Placed<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.next += 1;
        match self.next {
            1 => seed.deserialize(self.value.at.into_deserializer()).map(Some),
            2 => match digits(self.value) {
                Some(text) => seed.deserialize(Bare { text, at: self.value.at }).map(Some),
                None => seed.deserialize(Source::from(&Value::default())).map(Some),
            },
            3 => seed.deserialize(Source::from(self.value)).map(Some),
            _ => Ok(None),
        }
    }
}

/// The elements of an array.
struct Items<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Value>>,
}

impl<'a> Items<'a> {
    fn new(items: &'a [Value]) -> Items<'a> {
        Items { items: items.iter().enumerate() }
    }
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        let read = seed.deserialize(Source::from(value));
        read.map(Some).map_err(|error| error.inside(Segment::Index(index), value.at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The members of an object.
struct Entries<'a, I: Iterator<Item = (&'a str, Source<'a>)>> {
    entries: I,
    held: Option<(&'a str, Source<'a>)>,
}

impl<'a, I: Iterator<Item = (&'a str, Source<'a>)>> Entries<'a, I> {
    fn new(entries: I) -> Entries<'a, I> {
        Entries { entries, held: None }
    }
}

impl<'a> Entries<'a, Box<dyn Iterator<Item = (&'a str, Source<'a>)> + 'a>> {
    /// All members as they stand, duplicates included.
    fn in_order(entries: &'a [(String, Value)]) -> Self {
        Entries::new(Box::new(entries.iter().map(|(key, value)| (key.as_str(), value.into()))))
    }
}

impl<'a, 'de, I: Iterator<Item = (&'a str, Source<'a>)>> MapAccess<'de> for Entries<'a, I> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.held = self.entries.next();
        let Some((key, source)) = &self.held else { return Ok(None) };
        let read = seed.deserialize(Bare { text: key, at: source.last.at });
        read.map(Some).map_err(|error| error.inside(Segment::Field((*key).to_owned()), source.last.at))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some((key, source)) = self.held.take() else {
            return Err(Error::custom("value asked for before its key"));
        };
        let at = source.last.at;
        seed.deserialize(source).map_err(|error| error.inside(Segment::Field(key.to_owned()), at))
    }
}

/// Text outside of a string: a map key, an integer as a map key, the digits of a quantity.
struct Bare<'a> {
    text: &'a str,
    at: usize,
}

macro_rules! integer_keys {
    ($($method:ident $visit:ident $type:ty, $go:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.text.parse::<$type>() {
                Ok(key) => visitor.$visit(key),
                Err(_) => Err(Error::wrong_type(format!("number {}", self.text), $go, self.at)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Bare<'_> {
    type Error = Error;

    integer_keys! {
        deserialize_i8 visit_i8 i8, "int8";
        deserialize_i16 visit_i16 i16, "int16";
        deserialize_i32 visit_i32 i32, "int32";
        deserialize_i64 visit_i64 i64, "int64";
        deserialize_u8 visit_u8 u8, "uint8";
        deserialize_u16 visit_u16 u16, "uint16";
        deserialize_u32 visit_u32 u32, "uint32";
        deserialize_u64 visit_u64 u64, "uint64";
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.text)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let text: StrDeserializer<'_, Error> = self.text.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    serde::forward_to_deserialize_any! {
        bool f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct
        map struct identifier ignored_any
    }
}
