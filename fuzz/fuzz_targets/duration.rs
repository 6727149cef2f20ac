//! Durations: what was read and written is read back as the same number of nanoseconds.
#![no_main]

use koord_api::duration::GoDuration;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(duration) = text.parse::<GoDuration>() {
        assert_eq!(duration.to_string().parse(), Ok(duration));
    }
});
