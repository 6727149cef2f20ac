//! Containers of a real containerd: koordlet finds and governs them, stops those of a pod that must go, and governs what
//! kubelet starts again.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::BATCH;
use super::evict::GREEDY;
use crate::containerd::{Containerd, Sandbox};
use crate::node::{PodPlan, Running};
use crate::stage::Stage;
use crate::tree::BUSY;

/// Evictions that stop containers instead of asking the API server: the default.
const STOPPING: &str = "-only-evict-by-api=false";
const MEMORY_LIMIT: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

/// A pod whose container a runtime made.
struct Contained {
    pod: Running,
    group: String,
    sandbox: Sandbox,
    /// Of its container now.
    id: String,
}

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    // koordlet looks for the socket there by itself.
    let socket = stage.dir().join("run/containerd/containerd.sock");
    let runtime = Containerd::start(&stage.dir().join("containerd"), socket).await?;
    println!("containerd answers");
    let modest = run(&mut stage, &runtime, BATCH, "exec sleep infinity").await?;
    let mut greedy = run(&mut stage, &runtime, GREEDY, BUSY).await?;
    stage.world.order(threshold(json!({ "enable": true, "cpuSuppressThresholdPercent": 1 }))).await?;
    stage.start_and_wait(&[STOPPING]).await?;
    is_governed(&mut stage, &modest, 200_000, Some(256 << 20)).await?;
    is_governed(&mut stage, &greedy, 3_200_000, None).await?;

    stage
        .world
        .order(threshold(json!({
            "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 80,
            "cpuEvictBEUsageThresholdPercent": 5, "cpuEvictTimeWindowSeconds": 3 })))
        .await?;
    stage.until("the container is stopped", async |_| Ok(!runtime.runs(&greedy.id).await?)).await?;
    stage.world.order(threshold(json!({ "cpuEvictBESatisfactionLowerPercent": null }))).await?;
    ensure!(runtime.runs(&modest.id).await?, "a bystander was stopped");
    is_counted(&mut stage, &greedy).await?;

    // As kubelet does when a container has ended: another one in the same sandbox.
    greedy.id = runtime.container(&greedy.sandbox, 1, BUSY).await?;
    let id = format!("containerd://{}", greedy.id);
    stage
        .world
        .retell(&greedy.pod.uid, |pod| pod["status"]["containerStatuses"][0]["containerID"] = json!(id));
    is_governed(&mut stage, &greedy, 3_200_000, None).await?;
    ensure!(runtime.runs(&greedy.id).await?, "the container that began anew was stopped");
    stage.judge_and_kill().await?;
    stage.clean_up()?;
    for pod in [&modest, &greedy] {
        runtime.remove(&pod.sandbox).await?;
        stage.tree.remove(&pod.group)?;
    }
    Ok(())
}

fn threshold(fields: Value) -> Value {
    json!({ "resourceUsedThresholdWithBE": fields })
}

/// A pod with a container that runs a command.
async fn run(stage: &mut Stage, runtime: &Containerd, plan: PodPlan<'_>, command: &str) -> Result<Contained> {
    let (pod, mut told) = stage.world.make_pod(plan, 0).await?;
    let group = stage.tree.pod(plan.kube_qos, &pod.uid);
    stage.tree.make(&group)?;
    let sandbox = runtime.sandbox(&pod, &stage.tree.name_in_kernel(&group)?).await?;
    let id = runtime.container(&sandbox, 0, command).await?;
    told["status"]["containerStatuses"][0]["containerID"] = json!(format!("containerd://{id}"));
    stage.world.tell(told);
    Ok(Contained { pod, group, sandbox, id })
}

/// The groups that the runtime made have what the pod asks for.
async fn is_governed(stage: &mut Stage, pod: &Contained, quota_us: i64, memory: Option<u64>) -> Result<()> {
    let container = stage.tree.container(&pod.group, &pod.id);
    stage
        .until("a container has the limits of its pod", async |stage| {
            let limit: u64 = stage.tree.read(&container, "memory", MEMORY_LIMIT)?.parse()?;
            Ok(stage.tree.quota_us(&pod.group)? == Some(quota_us)
                && stage.tree.quota_us(&container)? == Some(quota_us)
                && memory.is_none_or(|memory| memory == limit))
        })
        .await?;
    // Of a sandbox nobody asks anything; it has the least.
    let sandbox = stage.tree.container(&pod.group, &pod.sandbox.id);
    stage
        .until("its sandbox has the least", async |stage| {
            Ok(stage.tree.read(&sandbox, "cpu", ["cpu.shares", "cpu.weight"])? == "2")
        })
        .await
}

/// A pod's end is counted, and stands in the audit log.
async fn is_counted(stage: &mut Stage, pod: &Contained) -> Result<()> {
    let name = pod.pod.name.clone();
    let is_meant = |line: &&str| {
        line.starts_with("koordlet_pod_eviction_detail") && line.contains(&format!("pod_name=\"{name}\""))
    };
    stage
        .until("the eviction is counted", async |stage| {
            let metrics = stage.page("/metrics").await?;
            let Some(line) = metrics.lines().find(is_meant) else { return Ok(false) };
            let count: f64 = line.rsplit(' ').next().context("a metric without value")?.parse()?;
            Ok(count >= 1.0)
        })
        .await?;
    let records = stage.page("/events?size=200").await?;
    let record = format!("\"name\":\"{name}\",\"reason\":\"evicted\"");
    ensure!(records.contains(&record), "no record of it:\n{records}");
    Ok(())
}
