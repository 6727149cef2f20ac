//! What admission changes in a new pod: profiles, resource names, the records for the node, nodes of a quota tree.
//!
//! On create only, in this order: `profile::apply`, `resources::record_extended`, `quota_tree::require_nodes`,
//! `resources::spell_out_gpu`. All of them work on the pod's JSON tree, so that fields we do not know stay.
//! Everything the outside world has to say, such as priority classes or dice, comes in as data.
//! Spec: api 3.4, crds 6, manager 15.

pub mod profile;
pub mod quota_tree;
pub mod reservation;
pub mod resources;
pub mod shape;
pub mod trace;

pub mod tree;
