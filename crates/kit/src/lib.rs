//! What every Koord process needs, and nothing that decides.
//!
//! Start-up: [`flags`] and [`config`] read what the user asked for, [`log`] and [`shutdown`] frame the process.
//! Talking to the cluster: [`client`] connects, [`cache`] watches, [`pods`] is the compact pod, [`mod@write`] and
//! [`conditions`] change objects, [`events`] tells users, [`leader`] makes sure that only one replica acts, [`queue`] is
//! a controller's line of work.
//! Being watched: [`metrics`] and [`http`].

pub mod flags;

pub mod config;

pub mod log;

pub mod shutdown;

pub mod client;

pub mod cache;

pub mod pods;

pub mod write;

pub mod conditions;

pub mod events;

pub mod leader;

pub mod queue;

pub mod metrics;

pub mod http;

pub mod random;

pub mod lru;
