//! `cargo xtask differential`: our scheduling beside the real kube-scheduler's, at length.

use anyhow::Result;

use crate::step::{cargo, exec};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many generated scenarios
    #[arg(long, default_value_t = 500)]
    scenarios: u64,
    /// The seed of the first one; those after it follow
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A scenario that was kept, instead of generated ones
    #[arg(long)]
    file: Option<std::path::PathBuf>,
    /// On the sandbox's API server instead of kube-apiserver
    #[arg(long)]
    sandbox: bool,
    /// A folder in which what the real scheduler did is kept, in the format of the golden recordings
    #[arg(long)]
    keep: Option<std::path::PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = cargo(&["run", "--locked", "--package", "koord-e2e", "--bin", "differential", "--"]);
    command.arg("--scenarios").arg(options.scenarios.to_string());
    command.arg("--seed").arg(options.seed.to_string());
    if options.sandbox {
        command.arg("--sandbox");
    }
    if let Some(folder) = &options.keep {
        command.arg("--keep").arg(std::path::absolute(folder)?);
    }
    if let Some(file) = &options.file {
        command.arg("--file").arg(std::path::absolute(file)?);
    }
    exec(&mut command)
}
