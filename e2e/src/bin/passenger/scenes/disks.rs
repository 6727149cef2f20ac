//! Limits of a disk for best-effort pods: the kernel has them while the feature is on, and loses them when its gate is
//! off in the next run, and by clean-up.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{BATCH, SERVICE};
use crate::modules;
use crate::stage::Stage;
use crate::tree::Kind;

const DISK: &str = "/dev/ram0";

pub(super) async fn play() -> Result<()> {
    modules::load("brd", c"rd_nr=1 rd_size=1024")?;
    let number = fs::read_to_string("/sys/class/block/ram0/dev").context("the disk is missing")?;
    let number = number.trim().to_owned();
    let mut stage = Stage::new().await?;
    stage.pod(SERVICE).await?;
    stage.pod(BATCH).await?;
    let before = stage.tree.picture();
    let limits = json!({ "readIOPS": 100, "writeBPS": 1_048_576 });
    let blocks = json!([{ "name": DISK, "type": "device", "ioCfg": limits }]);
    stage
        .world
        .order(json!({ "resourceQOSStrategy": { "beClass": { "blkioQOS": { "enable": true, "blocks": blocks } } } }))
        .await?;
    let on = "-feature-gates=BlkIOReconcile=true,AuditEvents=true";
    for end in ["clean-up", "gate"] {
        stage.start_and_wait(&[on]).await?;
        let is_limited =
            async |stage: &mut Stage| limits_of(stage, &number).map(|limits| limits == "100 1048576");
        stage.until("the disk is limited", is_limited).await?;
        stage.judge_and_kill().await?;
        ensure!(stage.tree.picture() != before, "nothing was changed");
        if end == "clean-up" {
            stage.clean_up()?;
        } else {
            stage.start_and_wait(&["-feature-gates=BlkIOReconcile=false"]).await?;
        }
        let is_free = async |stage: &mut Stage| limits_of(stage, &number).map(|limits| limits == "none none");
        stage.until("the disk is free again", is_free).await?;
    }
    Ok(())
}

/// Reads in a second and bytes written in a second, as the kernel has them for best-effort pods.
fn limits_of(stage: &Stage, disk: &str) -> Result<String> {
    let class = stage.tree.class("BestEffort");
    let limit = |v1: &str, key: &str| -> Result<String> {
        let text = stage.tree.read(&class, "blkio", [v1, "io.max"])?;
        let line = text.lines().find_map(|line| line.strip_prefix(disk)?.strip_prefix(' '));
        let words = line.unwrap_or_default().split_whitespace();
        let value = match stage.tree.kind {
            Kind::V1 => words.map(str::to_owned).next(),
            Kind::V2 => words.filter_map(|word| word.strip_prefix(key)).map(str::to_owned).next(),
        };
        Ok(value.filter(|value| value != "max").unwrap_or_else(|| "none".to_owned()))
    };
    let read = limit("blkio.throttle.read_iops_device", "riops=")?;
    Ok(format!("{read} {}", limit("blkio.throttle.write_bps_device", "wbps=")?))
}
