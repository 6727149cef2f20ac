//! `cargo xtask bench manager`: the manager as it is shipped, a process of its own, on a sandbox's API server.
//!
//! Admission under an open load with many profiles, and what 5,000 nodes that report every minute cost the manager and
//! the API server. Prints every figure with its bar and fails when one is short.

use anyhow::Result;
use clap::ValueEnum;

use crate::bench_report::Report;
use crate::bench_sandbox::process as sandbox;

mod chart;
mod load;
mod nodes;
mod process;
mod reports;
mod reviews;
mod rounds;
mod webhook;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Only these parts
    #[arg(long, value_enum)]
    part: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 2,000 reviews a second with 100 profiles, over HTTP/2 and HTTP/1.1
    Webhook,
    /// 5,000 nodes with 100,000 pods: CPU of a round, memory, writes while all report
    Noderesource,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    /// The same as words of a command line.
    fn words(&self) -> Vec<String> {
        let parts = self.part.iter().filter_map(|part| part.to_possible_value());
        parts.flat_map(|part| ["--part".to_owned(), part.get_name().to_owned()]).collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return crate::bench_kit::run_optimised("manager", &options.words());
    }
    sandbox::build()?;
    let mut report = Report::default();
    if options.wants(Part::Webhook) {
        webhook::run(&mut report)?;
    }
    if options.wants(Part::Noderesource) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(rounds::run(&mut report))?;
    }
    report.finish()
}
