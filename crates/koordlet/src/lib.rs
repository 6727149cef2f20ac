//! koordlet, the node agent: what it observes, what it decides, what it applies.

pub mod store;

pub mod decide;
pub mod state;

pub mod act;
pub mod apply;
pub mod audit;
pub mod evict;
pub mod metrics;
pub mod serve;

pub mod flags;
