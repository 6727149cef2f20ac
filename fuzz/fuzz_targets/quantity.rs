//! Quantities: what was read and written is read back with the same value and text.
#![no_main]

use koord_api::quantity::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(amount) = text.parse::<Quantity>() else { return };
    let written = amount.to_string();
    let back: Quantity = written.parse().expect("canonical text reads");
    assert_eq!(back, amount);
    assert_eq!(back.to_string(), written);
    assert_eq!(amount - amount, Quantity::ZERO);
    assert_eq!(-(-amount), amount);
    let up = amount.value().unsigned_abs();
    assert!(u128::from(up) * 1_000_000_000 >= amount.nano().unsigned_abs() || up >= i64::MAX.unsigned_abs());
});
