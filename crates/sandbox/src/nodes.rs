//! Simulated nodes: a hollow kubelet and a hollow koordlet for each, in one task.
//!
//! Decide, then act. Pure: `shape` says what a node is made of, `objects` and `devices` what it reports
//! about itself, `behaviour` what a pod's annotations ask of it, `usage` what it consumes, `lifecycle`
//! what becomes of its status, `admit` whether a node takes it, `metric` what NodeMetric tells. The
//! shell is `fleet`: one list and watch of pods, one heap of timers, a bounded number of writes.

pub mod admit;
pub mod annotation;
pub mod behaviour;
mod devices;
pub mod fleet;
pub mod lifecycle;
mod metric;
mod objects;
pub mod profile;
pub mod shape;
mod topology;
pub mod usage;

pub use fleet::{Fleet, FleetError, NodeHealth, NodeRow, Options, Timing};
pub use shape::{Pool, Shape};
