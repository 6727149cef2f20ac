//! Go's durations: `1h30m`, `1.5s`, `-200ms`.
//!
//! Pure. Reading follows Go's `time.ParseDuration` digit for digit, also in how it cuts fractions,
//! so a text means the same number of nanoseconds on both sides. Spec: api 1.3.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

/// Signed nanoseconds, written as Go writes them.
///
/// ```
/// use koord_api::duration::GoDuration;
/// assert_eq!("90s".parse::<GoDuration>()?.to_string(), "1m30s");
/// # Ok::<(), koord_api::duration::DurationError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub i64);

/// Why a text is no duration. The texts are Go's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("time: invalid duration {}", Quoted(.text))]
    Invalid { text: String },
    #[error("time: missing unit in duration {}", Quoted(.text))]
    MissingUnit { text: String },
    #[error("time: unknown unit {} in duration {}", Quoted(.unit), Quoted(.text))]
    UnknownUnit { unit: String, text: String },
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The magnitude of the smallest duration.
const MAGNITUDE_MAX: u64 = 1 << 63;

impl GoDuration {
    pub const ZERO: GoDuration = GoDuration(0);

    /// Whole seconds, within the limits of the type.
    pub const fn from_seconds(seconds: i64) -> GoDuration {
        GoDuration(seconds.saturating_mul(1_000_000_000))
    }

    /// Whole milliseconds, within the limits of the type.
    pub const fn from_millis(millis: i64) -> GoDuration {
        GoDuration(millis.saturating_mul(1_000_000))
    }

    /// The standard library's duration; none for a negative one.
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

impl TryFrom<Duration> for GoDuration {
    type Error = std::num::TryFromIntError;

    fn try_from(duration: Duration) -> Result<GoDuration, Self::Error> {
        i64::try_from(duration.as_nanos()).map(GoDuration)
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<GoDuration, DurationError> {
        let invalid = || DurationError::Invalid { text: text.to_owned() };
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(GoDuration::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut magnitude = 0_u64;
        while !rest.is_empty() {
            let (part, after) = take_part(rest, text)?;
            magnitude =
                magnitude.checked_add(part).filter(|sum| *sum <= MAGNITUDE_MAX).ok_or_else(invalid)?;
            rest = after;
        }
        if negative {
            return 0_i64.checked_sub_unsigned(magnitude).map(GoDuration).ok_or_else(invalid);
        }
        i64::try_from(magnitude).map(GoDuration).map_err(|_| invalid())
    }
}

/// One number with its unit, in nanoseconds, and what follows it.
fn take_part<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid { text: text.to_owned() };
    let (digits, rest) = take_while(rest, |byte| byte.is_ascii_digit());
    let whole = whole_number(digits).ok_or_else(invalid)?;
    let (decimals, rest) = match rest.strip_prefix('.') {
        Some(rest) => take_while(rest, |byte| byte.is_ascii_digit()),
        None => ("", rest),
    };
    if digits.is_empty() && decimals.is_empty() {
        return Err(invalid());
    }
    let (unit_name, rest) = take_while(rest, |byte| byte != b'.' && !byte.is_ascii_digit());
    let unit = match unit_name {
        "" => return Err(DurationError::MissingUnit { text: text.to_owned() }),
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => {
            return Err(DurationError::UnknownUnit { unit: unit_name.to_owned(), text: text.to_owned() });
        }
    };
    let nanos = whole
        .checked_mul(unit)
        .and_then(|nanos| nanos.checked_add(fraction_of(decimals, unit)))
        .filter(|nanos| *nanos <= MAGNITUDE_MAX)
        .ok_or_else(invalid)?;
    Ok((nanos, rest))
}

fn take_while(text: &str, belongs: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(|byte| belongs(*byte)).count())
}

fn whole_number(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0_u64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')).filter(|sum| *sum <= MAGNITUDE_MAX)
    })
}

/// The part of `unit` that the decimals stand for, cut to whole nanoseconds.
///
/// In floating point, because Go does it so and cuts accordingly: an exact product would differ by
/// a nanosecond now and then.
fn fraction_of(decimals: &str, unit: u64) -> u64 {
    let mut value = 0_u64;
    let mut scale = 1_f64;
    for digit in decimals.bytes() {
        // Digits past 63 bits are too small to count.
        let Some(next) = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(digit - b'0')))
            .filter(|next| value <= (MAGNITUDE_MAX - 1) / 10 && *next <= MAGNITUDE_MAX)
        else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a fraction of a unit is positive and below 2^42 nanoseconds; the cut is wanted"
    )]
    let nanos = (value as f64 * (unit as f64 / scale)) as u64;
    nanos
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let nanos = self.0.unsigned_abs();
        match nanos {
            0 => f.write_str("0s"),
            1..MICROSECOND => write!(f, "{nanos}ns"),
            MICROSECOND..MILLISECOND => write_decimal(f, nanos, 3, "\u{b5}s"),
            MILLISECOND..SECOND => write_decimal(f, nanos, 6, "ms"),
            _ => {
                if nanos >= HOUR {
                    write!(f, "{}h", nanos / HOUR)?;
                }
                if nanos >= MINUTE {
                    write!(f, "{}m", nanos % HOUR / MINUTE)?;
                }
                write_decimal(f, nanos % MINUTE, 9, "s")
            }
        }
    }
}

/// `nanos` with the last `places` digits behind the point, zeros at the end left out.
fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u64, places: u32, unit: &str) -> fmt::Result {
    let step = 10_u64.pow(places);
    let (mut fraction, mut width) = (nanos % step, places as usize);
    write!(f, "{}", nanos / step)?;
    if fraction != 0 {
        while fraction % 10 == 0 {
            fraction /= 10;
            width -= 1;
        }
        write!(f, ".{fraction:0width$}")?;
    }
    f.write_str(unit)
}

/// Text in quotes as Go's time package writes it in errors: other than printable ASCII in hex.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for byte in self.0.bytes() {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                b' '..0x80 => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str("\"")
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    /// Accepts a string only.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration string such as \"5m0s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        text.parse().map_err(E::custom)
    }

    /// Null reads as the empty text, which is no duration.
    fn visit_unit<E: de::Error>(self) -> Result<GoDuration, E> {
        self.visit_str("")
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests;
