//! Label selectors: what was read and written is read back as the same conditions.
#![no_main]

use koord_api::selector::{Operator, Selector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(selector) = text.parse::<Selector>() else { return };
    assert_eq!(selector.to_string().parse(), Ok(selector.clone()));
    for requirement in selector.requirements() {
        for value in requirement.values() {
            let matches = requirement.matches(&[(requirement.key(), value.as_str())]);
            assert_eq!(matches, matches!(requirement.operator(), Operator::In | Operator::Equals));
        }
    }
});
