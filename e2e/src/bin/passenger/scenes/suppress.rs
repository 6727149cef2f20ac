//! Best-effort pods give way to a service that works, by CPU set and by quota, and get everything back.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{BATCH, SERVICE, limits};
use crate::stage::{Actor, Stage};
use crate::tree::{BUSY, IDLE, allowed_cpus};

/// The node's CPUs may be used to this part.
fn threshold(policy: &str, percent: i64) -> Value {
    json!({ "resourceUsedThresholdWithBE": {
        "enable": true, "cpuSuppressPolicy": policy, "cpuSuppressThresholdPercent": percent } })
}

/// On a machine of our own, where a service that rests leaves CPUs to others.
pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let service = stage.pod(SERVICE).await?;
    let batch = stage.pod(BATCH).await?;
    stage.world.order(threshold("cpuset", 100)).await?;
    stage.start_and_wait(&[]).await?;
    by_cpus(&mut stage, &service, &batch).await?;
    limits::of_best_effort(&mut stage, &batch).await?;
    static_manager(&mut stage, &batch).await?;
    by_quota(&mut stage, &service, &batch).await?;
    stage.judge().await
}

/// On a host that others use as well: what best-effort pods get is the least that the NodeSLO leaves them, so that it does
/// not matter how busy the host is.
pub(super) async fn play_on_shared_host() -> Result<()> {
    let mut stage = Stage::new().await?;
    stage.pod(SERVICE).await?;
    let batch = stage.pod(BATCH).await?;
    let before = stage.tree.picture();
    let class = stage.tree.class("BestEffort");
    let half = i64::try_from(std::thread::available_parallelism()?.get())? * 50_000;
    stage.world.order(threshold("cpuset", 1)).await?;
    stage.start_and_wait(&[]).await?;
    limits::of_best_effort(&mut stage, &batch).await?;
    static_manager(&mut stage, &batch).await?;

    stage
        .world
        .order(json!({ "resourceUsedThresholdWithBE": { "cpuSuppressThresholdPercent": 1,
        "cpuSuppressMinPercent": 50 } }))
        .await?;
    stage
        .until("half of the host is left, and pods have no quota of their own", async |stage| {
            let own = [stage.tree.quota_us(&batch.group)?, stage.tree.quota_us(&batch.container)?];
            Ok(stage.tree.quota_us(&class)? == Some(half) && own == [None, None])
        })
        .await?;
    stage.world.order(json!({ "resourceUsedThresholdWithBE": { "cpuSuppressMinPercent": null } })).await?;
    is_throttled(&mut stage, &batch).await?;
    other_policy(&mut stage, &batch).await?;
    stage.judge_and_kill().await?;
    stage.clean_up()?;
    ensure!(stage.tree.picture() == before, "clean-up left something behind");
    Ok(())
}

/// All CPUs but what is used; at least two.
async fn by_cpus(stage: &mut Stage, service: &Actor, batch: &Actor) -> Result<()> {
    let all = stage.tree.cpus("")?.len();
    let class = stage.tree.class("BestEffort");
    let groups = [class.clone(), batch.group.clone(), batch.container.clone()];
    let have = |stage: &Stage| -> Result<Vec<usize>> {
        groups.iter().map(|group| Ok(stage.tree.cpus(group)?.len())).collect()
    };
    let follows = |stage: &Stage| -> Result<bool> {
        Ok(allowed_cpus(batch.process)? == stage.tree.cpus(&batch.container)?)
    };
    if all > 2 {
        stage
            .until("best-effort pods have what nobody uses", async |stage| {
                Ok(have(stage)?.iter().all(|count| *count > 2) && follows(stage)?)
            })
            .await?;
    }
    let burners = burn(stage, service, all - 1)?;
    stage
        .until("they keep two CPUs while the service works", async |stage| {
            Ok(have(stage)?.iter().all(|count| *count == 2) && follows(stage)?)
        })
        .await?;
    burners.into_iter().try_for_each(|id| stage.tree.kill(id))?;
    if all > 2 {
        stage
            .until("they get CPUs back when it rests", async |stage| {
                Ok(have(stage)?.iter().all(|count| *count > 2) && follows(stage)?)
            })
            .await?;
    }
    Ok(())
}

