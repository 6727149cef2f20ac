//! koordlet is killed at any moment: the node ends up as if nothing had happened, and everything can be given back.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{BATCH, Picture, SERVICE, same};
use crate::stage::Stage;

/// Milliseconds that koordlets live; those in between are drawn by lot, always the same.
const LIVES: usize = 4;
const LIFE_MAX_MS: u64 = 6000;

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    stage.pod(SERVICE).await?;
    let batch = stage.pod(BATCH).await?;
    let before = stage.tree.picture();
    // One percent of the node is less than the system alone uses: the least is left, however busy the machine is.
    stage
        .world
        .order(json!({
            "resourceUsedThresholdWithBE": { "enable": true, "cpuSuppressThresholdPercent": 1 },
            "resourceQOSStrategy": { "lsClass": { "memoryQOS": { "enable": true, "minLimitPercent": 50 } } } }))
        .await?;
    stage.start_and_wait(&[]).await?;
    let is_settled = async |stage: &mut Stage| {
        let is_narrow = stage.tree.cpus(&batch.container)?.len() == 2;
        Ok(is_narrow && stage.tree.quota_us(&batch.container)? == Some(200_000))
    };
    stage.until("the node is governed", is_settled).await?;
    let undisturbed = settled(&mut stage).await?;
    ensure!(undisturbed != before, "nothing was changed");
    stage.judge_and_kill().await?;
    stage.clean_up()?;
    same(&before, &stage, "after clean-up")?;

    let mut dice = 0x5eed_u64;
    for life in 0..LIVES {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        stage.start(&[])?;
        // Every other one ends in the middle of its first writes, and what it did is given back.
        let is_short = life % 2 == 0;
        if is_short {
            stage.until("it writes", async |stage| Ok(stage.tree.picture() != before)).await?;
        } else {
            tokio::time::sleep(Duration::from_millis((dice >> 33) % LIFE_MAX_MS)).await;
        }
        stage.kill()?;
        if is_short {
            stage.clean_up()?;
            same(&before, &stage, "after a kill and clean-up")?;
        }
    }
    stage.start_and_wait(&[]).await?;
    stage
        .until("the node is as in an undisturbed run", async |stage| Ok(stage.tree.picture() == undisturbed))
        .await?;
    stage.judge_and_kill().await?;
    stage.clean_up()?;
    same(&before, &stage, "after kills and clean-up")
}

/// The node once nothing changes any more.
async fn settled(stage: &mut Stage) -> Result<Picture> {
    let mut last = stage.tree.picture();
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = stage.tree.picture();
        if now == last {
            return Ok(now);
        }
        last = now;
    }
}
