//! What admission changes in a new pod: profiles, resource names, the records for the node.
//!
//! On create only, in this order: `profile::apply`, `resources::record_extended`, `resources::spell_out_gpu`.
//! Everything the outside world has to say, such as priority classes or dice, comes in as data.
//! Spec: api 3.4, crds 6.

pub mod profile;
pub mod resources;
pub mod strategic;
