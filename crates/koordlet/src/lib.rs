//! koordlet, the node agent: what it observes, what it decides, what it applies.

// What is known and measured.
pub mod collect;
pub mod devices;
pub mod state;
pub mod store;

// What follows from it.
pub mod decide;
pub mod predict;

// What is done to the node, and told of it.
pub mod act;
pub mod apply;
pub mod audit;
pub mod evict;
pub mod metrics;
pub mod records;

// What the cluster is told.
pub mod report;

// The programs of others.
pub mod device_daemon;
mod programs;

// The process.
pub mod explain;
pub mod flags;
pub mod grpc;
pub mod hook_server;
pub mod pod_resources;
pub mod run;
pub mod serve;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod overheard;
