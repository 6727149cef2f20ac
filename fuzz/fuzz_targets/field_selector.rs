//! Field selectors: what was read and written is read back as the same conditions.
#![no_main]

use koord_api::selector::FieldSelector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(selector) = text.parse::<FieldSelector>() else { return };
    let written = selector.to_string();
    let back: FieldSelector = written.parse().expect("canonical text reads");
    assert_eq!(back.to_string(), written);
    for term in back.terms().iter().filter(|term| term.is_equal) {
        assert!(back.exact(&term.field).is_some());
    }
});
