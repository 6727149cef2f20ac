//! `cargo xtask bench sandbox`: the sandbox beside real kube-apiserver and etcd, by the same client in one run.
//!
//! Both servers are processes of their own on the same machine, both speak HTTPS, and neither has controllers.
//! Prints every figure with its bar and fails when one is short.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use koord_testkit::ControlPlane;

use crate::bench_report::{Report, millis};
use crate::step::say;
use client::{Load, Target};
use process::Sandbox;

pub(crate) mod client;
pub(crate) mod process;

/// Pods created and bound on the real server; it needs several seconds for them.
const PODS_REAL: usize = 6_000;
/// On the sandbox, for about as long.
const PODS_SANDBOX: usize = 30_000;
/// Pods made while others watch.
const PODS_WATCHED: usize = 2_000;
const WATCHERS: usize = 100;
/// How long watchers may trail behind the last write.
const LAG_MAX: Duration = Duration::from_secs(1);

const BIG_NODES: u32 = 5_000;
const BIG_PODS: usize = 100_000;
const BIG_MEMORY_MIB: u64 = 2_048;

/// Prints all figures.
pub(crate) fn run() -> Result<()> {
    if cfg!(debug_assertions) {
        return crate::bench_kit::run_optimised("sandbox", &[]);
    }
    process::build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report::default();
    runtime.block_on(rates(&mut report))?;
    runtime.block_on(starts(&mut report))?;
    runtime.block_on(big(&mut report))?;
    report.finish()
}

async fn rates(report: &mut Report) -> Result<()> {
    say("starting etcd and kube-apiserver, and a sandbox");
    let real =
        tokio::task::spawn_blocking(|| ControlPlane::builder()?.with_controller_manager(false).start())
            .await??;
    let sandbox = Sandbox::start(&["--nodes", "0", "--no-controllers"])?;
    let real = Arc::new(Target::new(real.kubeconfig()).await?).with(real);
    let sandbox = Arc::new(Target::new(sandbox.kubeconfig()).await?).with(sandbox);
    for (name, path) in [("pod creates", Load::Create), ("bindings", Load::Bind)] {
        let slow = client::run(&real.target, path, PODS_REAL).await?;
        let fast = client::run(&sandbox.target, path, PODS_SANDBOX).await?;
        let times = fast.per_second() / slow.per_second();
        let text =
            format!("{name}: {:.0}/s, real {:.0}/s: {times:.1}x", fast.per_second(), slow.per_second());
        report.figure(&text, "5x", times >= 5.0);
        let (p99, p99_real) = (fast.percentile(99), slow.percentile(99));
        let text = format!("{name}: p99 {:.1} ms, real {:.1} ms", millis(p99), millis(p99_real));
        report.figure(&text, "no worse", p99 <= p99_real);
    }
    for (name, target) in [("real", &real.target), ("sandbox", &sandbox.target)] {
        let is_ours = name == "sandbox";
        let watched = match client::watched(target, WATCHERS, PODS_WATCHED).await {
            Ok(watched) => watched,
            // kube-apiserver cuts off watchers that cannot keep up, as on a machine that does other things, too.
            Err(error) if !is_ours => {
                say(&format!("      {WATCHERS} watchers, {name}: {error:#}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let text = format!(
            "{WATCHERS} watchers, {name}: {:.0} creates/s, {:.0} events/s, {:.0} ms behind at the end",
            watched.load.per_second(),
            watched.events_per_second(),
            millis(watched.lag)
        );
        let is_ours = name == "sandbox";
        report.figure(
            &text,
            if is_ours { "none lost, 1 s" } else { "-" },
            !is_ours || watched.lag <= LAG_MAX,
        );
    }
    Ok(())
}

/// How long until a sandbox with nodes is ready.
async fn starts(report: &mut Report) -> Result<()> {
    for (nodes, bar) in [("100", 2.0), ("5000", 10.0)] {
        let begun = Instant::now();
        let sandbox = Sandbox::start(&["--nodes", nodes])?;
        let seconds = begun.elapsed().as_secs_f64();
        report.figure(
            &format!("{nodes} nodes: ready after {seconds:.2} s"),
            &format!("{bar} s"),
            seconds < bar,
        );
        drop(sandbox);
    }
    Ok(())
}

/// A large cluster's memory, every pod running.
async fn big(report: &mut Report) -> Result<()> {
    let sandbox = Sandbox::start(&["--nodes", &BIG_NODES.to_string()])?;
    let target = Arc::new(Target::new(sandbox.kubeconfig()).await?);
    let load = Load::CreateOn { nodes: BIG_NODES };
    let made = client::run(&target, load, BIG_PODS).await?;
    say(&format!("{BIG_PODS} pods made at {:.0}/s", made.per_second()));
    let begun = Instant::now();
    let mut most = 0;
    loop {
        most = most.max(sandbox.resident_mib()?);
        let running = sandbox.running_pods().await?;
        if running >= BIG_PODS {
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(300), "only {running} pods run after 5 min");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    most = most.max(sandbox.resident_mib()?);
    let text = format!("{BIG_NODES} nodes + {BIG_PODS} running pods: {most} MiB at most");
    report.figure(&text, &format!("{BIG_MEMORY_MIB} MiB"), most <= BIG_MEMORY_MIB);
    Ok(())
}

/// A target and what keeps it alive.
struct Alive<T> {
    target: Arc<Target>,
    _server: T,
}

trait With: Sized {
    fn with<T>(self, server: T) -> Alive<T>;
}

impl With for Arc<Target> {
    fn with<T>(self, server: T) -> Alive<T> {
        Alive { target: self, _server: server }
    }
}

/// Fails with a hint when a file of a run is missing.
fn read(path: &std::path::Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
