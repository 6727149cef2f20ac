//! The scheduling engine: cluster events in, decisions out. No I/O, no clock, no async.

pub mod framework;
pub mod profile;
pub mod queue;
