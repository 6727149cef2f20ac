//! koordlet, the node agent: what it observes, what it decides, what it applies.

pub mod collect;
pub mod store;

pub mod decide;
pub mod devices;
pub mod state;
