//! What follows from a pod and the rules of its node, whoever asks: the runtime, the proxy or the reconciler.
//!
//! One file for each plugin; none knows how its values reach the kernel. Spec: koordlet-enforce 15.

pub mod batch_resource;
pub mod core_sched;
pub mod cpu_normalization;
pub mod cpuset;
pub mod gpu;
pub mod group_identity;
pub mod oom_score;
pub mod pod_resctrl;
pub mod rdma;
pub mod share_pools;
pub mod stage;
pub mod tc;
pub mod terway;

use super::snapshot::Pod;
use super::wish::{Cause, File, Place, Value, Wish};

/// A number that a plugin wants in a file.
fn number(place: Place, file: File, value: i64) -> Wish {
    Wish::new(place, file, Value::Number(value), Cause::RuntimeHook)
}

/// The groups of a pod's containers that exist.
fn container_places(pod: &Pod) -> impl Iterator<Item = Place> + '_ {
    pod.hooked_containers().filter_map(|container| container.place(pod))
}
