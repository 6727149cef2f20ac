//! What every Koord process needs, and nothing that decides.

pub mod cache;
pub mod client;
pub mod conditions;
pub mod config;
pub mod events;
pub mod flags;
pub mod http;
pub mod leader;
pub mod log;
pub mod metrics;
pub mod random;
pub mod shutdown;
pub mod write;
