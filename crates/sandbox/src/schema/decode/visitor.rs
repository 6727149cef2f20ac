//! One pass over a document with the schema at hand.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use koord_api::quantity::Quantity;
use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::super::fault::quote;
use super::super::{Kind, Schema, builtin};
use super::{DecodeError, Decoded};

/// Digits of a fraction of a second where time is counted in microseconds.
const MICRO_DIGITS: usize = 6;

/// Faults listed at most; the API server stops there too.
const STRICT_MAX: usize = 100;

/// Reads one document. The outer error is of the syntax, the inner one of the shape.
pub(super) fn run<'de, D: Deserializer<'de>>(
    deserializer: D,
    schema: Option<&Schema>,
    go_name: &str,
) -> Result<Result<Decoded, DecodeError>, D::Error> {
    let mut state = State { struct_name: go_name.to_owned(), ..State::default() };
    let node = Node { state: &mut state, schema, go_type: Cow::Owned(format!("v1.{go_name}")) };
    let value = node.deserialize(deserializer)?;
    // A reader of its own that fails ends the decoding; a plain type error lets it go on.
    Ok(match state.fatal.or(state.saved) {
        Some(text) => Err(DecodeError::Type(text)),
        None => Ok(Decoded { value, strict: state.strict }),
    })
}

#[derive(Default)]
struct State {
    /// Where we are, as `spec.containers[0].name`.
    path: String,
    /// The same as Go names it: without places in lists and keys of maps, with embedded structs.
    go_path: String,
    /// The innermost struct.
    struct_name: String,
    strict: Vec<String>,
    saved: Option<String>,
    fatal: Option<String>,
}

impl State {
    fn strict(&mut self, what: &str) {
        if self.strict.len() < STRICT_MAX {
            self.strict.push(format!("{what} field {}", quote(&self.path)));
        }
    }

    fn wrong_type(&self, found: &str, wanted: &str) -> String {
        match self.go_path.is_empty() {
            true => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
            false => format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {wanted}",
                self.struct_name, self.go_path
            ),
        }
    }
}

/// One value to be read.
struct Node<'s, 'a> {
    state: &'s mut State,
    /// `None` reads anything.
    schema: Option<&'a Schema>,
    /// The Go type where the schema does not tell it; empty otherwise.
    go_type: Cow<'a, str>,
}

/// Null where Go would leave the field alone; told apart from a null that is kept.
const NOTHING: Value = Value::Null;

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Node<'_, '_> {
    fn kind(&self) -> Kind {
        self.schema.map_or(Kind::Any, |schema| schema.resolve().kind)
    }

    fn refuse(self, found: &str) -> Value {
        let wanted = match self.kind() {
            Kind::IntOrString => "int32".to_owned(),
            Kind::Time | Kind::MicroTime => "string".to_owned(),
            Kind::Quantity => {
                let text = koord_api::quantity::QuantityError::Format.to_string();
                self.state.fatal.get_or_insert(text);
                return NOTHING;
            }
            _ if !self.go_type.is_empty() => self.go_type.clone().into_owned(),
            _ => self.schema.map(go_type).unwrap_or_default(),
        };
        let text = self.state.wrong_type(found, &wanted);
        // Types with a reader of their own stop the decoding.
        match self.kind() {
            Kind::IntOrString | Kind::Time | Kind::MicroTime => self.state.fatal.get_or_insert(text),
            _ => self.state.saved.get_or_insert(text),
        };
        NOTHING
    }

    fn number(self, number: Number) -> Value {
        match self.kind() {
            Kind::Any | Kind::Number => Value::Number(number),
            Kind::Integer => {
                let format = self.schema.and_then(|schema| schema.resolve().checks.as_deref());
                let narrow = format.is_some_and(|checks| checks.format == "int32");
                let fits = number.as_i64().is_some_and(|value| !narrow || i32::try_from(value).is_ok());
                match fits {
                    true => Value::Number(number),
                    false => self.refuse(&format!("number {}", written(&number))),
                }
            }
            Kind::IntOrString => match number.as_i64().is_some_and(|value| i32::try_from(value).is_ok()) {
                true => Value::Number(number),
                false => self.refuse(&format!("number {}", written(&number))),
            },
            Kind::Quantity => self.quantity(&number.to_string()),
            _ => self.refuse("number"),
        }
    }

    fn quantity(self, text: &str) -> Value {
        match text.trim().parse::<Quantity>() {
            Ok(quantity) => quantity.to_string().into(),
            Err(error) => {
                self.state.fatal.get_or_insert(error.to_string());
                NOTHING
            }
        }
    }

    fn time(self, text: &str, micro: bool) -> Value {
        let is_short = micro && fraction(text).is_none_or(|digits| digits.len() != MICRO_DIGITS);
        match text.parse::<Timestamp>() {
            Ok(_) if is_short => {
                let rest = text.find(['.', 'Z', '+']).map_or("", |at| &text[at..]);
                let text = format!(
                    "parsing time {} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {} as \".000000\"",
                    quote(text),
                    quote(rest)
                );
                self.state.fatal.get_or_insert(text);
                NOTHING
            }
            Ok(time) if micro => time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into(),
            Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
            Err(_) => {
                let layout =
                    if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
                let (rest, part) = first_unparsed(text);
                let text = format!(
                    "parsing time {} as {}: cannot parse {} as {}",
                    quote(text),
                    quote(layout),
                    quote(rest),
                    quote(part)
                );
                self.state.fatal.get_or_insert(text);
                NOTHING
            }
        }
    }

    fn bytes(self, text: &str) -> Value {
        match illegal_base64(text) {
            None => text.into(),
            Some(place) => {
                self.state.saved.get_or_insert(format!("illegal base64 data at input byte {place}"));
                NOTHING
            }
        }
    }
}

