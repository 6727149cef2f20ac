//! Limits that follow from the NodeSLO: memory that is protected and throttled, bursts of CPU, in the kernel and by quota.

use std::process::Command;

use anyhow::Result;
use serde_json::json;

use crate::node::PodPlan;
use crate::stage::Stage;
use crate::tree::{BUSY, Kind};

/// A service with limits.
const LIMITED: PodPlan<'static> = PodPlan {
    name: "limited",
    qos: "LS",
    kube_qos: "Burstable",
    requests: &[("cpu", "200m"), ("memory", "64Mi")],
    limits: &[("cpu", "500m"), ("memory", "128Mi")],
};
const MIB: u64 = 1 << 20;

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let limited = stage.pod(LIMITED).await?;
    for group in [&limited.group, &limited.container] {
        // As kubelet and the runtime set it for the limit.
        let (file, quota) = match stage.tree.kind {
            Kind::V1 => ("cpu.cfs_quota_us", "50000"),
            Kind::V2 => ("cpu.max", "50000 100000"),
        };
        std::fs::write(stage.tree.path("cpu", group).join(file), quota)?;
    }
    let memory =
        json!({ "enable": true, "minLimitPercent": 50, "lowLimitPercent": 75, "throttlingPercent": 50 });
    stage
        .world
        .order(json!({
            "cpuBurstStrategy": { "policy": "auto", "cpuBurstPercent": 100, "cfsQuotaBurstPercent": 200,
                "sharePoolThresholdPercent": 90 },
            "resourceQOSStrategy": { "lsClass": { "memoryQOS": memory } } }))
        .await?;
    stage.start_and_wait(&[]).await?;
    if stage.tree.kind == Kind::V2 {
        let number = |stage: &Stage, group: &str, file: &str| -> Result<u64> {
            Ok(stage.tree.read(group, "memory", [file, file])?.parse()?)
        };
        stage
            .until("memory is protected and throttled", async |stage| {
                let top = stage.tree.class("Guaranteed");
                let class = stage.tree.class("Burstable");
                for group in [&top, &class, &limited.group, &limited.container] {
                    let protected =
                        [number(stage, group, "memory.min")?, number(stage, group, "memory.low")?];
                    if protected != [32 * MIB, 48 * MIB] {
                        return Ok(false);
                    }
                }
                // Half way between what is requested and the limit.
                Ok(stage.tree.read(&limited.container, "memory", ["", "memory.high"])?
                    == (96 * MIB).to_string())
            })
            .await?;
    }
    stage
        .until("time can be saved up", async |stage| {
            let files = ["cpu.cfs_burst_us", "cpu.max.burst"];
            let bursts = [
                stage.tree.read(&limited.group, "cpu", files)?,
                stage.tree.read(&limited.container, "cpu", files)?,
            ];
            Ok(bursts == ["50000", "50000"])
        })
        .await?;
    let worker = stage.tree.spawn(&limited.container, Command::new("sh").args(["-c", BUSY]))?;
    stage
        .until("the quota of a throttled container grows, its pod's first", async |stage| {
            let (pod, own) = (stage.tree.quota_us(&limited.group)?, stage.tree.quota_us(&limited.container)?);
            Ok(own.is_some_and(|own| own > 50_000) && pod >= own)
        })
        .await?;
    stage.tree.kill(worker)?;
    stage
        .world
        .order(
            json!({ "cpuBurstStrategy": { "policy": "none" }, "resourceQOSStrategy": { "lsClass": null } }),
        )
        .await?;
    stage
        .until("limits are what they were", async |stage| {
            let files = ["cpu.cfs_burst_us", "cpu.max.burst"];
            Ok(stage.tree.quota_us(&limited.container)? == Some(50_000)
                && stage.tree.quota_us(&limited.group)? == Some(50_000)
                && stage.tree.read(&limited.container, "cpu", files)? == "0")
        })
        .await?;
    stage.judge().await
}
