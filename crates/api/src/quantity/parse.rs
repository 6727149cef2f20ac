//! Reading a quantity: exact, without allocation, fast for the texts that clusters hold.

use std::str::FromStr;

use super::{Family, NANO, NANO_MAX, Quantity, QuantityError};

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        let parts = split(text.as_bytes())?;
        let (scale, mut family) = interpret(parts.suffix)?;
        let nano = match scale {
            Scale::Ten(exponent) => decimal(parts.whole, parts.fraction, exponent),
            Scale::Two(bits) => binary(parts.whole, parts.fraction, bits),
        };
        if family == Family::BinarySi && 0 < nano && nano < NANO {
            family = Family::DecimalSi;
        }
        Ok(Quantity { nano: if parts.negative { -nano } else { nano }, family })
    }
}

struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    suffix: &'a [u8],
}

/// What the suffix multiplies by: a power of ten, or of two.
enum Scale {
    Ten(i64),
    Two(u32),
}

/// Cuts sign, digits and suffix apart. Digits may be missing altogether: `+` and `.` read as 0.
fn split(text: &[u8]) -> Result<Parts<'_>, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (whole, rest) = take_digits(rest);
    let (fraction, suffix) = match rest {
        [b'.', rest @ ..] => take_digits(rest),
        _ => (&[][..], rest),
    };
    if has_suffix_shape(suffix) {
        Ok(Parts { negative, whole, fraction, suffix })
    } else {
        Err(QuantityError::Format)
    }
}

fn take_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// Letters, a sign, digits: each may be missing.
fn has_suffix_shape(suffix: &[u8]) -> bool {
    let letters = suffix.iter().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let rest = match &suffix[letters..] {
        [b'+' | b'-', rest @ ..] => rest,
        rest => rest,
    };
    rest.iter().all(u8::is_ascii_digit)
}

fn interpret(suffix: &[u8]) -> Result<(Scale, Family), QuantityError> {
    let decimal = |exponent| Ok((Scale::Ten(exponent), Family::DecimalSi));
    let binary = |bits| Ok((Scale::Two(bits), Family::BinarySi));
    match suffix {
        b"" => decimal(0),
        b"n" => decimal(-9),
        b"u" => decimal(-6),
        b"m" => decimal(-3),
        b"k" => decimal(3),
        b"M" => decimal(6),
        b"G" => decimal(9),
        b"T" => decimal(12),
        b"P" => decimal(15),
        b"E" => decimal(18),
        b"Ki" => binary(10),
        b"Mi" => binary(20),
        b"Gi" => binary(30),
        b"Ti" => binary(40),
        b"Pi" => binary(50),
        b"Ei" => binary(60),
        [b'e' | b'E', exponent @ ..] => std::str::from_utf8(exponent)
            .ok()
            .and_then(|text| text.parse().ok())
            .map(|exponent| (Scale::Ten(exponent), Family::DecimalExponent))
            .ok_or(QuantityError::Suffix),
        _ => Err(QuantityError::Suffix),
    }
}

/// Powers of ten that fit beside the 18 digits of the fast path.
const POWERS: [i128; 39] = {
    let mut powers = [1_i128; 39];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// Digits that always fit in 63 bits.
const DIGITS_FAST: usize = 18;

pub(super) fn decimal(whole: &[u8], fraction: &[u8], exponent: i64) -> i128 {
    let count = whole.len() + fraction.len();
    let zeros = exponent.saturating_add(9).saturating_sub(length(fraction));
    if count <= DIGITS_FAST
        && let Ok(zeros) = usize::try_from(zeros)
        && let Some(power) = POWERS.get(zeros)
    {
        let mantissa = digits(whole).chain(digits(fraction)).fold(0_i64, |sum, digit| sum * 10 + digit);
        return i128::from(mantissa).saturating_mul(*power).min(NANO_MAX);
    }
    decimal_slow(whole, fraction, zeros)
}

/// Any number of digits, followed by `zeros` zeros or with as many digits cut off, rounded up.
pub(super) fn decimal_slow(whole: &[u8], fraction: &[u8], zeros: i64) -> i128 {
    let point = length(whole).saturating_add(length(fraction)).saturating_add(zeros);
    let mut sum = 0_i128;
    let mut place = 0_i64;
    let mut cut = false;
    for digit in digits(whole).chain(digits(fraction)) {
        if place < point {
            sum = sum.saturating_mul(10).saturating_add(i128::from(digit));
        } else {
            cut |= digit != 0;
        }
        place += 1;
    }
    // At most 38 rounds, for a sum that is not zero grows tenfold in each.
    while place < point && sum != 0 && sum < NANO_MAX {
        sum = sum.saturating_mul(10);
        place += 1;
    }
    sum.saturating_add(i128::from(cut)).min(NANO_MAX)
}

fn binary(whole: &[u8], fraction: &[u8], bits: u32) -> i128 {
    let unit = NANO << bits;
    let whole = digits(whole).fold(0_i128, |sum, digit| sum.saturating_mul(10).saturating_add(digit.into()));
    // The fraction times the unit, as in long multiplication, from the last digit on.
    let mut carry = 0_i128;
    let mut cut = false;
    for digit in digits(fraction).rev() {
        let product = i128::from(digit) * unit + carry;
        carry = product / 10;
        cut |= product % 10 != 0;
    }
    let nano = whole.saturating_mul(unit).saturating_add(carry + i128::from(cut));
    nano.min(i128::from(i64::MAX) * NANO)
}

fn digits(text: &[u8]) -> impl DoubleEndedIterator<Item = i64> {
    text.iter().map(|byte| i64::from(byte - b'0'))
}

fn length(text: &[u8]) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}
