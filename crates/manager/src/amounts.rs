//! Amounts of CPU and memory, and the few ways in which the manager's formulas round them. Pure.
//!
//! What a list does not mention counts as zero. Spec: manager 5.5.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::number::{nearest, truncated};
use koord_api::quantity::{Quantity, ResourceList};

/// Cores of CPU and bytes of memory, exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    pub cpu: Quantity,
    pub memory: Quantity,
}

impl Amounts {
    pub const ZERO: Amounts = Amounts { cpu: Quantity::ZERO, memory: Quantity::ZERO };

    /// The native cpu and memory of a list.
    pub fn of(list: &ResourceList) -> Amounts {
        Amounts::named(list, CPU, MEMORY)
    }

    /// What a list holds under two names.
    pub fn named(list: &ResourceList, cpu: &str, memory: &str) -> Amounts {
        let amount = |name| list.get(name).copied().unwrap_or_default();
        Amounts { cpu: amount(cpu), memory: amount(memory) }
    }

    /// The larger of each.
    pub fn max(self, other: Amounts) -> Amounts {
        Amounts { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }

    /// One of so many equal shares, rounded up to thousandths.
    pub fn share_ceil(self, shares: usize) -> Amounts {
        let shares = i128::try_from(shares.max(1)).unwrap_or(i128::MAX);
        let one = |amount: Quantity| {
            let milli = i128::from(amount.milli_value());
            let up = milli.div_euclid(shares) + i128::from(milli.rem_euclid(shares) != 0);
            Quantity::from_nano(up.saturating_mul(NANO_PER_MILLI), amount.family())
        };
        Amounts { cpu: one(self.cpu), memory: one(self.memory) }
    }
}

const NANO_PER_MILLI: i128 = 1_000_000;

/// Thousandths times a factor, without the fraction.
pub fn scale_milli_trunc(amount: Quantity, factor: f64) -> Quantity {
    Quantity::from_milli(truncated(nearest(amount.milli_value()) * factor), amount.family())
}

/// Whole units times a factor, without the fraction.
pub fn scale_trunc(amount: Quantity, factor: f64) -> Quantity {
    Quantity::from_value(truncated(nearest(amount.value()) * factor), amount.family())
}

/// A percentage as a factor.
pub fn factor(percent: i64) -> f64 {
    nearest(percent) / 100.0
}

impl Add for Amounts {
    type Output = Amounts;
    fn add(self, other: Amounts) -> Amounts {
        Amounts { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, other: Amounts) {
        *self = *self + other;
    }
}

impl Sub for Amounts {
    type Output = Amounts;
    fn sub(self, other: Amounts) -> Amounts {
        Amounts { cpu: self.cpu - other.cpu, memory: self.memory - other.memory }
    }
}

impl Sum for Amounts {
    fn sum<I: Iterator<Item = Amounts>>(all: I) -> Amounts {
        all.fold(Amounts::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: &str, memory: &str) -> Amounts {
        Amounts { cpu: cpu.parse().unwrap(), memory: memory.parse().unwrap() }
    }

    #[test]
    fn shares_are_rounded_up_to_thousandths() {
        for (all, shares, want) in [
            (amounts("6001m", "42949672961"), 2, amounts("3001m", "21474836480500m")),
            (amounts("10", "10"), 3, amounts("3334m", "3334m")),
            (amounts("6000500u", "1"), 1, amounts("6001m", "1")),
            (amounts("-10", "-10"), 3, amounts("-3333m", "-3333m")),
            (amounts("1", "1"), 0, amounts("1", "1")),
        ] {
            assert_eq!(all.share_ceil(shares), want, "{all:?} / {shares}");
        }
    }

    #[test]
    fn scaled_amounts_lose_their_fraction() {
        let quantity = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(scale_milli_trunc(quantity("64"), factor(40)), quantity("25600m"));
        assert_eq!(scale_trunc(quantity("256Gi"), factor(35)), quantity("96207267430"));
        assert_eq!(scale_trunc(quantity("256Gi"), factor(-20)), quantity("-54975581388"));
        assert_eq!(scale_milli_trunc(quantity("12401"), 1.25), quantity("15501250m"));
        // Rounded up before it is scaled.
        assert_eq!(scale_trunc(quantity("1500m"), 1.0), quantity("2"));
    }
}
