//! koord-manager: reclaimed capacity, SLO strategies, quota trees, admission.
//!
//! What is decided is pure: [`node_resource`] (what a node may lend), [`node_slo`] and [`node_metric`] (what the agent is
//! told), [`quota_profile`] (roots of quota trees) and the answers of the [`webhook`] are functions from objects to objects.
//! [`controllers`] read the caches of the [`world`], ask these functions and write what changed; [`explain`] tells people why;
//! [`run`] wires all of it.

pub mod amounts;
pub mod colocation_profile;
pub mod node_metric;
pub mod node_resource;
pub mod node_slo;
pub mod pods;
pub mod quota_profile;

pub mod webhook;

pub mod controllers;
pub mod strategies;
pub mod world;

pub mod explain;

pub mod flags;
pub mod metrics;
pub mod run;

#[cfg(test)]
mod fake;