/// A service's processes that take a CPU each.
fn burn(stage: &mut Stage, service: &Actor, count: usize) -> Result<Vec<u32>> {
    (0..count).map(|_| stage.tree.spawn(&service.container, Command::new("sh").args(["-c", BUSY]))).collect()
}

/// Under kubelet's static manager groups of pods stay wide, so that kubelet can give a container what it wants.
async fn static_manager(stage: &mut Stage, batch: &Actor) -> Result<()> {
    stage.world.configure(json!({ "cpuManagerPolicy": "static", "reservedSystemCPUs": "0" }));
    stage.world.order(threshold("cpuset", 1)).await?;
    let every = stage.tree.cpus("")?;
    let class = stage.tree.class("BestEffort");
    // kubelet's configuration is asked for once in a while; a new run asks at once.
    stage.judge_and_kill().await?;
    stage.start_and_wait(&[]).await?;
    stage
        .until("only containers are narrowed", async |stage| {
            Ok(stage.tree.cpus(&class)? == every
                && stage.tree.cpus(&batch.group)? == every
                && stage.tree.cpus(&batch.container)?.len() == 2)
        })
        .await?;
    for number in 0..3 {
        // As the runtime does for kubelet: the shared pool of its own state, which is every CPU.
        let container = stage.tree.container(&batch.group, &format!("{:064x}", 0xb000 + number));
        let id = stage.tree.start_container(&container, Some(&every), IDLE);
        let id = id.context("a best-effort container cannot start while suppression holds")?;
        stage
            .until("the new container is narrowed too", async |stage| {
                Ok(stage.tree.cpus(&container)?.len() == 2 && allowed_cpus(id)?.len() == 2)
            })
            .await?;
        stage.tree.remove(&container)?;
    }
    stage.world.configure(json!({ "cpuManagerPolicy": "none" }));
    stage.judge_and_kill().await?;
    stage.world.order(threshold("cfsQuota", 50)).await?;
    stage.start_and_wait(&[]).await
}

/// Half of the node, less what is used; at least a fiftieth of a CPU.
async fn by_quota(stage: &mut Stage, service: &Actor, batch: &Actor) -> Result<()> {
    let class = stage.tree.class("BestEffort");
    stage
        .until("all best-effort pods together have a quota, and none for itself", async |stage| {
            let own = [stage.tree.quota_us(&batch.group)?, stage.tree.quota_us(&batch.container)?];
            Ok(stage.tree.quota_us(&class)?.is_some_and(|quota| quota > 2000) && own == [None, None])
        })
        .await?;
    let burners = burn(stage, service, 2)?;
    is_throttled(stage, batch).await?;
    burners.into_iter().try_for_each(|id| stage.tree.kill(id))?;
    stage
        .until("the quota grows when the service rests", async |stage| {
            Ok(stage.tree.quota_us(&class)?.is_some_and(|quota| quota > 20_000))
        })
        .await?;
    other_policy(stage, batch).await
}

/// The quota is the least, and the kernel makes a process wait for it.
async fn is_throttled(stage: &mut Stage, batch: &Actor) -> Result<()> {
    let class = stage.tree.class("BestEffort");
    stage
        .until("the quota is the least", async |stage| Ok(stage.tree.quota_us(&class)? == Some(2000)))
        .await?;
    let worker = stage.tree.spawn(&batch.container, Command::new("sh").args(["-c", BUSY]))?;
    let before = stage.tree.throttled(&class)?;
    stage
        .until("a best-effort process has to wait", async |stage| {
            Ok(stage.tree.throttled(&class)? > before + 5)
        })
        .await?;
    stage.tree.kill(worker)
}

async fn other_policy(stage: &mut Stage, batch: &Actor) -> Result<()> {
    let class = stage.tree.class("BestEffort");
    stage.world.order(threshold("cpuset", 100)).await?;
    stage
        .until("the other policy takes the quota off, and pods have theirs again", async |stage| {
            Ok(stage.tree.quota_us(&class)?.is_none()
                && stage.tree.quota_us(&batch.container)? == Some(200_000))
        })
        .await?;
    ensure!(allowed_cpus(batch.process)?.len() >= 2, "the process lost its CPUs");
    Ok(())
}
