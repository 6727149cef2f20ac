//! The scheduling engine: cluster events in, decisions out. No I/O, no clock, no async.

pub mod framework;
pub mod queue;
pub mod time;
