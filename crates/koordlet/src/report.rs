//! What koordlet tells the cluster about its node: how much is used, and where its CPUs and memory are.
//!
//! Each report is a pure function from a snapshot and the series store to an object, and a loop that writes it.
//! Spec: koordlet-observe 7 and 8.

pub mod node_metric;
pub mod topology;
