//! A CPU that goes offline and comes back while koordlet runs: nothing fails, and no set keeps it. First everybody has
//! every CPU; then best-effort pods are suppressed, and lose one of the few that they have.

use std::fs;

use anyhow::{Context as _, Result};
use koord_api::cpuset::CpuSet;
use serde_json::{Value, json};

use super::{BATCH, SERVICE};
use crate::stage::{Actor, Stage};
use crate::tree::allowed_cpus;

const CPU: u32 = 3;

/// Best-effort pods may have what is left of so much of the node; of one percent nothing is, and they keep two CPUs.
fn suppression(percent: i64) -> Value {
    json!({ "resourceUsedThresholdWithBE": { "enable": true, "cpuSuppressThresholdPercent": percent } })
}

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let service = stage.pod(SERVICE).await?;
    let batch = stage.pod(BATCH).await?;
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
    stage.judge().await?;
    switch(CPU, true)?;
    stage.until("the CPU is used again", everywhere).await?;
    stage.judge().await?;
    while_suppressed(&mut stage, &best_effort, &batch).await
}

/// What they may have changes while the CPU is away, so that sets are written then.
async fn while_suppressed(stage: &mut Stage, groups: &[String], batch: &Actor) -> Result<()> {
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
    stage.until("they get the CPU back", async |stage| have(stage, &|cpus| *cpus == kept)).await?;
    stage.judge().await
}

fn cpus_of(stage: &Stage, groups: &[String]) -> Result<Vec<CpuSet>> {
    groups.iter().map(|group| stage.tree.cpus(group)).collect()
}

fn switch(cpu: u32, is_on: bool) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&path, if is_on { "1" } else { "0" }).context(path)
}
