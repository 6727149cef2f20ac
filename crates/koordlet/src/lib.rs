//! koordlet, the node agent: what it observes, what it decides, what it applies.

// What is known and measured.
pub mod collect;
pub mod state;
pub mod store;

// What follows from it.
pub mod decide;
pub mod predict;

// What the cluster is told.
pub mod report;

#[cfg(test)]
mod fake;
