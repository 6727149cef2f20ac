//! `cargo xtask bench scheduler`: the engine alone, and the scheduler on a real API server beside its peers.
//!
//! All ratios are taken in one run, since machines differ from hour to hour. Prints every figure with its bar and
//! fails when one is short.

use anyhow::Result;
use clap::ValueEnum;

use crate::bench_report::Report;

mod cluster;
mod engine;
mod instructions;
mod memory;
mod process;
mod workload;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Only these workloads of bench/scheduler (with `basic`, which others are measured against)
    #[arg(long)]
    workload: Vec<String>,
    /// Only these parts
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// Place so many pods of the workload named last, and nothing else: what part `instructions` counts
    #[arg(long, hide = true)]
    only_place: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The engine in this process, no I/O
    Engine,
    /// How the engine's cost grows from 1,000 to 50,000 nodes
    Growth,
    /// Instructions that a pod costs the engine, by valgrind: the same on a busy machine and on a quiet one
    Instructions,
    /// On real kube-apiserver and etcd, beside kube-scheduler and a client that only binds
    Cluster,
    /// Memory with 150,000 pods
    Memory,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.part.is_empty() && (self.workload.is_empty() || part == Part::Engine)
            || self.part.contains(&part)
    }

    /// The same as words of a command line.
    fn words(&self) -> Vec<String> {
        let parts = self.part.iter().filter_map(|part| part.to_possible_value());
        let parts = parts.flat_map(|part| ["--part".to_owned(), part.get_name().to_owned()]);
        let workloads = self.workload.iter().flat_map(|name| ["--workload".to_owned(), name.clone()]);
        parts.chain(workloads).collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return crate::bench_kit::run_optimised("scheduler", &options.words());
    }
    let workloads = workload::load(&options.workload)?;
    if let (Some(pods), Some(workload)) = (options.only_place, workloads.last()) {
        return engine::only_place(workload, pods);
    }
    let mut report = Report::default();
    if options.wants(Part::Engine) {
        engine::workloads(&mut report, &workloads)?;
    }
    if options.wants(Part::Growth) {
        engine::growth(&mut report, &workloads)?;
    }
    if options.wants(Part::Instructions) {
        instructions::run(&workloads)?;
    }
    if options.wants(Part::Cluster) {
        cluster::run(&mut report)?;
    }
    if options.wants(Part::Memory) {
        memory::run(&mut report)?;
    }
    report.finish()
}
