//! The engine on Kubernetes: watches in, bindings and patches out.

pub mod config;
pub mod flags;
pub mod record;
