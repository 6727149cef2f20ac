//! A CPU that goes offline and comes back while koordlet runs: nothing fails, and no set keeps it. First everybody has
//! every CPU; then best-effort pods are suppressed, and lose one of the few that they have. cgroup v1 gives a CPU that
//! comes back to no group; until somebody does, koordlet makes do without it.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use koord_api::cpuset::CpuSet;
use serde_json::{Value, json};

use super::{BATCH, SERVICE, same};
use crate::stage::{Actor, Stage};
use crate::tree::{Kind, allowed_cpus};

const CPU: u32 = 3;

/// Best-effort pods may have what is left of so much of the node; of one percent nothing is, and they keep two CPUs.
fn suppression(percent: i64) -> Value {
    json!({ "resourceUsedThresholdWithBE": { "enable": true, "cpuSuppressThresholdPercent": percent } })
}

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let service = stage.pod(SERVICE).await?;
    let batch = stage.pod(BATCH).await?;
    let before = stage.tree.picture();
    let class = stage.tree.class("BestEffort");
    let best_effort = [class, batch.group.clone(), batch.container.clone()];
    // Suppression is off, so that everybody has every CPU.
    stage.world.order(json!({ "resourceUsedThresholdWithBE": { "enable": false } })).await?;
    stage.start_and_wait(&[]).await?;
    let groups = [&best_effort[..], std::slice::from_ref(&service.container)].concat();
    let everywhere =
        async |stage: &mut Stage| Ok(cpus_of(stage, &groups)?.iter().all(|cpus| cpus.contains(CPU)));
    stage.until("every CPU is used", everywhere).await?;
    switch(CPU, false)?;
    stage
        .until("no set has the CPU that went", async |stage| {
            let is_gone = cpus_of(stage, &groups)?.iter().all(|cpus| !cpus.contains(CPU) && cpus.len() == 3);
            Ok(is_gone && !allowed_cpus(batch.process)?.contains(CPU))
        })
        .await?;
    // On v1 the kernel was faster.
    stage.until("koordlet knows that it went", async |stage| knows_of(stage, 3).await).await?;
    stage.judge().await?;
    switch(CPU, true)?;
    stage.until("koordlet knows that it is back", async |stage| knows_of(stage, 4).await).await?;
    stage.judge().await?;
    hand_out(&stage, &service)?;
    stage.until("the CPU is used again", everywhere).await?;
    stage.judge().await?;
    while_suppressed(&mut stage, &best_effort, &batch, &service).await?;
    stage.judge_and_kill().await?;
    stage.clean_up()?;
    match stage.tree.kind {
        Kind::V2 => same(&before, &stage, "after clean-up"),
        // As the kernel had left them when koordlet first wrote to them.
        Kind::V1 => {
            let are_so = cpus_of(&stage, &groups)?.iter().all(|cpus| *cpus == CpuSet::range(0..=2));
            ensure!(are_so, "after clean-up: {:?}", cpus_of(&stage, &groups)?);
            Ok(())
        }
    }
}

/// Whether so many CPUs are shared, by koordlet's metrics.
async fn knows_of(stage: &Stage, cpus: usize) -> Result<bool> {
    let is_it = |line: &str| {
        line.starts_with("koordlet_cpuset_share_pool_cpu_cores{") && line.ends_with(&format!(" {cpus}.0"))
    };
    Ok(stage.page("/metrics").await?.lines().any(is_it))
}

/// On v1 somebody gives every CPU to the groups that are not koordlet's.
fn hand_out(stage: &Stage, service: &Actor) -> Result<()> {
    if stage.tree.kind == Kind::V2 {
        return Ok(());
    }
    let groups = [stage.tree.class("Guaranteed"), stage.tree.class("Burstable"), service.group.clone()];
    groups.iter().try_for_each(|group| stage.tree.set_cpus(group, &CpuSet::range(0..=3)))
}

/// What they may have changes while the CPU is away, so that sets are written then.
async fn while_suppressed(
    stage: &mut Stage,
    groups: &[String],
    batch: &Actor,
    service: &Actor,
) -> Result<()> {
    let follows = |stage: &Stage| -> Result<bool> {
        Ok(allowed_cpus(batch.process)? == stage.tree.cpus(&batch.container)?)
    };
    let have = |stage: &Stage, is_wanted: &dyn Fn(&CpuSet) -> bool| -> Result<bool> {
        Ok(cpus_of(stage, groups)?.iter().all(is_wanted) && follows(stage)?)
    };
    stage.world.order(suppression(1)).await?;
    stage.until("best-effort pods keep two CPUs", async |stage| have(stage, &|cpus| cpus.len() == 2)).await?;
    let kept = stage.tree.cpus(&batch.container)?;
    // The first CPU of a machine cannot go offline.
    let lost = kept.iter().find(|cpu| *cpu != 0).context("two CPUs are one too few")?;
    switch(lost, false)?;
    let is_without = |count: usize| move |cpus: &CpuSet| cpus.len() == count && !cpus.contains(lost);
    stage
        .until("another CPU takes the place of the one that went", async |stage| have(stage, &is_without(2)))
        .await?;
    stage.world.order(suppression(100)).await?;
    stage.until("they get every CPU that is left", async |stage| have(stage, &is_without(3))).await?;
    stage.world.order(suppression(1)).await?;
    stage.until("they keep two of those", async |stage| have(stage, &is_without(2))).await?;
    stage.judge().await?;
    switch(lost, true)?;
    if stage.tree.kind == Kind::V1 {
        stage.world.order(suppression(100)).await?;
        stage.until("they get every CPU that pods have", async |stage| have(stage, &is_without(3))).await?;
        stage.world.order(suppression(1)).await?;
        stage.until("they keep two of those again", async |stage| have(stage, &is_without(2))).await?;
        stage.judge().await?;
        hand_out(stage, service)?;
    }
    stage.until("they get the CPU back", async |stage| have(stage, &|cpus| *cpus == kept)).await
}

fn cpus_of(stage: &Stage, groups: &[String]) -> Result<Vec<CpuSet>> {
    groups.iter().map(|group| stage.tree.cpus(group)).collect()
}

fn switch(cpu: u32, is_on: bool) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&path, if is_on { "1" } else { "0" }).context(path)
}
