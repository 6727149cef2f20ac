//! Conversions between integers and doubles that say what they lose.

/// The nearest double; exact below 2^53, which amounts of a node stay under.
#[expect(clippy::cast_precision_loss, reason = "the name says nearest")]
pub fn nearest(value: i64) -> f64 {
    value as f64
}

/// Without the fraction; values beyond the range of `i64` stay at its ends.
#[expect(clippy::cast_possible_truncation, reason = "the name says truncated")]
pub fn truncated(value: f64) -> i64 {
    value as i64
}
