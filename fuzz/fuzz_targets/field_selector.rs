//! Field selectors: what was read and written is read back as the same conditions.
#![no_main]

use koord_api::selector::FieldSelector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(selector) = text.parse::<FieldSelector>() else { return };
    let back: FieldSelector = selector.to_string().parse().expect("canonical text reads");
    // Conditions are sorted as they are written, and `==` sorts behind other texts than `=` does.
    let sorted = |selector: &FieldSelector| {
        let mut terms = selector.terms().to_vec();
        terms.sort_unstable();
        terms
    };
    assert_eq!(sorted(&back), sorted(&selector));
    for term in back.terms().iter().filter(|term| term.is_equal) {
        assert!(back.exact(&term.field).is_some());
    }
});