/// The digits behind the seconds of a time.
fn fraction(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('.')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// A number as it was most likely written.
fn written(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.1}"),
        _ => number.to_string(),
    }
}

/// The part of a time that does not fit its layout, as Go reports it.
fn first_unparsed(text: &str) -> (&str, &'static str) {
    const LAYOUT: [(usize, &str); 12] = [
        (4, "2006"),
        (1, "-"),
        (2, "01"),
        (1, "-"),
        (2, "02"),
        (1, "T"),
        (2, "15"),
        (1, ":"),
        (2, "04"),
        (1, ":"),
        (2, "05"),
        (0, "Z07:00"),
    ];
    let mut rest = text;
    for (width, part) in LAYOUT {
        let fits = match (width, rest.get(..width)) {
            (0, _) => false,
            (1, Some(found)) => found == part,
            (_, Some(found)) => found.bytes().all(|byte| byte.is_ascii_digit()),
            (_, None) => false,
        };
        if !fits {
            return (rest, part);
        }
        rest = &rest[width..];
    }
    (rest, "Z07:00")
}

/// The place of the first byte that is no base64, as Go counts.
fn illegal_base64(text: &str) -> Option<usize> {
    let clean: Vec<(usize, u8)> =
        text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\n' | b'\r')).collect();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let digits = clean.iter().take_while(|(_, byte)| is_digit(*byte)).count();
    let padding = clean[digits..].iter().take_while(|(_, byte)| *byte == b'=').count();
    let rest = clean.get(digits + padding);
    match (digits % 4, padding) {
        (0, 0) | (2, 2) | (3, 1) => rest.map(|(place, _)| *place),
        (2, 1) | (0 | 1, 1..) | (2 | 3, _) if padding > 0 => clean.get(digits).map(|(place, _)| *place),
        _ => Some(rest.map_or(text.len(), |(place, _)| *place)),
    }
}

