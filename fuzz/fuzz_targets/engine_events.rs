//! Events in any order and shape for the scheduling engine; `world` says what must hold.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "engine_events/world.rs"]
mod world;

fuzz_target!(|data: &[u8]| world::play(data));
