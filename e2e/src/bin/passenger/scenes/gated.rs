//! What is off unless somebody asks for it: who is killed first when memory is short, settings of the whole node, quotas
//! on a node that is faster than others, and what pressure pods are under.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use koord_api::annotation::Annotation as _;
use koord_api::annotation::node_side::OomScoreAdjSpec;
use koord_api::annotation::ratio::CpuNormalizationRatio;
use serde_json::{Value, json};

use super::limits::{LIMITED, QUOTA_US};
use super::{BATCH, same};
use crate::node::memory_kib;
use crate::stage::{Actor, Stage, text};
use crate::tree::{BUSY, IDLE, Kind};

const GATES: &str =
    "-feature-gates=OOMScoreAdj=true,SystemConfig=true,CPUNormalization=true,PSICollector=true";
const SETTINGS: [&str; 2] = ["/proc/sys/vm/min_free_kbytes", "/proc/sys/vm/watermark_scale_factor"];
/// Ten-thousandths of the node's memory that the kernel keeps free, and how early it begins to reclaim.
const MIN_FREE: u64 = 150;
const WATERMARK: i64 = 20;
const SCORE: i64 = -500;
/// Percent of ten seconds that a container waits for CPU; one that is throttled does most of the time.
const WAITS: f64 = 20.0;

/// What the node is like where groups are not concerned.
type Host = ([String; 2], String);

pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let limited = stage.pod(LIMITED).await?;
    let batch = stage.pod(BATCH).await?;
    for group in [&limited.group, &limited.container] {
        stage.tree.limit_cpu(group, QUOTA_US)?;
    }
    let (before, host) = (stage.tree.picture(), host(&limited)?);
    stage.start_and_wait(&[GATES, "-psi-collector-interval=1s"]).await?;
    ask(&stage, &limited, true).await?;
    is_done(&mut stage, &limited, &batch).await?;
    // A process that comes into a container from outside has no score of its own.
    let guest = stage.tree.spawn(&limited.container, Command::new("sh").args(["-c", IDLE]))?;
    stage
        .until("a guest has the score of its container", async |_| Ok(score(guest)? == SCORE.to_string()))
        .await?;
    match stage.tree.kind {
        Kind::V1 => no_pressure(&stage, &limited).await?,
        Kind::V2 => pressure(&mut stage, &limited).await?,
    }

    ask(&stage, &limited, false).await?;
    stage
        .until("what nobody asks for any more is given back", async |stage| {
            let quotas = [stage.tree.quota_us(&limited.group)?, stage.tree.quota_us(&limited.container)?];
            Ok(quotas == [Some(QUOTA_US); 2] && self::host(&limited)? == host && score(guest)? == host.1)
        })
        .await?;
    ask(&stage, &limited, true).await?;
    is_done(&mut stage, &limited, &batch).await?;
    stage.judge_and_kill().await?;
    stage.clean_up()?;
    same(&before, &stage, "after clean-up")?;
    let after = self::host(&limited)?;
    ensure!(after == host && score(guest)? == host.1, "after clean-up: {host:?}, now {after:?}");
    Ok(())
}

/// Asks for everything, or for nothing any more.
async fn ask(stage: &Stage, limited: &Actor, is_wanted: bool) -> Result<()> {
    let settings = json!({ "minFreeKbytesFactor": MIN_FREE, "watermarkScaleFactor": WATERMARK });
    let settings = if is_wanted { settings } else { Value::Null };
    stage.world.order(json!({ "systemStrategy": settings })).await?;
    stage.world.annotate_node(CpuNormalizationRatio::KEY, is_wanted.then_some("1.25")).await?;
    let scores = json!({ "main": SCORE }).to_string();
    stage.world.annotate_pod(&limited.pod.uid, OomScoreAdjSpec::KEY, is_wanted.then_some(&scores));
    Ok(())
}

/// What was asked for is as the kernel has it.
async fn is_done(stage: &mut Stage, limited: &Actor, batch: &Actor) -> Result<()> {
    let free = memory_kib("MemTotal")? * MIN_FREE / 10_000;
    let want: Host = ([free.to_string(), WATERMARK.to_string()], SCORE.to_string());
    stage.until("the node and the process are set", async |_| Ok(host(limited)? == want)).await?;
    // With v1 a pod keeps what its limits say, for otherwise none of its containers could begin anew.
    let own = if stage.tree.kind == Kind::V1 { QUOTA_US } else { 40_000 };
    for _ in 0..2 {
        stage
            .until("quotas are less by the ratio", async |stage| {
                let groups = [&limited.group, &limited.container, &batch.group, &batch.container];
                let quotas = groups.map(|group| stage.tree.quota_us(group));
                let quotas = quotas.into_iter().collect::<Result<Vec<_>>>()?;
                Ok(quotas == [Some(own), Some(40_000), Some(160_000), Some(160_000)])
            })
            .await?;
        stage.tree.limit_cpu(&limited.container, QUOTA_US).context("a container cannot begin anew")?;
    }
    Ok(())
}

fn host(limited: &Actor) -> Result<Host> {
    let [free, watermark] = SETTINGS.map(text);
    Ok(([free?, watermark?], score(limited.process)?))
}

fn score(process: u32) -> Result<String> {
    text(format!("/proc/{process}/oom_score_adj"))
}

/// A container that is throttled waits, and whoever reads the metrics sees it.
async fn pressure(stage: &mut Stage, limited: &Actor) -> Result<()> {
    let waits = |rows: &[String]| -> Result<f64> {
        let is_it = |row: &&String| {
            ["cpu", "avg10", "some"].iter().all(|value| row.contains(&format!("\"{value}\"")))
        };
        let row = rows.iter().find(is_it).with_context(|| rows.join("\n"))?;
        Ok(row.rsplit(' ').next().context("a row without value")?.parse()?)
    };
    stage
        .until("a container that rests waits for nothing", async |stage| {
            let rows = rows(stage, limited).await?;
            Ok(!rows.is_empty() && waits(&rows)? < WAITS)
        })
        .await?;
    let worker = stage.tree.spawn(&limited.container, Command::new("sh").args(["-c", BUSY]))?;
    stage
        .until("one that is throttled waits", async |stage| Ok(waits(&rows(stage, limited).await?)? > WAITS))
        .await?;
    stage.tree.kill(worker)
}

/// The pressure of a pod's containers as metrics have it.
async fn rows(stage: &Stage, actor: &Actor) -> Result<Vec<String>> {
    let page = stage.page("/metrics").await?;
    let is_its = |line: &&str| line.starts_with("koordlet_container_psi{") && line.contains(&actor.pod.uid);
    Ok(page.lines().filter(is_its).map(str::to_owned).collect())
}

/// Only kernels with patches tell the pressure of groups on v1. Where the files are not there nothing is told, and that it
/// is wanted does no harm: the scene is judged as any other.
async fn no_pressure(stage: &Stage, limited: &Actor) -> Result<()> {
    let file = stage.tree.path("cpuacct", &limited.container).join("cpu.pressure");
    ensure!(!file.exists(), "cgroup v1 has {} here, and nobody looks at it", file.display());
    ensure!(rows(stage, limited).await?.is_empty(), "pressure that nobody measured");
    println!("cgroup v1 of this kernel tells no pressure of groups");
    Ok(())
}
