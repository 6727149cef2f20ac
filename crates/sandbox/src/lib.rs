//! An embedded Kubernetes control plane with simulated nodes: to try, test and simulate on.
//!
//! Read in this order. `store` keeps objects, `schema` knows their shape, `kinds` what each kind
//! wants, `patch` changes them, `server` puts it on the wire, `status` is what it says when it
//! refuses; `controllers` and `nodes` give life, `dump` reads clusters from files, `cluster` wires it all.

pub mod cluster;
pub mod controllers;
pub mod dump;
pub mod kinds;
pub mod nodes;
pub mod patch;
pub mod schema;
pub mod server;
pub mod status;
pub mod store;
