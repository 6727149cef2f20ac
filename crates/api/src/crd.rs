//! Objects of our own: one file for each kind.
//!
//! A kind is a plain struct with `metadata`, `spec` and `status`; its doc comments are the
//! descriptions in deploy/crds. `decode_object` reads one object, `generate` writes the manifests.

mod condition;
mod decode;
mod schema;
pub(crate) mod wire;

pub mod generate;

pub use condition::ConditionStatus;
pub use decode::{DecodeError, decode_object};

// Placing pods.
pub mod device;
pub mod pod_migration_job;
pub mod reservation;
pub mod schedule_explanation;

// Groups of pods and nodes.
pub mod cluster_network_topology;
pub mod elastic_quota;
pub mod elastic_quota_profile;
pub mod node_resource_topology;
pub mod pod_group;

// Sharing nodes.
pub mod cluster_colocation_profile;
pub mod node_metric;
pub mod node_slo;
pub mod recommendation;
