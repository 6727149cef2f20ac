//! What pods and the node are likely to need at most: histograms of their use that forget slowly.
//!
//! [`Predictor`] holds one model for each pod, for the node, for each priority class and for what is neither;
//! [`reclaimable`] turns them into what prod pods asked for and will not need. Both are plain values that are handed
//! the time and the measurements; [`files`] alone touches the disk. Spec: koordlet-observe 9.

pub mod checkpoint;
pub mod files;
pub mod histogram;
pub mod measure;
mod models;
pub mod reclaimable;

pub use models::{Amount, History, NotFound, Peaks, Predictor, Sample, Settings, Training, class_key};

/// Key of the model of the whole node.
pub const NODE: &str = "__node__";
/// Key of the model of what the node uses beside its pods.
pub const SYSTEM: &str = "__node-sys__";
