//! Core scheduling: pods of one group share a cookie of the kernel's, others have another, and all of it goes again.

use std::process::Command;

use anyhow::{Result, ensure};
use koord_linux::core_sched;
use serde_json::{Value, json};

use super::{BATCH, End, SERVICE};
use crate::node::PodPlan;
use crate::stage::{Actor, Stage, text};
use crate::tree::IDLE;

const GATE: &str = "-feature-gates=CoreSched=true,AuditEvents=true";

/// With services that keep others off their cores.
fn policy(is_on: bool) -> Value {
    json!({ "resourceQOSStrategy": { "policies": { "cpuPolicy": "coreSched" },
        "lsClass": { "cpuQOS": { "enable": is_on, "coreExpeller": is_on } },
        "beClass": { "cpuQOS": { "enable": is_on, "schedIdle": i32::from(is_on) } } } })
}

pub(super) async fn play() -> Result<End> {
    if !core_sched::is_supported() {
        return Ok(End::Skipped("this kernel has no core scheduling; KOORD_KERNEL can name one that has"));
    }
    let mut stage = Stage::new().await?;
    let services = [stage.pod(SERVICE).await?, stage.pod(PodPlan { name: "other", ..SERVICE }).await?];
    let batch = stage.pod(BATCH).await?;
    stage.world.order(policy(true)).await?;
    stage.start_and_wait(&[GATE]).await?;
    stage.until("pods have cookies", async |_| is_split(&services, &batch)).await?;
    let class = stage.tree.class("BestEffort");
    stage
        .until("best-effort pods run when others are idle", async |stage| {
            Ok(text(stage.tree.path("cpu", &class).join("cpu.idle"))? == "1")
        })
        .await?;
    let given = cookies(&services, &batch)?;
    // A process that comes into a container from outside brings no cookie along.
    let guest = stage.tree.spawn(&batch.container, Command::new("sh").args(["-c", IDLE]))?;
    stage
        .until("a guest has the cookie of its container", async |_| {
            Ok(core_sched::cookie(guest)? == core_sched::cookie(batch.process)?)
        })
        .await?;
    // Another run finds them and changes none.
    stage.kill()?;
    stage.start_and_wait(&[GATE]).await?;
    let late = stage.pod(PodPlan { name: "late", ..SERVICE }).await?;
    stage
        .until("a pod that comes later joins its group", async |_| {
            Ok(core_sched::cookie(late.process)? == core_sched::cookie(services[0].process)?)
        })
        .await?;
    ensure!(cookies(&services, &batch)? == given, "a new run changed cookies");
    stage.world.order(policy(false)).await?;
    stage.until("no pod has a cookie", async |_| Ok(cookies(&services, &batch)? == [0; 3])).await?;
    stage.world.order(policy(true)).await?;
    stage.until("pods have cookies again", async |_| is_split(&services, &batch)).await?;
    stage.kill()?;
    stage.clean_up()?;
    ensure!(cookies(&services, &batch)? == [0; 3], "clean-up left cookies");
    ensure!(core_sched::cookie(late.process)? == 0 && core_sched::cookie(guest)? == 0, "clean-up left some");
    Ok(End::Played)
}

fn cookies(services: &[Actor; 2], batch: &Actor) -> Result<[u64; 3]> {
    let cookie = |actor: &Actor| core_sched::cookie(actor.process);
    Ok([cookie(&services[0])?, cookie(&services[1])?, cookie(batch)?])
}

/// Services share one, and best-effort pods have another.
fn is_split(services: &[Actor; 2], batch: &Actor) -> Result<bool> {
    let [first, second, other] = cookies(services, batch)?;
    Ok(first != 0 && first == second && other != 0 && other != first)
}
