//! Amounts of resources as Kubernetes writes them: `1500m`, `2Gi`, `1e3`.
//!
//! Pure values. Reading is in `quantity/parse.rs`, the canonical text in `quantity/format.rs`,
//! JSON and schemas in `quantity/wire.rs`. Spec: api 1.3.

mod format;
mod parse;
#[cfg(test)]
mod tests;
mod wire;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

/// Amounts by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// An exact amount in steps of one billionth, and the family of suffixes it is written in.
///
/// Two quantities are equal when their values are, whatever the family. Beyond ±10^29 an amount
/// stays at that limit; a binary text stays within ±(2^63 - 1), as in Kubernetes.
///
/// ```
/// use koord_api::quantity::Quantity;
/// let memory: Quantity = "1536Mi".parse()?;
/// assert_eq!((memory + Quantity::bytes(1 << 29)).to_string(), "2Gi");
/// assert_eq!("1500m".parse::<Quantity>()?.value(), 2);
/// # Ok::<(), koord_api::quantity::QuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    /// Billionths, within ±`NANO_MAX`.
    nano: i128,
    family: Family,
}

/// The suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// `n u m k M G T P E`
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`
    BinarySi,
    /// `e3`, `e-9`
    DecimalExponent,
}

/// Why a text is no quantity. The texts are Kubernetes' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Billionths in one unit.
const NANO: i128 = 1_000_000_000;
/// Billionths in one thousandth.
const NANO_PER_MILLI: i128 = 1_000_000;
/// The largest magnitude kept: 10^29 units, the largest round amount whose sums fit in 128 bits.
const NANO_MAX: i128 = 10_i128.pow(38);

impl Quantity {
    pub const ZERO: Quantity = Quantity { nano: 0, family: Family::DecimalSi };

    /// A whole number of units.
    pub fn from_value(value: i64, family: Family) -> Quantity {
        Quantity { nano: i128::from(value) * NANO, family }
    }

    /// A number of thousandths.
    pub fn from_milli(milli: i64, family: Family) -> Quantity {
        Quantity { nano: i128::from(milli) * NANO_PER_MILLI, family }
    }

    /// A number of billionths, kept within ±10^29 units.
    pub fn from_nano(nano: i128, family: Family) -> Quantity {
        Quantity { nano: nano.clamp(-NANO_MAX, NANO_MAX), family }
    }

    /// CPU in thousandths of a core.
    pub fn cores_milli(milli: i64) -> Quantity {
        Quantity::from_milli(milli, Family::DecimalSi)
    }

    /// Memory or storage in bytes.
    pub fn bytes(bytes: i64) -> Quantity {
        Quantity::from_value(bytes, Family::BinarySi)
    }

    /// Whole units, rounded away from zero, within the limits of `i64`.
    pub fn value(self) -> i64 {
        saturate(div_away(self.nano, NANO))
    }

    /// Thousandths, rounded away from zero, within the limits of `i64`.
    pub fn milli_value(self) -> i64 {
        saturate(div_away(self.nano, NANO_PER_MILLI))
    }

    /// Billionths, exact.
    pub fn nano(self) -> i128 {
        self.nano
    }

    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    pub fn family(self) -> Family {
        self.family
    }

    /// The same value, written in another family.
    pub fn with_family(self, family: Family) -> Quantity {
        Quantity { family, ..self }
    }

    /// The family of a sum or difference: ours, unless we are zero.
    fn family_with(self, other: Quantity) -> Family {
        if self.is_zero() { other.family } else { self.family }
    }
}

fn div_away(amount: i128, step: i128) -> i128 {
    let whole = amount / step;
    if amount % step == 0 { whole } else { whole + amount.signum() }
}

fn saturate(wide: i128) -> i64 {
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

impl Add for Quantity {
    type Output = Quantity;
    fn add(self, other: Quantity) -> Quantity {
        Quantity::from_nano(self.nano.saturating_add(other.nano), self.family_with(other))
    }
}

impl Sub for Quantity {
    type Output = Quantity;
    fn sub(self, other: Quantity) -> Quantity {
        Quantity::from_nano(self.nano.saturating_sub(other.nano), self.family_with(other))
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Quantity) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Quantity) {
        *self = *self - other;
    }
}

impl Neg for Quantity {
    type Output = Quantity;
    fn neg(self) -> Quantity {
        Quantity { nano: -self.nano, ..self }
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Quantity>>(amounts: I) -> Quantity {
        amounts.fold(Quantity::ZERO, Add::add)
    }
}
