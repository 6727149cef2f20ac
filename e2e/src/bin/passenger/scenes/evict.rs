//! Pods that must go: for want of memory, and because best-effort pods get too little CPU.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{BATCH, SERVICE};
use crate::node::{PodPlan, memory_kib};
use crate::stage::{Actor, Stage};
use crate::tree::BUSY;

/// What the pod that must go holds.
const HELD_MIB: u64 = 192;

/// Asks for more CPU than it can get.
pub(super) const GREEDY: PodPlan<'static> = PodPlan {
    name: "greedy",
    qos: "BE",
    kube_qos: "BestEffort",
    requests: &[("kubernetes.io/batch-cpu", "32000")],
    limits: &[("kubernetes.io/batch-cpu", "32000")],
};

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    stage.pod(SERVICE).await?;
    let small = stage.pod(BATCH).await?;
    // Best-effort pods have the least all the time: v1 refuses to narrow a group in which a pod appears at that moment.
    let mut strategy = enough_memory();
    strategy["resourceUsedThresholdWithBE"]["enable"] = json!(true);
    strategy["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] = json!(1);
    stage.world.order(strategy).await?;
    stage.start_and_wait(&[]).await?;
    let class = stage.tree.class("BestEffort");
    stage
        .until("best-effort pods have two CPUs", async |stage| Ok(stage.tree.cpus(&class)?.len() == 2))
        .await?;
    for_memory(&mut stage).await?;
    ensure!(stage.world.pods().get_opt(&small.pod.name).await?.is_some(), "another pod went for memory");
    for_cpu(&mut stage).await?;
    ensure!(stage.world.pods().get_opt(&small.pod.name).await?.is_some(), "another pod went for CPU");
    stage.judge().await
}

/// Nobody goes for want of memory.
fn enough_memory() -> Value {
    json!({ "resourceUsedThresholdWithBE": { "memoryEvictThresholdPercent": 99, "memoryEvictLowerPercent": 98 } })
}

async fn for_memory(stage: &mut Stage) -> Result<()> {
    let requests = &[("kubernetes.io/batch-memory", "1Mi")];
    let hog = stage.pod(PodPlan { name: "hog", requests, limits: &[], ..BATCH }).await?;
    stage
        .until("the pod is heard of", async |stage| Ok(is_listed(&stage.page("/metrics").await?, &hog)))
        .await?;
    let program = std::env::current_exe()?;
    let mut eat = Command::new(program);
    let eater = stage.tree.spawn(&hog.container, eat.arg("eat").arg(HELD_MIB.to_string()))?;
    stage
        .until("memory is held", async |_| {
            let status = crate::stage::text(format!("/proc/{eater}/status"))?;
            let held = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
            Ok(held.and_then(|held| held.parse::<u64>().ok()).is_some_and(|held| held > HELD_MIB << 10))
        })
        .await?;
    let (total, free) = (memory_kib("MemTotal")?, memory_kib("MemAvailable")?);
    // What is left without the pod is well below the threshold.
    let percent = (total - free) * 100 / total - 2;
    stage
        .world
        .order(json!({ "resourceUsedThresholdWithBE": { "memoryEvictThresholdPercent": percent,
            "memoryEvictLowerPercent": percent - 1 } }))
        .await?;
    gone(stage, &hog).await?;
    stage.world.order(enough_memory()).await
}

/// Two CPUs of the 32 that it asks for, and it uses them.
async fn for_cpu(stage: &mut Stage) -> Result<()> {
    let greedy = stage.pod(GREEDY).await?;
    stage.tree.spawn(&greedy.container, Command::new("sh").args(["-c", BUSY]))?;
    measured(stage, &greedy).await?;
    stage
        .world
        .order(json!({ "resourceUsedThresholdWithBE": {
            "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 80,
            "cpuEvictBEUsageThresholdPercent": 5, "cpuEvictTimeWindowSeconds": 3 } }))
        .await?;
    gone(stage, &greedy).await
}

/// koordlet has heard of the pod: its page of metrics shows what the pod requests.
fn is_listed(metrics: &str, actor: &Actor) -> bool {
    let name = format!("pod_name=\"{}\"", actor.pod.name);
    metrics
        .lines()
        .any(|line| line.starts_with("koordlet_container_resource_requests{") && line.contains(&name))
}

/// koordlet knows what the pod uses. It shows what a pod requests in the second it hears of it, when counters are first
/// read; a second later it has a rate, and suppression has a turn in each.
async fn measured(stage: &mut Stage, actor: &Actor) -> Result<()> {
    let mut heard: Option<f64> = None;
    stage
        .until("the pod is measured", async |stage| {
            let metrics = stage.page("/metrics").await?;
            let turns = turns(&metrics);
            if heard.is_none() && is_listed(&metrics, actor) {
                heard = turns;
            }
            Ok(heard.zip(turns).is_some_and(|(heard, now)| now >= heard + 2.0))
        })
        .await
}

/// How many turns suppression has had, by koordlet's page of metrics.
fn turns(metrics: &str) -> Option<f64> {
    let is_meant = |line: &&str| {
        line.starts_with("koordlet_qos_strategy_status")
            && line.contains("strategy=\"CPUSuppresss\"")
            && line.contains("status=\"succeeded\"")
    };
    metrics.lines().find(is_meant)?.rsplit(' ').next()?.parse().ok()
}

/// The pod has gone, and everyone was told.
async fn gone(stage: &mut Stage, actor: &Actor) -> Result<()> {
    let name = actor.pod.name.clone();
    stage
        .until("the pod is evicted", async |stage| Ok(stage.world.pods().get_opt(&name).await?.is_none()))
        .await?;
    stage.end(actor)?;
    stage
        .until("an event tells of it", async |stage| {
            Ok(stage.world.reasons(&name).await?.iter().any(|reason| reason == "evictPodSuccess"))
        })
        .await?;
    let metrics = stage.page("/metrics").await?;
    let line = metrics.lines().find(|line| {
        line.starts_with("koordlet_pod_eviction_detail") && line.contains(&format!("pod_name=\"{name}\""))
    });
    ensure!(
        line.is_some_and(|line| line.ends_with(" 1") || line.ends_with(" 1.0")),
        "no metric of {name}: {line:?}"
    );
    stage
        .until("a record tells of it", async |stage| {
            let records = stage.page("/events?size=200").await?;
            Ok(records.contains(&format!("\"name\":\"{name}\",\"reason\":\"evicted\"")))
        })
        .await
}
