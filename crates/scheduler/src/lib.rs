//! The engine on Kubernetes: watches in, bindings and patches out.
//!
//! The way of a pod: [`watches`] decode it and lay it on the desk of the engine's thread ([`driver`]); the engine
//! ([`brain`]) chooses a node; its commands go through the [`pipeline`] to the API server, and what became of them comes
//! back to the desk. [`extender`]s have a say in between. [`events`] tell users, trailing behind. [`serve`] answers people. [`run`] wires all of it.

pub mod config;
pub mod flags;
pub mod record;

pub mod run;

pub mod brain;
pub mod clock;
mod compare;
pub mod driver;
pub mod load;
pub mod monitor;

pub mod watches;

pub mod events;
pub mod extender;
pub mod pipeline;

pub mod dump;
pub mod metrics;
pub mod serve;

#[cfg(test)]
mod fake;
