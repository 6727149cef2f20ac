//! Limits that follow from pods and the NodeSLO: those of best-effort pods, memory that is protected and throttled, bursts
//! of CPU, in the kernel and by quota.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{BATCH, same};
use crate::node::PodPlan;
use crate::stage::{Actor, Stage};
use crate::tree::{BUSY, Kind};

/// A service with limits.
pub(super) const LIMITED: PodPlan<'static> = PodPlan {
    name: "limited",
    qos: "LS",
    kube_qos: "Burstable",
    requests: &[("cpu", "200m"), ("memory", "64Mi")],
    limits: &[("cpu", "500m"), ("memory", "128Mi")],
};
const MIB: u64 = 1 << 20;

/// Of a container with this limit, as kubelet and the runtime set it.
pub(super) const QUOTA_US: i64 = 50_000;
const BURST: [&str; 2] = ["cpu.cfs_burst_us", "cpu.max.burst"];

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let limited = stage.pod(LIMITED).await?;
    let batch = stage.pod(BATCH).await?;
    for group in [&limited.group, &limited.container] {
        stage.tree.limit_cpu(group, QUOTA_US)?;
    }
    let before = stage.tree.picture();
    let memory =
        json!({ "enable": true, "minLimitPercent": 50, "lowLimitPercent": 75, "throttlingPercent": 50 });
    stage
        .world
        .order(json!({
            "cpuBurstStrategy": { "policy": "auto", "cfsQuotaBurstPercent": 200, "sharePoolThresholdPercent": 90 },
            "resourceQOSStrategy": { "lsClass": { "memoryQOS": memory } } }))
        .await?;
    stage.start_and_wait(&[]).await?;
    of_best_effort(&mut stage, &batch).await?;
    match stage.tree.kind {
        Kind::V1 => no_memory_qos(&stage, &limited)?,
        Kind::V2 => memory_qos(&mut stage, &limited).await?,
    }
    let worker = bursts(&mut stage, &limited).await?;
    // Somebody else gives back what a run left in the middle of a burst; another run begins anew.
    stage.judge_and_kill().await?;
    stage.tree.kill(worker)?;
    stage.clean_up()?;
    same(&before, &stage, "after clean-up in a burst")?;
    stage.start_and_wait(&[]).await?;
    let worker = bursts(&mut stage, &limited).await?;
    stage.tree.kill(worker)?;
    stage
        .world
        .order(
            json!({ "cpuBurstStrategy": { "policy": "none" }, "resourceQOSStrategy": { "lsClass": null } }),
        )
        .await?;
    stage
        .until("limits are what they were", async |stage| {
            Ok(stage.tree.quota_us(&limited.container)? == Some(QUOTA_US)
                && stage.tree.quota_us(&limited.group)? == Some(QUOTA_US)
                && stage.tree.read(&limited.container, "cpu", BURST)? == "0")
        })
        .await?;
    stage.judge().await
}

/// What a best-effort pod asks for, as the kernel has it.
pub(super) async fn of_best_effort(stage: &mut Stage, batch: &Actor) -> Result<()> {
    stage
        .until("a best-effort pod has its own limits", async |stage| {
            let quotas = [stage.tree.quota_us(&batch.group)?, stage.tree.quota_us(&batch.container)?];
            let memory =
                stage.tree.read(&batch.container, "memory", ["memory.limit_in_bytes", "memory.max"])?;
            let shares = stage.tree.read(&batch.container, "cpu", ["cpu.shares", "cpu.weight"])?;
            let want = if stage.tree.kind == Kind::V1 { "1024" } else { "39" };
            Ok(quotas == [Some(200_000); 2] && memory == "268435456" && shares == want)
        })
        .await
}

async fn memory_qos(stage: &mut Stage, limited: &Actor) -> Result<()> {
    let number = |stage: &Stage, group: &str, file: &str| -> Result<u64> {
        Ok(stage.tree.read(group, "memory", [file, file])?.parse()?)
    };
    stage
        .until("memory is protected and throttled", async |stage| {
            let top = stage.tree.class("Guaranteed");
            let class = stage.tree.class("Burstable");
            for group in [&top, &class, &limited.group, &limited.container] {
                let protected = [number(stage, group, "memory.min")?, number(stage, group, "memory.low")?];
                if protected != [32 * MIB, 48 * MIB] {
                    return Ok(false);
                }
            }
            // Half way between what is requested and the limit.
            Ok(number(stage, &limited.container, "memory.high")? == 96 * MIB)
        })
        .await
}

/// Only kernels with patches protect or throttle memory on v1. Where the files are not there, that they are wanted does
/// no harm: the scene is judged as any other.
fn no_memory_qos(stage: &Stage, limited: &Actor) -> Result<()> {
    let dir = stage.tree.path("memory", &limited.container);
    for file in ["memory.min", "memory.low", "memory.high", "memory.wmark_ratio", "memory.oom.group"] {
        ensure!(!dir.join(file).exists(), "cgroup v1 has {file} here, and nobody looks at it");
    }
    println!("cgroup v1 of this kernel can neither protect nor throttle memory");
    Ok(())
}

/// Answers the process that makes it grow. What can be saved up is ten times the quota by default, but mainline kernels
/// allow no more than the quota.
async fn bursts(stage: &mut Stage, limited: &Actor) -> Result<u32> {
    stage
        .until("time can be saved up", async |stage| {
            let bursts = [
                stage.tree.read(&limited.group, "cpu", BURST)?,
                stage.tree.read(&limited.container, "cpu", BURST)?,
            ];
            Ok(bursts == [QUOTA_US.to_string(), QUOTA_US.to_string()])
        })
        .await?;
    let worker = stage.tree.spawn(&limited.container, Command::new("sh").args(["-c", BUSY]))?;
    stage
        .until("the quota of a throttled container grows, its pod's first", async |stage| {
            let (pod, own) = (stage.tree.quota_us(&limited.group)?, stage.tree.quota_us(&limited.container)?);
            Ok(own.is_some_and(|own| own > QUOTA_US) && pod >= own)
        })
        .await?;
    Ok(worker)
}
