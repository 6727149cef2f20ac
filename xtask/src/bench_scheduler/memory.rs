//! Memory of the scheduler in a large cluster, which a sandbox plays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::process::{Kind, Scheduler};
use crate::bench_report::Report;
use crate::bench_sandbox::client::{self, Load, Target};
use crate::bench_sandbox::process::{self, Sandbox};
use crate::step::say;

const NODES: u32 = 5_000;
const PODS: usize = 150_000;
const BAR_MIB: f64 = 400.0;
/// Memory that did not grow for so long is what it takes.
const STILL: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_secs(180);

pub(super) fn run(report: &mut Report) -> Result<()> {
    process::build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(big(report))
}

async fn big(report: &mut Report) -> Result<()> {
    let sandbox = Sandbox::start(&["--nodes", &NODES.to_string(), "--scheduler", "none"])?;
    let target = Arc::new(Target::new(sandbox.kubeconfig()).await?);
    let made = client::run(&target, Load::CreateOn { nodes: NODES }, PODS).await?;
    say(&format!("{PODS} pods made at {:.0}/s", made.per_second()));
    let scheduler = Scheduler::start(Kind::Ours, sandbox.kubeconfig())?;
    let (begun, mut grew, mut most) = (Instant::now(), Instant::now(), 0.0f64);
    while grew.elapsed() < STILL {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = scheduler.resident_mib()?;
        if now > most + 1.0 {
            (most, grew) = (now, Instant::now());
        }
        ensure!(begun.elapsed() < LIMIT, "memory still grows after {LIMIT:?}: {most:.0} MiB");
    }
    let text = format!("{NODES} nodes + {PODS} pods: {most:.0} MiB at most");
    report.figure(&text, &format!("{BAR_MIB:.0} MiB"), most <= BAR_MIB);
    Ok(())
}
