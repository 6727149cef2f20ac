//! What the node should look like: pure functions from a snapshot and a strategy to desired values.
//!
//! No file, no clock, no log. A decision is data: the writes it wants (`wish`) and the numbers that led to
//! them, from which events, metrics, audit records and explanations are rendered. State that outlives a cycle
//! is a plain value handed in. Spec: koordlet-enforce.

// What goes in and what comes out.
pub mod convert;
pub mod snapshot;
pub mod why;
pub mod wish;

// Strategies that follow the load, once a second.
pub mod blkio;
pub mod cpu_burst;
pub mod cpu_evict;
pub mod cpu_suppress;
pub mod evict;
pub mod memory_evict;
pub mod memory_qos;
pub mod resctrl;
pub mod system_config;

// What follows from a pod and the rules of its node.
pub mod hooks;

#[cfg(test)]
pub(crate) mod sketch;
