//! The scheduling engine: cluster events in, decisions out. No I/O, no clock, no async.

pub mod cluster;
pub mod engine;
pub mod explain;
pub mod extender;
pub mod faults;
pub mod framework;
pub mod hash;
pub mod intern;
pub use koord_api::number;
pub mod plugins;
pub mod pod;
pub mod profile;
pub mod queue;
pub mod random;
pub mod record;
pub mod requests;
pub mod schedule;
pub mod time;

pub use engine::Engine;
