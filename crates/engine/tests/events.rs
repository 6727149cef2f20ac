//! Anything may be told to the engine: the inputs that fuzzing keeps, and random ones (`fuzz/`, target `engine_events`).

use std::path::Path;

use proptest::prelude::*;

#[path = "../../../fuzz/fuzz_targets/engine_events/world.rs"]
mod world;

#[test]
fn the_corpus_is_survived() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/engine_events");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        world::play(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 10, "{count} inputs");
}

/// A line that begins with what happens; pods, nodes and attempts more often than the rest.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let kind = proptest::sample::select(b"ppppppPPnnnmmMxdsssssssaaatergGuUwWvvvVkAoRRRD".to_vec());
    (kind, prop::collection::vec(any::<u8>(), 0..80)).prop_map(|(kind, mut rest)| {
        rest.retain(|byte| *byte != b'\n');
        rest.insert(0, kind);
        rest
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn anything_is_survived(lines in prop::collection::vec(line(), 1..100)) {
        world::play(&lines.join(&b'\n'));
    }
}
