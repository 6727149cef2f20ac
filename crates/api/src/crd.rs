//! Objects of our own: one file for each kind.

mod schema;
mod wire;

pub mod node_slo;
