//! What plugins and the engine agree on: verdicts, events, extension points.

pub mod event;
pub mod hint;
pub mod plugin_set;
pub mod status;
