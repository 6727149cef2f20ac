//! The scenes, by name. Each has a node of its own, and leaves nothing behind.

mod clock;
mod containers;
mod cookies;
mod disks;
mod evict;
mod gated;
mod hotplug;
mod limits;
mod pinned;
mod restart;
mod suppress;
mod traffic;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::node::PodPlan;
use crate::stage::Stage;

/// The longest that a scene may take; only a machine that is badly overloaded gets there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// How a scene ended that nothing was wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Played,
    /// This kernel lacks what it is about. `koordlet_kernel.rs` has the list of what may be lacking.
    Skipped(&'static str),
}

/// Plays a scene.
pub(crate) async fn play(name: &str) -> Result<End> {
    match name {
        "suppress" => suppress::play().await,
        "shared-host" => suppress::play_on_shared_host().await,
        "limits" => limits::play().await,
        "evict" => evict::play().await,
        "containers" => containers::play().await,
        "clock" => clock::play().await,
        "cookies" => return cookies::play().await,
        "disks" => disks::play().await,
        "traffic" => traffic::play().await,
        "hotplug" => hotplug::play().await,
        "restart" => restart::play().await,
        "pinned" => pinned::play().await,
        "gated" => gated::play().await,
        other => bail!("there is no scene {other}"),
    }?;
    Ok(End::Played)
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

/// What files of groups hold.
type Picture = Vec<(PathBuf, String)>;

/// The node is as it was. A set that was the parent's is all CPUs again; the kernel does not take them from a group that
/// has processes.
fn same(before: &Picture, stage: &Stage, when: &str) -> Result<()> {
    let (after, all) = (stage.tree.picture(), stage.tree.cpus("")?.to_string());
    let is_same = |path: &Path, before: &str, after: &str| {
        before == after || (path.ends_with("cpuset.cpus") && before.is_empty() && after == all)
    };
    let changed: Vec<String> = before
        .iter()
        .zip(&after)
        .filter(|((path, before), (_, after))| !is_same(path, before, after))
        .map(|((path, before), (_, after))| format!("{}: {before:?}, now {after:?}", path.display()))
        .collect();
    ensure!(changed.is_empty() && before.len() == after.len(), "{when}:\n{}", changed.join("\n"));
    Ok(())
}
