//! Points in time as API objects write them: `2023-04-05T06:07:08Z`.
//!
//! Pure: nothing here asks what time it is. Spec: api 1.3.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as WireTime;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

/// An instant, written in UTC with whole seconds.
///
/// The default is Go's zero time, 0001-01-01T00:00:00Z, which JSON writes as null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Timestamp);

/// Why a text is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {text:?}: expected RFC 3339 such as 2023-04-05T06:07:08Z")]
pub struct TimeError {
    text: String,
}

/// Seconds from 0001-01-01T00:00:00Z to 1970-01-01T00:00:00Z.
const GO_ZERO_SECONDS: i64 = -62_135_596_800;

impl Time {
    pub fn is_zero(self) -> bool {
        self == Time::default()
    }
}

impl Default for Time {
    fn default() -> Time {
        Time(Timestamp::constant(GO_ZERO_SECONDS, 0))
    }
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Time, TimeError> {
        read(text.as_bytes()).map(Time).ok_or_else(|| TimeError { text: text.to_owned() })
    }
}

/// Reads what Go's `time.Parse` accepts for RFC 3339: that, and an hour of one digit, a comma
/// before the fraction, offsets up to 24:60.
fn read(text: &[u8]) -> Option<Timestamp> {
    let mut text = text;
    let year = i16::try_from(number(&mut text, 4)?).ok()?;
    expect(&mut text, b'-')?;
    let month = i8::try_from(number(&mut text, 2)?).ok()?;
    expect(&mut text, b'-')?;
    let day = i8::try_from(number(&mut text, 2)?).ok()?;
    expect(&mut text, b'T')?;
    let one_digit = text.get(1) == Some(&b':');
    let hour = i8::try_from(number(&mut text, if one_digit { 1 } else { 2 })?).ok()?;
    expect(&mut text, b':')?;
    let minute = i8::try_from(number(&mut text, 2)?).ok()?;
    expect(&mut text, b':')?;
    let second = i8::try_from(number(&mut text, 2)?).ok()?;
    let nanosecond = fraction(&mut text)?;
    let offset = offset(text)?;
    let civil = DateTime::new(year, month, day, hour, minute, second, nanosecond).ok()?;
    // Timestamps end a day before the year 9999 does; "for ever" may well be written so.
    let instant = offset.to_timestamp(civil).unwrap_or(Timestamp::MAX);
    // Four digits hold no year before 0.
    (Offset::UTC.to_datetime(instant).year() >= 0).then_some(instant)
}

/// A number of exactly `digits` digits.
fn number(text: &mut &[u8], digits: usize) -> Option<u32> {
    let (head, rest) = text.split_at_checked(digits)?;
    *text = rest;
    head.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
}

fn expect(text: &mut &[u8], wanted: u8) -> Option<()> {
    let (first, rest) = text.split_first()?;
    *text = rest;
    (*first == wanted).then_some(())
}

/// Nanoseconds of an optional fraction; digits past the ninth are cut.
fn fraction(text: &mut &[u8]) -> Option<i32> {
    let [b'.' | b',', rest @ ..] = *text else { return Some(0) };
    let (digits, rest) = rest.split_at(rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
    if digits.is_empty() {
        return None;
    }
    *text = rest;
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    Some(padded.fold(0, |sum, byte| sum * 10 + i32::from(byte - b'0')))
}

/// How far east of UTC.
fn offset(text: &[u8]) -> Option<Offset> {
    let (sign, mut rest) = match text {
        b"Z" => return Some(Offset::UTC),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let hours = number(&mut rest, 2)?;
    expect(&mut rest, b':')?;
    let minutes = number(&mut rest, 2)?;
    let is_in_range = hours <= 24 && minutes <= 60 && rest.is_empty();
    let seconds = i32::try_from(hours * 3600 + minutes * 60).ok().filter(|_| is_in_range)?;
    Offset::from_seconds(sign * seconds).ok()
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = Offset::UTC.to_datetime(self.0);
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second()
        )
    }
}

impl From<WireTime> for Time {
    fn from(wire: WireTime) -> Time {
        Time(wire.0)
    }
}

impl From<Time> for WireTime {
    fn from(time: Time) -> WireTime {
        WireTime(time.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_zero() { serializer.serialize_unit() } else { serializer.collect_str(self) }
    }
}

impl<'de> Deserialize<'de> for Time {
    /// Accepts a string, or null for the zero time.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an RFC 3339 time string such as \"2023-04-05T06:07:08Z\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Time, E> {
        Ok(Time::default())
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests;
