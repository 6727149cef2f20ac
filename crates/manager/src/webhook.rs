//! Admission: what pods, quotas, nodes and configuration are changed to, and what is refused. Spec: manager 14 to 22.
//!
//! [`review`] is the language of it: a request as the API server sends it, an answer as it wants it. [`paths`] lists
//! what is served where, under which gate; a [`handler::Handler`] turns a request and the [`facts`] of the moment into an
//! answer. [`pod`] changes new pods, [`explain`] says afterwards what was changed. The rest is around it: [`settings`] from the environment, [`certificates`] and
//! [`configuration`] (pure), [`given`] certificates, [`keeper`], which keeps both in the cluster, [`server`], [`follow`], which keeps the facts
//! up to date, [`readiness`], and [`start()`], which puts it all together.

pub mod review;

pub mod handler;

pub mod facts;

pub mod paths;

pub mod pod;

pub mod node;

pub mod denial;

pub mod pod_validate;

pub mod enhanced;

pub mod quota;

pub mod reservation;

pub mod config_map;

pub mod binding;

pub mod checks;

pub mod explain;

pub mod settings;

pub mod certificates;

pub mod configuration;

pub mod files;

pub mod given;

pub mod keeper;

pub mod metrics;

pub mod server;

pub mod follow;

pub mod readiness;

mod start;

pub use start::{Parts, Served, StartError, Task, start};
