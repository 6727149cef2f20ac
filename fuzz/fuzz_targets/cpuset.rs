//! CPU lists: what was read and written is read back as the same set.
#![no_main]

use koord_api::cpuset::CpuSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(cpus) = text.parse::<CpuSet>() else { return };
    assert_eq!(cpus.iter().count(), cpus.len());
    assert!(cpus.iter().is_sorted());
    assert!(cpus.iter().all(|cpu| cpus.contains(cpu)));
    // Neighbours that were named one by one may be written as a range past the limit of ranges.
    if cpus.last().is_none_or(|last| last <= 4096) {
        assert_eq!(cpus.to_string().parse(), Ok(cpus));
    }
});