/// The Go type of a value, as far as the schema tells.
fn go_type(schema: &Schema) -> String {
    match schema.kind {
        Kind::Type(id) => {
            let name = builtin::name_of(id);
            let mut parts = name.rsplitn(3, '.');
            let last = parts.next().unwrap_or_default();
            let package = parts.next().unwrap_or_default();
            format!("{package}.{last}")
        }
        Kind::Object => match &schema.additional {
            Some(below) => format!("map[string]{}", go_type(below)),
            None => "map[string]interface {}".to_owned(),
        },
        Kind::List => format!("[]{}", schema.items.as_deref().map(go_type).unwrap_or_default()),
        Kind::Bytes => "[]uint8".to_owned(),
        Kind::Integer => {
            let format = schema.checks.as_ref().map(|checks| checks.format.clone()).unwrap_or_default();
            if format == "int32" { format } else { "int64".to_owned() }
        }
        Kind::Number => "float64".to_owned(),
        Kind::Boolean => "bool".to_owned(),
        _ => "string".to_owned(),
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(NOTHING)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(match self.kind() {
            Kind::Any | Kind::Boolean => value.into(),
            _ => self.refuse("bool"),
        })
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // JSON has no infinities, so this cannot fail.
        Ok(Number::from_f64(value).map_or(NOTHING, |number| self.number(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(match self.kind() {
            Kind::Any | Kind::String | Kind::IntOrString => text.into(),
            Kind::Quantity => self.quantity(text),
            Kind::Time => self.time(text, false),
            Kind::MicroTime => self.time(text, true),
            Kind::Bytes => self.bytes(text),
            _ => self.refuse("string"),
        })
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        match self.kind() {
            Kind::Any | Kind::String | Kind::IntOrString => Ok(text.into()),
            _ => self.visit_str(&text),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let kind = self.kind();
        if kind != Kind::Any && kind != Kind::List {
            while access.next_element::<serde::de::IgnoredAny>()?.is_some() {}
            return Ok(self.refuse("array"));
        }
        let below = self.schema.and_then(|schema| schema.resolve().items.as_deref());
        let element = self.go_type.strip_prefix("[]").unwrap_or_default();
        let mut items = Vec::new();
        let length = self.state.path.len();
        loop {
            self.state.path.push_str(&format!("[{}]", items.len()));
            let node = Node { state: &mut *self.state, schema: below, go_type: Cow::Borrowed(element) };
            let item = access.next_element_seed(node)?;
            self.state.path.truncate(length);
            match item {
                Some(item) => items.push(empty_element(item, below)),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        let kind = self.kind();
        let Some(schema) = self.schema.map(Schema::resolve) else { return self.free_map(access, None) };
        match kind {
            Kind::Any => self.free_map(access, None),
            Kind::Object if schema.properties.is_empty() => {
                self.free_map(access, schema.additional.as_deref())
            }
            Kind::Object => self.fields(access, schema),
            _ => {
                let mut access = access;
                while access.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
                Ok(self.refuse("object"))
            }
        }
    }
}

/// A null in a list is the zero value of its type to Go; in a list of anything it stays.
fn empty_element(item: Value, schema: Option<&Schema>) -> Value {
    match (item, schema.map(|schema| schema.resolve().kind)) {
        (Value::Null, Some(Kind::Object)) => Value::Object(Map::new()),
        (Value::Null, Some(Kind::String)) => "".into(),
        (Value::Null, Some(Kind::Integer)) => 0.into(),
        (item, _) => item,
    }
}

impl Node<'_, '_> {
    /// A map whose keys are free.
    fn free_map<'de, A: MapAccess<'de>>(
        self,
        mut access: A,
        below: Option<&Schema>,
    ) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let length = self.state.path.len();
        let typed = self.schema.is_some() && below.is_some();
        while let Some(key) = access.next_key::<String>()? {
            if length > 0 {
                self.state.path.push('.');
            }
            self.state.path.push_str(&key);
            if map.contains_key(&key) {
                self.state.strict("duplicate");
            }
            let node = Node { state: &mut *self.state, schema: below, go_type: Cow::Borrowed("") };
            let value = access.next_value_seed(node)?;
            self.state.path.truncate(length);
            let value = if typed { empty_element(value, below) } else { value };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    /// A struct: known fields only.
    fn fields<'de, A: MapAccess<'de>>(self, mut access: A, schema: &Schema) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut seen: Vec<&str> = Vec::new();
        let state = self.state;
        let (length, go_length) = (state.path.len(), state.go_path.len());
        let outer =
            self.schema.and_then(struct_name).map(|name| std::mem::replace(&mut state.struct_name, name));
        while let Some(key) = access.next_key::<Cow<'de, str>>()? {
            if length > 0 {
                state.path.push('.');
            }
            state.path.push_str(&key);
            match schema.properties.get_key_value(key.as_ref()) {
                None => {
                    if !seen.contains(&key.as_ref()) {
                        state.strict("unknown");
                    }
                    access.next_value::<serde::de::IgnoredAny>()?;
                }
                Some((name, below)) => {
                    if seen.contains(&name.as_str()) {
                        state.strict("duplicate");
                    }
                    seen.push(name);
                    push_go_path(&mut state.go_path, name, below);
                    let go_type =
                        below.go.as_ref().and_then(|go| go.type_name.as_deref()).unwrap_or_default();
                    let node =
                        Node { state: &mut *state, schema: Some(below), go_type: Cow::Borrowed(go_type) };
                    let value = access.next_value_seed(node)?;
                    state.go_path.truncate(go_length);
                    match is_dropped(&value, below) {
                        true => drop(map.remove(name)),
                        false => drop(map.insert(name.clone(), value)),
                    }
                }
            }
            state.path.truncate(length);
        }
        if let Some(outer) = outer {
            state.struct_name = outer;
        }
        Ok(Value::Object(map))
    }
}

/// The struct a schema stands for, as texts name it.
fn struct_name(schema: &Schema) -> Option<String> {
    match schema.kind {
        Kind::Type(id) => builtin::name_of(id).rsplit('.').next().map(str::to_owned),
        _ => None,
    }
}

fn push_go_path(path: &mut String, name: &str, schema: &Schema) {
    let via = schema.go.as_ref().and_then(|go| go.via.as_deref());
    for part in via.into_iter().chain([name]) {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(part);
    }
}

/// Whether Go holds nothing for this value: null always, an empty value unless it is held by
/// pointer or written anyway.
fn is_dropped(value: &Value, schema: &Schema) -> bool {
    let Some(go) = schema.go.as_deref() else { return value.is_null() };
    if value.is_null() {
        return true;
    }
    if go.pointer || go.always {
        return false;
    }
    match value {
        Value::String(text) => text.is_empty() && schema.resolve().kind != Kind::IntOrString,
        Value::Number(number) => number.as_f64() == Some(0.0) && schema.resolve().kind != Kind::IntOrString,
        Value::Bool(flag) => !flag,
        Value::Array(items) => items.is_empty(),
        // A struct is written even when empty; a map is not.
        Value::Object(fields) => fields.is_empty() && schema.resolve().properties.is_empty(),
        Value::Null => true,
    }
}
