//! `cargo xtask bench koordlet`: what watching a node costs, beside a plain reader of the same files in the same run.
//!
//! The node is a tree of files with 50, 150 and 300 containers, of cgroup v1 and v2, whose counters move. The collectors
//! and the store run as a process of their own (`crates/koordlet/examples/observe`), the store filled with an hour of
//! samples. Prints every figure with its bar and fails when one is short.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bench_process::{cpu_exact, resident_mib};
use crate::bench_report::Report;
use crate::root;
use crate::step::{cargo, exec, say};

mod role;
mod trace;

use role::Role;

/// Before anything is measured: start, first readings.
const WARM_UP: Duration = Duration::from_secs(3);
/// How long calls to the kernel are watched.
const TRACED: Duration = Duration::from_secs(5);
/// Of the reader's CPU time.
const CPU_RATIO_MAX: f64 = 2.0;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Seconds that each case is measured
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Only these numbers of containers
    #[arg(long, default_values_t = [50, 150, 300])]
    containers: Vec<usize>,
    /// Only these versions of cgroups
    #[arg(long, default_values_t = ["v1".to_owned(), "v2".to_owned()])]
    cgroup: Vec<String>,
    /// The profile that the measured program is built with
    #[arg(long, default_value = "release")]
    profile: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let program = build(&options.profile)?;
    let mut report = Report::default();
    for version in &options.cgroup {
        ensure!(["v1", "v2"].contains(&version.as_str()), "{version} is neither v1 nor v2");
        for containers in &options.containers {
            case(&mut report, &program, version, *containers, Duration::from_secs(options.seconds))?;
        }
    }
    allocations(&mut report)?;
    report.finish()
}

fn build(profile: &str) -> Result<PathBuf> {
    exec(&mut cargo(&[
        "build",
        "--quiet",
        "--profile",
        profile,
        "--package",
        "koordlet",
        "--example",
        "observe",
    ]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target.join(folder).join("examples/observe"))
}

fn case(report: &mut Report, program: &Path, version: &str, containers: usize, time: Duration) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().to_str().context("the directory for temporary files is not UTF-8")?;
    let count = containers.to_string();
    let mut tree = Role::start(program, &["tree", place, version, &count])?;
    say(&format!("\n{version}, {containers} containers: {}", tree.line()?));
    let mut agent = Role::start(program, &["collect", place, version])?;
    say(&format!("store: {}", agent.line()?));
    let reader = Role::start(program, &["read", place])?;
    std::thread::sleep(WARM_UP);
    let before = (cpu_exact(agent.pid())?, cpu_exact(reader.pid())?);
    std::thread::sleep(time);
    let used =
        [cpu_exact(agent.pid())?.saturating_sub(before.0), cpu_exact(reader.pid())?.saturating_sub(before.1)];
    let [ours, readers] = used.map(|used| used.as_secs_f64() / time.as_secs_f64());
    let ratio = ours / readers;
    report.figure(
        &format!("CPU {ours:.4} cores, the reader {readers:.4}: {ratio:.2} times"),
        &format!("{CPU_RATIO_MAX} times"),
        ratio <= CPU_RATIO_MAX,
    );
    let resident = resident_mib(agent.pid())?;
    let bar = if containers <= 150 { 30.0 } else { 35.0 };
    report.figure(
        &format!("resident {resident:.1} MiB with an hour of samples"),
        &format!("{bar} MiB"),
        resident <= bar,
    );
    match trace::watch(agent.pid(), TRACED)? {
        Some(calls) => {
            report.figure(&format!("{} files opened in {TRACED:?}", calls.opens), "0", calls.opens == 0);
            let text = format!("{} writes in {TRACED:?}, {} of them repeated", calls.writes, calls.repeated);
            report.figure(&text, "0 repeated", calls.repeated == 0);
        }
        None => say("opens and writes are not counted: there is no strace"),
    }
    Ok(())
}

/// Allocations of a steady pass are counted by a test, which needs an allocator that valgrind knows.
fn allocations(report: &mut Report) -> Result<()> {
    let words = ["test", "--quiet", "--package", "koordlet", "--test", "steady", "--", "--nocapture"];
    let is_met = exec(&mut cargo(&words)).is_ok();
    report.figure(
        "allocations and opens of a steady pass, by crates/koordlet/tests/steady.rs",
        "0 per sample",
        is_met,
    );
    Ok(())
}
