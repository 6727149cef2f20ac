//! A CPU that goes offline and comes back while koordlet runs: nothing fails, and no set keeps it.

use std::fs;

use anyhow::Result;
use koord_api::cpuset::CpuSet;
use serde_json::json;

use super::{BATCH, SERVICE};
use crate::stage::Stage;
use crate::tree::allowed_cpus;

const CPU: u32 = 3;
const SWITCH: &str = "/sys/devices/system/cpu/cpu3/online";

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let service = stage.pod(SERVICE).await?;
    let batch = stage.pod(BATCH).await?;
    let class = stage.tree.class("BestEffort");
    let groups = [class, batch.group.clone(), batch.container.clone(), service.container.clone()];
    // Suppression is off, so that everybody has every CPU.
    stage.world.order(json!({ "resourceUsedThresholdWithBE": { "enable": false } })).await?;
    stage.start_and_wait(&[]).await?;
    let have = |stage: &Stage| -> Result<Vec<CpuSet>> {
        groups.iter().map(|group| stage.tree.cpus(group)).collect()
    };
    let everywhere = async |stage: &mut Stage| Ok(have(stage)?.iter().all(|cpus| cpus.contains(CPU)));
    stage.until("every CPU is used", everywhere).await?;
    fs::write(SWITCH, "0")?;
    stage
        .until("no set has the CPU that went", async |stage| {
            let is_gone = have(stage)?.iter().all(|cpus| !cpus.contains(CPU) && cpus.len() == 3);
            Ok(is_gone && !allowed_cpus(batch.process)?.contains(CPU))
        })
        .await?;
    stage.judge().await?;
    fs::write(SWITCH, "1")?;
    stage.until("the CPU is used again", everywhere).await?;
    stage.judge().await
}
