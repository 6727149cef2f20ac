//! The canonical text: no fraction, the largest suffix that leaves a whole number.

use std::fmt;

use super::{Family, NANO, Quantity};

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        if self.nano < 0 {
            f.write_str("-")?;
        }
        let nano = self.nano.unsigned_abs();
        match self.family {
            Family::BinarySi if nano >= 1024 * UNIT && nano.is_multiple_of(UNIT) => binary(f, nano / UNIT),
            Family::BinarySi | Family::DecimalSi => {
                let (mantissa, thousands) = shorten(nano, SUFFIX_LAST);
                let suffix = usize::try_from(thousands - THOUSANDS_FIRST).ok().and_then(|i| SUFFIXES.get(i));
                write!(f, "{mantissa}{}", suffix.copied().unwrap_or_default())
            }
            Family::DecimalExponent => match shorten(nano, i32::MAX) {
                (mantissa, 0) => write!(f, "{mantissa}"),
                (mantissa, thousands) => write!(f, "{mantissa}e{}", 3 * thousands),
            },
        }
    }
}

const UNIT: u128 = NANO.unsigned_abs();
/// Billionths are three steps of a thousand below the unit.
const THOUSANDS_FIRST: i32 = -3;
const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const SUFFIX_LAST: i32 = 6;
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn binary(f: &mut fmt::Formatter<'_>, units: u128) -> fmt::Result {
    let mut step = 0;
    let mut mantissa = units;
    while step + 1 < BINARY_SUFFIXES.len() && mantissa.trailing_zeros() >= 10 {
        mantissa >>= 10;
        step += 1;
    }
    write!(f, "{mantissa}{}", BINARY_SUFFIXES[step])
}

/// Moves factors of a thousand out of the mantissa, at most up to 1000^`last`.
fn shorten(nano: u128, last: i32) -> (u128, i32) {
    let (mut mantissa, mut thousands) =
        if nano.is_multiple_of(UNIT) { (nano / UNIT, 0) } else { (nano, THOUSANDS_FIRST) };
    while thousands < last && mantissa.is_multiple_of(1000) {
        // Most amounts fit in 64 bits, where division is several times as fast.
        mantissa = u64::try_from(mantissa).map_or(mantissa / 1000, |small| u128::from(small / 1000));
        thousands += 1;
    }
    (mantissa, thousands)
}
