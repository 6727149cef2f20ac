//! The wall clock jumps, forward and back, while koordlet runs: it goes on as if nothing had happened.

use std::process::Command;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime, clock_settime};
use serde_json::json;

use super::{BATCH, SERVICE};
use crate::stage::Stage;
use crate::tree::BUSY;

/// Seconds that the clock jumps: to the next day, back, and to the day before.
const JUMPS: [i64; 3] = [86_400, -86_400, -86_400];

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let service = stage.pod(SERVICE).await?;
    let batch = stage.pod(BATCH).await?;
    stage
        .world
        .order(
            json!({ "resourceUsedThresholdWithBE": { "enable": true, "cpuSuppressThresholdPercent": 100 } }),
        )
        .await?;
    stage.start_and_wait(&[]).await?;
    let has = async |stage: &mut Stage, is_wanted: fn(usize) -> bool| {
        Ok(is_wanted(stage.tree.cpus(&batch.container)?.len()))
    };
    for seconds in JUMPS {
        stage.until("the service rests", async |stage| has(stage, |count| count > 2).await).await?;
        let mut now = clock_gettime(ClockId::Realtime);
        now.tv_sec += seconds;
        clock_settime(ClockId::Realtime, now)?;
        let burners: Vec<u32> = (0..3)
            .map(|_| stage.tree.spawn(&service.container, Command::new("sh").args(["-c", BUSY])))
            .collect::<Result<_>>()?;
        stage
            .until("it works after a jump of the clock", async |stage| has(stage, |count| count == 2).await)
            .await?;
        burners.into_iter().try_for_each(|id| stage.tree.kill(id))?;
    }
    let mut now = clock_gettime(ClockId::Realtime);
    now.tv_sec -= JUMPS.iter().sum::<i64>();
    clock_settime(ClockId::Realtime, now)?;
    stage.judge().await
}
