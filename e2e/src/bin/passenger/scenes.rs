//! The scenes, by name. Each has a node of its own, and leaves nothing behind.

mod clock;
mod cookies;
mod disks;
mod evict;
mod hotplug;
mod limits;
mod restart;
mod suppress;
mod traffic;

use std::time::Duration;

use anyhow::{Result, bail};

use crate::node::PodPlan;

/// The longest that a scene may take; only a machine that is badly overloaded gets there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Plays a scene.
pub(crate) async fn play(name: &str) -> Result<()> {
    match name {
        "suppress" => suppress::play().await,
        "shared-host" => suppress::play_on_shared_host().await,
        "limits" => limits::play().await,
        "evict" => evict::play().await,
        "clock" => clock::play().await,
        "cookies" => cookies::play().await,
        "disks" => disks::play().await,
        "traffic" => traffic::play().await,
        "hotplug" => hotplug::play().await,
        "restart" => restart::play().await,
        other => bail!("there is no scene {other}"),
    }
}

/// A service without limits.
const SERVICE: PodPlan<'static> = PodPlan {
    name: "service",
    qos: "LS",
    kube_qos: "Burstable",
    requests: &[("cpu", "100m"), ("memory", "64Mi")],
    limits: &[],
};

/// A best-effort pod with limits of its own.
const BATCH: PodPlan<'static> = PodPlan {
    name: "batch",
    qos: "BE",
    kube_qos: "BestEffort",
    requests: &[("kubernetes.io/batch-cpu", "1000"), ("kubernetes.io/batch-memory", "128Mi")],
    limits: &[("kubernetes.io/batch-cpu", "2000"), ("kubernetes.io/batch-memory", "256Mi")],
};
