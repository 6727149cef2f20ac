//! What plugins and the engine agree on: verdicts, events, extension points.

pub mod event;
pub mod status;
