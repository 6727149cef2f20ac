//! Quantities: what was read and written is read back with the same value, and its text comes to rest.
#![no_main]

use koord_api::quantity::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(amount) = text.parse::<Quantity>() else { return };
    let written = amount.to_string();
    let back: Quantity = written.parse().expect("canonical text reads");
    assert_eq!(back, amount);
    // A binary amount that no binary suffix fits is written as plain digits, as Kubernetes does, and those are read as a
    // decimal one: `437.5Ki`, `448000`, `448k`.
    let rested = back.to_string();
    let again: Quantity = rested.parse().expect("canonical text reads");
    assert_eq!((again, again.to_string()), (amount, rested));
    assert_eq!(amount - amount, Quantity::ZERO);
    assert_eq!(-(-amount), amount);
    let up = amount.value().unsigned_abs();
    assert!(u128::from(up) * 1_000_000_000 >= amount.nano().unsigned_abs() || up >= i64::MAX.unsigned_abs());
});
