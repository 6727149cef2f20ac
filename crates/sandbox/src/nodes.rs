//! Simulated nodes: a hollow kubelet and a hollow koordlet for each, in one task.
//!
//! Decide, then act. Pure: `shape` says what a node is made of, `objects` and `devices` what it reports
//! about itself, `behaviour` what a pod's annotations ask of it, `usage` what it consumes, `lifecycle`
//! what becomes of its status, `admit` whether a node takes it, `metric` what NodeMetric tells, `host` a
//! node as the files of a machine. The shell is `fleet`: one list and watch of pods, one heap of timers,
//! a bounded number of writes.

pub mod admit;
pub mod annotation;
pub mod behaviour;
mod devices;
pub mod fleet;
mod host;
pub mod lifecycle;
mod metric;
mod objects;
pub mod profile;
pub mod shape;
mod topology;
pub mod usage;

pub use fleet::{
    Agents, Fleet, FleetError, HostNode, Hosts, NodeHealth, NodeRow, Options, Started, Stopped, Timing,
    clear_hosts,
};
pub use shape::{Koordlet, Pool, Shape};
