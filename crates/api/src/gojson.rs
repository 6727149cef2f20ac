//! JSON as Go's decoder reads it and Go's encoder writes it. Spec: api 1.2.
//!
//! Annotation values and ConfigMap data were written for Go programs, and people rely on what
//! those accept: field names in any case, repeated keys, `null` almost anywhere. Pure: text in,
//! values out. The grammar is in `parse`, Go's struct rules in `decode`, Go's text in `encode`.
//!
//! Give every plain struct that is decoded here `#[serde(default)]`: Go never misses a field. Do
//! not use `#[serde(flatten)]`, which hides the field names from the decoder; decode one [`Value`]
//! into both structs instead.

mod decode;
mod encode;
mod error;
mod parse;
mod value;

pub use error::Error;
pub(crate) use error::Segment;
pub use value::{Kind, Value};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Decodes a document with Go's rules.
///
/// ```
/// #[derive(serde::Deserialize, Default, PartialEq, Debug)]
/// #[serde(default, rename_all = "camelCase")]
/// struct Resctrl { mba_percent: Option<i64> }
///
/// let read: Resctrl = koord_api::gojson::from_str(r#"{"MBAPercent": 20}"#)?;
/// assert_eq!(read.mba_percent, Some(20));
/// # Ok::<(), koord_api::gojson::Error>(())
/// ```
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    parse(text)?.decode()
}

/// Reads a document into a tree: strict syntax, keys in document order, duplicates kept.
pub fn parse(text: &str) -> Result<Value, Error> {
    parse::Parser::new(text).document()
}

/// Decodes the first layer, then each further one over the result, as Go's decoder would.
///
/// Objects merge field by field, maps are unioned with the later value whole, a later scalar or
/// array replaces the earlier one. The order of keys inside a layer does not matter.
pub fn decode_layers<T: DeserializeOwned>(layers: &[&Value]) -> Result<T, Error> {
    decode::layers(layers)
}

/// Encodes as Go does: no spaces, struct fields in declaration order, map keys sorted as text,
/// `<`, `>`, `&`, U+2028 and U+2029 escaped.
pub fn to_string(value: &(impl Serialize + ?Sized)) -> Result<String, Error> {
    Ok(to_value(value)?.to_string())
}

/// Encodes into a tree, see [`to_string`].
pub fn to_value(value: &(impl Serialize + ?Sized)) -> Result<Value, Error> {
    value.serialize(encode::ToValue)
}

/// Go's words for a text that is not JSON.
pub fn syntax_error(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    match parse(&text) {
        Ok(_) => "invalid UTF-8 in string literal".to_owned(),
        Err(error) => {
            // The place stands behind Go's own text.
            let text = error.to_string();
            text.split(" (at byte ").next().unwrap_or_default().to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
