//! Koord's vocabulary: the words every component shares.
//!
//! Pure: no I/O, no clock, no async, no client. Read in this order.

// Text forms of Kubernetes and Linux.
pub mod cpuset;
pub mod duration;
pub mod number;
pub mod quantity;
pub mod time;

// Go's JSON, as annotations and ConfigMap data are read and written.
pub mod gojson;

// How Kubernetes matches one object against another.
pub mod selector;
pub mod toleration;

// What is counted.
pub mod resource;
pub mod topology;

// Names on objects, and the JSON behind them.
pub mod annotation;
pub mod keys;

// What a pod is to us.
pub mod pod;
pub mod priority;
pub mod qos;
pub mod rewrite;
pub mod transform;
pub mod validity;

// Objects of our own.
pub mod crd;
pub mod patch;
pub mod preserve;

// Strategies of slo-controller-config.
pub mod slo;

// Names that operators switch and processes speak.
pub mod gate;
pub mod hook;
