//! `cargo xtask test`: all that must hold before a change lands. CI runs this and nothing else.

use anyhow::Result;

use crate::step::{Steps, cargo, exec};
use crate::{fuzz, r#gen, k8s, setup};

/// Seconds that each fuzz target runs within the test command.
const FUZZ_SECONDS: u32 = 5;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out what needs a real Kubernetes, and the fuzz targets: for quick rounds while writing
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut steps = Steps::default();
    steps.run("tools", setup::run)?;
    steps.run("format", || exec(&mut cargo(&["fmt", "--all", "--check"])))?;
    steps.run("lints", || {
        exec(&mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
    })?;
    steps.run("generated files", || r#gen::run(true))?;
    if options.quick {
        steps.run("tests without a cluster", || {
            exec(&mut cargo(&["test", "--workspace", "--locked", "--exclude", "koord-e2e"]))
        })?;
    } else {
        steps.run("a real Kubernetes for the tests", k8s::build_for_tests)?;
        steps.run("tests", || exec(&mut cargo(&["test", "--workspace", "--locked", "--no-fail-fast"])))?;
    }
    steps.run("documentation", || {
        exec(cargo(&["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    if !options.quick {
        steps.run("fuzz targets, briefly", || fuzz::run(&fuzz::Options::all_for(FUZZ_SECONDS)))?;
    }
    steps.summary();
    Ok(())
}
