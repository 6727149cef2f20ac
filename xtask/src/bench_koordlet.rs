//! `cargo xtask bench koordlet`: what koordlet costs a node, beside a plain reader of the same files in the same run.
//!
//! `cost`: the program as it is shipped, with default gates and flags, on a node of 50, 150 and 300 containers, of cgroup
//! v1 and v2, whose counters move (`world`); its store begins with an hour of samples. `churn`: the node's thread through
//! a day in which pods come and go. Prints every figure with its bar and fails when one is short.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use koord_testkit::node_tree::Cgroup;

use crate::bench_process::{cpu_of_threads, resident_mib};
use crate::bench_report::Report;
use crate::bench_sandbox::process::{build, program};
use crate::step::{cargo, exec, say};

mod agent;
mod churn;
mod reader;
mod trace;
mod world;

use agent::Agent;
use world::World;

/// Before anything is measured: first writes, first readings.
const WARM_UP: Duration = Duration::from_secs(15);
/// How long calls to the kernel are watched.
const TRACED: Duration = Duration::from_secs(70);
/// Of the reader's CPU time.
const CPU_RATIO_MAX: f64 = 2.0;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Only this part
    #[arg(long, value_parser = ["cost", "churn"])]
    part: Option<String>,
    /// Seconds that each case is measured
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only these numbers of containers
    #[arg(long, value_delimiter = ',', default_values_t = [50, 150, 300])]
    containers: Vec<usize>,
    /// Only these versions of cgroups
    #[arg(long, value_delimiter = ',', value_parser = ["v1", "v2"], default_values_t = ["v1".to_owned(), "v2".to_owned()])]
    cgroup: Vec<String>,
    /// Hours of churn
    #[arg(long, default_value_t = 24)]
    hours: u32,
    /// What the benchmark starts beside koordlet: reads the files that this file names
    #[arg(long, hide = true)]
    read: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(list) = &options.read {
        return reader::read(list);
    }
    if cfg!(debug_assertions) {
        let words: Vec<String> = std::env::args().skip(3).collect();
        return crate::bench_kit::run_optimised("koordlet", &words);
    }
    let is_wanted = |part: &str| options.part.as_deref().is_none_or(|only| only == part);
    if is_wanted("cost") {
        crate::setup::strace()?;
    }
    let day = build_all()?;
    let mut report = Report::default();
    if is_wanted("cost") {
        for version in &options.cgroup {
            for containers in &options.containers {
                let cgroup = if version == "v1" { Cgroup::V1 } else { Cgroup::V2 };
                let case = Case { cgroup, containers: *containers, day: &day };
                case.run(&mut report, Duration::from_secs(options.seconds))?;
            }
        }
        allocations(&mut report);
    }
    if is_wanted("churn") {
        churn::run(&mut report, &day, options.hours)?;
    }
    report.finish()
}

/// Returns the program that makes hours pass.
fn build_all() -> Result<PathBuf> {
    build()?;
    let words = ["build", "--quiet", "--profile", "shipped", "--package", "koordlet", "--example", "day"];
    exec(&mut cargo(&words))?;
    Ok(program().with_file_name("examples").join("day"))
}

/// One node to be measured.
struct Case<'p> {
    cgroup: Cgroup,
    containers: usize,
    day: &'p Path,
}

/// CPU time of koordlet and of the reader.
#[derive(Clone, Copy)]
struct Used([Duration; 2]);

impl Used {
    fn now(pids: [u32; 2]) -> Result<Used> {
        Ok(Used([cpu_of_threads(pids[0])?, cpu_of_threads(pids[1])?]))
    }

    /// Cores since an earlier look.
    fn cores_since(self, before: Used, time: Duration) -> [f64; 2] {
        [0, 1].map(|at| self.0[at].saturating_sub(before.0[at]).as_secs_f64() / time.as_secs_f64())
    }
}

impl Case<'_> {
    fn run(&self, report: &mut Report, time: Duration) -> Result<()> {
        let world = World::make(self.cgroup, self.containers, self.day)?;
        let (pods, files) = world.size();
        say(&format!("\n{:?}, {} containers in {pods} pods: {files} files", self.cgroup, self.containers));
        let mut agent = Agent::start(&world)?;
        agent.ready()?;
        let reader = reader::Reader::start(&world)?;
        std::thread::sleep(WARM_UP);
        let pids = [agent.pid(), reader.pid()];
        let before = Used::now(pids)?;
        std::thread::sleep(time);
        let [ours, readers] = Used::now(pids)?.cores_since(before, time);
        ensure!(readers > 0.0, "the reader does nothing");
        let ratio = ours / readers;
        report.figure(
            &format!("CPU {ours:.4} cores, the reader {readers:.4}: {ratio:.2} times"),
            &format!("{CPU_RATIO_MAX} times"),
            ratio <= CPU_RATIO_MAX,
        );
        self.memory(report, &agent)?;
        self.calls(report, &agent, &world)
    }

    fn memory(&self, report: &mut Report, agent: &Agent) -> Result<()> {
        let resident = resident_mib(agent.pid())?;
        let bar = if self.containers <= 150 { 30.0 } else { 35.0 };
        let text = format!("resident {resident:.1} MiB with an hour of samples ({})", agent.memory()?);
        report.figure(&text, &format!("{bar} MiB"), resident <= bar);
        Ok(())
    }

    fn calls(&self, report: &mut Report, agent: &Agent, world: &World) -> Result<()> {
        let calls = trace::watch(agent.pid(), &world.tree(), TRACED, || world.lower_threshold())?;
        let sampled = world.is_sampled(&calls.opened);
        let text =
            format!("{sampled} opens of sampled files in {TRACED:?} (others: {})", calls.others(sampled));
        report.figure(&text, "0", sampled == 0);
        let text = format!("{} writes in {TRACED:?}, {} of them repeated", calls.writes, calls.repeated);
        // Without a write that is seen, none that is repeated would be.
        report.figure(&text, "some, 0 repeated", calls.writes > 0 && calls.repeated == 0);
        Ok(())
    }
}

/// Allocations of a steady pass are counted by a test, with a library in front of the C library's allocator.
fn allocations(report: &mut Report) {
    let words = ["test", "--quiet", "--package", "koordlet", "--test", "steady", "--", "--nocapture"];
    // Where CI is set, it fails when a tool that it counts with is missing.
    let is_met = exec(cargo(&words).env("CI", "true")).is_ok();
    report.figure(
        "allocations and opens of a steady pass, by crates/koordlet/tests/steady.rs",
        "0 per sample",
        is_met,
    );
}
